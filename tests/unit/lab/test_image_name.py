# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the image of the lab's nodes is made anew."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """The files that the name is made from."""
    for name in ("plugins/module_utils", "plugins/plugin_utils", "tests/lab/image"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "playbooks").mkdir()
    shutil.copy(ROOT / "playbooks/image.yml", tmp_path / "playbooks")
    link = tmp_path / ".venv/collections/ansible_collections/hpcai/gpu_cluster"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path)
    return tmp_path


def name(checkout: pathlib.Path) -> str:
    command = [str(checkout / "tests/lab/image/build"), "--name"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "LAB_BAKE": "1"}
    ).stdout


@pytest.mark.parametrize(
    ("path", "made_anew"),
    [
        ("plugins/module_utils/_host/command.py", True),  # nvme-raid has it, which lies in the image
        ("playbooks/image.yml", True),
        ("plugins/module_utils/_azcopy/argv.py", False),
    ],
)
def test_the_image_follows_what_lies_in_it(checkout: pathlib.Path, path: str, made_anew: bool) -> None:
    before = name(checkout)
    with (checkout / path).open("a") as file:
        file.write("# changed\n")
    assert (name(checkout) != before) is made_anew
