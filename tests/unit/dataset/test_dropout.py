# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that drops out in the middle of a task changes nobody else's share.

The role's own tasks run in Ansible's own play, with a host that becomes unreachable at each of them and comes before those that
stay. Nothing is copied: each action notes what it was told and answers as a module would. Real copies of so many hosts would
take minutes and could not tell more about who is told which rank.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

ROOT = pathlib.Path(__file__).parents[3]
#: Notes its arguments, drops out where the host is to, answers what ANSWER makes.
ACTION = """
import json, os
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

def answer(args, host):
    {answer}

class ActionModule(ActionBase):
    BYPASS_HOST_LOOP = {once}
    _supports_check_mode = _supports_async = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        host, name = task_vars["inventory_hostname"], self._task.name.rpartition("| ")[2]
        with open(os.environ["CALLS"], "a") as stream:
            stream.write(json.dumps({{"task": name, "host": host, **self._task.args}}, default=str) + "\\n")
        if task_vars.get("drops_at") == name:
            raise AnsibleConnectionFailure("no route to host")
        return {{"changed": False, **answer(self._task.args, host)}}
"""
PLAN = """return {"hosts": args.get("hosts") or [args["host"]], "run": f"run-{host}", "manifest": "packed", "manifest_digest": "d",
            "missing_files": MISSING, "missing_bytes": MISSING, "killed": [],
            "destination": args["destination"], "imbalance": 1.0, "cap_mbps": 0, "bandwidth": ["Nothing limits it."]}"""
ANSWERS = {
    "dataset_plan": PLAN,
    "dataset_stage": 'return {"ansible_job_id": "1", "started": True, "finished": False}',
    "dataset_watch": 'return {"complete": True}',
    "dataset_collect": 'return {"finished": True}',
    # Something is left over for a second round.
    "dataset_verify": 'marks = {"marked_files": 0} if args.get("mark_damaged") else {}\n'
    '    return {"verdict": "ok", "total_files": 1, "again": bool(args.get("report")), **marks}',
}
LIST, OWN = "List the dataset once and plan what is missing", "Plan what this node's own share lacks"
START, FOLLOW, COLLECT = "Start copying on every node", "Follow the copy", "Collect what every node did"
READ, COMPARE = "Read every file", "Compare the destination with the manifest"
REST = "Read what nodes left that dropped out"
STAY = ["first", "x", "y", "z"]

Call = dict[str, t.Any]


