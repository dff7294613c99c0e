# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Modules that Ansible left as files on a node, with a SAS among their options.

The actions send a SAS through stdin only. Versions before that sent files, and one whose process was killed stays for ever.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t

_OURS = re.compile(r"AnsiballZ_(?:azcopy_copy|dataset_plan|dataset_stage|dataset_upload)\.py")
_WRAPPER = "async_wrapper.py"
#: A signature as it stands among options, or percent-encoded. Modules are less than 1 MB.
_SIGNATURE = re.compile(rb"(?i)sig(?:=|%3d)[a-z0-9%+/]{8}")
_MOST_BYTES = 16 << 20


def remote_directories(remote_tmp: str) -> list[str]:
    """Where Ansible may have put its files: below its ``remote_tmp``, of this user and who became it, and where all may write."""
    homes = [os.path.expanduser(remote_tmp)]
    login = os.environ.get("SUDO_USER", "")
    if login and remote_tmp.startswith("~/"):
        homes.append(os.path.expanduser(f"~{login}{remote_tmp[1:]}"))
    return [*dict.fromkeys((*homes, "/var/tmp", "/tmp"))]  # noqa: S108 - only what has a name and content of ours goes


def sweep_payloads(directories: t.Iterable[str]) -> list[str]:
    """Delete the modules of ours that hold a SAS and no longer run; returns the directories that they were in."""
    running = _command_lines()
    swept = []
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith("ansible-tmp-") and os.fsencode(entry.path) not in running:
                    with contextlib.suppress(OSError):
                        if _sweep(entry.path):
                            swept.append(entry.path)
    return swept


def _sweep(path: str) -> bool:
    """Delete what is ours in one directory of Ansible's, and the directory where nothing else is in it."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        ours = [name for name in os.listdir(directory) if _OURS.fullmatch(name) and _holds_sas(directory, name)]
        for name in ours:
            os.unlink(name, dir_fd=directory)
        if ours:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_WRAPPER, dir_fd=directory)
    finally:
        os.close(directory)
    if ours:
        with contextlib.suppress(OSError):  # other files are in it
            os.rmdir(path)
    return bool(ours)


def _holds_sas(directory: int, name: str) -> bool:
    # Who owns the directory may have put a pipe there, or a link.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as stream:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and bool(_SIGNATURE.search(stream.read(_MOST_BYTES)))


def _command_lines() -> bytes:
    """The arguments of all processes."""
    lines = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as stream:
                lines.append(stream.read())
    return b"\n".join(lines)


__all__ = ["remote_directories", "sweep_payloads"]
