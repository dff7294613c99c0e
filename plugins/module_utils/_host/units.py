# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""systemd's units: what is known of them, and ``systemctl`` as every package calls it."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host, Runner

#: Exists while systemd runs the machine; missing in a chroot.
SYSTEMD = "/run/systemd/system"
#: Where systemd looks for units: a change below one of these needs a daemon-reload.
UNIT_DIRECTORIES = ("/etc/systemd/system/", "/run/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/")
_SHOW = "LoadState,ActiveState,UnitFileState,NeedDaemonReload"


@dataclasses.dataclass(frozen=True)
class UnitState:
    """What systemd knows of a unit, in its own words; ``file_state`` is empty when there is no unit file."""

    load: str = "not-found"
    active: str = "inactive"
    file_state: str = ""
    needs_reload: bool = False

    @property
    def known(self) -> bool:
        """Whether systemd could load the unit, or would once it runs."""
        return self.load not in ("not-found", "") or self.file_state not in ("", "not-found")


def is_running() -> bool:
    """Whether systemd runs this machine. It does not in an image under construction."""
    return os.path.isdir(SYSTEMD)


def read_units(host: Host, names: t.Sequence[str]) -> dict[str, UnitState]:
    """The state of each unit by its name."""
    if not names:
        return {}
    if is_running():
        rc, out, err = host.run_command(["systemctl", "show", "-p", _SHOW, "--", *names])
        if rc != 0:
            raise ClusterError("systemctl_failed", f"systemctl show failed: {err.strip()}", "Check systemd.")
        return parse_units(names, out)
    states = {}
    for name in names:
        # Without a running systemd only the files can be asked.
        _rc, out, _err = host.run_command(["systemctl", "is-enabled", "--", name])
        states[name] = UnitState("", "inactive", out.strip())
    return states


def parse_units(names: t.Sequence[str], output: str) -> dict[str, UnitState]:
    """Read what `systemctl show -p LoadState,...` says: a block per unit, in their order."""
    blocks = output.strip("\n").split("\n\n")
    states = {}
    for name, block in zip(names, blocks):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "LoadState" not in fields:
            break
        states[name] = UnitState(
            load=fields["LoadState"],
            active=fields.get("ActiveState", "inactive"),
            file_state=fields.get("UnitFileState", ""),
            needs_reload=fields.get("NeedDaemonReload") == "yes",
        )
    if len(states) != len(set(names)):
        raise ClusterError("bad_output", "systemctl show did not answer for every unit.", f"It said: {output[:200]!r}")
    return states


def is_active(host: Host, name: str) -> bool:
    """Whether a unit runs now."""
    return host.run_command(["systemctl", "is-active", "--quiet", name])[0] == 0


def started_us(host: Runner, name: str) -> int:
    """When the main process of a service that runs began, in microseconds of CLOCK_MONOTONIC; 0 where none runs."""
    asked = "ActiveState,ExecMainStartTimestampMonotonic"
    _rc, out, _err = host.run_command(["systemctl", "show", "-p", asked, "--", name])
    fields = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    # systemd keeps the time of a process that has ended.
    runs = fields.get("ActiveState") in ("active", "reloading")
    return int(fields.get("ExecMainStartTimestampMonotonic") or 0) if runs else 0


def allow_start(host: Host, name: str) -> None:
    """Let a unit be started although it was started often just now: docker.service may be three times a minute (StartLimitBurst)."""
    host.run_command(["systemctl", "reset-failed", name])


def systemctl(host: Host, verb: str, *names: str) -> None:
    """``daemon-reload``, or ``start``, ``stop``, ``enable``, ``reload``... of units, which must succeed.

    The error has the units' last words as its detail ``status``.
    """
    rc, _out, err = host.run_command(["systemctl", verb, *names])
    if rc == 0:
        return
    _rc, status, _err = host.run_command(["systemctl", "status", "--no-pager", "--lines=20", *names])
    raise ClusterError(
        "systemctl_failed",
        f"`systemctl {' '.join([verb, *names])}` failed: {err.strip()}",
        f"Read `journalctl -u {' -u '.join(names)}` on the node." if names else "Read the journal of the node.",
        status=status[-4000:],
    )


def attempt(host: Host, verb: str, name: str) -> str:
    """``start`` or ``stop`` a unit that need not succeed; returns why it did not, on one line, or an empty text."""
    rc, _out, err = host.run_command(["systemctl", verb, name])
    return " ".join(err.split())[:200] or f"exit status {rc}" if rc else ""


def has_unit_file(name: str, paths: t.Iterable[str]) -> bool:
    """Whether the unit's own file is among the paths."""
    return any(path.startswith(UNIT_DIRECTORIES) and path.rsplit("/", 1)[-1] == name for path in paths)


def needs_daemon_reload(changed_paths: t.Iterable[str], states: t.Iterable[UnitState]) -> bool:
    """Whether systemd's view of its unit files is older than the files."""
    return any(p.startswith(UNIT_DIRECTORIES) for p in changed_paths) or any(s.needs_reload for s in states)


__all__ = [
    "SYSTEMD",
    "UNIT_DIRECTORIES",
    "UnitState",
    "allow_start",
    "attempt",
    "has_unit_file",
    "is_active",
    "is_running",
    "needs_daemon_reload",
    "parse_units",
    "read_units",
    "started_us",
    "systemctl",
]