class Play:
    """What the role told its actions: ``calls`` in their order."""

    #: Unreachable hosts, and nothing else.
    ENDS_WITH = 4
    #: Options of the role beside those that every play here sets.
    OPTIONS: t.ClassVar[dict[str, t.Any]] = {}

    def __init__(
        self, root: pathlib.Path, scope: str, *, missing: int = 3, tags: str = "", check: bool = False, **hosts: str
    ) -> None:
        self._root = root
        self._tags = tags or "dataset_staging_configure,dataset_staging_verify"
        self._check = check
        collection = root / "ansible_collections/hpcai/gpu_cluster"
        (collection / "plugins/action").mkdir(parents=True)
        for folder in (ROOT, ROOT / "plugins", ROOT / "plugins/action"):
            for path in folder.iterdir():
                there = collection / path.relative_to(ROOT)
                if not there.exists() and not path.name.startswith(".") and path.stem not in ANSWERS:
                    there.symlink_to(path)
        for name, answer in ANSWERS.items():
            once = name == "dataset_watch"
            (collection / f"plugins/action/{name}.py").write_text(
                ACTION.format(answer=answer.replace("MISSING", str(missing)), once=once)
            )
        inventory = {"all": {"hosts": {name: {"drops_at": task} for name, task in self._order(hosts).items()}}}
        (root / "hosts.json").write_text(json.dumps(inventory))
        options = {"destination": "/data", "sources": [], "scope": scope, "verify_content": True, "max_rounds": 2}
        variables = {f"dataset_staging_{name}": value for name, value in {**options, **self.OPTIONS}.items()}
        role = {"name": "hpcai.gpu_cluster.dataset_staging", "rolespec_validate": False}
        play = {
            "hosts": "all",
            "gather_facts": False,
            "vars": variables,
            "tasks": [{"ansible.builtin.import_role": role}],
        }
        (root / "play.yml").write_text(json.dumps([{**play, **self.around(role)}]))
        self.output = self._run()
        self.calls: list[Call] = [json.loads(line) for line in (root / "calls").read_text().splitlines()]

    def around(self, _role: dict[str, t.Any]) -> dict[str, t.Any]:
        """What else the play says, or in place of what it says here."""
        return {}

    @staticmethod
    def _order(dropping: dict[str, str]) -> dict[str, str]:
        """Those that drop out come before those whose index that could change, but not first: what runs once runs there."""
        return {"first": "", **dropping, **dict.fromkeys(STAY[1:], "")}

    def _run(self) -> str:
        settings = {"ANSIBLE_COLLECTIONS_PATH": self._root, "ANSIBLE_CONFIG": ROOT / "ansible.cfg", "ANSIBLE_FORKS": 1}
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [program, "-i", self._root / "hosts.json", self._root / "play.yml", "--tags", self._tags, *["--check"] * self._check],
            env={**os.environ, **{name: str(value) for name, value in settings.items()}, "CALLS": str(self._root / "calls")},
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == (0 if self._check else self.ENDS_WITH), done.stdout + done.stderr
        return done.stdout

    def of(self, task: str) -> list[Call]:
        return [call for call in self.calls if call["task"] == task]


def test_ranks_of_a_shared_copy_are_those_of_the_plan(tmp_path: pathlib.Path) -> None:
    play = Play(tmp_path, "shared", a=START, b=COLLECT, c=READ)
    first, second = (plan["hosts"] for plan in play.of(LIST))
    assert first == ["first", "a", "b", "c", "x", "y", "z"]
    assert second == ["first", "x", "y", "z"], "what is left is shared among those that are"
    started = play.of(START)
    for hosts, calls in ((first, started[: len(first)]), (second, started[len(first) :])):
        assert [(call["host"], call["rank"]) for call in calls] == [(host, rank) for rank, host in enumerate(hosts)]
    assert [call["hosts"] for call in play.of(FOLLOW)] == [first, second]


def test_a_part_to_read_is_not_looked_at_twice_or_by_nobody(tmp_path: pathlib.Path) -> None:
    play = Play(tmp_path, "shared", a=READ)
    parts = [(call["host"], call["rank"], call["world_size"]) for call in play.of(READ)]
    assert parts == [("first", 0, 5), ("a", 1, 5), ("x", 2, 5), ("y", 3, 5), ("z", 4, 5)]
    assert all(call["content"] and call["mark_damaged"] for call in play.of(READ))


def test_what_a_host_left_unread_is_read_by_the_one_that_says_ok(tmp_path: pathlib.Path) -> None:
    """Else `staging.json` and the play's last word were ok, with a fifth of the files unread."""
    play = Play(tmp_path, "shared", a=READ)
    reports = [call for call in play.of(COMPARE) if call.get("report")]
    assert [(call["host"], call["unread_ranks"], call["unread_world_size"]) for call in reports] == [
        ("first", [1], 5),
        ("first", [], 1),
    ]
    assert reports[0]["mark_damaged"], "the next round copies what is found"


def test_what_a_host_left_unread_is_read_where_it_only_verifies(tmp_path: pathlib.Path) -> None:
    play = Play(tmp_path, "shared", tags="dataset_staging_verify", a=COMPARE, b=COMPARE)
    rest = play.of(REST)
    assert [(call["host"], call["unread_ranks"], call["unread_world_size"]) for call in rest] == [("first", [1, 2], 6)]
    assert not any(call.get("mark_damaged") for call in play.calls)


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_every_file_is_read_once_by_whoever_is_there(tmp_path: pathlib.Path, scope: str) -> None:
    """Not by the first node before the plan, and not by all again in the phase that verifies."""
    play = Play(tmp_path, scope, a=START)
    assert [call["host"] for call in play.of(READ)] == STAY
    read_again = [call["task"] for call in play.calls if call["task"] != READ and call.get("content")]
    assert read_again == []
    tries = [call["tries_left"] for call in play.of(COMPARE) if call.get("report")]
    assert tries == ([1, 0] if scope == "shared" else [1] * len(STAY) + [0] * len(STAY))


