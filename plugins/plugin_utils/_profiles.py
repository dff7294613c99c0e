# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Profiles of node types as files of the controller: those of the collection, and the user's own."""

from __future__ import annotations

import typing as t
from pathlib import Path

import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.profile import Profile, validate_profile

SHIPPED = Path(__file__).resolve().parents[2] / "roles/node_profile/files/profiles"


def _read(path: Path) -> Profile:
    # The C loader where PyYAML has it: with no name and no metadata all files are read for every node.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        profile = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - both are safe loaders
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        raise ClusterError("profile_invalid", f"The profile {path} cannot be read: {exc}", "Correct the file.") from exc
    require_valid(profile, str(path))
    return t.cast(Profile, profile)


def require_valid(profile: t.Any, where: str) -> None:
    problems = validate_profile(profile)
    if problems:
        raise ClusterError("profile_invalid", f"{where} is not a valid profile: {'; '.join(problems)}.", "Correct it.")


class FileLibrary:
    """Profiles in directories of the controller; a file in an earlier directory hides one of the same name.

    ``option`` is the module's own that lists the directories.
    """

    def __init__(self, directories: t.Sequence[Path], option: str = "paths") -> None:
        self._files: dict[str, Path] = {}
        for directory in reversed(directories):
            if not directory.is_dir():
                message = f"The directory {directory} of `{option}` does not exist on the controller."
                raise ClusterError("bad_input", message, f"Correct `{option}`.")
            for path in sorted(directory.glob("*.yml")):
                self._files[path.stem.casefold()] = path

    def load(self, name: str) -> Profile | None:
        path = self._files.get(name.casefold())
        return _read(path) if path else None

    def load_all(self) -> list[Profile]:
        return [_read(path) for path in self._files.values()]

    def load_own(self) -> list[Profile]:
        """Those of ``load_all`` that the collection does not ship."""
        return [_read(path) for path in self._files.values() if path.parent != SHIPPED]


__all__ = ["SHIPPED", "FileLibrary", "require_valid"]
