# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are told which part, whatever a play, its strategy and the command line make of the hosts."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml
from lab.list_server import ListServer, dataset, in_process
from role_plays import COMPARE, FOLLOW, LIST, OWN, READ, REST, ROLE, START, UNREACHABLE, Calls, Play, run_plays, stay

HOSTS = ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
SAS = "sv=2021-12-02&sp=rl&se=2099-01-01T00:00:00Z&sig=c2lnbmF0dXJl"

#: The newest ansible-core runs what depends on it most: there every node has a share of its own, and is asked for it.
both_scopes = pytest.mark.parametrize(
    "scope", ["shared", pytest.param("local", marks=pytest.mark.newest)], scope="module"
)


def one_after_the_other(scope: str) -> Play:
    """The role in a loop whose item is another one on every host: Ansible runs it for each of them by itself."""
    include = {
        "ansible.builtin.include_role": ROLE,
        "loop": ["/data/{{ inventory_hostname }}"],
        "vars": {"dataset_staging_destination": "{{ item }}"},
        "tags": ["always"],
    }
    return Play("loop", scope, stay("first", "x"), max_rounds=1, keywords={"tasks": [include]})


def in_batches(scope: str) -> Play:
    """Two hosts, and then the third."""
    return Play("serial", scope, stay("first", "x", "y"), max_rounds=1, keywords={"serial": 2})


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory, scope: str) -> dict[str, Calls]:
    """What each play was told, by its name."""
    return run_plays(tmp_path_factory.mktemp("plays"), one_after_the_other(scope), in_batches(scope))


@pytest.mark.slow
@both_scopes
def test_who_comes_alone_reads_all_of_its_files(calls: dict[str, Calls], scope: str) -> None:
    """It read a quarter and called the rest right; with shares of their own the play broke off after the first worker had begun."""
    told = calls["loop"]
    parts = [(call["host"], call["destination"], call["rank"], call["world_size"]) for call in told.of(READ)]
    assert parts == [(host, f"/data/{host}", 0, 1) for host in ("first", "x")]
    if scope == "local":
        shares = [(call["rank"], call["world_size"], call["at_once"]) for call in told.of(OWN)]
        assert shares == [(0, 2, 2), (1, 2, 2)]
        assert [call["hosts"] for call in told.of(FOLLOW)] == [["first"], ["x"]]


@pytest.mark.slow
@both_scopes
def test_a_batch_of_hosts_waits_for_nobody_else_and_reads_everything(calls: dict[str, Calls], scope: str) -> None:
    told = calls["serial"]
    assert [call["hosts"] for call in told.of(FOLLOW)] == [["first", "x"], ["y"]]
    assert [call["at_once"] for call in told.of(OWN)] == ([2, 2, 1] if scope == "local" else [])
    assert [call["host"] for call in told.of(START)] == ["first", "x", "y"]
    read = [(call["host"], call["rank"], call["world_size"]) for call in told.of(READ)]
    parts = [(0, 2), (1, 2), (0, 1)] if scope == "shared" else [(0, 1)] * 3
    assert read == [(host, *part) for host, part in zip(("first", "x", "y"), parts)]


@pytest.mark.slow
@pytest.mark.newest
def test_check_mode_asks_every_node_and_verifies(tmp_path: pathlib.Path) -> None:
    """One play runs all phases. The other is for the one that verifies, alone and with a host that drops out.

    Who only lists knows nothing of the nodes' disks: a check said that nothing would change where everything was missing. And the
    phase that verifies changes nothing anyway, but said `ok` without a look.
    """
    whole = Play("whole", "local", stay("first", "x"), keywords={"tags": ["whole"]})
    verify = Play("verify", "shared", stay("first", "x", a=COMPARE))
    tags = ["--tags", "whole,dataset_staging_verify", "--skip-tags", "dataset_staging_install"]
    calls = run_plays(tmp_path, whole, verify, arguments=["--check", *tags], ends_with=UNREACHABLE)
    told = calls["whole"]
    assert [(call["task"], call["host"]) for call in told] == [(LIST, "first"), (OWN, "first"), (OWN, "x")]
    assert all(call["content"] for call in told.of(OWN)), "nobody reads after it what is damaged and would be copied"
    *own, rest = calls["verify"]
    parts = [(call["task"], call["host"], call["rank"], call["world_size"], call["content"]) for call in own]
    assert parts == [(COMPARE, host, rank, 3, True) for rank, host in enumerate(["first", "a", "x"])]
    assert (rest["task"], rest["host"], rest["unread_ranks"]) == (REST, "first", [1])


