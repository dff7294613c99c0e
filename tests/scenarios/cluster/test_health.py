# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""health.yml on the lab: each fault ends with exactly who is guilty, and what a launch leaves on nodes is gone.

Real are mpirun, ssh, processes and signals; nccl-tests and GPUs are the simulator's. No quicker test sees a hung rank that is really ended
on another node, a node that dies in the middle of a round, or a controller that is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t
import xml.etree.ElementTree as ET

import pytest

if t.TYPE_CHECKING:
    from conftest import Lab

FAULT = ("python3", "-B", "/opt/gpu_simulator/fault.py")
LEAVES = {"gpu-1": "leaf-1", "gpu-2": "leaf-1", "gpu-3": "leaf-2", "gpu-4": "leaf-2"}
#: Of the simulator's machine with a rank on one of its GPUs and adapters: 200 Gb/s, less what NCCL loses.
BASELINE = {"all_reduce": 23.0, "alltoall": 23.0, "all_gather": 23.0}
OPTIONS: dict[str, t.Any] = {
    "health_check_checks": ["all_reduce"],
    "health_check_ranks_per_node": 1,
    "health_check_min_bytes": "64M",
    "health_check_max_bytes": "64M",
    "health_check_iterations": 1,
    "health_check_noise": 0.01,
    "health_check_baseline": BASELINE,
    "health_check_topology": {node: {"leaf": leaf} for node, leaf in LEAVES.items()},
    "health_check_timeout_s": 15,
    "health_check_grace_s": 2,
}

Health = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def health(lab: Lab, tmp_path: pathlib.Path) -> t.Iterator[Health]:
    """Run it with faults by node, and return the document. Afterwards no node has faults or processes of a check."""

    def run(faults: dict[str, tuple[str, ...]] | None = None, **options: t.Any) -> dict[str, t.Any]:
        for node, words in (faults or {}).items():
            lab.run(node, *FAULT, *words)
        report = tmp_path / "health.json"
        ended = lab.playbook("health", {**OPTIONS, "health_check_report": str(report), **options})
        assert report.exists(), ended.output
        document: dict[str, t.Any] = json.loads(report.read_text())
        assert (ended.rc != 0) == (document["verdict"] == "fail"), ended.output
        assert ET.parse(report.with_suffix(".xml")).getroot().tag == "testsuites"
        return document

    yield run
    for node in lab.nodes:
        lab.run(node, *FAULT)
        assert lab.run(node, "pgrep", "-fl", "/opt/nccl-tests", check=False) == "", node


def named(document: dict[str, t.Any]) -> list[tuple[str, list[str]]]:
    return sorted((one["kind"], sorted(one["members"])) for one in document["suspects"])


def test_a_healthy_fleet_takes_one_launch_per_check(health: Health) -> None:
    document = health(health_check_checks=["all_reduce", "alltoall", "all_gather"])
    assert (document["verdict"], document["run"]["launches"], named(document)) == ("ok", 3, [])


@pytest.mark.parametrize(
    ("faults", "guilty", "reason"),
    [
        pytest.param({"gpu-2": ("--nccl-slow", "0.85")}, [("node", ["gpu-2"])], "GB/s instead of", id="slow"),
        pytest.param({"gpu-3": ("--nccl-wrong", "3")}, [("node", ["gpu-3"])], "wrong results", id="wrong"),
        pytest.param({"gpu-4": ("--nccl-crash",)}, [("node", ["gpu-4"])], "unhandled system error", id="crash"),
        pytest.param({"gpu-3": ("--nccl-hang", "left")}, [("node", ["gpu-3"])], "it hung", id="hang"),
        pytest.param(
            {"gpu-1": ("--nccl-slow-link", "gpu-3")}, [("link", ["gpu-1", "gpu-3"])], "GB/s instead of", id="link"
        ),
        pytest.param(
            {"gpu-2": ("--nccl-slow", "0.7"), "gpu-3": ("--nccl-crash",)},
            [("node", ["gpu-2"]), ("node", ["gpu-3"])],
            "",
            id="slow+crash",
        ),
    ],
)
def test_exactly_the_guilty_is_named(
    health: Health, faults: dict[str, tuple[str, ...]], guilty: list[t.Any], reason: str
) -> None:
    document = health(faults)
    assert named(document) == guilty, json.dumps(document["suspects"], indent=1)
    assert reason in document["suspects"][0]["reason"]
    assert document["verdict"] == "fail"


@pytest.mark.parametrize(
    ("fault", "verdict", "finding"),
    [
        (("--nccl-missing",), "incomplete", "not_measured"),
        (("--nccl-garbage",), "incomplete", "not_measured"),
        (("--nccl-sockets",), "fail", "configuration"),
    ],
)
def test_what_all_nodes_have_in_common_blames_nobody(
    health: Health, lab: Lab, fault: tuple[str, ...], verdict: str, finding: str
) -> None:
    document = health(dict.fromkeys(lab.nodes, fault))
    assert (document["verdict"], named(document)) == (verdict, [])
    assert document["checks"][0]["findings"][0]["kind"] == finding


def test_a_node_that_dies_in_the_middle_of_a_launch_is_named(health: Health, lab: Lab) -> None:
    for node in lab.nodes:
        lab.run(node, *FAULT, "--nccl-takes", "8")
    killer = subprocess.Popen(
        ["sh", "-c", f"until podman exec {lab.container('gpu-3')} pgrep -f all_reduce_perf; do sleep 0.5; done; "
         f"podman pause {lab.container('gpu-3')}"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        document = health()
    finally:
        killer.wait(60)
        lab.podman("unpause", lab.container("gpu-3"))
        lab.wait_for_ssh("gpu-3")
    assert named(document) == [("node", ["gpu-3"])]
    assert "does not answer" in document["suspects"][0]["reason"]


def test_a_killed_controller_goes_on_from_its_journal(health: Health, lab: Lab, tmp_path: pathlib.Path) -> None:
    journal = tmp_path / "journal"
    lab.run("gpu-2", *FAULT, "--nccl-slow", "0.7")
    process = lab.start_playbook("health", {**OPTIONS, "health_check_journal": str(journal)})
    deadline = time.monotonic() + 120
    with contextlib.suppress(FileNotFoundError):
        while time.monotonic() < deadline and not (journal.exists() and len(journal.read_text().splitlines()) > 1):
            time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    rounds = len(journal.read_text().splitlines()) - 1
    assert rounds >= 1
    document = health(health_check_journal=str(journal))
    assert named(document) == [("node", ["gpu-2"])]
    assert document["run"]["id"] == json.loads(journal.read_text().splitlines()[0])["run"]
    assert document["run"]["rounds"] > rounds
