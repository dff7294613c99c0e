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

MODULES = sorted((pathlib.Path(__file__).parents[3] / "plugins" / "modules").glob("*.py"))


class OnceLoader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[t.Hashable, t.Any]:
        keys = [key.value for key, _value in node.value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        assert not twice, f"{twice} twice in the mapping that begins at line {node.start_mark.line + 1}"
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_key_is_given_twice(module: pathlib.Path) -> None:
    for statement in ast.parse(module.read_text()).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") in ("DOCUMENTATION", "RETURN"):
            yaml.load(ast.literal_eval(statement.value), OnceLoader)
