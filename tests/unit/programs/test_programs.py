# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of nodes, built and run for real."""

from __future__ import annotations

import ast
import io
import os
import shutil
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import PROGRAMS, build

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
COLLECTION = "ansible_collections/hpcai/gpu_cluster"
PREFIX = f"{COLLECTION}/plugins/module_utils/"
EVERY = pytest.mark.parametrize("name", sorted(PROGRAMS))


def contents(program: bytes) -> dict[str, str]:
    """The files of a program and their text."""
    with zipfile.ZipFile(io.BytesIO(program)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.fixture
def put(tmp_path: Path) -> t.Callable[[str], Path]:
    """Install a program in a directory of its own."""

    def install(name: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir()
        path.write_bytes(build(name, sys.executable))
        path.chmod(0o755)
        return path

    return install


@EVERY
@pytest.mark.parametrize("start", [[], [sys.executable], [sys.executable, "-I"]])
def test_a_program_runs_with_nothing_beside_it(
    put: t.Callable[[str], Path], tmp_path: Path, name: str, start: list[str]
) -> None:
    program = put(name)
    done = subprocess.run(
        [*start, str(program), "--help"], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {name} ")
    assert [path.name for path in tmp_path.rglob("*")] == ["bin", name]


def test_a_collection_that_the_node_has_does_not_come_between(put: t.Callable[[str], Path], tmp_path: Path) -> None:
    """Neither as a package nor, where Python is told to look at the environment, as a part of one."""
    program = put("gpu-clocks")
    other = tmp_path / "other" / PREFIX
    other.mkdir(parents=True)
    (other / "_errors.py").write_text("raise SystemExit('not mine')")
    for package in (None, "ansible_collections"):
        if package:
            (tmp_path / "other" / package / "__init__.py").write_text("raise SystemExit('not mine')")
        for start in ([], [sys.executable]):
            environment = {"PYTHONPATH": str(tmp_path / "other")}
            command = [*start, str(program), "--help"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")


@EVERY
@pytest.mark.parametrize("version", ["2, 7, 18", "3, 6, 8", "3, 8, 20"])
def test_a_python_that_is_too_old_is_refused_before_anything_is_imported(
    tmp_path: Path, name: str, version: str
) -> None:
    text = contents(build(name, "/usr/bin/python3"))["__main__.py"]
    # As old as it may be, Python must understand the file to refuse.
    ast.parse(text, feature_version=(3, 0))
    (tmp_path / "__main__.py").write_text(text)
    code = f"import sys; sys.version_info = ({version}); exec(open({str(tmp_path / '__main__.py')!r}).read())"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"{name} needs Python 3.9 or newer, but ")
    assert f" is Python {'.'.join(version.split(', ')[:2])}: install it again" in said


@EVERY
def test_the_oldest_python_that_is_not_refused_goes_on(tmp_path: Path, name: str) -> None:
    (tmp_path / "__main__.py").write_text(contents(build(name, "/usr/bin/python3"))["__main__.py"])
    code = f"import sys; sys.version_info = (3, 9, 0); exec(open({str(tmp_path / '__main__.py')!r}).read())"
    done = subprocess.run([sys.executable, "-ISc", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No module named 'ansible_collections'" in done.stderr


@EVERY
def test_the_bytes_depend_on_the_files_and_the_interpreter_only(tmp_path: Path, name: str) -> None:
    """Not on where the collection is installed, when, by which process, and what Python has left beside the files."""
    installed = tmp_path / COLLECTION
    for folder in ("module_utils", "plugin_utils"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PLUGINS / folder, installed / "plugins" / folder, ignore=ignored, copy_function=shutil.copyfile)
    code = f"""
import sys
from {COLLECTION.replace("/", ".")}.plugins.plugin_utils._programs import build
assert {str(tmp_path)!r} in sys.modules[build.__module__].__file__
sys.stdout.buffer.write(build({name!r}, "/usr/bin/python3"))
"""
    here = build(name, "/usr/bin/python3")
    for seed in "12":
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": seed, "TZ": f"UTC{seed}"}
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": ""}
        there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
        assert there == here
        # The second run finds what the first one has compiled.
        assert list(installed.rglob("__pycache__"))
    # As long as the other one, so that the zip's own offsets are the same.
    assert build(name, "/usr/bin/python4") == here.replace(b"#!/usr/bin/python3 ", b"#!/usr/bin/python4 ", 1)


@EVERY
def test_the_zip_holds_nothing_that_differs_between_controllers(name: str) -> None:
    program = build(name, "/opt/python/bin/python3")
    assert program.startswith(b"#!/opt/python/bin/python3 -IS\nPK")
    with zipfile.ZipFile(io.BytesIO(program)) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted({entry.filename for entry in entries})
    for entry in entries:
        assert (entry.date_time, entry.compress_type) == ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED)
        assert (entry.create_system, entry.external_attr, entry.extra) == (3, 0o100644 << 16, b"")


def reached(entry: str) -> set[str]:
    """The files below ``module_utils`` that running an entry's imports loads, by Python's own word."""
    module = (PREFIX + entry.partition(":")[0].replace(".", "/")).replace("/", ".")
    code = f"import sys, {module}\nfor one in list(sys.modules.values()): print(getattr(one, '__file__', None))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    marker = "/plugins/module_utils/"
    return {line.partition(marker)[2] for line in loaded.stdout.splitlines() if marker in line}


@EVERY
def test_a_program_carries_what_it_imports_and_no_more(name: str) -> None:
    carried = contents(build(name, "/usr/bin/python3"))
    assert reached(PROGRAMS[name].entry) == set(PROGRAMS[name].files())
    for path, text in PROGRAMS[name].files().items():
        assert carried.pop(PREFIX + path) == text.decode()
    assert carried.pop("__main__.py")
    assert {(path.rpartition("/")[2], text) for path, text in carried.items()} == {("__init__.py", "")}


def test_a_name_that_nobody_registered_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"no program 'gpu-clock'. Choose one of these: .*gpu-clocks") as raised:
        build("gpu-clock", "/usr/bin/python3")
    assert raised.value.kind == "bad_input"


@pytest.mark.parametrize("interpreter", ["", "python3", "/usr/bin/env python3", "/usr/bin/python3\n", "/a\0b"])
def test_an_interpreter_that_no_first_line_can_hold_is_refused(interpreter: str) -> None:
    with pytest.raises(ClusterError, match="absolute path without blanks") as raised:
        build("gpu-clocks", interpreter)
    assert raised.value.kind == "bad_input"
    assert "`interpreter`" in raised.value.remedy


def test_a_program_that_is_asked_for_again_is_not_built_again() -> None:
    assert build("gpu-clocks", "/usr/bin/python3") is build("gpu-clocks", "/usr/bin/python3")
