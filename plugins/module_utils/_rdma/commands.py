# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What changes a node: programs that must end within a time, and its package system."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.packages import missing_packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import System

# How many characters of what a failed program said are returned.
_TAIL = 4000


class Commands:
    """Runs programs on a node for at most ``timeout_s`` each. ``host`` runs those that only look."""

    def __init__(self, host: Host, system: System, timeout_s: int) -> None:
        self.host, self.timeout_s = host, timeout_s
        self.manager = system.manager
        self._manager = Apt(self) if system.manager == "dpkg" else Dnf(self)

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        """As ``AnsibleModule`` does it, but in time."""
        return self._in_time(args, f"`{args[0]}`", **kwargs)

    def _in_time(self, argv: t.Sequence[str], what: str, **kwargs: t.Any) -> tuple[int, str, str]:
        limit = ["timeout", "--kill-after=30", str(self.timeout_s)]
        rc, out, err = self.host.run_command([*limit, *argv], **kwargs)
        if rc == 124:
            raise ClusterError(
                "timeout",
                f"{what} took longer than {self.timeout_s} s and was ended.",
                "Look at what it said, raise `timeout_s`, and run again: it starts over.",
                output=(out + err)[-_TAIL:],
            )
        return rc, out, err

    def run(self, argv: t.Sequence[str], what: str, **kwargs: t.Any) -> str:
        """Run a command that must succeed; returns what it said."""
        rc, out, err = self._in_time(argv, what, **kwargs)
        if rc != 0:
            said = (err.strip() or out.strip()).splitlines()
            raise ClusterError(
                "command_failed",
                f"{what} failed: {said[-1].strip() if said else f'exit status {rc}'}.",
                "Read its output in this result, correct the cause, and run again: it starts over.",
                output=(out + err)[-_TAIL:],
            )
        return out + err

    def apt(self, words: t.Sequence[str], what: str) -> str:
        """``apt-get`` with what every call needs."""
        return self.run(["apt-get", "--yes", "-o", "DPkg::Lock::Timeout=300", *words], what)

    def missing(self, items: t.Sequence[t.Any]) -> list[str]:
        """Packages of a request that are not there yet."""
        return missing_packages(items, self.host)[0]

    def add(self, names: t.Sequence[str]) -> None:
        """Install packages from the node's repositories."""
        if names:
            self._manager.add(names)


__all__ = ["Commands"]
