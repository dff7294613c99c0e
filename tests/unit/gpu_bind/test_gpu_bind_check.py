# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu-bind-check on real processes: their CPUs, threads and environments are the kernel's, only NUMA and GPUs are pretended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.model import (
    Gpu,
    Process,
    format_set,
    parse_set,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.read_processes import local_rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_bind.verify import judge_memory
from gpu_bind_bench import ALLOWED, GPU_BIND, Bench, kinds

pytestmark = pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two CPUs")
Start = t.Callable[..., "subprocess.Popen[str]"]
A, B = str(ALLOWED[0]), str(ALLOWED[-1])
UNUSED = ("gpu_unused", "warn")


@pytest.fixture
def two(bench: Bench) -> Bench:
    """Two NUMA nodes with a CPU each; GPU 0 is on node 1, GPU 1 on node 0."""
    return bench.numa(0, A).numa(1, B).gpu(0, "0001:00:00.0", 1).gpu(1, "000b:00:00.0", 0)


def test_processes_in_their_places_are_fine(two: Bench, start: Start) -> None:
    two.uses(0, start(B).pid)
    two.uses(1, start(A).pid)
    report = two.report(rc=0)
    assert (report["verdict"], report["findings"]) == ("ok", [])
    first = report["processes"][0]
    assert (first["gpus"], first["gpus_from"], first["cpus"], first["numa"]) == ([0], "nvidia-smi", B, [1])
    assert (first["threads"], first["memory_policy"]) == (1, "default")
    assert first["last_cpus"] == [int(B)]
    assert [gpu["numa"] for gpu in report["gpus"]] == [1, 0]


def test_a_process_on_the_wrong_numa_node_is_found(two: Bench, start: Start) -> None:
    wrong = start(A).pid
    two.uses(0, wrong)
    two.uses(1, start(A).pid)
    report = two.report(rc=1)
    assert ("wrong_cpus", "fail") in kinds(report)
    finding = next(item for item in report["findings"] if item["kind"] == "wrong_cpus")
    assert (finding["pid"], finding["gpu"]) == (wrong, 0)
    assert f"CPUs {A} only" in finding["what"]
    text = two.check().stdout
    assert (
        f"fail: process {wrong} may run on CPUs {A} only, none of them next to GPU 0 (NUMA node 1, CPUs {B})." in text
    )


def test_a_process_that_is_not_bound_is_found(two: Bench, start: Start) -> None:
    two.uses(0, start(f"{A},{B}").pid)
    report = two.report(rc=1)
    assert ("not_bound", "fail") in kinds(report)
    assert report["processes"][0]["numa"] == [0, 1]


def test_a_thread_that_strays_is_found(two: Bench, start: Start) -> None:
    program = (
        "import os, threading, time\n"
        "def work():\n"
        f"    os.sched_setaffinity(0, {{{A}}})\n"
        "    print('away', flush=True)\n"
        "    time.sleep(60)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(60)\n"
    )
    process = start(B, sys.executable, "-c", program)
    assert process.stdout
    assert process.stdout.readline() == "away\n"
    two.uses(0, process.pid)
    report = two.report(rc=1)
    assert {item for item in kinds(report) if item != UNUSED} == {("stray_threads", "fail")}
    assert report["processes"][0]["thread_cpus"] == {B: 1, A: 1}


def test_ranks_that_crowd_the_same_core_are_found(bench: Bench, start: Start) -> None:
    bench.numa(0, f"{A},{B}").gpu(0, "0001:00:00.0", 0).gpu(1, "0002:00:00.0", 0)
    bench.uses(0, start(A).pid)
    bench.uses(1, start(A).pid)
    assert ("overlap", "fail") in kinds(bench.report(rc=1))


def test_ranks_that_share_their_numa_node_are_fine_and_half_overlaps_are_not(bench: Bench, start: Start) -> None:
    bench.numa(0, f"{A},{B}").gpu(0, "0001:00:00.0", 0).gpu(1, "0002:00:00.0", 0)
    bench.uses(0, start(f"{A},{B}").pid)
    bench.uses(1, start(f"{A},{B}").pid)
    assert bench.report(rc=0)["findings"] == []
    bench.apps.pop()
    bench.uses(1, start(A).pid)
    assert kinds(bench.report(rc=0)) == {("overlap", "warn")}
    bench.report("--strict", rc=1)


