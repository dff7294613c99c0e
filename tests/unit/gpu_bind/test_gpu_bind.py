# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu-bind, run for real by sh on this machine's CPUs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from gpu_bind_bench import ALLOWED, GPU_BIND

TWO_CPUS = pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two CPUs")
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
SHOW = "grep Cpus_allowed_list /proc/self/status; echo devices=${CUDA_VISIBLE_DEVICES-} order=${CUDA_DEVICE_ORDER-}"
FIRST, SECOND = ALLOWED[0], ALLOWED[-1]


def words_of(shell: str) -> list[str]:
    path = shutil.which(shell) or shell
    return [path, "sh"] if shell == "busybox" else [path]


def run(tmp_path: Path, lines: str, *arguments: str, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[str]:
    """``gpu-bind -m MAP ARGUMENTS`` with nothing in the environment but this."""
    (tmp_path / "map").write_text(lines)
    return subprocess.run(
        [*words_of(shell), str(GPU_BIND), "-m", str(tmp_path / "map"), *arguments],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **env},
        capture_output=True,
        text=True,
        check=False,
    )


#: Two ranks on two CPUs, GPU 1 next to the first CPU.
MAP = (
    f"# Ansible managed\n# rank gpus cpus memory hca uuids\n0 0 {SECOND} 0 mlx5_0 GPU-aa\n1 1 {FIRST} 0 mlx5_1 GPU-bb\n"
)


def where(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    """CPU and CUDA_VISIBLE_DEVICES of the command that gpu-bind became."""
    assert done.returncode == 0, done.stderr
    cpus, devices = re.findall(r"Cpus_allowed_list:\s*(\S+)\ndevices=(\S*) order=PCI_BUS_ID", done.stdout)[0]
    return int(cpus), devices


def own_cpus() -> str:
    """The CPUs of this process, as the kernel writes them."""
    return re.findall(r"Cpus_allowed_list:\s*(\S+)", Path("/proc/self/status").read_text())[0]


@TWO_CPUS
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "variable",
    [
        "GPU_BIND_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "PMI_LOCAL_RANK",
        "PALS_LOCAL_RANKID",
        "FLUX_TASK_LOCAL_ID",
        "LOCAL_RANK",
        "SLURM_LOCALID",
    ],
)
def test_every_launcher_is_understood(tmp_path: Path, shell: str, variable: str) -> None:
    env: dict[str, t.Any] = {variable: "0"}
    assert where(run(tmp_path, MAP, "sh", "-c", SHOW, shell=shell, **env)) == (SECOND, "")
    env = {variable: "1"}
    assert where(run(tmp_path, MAP, "sh", "-c", SHOW, shell=shell, **env)) == (FIRST, "")


