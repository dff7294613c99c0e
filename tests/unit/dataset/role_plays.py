# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays of the role dataset_staging whose actions only note what they were told and answer as a module would.

The role's own tasks run in Ansible's own play. Nothing is copied: real copies of so many hosts would take minutes and could not tell
more about who is told which rank. Each play has hosts of its own, so that one process runs many and none knows what another did.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).parents[3]
#: Notes its arguments, drops out where the host is to, answers what ANSWERS makes.
ACTION = """
import json, os
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

def answer(args, host, missing):
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
        return {{"changed": False, **answer(self._task.args, host, task_vars["missing"])}}
"""
PLAN = """return {"hosts": args.get("hosts") or [args["host"]], "run": f"run-{host}", "manifest": "packed", "manifest_digest": "d",
            "missing_files": missing, "missing_bytes": missing, "killed": [],
            "destination": args["destination"], "imbalance": 1.0, "cap_mbps": 0, "bandwidth": ["Nothing limits it."]}"""
ANSWERS = {
    "dataset_plan": PLAN,
    "dataset_stage": 'return {"ansible_job_id": "1", "started": True, "finished": False}',
    "dataset_watch": 'return {"complete": True}',
    "dataset_collect": 'return {"finished": True}',
    # Something is left over for a second round.
    "dataset_verify": 'marks = {"marked_files": 0} if args.get("mark_damaged") else {}\n'
    '    return {"verdict": "ok", "again": bool(args.get("report")), **marks}',
}
LIST, OWN = "List the dataset once and plan what is missing", "Plan what this node's own share lacks"
START, FOLLOW, COLLECT = "Start copying on every node", "Follow the copy", "Collect what every node did"
READ, COMPARE = "Read every file", "Compare the destination with the manifest"
ROLE = {"name": "hpcai.gpu_cluster.dataset_staging", "rolespec_validate": False}
#: How Ansible says that hosts were unreachable, and nothing else.
UNREACHABLE = 4

Call = dict[str, t.Any]


class Calls(list[Call]):
    """What a play's actions were told, in their order."""

    def of(self, task: str) -> list[Call]:
        return [call for call in self if call["task"] == task]


class Play(t.NamedTuple):
    """The role, or other tasks, for these hosts, each with the task at which it drops out, "" for none.

    ``hosts`` have their names in what is noted, without the play's; ``options`` are further ones of the role, ``keywords`` of the play.
    """

    name: str
    scope: str
    hosts: dict[str, str]
    missing: int = 3
    max_rounds: int = 2
    options: t.Mapping[str, t.Any] = {}
    keywords: t.Mapping[str, t.Any] = {}

    @property
    def inventory(self) -> dict[str, t.Any]:
        told = {"missing": self.missing}
        return {f"{self.name}-{host}": {**told, "drops_at": task} for host, task in self.hosts.items()}

    @property
    def document(self) -> dict[str, t.Any]:
        usual = {"destination": "/data", "sources": [], "scope": self.scope, "verify_content": True}
        options = {**usual, "max_rounds": self.max_rounds, **self.options}
        return {
            "hosts": self.name,
            "gather_facts": False,
            "vars": {f"dataset_staging_{name}": value for name, value in options.items()},
            "tasks": [{"ansible.builtin.import_role": ROLE}],
            **self.keywords,
        }

    def calls(self, notes: str) -> Calls:
        mine = [line for line in notes.splitlines() if json.loads(line)["host"].startswith(f"{self.name}-")]
        return Calls(json.loads(line.replace(f"{self.name}-", "")) for line in mine)


def stay(*hosts: str, **dropping: str) -> dict[str, str]:
    """Those that drop out come before those whose index that could change, but not first: what runs once runs there."""
    return {hosts[0]: "", **dropping, **dict.fromkeys(hosts[1:], "")}


def run_plays(
    root: pathlib.Path,
    *plays: Play,
    arguments: t.Sequence[str] = ("--tags", "dataset_staging_configure,dataset_staging_verify"),
    ends_with: int = 0,
) -> dict[str, Calls]:
    """Run them one after the other; what each of them was told, by its name. ``output`` in the directory is what Ansible printed."""
    collection = root / "ansible_collections/hpcai/gpu_cluster"
    (collection / "plugins/action").mkdir(parents=True)
    for folder in (ROOT, ROOT / "plugins", ROOT / "plugins/action"):
        for path in folder.iterdir():
            there = collection / path.relative_to(ROOT)
            if not there.exists() and not path.name.startswith(".") and path.stem not in ANSWERS:
                there.symlink_to(path)
    for name, answer in ANSWERS.items():
        once = name == "dataset_watch"
        (collection / f"plugins/action/{name}.py").write_text(ACTION.format(answer=answer, once=once))
    inventory = {"all": {"children": {play.name: {"hosts": play.inventory} for play in plays}}}
    (root / "hosts.json").write_text(json.dumps(inventory))
    (root / "play.yml").write_text(json.dumps([play.document for play in plays]))
    settings = {"ANSIBLE_COLLECTIONS_PATH": root, "ANSIBLE_CONFIG": ROOT / "ansible.cfg", "ANSIBLE_FORKS": 1}
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "-i", root / "hosts.json", root / "play.yml", *arguments],
        env={**os.environ, **{name: str(value) for name, value in settings.items()}, "CALLS": str(root / "calls")},
        capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    (root / "output").write_text(done.stdout)
    assert done.returncode == ends_with, done.stdout + done.stderr
    notes = (root / "calls").read_text()
    return {play.name: play.calls(notes) for play in plays}


__all__ = [
    "ANSWERS", "COLLECT", "COMPARE", "FOLLOW", "LIST", "OWN", "PLAN", "READ", "ROLE", "START", "UNREACHABLE",
    "Calls", "Play", "run_plays", "stay",
]  # fmt: skip
