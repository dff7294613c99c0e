# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-e target=`` with a name that the inventory does not have is refused by every playbook, and no other target is."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcai.gpu_cluster.plugins.filter.known_target import known_target

ROOT = pathlib.Path(__file__).parents[3]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
GROUPS = {"all": ["w-1", "w-2", "w-3"], "gpu_nodes": ["w-1", "w-2"], "empty": [], "ungrouped": ["w-3"]}


@pytest.mark.parametrize(
    "pattern",
    ["gpu_nodes", "w-3", "all", "gpu_nodes:!w-1", "w-*", "~w-[12]", "gpu_nodes[0]", "w-1,w-2", ["w-1", "w-2"]],
)
def test_what_matches_a_host_stays(pattern: str | list[str]) -> None:
    assert known_target(pattern, GROUPS) == pattern


@pytest.mark.parametrize("pattern", ["gpu_node", "empty", "w-1:&w-2", "x-*", "", [], ["w-9"]])
def test_what_matches_none_is_refused_with_what_there_is(pattern: str | list[str]) -> None:
    with pytest.raises(AnsibleFilterError, match=r"no host of the inventory matches it.*groups all, gpu_nodes\."):
        known_target(pattern, GROUPS)


def test_an_inventory_without_hosts_is_left_to_ansible() -> None:
    """So is a check of the syntax, which has none."""
    assert known_target("gpu_nodes", {"all": [], "ungrouped": []}) == "gpu_nodes"


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_play_asks(path: pathlib.Path) -> None:
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        if "hosts" in play:
            assert play["hosts"].startswith("{{ target | hpcai.gpu_cluster.known_target(groups) | default('")


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-e", "target=gpu_node", "--limit", "w-1"], "target is 'gpu_node', and no host of the inventory matches it."),
        (["-e", "target=gpu_nodes", "--limit", "w-1"], "hosts (1):"),
        ([], "hosts (2):"),
    ],
)
def test_a_playbook_is_asked_for_its_hosts(tmp_path: pathlib.Path, options: list[str], says: str) -> None:
    """Ansible templates ``hosts`` like this only in a real run of it."""
    (tmp_path / "hosts").write_text("[gpu_nodes]\nw-1\nw-2\n")
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    ran = subprocess.run(
        [program, "-i", tmp_path / "hosts", ROOT / "playbooks/profile.yml", "--list-hosts", *options],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert says in " ".join((ran.stdout + ran.stderr).split())
    assert (ran.returncode == 0) == says.startswith("hosts")
