"""A role's documented options are its defaults: same names, same values, in every role and every entry point."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

ROLES = sorted((pathlib.Path(__file__).parents[3] / "roles").iterdir())
#: What design calls a phase. A role has those that it needs.
PHASES = {"main", "install", "configure", "verify", "remove"}


def load(path: pathlib.Path) -> t.Any:
    return yaml.safe_load(path.read_text()) if path.exists() else {}


def specs(role: pathlib.Path) -> dict[str, dict[str, t.Any]]:
    return {
        name: spec.get("options") or {}
        for name, spec in load(role / "meta" / "argument_specs.yml")["argument_specs"].items()
    }


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_default_is_documented_and_every_option_is_known(role: pathlib.Path) -> None:
    defaults = load(role / "defaults" / "main.yml") or {}
    documented: dict[str, t.Any] = {}
    for options in specs(role).values():
        documented.update(options)
    required = {name for name, option in documented.items() if option.get("required")}
    without_default = {name for name, option in documented.items() if "default" not in option} - required
    assert set(defaults) == set(documented) - required - without_default


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_documented_defaults_are_the_real_ones(role: pathlib.Path) -> None:
    defaults = load(role / "defaults" / "main.yml") or {}
    wrong = {
        f"{entry}: {name}": (option["default"], defaults.get(name))
        for entry, options in specs(role).items()
        for name, option in options.items()
        if "default" in option and option["default"] != defaults.get(name)
    }
    assert not wrong


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_entry_point_has_tasks_and_names_are_prefixed(role: pathlib.Path) -> None:
    for entry, options in specs(role).items():
        assert (role / "tasks" / f"{entry}.yml").exists(), f"{role.name} documents {entry}, which it does not have"
        assert all(name.startswith(f"{role.name}_") for name in options)
    phases = {path.stem for path in (role / "tasks").glob("*.yml")} & PHASES
    assert phases <= set(specs(role)), "a phase without argument spec"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_has_a_readme(role: pathlib.Path) -> None:
    assert (role / "README.md").exists()
