# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role numa_pinning on a node with four NUMA nodes: real CPUs and memory, real Open MPI; only the GPUs are simulated.

They sit on PCI functions of the node, so that their NUMA nodes come from the kernel, in the order of an NDv4.
"""

from __future__ import annotations

import json
import typing as t

import pytest
from own_machine import NODE

SIMULATOR = "python3 -B /opt/gpu_simulator/process.py"
MPIRUN = "mpirun --allow-run-as-root --oversubscribe -np 8"
# What a rank may use, in the kernel's words and in numactl's; the page of the bytes that it touched.
SHOW = (
    "import mmap, os, re, subprocess, sys\n"
    "area = mmap.mmap(-1, 8 << 20)\n"
    "area.write(b'x' * (8 << 20))\n"
    "status = open('/proc/self/status').read()\n"
    "maps = open('/proc/self/numa_maps').read().splitlines()\n"
    "nodes = [re.findall(r' N(\\d+)=(\\d+)', line) for line in maps if re.search(r'(anon|dirty)=20\\d\\d', line)]\n"
    "shown = subprocess.run(['numactl', '--show'], capture_output=True, text=True).stdout\n"
    "bind = re.search(r'^membind: (.*?) *$', shown, re.M).group(1)\n"
    "cpus = re.search(r'Cpus_allowed_list:\\s*(\\S+)', status).group(1)\n"
    "print(os.environ['OMPI_COMM_WORLD_LOCAL_RANK'], cpus, bind, maps[0].split()[1], nodes, flush=True)\n"
)


@pytest.fixture(scope="module")
def node(vm_lab: t.Any) -> t.Any:
    """A node with simulated GPUs, gpu-bind and its map, after the role's first and second run."""
    gpus = vm_lab.lab["nodes"][NODE]["gpus"]
    assert [gpu["numa"] for gpu in gpus] == [1, 1, 0, 0, 3, 3, 2, 2]
    assert "GPU 7" in vm_lab.run(NODE, "nvidia-smi", "-L"), "no simulated GPUs: run molecule prepare -s vm"
    vm_lab.shell(NODE, "rm -rf /etc/gpu-bind /usr/local/bin/gpu-bind /usr/local/bin/gpu-bind-check")
    first = vm_lab.role("numa_pinning", limit=NODE)
    assert first.rc == 0, first.output
    assert first.recap(NODE)["changed"] == 2, first.output
    yield vm_lab
    vm_lab.shell(NODE, "rm -rf /etc/gpu-bind /usr/local/bin/gpu-bind /usr/local/bin/gpu-bind-check")


def test_the_map_is_the_node_s_and_a_second_run_changes_nothing(node: t.Any) -> None:
    lines = [line.split()[:4] for line in node.run(NODE, "cat", "/etc/gpu-bind/map").splitlines() if line[0] != "#"]
    cpus = {0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}
    expected = [gpu["numa"] for gpu in node.lab["nodes"][NODE]["gpus"]]
    assert lines == [[str(rank), str(rank), cpus[numa], str(numa)] for rank, numa in enumerate(expected)]
    second = node.role("numa_pinning", limit=NODE)
    recap = second.recap(NODE)
    # The task that includes the role, the argument spec, the two of the role.
    assert (recap["changed"], recap["ok"], recap["skipped"]) == (0, 4, 0), second.output


def test_ranks_land_on_the_cpus_and_the_memory_of_their_gpus(node: t.Any) -> None:
    # Open MPI's own binding (to a core each, in its own order) is not in the way.
    node.shell(NODE, f"cat >/tmp/show.py <<'END'\n{SHOW}END")
    printed = node.shell(NODE, f"{MPIRUN} gpu-bind python3 /tmp/show.py; rm /tmp/show.py")
    ranks = {int(line.split()[0]): line.split(None, 4)[1:] for line in printed.splitlines() if line[:1].isdigit()}
    assert sorted(ranks) == list(range(8)), printed
    for rank, gpu in enumerate(node.lab["nodes"][NODE]["gpus"]):
        numa = gpu["numa"]
        cpus, membind, policy, pages = ranks[rank]
        assert (cpus, membind, policy) == (f"{2 * numa}-{2 * numa + 1}", str(numa), f"bind:{numa}"), ranks
        # The kernel put what the rank touched there, too.
        assert pages == f"[[('{numa}', '2048')]]", ranks