def run_plays_for_nodes(root: pathlib.Path, plays: list[dict[str, t.Any]], *arguments: str) -> tuple[int, str]:
    """Plays for four nodes that are this machine."""
    (root / "hosts").write_text("[nodes]\n" + "\n".join(HOSTS))
    usual = {"hosts": "nodes", "connection": "local", "gather_facts": False}
    (root / "play.yml").write_text(json.dumps([{**usual, **play} for play in plays]))
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


@pytest.mark.slow
@pytest.mark.newest
def test_a_share_is_the_same_whatever_part_of_the_nodes_a_run_is_for(tmp_path: pathlib.Path) -> None:
    """With two of four nodes in the limit each took half of the files, and with one of them all."""
    rank, files = (
        "{{ __dataset_staging_plan.hosts.index(inventory_hostname) }}",
        "{{ __dataset_staging_own.total_files }}",
    )
    told = {"ansible.builtin.debug": {"msg": f"share={{{{ inventory_hostname }}}}:{rank}:{files};"}}
    with in_process(dataset(62)) as server:
        play = {**role_for(tmp_path, server, told), "serial": 1}
        code, output = run_plays_for_nodes(tmp_path, [play], "--check", "--limit", "gpu-4,gpu-2")
    assert code == 0, output
    shares = re.findall(r"share=([\w-]+):(\d+):(\d+);", output)
    assert [(host, rank) for host, rank, _files in shares] == [("gpu-2", "1"), ("gpu-4", "3")]
    assert {files for _host, _rank, files in shares} <= {"15", "16"}


def refused(root: pathlib.Path, server: ListServer, strategy: str, *validated: str) -> dict[str, t.Any]:
    """A play whose failure lets the next one begin. ``validated``: roles whose arguments are looked at before the role begins."""
    validate = [
        {"hpcai.gpu_cluster.role_arguments": {"roles": [role], "entry_point": "configure"}} for role in validated
    ]
    play = role_for(root, server)
    block = {"block": [*validate, *play["tasks"]], "rescue": [{"ansible.builtin.debug": {"msg": "It has failed."}}]}
    return {**play, "strategy": strategy, "tasks": [block]}


@pytest.mark.slow
@pytest.mark.newest
def test_a_strategy_without_step_is_refused_before_anything_is_listed(tmp_path: pathlib.Path) -> None:
    """It failed when the workers had begun, one on each host and each with all of the dataset.

    The role alone refuses where it plans, and playbooks before any role begins.
    """
    with in_process(dataset(4)) as server:
        free, pinned = refused(tmp_path, server, "free"), refused(tmp_path, server, "host_pinned", "dataset_staging")
        plays = [{**free, "hosts": "gpu-1,gpu-2"}, {**pinned, "hosts": "gpu-3,gpu-4"}]
        _code, output = run_plays_for_nodes(tmp_path, plays)
        assert server.stats["LIST"] == 0
    said = " ".join(output.split())
    assert said.count("It has failed.") == len(HOSTS)
    for strategy, who in (("free", "this task"), ("host_pinned", "the role dataset_staging")):
        assert f"With `strategy: {strategy}` every host goes through the play at its own pace, but {who} has" in said
    assert "Take `strategy: linear`" in said
    assert not [*tmp_path.glob("gpu-*")]


