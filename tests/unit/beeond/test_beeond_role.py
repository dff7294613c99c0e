# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's tasks as Ansible runs them: directories of users, once for all nodes, and an installation that is refused."""

from __future__ import annotations

import getpass
import grp
import json
import os
import pathlib
import stat
import subprocess
import sys
import typing as t

import pytest

pytestmark = pytest.mark.oldest
ROOT = pathlib.Path(__file__).parents[3]


def run(place: pathlib.Path, tasks: str = "directories", *, fails: bool = False, **variables: t.Any) -> tuple[int, str]:
    """The role's tasks on two nodes, which are this machine; returns how often they were run or skipped, and what was said."""
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {**variables, "ansible_python_interpreter": sys.executable},
        "tasks": [
            {
                "ansible.builtin.include_role": {
                    "name": "hpcai.gpu_cluster.beeond",
                    "tasks_from": tasks,
                    "rolespec_validate": False,
                }
            }
        ],
    }
    (place / "play.json").write_text(json.dumps([play]))
    done = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / "ansible-playbook",
            "-c",
            "local",
            "-i",
            "one,two,",
            place / "play.json",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections")},
        cwd=place,
    )
    assert bool(done.returncode) is fails, done.stdout + done.stderr
    return sum(done.stdout.count(f"{word}: [") for word in ("ok", "changed", "skipping")), done.stdout


def test_they_are_made_once_with_owner_and_mode_and_keep_what_is_in_them(tmp_path: pathlib.Path) -> None:
    mine: dict[str, t.Any] = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getegid()).gr_name}
    wanted = [
        {"path": f"{tmp_path}/scratch/alice", "mode": "0700", **mine},
        {"path": f"{tmp_path}/scratch/project", "mode": "02770", **mine},
    ]
    assert "changed: [one" in run(tmp_path, beeond_directories=wanted)[1]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "scratch").iterdir()}
    assert modes == {"alice": 0o700, "project": 0o2770}
    (tmp_path / "scratch/alice/file").write_text("kept")
    results, said = run(tmp_path, beeond_directories=wanted)
    assert (results, "changed: [" in said) == (1, False)
    assert (tmp_path / "scratch/alice/file").read_text() == "kept"


def test_without_any_nothing_runs(tmp_path: pathlib.Path) -> None:
    assert "skipping: [one" in run(tmp_path, beeond_directories=[])[1]


def test_what_is_refused_names_the_variables_of_the_role(tmp_path: pathlib.Path) -> None:
    _results, said = run(tmp_path, "install", fails=True, beeond_pin="7.4.7")
    assert "`beeond_pin` asks for BeeGFS 7.4.7, and `beeond_version` for 8" in said
