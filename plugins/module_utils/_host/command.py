# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Run programs on a node: through ``AnsibleModule``, and jobs that must end in time, which that does not offer."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# How much longer than its own limit a job is waited for: mpirun ends what takes too long by itself, on all nodes.
_GRACE_S = 10


class Runner(t.Protocol):
    """Runs commands: ``AnsibleModule``, or what takes its place in a program that runs without Ansible."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        """Run a command and return its exit status, output and errors."""


class Host(Runner, t.Protocol):
    """What packages need of ``AnsibleModule``."""

    def get_bin_path(self, arg: str) -> str | None:
        """Where a program is, or None."""

    def selinux_default_context(self, path: str) -> list[t.Any]:
        """The parts of the label that the policy wants at a path; nothing without SELinux."""

    def set_context_if_different(self, path: str, context: list[t.Any], changed: bool) -> bool:
        """Label a path; does nothing without SELinux."""


def run_job(argv: list[str], user: str, timeout_s: int) -> tuple[int, str, str]:
    """Run the launcher in a process group of its own, and leave nothing of it behind. After ``timeout_s`` and ten seconds: an error."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    if (user or me) == "root":
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = argv if user in ("", me) else ["runuser", "-u", user, "--", *argv]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        cwd="/", env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=timeout_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(_GRACE_S)
        raise ClusterError(
            "timeout",
            f"The job did not end within {timeout_s} s and was killed.",
            "Check that the nodes reach each other on the network that MPI uses, or raise the time limit.",
        ) from None
    return process.returncode, stdout, stderr


__all__ = ["Host", "Runner", "run_job"]
