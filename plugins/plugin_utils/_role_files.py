# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Argument specs, limits, defaults, and vars of this collection's roles."""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

from ansible.module_utils.common.yaml import yaml_load
from ansible.parsing.dataloader import DataLoader

ROLES = Path(__file__).resolve().parents[2] / "roles"


class RoleFiles(t.NamedTuple):
    """``options`` are those of every entry point, ``limits`` those of single options; ``defaults`` and ``variables`` hold templates.

    ``in_step``: some task runs once for all hosts, which have to be in step.
    """

    options: dict[str, dict[str, t.Any]]
    defaults: dict[str, t.Any]
    variables: dict[str, t.Any]
    limits: dict[str, dict[str, t.Any]]
    in_step: bool


@functools.cache
def role_files(folder: Path) -> RoleFiles:
    """What is in a role's folder. A file that is not there is empty."""
    found = _plain(folder / "meta/argument_specs.yml").get("argument_specs", {})
    options = {entry_point: spec.get("options") or {} for entry_point, spec in found.items()}
    defaults, variables = _templates(folder / "defaults/main.yml"), _templates(folder / "vars/main.yml")
    in_step = any("run_once: " in path.read_text(encoding="utf-8") for path in folder.glob("tasks/*.yml"))
    return RoleFiles(options, defaults, variables, _plain(folder / "meta/limits.yml"), in_step)


def _plain(path: Path) -> dict[str, t.Any]:
    """A file without templates: Ansible's loader, which notes where every word stands, takes ten times as long."""
    return (yaml_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}


def _templates(path: Path) -> dict[str, t.Any]:
    if not path.is_file():
        return {}
    return DataLoader().load_from_file(str(path), trusted_as_template=True) or {}


def read_all() -> None:
    """Read all roles.

    For the process that imports the action: Ansible does so before it forks a worker for every node and task. A worker that read
    the files itself would do it for its node alone.
    """
    for tasks in ROLES.glob("*/tasks"):
        role_files(tasks.parent)


__all__ = ["ROLES", "RoleFiles", "read_all", "role_files"]
