# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are told which part, whatever a play, its strategy and the command line make of the hosts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from lab.list_server import ListServer, dataset, in_process
from test_dropout import COMPARE, FOLLOW, OWN, READ, START, STAY, Play

HOSTS = ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
SAS = "sv=2021-12-02&sp=rl&se=2099-01-01T00:00:00Z&sig=c2lnbmF0dXJl"


class OneAfterTheOther(Play):
    """The role in a loop whose item is another one on every host: Ansible runs it for each of them by itself."""

    ENDS_WITH = 0
    OPTIONS: t.ClassVar[dict[str, t.Any]] = {"max_rounds": 1}

    def around(self, role: dict[str, t.Any]) -> dict[str, t.Any]:
        include = {
            "ansible.builtin.include_role": role,
            "loop": ["/data/{{ inventory_hostname }}"],
            "vars": {"dataset_staging_destination": "{{ item }}"},
            "tags": ["always"],
        }
        return {"tasks": [include]}


class InBatches(Play):
    """Two hosts at a time."""

    ENDS_WITH = 0
    OPTIONS: t.ClassVar[dict[str, t.Any]] = {"max_rounds": 1}

    def around(self, role: dict[str, t.Any]) -> dict[str, t.Any]:
        return {"serial": 2}


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_who_comes_alone_reads_all_of_its_files(tmp_path: pathlib.Path, scope: str) -> None:
    """It read a quarter and called the rest right; with shares of their own the play broke off after the first worker had begun."""
    play = OneAfterTheOther(tmp_path, scope)
    parts = [(call["host"], call["destination"], call["rank"], call["world_size"]) for call in play.of(READ)]
    assert parts == [(host, f"/data/{host}", 0, 1) for host in STAY]
    if scope == "local":
        shares = [(call["rank"], call["world_size"], call["at_once"]) for call in play.of(OWN)]
        assert shares == [(rank, len(STAY), len(STAY)) for rank in range(len(STAY))]
        assert [call["hosts"] for call in play.of(FOLLOW)] == [[host] for host in STAY]


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_a_batch_of_hosts_waits_for_nobody_else_and_reads_everything(tmp_path: pathlib.Path, scope: str) -> None:
    play = InBatches(tmp_path, scope)
    batches = [STAY[:2], STAY[2:]]
    assert [call["hosts"] for call in play.of(FOLLOW)] == batches
    assert {call["at_once"] for call in play.of(OWN)} == ({2} if scope == "local" else set())
    assert {call["host"] for call in play.of(START)} == {*STAY}
    read = [(call["host"], call["rank"], call["world_size"]) for call in play.of(READ)]
    parts = [(0, 2), (1, 2)] if scope == "shared" else [(0, 1), (0, 1)]
    assert read == [(host, *part) for batch in batches for host, part in zip(batch, parts)]


def test_the_phase_that_verifies_looks_with_check_too(tmp_path: pathlib.Path) -> None:
    """It changes nothing anyway, and said `ok` without a look."""
    play = Play(tmp_path, "shared", tags="dataset_staging_verify", check=True)
    parts = [(call["host"], call["rank"], call["world_size"], call["content"]) for call in play.of(COMPARE)]
    assert parts == [(host, rank, len(STAY), True) for rank, host in enumerate(STAY)]