@TWO_CPUS
@pytest.mark.parametrize(
    "env",
    [
        {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "0"},
        {"LOCAL_RANK": "1", "SLURM_LOCALID": "0"},
        {"TORCHELASTIC_RUN_ID": "x", "LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
        {"GPU_BIND_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
    ],
)
def test_a_launcher_inside_another_one_wins(tmp_path: Path, env: dict[str, str]) -> None:
    assert where(run(tmp_path, MAP, "sh", "-c", SHOW, **env))[0] == FIRST


@TWO_CPUS
@pytest.mark.parametrize(
    ("visible", "rank", "cpu"),
    [
        ("1,0", "0", FIRST),
        ("1,0", "1", SECOND),
        ("1", "0", FIRST),
        ("GPU-bb", "0", FIRST),
        ("GPU-bb,GPU-aa", "1", SECOND),
    ],
)
def test_visible_devices_are_followed(tmp_path: Path, visible: str, rank: str, cpu: int) -> None:
    assert where(run(tmp_path, MAP, "sh", "-c", SHOW, LOCAL_RANK=rank, CUDA_VISIBLE_DEVICES=visible)) == (cpu, visible)


@TWO_CPUS
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("visible", ["", "-1", "-1,0", "NoDevFiles"])
def test_a_rank_without_a_gpu_runs_where_its_launcher_put_it_and_says_so(
    tmp_path: Path, shell: str, visible: str
) -> None:
    # CUDA shows nothing from the first number on that no GPU has; NoDevFiles is Slurm's word for none.
    command = ["-s", "sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $CUDA_VISIBLE_DEVICES"]
    done = run(tmp_path, MAP, *command, shell=shell, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES=visible)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1)[1] == f"{own_cpus()}\n{visible}\n"
    assert done.stderr == f"gpu-bind: rank 0: CUDA_VISIBLE_DEVICES is '{visible}', which is no GPU: not bound\n"
    # It needs no place in the map, nor one at all.
    assert run(tmp_path, "", "true", LOCAL_RANK="9", CUDA_VISIBLE_DEVICES=visible).returncode == 0
    dry = run(tmp_path, MAP, "-n", "false", LOCAL_RANK="0", CUDA_VISIBLE_DEVICES=visible)
    assert (dry.returncode, "not bound" in dry.stderr) == (0, True)


def test_gpus_behind_a_number_that_no_gpu_has_are_nobody_s(tmp_path: Path) -> None:
    lines = f"{MAP}2 2 {FIRST} 0 - -\n"
    assert run(tmp_path, lines, "true", LOCAL_RANK="2", CUDA_VISIBLE_DEVICES="1,0,2").returncode == 0
    done = run(tmp_path, lines, "true", LOCAL_RANK="2", CUDA_VISIBLE_DEVICES="1,0,-1,2")
    assert (done.returncode, "has no GPU for local rank 2" in done.stderr) == (125, True), done.stderr


@TWO_CPUS
def test_slurm_tells_the_gpus_that_a_cgroup_renumbers(tmp_path: Path) -> None:
    # One GPU per task, kept apart by a cgroup: every task sees "0".
    env = {"SLURM_LOCALID": "1", "SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0"}
    assert where(run(tmp_path, MAP, "-s", "sh", "-c", SHOW, **env)) == (FIRST, "0")
    # Half a node: the job's only GPU is number 1 of the machine.
    env = {"SLURM_LOCALID": "0", "SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert where(run(tmp_path, MAP, "sh", "-c", SHOW, **env)) == (FIRST, "0")


@TWO_CPUS
def test_a_launcher_that_shows_every_rank_its_own_gpus_only(tmp_path: Path) -> None:
    # srun --gpus-per-task=1, as Slurm 22.05 does it: without and with a cgroup that keeps the others away.
    env = {"SLURM_LOCALID": "1", "SLURM_STEP_GPUS": "1", "CUDA_VISIBLE_DEVICES": "1"}
    assert where(run(tmp_path, MAP, "sh", "-c", SHOW, **env)) == (FIRST, "1")
    env["CUDA_VISIBLE_DEVICES"] = "0"
    assert where(run(tmp_path, MAP, "-s", "sh", "-c", SHOW, **env)) == (FIRST, "0")
    # Two for each task.
    pairs = f"0 0,1 {SECOND} 0 - -\n1 2,3 {FIRST} 0 - -\n"
    env = {"SLURM_LOCALID": "1", "SLURM_STEP_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"}
    assert where(run(tmp_path, pairs, "-s", "sh", "-c", SHOW, **env)) == (FIRST, "2,3")


def in_a_cgroup(tmp_path: Path, lines: str, opens: str, *arguments: str, **env: str) -> tuple[int, str]:
    """gpu-bind as a task of ``srun --gpus-per-task``, which may open the devices of these numbers of 0-3 and no other.

    Only a cgroup can refuse a device in the way that gpu-bind asks for, so its question is answered here.
    """
    answer = f"ask_device() {{ case $1 in [{opens}]) answer=open ;; [0-3]) answer=closed ;; *) answer='' ;; esac; }}"
    pretended = with_answers(tmp_path, answer)
    (tmp_path / "map").write_text(lines)
    visible = ",".join(str(number) for number in range(len(opens)))
    slurm = {"SLURM_STEP_GPUS": "0", "SLURMD_TRES_BIND": "gpu:per_task:1", "CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run(
        ["sh", str(pretended), "-m", str(tmp_path / "map"), *arguments, "sh", "-c", SHOW],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **slurm, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 125), done.stderr
    return where(done) if not done.returncode else (-1, done.stderr)


#: GPU 0 and 1 on the first CPU, 2 and 3 on the second; the driver counts the latter first.
FOUR = "".join(f"{gpu} {gpu} {FIRST if gpu < 2 else SECOND} 0 - -\n" for gpu in range(4))
TURNED = f"# minors 2,3,0,1\n# rank gpus cpus memory hca uuids\n{FOUR}"


@TWO_CPUS
@pytest.mark.parametrize("rank", ["0", "3"])
@pytest.mark.parametrize(("device", "cpu"), [("2", FIRST), ("3", FIRST), ("0", SECOND), ("1", SECOND)])
def test_the_only_device_that_opens_is_the_one_of_the_gpu_with_that_minor(
    tmp_path: Path, rank: str, device: str, cpu: int
) -> None:
    assert in_a_cgroup(tmp_path, TURNED, device, SLURM_LOCALID=rank) == (cpu, "0")


@TWO_CPUS
@pytest.mark.parametrize(("device", "cpu"), [("0", FIRST), ("1", FIRST), ("2", SECOND), ("3", SECOND)])
def test_a_map_without_minors_is_read_as_before(tmp_path: Path, device: str, cpu: int) -> None:
    assert in_a_cgroup(tmp_path, FOUR, device, SLURM_LOCALID="1") == (cpu, "0")


@TWO_CPUS
def test_several_devices_are_in_the_order_of_gpus_not_of_minors(tmp_path: Path) -> None:
    # CUDA numbers them by their addresses, as nvidia-smi does: the first that the task sees is GPU 1.
    lines = f"# minors 3,2,1,0\n0 0,1 {FIRST} 0 - -\n1 2,3 {SECOND} 0 - -\n"
    assert in_a_cgroup(tmp_path, lines, "01", SLURM_LOCALID="0") == (SECOND, "0,1")
    single = f"# minors 3,2,1,0\n{FOUR}"
    assert in_a_cgroup(tmp_path, single, "12", SLURM_LOCALID="0") == (FIRST, "0,1")
    assert in_a_cgroup(tmp_path, single, "12", SLURM_LOCALID="1") == (SECOND, "0,1")


@TWO_CPUS
def test_a_device_of_no_gpu_in_the_map_is_not_taken_for_another(tmp_path: Path) -> None:
    rc, said = in_a_cgroup(tmp_path, f"# minors 2,3,-,1\n{FOUR}", "0", SLURM_LOCALID="0")
    assert (rc, "CUDA_VISIBLE_DEVICES=0 has no GPU for local rank 0" in said) == (-1, True), said
    # A GPU that no rank uses.
    rc, said = in_a_cgroup(tmp_path, f"# minors 1,0\n0 0 {FIRST} 0 - -\n", "0", SLURM_LOCALID="0")
    assert (rc, "GPU 1, which no line" in said) == (-1, True), said


@TWO_CPUS
def test_single_shows_a_rank_its_own_gpu_only(tmp_path: Path) -> None:
    assert where(run(tmp_path, MAP, "-s", "sh", "-c", SHOW, LOCAL_RANK="1")) == (FIRST, "1")
    assert where(run(tmp_path, MAP, "-s", "sh", "-c", SHOW, LOCAL_RANK="1", CUDA_VISIBLE_DEVICES="1,0")) == (
        SECOND,
        "0",
    )


@TWO_CPUS
def test_ucx_is_given_the_hca_next_to_the_gpu(tmp_path: Path) -> None:
    show = ["sh", "-c", "echo ${UCX_NET_DEVICES-none}"]
    assert run(tmp_path, MAP, "-u", *show, LOCAL_RANK="1").stdout == "mlx5_1:1\n"
    assert run(tmp_path, MAP, "-u", *show, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="1,0").stdout == "mlx5_1:1\n"
    assert run(tmp_path, MAP, *show, LOCAL_RANK="1").stdout == "none\n"
    done = run(tmp_path, f"0 0 {FIRST} 0 - -\n", "-u", *show, LOCAL_RANK="0")
    assert (done.returncode, "names no HCA for GPU 0" in done.stderr) == (125, True)


@TWO_CPUS
def test_ranks_that_share_a_gpu_and_ranks_with_several(tmp_path: Path) -> None:
    shared = f"0 0 {FIRST} 0 - -\n1 0 {SECOND} 0 - -\n2 1 {FIRST} 0 - -\n3 1 {SECOND} 0 - -\n"
    assert [where(run(tmp_path, shared, "sh", "-c", SHOW, LOCAL_RANK=rank))[0] for rank in "0123"] == [
        FIRST,
        SECOND,
        FIRST,
        SECOND,
    ]
    assert [
        where(run(tmp_path, shared, "sh", "-c", SHOW, LOCAL_RANK=rank, CUDA_VISIBLE_DEVICES="1,0"))[0] for rank in "13"
    ] == [SECOND, SECOND]
    several = f"0 0,1 {FIRST} 0 - -\n1 2,3 {SECOND} 0 - -\n"
    assert where(run(tmp_path, several, "-s", "sh", "-c", SHOW, LOCAL_RANK="1")) == (SECOND, "2,3")
    reordered = run(tmp_path, several, "sh", "-c", SHOW, LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="2,3,0,1")
    assert where(reordered)[0] == SECOND


@TWO_CPUS
def test_a_launcher_s_own_binding_is_not_final(tmp_path: Path) -> None:
    (tmp_path / "map").write_text(MAP)
    done = subprocess.run(
        ["taskset", "-c", str(FIRST), "sh", str(GPU_BIND), "-m", str(tmp_path / "map"), "sh", "-c", SHOW],
        env={"PATH": "/usr/bin:/bin", "LOCAL_RANK": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert where(done)[0] == SECOND


@pytest.mark.parametrize(
    ("lines", "arguments", "env", "words"),
    [
        (MAP, ["true"], {}, "no launcher told a local rank"),
        (MAP, ["true"], {"LOCAL_RANK": "two"}, "is 'two', which is not a number"),
        (MAP, ["true"], {"LOCAL_RANK": "2"}, "local rank 2 is not in"),
        (MAP, [], {"LOCAL_RANK": "0"}, "no command to run"),
        (MAP, ["-x", "true"], {"LOCAL_RANK": "0"}, "option -x is not known"),
        (MAP, ["true"], {"LOCAL_RANK": "0", "GPU_BIND_MEMORY": "all"}, "Choose bind, prefer or none"),
        (
            f"{MAP}2 2 0 0 - -\n",
            ["true"],
            {"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "1,0"},
            "has no GPU for local rank 2",
        ),
        (MAP, ["true"], {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "MIG-1"}, "GPU MIG-1, which no line"),
        (MAP, ["-m", "/nonexistent/map", "true"], {"LOCAL_RANK": "0"}, "cannot be read"),
        ("0 0 4095 0 - -\n", ["true"], {"LOCAL_RANK": "0"}, "may not run on the CPUs 4095"),
    ],
)
def test_what_cannot_be_bound_is_said_and_not_run(
    tmp_path: Path, lines: str, arguments: list[str], env: dict[str, str], words: str
) -> None:
    done = run(tmp_path, lines, *arguments, **env)
    assert (done.returncode, words in done.stderr) == (125, True), done.stderr
    assert done.stderr.startswith("gpu-bind: ")


def test_cpus_that_are_offline_are_not_the_scheduler_s_doing(tmp_path: Path) -> None:
    # No machine has a CPU of this number: to the kernel it is as one that is offline.
    done = run(tmp_path, "0 0 4095 0 - -\n", "true", LOCAL_RANK="0")
    assert (done.returncode, "none of them is online" in done.stderr) == (125, True), done.stderr
    assert "scheduler" not in done.stderr


@pytest.mark.parametrize("memory", ["bind", "prefer"])
def test_a_cpuset_without_the_gpu_s_memory_is_named_and_not_a_missing_capability(tmp_path: Path, memory: str) -> None:
    # As with AllowedMemoryNodes=0 of systemd on a machine with more nodes: this process has node 0, the map says 1.
    lines = f"0 0 {FIRST} 1 - -\n"
    done = on_two_numa_nodes(tmp_path, "true", lines=lines, GPU_BIND_MEMORY=memory)
    assert (done.returncode, "a cpuset leaves it NUMA node 0 only" in done.stderr) == (125, True), done.stderr
    assert "AllowedMemoryNodes" in done.stderr
    assert "CAP_SYS_NICE" not in done.stderr
    assert on_two_numa_nodes(tmp_path, "true", lines=lines, GPU_BIND_MEMORY="none").returncode == 0


def test_of_several_memory_nodes_those_count_that_a_cpuset_leaves(tmp_path: Path) -> None:
    done = on_two_numa_nodes(tmp_path, "true", lines=f"0 0 {FIRST} 0-1,3 - -\n")
    assert (done.returncode, done.stderr) == (0, "")


@TWO_CPUS
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("0-3,8", "2-9", "2-3,8"),
        ("0-23,48-71", "0-95", "0-23,48-71"),
        ("5", "0-4,6", ""),
        ("", "0", ""),
        ("7", "7", "7"),
    ],
)
def test_what_is_in_both_lists(tmp_path: Path, shell: str, one: str, other: str, shared: str) -> None:
    ask = f'find_rank() {{ both "{one}" "{other}"; echo "$shared"; exit; }}'
    argv = [*words_of(shell), str(with_answers(tmp_path, ask)), "true"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == f"{shared}\n"


def test_the_command_keeps_its_words_and_its_exit_status(tmp_path: Path) -> None:
    done = run(tmp_path, MAP, "--", "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "*", "", LOCAL_RANK="0")
    assert (done.returncode, done.stdout) == (7, "a b|*||")
    assert run(tmp_path, MAP, "/nonexistent", LOCAL_RANK="0").returncode == 127


def on_two_numa_nodes(
    tmp_path: Path, *words: str, shell: str = "sh", lines: str = MAP, memory: str = "0", **env: str
) -> subprocess.CompletedProcess[str]:
    """gpu-bind as on a machine with memory on NUMA nodes 0 and 1, where it goes through numactl.

    Most machines that run tests have one NUMA node, so that two questions are answered here: how many there are, and the
    ``memory`` of which a cpuset leaves.
    """
    allowed = f"allowed() {{ case $1 in Mems*) printf {memory} ;; *) printf {FIRST}-{SECOND} ;; esac; }}"
    pretended = with_answers(tmp_path, "memory_nodes() { nodes=0-1; }", allowed)
    (tmp_path / "map").write_text(lines)
    numactl = Path(shutil.which("numactl") or stand_in_for_numactl(tmp_path))
    argv = [*words_of(shell), str(pretended), "-m", str(tmp_path / "map"), *words]
    path = f"{numactl.parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    return subprocess.run(
        argv, env={"PATH": path, "LOCAL_RANK": "0", **env}, capture_output=True, text=True, check=False
    )


def with_answers(tmp_path: Path, *functions: str) -> Path:
    """gpu-bind with these functions in the place of its own ones."""
    program = GPU_BIND.read_text()
    assert program.count("\nmap=$") == 1
    for function in functions:
        assert f"\n{function.partition('(')[0]}() {{\n" in program
    pretended = tmp_path / "gpu-bind"
    pretended.write_text(program.replace("\nmap=$", "\n" + "\n".join(functions) + "\nmap=$"))
    return pretended


def stand_in_for_numactl(tmp_path: Path) -> Path:
    """What numactl 2.0.16 does with a command: it becomes it, and ends with 1 if it cannot."""
    program = tmp_path / "bin/numactl"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\nwords = sys.argv[3 if sys.argv[2] == '--' else 2 :]\n"
        "try:\n    os.execvp(words[0], words)\nexcept OSError as exc:\n"
        '    sys.exit(f"numactl: execution of `{words[0]}\': {exc.strerror}")\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("shell", SHELLS)
def test_behind_numactl_a_command_that_cannot_be_run_is_told_as_without(tmp_path: Path, shell: str) -> None:
    assert on_two_numa_nodes(tmp_path, "/nonexistent", shell=shell).returncode == 127
    assert on_two_numa_nodes(tmp_path, "no-such-program", shell=shell).returncode == 127
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    done = on_two_numa_nodes(tmp_path, str(plain), shell=shell)
    assert (done.returncode, str(plain) in done.stderr) == (126, True), done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_behind_numactl_a_command_keeps_its_words_and_its_exit_status(tmp_path: Path, shell: str) -> None:
    words = ["sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "*", "", "--"]
    done = on_two_numa_nodes(tmp_path, "--", *words, shell=shell)
    assert (done.returncode, done.stdout) == (7, "a b|*||--|"), done.stderr


def test_off_help_and_a_dry_run(tmp_path: Path) -> None:
    assert run(tmp_path, "", "echo", "free", GPU_BIND_OFF="1").stdout == "free\n"
    assert "Usage: mpirun" in run(tmp_path, "", "-h").stdout
    done = run(tmp_path, MAP, "-n", "touch", str(tmp_path / "ran"), LOCAL_RANK="1")
    assert (done.returncode, (tmp_path / "ran").exists()) == (0, False)
    assert f"rank 1: GPU 1, CPUs {FIRST}, memory of NUMA node 0 (--membind)" in done.stderr


def test_verbose_says_what_is_done(tmp_path: Path) -> None:
    done = run(tmp_path, MAP, "-v", "true", LOCAL_RANK="1", GPU_BIND_MEMORY="none")
    assert done.stderr.splitlines()[-1] == f"gpu-bind: rank 1: runs on CPUs {FIRST}"


RECORDINGS = sorted((Path(__file__).parent / "fixtures/launchers").glob("*.json"))


@TWO_CPUS
@pytest.mark.parametrize("recording", RECORDINGS, ids=[path.stem for path in RECORDINGS])
def test_what_real_launchers_say_is_understood(tmp_path: Path, recording: Path) -> None:
    """Each rank of a real job, with all that its launcher gave it, is bound as the map says."""
    told = json.loads(recording.read_text(encoding="utf-8"))
    expected = [(FIRST, SECOND)[rank % 2] for rank in range(len(told["ranks"]))]
    lines = "".join(f"{rank} {rank} {cpu} 0 - -\n" for rank, cpu in enumerate(expected))
    found = [where(run(tmp_path, lines, "-s", "sh", "-c", SHOW, **told["all"], **own)) for own in told["ranks"]]
    assert found == [(cpu, str(rank)) for rank, cpu in enumerate(expected)]
