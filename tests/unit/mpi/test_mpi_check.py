# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mpi_check: the command line, the verdict on what ranks say, and the module with a launcher of our own."""

from __future__ import annotations

import os
import pathlib
import sys
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._mpi import verify as mpi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._mpi.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.modules import mpi_check
from module_run import run_main

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
HOSTS = ("gpu-1", "gpu-2")


def rank(number: int, host: str, size: int = 2, total: int | None = 1) -> mpi.Rank:
    return mpi.Rank(number, size, host, total)


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        ([rank(0, "gpu-1"), rank(1, "gpu-2")], []),
        ([rank(0, "gpu-1")], ["rank 1 did not report", "gpu-2 ran 0 rank(s) instead of 1"]),
        (
            [rank(0, "gpu-1"), rank(1, "gpu-1")],
            ["gpu-1 ran 2 rank(s) instead of 1", "gpu-2 ran 0 rank(s) instead of 1"],
        ),
        (
            [rank(0, "gpu-1"), rank(1, "gpu-7")],
            ["gpu-2 ran 0 rank(s) instead of 1", "gpu-7 is not a host of this run but ran 1 rank(s)"],
        ),
        (
            [rank(0, "gpu-1", size=1, total=0), rank(0, "gpu-2", size=1, total=0)],
            [
                "rank 1 did not report",
                "rank 0 reported more than once",
                "the ranks believe in a world of 1 instead of 2",
                "the sum over all ranks came out wrong on gpu-1, gpu-2",
            ],
        ),
        ([rank(0, "gpu-1"), rank(1, "gpu-2", total=5)], ["the sum over all ranks came out wrong on gpu-2"]),
    ],
)
def test_the_verdict_names_what_is_wrong(ranks: list[mpi.Rank], says: list[str]) -> None:
    assert mpi.judge(ranks, Request(HOSTS)) == says


def test_without_a_collective_no_sum_is_expected() -> None:
    launched = [rank(0, "gpu-1", total=None), rank(1, "gpu-2", total=None)]
    assert mpi.judge(launched, Request(HOSTS, collective=False)) == []


def test_ranks_are_found_among_other_output() -> None:
    line = 'mpi_check-rank {"rank": 1, "size": 2, "host": "gpu-2", "sum": 1}'
    output = f"Welcome to gpu-1\n{line}" + line.replace('"rank": 1', '"rank": 0') + "\nmpi_check-rank {broken\n"
    assert [found.rank for found in mpi.parse_ranks(output)] == [0, 1]
    assert mpi.parse_ranks("nothing") == []


def test_the_command_hands_every_word_over_as_an_argument() -> None:
    argv = mpi.launch_argv(Request(HOSTS, 2, "mpi/current", mca={"btl": "self,tcp"}, timeout_s=30))
    assert argv[:5] == ["bash", "-lc", 'module load "$1" && shift && exec "$@"', "mpi_check", "mpi/current"]
    assert argv[5:12] == ["mpirun", "-np", "4", "--host", "gpu-1:2,gpu-2:2", "--map-by", "ppr:2:node"]
    assert argv[12:14] == ["--timeout", "30"]
    assert argv[14:17] == ["--mca", "btl", "self,tcp"]
    assert argv[17:] == ["python3", "-c", mpi.RANK_PROGRAM, "collective", *HOSTS]
    assert mpi.launch_argv(Request(HOSTS))[0] == "mpirun"


@pytest.mark.parametrize("host", ["--mca", "gpu-1,gpu-2", "gpu:4", "a b", "", "$(id)"])
def test_a_host_name_cannot_become_anything_else(host: str) -> None:
    with pytest.raises(ClusterError, match="not a host name"):
        Request(("gpu-1", host)).check()


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("refused", "launch_failed", "sshd does not listen (gpu-3)"),
        ("denied", "launch_failed", "does not accept the cluster's ssh key (gpu-3)"),
        ("resolve", "launch_failed", "cannot be resolved on the first node (gpu-99)"),
        ("slots", "launch_failed", "fewer slots than ranks"),
        ("root", "launch_failed", "refuses to run as root"),
        ("program", "launch_failed", "python3 is missing"),
        ("module", "mpi_missing", "environment module does not exist"),
    ],
)
def test_failures_of_the_launcher_are_told_in_words(name: str, kind: str, says: str) -> None:
    error = mpi.launch_failure("", (FIXTURES / f"{name}.stderr").read_text(), 1)
    assert error.kind == kind
    assert says in error.message
    # The place of modulefiles is the distribution's: the usual one of Debian is none of EL's.
    assert ("/etc/modulefiles on EL" in error.remedy) is (name == "module")


