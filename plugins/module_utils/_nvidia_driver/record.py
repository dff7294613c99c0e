# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What one run changes, or would change: told in order, with a diff, and the one way to files and units."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.read import missing_parents
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import NOTHING
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts, Loaded


class Record:
    """The changes of one run on one node. With ``check`` they are only told."""

    def __init__(self, host: Host, *, check: bool) -> None:
        self.host, self.check = host, check
        self.changes = Changes()

    def note(self, kind: str, name: str, what: str, before: str = "", after: str = "") -> None:
        """Tell a change."""
        self.changes.note(kind, name, what, before, after)

    def state(self, request: t.Mapping[str, t.Any]) -> list[str]:
        """Let node_state make files and units so; returns the names of what changed."""
        directories = missing_parents(entry["path"] for entry in request.get("files", []))
        state = NodeState({**NOTHING, "directories": directories, **request}, self.host)
        state.run(check=self.check)
        self.changes.add(*state.changes)
        return state.changes.names()

    def started(self) -> list[str]:
        """The units that this run started."""
        return self.changes.names("unit", "start")

    def result(
        self, facts: Facts, loaded: Loaded, *, flavor: str = "", reboot: t.Sequence[str] = (), message: str = ""
    ) -> dict[str, t.Any]:
        """What the module returns."""
        return {
            **self.changes.result(),
            "gpus": [f"{gpu.bus_id} {gpu.generation}" for gpu in facts.hardware.gpus],
            "nvswitches": facts.hardware.nvswitches,
            "kernel_module": flavor,
            "loaded": loaded.version,
            "reboot_required": list(reboot),
            **({"msg": message} if message else {}),
        }


__all__ = ["Record"]
