# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All roles are built alike: who knows one knows where to look in the others."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import PROGRAMS

ROLES = sorted((pathlib.Path(__file__).parents[3] / "roles").iterdir())
PHASES = ("install", "configure", "verify", "remove")
#: Facts only: it brings nothing to the node and leaves nothing there.
LEAVES_NOTHING = {"node_profile"}
#: The site brings the programs, and nothing of the node's is set.
ONLY_VERIFIES = {"health_check"}
every_role = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)


def every_item(part: t.Any) -> t.Iterator[dict[str, t.Any]]:
    """Every mapping in tasks or variables, however deep."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else []:
        yield from every_item(inner)


def tasks(role: pathlib.Path, name: str) -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", yaml.safe_load((role / "tasks" / f"{name}.yml").read_text()))


@every_role
def test_every_role_has_every_phase(role: pathlib.Path) -> None:
    found = {phase for phase in PHASES if (role / "tasks" / f"{phase}.yml").exists()}
    missing = {"install", "remove"} if role.name in LEAVES_NOTHING | ONLY_VERIFIES else set()
    missing |= {"configure"} if role.name in ONLY_VERIFIES else set()
    assert found == set(PHASES) - missing


@every_role
def test_main_is_a_table_of_contents(role: pathlib.Path) -> None:
    """It imports phases in their order and names their tags; what else there is to say about them is said there."""
    entries = tasks(role, "main")
    imported = [entry["ansible.builtin.import_tasks"] for entry in entries]
    assert all(set(entry) == {"name", "ansible.builtin.import_tasks", "tags"} for entry in entries)
    assert imported == sorted(imported, key=[f"{phase}.yml" for phase in PHASES].index)
    assert all(f"{role.name}_{name.removesuffix('.yml')}" in entry["tags"] for entry, name in zip(entries, imported))


@every_role
def test_verify_comes_last(role: pathlib.Path) -> None:
    """``never``: where configure has just proven what it did, verify is for its tag alone."""
    last = tasks(role, "main")[-1]
    assert last["ansible.builtin.import_tasks"] == "verify.yml"
    assert set(last["tags"]) <= {f"{role.name}_configure", f"{role.name}_verify", "never"}


@every_role
def test_tasks_of_a_phase_have_its_tag(role: pathlib.Path) -> None:
    """An entry point that is imported by itself (``tasks_from``) is chosen by it, too."""
    for phase in PHASES:
        if (role / "tasks" / f"{phase}.yml").exists():
            without = [task["name"] for task in tasks(role, phase) if f"{role.name}_{phase}" not in task["tags"]]
            assert without == [], phase


@every_role
def test_roles_do_not_reboot_by_themselves(role: pathlib.Path) -> None:
    """Actions do, who know that it is due and agreed to (plugins/plugin_utils/_reboot.py)."""
    assert not [path for path in role.rglob("*.yml") if "ansible.builtin.reboot" in path.read_text()]


def test_programs_run_with_the_python_of_the_play_unless_the_role_is_given_another() -> None:
    """The usual one is too old on EL 8, and a play may name its own by a bare name, which no first line can hold."""
    found = {}
    for role in ROLES:
        for path in (*role.glob("tasks/*.yml"), *role.glob("vars/*.yml")):
            for item in every_item(yaml.safe_load(path.read_text())):
                if "program" in item and "path" in item:
                    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
                    found[item["program"]] = (item.get("interpreter"), defaults[f"{role.name}_python"])
                    assert found[item["program"]] == (f"{{{{ {role.name}_python }}}}", ""), role.name
    assert set(found) == set(PROGRAMS)
