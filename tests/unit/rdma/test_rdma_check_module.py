# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rdma_check as a whole: what it returns for a node that is right, for one that is not, and for both ends of a measurement."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
import yaml
from ansible.module_utils import basic
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import Bus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import check as checking
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import perftest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Modules, Software, System
from ansible_collections.hpcai.gpu_cluster.plugins.modules import rdma_check
from module_run import run_main

OFED = "24.10-3.2.5.0"
INBOX = Software()
OFED_INSTALLED = Software(ofed=f"MLNX_OFED_LINUX-{OFED}")
FITTING = Modules(vendor=True, loaded=True)
BANDWIDTH = perftest.Bandwidth(65536, 5000, 197.0, 196.5)


def port(device: str, state: str = "ACTIVE") -> dict[str, t.Any]:
    return {
        "device": device, "port": 1, "netdev": None, "link_layer": "InfiniBand", "rate_gbps": 200, "state": state, "numa": 0,
        "bus_id": None,
    }  # fmt: skip


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., dict[str, t.Any]]:
    """Run the module on a node with these ports and this software; ``asked`` gets every measurement."""

    def on(
        *ports: dict[str, t.Any],
        software: Software = INBOX,
        modules: Modules = FITTING,
        next_modules: Modules = FITTING,
        next_kernel: str = "5.15",
        asked: list[t.Any] | None = None,
        measured: perftest.Bandwidth = BANDWIDTH,
        **options: t.Any,
    ) -> dict[str, t.Any]:
        monkeypatch.setattr(checking, "read_system", lambda: System("ubuntu22.04", "x86_64", "dpkg", "5.15"))
        monkeypatch.setattr(checking, "read_software", lambda *_parts: software)
        monkeypatch.setattr(
            checking, "read_modules", lambda _host, system: modules if system.kernel == "5.15" else next_modules
        )
        monkeypatch.setattr(checking, "next_kernel", lambda _host: next_kernel)
        monkeypatch.setattr(checking, "read_hcas", lambda _root: list(ports))

        def measure(*parts: t.Any) -> list[perftest.Bandwidth]:
            (asked if asked is not None else []).append(parts)
            return [measured] * len(parts[0].devices)

        monkeypatch.setattr(perftest, "serve", measure)
        monkeypatch.setattr(perftest, "measure", measure)
        return run_main(rdma_check.main, options)

    return on


def test_a_node_that_is_right(check: t.Any) -> None:
    software = Software(ofed=f"MLNX_OFED_LINUX-{OFED}")
    result = check(port("mlx5_0"), software=software, source="mlnx_ofed", version=OFED)
    assert (result["failed"], result["changed"], result["ports"]) == (False, False, [port("mlx5_0")])
    assert [one["verdict"] for one in result["verdicts"]] == ["ok", "ok"]
    assert "bandwidth" not in result


@pytest.mark.parametrize(
    ("parts", "options", "what"),
    [
        ({}, {"source": "mlnx_ofed", "version": OFED}, "RDMA stack"),
        (
            {"software": Software(ofed=f"MLNX_OFED_LINUX-{OFED}"), "modules": Modules()},
            {"source": "mlnx_ofed", "version": OFED},
            "kernel modules of the stack",
        ),
        ({}, {"fabric": {"count": 2}}, "HCA ports"),
    ],
)
def test_what_is_wrong_fails_with_all_verdicts_and_measures_nothing(
    check: t.Any, parts: dict[str, t.Any], options: dict[str, t.Any], what: str
) -> None:
    asked: list[t.Any] = []
    result = check(port("mlx5_0"), asked=asked, bandwidth="server", **parts, **options)
    assert (result["failed"], result["error_kind"], asked) == (True, "rdma_mismatch", [])
    assert what in result["msg"]
    assert result["ports"] == [port("mlx5_0")]


@pytest.mark.parametrize("fabric", [{"count": 1, "rate_gbps": 200}, {"hcas": [{"name": "mlx5_0", "rate_gbps": 200}]}])
def test_what_could_not_be_found_out_is_not_told_as_wrong_and_does_not_pass(check: t.Any, fabric: t.Any) -> None:
    asked: list[t.Any] = []
    result = check({**port("mlx5_0"), "rate_gbps": None}, asked=asked, bandwidth="server", fabric=fabric)
    assert [one["verdict"] for one in result["verdicts"]] == ["ok", "incomplete"]
    assert (result["failed"], result["error_kind"], asked) == (True, "rdma_unknown", [])
    assert "not known" in result["msg"]


@pytest.mark.parametrize(
    ("fabric", "key"),
    [
        ({"rxe0": {"link_layer": "Ethernet"}}, "rxe0"),
        ({"hcas": [{"name": "mlx5_0", "rate": 200}]}, "rate"),
        ({"hcas": [{"bus_id": "0101:00:00.0"}]}, "name"),
    ],
)
def test_what_nobody_reads_is_refused(check: t.Any, fabric: dict[str, t.Any], key: str) -> None:
    result = check(fabric=fabric)
    assert result["failed"]
    assert key in result["msg"]


@pytest.mark.parametrize("fabric", [{"link_layer": "InfiniBand"}, {"rate_gbps": 200}])
def test_any_expectation_needs_a_device(check: t.Any, fabric: dict[str, t.Any]) -> None:
    assert not check(port("mlx5_0"), fabric=fabric)["failed"]
    assert check(fabric=fabric)["failed"]
    assert check(port("mlx5_0", "DOWN"), fabric=fabric)["failed"]