@pytest.mark.slow
def test_a_shared_destination_that_differs_is_refused_before_anything_is_listed(tmp_path: pathlib.Path) -> None:
    """The first node copied everything before the others failed. One that is made of what differs, and comes to the same, is fine."""
    apart = f"{tmp_path}/{{{{ inventory_hostname }}}}"
    same = f"{tmp_path}/{{{{ 'set' if mine else '' }}}}"
    one_by_one = {"ansible.builtin.include_role": {**ROLE, "tasks_from": "configure"}, "loop": [apart], "vars": {}}
    one_by_one["vars"] = {"dataset_staging_destination": "{{ item }}"}
    with in_process(dataset(4)) as server:
        usual = {"dataset_staging_sources": [{"url": server.url, "sas": SAS}], "dataset_staging_scope": "shared"}
        first, second, third = (
            {**role_for(tmp_path, server), "vars": {**usual, "dataset_staging_destination": where}, "hosts": hosts}
            for where, hosts in ((apart, "gpu-1,gpu-2"), (same, "gpu-3,gpu-4"), (apart, "gpu-3,gpu-4"))
        )
        third["tasks"] = [one_by_one]
        (tmp_path / "host_vars").mkdir()
        for number, host in enumerate(HOSTS, 1):
            (tmp_path / "host_vars" / f"{host}.yml").write_text(f"mine: {number}\n")
        code, output = run_plays_for_nodes(tmp_path, [first], "--check")
        assert (code, server.stats["LIST"]) == (2, 0), output
        said = " ".join(output.split())
        assert f"`dataset_staging_destination` is {tmp_path}/gpu-1 on gpu-1, but gpu-2 has {tmp_path}/gpu-2." in said
        assert "set `dataset_staging_scope: local`" in said
        # Names of hosts may mean something to a cluster only.
        options = {"destination": apart, "hosts": "r0,gpu-1", "sources": usual["dataset_staging_sources"]}
        fourth = {"tasks": [{"hpcai.gpu_cluster.dataset_plan": options, "run_once": True}], "hosts": "gpu-1"}
        code, output = run_plays_for_nodes(tmp_path, [second, third, fourth], "--check")
        assert (code, server.stats["LIST"]) == (0, 4), output


def test_what_looks_at_every_host_is_made_up_once(tmp_path: pathlib.Path) -> None:
    """The condition of a meta task was, for each host anew: a thousand times three seconds for a thousand hosts."""
    role = pathlib.Path(__file__).parents[3] / "roles/dataset_staging"
    costly = [name for name, text in yaml.safe_load((role / "vars/main.yml").read_text()).items() if "hostvars" in text]
    assert costly

    def each(tasks: list[dict[str, t.Any]]) -> t.Iterator[dict[str, t.Any]]:
        for task in tasks:
            yield from each(task["block"]) if "block" in task else [task]

    files = [*(role / "tasks").glob("*.yml")]
    asking = [
        task
        for path in files
        for task in each(yaml.safe_load(path.read_text()))
        if any(name in str(task) for name in costly)
    ]
    assert len(asking) >= 2
    assert [task["name"] for task in asking if not task.get("run_once")] == []


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


@pytest.mark.slow
@pytest.mark.newest
def test_the_whole_play_has_the_order_that_ansible_gives_it(tmp_path: pathlib.Path) -> None:
    """Ranks of shares of their own follow it: in another order every node would copy what another one has."""
    (tmp_path / "hosts").write_text("[b]\nn[3:9]\n[a]\nn[1:4]\nlone\n[c:children]\na\nb\n[d]\nz\n")
    command = [sys.executable, "-c", ORDERS, tmp_path / "hosts", json.dumps(PATTERNS)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout)
    assert [pattern for pattern, wanted, told in found if told != wanted or not told] == []
    assert len(found) == len(PATTERNS)
