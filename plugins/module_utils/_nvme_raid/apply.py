# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Carries out what ``nvme_raid`` planned, and looks whether it came true.

Besides it, only the steps in ``arrays`` and ``filesystem`` change anything on a node, with ``bare``, ``begun``, ``device`` and ``points``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid import arrays, filesystem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.geometry import Geometry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.lock import locked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.read import Reader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.verify import prove_geometry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.work import Work, need, need_all

# Observing again after a step that brings something to light: assembling shows what an array holds.
_ROUNDS = 4
#: What carries out each kind of step.
STEPS: dict[str, t.Callable[[Work, Step], None]] = {
    "create": arrays.create,
    "assemble": arrays.assemble,
    "add": arrays.add,
    "stop": arrays.stop,
    "erase": arrays.erase,
    "mkfs": filesystem.mkfs,
    "mount": filesystem.mount,
    "remount": filesystem.remount,
    "own": filesystem.own,
    "unmount": filesystem.unmount,
    "release": filesystem.release,
}


@dataclasses.dataclass
class Outcome:
    """What was done, or would be, and the plan that was found at the end."""

    plan: Plan
    steps: list[Step] = dataclasses.field(default_factory=list)
    geometry: Geometry | None = None


class Keeper:
    """Brings the disks of this node to the wanted state."""

    def __init__(self, runner: Runner, wanted: Wanted) -> None:
        self.work = Work(runner, wanted)
        self.only_look = False

    def run(self, *, check: bool) -> Outcome:
        """Plan, and carry it out unless in check mode, or asked for nothing but a look."""
        wanted = self.work.wanted
        check = self.only_look = check or wanted.state == "inspected"
        need("wipefs")
        with contextlib.nullcontext() if check else locked():
            outcome = Outcome(self._look())
            if check:
                outcome.steps += outcome.plan.steps
            else:
                self._carry_out(outcome)
            outcome.geometry = prove_geometry(self.work.command, wanted, outcome.plan)
        return outcome

    def _carry_out(self, outcome: Outcome) -> None:
        """Do what is planned, and look again, until nothing is left to be done."""
        work = self.work
        for _round in range(_ROUNDS):
            if not outcome.plan.steps:
                break
            need_all(work.wanted, outcome.plan.steps)
            for step in outcome.plan.steps:
                STEPS[step.kind](work, step)
                outcome.steps += [*work.unplanned, step]
                work.unplanned.clear()
                if step.kind == "assemble":
                    break
            # What a step answered, such as files that the mount hides, is not seen any more.
            told = outcome.plan.warnings
            outcome.plan = self._look()
            kept = tuple(dict.fromkeys((*told, *outcome.plan.warnings)))
            outcome.plan = dataclasses.replace(outcome.plan, warnings=kept)
        if outcome.plan.steps:
            raise ClusterError(
                "not_stable",
                f"After all was done, this is still to be done: {'; '.join(s.what for s in outcome.plan.steps)}.",
                "Something else changes the disks at the same time. See `journalctl -b`.",
            )
        if outcome.plan.found or work.wanted.state == "absent":
            work.end()
        work.tidy()

    def _look(self) -> Plan:
        node = Reader(self.work.runner, self.work.wanted).node()
        self.work.seen = plan(self.work.wanted, node if self.only_look else self._without_old_mark(node))
        return self.work.seen

    def _without_old_mark(self, node: Node) -> Node:
        """What is mounted may hold files, whoever mounted it: from now on it is none to be made again."""
        found = find(self.work.wanted, node) if node.begun else None
        if not found or not node.mounted(found.device):
            return node
        self.work.end()
        return dataclasses.replace(node, begun=None)


__all__ = ["STEPS", "Keeper", "Outcome"]
