# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module's documentation says everything once: of two equal keys YAML silently keeps the last."""

from __future__ import annotations

import ast
import pathlib
import typing as t

import pytest
import yaml

PLUGINS = pathlib.Path(__file__).parents[3] / "plugins"
MODULES = sorted((PLUGINS / "modules").glob("*.py"))
FRAGMENTS = sorted((PLUGINS / "doc_fragments").glob("*.py"))


class OnceLoader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[t.Hashable, t.Any]:
        keys = [key.value for key, _value in node.value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        assert not twice, f"{twice} twice in the mapping that begins at line {node.start_mark.line + 1}"
        return super().construct_mapping(node, deep)


def texts(body: list[ast.stmt], *names: str) -> dict[str, dict[str, t.Any]]:
    """What assignments hold, by name; all of them, where none is named."""
    return {
        statement.targets[0].id: yaml.load(ast.literal_eval(statement.value), OnceLoader)
        for statement in body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and (not names or statement.targets[0].id in names)
    }


def fragments() -> dict[str, dict[str, t.Any]]:
    """Every fragment under the name by which a module asks for it."""
    found = {}
    for path in FRAGMENTS:
        (holder,) = [statement for statement in ast.parse(path.read_text()).body if isinstance(statement, ast.ClassDef)]
        for name, text in texts(holder.body).items():
            suffix = "" if name == "DOCUMENTATION" else f".{name.lower()}"
            found[f"hpcai.gpu_cluster.{path.stem}{suffix}"] = text["options"]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_key_is_given_twice(module: pathlib.Path) -> None:
    texts(ast.parse(module.read_text()).body, "DOCUMENTATION", "RETURN")


def test_no_module_repeats_its_fragment_and_every_fragment_is_shared() -> None:
    known = fragments()
    users: dict[str, list[str]] = {name: [] for name in known}
    for module in MODULES:
        documented = texts(ast.parse(module.read_text()).body, "DOCUMENTATION").get("DOCUMENTATION", {})
        for name in documented.get("extends_documentation_fragment", []):
            users[name].append(module.stem)
            own = documented.get("options", {})
            assert not [option for option, text in known[name].items() if own.get(option) == text], module.stem
    assert all(len(modules) > 1 for modules in users.values()), users


def test_options_of_modules_that_say_the_same_are_in_a_fragment() -> None:
    said: dict[tuple[str, str], list[str]] = {}
    for module in MODULES:
        documented = texts(ast.parse(module.read_text()).body, "DOCUMENTATION").get("DOCUMENTATION", {})
        for option, text in documented.get("options", {}).items():
            said.setdefault((option, repr(text)), []).append(module.stem)
    assert not {key: modules for key, modules in said.items() if len(modules) > 1}
