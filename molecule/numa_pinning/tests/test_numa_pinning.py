# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What numa_pinning leaves on a node: a map of the node's own CPUs, and programs that work under the lab's Open MPI."""

from __future__ import annotations

import json
import typing as t

import pytest

MPIRUN = "mpirun --allow-run-as-root --oversubscribe --host localhost:8 -np 8"


def lines_of(host: t.Any) -> list[list[str]]:
    text = host.file("/etc/gpu-bind/map").content_string
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def cpus(text: str) -> set[int]:
    """``0-3,8`` as numbers."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return {cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)}


def test_the_map_has_the_cpus_that_the_node_has(host: t.Any) -> None:
    lines = lines_of(host)
    assert [line[:2] for line in lines] == [[str(index), str(index)] for index in range(8)]
    online = cpus(host.file("/sys/devices/system/cpu/online").content_string)
    assert all(cpus(line[2]) <= online for line in lines)
    assert all(line[5].startswith("GPU-") for line in lines)


def test_slurm_s_file_is_there_because_it_was_asked_for(host: t.Any) -> None:
    assert "Name=gpu Type=a100 File=/dev/nvidia[0-7]" in host.file("/etc/gpu-bind/gres.conf").content_string


def test_nccl_has_the_topology_file_that_azure_s_image_would_have_brought(host: t.Any) -> None:
    """The profile names it (NCCL_TOPO_FILE), and these nodes were made from no such image."""
    if host.file("/sys/devices/system/node/node1").exists:
        pytest.skip("the simulated GPUs have no place among several NUMA nodes, so that none can be told to NCCL")
    text = host.file("/opt/microsoft/ndv4/topo.xml").content_string
    assert (text.startswith("<!-- Ansible managed"), text.count('class="0x030200"')) == (True, 8)


def test_ranks_of_open_mpi_are_bound(host: t.Any) -> None:
    show = "sh -c 'echo $OMPI_COMM_WORLD_LOCAL_RANK $(sed -n s/^Cpus_allowed_list://p /proc/self/status)'"
    done = host.run(f"{MPIRUN} --bind-to none gpu-bind {show}")
    assert done.rc == 0, done.stderr
    found = sorted(line.split() for line in done.stdout.splitlines())
    assert found == [[line[0], line[2]] for line in lines_of(host)]


def test_the_checker_sees_ranks_by_their_environment(host: t.Any) -> None:
    if host.file("/sys/devices/system/node/node1").exists:
        pytest.skip("the simulated GPUs have no place among several NUMA nodes; the VM lab proves this")
    script = (
        f"{MPIRUN} --bind-to none gpu-bind sleep 71.25 >/dev/null 2>&1 & job=$!; "
        "gpu-bind-check --name '^sleep 71.25' --wait 20 >/dev/null; sleep 1; "
        "gpu-bind-check --name '^sleep 71.25' --json; echo rc $?; kill $job; wait"
    )
    report, rc = host.run(script).stdout.split("rc ")
    found = json.loads(report)
    assert sorted(process["gpus"][0] for process in found["processes"]) == list(range(8))
    # Eight ranks are too many for the lab's CPUs, but they are in their places.
    assert (rc.strip(), {item["kind"] for item in found["findings"]} <= {"overlap"}) == ("0", True), found["findings"]


def test_without_a_job_there_is_nothing_to_see(host: t.Any) -> None:
    assert host.run("gpu-bind-check").rc == 2
