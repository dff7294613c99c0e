# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the playbook nvme_raid_consent writes, for real: this machine's disks are only looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


#: Whoever tries to become root cannot, and on the controller nobody has to.
INVENTORY = """
all:
  hosts:
    {node}:
      ansible_become: false
    localhost:
  vars:
    ansible_become: true
    ansible_become_exe: /bin/false
"""


@pytest.mark.slow
@pytest.mark.newest
def test_a_relative_folder_lies_where_the_command_was_given_and_the_file_is_named(tmp_path: Path) -> None:
    """Beside the playbook, which is installed, it would be read by every later run of whatever inventory."""
    node = "a-node-of-this-test"
    program = Path(sys.executable).parent / "ansible-playbook"
    given = {"target": node, "ansible_connection": "local", "nvme_raid_consent_folder": "host_vars"}
    extra = [part for name, value in given.items() for part in ("-e", f"{name}={value}")]
    extra += ["-e", f"ansible_python_interpreter={sys.executable}"]
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(INVENTORY.format(node=node), encoding="utf-8")
    done = subprocess.run(
        [program, "-i", str(inventory), *extra, "hpcai.gpu_cluster.nvme_raid_consent"],
        cwd=tmp_path,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "PWD": "/",
            "ANSIBLE_BECOME_ALLOW_SAME_USER": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = tmp_path.resolve() / "host_vars" / node / "nvme_raid_consent.yml"
    assert "nvme_raid_format_devices" in written.read_text(encoding="utf-8")
    assert str(written) in done.stdout
