# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Limits of processes: which of them this machine can give, and those of services, which get systemd's and not PAM's."""

from __future__ import annotations

import os
import re
import resource
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner

# A number of more digits is beyond what the kernel takes.
_LIMIT = re.compile(r"unlimited|-1|[0-9]{1,18}")
_LIMITS = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "stack": resource.RLIMIT_STACK}
#: What /proc calls a limit, and systemd.
_NAMES = {
    "memlock": ("Max locked memory", "MEMLOCK"),
    "nofile": ("Max open files", "NOFILE"),
    "stack": ("Max stack size", "STACK"),
}
# limits.conf counts memory in KiB, the kernel and systemd in bytes.
_KIB = ("memlock", "stack")
_SERVICE = ("timeout", "30", "systemd-run", "--quiet", "--wait", "--pipe", "--collect", "/bin/cat", "/proc/self/limits")
UNLIMITED = "unlimited"


def limit_allowed(name: str, value: str, option: str = "limits") -> bool:
    """Whether this machine lets root set a limit, tried in a child.

    A limit that PAM is told to set and may not (a container without the right, nofile above fs.nr_open) keeps every
    user from logging in.
    """
    if name not in _LIMITS:
        raise ClusterError(
            "bad_input", f"`{option}` has {name!r}, which cannot be set.", f"Choose from {', '.join(_LIMITS)}."
        )
    if not _LIMIT.fullmatch(value):
        raise ClusterError(
            "bad_input",
            f"`{option}` has {value!r} for {name}, which is no limit.",
            "Write a number without a unit, or unlimited. Nothing has been changed.",
        )
    wanted = resource.RLIM_INFINITY if value == "unlimited" else int(value)
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(_LIMITS[name], (wanted, wanted))
        except (OSError, ValueError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def manager_file(limits: t.Mapping[str, str]) -> str:
    """The section for systemd's configuration. ``limits`` are those of limits.conf."""
    rows = [f"DefaultLimit{_NAMES[name][1]}={_to_systemd(name, value)}\n" for name, value in limits.items()]
    return "[Manager]\n" + "".join(rows)


def _to_systemd(name: str, value: str) -> str:
    if value in (UNLIMITED, "-1"):
        return "infinity"
    return f"{value}K" if name in _KIB else value


def in_kernel_s_words(name: str, value: str) -> str:
    """A limit of limits.conf as /proc shows it."""
    if value in (UNLIMITED, "-1"):
        return UNLIMITED
    return str(int(value) * 1024) if name in _KIB else value


def read_limits(host: Runner) -> dict[str, tuple[str, str]]:
    """The soft and hard limits of a service that systemd starts for this, by name; empty where it tells nothing.

    Without a bus systemd starts nothing for us: then what it would hand out.
    """
    rc, out, _err = host.run_command(list(_SERVICE))
    return (parse_proc(out) if rc == 0 else {}) or read_defaults(host)


def parse_proc(output: str) -> dict[str, tuple[str, str]]:
    """Read /proc/PID/limits: a name, two values, a unit."""
    found = {}
    for name, (told, _systemd) in _NAMES.items():
        match = re.search(rf"^{told}\s+(\S+)\s+(\S+)", output, re.MULTILINE)
        if match:
            found[name] = (match[1], match[2])
    return found


def read_defaults(host: Runner) -> dict[str, tuple[str, str]]:
    """What systemd hands out to services that say nothing, as :func:`read_limits` has it."""
    keys = [f"DefaultLimit{systemd}{kind}" for _told, systemd in _NAMES.values() for kind in ("Soft", "")]
    _rc, out, _err = host.run_command(["systemctl", "show", *[f"--property={key}" for key in keys]])
    values = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    told = {key: value.replace("infinity", UNLIMITED) for key, value in values.items()}
    return {
        name: (told[f"DefaultLimit{systemd}Soft"], told[f"DefaultLimit{systemd}"])
        for name, (_told, systemd) in _NAMES.items()
        if f"DefaultLimit{systemd}" in told and f"DefaultLimit{systemd}Soft" in told
    }


__all__ = [
    "UNLIMITED",
    "in_kernel_s_words",
    "limit_allowed",
    "manager_file",
    "parse_proc",
    "read_defaults",
    "read_limits",
]
