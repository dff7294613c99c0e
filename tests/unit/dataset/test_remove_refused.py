# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's removal without consent, with the real module on two nodes that are this machine."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import Receipt, ReceiptLog
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths

NODES = ("gpu-1", "gpu-2")
LOG = "20260101T000000-abcdef"


def stage(destination: pathlib.Path) -> None:
    destination.mkdir(parents=True)
    (destination / "a").write_text("a")
    ReceiptLog(StatePaths(str(destination)).receipts, "all").append([Receipt("a", "e", "", 1, 1, 0, 0)])


def remove(root: pathlib.Path, scope: str, destination: pathlib.Path | str) -> tuple[int, str]:
    """The phase ``remove``, and what Ansible said."""
    options = {
        "azcopy_path": f"{root}/{{{{ inventory_hostname }}}}/opt/10/azcopy",
        "destination": str(destination),
        "log_path": f"{root}/{{{{ inventory_hostname }}}}/log",
        "scope": scope,
        "sources": [],
    }
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {f"dataset_staging_{name}": value for name, value in options.items()},
        "tasks": [
            {"ansible.builtin.import_role": {"name": "hpcai.gpu_cluster.dataset_staging", "tasks_from": "remove"}}
        ],
    }
    (root / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [pathlib.Path(sys.executable).parent / "ansible-playbook", "-i", ",".join(NODES), root / "play.yml"],
        env={**os.environ, "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def everything(root: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for node in NODES for path in (root / node).rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["shared", "local"])
def test_a_refused_removal_leaves_every_node_as_it_is(tmp_path: pathlib.Path, scope: str) -> None:
    """The node that had nothing staged, or keeps no data itself, lost its logs while the other one refused."""
    for node in NODES:
        (tmp_path / node / "log" / LOG).mkdir(parents=True)
    last = tmp_path / NODES[1] / "data"
    stage(last)
    where = last if scope == "shared" else f"{tmp_path}/{{{{ inventory_hostname }}}}/data"
    before = everything(tmp_path)
    code, output = remove(tmp_path, scope, where)
    assert code != 0
    assert "1 staged files at" in output, output
    assert "dataset_staging_allow_data_loss: true" in output
    assert everything(tmp_path) == before
    if scope == "local":  # then nothing is left that needs consent
        (last / "a").unlink()
        code, output = remove(tmp_path, scope, where)
        assert code == 0, output
        assert not [path for path in everything(tmp_path) if LOG in path]
