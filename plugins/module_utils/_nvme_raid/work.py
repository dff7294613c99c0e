# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the steps of one run share: its request, what was seen and made so far, how a command is run and a program missed."""

from __future__ import annotations

import dataclasses
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.begun import begin, end
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.device import flush
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Begun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.points import hold, tidy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step

_ROOT = Path("/")
_COMMAND_S = "600"
_PACKAGES = {"mdadm": "mdadm", "mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs", "wipefs": "util-linux"}


@dataclasses.dataclass
class Work:
    """One run. ``created`` is the device that a step has made, ``unplanned`` what a step had to do besides."""

    runner: Runner
    wanted: Wanted
    seen: Plan | None = None
    created: str = ""
    unplanned: list[Step] = dataclasses.field(default_factory=list)

    def command(self, *argv: str, what: str) -> str:
        """Run a command and return its output. Raises ClusterError with ``what`` failed, and what the command said."""
        rc, out, err = self.runner.run_command(["timeout", "-k", "10", _COMMAND_S, *argv])
        if rc != 0:
            told = " ".join((err.strip() or out.strip()).split())[-400:].rstrip(".")
            raise ClusterError(
                "command_failed",
                f"{what} failed: `{' '.join(argv)}`: {told}.",
                "See `journalctl -k` for errors of disks.",
            )
        return out

    def settle(self) -> None:
        """Let udev finish with what changed."""
        settle(self.runner)

    def wipe(self, device: str, *options: str) -> None:
        """Nothing that was there before may be taken for what mkfs made, or be mounted, after a power cut in what follows."""
        self.command("wipefs", "--all", *options, "--quiet", device, what=f"Clearing {device}")
        flush(device)

    def begin(self, uuid: str, names: t.Collection[str] = (), *, bare: bool = False) -> None:
        """Mark what a power cut would leave half made as ours: an array by its UUID, a disk by all its identity.

        A disk without one has no mark, nor that of what was here before.
        """
        verdicts = self.seen.verdicts if self.seen else ()
        links = tuple(link for verdict in verdicts if verdict.disk.name in names for link in verdict.disk.identity)
        if uuid or links:
            begin(_ROOT, self.wanted.name, Begun(uuid, () if uuid else links, bare))
        else:
            end(_ROOT, self.wanted.name)

    def end(self) -> None:
        """Take the mark away: what was begun has ended, or may hold files."""
        end(_ROOT, self.wanted.name)

    def hold(self) -> None:
        """Make the mount point, and let nothing write into it while nothing is mounted there."""
        hold(_ROOT, self.wanted.name, self.wanted.mount_point)

    def tidy(self) -> None:
        """Forget mount points of earlier that were given back, and remember the one of now."""
        tidy(_ROOT, self.wanted.name, "" if self.wanted.state == "absent" else self.wanted.mount_point)


def settle(runner: Runner, timeout_s: int = 30) -> None:
    """Let udev, where there is one, finish with what changed, so that it neither holds devices nor misses their names."""
    if shutil.which("udevadm"):
        runner.run_command(["udevadm", "settle", f"--timeout={timeout_s}"])


def need(program: str) -> None:
    """Raise ClusterError where a program is not installed."""
    if not shutil.which(program):
        raise ClusterError(
            "program_missing",
            f"{program} is not installed.",
            f"Install {_PACKAGES[program]}.",
        )


def need_all(wanted: Wanted, steps: t.Sequence[Step]) -> None:
    """Before the first change: a missing program must not leave half of the work behind."""
    kinds = {step.kind for step in steps}
    if kinds & {"create", "assemble", "stop", "add"}:
        need("mdadm")
    if kinds & {"mkfs", "assemble"}:
        need(f"mkfs.{wanted.filesystem}")


__all__ = ["Work", "need", "need_all", "settle"]
