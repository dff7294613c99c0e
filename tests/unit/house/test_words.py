# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may know whom besides imports: plugins name no role's variable, and roles read no file of plugins."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
ROLES = sorted((ROOT / "roles").iterdir())


def variables() -> set[str]:
    """The variables of all roles that are not the name of a module, too."""
    found: set[str] = set()
    for role in ROLES:
        found |= set(yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8")) or {})
        specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        found |= {name for spec in specs.values() for name in spec.get("options") or {}}
    return found - {path.stem for path in (ROOT / "plugins/modules").glob("*.py")}


def named(text: str, known: t.Collection[str]) -> list[str]:
    """The known variables in a text, in order."""
    return [word for word in re.findall(r"\w+", text) if word in known]


def reads_plugins(text: str) -> bool:
    """Whether a file of a role goes to the collection's plugins by their path."""
    return re.search(r"\.\./plugins\b|\bgpu_cluster/plugins\b", text) is not None


def holding(directory: str, wrong: t.Callable[[str], object], pattern: str = "*") -> set[str]:
    top = ROOT / directory
    return {
        path.relative_to(top).as_posix()
        for path in top.rglob(pattern)
        if path.is_file() and "__pycache__" not in path.parts and wrong(path.read_text(encoding="utf-8"))
    }


def test_no_file_of_plugins_names_variables_of_roles() -> None:
    """Examples in documentation, too: who calls a module by itself has no such variable."""
    known = variables()
    assert {"nvme_raid_allow_format", "dataset_staging_sources", "mofed_source"} <= known
    assert holding("plugins", lambda text: named(text, known), "*.py") == set()


def test_no_role_reads_files_of_plugins() -> None:
    """Programs that run on nodes without Ansible are named: the controller builds them."""
    assert holding("roles", reads_plugins) == set()


def test_a_variable_is_found_and_an_option_is_not() -> None:
    known = variables()
    assert named('"Set mofed_source: doca."', known) == ["mofed_source"]
    assert named("`{{ glusterfs_nodes[0] }}`", known) == ["glusterfs_nodes"]
    assert not named("glusterfs_volume with `source`, __mofed_source, and mofed_sources", known)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("lookup('file', role_path ~ '/../../plugins/module_utils/' ~ name)", True),
        ("src: ansible_collections/hpcai/gpu_cluster/plugins/module_utils", True),
        ("path: /usr/lib/nagios/plugins", False),
        ("hpcai.gpu_cluster.node_state:", False),
    ],
)
def test_a_path_into_plugins_is_found(text: str, reads: bool) -> None:
    assert reads_plugins(text) is reads
