"""A role's README names every variable, with the default that it has."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
ROLES = sorted((ROOT / "roles").iterdir())
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("roles/*/README.md"))]


def options(role: pathlib.Path) -> dict[str, dict[str, t.Any]]:
    """The options of all entry points."""
    entry_points = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"].values()
    return {name: option for entry in entry_points for name, option in (entry.get("options") or {}).items()}


#: Variables of all roles, and the switches of the playbooks.
VARIABLES = {name for role in ROLES for name in options(role)} | {
    name for playbook in ROOT.glob("playbooks/*.yml") for name in re.findall(r"\bgpu_cluster_\w+", playbook.read_text())
}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_variable_is_named(role: pathlib.Path) -> None:
    named = set(re.findall(r"`(\w+)`", (role / "README.md").read_text()))
    assert not set(options(role)) - named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_variables_are_named_in_full(page: pathlib.Path) -> None:
    """Nobody finds ``role_size_max`` who reads "`role_size_min`, `_max`", and nobody who searches for it."""
    endings = {name[place:] for name in VARIABLES for place in range(1, len(name)) if name[place] == "_"}
    values = {str(option.get("default")) for role in ROLES for option in options(role).values()}
    assert not (endings - values) & set(re.findall(r"`(_\w+)`", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_the_real_ones(role: pathlib.Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", (role / "README.md").read_text(), flags=re.MULTILINE)
    known = options(role)
    # Defaults that are made from other values are shown in words or with <placeholders>.
    plain = {name: known[name]["default"] for name, _shown in rows if "default" in known.get(name, {})}
    wrong = {
        name: (shown, plain[name])
        for name, shown in rows
        if name in plain and "{{" not in str(plain[name]) and yaml.safe_load(shown) != plain[name]
    }
    assert not wrong
