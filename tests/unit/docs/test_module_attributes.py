# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules promise in ``attributes`` is what their code declares, and module_defaults reach each of them."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
#: With a part of their own on the controller. The others only say there what the module says.
ACTIONS = {path.stem for path in (ROOT / "plugins" / "action").glob("*.py") if "ModuleAction" not in path.read_text()}
GROUPS: dict[str, list[str]] = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["action_groups"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def documented() -> dict[str, dict[str, t.Any]]:
    """What ansible-doc shows of every module, with the fragments in it."""
    program = pathlib.Path(sys.executable).parent / "ansible-doc"
    names = [f"hpcai.gpu_cluster.{module}" for module in MODULES]
    done = subprocess.run([program, "--json", *names], capture_output=True, text=True, check=True)
    return {name.rpartition(".")[2]: found["doc"] for name, found in json.loads(done.stdout).items()}


def test_every_module_is_in_the_group_of_all() -> None:
    assert GROUPS["all"] == MODULES


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_groups_are_sorted_and_in_the_readme(group: str) -> None:
    assert GROUPS[group] == sorted(set(GROUPS[group]))
    assert f"`hpcai.gpu_cluster.{group}`" in README


@pytest.mark.parametrize("group", sorted(set(GROUPS) - {"all"}))
def test_the_options_that_the_readme_names_are_in_all_modules_of_a_group(
    group: str, documented: dict[str, dict[str, t.Any]]
) -> None:
    """Ansible refuses a task whose module lacks an option that the group sets."""
    row = re.search(rf"^\| `hpcai\.gpu_cluster\.{group}` \|[^|]*\|([^|]*)\|$", README, flags=re.MULTILINE)
    assert row
    options = re.findall(r"`(\w+)`", row[1])
    assert options
    for module in GROUPS[group]:
        assert set(options) <= set(documented[module]["options"]), module


@pytest.mark.parametrize("module", MODULES)
def test_attributes_are_whole_and_name_the_groups(module: str, documented: dict[str, dict[str, t.Any]]) -> None:
    attributes = documented[module]["attributes"]
    assert {"check_mode", "diff_mode", "idempotent", "platform", "action_group"} <= set(attributes)
    assert all(attribute.get("description") and attribute.get("support") for attribute in attributes.values())
    assert not [
        name
        for name, attribute in attributes.items()
        if attribute["support"] in ("none", "partial") and not attribute.get("details")
    ]
    groups = [f"hpcai.gpu_cluster.{group}" for group, modules in GROUPS.items() if module in modules]
    assert attributes["action_group"]["membership"] == groups


def declared(module: str) -> str:
    """The code of a module and of its action plugin."""
    folders = ["modules", "action"] if module in ACTIONS else ["modules"]
    return "".join((ROOT / "plugins" / folder / f"{module}.py").read_text() for folder in folders)


@pytest.mark.parametrize("module", MODULES)
def test_check_mode_is_as_declared(module: str, documented: dict[str, dict[str, t.Any]]) -> None:
    source = declared(module)
    refuses = re.search(r"supports_check_mode ?= ?False", source) is not None
    # An action plugin supports check mode unless it says otherwise.
    supports = "supports_check_mode=True" in source or (module in ACTIONS and not refuses)
    assert supports != refuses
    assert (documented[module]["attributes"]["check_mode"]["support"] == "full") == supports


@pytest.mark.parametrize("module", MODULES)
def test_what_has_a_part_on_the_controller_says_so(module: str, documented: dict[str, dict[str, t.Any]]) -> None:
    attributes = documented[module]["attributes"]
    assert ("action" in attributes) == (module in ACTIONS)
    if module in ACTIONS:
        assert attributes["async"]["support"] == "none"
        assert ("bypass_host_loop" in attributes) == ("BYPASS_HOST_LOOP = True" in declared(module))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_without_difference_to_show_changes_nothing_or_says_why(
    module: str, documented: dict[str, dict[str, t.Any]]
) -> None:
    """``N/A`` is for modules that never report a change."""
    if documented[module]["attributes"]["diff_mode"]["support"] == "N/A":
        assert not re.search(r"changed=(?!False)|\"changed\": (?!False)", declared(module))


def test_every_module_has_an_action_that_names_the_variables_of_roles() -> None:
    """An action of its own, or one of ModuleAction or NodeStateAction, which wrap what they run."""
    texts = {path.stem: path.read_text() for path in (ROOT / "plugins" / "action").glob("*.py")}
    assert sorted(texts) == MODULES
    assert not [
        name
        for name, text in texts.items()
        if not re.search(r"@names_role_variables\n    def run|\((?:\w+, )?\w*(ModuleAction|NodeStateAction)\)", text)
    ]
