# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The one exception that the pure half raises and a module turns into ``fail_json``, also for a program that is not there."""

from __future__ import annotations

import contextlib
import os
import typing as t

#: Which package brings a program that modules run: of Debian and Ubuntu, and of EL.
_PACKAGES = {
    **dict.fromkeys(("depmod", "modinfo", "modprobe", "rmmod"), ("kmod", "kmod")),
    **dict.fromkeys(("journalctl", "systemctl"), ("systemd", "systemd")),
    **dict.fromkeys(("mount", "umount"), ("mount", "util-linux")),
    **dict.fromkeys(("blkid", "lsblk", "runuser", "wipefs"), ("util-linux", "util-linux")),
    "apt-mark": ("apt", "apt"),
    "dkms": ("dkms", "dkms"),
    "gluster": ("glusterfs-server", "glusterfs-server"),
    "ip": ("iproute2", "iproute"),
    "mkfs.ext4": ("e2fsprogs", "e2fsprogs"),
    "mkfs.xfs": ("xfsprogs", "xfsprogs"),
    "ssh": ("openssh-client", "openssh-clients"),
    "ssh-keygen": ("openssh-client", "openssh"),
    "sysctl": ("procps", "procps-ng"),
    "timeout": ("coreutils", "coreutils"),
    "udevadm": ("udev", "systemd-udev"),
    "update-initramfs": ("initramfs-tools", "initramfs-tools"),
}


class ClusterError(Exception):
    """Something went wrong that a person can act on.

    ``kind`` is a stable identifier for programs (``sas_expired``, ``disk_full``, ...), ``message`` says what happened and
    why, ``remedy`` the next step. None of them may hold a secret: they reach logs and reports.
    """

    def __init__(self, kind: str, message: str, remedy: str, **details: t.Any) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.kind = kind
        self.message = message
        self.remedy = remedy
        self.details = details

    def as_result(self) -> dict[str, t.Any]:
        """The keyword arguments of ``AnsibleModule.fail_json``: ``msg``, ``error_kind``, ``remedy`` and the details."""
        return {"msg": str(self), "error_kind": self.kind, "remedy": self.remedy, **self.details}


def cannot_start(program: str, exc: OSError) -> ClusterError:
    """What to say of a program that a module runs and the system could not start."""
    name = os.path.basename(program)
    # The script may be there, and what its first line names may not.
    if not isinstance(exc, FileNotFoundError) or os.path.exists(program):
        return ClusterError(
            "cannot_start", f"{program} cannot be started: {exc.strerror}.", "Correct this on the node, and run again."
        )
    debian, el = _PACKAGES.get(name, ("", ""))
    package = f"the package {debian}" + (f" (EL: {el})" if el != debian else "") if debian else "what brings it"
    return ClusterError(
        "program_missing", f"There is no {program} on this node.", f"Install {package}, and run again.", program=name
    )


def names_programs(module: t.Any) -> None:
    """Let ``run_command`` raise ``cannot_start`` for a program that is not there, where Ansible ends with "Error executing command."."""
    run: t.Callable[..., tuple[int, str, str]] = module.run_command

    def run_command(args: list[str], **options: t.Any) -> tuple[int, str, str]:
        if "handle_exceptions" in options:
            return run(args, **options)
        try:
            return run(args, handle_exceptions=False, **options)
        except OSError as exc:
            raise cannot_start(args[0], exc) from exc

    module.run_command = run_command


@contextlib.contextmanager
def failing(module: t.Any) -> t.Iterator[None]:
    """Around the work of a module: what goes wrong in it ends the module with ``fail_json``."""
    names_programs(module)
    try:
        yield
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    except OSError as exc:
        message = f"{exc.filename or 'A path'}: {exc.strerror}. Correct this on the node and run again."
        module.fail_json(msg=message, error_kind="os_error")


__all__ = ["ClusterError", "cannot_start", "failing", "names_programs"]