def run_play(root: pathlib.Path, play: dict[str, t.Any], *arguments: str) -> tuple[int, str]:
    """A play for four nodes that are this machine."""
    (root / "hosts").write_text("[nodes]\n" + "\n".join(HOSTS))
    (root / "play.yml").write_text(
        json.dumps([{"hosts": "nodes", "connection": "local", "gather_facts": False, **play}])
    )
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "-i", root / "hosts", root / "play.yml", *arguments],
        env={**os.environ, "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    return done.returncode, done.stdout + done.stderr


def role_for(root: pathlib.Path, server: ListServer, *then: dict[str, t.Any]) -> dict[str, t.Any]:
    """The phase that plans, each node with a share of its own; the first task behind it sees what it found."""
    variables = {
        "dataset_staging_sources": [{"url": server.url, "sas": SAS}],
        "dataset_staging_destination": f"{root}/{{{{ inventory_hostname }}}}",
        "dataset_staging_scope": "local",
    }
    role = {"name": "hpcai.gpu_cluster.dataset_staging", "tasks_from": "configure", "rolespec_validate": False}
    return {"vars": variables, "tasks": [{"ansible.builtin.import_role": role}, *then]}


def test_a_share_is_the_same_whatever_part_of_the_nodes_a_run_is_for(tmp_path: pathlib.Path) -> None:
    """With two of four nodes in the limit each took half of the files, and with one of them all."""
    told = {
        "ansible.builtin.copy": {
            "content": "{{ [__dataset_staging_plan.hosts.index(inventory_hostname), __dataset_staging_own.total_files] }}",
            "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.json",
        },
        "check_mode": False,
    }
    with in_process(dataset(62)) as server:
        play = {**role_for(tmp_path, server, told), "serial": 1}
        code, output = run_play(tmp_path, play, "--check", "--limit", "gpu-4,gpu-2")
    assert code == 0, output
    shares = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("gpu-*.json")}
    assert {host: rank for host, (rank, _files) in shares.items()} == {"gpu-2": 1, "gpu-4": 3}
    assert {files for _rank, files in shares.values()} <= {15, 16}


@pytest.mark.parametrize(("strategy", "who"), [("free", "this task"), ("host_pinned", "the role dataset_staging")])
def test_a_strategy_without_step_is_refused_before_anything_is_listed(
    tmp_path: pathlib.Path, strategy: str, who: str
) -> None:
    """It failed when the workers had begun, one on each host and each with all of the dataset.

    The role alone refuses where it plans, and playbooks before any role begins.
    """
    validate = {"hpcai.gpu_cluster.role_arguments": {"roles": ["dataset_staging"], "entry_point": "configure"}}
    with in_process(dataset(4)) as server:
        play = {**role_for(tmp_path, server), "strategy": strategy, "pre_tasks": [validate] if "role" in who else []}
        code, output = run_play(tmp_path, play)
        assert server.stats["LIST"] == 0
    said = " ".join(output.split())
    assert code == 2
    assert f"With `strategy: {strategy}` every host goes through the play at its own pace, but {who} has" in said
    assert "Take `strategy: linear`" in said
    assert not [*tmp_path.glob("gpu-*")]


#: What Ansible gives for a pattern without a limit, and what a play with one is told. In a process of its own: plugins are found by
#: a loader that stays.
ORDERS = """
import json, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._play import whole_play

loader, found = DataLoader(), []
for hosts in json.loads(sys.argv[2]):
    inventory = InventoryManager(loader, sources=[sys.argv[1]])
    wanted = [host.name for host in inventory.get_hosts(hosts)]
    manager = VariableManager(loader, inventory)
    play = Play.load({"name": "x", "hosts": hosts, "tasks": [{"ansible.builtin.meta": "noop"}]}, manager, loader)
    inventory.subset("n4,z,localhost")
    task = play.tasks[0].block[0]
    variables = {**manager.get_vars(play=play, task=task), "hostvars": HostVars(inventory, manager, loader)}
    found.append([hosts, wanted, whole_play(task, variables)])
print(json.dumps(found))
"""
PATTERNS = ["all", "b:a", "c:!a", "c:&b", "a[0:2]", "~n[1-5]", "n*", "n3,lone", ["d", "a"], "c[-1]", "localhost"]


def test_the_whole_play_has_the_order_that_ansible_gives_it(tmp_path: pathlib.Path) -> None:
    """Ranks of shares of their own follow it: in another order every node would copy what another one has."""
    (tmp_path / "hosts").write_text("[b]\nn[3:9]\n[a]\nn[1:4]\nlone\n[c:children]\na\nb\n[d]\nz\n")
    command = [sys.executable, "-c", ORDERS, tmp_path / "hosts", json.dumps(PATTERNS)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout)
    assert [pattern for pattern, wanted, told in found if told != wanted or not told] == []
    assert len(found) == len(PATTERNS)
