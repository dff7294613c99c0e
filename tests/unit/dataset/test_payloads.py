# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier versions left on nodes with a SAS in it, and what of it goes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.payloads import (
    remote_directories,
    sweep_payloads,
)

WITH_SAS = '#!/usr/bin/python3\nparams = \'{"sas": "sv=2023-11-03&sig=U0VDUkVUc2VjcmV0%3D"}\'\n'
WITHOUT = '#!/usr/bin/python3\nparams = \'{"sas": ""}\'\n'
OURS = "AnsiballZ_dataset_stage.py"


@pytest.fixture
def left(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory of Ansible's with one module in it."""
    directory = tmp_path / "ansible-tmp-1-2-3"
    directory.mkdir()
    (directory / OURS).write_text(WITH_SAS)
    (directory / "async_wrapper.py").write_text("")
    return directory


def test_a_module_with_a_sas_goes_and_so_does_its_directory(tmp_path: pathlib.Path, left: pathlib.Path) -> None:
    (tmp_path / "mine").write_text(WITH_SAS)
    assert sweep_payloads([str(tmp_path), "/nowhere"]) == [str(left)]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "text"),
    [(OURS, WITHOUT), ("AnsiballZ_copy.py", WITH_SAS), ("dataset_stage.py", WITH_SAS)],
    ids=["no SAS", "another module", "no module"],
)
def test_what_is_not_ours_stays(tmp_path: pathlib.Path, name: str, text: str) -> None:
    path = tmp_path / "ansible-tmp-1" / name
    path.parent.mkdir()
    path.write_text(text)
    assert sweep_payloads([str(tmp_path)]) == []
    assert path.exists()


def test_a_module_that_runs_stays(tmp_path: pathlib.Path, left: pathlib.Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", left / OURS], stdin=subprocess.PIPE) as process:
        while not pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes():  # for a moment a new program has none
            time.sleep(0.01)
        assert sweep_payloads([str(tmp_path)]) == []
        process.communicate(b"\n")
    assert sweep_payloads([str(tmp_path)]) == [str(left)]


def test_no_link_and_no_pipe_is_followed(tmp_path: pathlib.Path, left: pathlib.Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    left.rename(others / "dir")
    (tmp_path / "ansible-tmp-link").symlink_to(others / "dir")
    (tmp_path / "ansible-tmp-file").mkdir()
    (tmp_path / "ansible-tmp-file" / OURS).symlink_to(others / "dir" / OURS)
    (tmp_path / "ansible-tmp-pipe").mkdir()
    os.mkfifo(tmp_path / "ansible-tmp-pipe" / OURS)
    assert sweep_payloads([str(tmp_path)]) == []
    assert (others / "dir" / OURS).exists()


def test_the_directories_of_whoever_logged_in_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/bee")
    monkeypatch.setenv("SUDO_USER", "root")
    root = os.path.expanduser("~root")
    found = remote_directories("~/.ansible/tmp")
    assert found == ["/home/bee/.ansible/tmp", f"{root}/.ansible/tmp", "/var/tmp", "/tmp"]
    monkeypatch.delenv("SUDO_USER")
    assert remote_directories("/scratch/tmp") == ["/scratch/tmp", "/var/tmp", "/tmp"]
