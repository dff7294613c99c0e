# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bin/test beside another run of it, before there is a Python: its copy in a directory where installing takes no time."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import time

import pytest
from proof import __main__ as program

ROOT = pathlib.Path(__file__).resolve().parents[3]
#: What bin/test sources. To install is to write what has been done; the program that is run then says so, too.
ENVIRONMENT = """
root=$PWD
die() { printf 'test: %s\\n' "$*" >&2; exit 1; }
prepare_python() { echo python >>prepared; until [[ ! -e slow ]]; do sleep 0.1; done; PATH=$root/bin:$PATH; }
prepare_blob_tools() { echo blob >>prepared; }
begin_newest_core() { echo newest >>newest; rm -f slow; [[ ! -e broken ]]; }
begin_labs() { echo labs >>newest; rm -f slow; [[ ! -e broken ]]; }
"""


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "bin/test", tmp_path / "bin/test")
    (tmp_path / "bin/_env.sh").write_text(ENVIRONMENT)
    (tmp_path / "bin/python").write_text('#!/bin/sh\necho "python $*"\n')
    (tmp_path / "bin/python").chmod(0o755)
    return tmp_path


def start(checkout: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bin/test", *arguments], cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def bin_test(checkout: pathlib.Path, *arguments: str) -> tuple[int, str]:
    with start(checkout, *arguments) as process:
        said = process.communicate(timeout=120)[0]
        return process.returncode, said


def test_a_run_installs_what_is_missing_and_frees_the_lock_for_what_it_runs(checkout: pathlib.Path) -> None:
    status, said = bin_test(checkout, "--all")
    assert status == 0
    assert said.startswith("python -m proof all")
    # Azurite and AzCopy are a step of its own, beside others.
    assert (checkout / "prepared").read_text() == "python\n"
    with program.only_run(checkout) as lock:
        assert lock is not None


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(("arguments", "what"), [(("--all",), "newest"), (("--affected", "--must"), "labs")])
def test_a_run_prepares_what_takes_long_at_the_same_time(
    checkout: pathlib.Path, arguments: tuple[str, ...], what: str, broken: bool
) -> None:
    (checkout / "slow").touch()  # what the other preparation waits for
    if broken:
        (checkout / "broken").touch()
    status, said = bin_test(checkout, *arguments)
    mode = arguments[0].lstrip("-")
    assert (status, said.splitlines()[-1].startswith(f"python -m proof {mode}")) == (0, True)
    assert (checkout / "newest").read_text() == f"{what}\n"


@pytest.mark.parametrize("arguments", [(), ("--affected",), ("--all", "--dry-run"), ("--", "tests/unit/x")])
def test_no_other_run_prepares_anything_beside_python(checkout: pathlib.Path, arguments: tuple[str, ...]) -> None:
    assert bin_test(checkout, *arguments)[0] == 0
    assert not (checkout / "newest").exists()


def test_beside_another_run_nothing_is_installed(checkout: pathlib.Path) -> None:
    with program.only_run(checkout):
        assert bin_test(checkout, "--affected") == (2, f"bin/test: {program.BUSY}\n")
    assert not (checkout / "prepared").exists()


@pytest.mark.parametrize("arguments", [("--", "tests/unit/x"), ("--dry-run",)])
def test_beside_a_run_a_single_test_can_run_and_a_plan_be_shown(
    checkout: pathlib.Path, arguments: tuple[str, ...]
) -> None:
    with program.only_run(checkout):
        status, said = bin_test(checkout, *arguments)
    assert status == 0
    assert said.startswith("python -m ")


@pytest.mark.slow
def test_a_single_test_waits_until_a_run_has_installed_what_it_needs(checkout: pathlib.Path) -> None:
    (checkout / "slow").touch()
    with start(checkout) as run:
        deadline = time.monotonic() + 120
        while not (checkout / "prepared").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with start(checkout, "--", "x") as single:
            with pytest.raises(subprocess.TimeoutExpired):
                single.wait(timeout=2)
            assert (checkout / "prepared").read_text() == "python\n"
            os.unlink(checkout / "slow")
            assert single.wait(timeout=120) == 0
        assert run.wait(timeout=120) == 0
    assert (checkout / "prepared").read_text() == "python\npython\nblob\n"
