# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""gluster's command line, asked again while glusterd starts or is busy, and never beyond a deadline."""

from __future__ import annotations

import re
import shutil
import time
import xml.etree.ElementTree as ET

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Brick, Volume
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.replies import (
    parse_online,
    parse_reply,
    parse_volume,
    refusal,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host

_POLL_S = 0.5
# glusterd serializes changes of the cluster and refuses a second one at once.
_BUSY = ("Another transaction", "Locking failed", "locking failed")
# Nodes that have just joined reach each other a moment later than they reach the one that leads.
_SOON = re.compile("|".join((*_BUSY, r"Host \S+ not connected")))


class Gluster:
    """gluster's command line, with a deadline for all that is done through it."""

    def __init__(self, host: Host, timeout_s: float) -> None:
        self._host = host
        self.deadline = time.monotonic() + timeout_s
        self.timeout_s = timeout_s

    def answers(self) -> bool:
        """Whether there is a glusterd to ask. There is none before the first run, nor in its check mode."""
        if not shutil.which("gluster"):
            return False
        _rc, out, err = self._host.run_command(["timeout", "-k", "5", "20", "gluster", "--mode=script", "pool", "list"])
        return "UUID" in out + err

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def wait(self, what: str) -> None:
        """Sleep a little, or fail because the time is over."""
        if self.left() <= 0:
            raise ClusterError(
                "timeout",
                f"{what} within {self.timeout_s:.0f} s.",
                "Check glusterd and the network between the nodes, or raise `timeout_s`.",
            )
        time.sleep(_POLL_S)

    def reply(self, *words: str) -> ET.Element:
        """The reply to a command, refused or not."""
        limit = str(max(10, int(self.left()) + 5))
        argv = ["timeout", "-k", "5", limit, "gluster", "--mode=script", "--xml", *words]
        rc, out, err = self._host.run_command(argv)
        while "Connection failed" in out + err:
            # glusterd was started a moment ago.
            self.wait("glusterd did not answer")
            rc, out, err = self._host.run_command(argv)
        if rc in (124, 137):
            raise ClusterError(
                "timeout",
                f"`gluster {' '.join(words[:2])}` did not end within {limit} s.",
                "Check glusterd on all nodes.",
            )
        return parse_reply(out if out.lstrip().startswith("<") else out + err)

    def ask(self, *words: str) -> ET.Element:
        """The reply to a command that must not be refused; one that comes at a busy moment is repeated."""
        while True:
            root = self.reply(*words)
            why = refusal(root)
            if not why:
                return root
            if not _SOON.search(why):
                raise ClusterError(
                    "gluster_failed",
                    f"`gluster {' '.join(words)}` failed: {why}.",
                    "See /var/log/glusterfs/glusterd.log.",
                )
            self.wait(f"glusterd was not free for `gluster {' '.join(words[:2])}` ({why.strip()})")

    def volume(self, name: str) -> Volume | None:
        """The volume, or None."""
        root = self.reply("volume", "info", name)
        why = refusal(root)
        if why and "does not exist" not in why:
            raise ClusterError(
                "gluster_failed", f"`gluster volume info` failed: {why}.", "Check glusterd on this node."
            )
        return parse_volume(root)

    def online(self, name: str) -> set[Brick]:
        """The bricks that run; none of a volume that does not. Not to know is an error: bricks are given up by this."""
        root = self.reply("volume", "status", name)
        while any(busy in refusal(root) for busy in _BUSY):
            self.wait("glusterd was not free to tell the state of the volume")
            root = self.reply("volume", "status", name)
        why = refusal(root)
        if why and "is not started" not in why:
            raise ClusterError(
                "gluster_failed",
                f"`gluster volume status {name}` failed: {why}.",
                "See /var/log/glusterfs/glusterd.log, and run again.",
            )
        return parse_online(root)


__all__ = ["Gluster"]
