# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes of the labs keep of modules that they compiled: the same code, or none."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

COMPILED = pathlib.Path(__file__).resolve().parents[2] / "lab/compiled"
RUN = "import sys; sys.path.insert(0, sys.argv[1]); import lab_compiled, carried; print(carried.answer())"
ANSWER = "def answer():\n    return {answer}\n"


def run(tmp_path: pathlib.Path, answer: str, name: str = "one.zip") -> subprocess.CompletedProcess[str]:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("carried.py", ANSWER.format(answer=answer))
    env = {**os.environ, "PYTHONPATH": str(COMPILED), "LAB_COMPILED": str(tmp_path / "kept")}
    argv = [sys.executable, "-c", RUN, str(tmp_path / name)]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def kept(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    return sorted((tmp_path / "kept").iterdir())


def test_a_file_is_compiled_once_and_again_when_it_has_changed(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, "1").stdout == "1\n"
    (first,) = kept(tmp_path)
    before = first.stat()
    assert run(tmp_path, "1", "another.zip").stdout == "1\n"
    assert first.stat() == before
    assert run(tmp_path, "2").stdout == "2\n"
    assert len(kept(tmp_path)) == 2


def test_an_error_names_the_file_that_ran_and_not_the_one_that_was_compiled(tmp_path: pathlib.Path) -> None:
    for name in ("one.zip", "another.zip"):
        assert f"{name}/carried.py" in run(tmp_path, "1 / 0", name).stderr
    assert len(kept(tmp_path)) == 1


@pytest.mark.parametrize("spoil", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-1] + b"\xff"])
def test_what_was_not_kept_whole_is_compiled_again(tmp_path: pathlib.Path, spoil) -> None:
    run(tmp_path, "1")
    (first,) = kept(tmp_path)
    whole = first.read_bytes()
    first.write_bytes(spoil(whole))
    assert run(tmp_path, "1").stdout == "1\n"
    assert first.read_bytes() == whole


def test_a_place_that_cannot_be_written_costs_nothing_but_time(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kept").write_text("no directory")
    assert run(tmp_path, "1").stdout == "1\n"