def test_open_mpi_s_own_words_mean_what_the_plan_says(node: t.Any) -> None:
    facts = {
        "numa": [{"id": number, "cpus": f"{2 * number}-{2 * number + 1}"} for number in range(4)],
        "gpus": [{"index": index, "numa": gpu["numa"]} for index, gpu in enumerate(node.lab["nodes"][NODE]["gpus"])],
        "cpus": {"cores": 8, "threads": 8},
    }
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            {"hpcai.gpu_cluster.gpu_affinity": {"facts": facts, "rankfile_host": NODE}, "register": "plan"},
            {"ansible.builtin.copy": {"content": "{{ plan | to_json }}", "dest": "{{ target }}", "mode": "0600"}},
        ],
    }
    target = node.paths.directory / f"plan-{NODE}.json"
    done = node.playbook([play], target=str(target))
    assert done.rc == 0, done.output
    plan = json.loads(target.read_text())
    target.unlink()
    show = "sh -c 'echo $OMPI_COMM_WORLD_LOCAL_RANK $(sed -n s/^Cpus_allowed_list://p /proc/self/status)'"
    by_rankfile, by_numa = node.shell(
        NODE,
        f"cat >/tmp/rankfile <<'END'\n{plan['rankfile']}END\n"
        f"{MPIRUN} --rankfile /tmp/rankfile --mca rmaps_rank_file_physical 1 {show} | sort; echo ==\n"
        f"{MPIRUN} --map-by {plan['mpirun_map_by']} --bind-to {plan['mpirun_bind_to']} {show} | sort; rm /tmp/rankfile\n",
    ).split("==\n")
    assert [line.split()[1] for line in by_rankfile.splitlines()] == [rank["own_cpus"] for rank in plan["ranks"]]
    # Rank 0 is on NUMA node 0, so that it needs the GPU that the plan's order puts first.
    order = [int(index) for index in plan["cuda_visible_devices"].split(",")]
    assert [line.split()[1] for line in by_numa.splitlines()] == [plan["ranks"][gpu]["cpus"] for gpu in order]


def test_the_checker_passes_what_is_right_and_finds_what_is_wrong(node: t.Any) -> None:
    script = (
        f"{MPIRUN} gpu-bind -s {SIMULATOR} -- sleep 300 >/dev/null 2>&1 & job=$!\n"
        "gpu-bind-check --wait 30 >/dev/null || :\n"
        "while [ $(nvidia-smi --query-compute-apps=pid --format=csv,noheader | wc -l) -lt 8 ]; do sleep 0.5; done\n"
        'gpu-bind-check --json --memory --strict && rc=0 || rc=$?; echo "rc $rc"\n'
        # On the right CPUs with the memory of another node, and on the wrong CPUs.
        f"taskset -c 2,3 numactl --membind=2 {SIMULATOR} --gpu 0 -- sleep 301 & memory=$!\n"
        f"taskset -c 0-3 {SIMULATOR} --gpu 4 -- sleep 301 & cpus=$!\n"
        "while [ $(nvidia-smi --query-compute-apps=pid --format=csv,noheader | wc -l) -lt 10 ]; do sleep 0.5; done\n"
        'gpu-bind-check --json && rc=0 || rc=$?; echo "rc $rc"\n'
        'echo "$memory $cpus"; kill $memory $cpus $job; wait || :\n'
    )
    right, wrong, pids = node.shell(NODE, script, timeout_s=240).split("rc ")
    right = json.loads(right)
    assert (right["verdict"], right["findings"], len(right["processes"])) == ("ok", [], 8), right["findings"]
    for process in right["processes"]:
        assert process["memory_policy"] == f"bind:{process['numa'][0]}"
    assert wrong[0] == "0"
    found = json.loads(wrong[1:])
    memory, cpus = (int(word) for word in pids.split()[1:3])
    assert pids[0] == "1"
    faults = {(item["kind"], item["pid"], item["gpu"]) for item in found["findings"] if item["verdict"] == "fail"}
    assert faults == {("wrong_memory", memory, 0), ("wrong_cpus", cpus, 4)}
    assert {process["pid"] for process in found["processes"] if process["verdict"] == "fail"} == {memory, cpus}
