# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are not there: a connection answers every module call at once, without a process.

What is left is the controller's own work: templates, task results, memory. Not measured, and so not proven, are ssh's part of it
(10 to 20 ms of CPU for every module call), the network, the nodes' work, and anything that depends on what a node really is.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from _answers import AZCOPY, answers, inventory, names, store
from _runs import HERE, SITE, Bench, Run


def _digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class StandInBench(Bench):
    """On as many stand-ins as are asked for; each has its own name, and lists of nodes are as long as the inventory."""

    def __init__(self, hosts: int, peer_hosts: int) -> None:
        super().__init__(hosts, peer_hosts)
        self.nodes = names(4)
        self._memory = self.folder / "memory"
        self._memory.mkdir()
        self._remember(AZCOPY, "")

    def _remember(self, path: str, content: str) -> None:
        """A file that all stand-ins have."""
        (self._memory / _digest(path)).write_text(_digest(content), encoding="ascii")

    def converged(self) -> Run:
        return self.play(SITE, *self.inventories(len(self.nodes)))

    def inventories(self, count: int) -> list[Path]:
        """Also chooses the answers, which name all nodes of the inventory."""
        answered = self.folder / f"answers-{count}"
        named = self.folder / f"stand-ins-{count}.json"
        store(answers(count), answered)
        named.write_text(json.dumps(inventory(count)), encoding="utf-8")
        self.environment = {
            "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "connections"),
            "ANSIBLE_PIPELINING": "true",
            "CONVERGE_ANSWERS": str(answered),
            "CONVERGE_MEMORY": str(self._memory),
        }
        return [named]

    def ready_for_peers(self, playbook: Path) -> None:
        """Copy once what the playbook copies: the stand-ins remember its digests, and that of each node's own file."""
        self.play(playbook, self.defaults_inventory(), *self.inventories(1))
        for name in names(self.peer_hosts):
            self._remember(f"/mnt/scratch/.peers_check/{name}", name)


__all__ = ["StandInBench"]
