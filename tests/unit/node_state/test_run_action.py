# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action runs another of Ansible's: in a play, with an action that does nothing else."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

# Its own argument, and the results of one action that succeeds and one that fails.
ACTION = """
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_action import run_action


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        done = run_action(self, "ansible.builtin.set_fact", {"answer": 42}, task_vars)
        failed = run_action(self, "ansible.builtin.fail", {"msg": "There is no disk."}, task_vars)
        return {"own": self._task.args, "done": done, "failure": failed}
"""
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ask:
        question: what
      register: asked
    - copy:
        content: "{{ asked }}"
        dest: "{{ playbook_dir }}/asked.json"
"""


@pytest.mark.slow
@pytest.mark.newest
def test_the_other_action_gets_its_own_arguments_and_its_failure_is_returned(tmp_path: pathlib.Path) -> None:
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins" / "ask.py").write_text(ACTION)
    (tmp_path / "play.yml").write_text(PLAY)
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    subprocess.run(
        [program, "-i", "localhost,", "-c", "local", tmp_path / "play.yml"],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=300,
    )
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert asked["done"]["ansible_facts"] == {"answer": 42}
    assert (asked["failure"]["failed"], asked["failure"]["msg"]) == (True, "There is no disk.")
    assert asked["own"] == {"question": "what"}
