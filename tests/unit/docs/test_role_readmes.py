"""A role's README names every variable, with the default that it has."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml

ROLES = sorted((pathlib.Path(__file__).parents[3] / "roles").iterdir())


def options(role: pathlib.Path) -> dict[str, dict[str, t.Any]]:
    """The options of all entry points."""
    entry_points = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"].values()
    return {name: option for entry in entry_points for name, option in (entry.get("options") or {}).items()}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_variable_is_named(role: pathlib.Path) -> None:
    named = set(re.findall(r"`(\w+)`", (role / "README.md").read_text()))
    # A row may name several: `role_size_min`, `_max`.
    endings = tuple(name for name in named if name.startswith("_"))
    assert not [name for name in options(role) if name not in named and not (endings and name.endswith(endings))]


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
