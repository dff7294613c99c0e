# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The node's place in Slurm: taken out of service for a change, and given back."""

from __future__ import annotations

import re
import time

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host

_DRAIN_REASON = "hpcai.gpu_cluster.nvidia_driver"
_POLL_S = 5.0
# States of a node that has jobs, or is still cleaning up after one.
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


class Slurm:
    """Takes the node out of Slurm for the time of the change, and gives it back."""

    def __init__(self, host: Host, node: str, timeout_s: int) -> None:
        self.host, self.node, self.timeout_s = host, node, timeout_s

    def _show(self) -> tuple[set[str], str]:
        try:
            argv = ["scontrol", "-o", "show", "node", self.node]
            rc, out, err = self.host.run_command(argv, handle_exceptions=False)
        except OSError as exc:
            raise ClusterError(
                "drain_failed",
                f"Slurm's scontrol cannot be run on this node: {exc.strerror}.",
                "Install Slurm's commands, or link them into /usr/local/bin, or set `drain: false`.",
            ) from exc
        found = re.search(r"\bState=(\S+)", out)
        if rc != 0 or not found:
            raise ClusterError(
                "drain_failed",
                f"Slurm does not tell the state of {self.node}: {(err or out).strip()[:200]}",
                "Set `slurm_node` to the node's name in Slurm, or `drain: false`.",
            )
        reason = re.search(r"\bReason=(.*?)(?: \[|$)", out)
        return set(found.group(1).split("+")), reason.group(1).strip() if reason else ""

    def _update(self, *words: str) -> None:
        rc, out, err = self.host.run_command(["scontrol", "update", f"NodeName={self.node}", *words])
        if rc != 0:
            raise ClusterError(
                "drain_failed",
                f"scontrol update failed: {(err or out).strip()}",
                "The user needs to be a Slurm operator.",
            )

    def drained_by_us(self) -> bool:
        """Whether an earlier run took the node out and did not give it back."""
        states, reason = self._show()
        return "DRAIN" in states and reason == _DRAIN_REASON

    def drain(self, *, check: bool = False) -> bool:
        """Let no new job start, and wait until those that run have ended. Returns whether the node was in service."""
        serves = "DRAIN" not in self._show()[0]
        if check:
            return serves
        if serves:
            self._update("State=DRAIN", f"Reason={_DRAIN_REASON}")
        self._wait()
        return serves

    def _wait(self) -> None:
        deadline = time.monotonic() + self.timeout_s
        while True:
            trouble = self._trouble()
            if trouble is None:
                return
            if time.monotonic() > deadline:
                raise trouble
            time.sleep(_POLL_S)

    def _trouble(self) -> ClusterError | None:
        """Why the node is not free yet, None when it is."""
        try:
            busy = _BUSY & self._show()[0]
        except ClusterError as exc:
            # Jobs may take hours, and a controller that restarts meanwhile comes back.
            return ClusterError(
                exc.kind, f"{exc.message} The node stays drained; nothing else was changed.", exc.remedy
            )
        if not busy:
            return None
        return ClusterError(
            "drain_timeout",
            f"Jobs still run on {self.node} after {self.timeout_s} s. The node stays drained; nothing else was changed.",
            "Run again later, or raise `drain_timeout_s`.",
        )

    def resume(self) -> None:
        """Give the node back, if it was this role that took it."""
        if self.drained_by_us():
            self._update("State=RESUME")


__all__ = ["Slurm"]
