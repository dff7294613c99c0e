# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Steps on the file system and its directory: mkfs, mount, remount, own, unmount, release."""

from __future__ import annotations

import dataclasses
import os
import shutil

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid import bare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.device import (
    claim,
    flush,
    require_empty,
    require_left,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.work import Work

# Mounted where the kernel enforces a policy, or would tell what it forbade.
_SELINUX = "/sys/fs/selinux"


def mkfs(work: Work, step: Step) -> None:
    """Make the file system on ``step.device``, or on what was made a moment ago."""
    device = step.device or work.created
    wanted = work.wanted
    # Forcing is safe: what the disks held was looked at before, and an array that was made a moment ago shows old data
    # again. Discarding first would only cost time: on terabytes up to minutes.
    if wanted.filesystem == "xfs":
        argv = ["mkfs.xfs", "-f", "-K", "-L", wanted.label]
    else:
        argv = ["mkfs.ext4", "-F", "-q", "-m", "0", "-E", "nodiscard", "-L", wanted.label]
    found = work.seen.found if work.seen else None
    if not step.device:
        claim(device)
    elif step.value == "again":
        # A file system that cannot be mounted, or one that mkfs has not ended. On a disk that counts as empty, nothing.
        known: tuple[Signature, ...] = (found.signatures or ()) if found and found.active else ()
        require_left(work.runner, os.path.basename(device), known)
        work.wipe(device)
    else:
        require_empty(work.runner, wanted, [os.path.basename(device)])
    if step.device:
        # Disks are named where the file system lies on one itself: what is left of an array is none of it any more.
        work.begin("" if step.disks or not found else found.uuid, step.disks)
    work.command(*argv, *wanted.mkfs_options, device, what="Making the file system")
    flush(device)
    work.end()
    work.settle()
    work.created = device


def mount(work: Work, step: Step) -> None:
    """Mount it, and make it again where that fails and its creation has not ended."""
    device = step.device or work.created
    point = work.wanted.mount_point
    work.hold()
    options = ",".join(work.wanted.mount_options) or "defaults"
    argv = ["mount", "-t", work.wanted.filesystem, "-o", options, device, point]
    try:
        work.command(*argv, what=f"Mounting {work.wanted.name}")
    except ClusterError as exc:
        if step.value != "begun":
            raise _not_mountable(exc) from exc
        again = True
    else:
        # It can be mounted, and what mkfs wrote elsewhere may be lost all the same.
        again = step.value == "begun" and _holds_nothing(point)
        if again:
            work.command("umount", point, what=f"Unmounting {work.wanted.name}")
    if again:
        what = f"make {work.wanted.filesystem} on {work.wanted.name} again: mkfs was interrupted"
        mkfs(work, dataclasses.replace(step, value="again"))
        work.unplanned.append(Step("mkfs", what, device))
        work.command(*argv, what=f"Mounting {work.wanted.name}")
    # From here on it may hold files, whatever becomes of the rest of this run.
    work.end()
    own(work, step)


def remount(work: Work, step: Step) -> None:
    """Set the flags in ``step.value`` on what is mounted."""
    work.command("mount", "-o", f"remount,{step.value}", work.wanted.mount_point, what="Mounting again")


def own(work: Work, _step: Step) -> None:
    """Owner, group, mode and label of the root of the file system, never of the directory below it."""
    point = work.wanted.mount_point
    if not os.path.ismount(point):
        raise ClusterError("not_mounted", f"Nothing is mounted at {point}.", "See `journalctl -b`.")
    _label(work)
    os.chown(point, work.wanted.owner, work.wanted.group)
    os.chmod(point, int(work.wanted.mode, 8))


def unmount(work: Work, step: Step) -> None:
    """Unmount what is at ``step.value``, which is a directory like any other then."""
    rc, _out, err = work.runner.run_command(["timeout", "-k", "5", "60", "umount", step.value])
    if rc != 0:
        raise ClusterError(
            "in_use",
            f"{step.value} cannot be unmounted: {err.strip().rstrip('.')}.",
            f"End what uses it: `fuser -vm {step.value}`.",
        )
    release(work, step)


def release(_work: Work, step: Step) -> None:
    """Let the directory at ``step.value`` be written to again."""
    bare.release(step.value)


def _holds_nothing(point: str) -> bool:
    """Whether what is mounted there is as mkfs makes it; False where it does not tell."""
    try:
        return not set(os.listdir(point)) - {"lost+found"}
    except OSError:
        return False


def _label(work: Work) -> None:
    """A new root has no label of SELinux, and confined services may not enter it. What lies below it is its owners' own."""
    if os.path.isdir(_SELINUX) and shutil.which("restorecon"):
        work.command("restorecon", work.wanted.mount_point, what="Labeling the root of the file system")


def _not_mountable(exc: ClusterError) -> ClusterError:
    return ClusterError(
        exc.kind,
        exc.message,
        "See `journalctl -k`. A file system that cannot be repaired is given up with `allow_data_loss: true` (entry point remove of "
        "the role, state absent of the module); the next run makes a new one.",
    )


__all__ = ["mkfs", "mount", "own", "release", "remount", "unmount"]
