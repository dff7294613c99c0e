# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""A node with its container runtimes, as it was found."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is on a node before anything is done to it.

    ``manager``: ``dpkg`` or ``rpm``. ``machine``: as `uname -m` has it. ``docker``: Docker is there, whoever installed it.
    ``texts``: the settings files that are there, by path, to the byte. ``modes``: the
    permissions of the request's directories that are there, by path.
    """

    manager: str
    machine: str
    docker: bool
    packages: t.Mapping[str, Installed]
    texts: t.Mapping[str, str]
    modes: t.Mapping[str, int] = dataclasses.field(default_factory=dict)

    def imported(self, folder: str, but: str) -> list[str]:
        """The texts of the settings files in a folder, in the order of their names, without one of them."""
        return [text for path, text in sorted(self.texts.items()) if path.startswith(f"{folder}/") and path != but]

    def text(self, path: str) -> str:
        """A settings file; empty where there is none."""
        return self.texts.get(path, "")


__all__ = ["Facts"]
