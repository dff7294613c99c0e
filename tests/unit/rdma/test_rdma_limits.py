# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of services: what systemd gives them, told by a service or by systemd itself, and the verdicts."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import check as checking
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import files, limits, settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Modules, Software, System
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.verify import judge_services
from ansible_collections.hpcai.gpu_cluster.plugins.modules import rdma_check
from module_run import run_main

# As Linux 6.1 prints them, cut to what is read and its neighbors.
SERVICE = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
Max address space         unlimited            unlimited            bytes
"""
# As systemd 252 says it.
MANAGER = """DefaultLimitMEMLOCKSoft=infinity
DefaultLimitMEMLOCK=infinity
DefaultLimitNOFILESoft=1048576
DefaultLimitNOFILE=1048576
"""
WANTED = {"memlock": "unlimited", "nofile": "1048576"}
RIGHT = {"memlock": ("unlimited", "unlimited"), "nofile": ("1048576", "1048576")}


class Systemd:
    """Starts services, or has no bus to be asked on."""

    def __init__(self, service: tuple[int, str], manager: str = "") -> None:
        self.service, self.manager = service, manager
        self.done: list[str] = []

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        self.done.append(" ".join(args))
        if "systemd-run" in args:
            return (*self.service, "")
        return 0, self.manager, ""


def test_a_service_tells_its_own_limits() -> None:
    host = Systemd((0, SERVICE), MANAGER)
    assert limits.read_limits(host) == {
        "memlock": ("8388608", "8388608"), "nofile": ("1024", "524288"), "stack": ("8388608", "unlimited"),
    }  # fmt: skip
    assert len(host.done) == 1


def test_the_kernel_s_own_table_is_understood() -> None:
    found = limits.parse_proc(pathlib.Path("/proc/self/limits").read_text())
    assert set(found) == {"memlock", "nofile", "stack"}


@pytest.mark.parametrize("service", [(1, ""), (0, "")])
def test_without_a_bus_systemd_tells_what_it_would_give(service: tuple[int, str]) -> None:
    assert limits.read_limits(Systemd(service, MANAGER)) == RIGHT
    assert limits.read_limits(Systemd(service)) == {}


@pytest.mark.parametrize(
    ("wanted", "allowed", "found", "verdicts"),
    [
        (WANTED, WANTED, RIGHT, ["ok", "ok"]),
        (WANTED, WANTED, {**RIGHT, "nofile": ("1024", "1048576")}, ["ok", "fail"]),
        (WANTED, {"nofile"}, {**RIGHT, "memlock": ("65536", "65536")}, ["warn", "ok"]),
        (WANTED, WANTED, {}, ["warn", "warn"]),
        ({"memlock": "64"}, {"memlock"}, {"memlock": ("65536", "65536")}, ["ok"]),
        ({"memlock": "-1"}, {"memlock"}, RIGHT, ["ok"]),
    ],
)
def test_limits_of_services_are_judged(
    wanted: dict[str, str], allowed: t.Container[str], found: dict[str, tuple[str, str]], verdicts: list[str]
) -> None:
    assert [one["verdict"] for one in judge_services(wanted, allowed, found)] == verdicts


@pytest.mark.parametrize("service", [SERVICE, SERVICE.replace("8388608   ", "unlimited ")])
def test_a_node_whose_services_have_less_is_not_right(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    monkeypatch.setattr(checking, "read_system", lambda: System("ubuntu22.04", "x86_64", "dpkg", "5.15"))
    monkeypatch.setattr(checking, "read_software", lambda *_parts: Software())
    monkeypatch.setattr(checking, "read_modules", lambda *_parts: Modules())
    monkeypatch.setattr(checking, "read_hcas", lambda _root: [])
    monkeypatch.setattr(checking, "is_running", lambda: True)
    monkeypatch.setattr(checking, "limit_allowed", lambda *_parts: True)
    monkeypatch.setattr(checking, "read_limits", lambda _host: limits.parse_proc(service))
    result = run_main(rdma_check.main, {"service_limits": {"nofile": "1048576"}})
    assert (result["failed"], result["error_kind"]) == (True, "rdma_mismatch")
    assert "limit nofile of services: expected 1048576, found 1024/524288." in result["msg"]
    assert not run_main(rdma_check.main, {})["failed"]


@pytest.mark.parametrize(
    ("changed", "live", "running", "commands"),
    [
        (files.SERVICE_LIMITS, True, True, ["systemctl daemon-reexec"]),
        (files.LIMITS, True, True, []),
        (files.SERVICE_LIMITS, False, True, []),
        (files.SERVICE_LIMITS, True, False, []),
    ],
)
def test_systemd_reads_them_anew(
    monkeypatch: pytest.MonkeyPatch, changed: str, live: bool, running: bool, commands: list[str]
) -> None:
    monkeypatch.setattr(settings, "is_running", lambda: running)
    host = Systemd((0, ""))
    mine = settings.NodeSettings(t.cast(t.Any, host), files.Settings(), live=live)
    mine.changes = settings.Changes([settings.Change("file", changed, "create")])
    mine.reread_service_limits()
    assert host.done == commands


@pytest.mark.parametrize(
    ("manager", "again"),
    [
        (MANAGER, False),
        (MANAGER.replace("1048576", "1024"), True),
        (MANAGER.replace("Soft=1048576", "Soft=1024"), True),
        ("", False),
    ],
)
def test_systemd_reads_them_anew_where_an_earlier_run_did_not_get_to_it(
    monkeypatch: pytest.MonkeyPatch, manager: str, again: bool
) -> None:
    monkeypatch.setattr(settings, "is_running", lambda: True)
    host = Systemd((0, ""), manager)
    settings.NodeSettings(t.cast(t.Any, host), files.Settings(service_limits=WANTED)).reread_service_limits()
    assert ("systemctl daemon-reexec" in host.done) is again