def test_unused_and_shared_gpus_are_warned_of(two: Bench, start: Start) -> None:
    two.uses(0, start(B).pid)
    assert kinds(two.report(rc=0)) == {UNUSED}
    two.uses(0, start(B).pid)
    # On a NUMA node with one CPU, where they can only be in each other's way.
    assert kinds(two.report(rc=0)) == {UNUSED, ("gpu_shared", "warn"), ("overlap", "warn")}


def test_children_of_a_rank_may_share_what_it_has(two: Bench, start: Start) -> None:
    parent = start(B, "sh", "-c", "sleep 60 & echo $!; wait")
    assert parent.stdout
    child = int(parent.stdout.readline())
    two.uses(0, parent.pid)
    two.uses(0, child)
    two.uses(1, start(A).pid)
    try:
        assert two.report(rc=0)["findings"] == []
    finally:
        os.kill(child, 9)


def test_memory_bound_away_is_found(two: Bench) -> None:
    process = Process(1, 0, "x", {int(B)}, {0, 1}, [], gpus=[Gpu(0, "GPU-0", "", 1)])
    for policy, mems, wrong in [
        ("default", {0, 1}, []),
        (None, {0, 1}, []),
        ("bind:1", {0, 1}, []),
        ("bind=static:1", {1}, []),
        ("prefer:1", {0, 1}, []),
        ("interleave:0-1", {0, 1}, []),
        ("bind:0", {0, 1}, ["wrong_memory"]),
        ("bind:0-1", {0, 1}, ["wrong_memory"]),
        ("prefer:0", {0, 1}, ["wrong_memory"]),
        ("default", {0}, ["wrong_memory"]),
    ]:
        process.policy, process.mems = policy, mems
        assert [item.kind for item in judge_memory(process, {1}, "GPU 0")] == wrong, (policy, mems)
    process.policy, process.mems, process.memory_mib = "default", {0, 1}, {0: 500, 1: 500}
    assert [item.verdict for item in judge_memory(process, {1}, "GPU 0")] == ["warn"]
    for little in ({0: 90, 1: 950}, {0: 60, 1: 1}):
        process.memory_mib = little
        assert list(judge_memory(process, {1}, "GPU 0")) == []


def test_where_memory_is_comes_from_the_kernel(bench: Bench, start: Start) -> None:
    bench.numa(0, f"{A},{B}").gpu(0, "0001:00:00.0", 0)
    process = start(
        A, sys.executable, "-c", "x = bytearray(64 << 20); print('full', flush=True); __import__('time').sleep(60)"
    )
    assert process.stdout
    assert process.stdout.readline() == "full\n"
    bench.uses(0, process.pid)
    found = bench.report("--memory", rc=0)["processes"][0]["memory_mib"]
    # Its own 64 MiB and Python's, but not the pages of libraries.
    assert 64 <= found["0"] < 100


