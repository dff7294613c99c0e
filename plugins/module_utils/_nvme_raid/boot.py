# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Assemble, make and mount the file system of this node's local disks, as the role nvme_raid has configured it.

    nvme-raid scratch                     what the unit does at boot, with the settings in /etc/nvme_raid/scratch.json
    nvme-raid --trim scratch              tell the disks which blocks are free, as its timer does every week

Without Ansible: it carries the same files as the Ansible module, and decides by the same rules. It never gives consent: settings
that do are refused. Exit status: 0 the file system is there, 1 it is not, and standard error says why.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.apply import Keeper, Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.here import wanted_here
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import may_tell_more
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.points import hold
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.read import unprobed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted, bad_input
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.trim import trim
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.work import settle

#: Where the role writes NAME.json.
FOLDER = "/etc/nvme_raid"
# What a disk may still mend that appears a moment later, or that the kernel has found only in part.
_MAY_APPEAR = ("disk_missing", "unreadable")
_CONSENT = ("allow_format", "allow_data_loss")


class Processes:
    """Runs commands the way ``AnsibleModule`` does."""

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        """Run a command and return its exit status, output and errors."""
        environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
        ran = subprocess.run(args, capture_output=True, text=True, errors="replace", env=environment, check=False)
        return ran.returncode, ran.stdout, ran.stderr


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the role wrote: the request, and how long to wait for disks that appear late, in seconds."""

    wanted: Wanted
    wait_s: float


def load(path: str) -> Settings:
    """The settings in a file. Raises ClusterError, OSError, or ValueError where they are none, or give consent."""
    with open(path, encoding="utf-8") as handle:
        settings = json.load(handle)
    if not isinstance(settings, dict) or any(settings.get(key) for key in _CONSENT):
        raise bad_input(
            f"{path} is not a settings file of nvme_raid, or it gives consent.",
            "Consent is given in plays only. Write the file again with the role.",
        )
    unknown = sorted(set(settings) - {field.name for field in dataclasses.fields(Wanted)} - {"wait_s"})
    if unknown:
        raise bad_input(
            f"{path} has settings that nvme_raid does not know: {', '.join(unknown)}.",
            "Take them out, or write the file again with the role: what is misspelled would count for nothing.",
        )
    return Settings(wanted_here(settings), float(settings.get("wait_s", 0)))


def bring_up_or_protect(settings: Settings) -> Outcome:
    """Make the file system usable; where that fails, nothing writes to the directory below it in its place.

    Where disks are expected, that holds from the start: the unit may be ended because its time is over.
    """
    if settings.wanted.expected_disks:
        _protect(settings.wanted)
    try:
        return bring_up(settings)
    except ClusterError:
        _protect(settings.wanted)
        raise


def _protect(wanted: Wanted) -> None:
    # What is in the way there is told by the plan.
    with contextlib.suppress(OSError):
        hold(Path("/"), wanted.name, wanted.mount_point)


def bring_up(settings: Settings) -> Outcome:
    """Make the file system usable. Disks may still be appearing, so a missing one is waited for.

    That holds for arrays with copies, too: started without a disk that comes a moment later, they would have to copy it.
    """
    runner = Processes()
    until = time.monotonic() + settings.wait_s
    while True:
        settle(runner, int(settings.wait_s) or 1)
        keeper = Keeper(runner, settings.wanted)
        if time.monotonic() >= until:
            return keeper.run(check=False)
        if _complete(keeper):
            try:
                return keeper.run(check=False)
            except ClusterError as exc:
                if exc.kind not in _MAY_APPEAR:
                    raise
        time.sleep(1)


def _complete(keeper: Keeper) -> bool:
    """Whether no disk is missing that may still appear. Raises ClusterError for what waiting does not mend."""
    if unprobed():
        return False
    try:
        looked = keeper.run(check=True).plan
    except ClusterError as exc:
        if exc.kind not in _MAY_APPEAR:
            raise
        return False
    return not looked.degraded and not may_tell_more(looked.verdicts)


def _trim(wanted: Wanted) -> int:
    """Trim what is mounted, and report to the journal; returns the exit status."""
    if not os.path.ismount(wanted.mount_point):
        sys.stderr.write(f"nvme_raid: nothing is mounted at {wanted.mount_point}\n")
        return 1
    told = trim(wanted.mount_point)
    text = "the disks cannot be told which blocks are free" if told is None else f"{told >> 20} MiB are free"
    sys.stdout.write(f"nvme_raid: {text}\n")
    return 0


def _parse(arguments: t.Sequence[str] | None) -> tuple[str, bool]:
    parser = argparse.ArgumentParser(
        prog="nvme-raid", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("name", help="of the array")
    parser.add_argument("--trim", action="store_true", help="tell the disks which blocks are free, and do nothing else")
    parser.add_argument("--folder", default=FOLDER, help="of the settings (default: %(default)s)")
    options = parser.parse_args(arguments)
    return os.path.join(options.folder, f"{options.name}.json"), options.trim


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Run the command line, and report to the journal; returns the exit status."""
    path, only_trim = _parse(arguments)
    try:
        if only_trim:
            return _trim(load(path).wanted)
        outcome = bring_up_or_protect(load(path))
    except ClusterError as exc:
        sys.stderr.write(f"nvme_raid: {exc}\n")
        return 1
    except (OSError, TypeError, ValueError) as exc:
        sys.stderr.write(f"nvme_raid: {path}: {exc}\n")
        return 1
    for line in [step.what for step in outcome.steps] or ["nothing to do"]:
        sys.stdout.write(f"nvme_raid: {line}\n")
    for note in [*outcome.plan.notes, *outcome.plan.warnings, *filter(None, [outcome.plan.degraded])]:
        sys.stderr.write(f"nvme_raid: note: {note}\n")
    return 0


__all__ = ["FOLDER", "Settings", "bring_up", "bring_up_or_protect", "load", "main"]
