# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which unit tests ``--slow-of`` leaves out."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
TESTS = "import pytest\ndef test_quick(): pass\n@pytest.mark.slow\ndef test_slow(): pass\n"
TESTS += "@pytest.mark.blob\ndef test_blob(): pass\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "slow"),
    [
        ((), {"a", "ab"}),
        (("--slow-of", "tests/unit/a"), {"a"}),
        (("--slow-of", "tests/unit/a,tests/unit/ab"), {"a", "ab"}),
        (("--slow-of", "tests/unit/c"), set()),
    ],
)
def test_slow_tests_of_other_folders_are_left_out(
    tmp_path: pathlib.Path, options: tuple[str, ...], slow: set[str]
) -> None:
    for name in ("a", "ab"):
        (tmp_path / f"tests/unit/{name}").mkdir(parents=True)
        (tmp_path / f"tests/unit/{name}/test_{name}.py").write_text(TESTS)
    shutil.copy(ROOT / "tests/unit/conftest.py", tmp_path / "tests/unit/conftest.py")
    shutil.copy(ROOT / "tests/import_closure.py", tmp_path / "import_closure.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n  slow\n  blob\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", *options, "tests/unit"]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    quick = {f"tests/unit/{name}/test_{name}.py::test_quick" for name in ("a", "ab")}
    chosen = {f"tests/unit/{name}/test_{name}.py::test_{kind}" for name in slow for kind in ("slow", "blob")}
    assert {line for line in listed if "::" in line} == quick | chosen