def test_a_dataset_that_lacks_nothing_is_read_all_the_same(tmp_path: pathlib.Path) -> None:
    play = Play(tmp_path, "shared", missing=0, a=READ)
    assert [call["host"] for call in play.of(READ)] == ["first", "a", *STAY[1:]]
    assert play.of(START) == []
    assert [call["tries_left"] for call in play.of(COMPARE)][:1] == [1]


def test_the_phase_that_verifies_reads_every_file_where_it_comes_alone(tmp_path: pathlib.Path) -> None:
    play = Play(tmp_path, "shared", tags="dataset_staging_verify", a=COMPARE)
    parts = [(call["host"], call["rank"], call["world_size"], call["content"]) for call in play.of(COMPARE)]
    assert parts == [(host, rank, 5, True) for rank, host in enumerate(["first", "a", "x", "y", "z"])]


class TwoDatasets(Play):
    """One is copied, then another one is verified."""

    def _run(self) -> str:
        path = self._root / "play.yml"
        (play,) = json.loads(path.read_text())
        role = play["tasks"][0]["ansible.builtin.import_role"]
        play["tasks"] = [
            {"ansible.builtin.import_role": {**role, "tasks_from": "configure"}},
            {
                "ansible.builtin.import_role": {**role, "tasks_from": "verify"},
                "vars": {"dataset_staging_destination": "/other"},
            },
        ]
        path.write_text(json.dumps([play]))
        return super()._run()


def test_what_was_read_of_one_dataset_was_not_read_of_another(tmp_path: pathlib.Path) -> None:
    play = TwoDatasets(tmp_path, "shared", a=START)
    of_other = [(call["host"], call["content"]) for call in play.of(COMPARE) if call["destination"] == "/other"]
    assert of_other == [(host, True) for host in STAY]


def test_shares_of_nodes_stay_what_they_are_over_all_rounds(tmp_path: pathlib.Path) -> None:
    play = Play(tmp_path, "local", a=OWN, b=START, c=COLLECT, d=COMPARE)
    hosts = ["first", "a", "b", "c", "d", "x", "y", "z"]
    own = play.of(OWN)
    assert len(play.of(LIST)) == 2
    assert [call["host"] for call in own] == [*hosts, *STAY], "everybody, and in the second round those that are left"
    assert all((hosts[call["rank"]], call["world_size"]) == (call["host"], len(hosts)) for call in own)
    assert not any("hosts" in call for call in own), "a list of all for everybody is tens of megabytes at 1,000 nodes"
    for call in play.of(FOLLOW):
        assert call["runs"] == [f"run-{host}" for host in call["hosts"]]


@pytest.mark.blob
def test_a_plan_returns_the_hosts_that_it_was_made_for(staging) -> None:
    staging.fill(2)
    assert staging.plan()["hosts"] == ["gpu-1", "gpu-2", "gpu-3"]
    assert staging.plan(rank=1)["hosts"] == ["gpu-2"]


def test_check_mode_asks_every_node_what_its_own_share_lacks(tmp_path: pathlib.Path) -> None:
    """Who only lists knows nothing of the nodes' disks: a check said that nothing would change where everything was missing."""
    play = Play(tmp_path, "local", check=True)
    assert [(call["task"], call["host"]) for call in play.calls] == [(LIST, "first"), *((OWN, host) for host in STAY)]
    assert all(call["content"] for call in play.of(OWN)), "nobody reads after it what is damaged and would be copied"