def test_directories_that_may_be_the_image_s_hpcx_are_named() -> None:
    said = (FIXTURES / "image.stderr").read_text()
    error = mpi.launch_failure("", said, 1)
    assert error.kind == "mpi_missing"
    assert "mpirun failed: the image's HPC-X cannot be told: 0 directories fit /opt/hpcx-* ()." in error.message
    assert "name one of these" in error.remedy
    several = said.replace(
        "0 directories fit\n    /opt/hpcx-* ()", "2 directories fit\n    /opt/hpcx-* (/opt/hpcx-1,\n    /opt/hpcx-2)"
    )
    error = mpi.launch_failure("", several, 1)
    assert "cannot be told: 2 directories fit /opt/hpcx-* (/opt/hpcx-1, /opt/hpcx-2)." in error.message


def test_an_unknown_failure_shows_its_last_line() -> None:
    assert "exited with 7: boom." in mpi.launch_failure("", "first\nboom\n-----\n", 7).message
    assert "it said nothing" in mpi.launch_failure("", "", 7).message


# Plays mpirun: runs the program it is given once per slot, with the environment that Open MPI gives a rank.
LAUNCHER = """#!{python}
import os, subprocess, sys
if os.environ.get("HANG"):
    import time
    subprocess.Popen(["sleep", "300"])
    time.sleep(300)
words = sys.argv[1:]
size = int(words[words.index("-np") + 1])
program = words[words.index("python3"):]
for rank in range(size):
    subprocess.run([sys.executable, *program[1:]],
        env={{**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}})
"""


class Launch(t.Protocol):
    def __call__(self, **args: t.Any) -> dict[str, t.Any]: ...


@pytest.fixture
def launch(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    (tmp_path / "mpirun").write_text(LAUNCHER.format(python=sys.executable))
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def run(**args: t.Any) -> dict[str, t.Any]:
        return run_main(mpi_check.main, {"module": "", "collective": False, **args})

    return run


def test_every_rank_is_placed(launch: Launch) -> None:
    # 127.0.0.1 is an address of this machine, so the ranks find out where they are without knowing its name.
    result = launch(hosts=["127.0.0.1"], ranks_per_node=3)
    assert result["placement"] == {"127.0.0.1": [0, 1, 2]}
    assert result["changed"] is False


def test_a_node_that_ran_nothing_is_named(launch: Launch) -> None:
    # 192.0.2.7 is reserved for documentation and never local: all ranks end up on the first host.
    result = launch(hosts=["127.0.0.1", "192.0.2.7"])
    assert result["error_kind"] == "wrong_placement"
    assert "192.0.2.7 ran 0 rank(s) instead of 1" in result["problems"]


def test_a_job_that_hangs_is_killed_with_all_it_started(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANG", "1")
    monkeypatch.setattr(command, "_GRACE_S", 0.5)
    assert launch(hosts=["127.0.0.1"], timeout_s=0)["error_kind"] == "timeout"


def test_a_host_that_is_named_twice_runs_its_ranks_once(launch: Launch) -> None:
    assert launch(hosts=["127.0.0.1", "127.0.0.1"], mca={"btl_base_verbose": 30})["ranks"] == 1


@pytest.mark.parametrize(
    ("wish", "option"),
    [({"hosts": []}, "`hosts`"), ({"hosts": ["127.0.0.1"], "ranks_per_node": 0}, "`ranks_per_node`")],
)
def test_a_job_without_ranks_proves_nothing(launch: Launch, wish: dict[str, t.Any], option: str) -> None:
    result = launch(**wish)
    assert result["error_kind"] == "bad_input"
    assert option in result["msg"]


def test_no_mpirun_is_said_so(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = launch(hosts=["127.0.0.1"])
    assert result["error_kind"] == "mpi_missing"
    # A package of an image that only stands for Open MPI satisfies the package system.
    assert "use the image's preinstalled HPC-X" in result["remedy"]