def test_the_lab_of_virtual_machines_expects_its_device(check: t.Any) -> None:
    variables = pathlib.Path(__file__).parents[3] / "inventories/vm/group_vars/all/gpu_cluster.yml"
    expected = yaml.safe_load(variables.read_text())["mofed_expected"]
    result = check(fabric=expected)
    assert (result["failed"], result["error_kind"]) == (True, "rdma_mismatch")
    assert "HCA rxe0" in result["msg"]
    assert not check({**port("rxe0"), "link_layer": "Ethernet"}, fabric=expected)["failed"]


def test_profiles_are_understood_as_they_are(check: t.Any) -> None:
    profiles = pathlib.Path(__file__).parents[3] / "roles/node_profile/files/profiles"
    fabrics = [yaml.safe_load(path.read_text()).get("fabric") for path in profiles.glob("*.yml")]
    for fabric in filter(None, fabrics):
        assert check(fabric=fabric).get("error_kind") in ("rdma_mismatch", None)


@pytest.mark.parametrize(
    ("source", "software", "kernel", "modules", "verdict"),
    [
        ("mlnx_ofed", OFED_INSTALLED, "5.15", Modules(), None),
        ("mlnx_ofed", OFED_INSTALLED, "", Modules(), None),
        ("mlnx_ofed", OFED_INSTALLED, "6.8", FITTING, "ok"),
        ("mlnx_ofed", OFED_INSTALLED, "6.8", Modules(headers=True), "fail"),
        ("preinstalled", OFED_INSTALLED, "6.8", Modules(), "fail"),
        # The distribution's modules come with every kernel.
        ("preinstalled", INBOX, "6.8", Modules(), None),
        ("inbox", INBOX, "6.8", Modules(), None),
    ],
)
def test_the_kernel_of_the_next_boot_needs_modules_too(
    check: t.Any, source: str, software: Software, kernel: str, modules: Modules, verdict: str | None
) -> None:
    version = OFED if source == "mlnx_ofed" else ""
    told = check(software=software, source=source, version=version, next_kernel=kernel, next_modules=modules)
    found = [one["verdict"] for one in told["verdicts"] if "next boot" in one["what"]]
    assert found == ([verdict] if verdict else [])
    assert told["failed"] is (verdict == "fail")
    if verdict == "fail":
        assert "dkms autoinstall -k 6.8" in told["msg"]
        assert ("headers are missing" in told["msg"]) is not modules.headers


def test_libraries_alone_need_no_modules(check: t.Any) -> None:
    software = Software(ofed=f"MLNX_OFED_LINUX-{OFED}")
    options = {"source": "mlnx_ofed", "version": OFED, "user_space_only": True}
    assert not check(port("mlx5_0"), software=software, modules=Modules(), **options)["failed"]


def test_both_ends_measure_and_the_client_alone_judges(check: t.Any) -> None:
    ports, asked = (port("mlx5_0"), port("mlx5_1"), port("mlx5_2", "DOWN")), []
    options = {
        "size_bytes": 4096,
        "iterations": 7,
        "tcp_port": 9,
        "arguments": ["-a"],
        "timeout_s": 3,
        "least_gbps": 197,
    }
    server = check(*ports, asked=asked, bandwidth="server", peer="gpu-2", **options)
    client = check(*ports, asked=asked, bandwidth="client", peer="gpu-1", **options)
    test = perftest.Measurement((("mlx5_0", 1), ("mlx5_1", 1)), 4096, 7, 9, ("-a",))
    assert asked == [(test, 3), (test, "gpu-1", 3)]
    row = {
        "size_bytes": 65536,
        "iterations": 5000,
        "peak_gbps": 197.0,
        "average_gbps": 196.5,
        "tries": 1,
        "first_error": "",
    }
    assert server["bandwidth"] == [{"device": name, "peer": "gpu-2", **row} for name in ("mlx5_0", "mlx5_1")]
    assert (server["failed"], client["failed"]) == (False, True)
    assert "ib_write_bw of mlx5_1 to gpu-1" in client["msg"]


def test_a_second_try_is_told_aloud(check: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a warning is kept differs between a node and the controller.
    warned: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _module, text: warned.append(text))
    again = dataclasses.replace(BANDWIDTH, tries=2, first_error="Failed status 9")
    told = check(port("mlx5_0"), bandwidth="client", peer="gpu-1", measured=again)
    assert not told["failed"]
    assert [one["verdict"] for one in told["verdicts"]] == ["ok", "ok", "ok", "warn"]
    assert told["bandwidth"][0]["first_error"] == "Failed status 9"
    (text,) = warned
    assert text.startswith("tries of ib_write_bw of mlx5_0 to gpu-1: expected 1, found 2: Failed status 9. ")


def test_a_node_that_cannot_use_rdma_is_told_aloud_where_nobody_said_what_to_expect(
    check: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _module, text: warned.append(text))
    monkeypatch.setattr(checking, "read_bus", lambda _root: Bus(adapters=8, gpus=8))
    for ports, found in (([], "found none."), ([port("mlx5_0", "DOWN")], "none of 1: mlx5_0 is DOWN")):
        result = check(*ports)
        assert (result["failed"], [one["verdict"] for one in result["verdicts"]]) == (False, ["ok", "warn"])
        assert found in warned.pop()
        check(*ports, fabric={"count": 0})
    assert warned == []


def test_without_an_active_port_nothing_can_be_measured(check: t.Any) -> None:
    result = check(port("mlx5_0", "DOWN"), bandwidth="server")
    assert (result["failed"], result["error_kind"]) == (True, "no_port")
