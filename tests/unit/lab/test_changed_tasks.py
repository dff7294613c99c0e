# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ansible-playbook prints is read from a real run of it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from lab.changed_tasks import changed_tasks

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.newest
def test_tasks_that_changed_are_found_with_their_hosts(tmp_path: pathlib.Path) -> None:
    file = {
        "name": "configure | Write a [small] file",
        "ansible.builtin.copy": {"content": "x\n", "dest": f"{tmp_path}/x"},
    }
    tasks = [
        {"name": "main | Look", "ansible.builtin.command": {"argv": ["true"]}, "changed_when": False},
        {**file, "when": "inventory_hostname != 'two'", "notify": "Tell"},
        {**file, "name": "Delegate", "delegate_to": "two", "changed_when": True, "run_once": True},
        {"name": "Loop", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": [1, 2], "changed_when": "item == 2"},
    ]
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "tasks": tasks,
        "handlers": [{"name": "Tell", "ansible.builtin.debug": {"msg": "x"}, "changed_when": True}],
    }
    playbook = tmp_path / "play.yml"
    playbook.write_text(json.dumps([play]))
    done = subprocess.run(
        [pathlib.Path(sys.executable).parent / "ansible-playbook", "-i", "one,two", playbook, "--check", "--diff"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert changed_tasks(done.stdout) == {
        "Write a [small] file": {"one"},
        "Delegate": {"one"},
        "Loop": {"one", "two"},
        "Tell": {"one"},
    }
    assert "+x" in done.stdout, "with differences between them"


def test_tasks_of_roles_are_named_with_their_role() -> None:
    output = """
TASK [hpcai.gpu_cluster.glusterfs : volume | Start the volume and mount it] ****
changed: [gpu-2]
changed: [gpu-1 -> gpu-2(10.0.0.1)]
ok: [gpu-3]

TASK [hpcai.gpu_cluster.glusterfs : Verify] ************************************
ok: [gpu-1]
"""
    assert changed_tasks(output) == {"glusterfs: Start the volume and mount it": {"gpu-1", "gpu-2"}}
