# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The command that the unit of the role ``nvme_raid`` runs at boot: the module's own rules, without Ansible.

    python3 -m ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.boot /etc/nvme_raid/scratch.json

Never gives consent: a settings file that does is refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.apply import (
    Keeper,
    Outcome,
    settle,
    wanted_here,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.judge import may_tell_more
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.read import unprobed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import bad_input

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


def load(path: str) -> dict[str, t.Any]:
    """The settings that the role wrote."""
    with open(path, encoding="utf-8") as handle:
        settings = json.load(handle)
    if not isinstance(settings, dict) or any(settings.get(key) for key in _CONSENT):
        raise bad_input(f"{path} is not a settings file of nvme_raid, or it gives consent.", "Write it with the role.")
    return settings


def bring_up(settings: dict[str, t.Any], wait_s: float) -> Outcome:
    """Make the array usable. Disks may still be appearing, so a missing one is waited for.

    That holds for arrays with copies, too: started without a disk that comes a moment later, they would have to copy it.
    """
    runner = Processes()
    until = time.monotonic() + wait_s
    while True:
        settle(runner, int(wait_s) or 1)
        in_time = time.monotonic() < until
        if in_time and unprobed():
            time.sleep(1)
            continue
        try:
            keeper = Keeper(runner, wanted_here(settings))
            if not in_time:
                return keeper.run(check=False)
            looked = keeper.run(check=True).plan
            if not looked.degraded and not may_tell_more(looked.verdicts):
                return keeper.run(check=False)
        except ClusterError as exc:
            if exc.kind not in _MAY_APPEAR or not in_time:
                raise
        time.sleep(1)


def main(argv: t.Sequence[str]) -> int:
    """Report to the journal; 1 where the array is not there."""
    try:
        settings = load(argv[1])
        outcome = bring_up(settings, float(settings.get("wait_s", 0)))
    except ClusterError as exc:
        sys.stderr.write(f"nvme_raid: {exc}\n")
        return 1
    except (OSError, ValueError) as exc:
        sys.stderr.write(f"nvme_raid: {argv[1]}: {exc}\n")
        return 1
    for line in [step.what for step in outcome.steps] or ["nothing to do"]:
        sys.stdout.write(f"nvme_raid: {line}\n")
    for note in [*outcome.plan.notes, *outcome.plan.warnings, *filter(None, [outcome.plan.degraded])]:
        sys.stderr.write(f"nvme_raid: note: {note}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
