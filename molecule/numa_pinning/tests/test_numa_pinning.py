# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What numa_pinning leaves on a node: a map of the node's own CPUs, and programs that work under the lab's Open MPI."""

from __future__ import annotations

import json
import typing as t

MPIRUN = "mpirun --allow-run-as-root --oversubscribe --host localhost:8 -np 8"


def cpus_of(host: t.Any) -> str:
    return host.run("cat /sys/devices/system/node/node0/cpulist").stdout.strip()


def test_the_map_has_the_cpus_that_the_node_has(host: t.Any) -> None:
    lines = [line.split() for line in host.file("/etc/gpu-bind/map").content_string.splitlines() if line[0] != "#"]
    assert [line[:2] for line in lines] == [[str(index), str(index)] for index in range(8)]
    online = set(host.run("cat /sys/devices/system/node/node*/cpulist").stdout.split())
    assert {line[2] for line in lines} <= online
    assert all(line[5].startswith("GPU-") for line in lines)


def test_slurm_s_and_nccl_s_files_are_there_because_they_were_asked_for(host: t.Any) -> None:
    assert "Name=gpu Type=a100 File=/dev/nvidia[0-7]" in host.file("/etc/gpu-bind/gres.conf").content_string
    assert host.file("/etc/gpu-bind/topo.xml").content_string.count('class="0x030200"') == 8


def test_ranks_of_open_mpi_are_bound(host: t.Any) -> None:
    show = "sh -c 'echo $OMPI_COMM_WORLD_LOCAL_RANK $(sed -n s/^Cpus_allowed_list://p /proc/self/status)'"
    done = host.run(f"{MPIRUN} --bind-to none gpu-bind {show}")
    assert done.rc == 0, done.stderr
    lines = [line.split()[:4] for line in host.file("/etc/gpu-bind/map").content_string.splitlines() if line[0] != "#"]
    assert sorted(line.split() for line in done.stdout.splitlines()) == [[line[0], line[2]] for line in lines]


def test_the_checker_sees_ranks_by_their_environment_and_a_wrong_one(host: t.Any) -> None:
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
