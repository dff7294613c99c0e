# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The marker ``ansible`` leaves out no test that would notice another version of Ansible."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
from import_closure import ROOT, closure, touches_ansible

UNIT = ROOT / "tests/unit"
# Python imports nothing of Ansible any more, whoever asks for it, and whenever.
NO_ANSIBLE = """
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ansible":
            raise ModuleNotFoundError(f"{name} must not be needed here", name=name)


sys.meta_path.insert(0, Refuse())
"""


@pytest.mark.slow
def test_every_test_without_the_marker_can_be_collected_where_there_is_no_ansible(tmp_path: pathlib.Path) -> None:
    (tmp_path / "no_ansible.py").write_text(NO_ANSIBLE)
    unmarked = [path for path in sorted(UNIT.rglob("test_*.py")) if not touches_ansible(path)]
    assert unmarked
    # Testinfra is a plugin of pytest that may look for Ansible by itself.
    argv = [sys.executable, "-m", "pytest", "-p", "no_ansible", "-p", "no:testinfra", "--collect-only", "-q", *unmarked]
    paths = [str(tmp_path), str(ROOT / ".venv/collections"), str(ROOT / "tests")]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(paths)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_ansible_is_found_behind_other_files_and_in_functions(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "unit"
    folder.mkdir()
    cases = {
        "plain": ("import json\n", False),
        "direct": ("from ansible.errors import AnsibleError\n", True),
        "late": ("def test_x():\n    import ansible.constants\n", True),
        "helper": ("from module_run import run_main\n", True),
        "module": ("from ansible_collections.hpcai.gpu_cluster.plugins.modules import azcopy_copy\n", True),
        "neighbor": ("import direct\n", True),
        "program": ('argv = ["ansible-playbook", "site.yml"]\n', True),
        "path": ('program = bin / "bin/ansible"\n', True),
        "word": ('text = "ansible is a word"\n', False),
        "collection": ("import ansible_collections\n", False),
    }
    for name, (text, _expected) in cases.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    found = {name: touches_ansible(folder / f"{name}.py") for name in cases}
    assert found == {name: expected for name, (_text, expected) in cases.items()}
    assert folder / "direct.py" in closure(folder / "neighbor.py")


def test_files_for_the_oldest_core_leave_some_runs_of_whole_modules_to_the_newest() -> None:
    """What a module takes, refuses and returns is made by Ansible."""
    for_oldest = [
        path for path in UNIT.rglob("test_*.py") if re.search(r"^pytestmark = .*\boldest\b", _text(path), re.M)
    ]
    with_modules = [path for path in for_oldest if "run_main" in _text(path) or "node.module(" in _text(path)]
    assert with_modules
    assert not [path for path in with_modules if "@pytest.mark.newest" not in _text(path)]


def _text(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")


def test_ansible_is_found_behind_a_folder_that_a_test_imports_from() -> None:
    assert touches_ansible(UNIT / "lab/test_staging_throttled.py")
