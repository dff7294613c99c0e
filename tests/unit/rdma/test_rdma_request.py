# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module's parameters as rdma_stack's request."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import System
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import ARGUMENT_SPEC, Request

SYSTEM = System("rhel9.4", "x86_64", "rpm", "5.14", container=True)


def request(**options: t.Any) -> Request:
    return Request.of({**{name: option.get("default") for name, option in ARGUMENT_SPEC.items()}, **options})


def test_every_option_is_taken() -> None:
    fields = {field.name for one in (Request, type(request().wanted)) for field in dataclasses.fields(one)}
    # The action's own: the module does not reboot.
    assert fields - {"wanted"} == set(ARGUMENT_SPEC) - {"reboot_timeout_s"}


def test_what_the_plan_asks_for() -> None:
    options = {"source": "doca", "version": "3.2.1", "kernel": "5.15", "allow_reboot": True}
    wanted = request(**options).wanted
    assert {name: getattr(wanted, name) for name in options} == options


@pytest.mark.parametrize(
    ("phases", "configures"),
    [([], False), (["install"], False), (["configure"], True), (["install", "configure"], True)],
)
def test_which_phases_change_what_runs(phases: list[str], configures: bool) -> None:
    wanted = request(phases=phases).wanted
    assert (wanted.phases, wanted.configures) == (tuple(phases), configures)
    assert request().wanted.configures


@pytest.mark.parametrize("source", ["doca", "mlnx_ofed"])
def test_a_vendor_s_stack_needs_a_version(source: str) -> None:
    with pytest.raises(ClusterError, match="`version` is empty"):
        request(source=source)
    assert request(source="inbox").wanted.version == ""
    assert request(source="preinstalled").wanted.version == ""


@pytest.mark.parametrize(
    ("source", "asked", "excludes"),
    [
        ("doca", True, True),
        ("mlnx_ofed", True, True),
        ("doca", False, False),
        ("inbox", True, False),
        # An earlier run may have put it into the image.
        ("preinstalled", True, None),
        ("preinstalled", False, False),
    ],
)
def test_the_distribution_is_excluded_beside_a_stack_of_ours_only(
    source: str, asked: bool, excludes: bool | None
) -> None:
    assert request(source=source, version="1", exclude_distribution=asked).excludes is excludes


def test_what_the_files_are_made_of() -> None:
    options = {
        "persistent_names": True,
        "rxe_netdev": "eth1",
        "rxe_device": "rxe7",
        "sunrpc_slots": 128,
        "nfs_read_ahead_kib": 15380,
    }
    made = request(**options, device_names={"0101:00:00.0": "ib0"}, sysctl={"vm.x": 1}, limits={"nofile": 5}).settings(
        SYSTEM
    )
    assert {name: getattr(made, name) for name in options} == options
    assert (made.container, made.manager, made.source) == (True, "rpm", "inbox")
    assert (made.device_names, made.sysctl) == ({"0101:00:00.0": "ib0"}, {"vm.x": "1"})
    # Which of the limits a node can give is tried there.
    assert made.limits == {}


@pytest.mark.parametrize(
    ("ipoib", "line"), [("keep", None), ("load", {"IPOIB_LOAD": "yes"}), ("skip", {"IPOIB_LOAD": "no"})]
)
def test_files_of_others_are_restored_where_nothing_is_asked(ipoib: str, line: dict[str, str] | None) -> None:
    assert request(ipoib=ipoib).edits() == {files.WAAGENT: None, files.OPENIB_CONF: line}
    assert request(waagent_rdma=True).edits()[files.WAAGENT] == {"OS.EnableRDMA": "y"}