# -- processes that nvidia-smi does not list ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "gpus"),
    [
        ({"LOCAL_RANK": "1"}, [1]),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "1,0"}, [1]),
        ({"SLURM_LOCALID": "0", "CUDA_VISIBLE_DEVICES": "GPU-1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, [0]),
        # Slurm's cgroup renumbers GPUs: the task's own, half of the node, and all of the step's.
        ({"SLURM_LOCALID": "1", "SLURM_STEP_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"SLURM_LOCALID": "0", "SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, [1]),
    ],
)
def test_the_environment_tells_the_gpu(two: Bench, start: Start, env: dict[str, str], gpus: list[int]) -> None:
    process = start(B if gpus == [0] else A, "sleep", "61", env={**os.environ, **env})
    report = two.report("--pid", str(process.pid), rc=0)
    assert (report["processes"][0]["gpus"], report["processes"][0]["gpus_from"]) == (gpus, "environment")


@pytest.mark.parametrize("visible", ["", "-1", "-1,0", "NoDevFiles"])
def test_a_rank_that_shows_no_gpu_is_not_held_to_the_one_of_its_number(two: Bench, start: Start, visible: str) -> None:
    process = start(A, "sleep", "61", env={**os.environ, "LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": visible})
    report = two.report("--pid", str(process.pid), rc=2)
    assert report["processes"][0]["gpus"] == []
    assert "not_bound" not in {finding["kind"] for finding in report["findings"]}


def test_a_rank_that_is_to_use_no_gpu_is_fine_among_others(two: Bench, start: Start) -> None:
    """A job's rank that only reads data, as gpu-bind leaves it: unbound. It used to be "gpu_unknown", and the job incomplete."""
    for rank, cpus, visible in (("0", B, "0,1"), ("1", A, "0,1"), ("2", f"{A},{B}", "")):
        env = {**os.environ, "LOCAL_RANK": rank, "CUDA_VISIBLE_DEVICES": visible}
        start(cpus, "sleep", "68.5", env=env)
    # What started them, with no rank of its own, is none of them.
    start(A, "sh", "-c", ": sleep 68.5; sleep 69; :", env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    report = two.report("--name", r"sleep 68\.5", rc=0)
    assert (report["verdict"], report["findings"]) == ("ok", [])
    told = {process["local_rank"]: (process["gpus"], process["gpus_from"]) for process in report["processes"]}
    assert told == {0: ([0], "environment"), 1: ([1], "environment"), 2: ([], "environment")}
    lines = two.check("--name", r"sleep 68\.5").stdout.splitlines()
    assert [line.split()[1:3] for line in lines if line.endswith("sleep 68.5")] == [
        ["0", "0"],
        ["1", "1"],
        ["2", "none"],
    ]


def test_a_job_all_of_whose_ranks_show_no_gpu_is_not_called_fine(two: Bench, start: Start) -> None:
    """Nothing was seen to be right: it may be a mistake."""
    process = start(A, "sleep", "61", env={**os.environ, "LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "NoDevFiles"})
    report = two.report("--pid", str(process.pid), rc=2)
    assert kinds(report) == {("no_process", "incomplete")}
    assert report["findings"][0]["what"].endswith(f"(CUDA_VISIBLE_DEVICES shows none to {process.pid})")


def task_with_a_gpu(start: Start) -> subprocess.Popen[str]:
    """A task of ``srun --gpus-per-task=1``: Slurm 22.05 tells every one the same, whichever GPU it has."""
    env = {"SLURM_STEP_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0", "SLURMD_TRES_BIND": "gpu:per_task:1"}
    return start(A, "sleep", "61", env={**os.environ, **env, "SLURM_LOCALID": "1"})


def test_gpus_that_slurm_hides_by_a_cgroup_of_each_task_are_not_guessed(
    two: Bench, start: Start, tmp_path: Path
) -> None:
    process = task_with_a_gpu(start)
    report = two.report("--pid", str(process.pid), rc=2)
    assert ("gpu_unknown", "incomplete") in kinds(report)
    # It has opened its own.
    procfs = with_open_device(tmp_path / "procfs", process.pid, 1)
    report = two.report("--pid", str(process.pid), "--procfs", str(procfs), rc=0)
    assert (report["processes"][0]["gpus"], report["processes"][0]["gpus_from"]) == ([1], "environment")


def with_open_device(procfs: Path, pid: int, minor: int) -> Path:
    """A /proc that shows one real process, and a device file of a GPU among those that it has open."""
    (procfs / str(pid) / "fd").mkdir(parents=True)
    for name in ("status", "environ", "cmdline", "stat", "task"):
        (procfs / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
    device = f"/dev/nvidia{minor}"
    for number, target in enumerate(("/dev/null", "/dev/nvidiactl", device, "/dev/nvidia-uvm", device)):
        (procfs / str(pid) / "fd" / str(number)).symlink_to(target)
    return procfs


def driver_says(procfs: Path, bus_id: str, minor: object) -> None:
    directory = procfs / "driver/nvidia/gpus" / bus_id
    directory.mkdir(parents=True)
    (directory / "information").write_text(f"Bus Location: \t {bus_id}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n")


@pytest.mark.parametrize("source", ["driver", "map", "driver before map"])
def test_the_number_of_an_open_device_is_the_driver_s_not_the_index(
    two: Bench, start: Start, tmp_path: Path, source: str
) -> None:
    """GPU 0, on node 1, is /dev/nvidia1: a task with that open, bound to node 0, is in the wrong place."""
    process = task_with_a_gpu(start)
    procfs = with_open_device(tmp_path / "procfs", process.pid, 1)
    if "driver" in source:
        driver_says(procfs, "0001:00:00.0", 1)
        driver_says(procfs, "000b:00:00.0", 0)
    if "map" in source:
        minors = "1,0" if source == "map" else "0,1"
        two.map.write_text(f"# minors {minors}\n# rank gpus cpus memory hca uuids\n0 0 {B} 1 - -\n1 1 {A} 0 - -\n")
    report = two.report("--pid", str(process.pid), "--procfs", str(procfs), rc=1)
    assert report["processes"][0]["gpus"] == [0]
    assert [gpu["minor"] for gpu in report["gpus"]] == [1, 0]
    assert ("wrong_cpus", "fail") in kinds(report)


@pytest.mark.parametrize("said", ["", "N/A", "-1", "0x1"])
def test_a_device_whose_number_is_not_known_is_not_guessed_where_others_are_not_the_index(
    two: Bench, start: Start, tmp_path: Path, said: str
) -> None:
    process = task_with_a_gpu(start)
    procfs = with_open_device(tmp_path / "procfs", process.pid, 1)
    driver_says(procfs, "000b:00:00.0", said)
    # Nothing speaks against the index.
    report = two.report("--pid", str(process.pid), "--procfs", str(procfs), rc=0)
    assert (report["processes"][0]["gpus"], [gpu["minor"] for gpu in report["gpus"]]) == ([1], [None, None])
    driver_says(procfs, "0001:00:00.0", 2)
    report = two.report("--pid", str(process.pid), "--procfs", str(procfs), rc=2)
    assert [gpu["minor"] for gpu in report["gpus"]] == [2, None]
    assert ("gpu_unknown", "incomplete") in kinds(report)


def test_processes_by_command_line_but_not_their_launcher_nor_this_program(two: Bench, start: Start) -> None:
    start(A, "sleep", "62.5", env={**os.environ, "LOCAL_RANK": "1"})
    start(A, "sh", "-c", ": sleep 62.5; sleep 63; :", env=dict(os.environ))
    words = [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"]
    two.write_smi()
    done = subprocess.run(
        [*words, str(two.program), "--json", "--name", r"sleep 62\.5", *two.options()],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LOCAL_RANK": "0"},
    )
    assert done.stdout.count('"pid"') - done.stdout.count('"pid": null') == 1, done.stdout
    assert done.returncode == 0


def test_a_process_of_which_nothing_is_known_is_incomplete_not_wrong(two: Bench, start: Start) -> None:
    env = {name: value for name, value in os.environ.items() if "RANK" not in name and name != "SLURM_LOCALID"}
    report = two.report("--pid", str(start(A, "sleep", "64", env=env).pid), rc=2)
    assert ("gpu_unknown", "incomplete") in kinds(report)


def test_a_process_that_has_ended_is_gone(two: Bench, start: Start) -> None:
    process = start(B, "true")
    two.uses(0, process.pid)
    deadline = time.monotonic() + 10
    # Nobody has waited for it yet: it is a zombie, which has a status but uses nothing.
    while "State:\tZ" not in Path(f"/proc/{process.pid}/status").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ("process_gone", "incomplete") in kinds(two.report(rc=2))


def test_a_process_that_cannot_be_seen_is_named(two: Bench) -> None:
    two.uses(0, 4194305)
    report = two.report(rc=2)
    assert ("process_gone", "incomplete") in kinds(report)
    assert "on the host" in report["findings"][0]["remedy"]


# -- GPUs without a NUMA node, the map ---------------------------------------------------------------------------------


def test_the_map_places_gpus_that_the_kernel_does_not(bench: Bench, start: Start) -> None:
    bench.numa(0, A).numa(1, B).gpu(0, "0001:00:00.0", -1)
    bench.uses(0, start(B).pid)
    assert ("gpu_numa_unknown", "incomplete") in kinds(bench.report(rc=2))
    bench.map.write_text(f"# rank gpus cpus memory hca uuids\n0 0 {B} 1 - -\n")
    report = bench.report(rc=0)
    assert (report["gpus"][0]["numa"], report["gpus"][0]["numa_from"]) == (1, "map")


@pytest.mark.parametrize("rest", ["1 {A} 1-0 - -", "1,x {A} 0 - -", "1 {A} zero - -"])
def test_a_damaged_map_is_told_and_its_other_lines_count(bench: Bench, start: Start, rest: str) -> None:
    bench.numa(0, A).numa(1, B).gpu(0, "0001:00:00.0", -1)
    bench.uses(0, start(B).pid)
    line = f"1 {rest.format(A=A)}"
    bench.map.write_text(f"# rank gpus cpus memory hca uuids\n{line}\n0 0 {B} 1 - -\n")
    report = bench.report(rc=2)
    assert kinds(report) == {("map_damaged", "incomplete")}
    assert f"{bench.map} has a line that is not one of a map: {line}" in report["findings"][0]["what"]
    assert report["gpus"][0]["numa_from"] == "map"


def test_ranks_with_several_gpus_come_from_the_map(bench: Bench, start: Start) -> None:
    bench.numa(0, A).numa(1, B)
    for index in range(4):
        bench.gpu(index, f"000{index + 1}:00:00.0", index // 2)
    bench.map.write_text(f"0 0,1 {A} 0 - -\n1 2,3 {B} 1 - -\n")
    process = start(B, "sleep", "65", env={**os.environ, "LOCAL_RANK": "1"})
    assert bench.report("--pid", str(process.pid), rc=0)["processes"][0]["gpus"] == [2, 3]


def test_what_gpu_bind_starts_passes(two: Bench, start: Start) -> None:
    two.map.write_text(f"0 0 {B} 1 - -\n1 1 {A} 0 - -\n")
    env = {**os.environ, "GPU_BIND_MEMORY": "none"}
    for rank in ("0", "1"):
        words = [str(GPU_BIND), "-m", str(two.map), "sleep", "66"]
        start(f"{A},{B}", *words, env={**env, "LOCAL_RANK": rank})
    time.sleep(0.3)
    report = two.report("--name", r"^sleep 66\b", rc=0)
    assert [entry["cpus"] for entry in sorted(report["processes"], key=lambda entry: entry["local_rank"])] == [B, A]
    assert report["verdict"] == "ok"


# -- the known defects of check_app_pinning, one by one ----------------------------------------------------------------


def test_no_metadata_service_is_needed(two: Bench, start: Start) -> None:
    """It asks for the machine type and ends with a traceback outside Azure. Here nothing but /sys, /proc, nvidia-smi."""
    two.uses(0, start(B).pid)
    two.uses(1, start(A).pid)
    audit = (
        "import sys, runpy\n"
        "def hook(event, args):\n"
        "    if event.startswith('socket.'): raise SystemExit('network: ' + event)\n"
        "sys.addaudithook(hook)\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    two.write_smi()
    done = subprocess.run(
        [sys.executable, "-c", audit, str(two.program), *two.options()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.slow
def test_waiting_for_a_job_works(two: Bench, start: Start) -> None:
    """It calls a sleep that it never imported."""
    two.write_smi()
    two.gpus, late = [], two.gpus

    def begin() -> None:
        time.sleep(1)
        two.gpus = late
        two.uses(0, start(B).pid)
        two.uses(1, start(A).pid)
        two.write_smi()

    later = threading.Thread(target=begin)
    later.start()
    report = two.report("--wait", "20", rc=0)
    later.join()
    assert len(report["processes"]) == 2


def test_gpus_are_numbered_by_the_driver_not_by_the_order_of_cards(bench: Bench, start: Start) -> None:
    """It takes the number of the DRM card, less one, for the GPU's."""
    bench.numa(0, A).numa(1, B).gpu(0, "000d:00:00.0", 1).gpu(1, "0001:00:00.0", 0)
    for card, bus_id in ((1, "0001:00:00.0"), (2, "000d:00:00.0")):
        (bench.sysfs / "bus/pci/devices" / bus_id / "drm" / f"card{card}").mkdir(parents=True)
    bench.uses(0, start(B).pid)
    bench.uses(1, start(A).pid)
    assert [gpu["numa"] for gpu in bench.report(rc=0)["gpus"]] == [1, 0]


def test_one_numa_node_or_none_is_fine(bench: Bench, start: Start) -> None:
    """It ends with a KeyError on a machine with a single NUMA node."""
    bench.gpu(0, "0001:00:00.0", -1)
    online = bench.sysfs / "devices/system/cpu"
    online.mkdir(parents=True)
    (online / "online").write_text(f"{A}-{B}\n")
    bench.uses(0, start(f"{A},{B}").pid)
    report = bench.report(rc=0)
    assert report["numa"] == [{"id": 0, "cpus": f"{A}-{B}" if int(B) == int(A) + 1 else report["numa"][0]["cpus"]}]
    bench.numa(0, f"{A}-{B}")
    assert bench.report(rc=0)["verdict"] == "ok"


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-3,8-11", {0, 1, 2, 3, 8, 9, 10, 11}), ("7", {7}), ("", set()), ("0,2-3\n", {0, 2, 3})]
)
def test_lists_with_gaps_are_read(text: str, numbers: set[int]) -> None:
    """Its parser fails on 0-3,8-11."""
    assert parse_set(text) == numbers
    assert parse_set(format_set(numbers).replace("none", "")) == numbers


def test_the_exit_status_says_what_was_found(two: Bench, start: Start) -> None:
    """Its exit status is always 0."""
    assert two.check().returncode == 2
    process = start(B)
    two.uses(0, process.pid)
    assert two.check().returncode == 0
    two.apps = []
    two.uses(1, process.pid)
    assert two.check().returncode == 1
    assert two.check("--name", "[").returncode == 2


def test_no_hwloc_and_nothing_else_is_needed(two: Bench, start: Start) -> None:
    """It needs lstopo and hwloc-calc. Here a PATH without any program."""
    two.uses(0, start(B).pid)
    two.uses(1, start(A).pid)
    done = two.check(env={"PATH": "/nonexistent"})
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("count", [1, 2, 16])
def test_any_number_of_gpus_of_any_model(bench: Bench, start: Start, count: int) -> None:
    """It knows the GPUs of two machine types only."""
    bench.numa(0, A).numa(1, B)
    for index in range(count):
        bench.gpu(index, f"0000:{index + 16:02x}:00.0", index % 2)
        bench.uses(index, start(B if index % 2 else A).pid)
    report = bench.report(rc=0)
    # Eight ranks on the only CPU of a NUMA node are too many, which is all there is to find.
    assert kinds(report) == ({("overlap", "warn")} if count == 16 else set())
    assert len(report["processes"]) == count


# -- an nvidia-smi in trouble ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "exited with 18: Failed to"),
        ("sleep 60", "did not answer within 1 s"),
    ],
)
def test_trouble_with_nvidia_smi_is_incomplete(bench: Bench, script: str, words: str) -> None:
    bench.numa(0, A)
    bench.smi.write_text(f"#!/bin/sh\n{script}\n")
    bench.smi.chmod(0o755)
    report = bench.report("--timeout", "1", rc=2)
    assert (report["findings"][0]["kind"], words in report["findings"][0]["what"]) == ("nvidia_smi", True)


def test_without_nvidia_smi_map_and_environment_do(bench: Bench, start: Start) -> None:
    bench.numa(0, A).numa(1, B)
    bench.map.write_text(f"0 0 {B} 1 - GPU-x\n1 1 {A} 0 - GPU-y\n")
    process = start(A, "sleep", "67", env={**os.environ, "LOCAL_RANK": "0"})
    report = bench.report("--pid", str(process.pid), rc=1)
    assert ("wrong_cpus", "fail") in kinds(report)


def test_rows_that_make_no_sense_are_left_out(two: Bench, start: Start) -> None:
    two.gpus.append("2, [GPU is lost], [GPU is lost]")
    two.apps.append(("[N/A]", 5))
    two.uses(0, start(B).pid)
    two.uses(1, start(A).pid)
    assert two.report(rc=0)["verdict"] == "ok"


RECORDINGS = sorted((Path(__file__).parent / "fixtures/launchers").glob("*.json"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_the_ranks_of_real_launchers_are_known(recording: Path) -> None:
    told = json.loads(recording.read_text(encoding="utf-8"))
    ranks = [local_rank({**told["all"], **own}) for own in told["ranks"]]
    assert ranks == list(range(len(ranks)))


def test_a_rank_that_was_given_by_hand_comes_before_every_launcher_as_in_gpu_bind() -> None:
    variables = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "0", "MPI_LOCALRANKID": "2", "GPU_BIND_RANK": "1"}
    assert local_rank(variables) == 1
