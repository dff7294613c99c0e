# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The half of ``rdma_stack`` that brings its files onto the node and makes them count now, where that does no harm."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import stat
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change, Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import shows_password
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_running, systemctl
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.read import missing_parents
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import NOTHING, file_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import excludes, files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.limits import (
    in_kernel_s_words,
    limit_allowed,
    read_defaults,
)

_RXE_UNIT = os.path.basename(files.RXE)

_Edit = t.Callable[[str], str]


def _with_keys(text: str, values: t.Mapping[str, str]) -> str:
    for key, value in values.items():
        text = files.set_key(text, key, value)
    return text


class NodeSettings:
    """Plans and writes the files of :mod:`files`, the two files of others that are edited, and kernel settings.

    Without ``live``, as for an image, nothing that runs is touched.
    """

    def __init__(self, host: Host, settings: files.Settings, *, live: bool = True, root: Path = Path("/")) -> None:
        self.host = host
        self.settings = settings
        self.live = live
        self.root = root
        self.not_applied: list[dict[str, str]] = []
        self.changes = Changes()

    def _skip(self, what: str, reason: str) -> None:
        self.not_applied.append({"what": what, "reason": reason})

    # -- files of our own ------------------------------------------------------------------------------------------

    def allowed_limits(self, limits: t.Mapping[str, str], option: str = "limits") -> dict[str, str]:
        """The limits that this machine can give; the others would lock its users out."""
        kept = {}
        for name, value in limits.items():
            if limit_allowed(name, value, option):
                kept[name] = value
            else:
                self._skip(f"limit {name}", f"this machine does not let root set it to {value}")
        return kept

    def allowed_names(self) -> bool:
        """Whether udev is to name devices by rules of ours. An image's own are kept with it, those of others are not replaced."""
        wanted = self.settings.persistent_names and not self.settings.user_space_only
        if not wanted or not os.path.lexists(files.NAMES) or self._ours(files.NAMES):
            return wanted
        if self.settings.source == "preinstalled" and not self.settings.device_names:
            self._skip("names of RDMA devices", f"the image names them: {files.NAMES} is its own")
            return False
        raise ClusterError(
            "in_the_way",
            f"{files.NAMES} exists and is not ours.",
            "Move it away, or set `persistent_names: false` to keep it.",
        )

    def request(self) -> dict[str, t.Any]:
        """What node_state is asked for: the wanted files, and the disappearance of those of switches that are off."""
        # They come with a package that may have been installed or replaced in this very run.
        rules = read_text(Path(files.DISTRIBUTION_NAMES))
        wanted = files.wanted_files(dataclasses.replace(self.settings, distribution_names=rules))
        # An earlier run may have put the stack into the image, and these with it.
        kept = (files.OPENIBD, files.PINS) if self.settings.source == "preinstalled" else ()
        return self._request(wanted, kept)

    def pins(self) -> dict[str, t.Any]:
        """The file that has to be there before a vendor's packages are chosen."""
        text = files.wanted_files(self.settings).get(files.PINS)
        return {**NOTHING, "files": [file_request(files.PINS, text)] if text else []}

    def removal(self) -> dict[str, t.Any]:
        """The same with nothing wanted."""
        return self._request({})

    def _request(self, wanted: t.Mapping[str, str], kept: t.Collection[str] = ()) -> dict[str, t.Any]:
        gone: list[t.Any] = [path for path in files.OWNED if path not in (*wanted, *kept) and self._ours(path)]
        gone += [
            {"path": os.path.dirname(path), "if_empty": True}
            for path in (files.OPENIBD, files.SERVICE_LIMITS)
            if path in gone
        ]
        rxe = files.RXE in wanted
        unit: dict[str, t.Any] = {"name": _RXE_UNIT, "state": "stopped", "enabled": False, "restart_on": []}
        if rxe:
            unit |= {"state": "started" if self.live else None, "enabled": True, "restart_on": [files.RXE]}
        return {
            **NOTHING,
            "directories": missing_parents(wanted),
            "files": [file_request(path, text) for path, text in wanted.items()],
            "absent": gone,
            "units": [unit] if rxe or files.RXE in gone else [],
        }

    def _ours(self, path: str) -> bool:
        return read_text(Path(path)).startswith(files.HEADER.strip())

    def write(self, request: dict[str, t.Any], *, check: bool) -> None:
        """Bring the files and the unit about."""
        state = NodeState(request, self.host)
        state.run(check=check)
        self.changes.add(*state.changes)

    # -- files of others -------------------------------------------------------------------------------------------

    def edit(self, edits: t.Mapping[str, t.Mapping[str, str] | None], *, check: bool) -> None:
        """Set keys in files that exist; None restores what was there before."""
        changes: dict[str, _Edit] = {}
        for path, values in edits.items():
            if os.path.isfile(path):
                changes[path] = files.restore_keys if values is None else functools.partial(_with_keys, values=values)
        self._rewrite(changes, check=check)

    def edit_repositories(self, *, exclude: bool, check: bool) -> None:
        """Let dnf's repositories beside the vendor's own exclude what its stack brings; or offer it again."""
        if self.settings.manager != "rpm":
            return
        change = (
            functools.partial(excludes.exclude, was=files.WAS, added=files.ADDED) if exclude else files.restore_keys
        )
        found = (self.root / excludes.DIRECTORY.lstrip("/")).glob("*.repo")
        # A pipe would keep its reader waiting for ever.
        paths = sorted(str(path) for path in found if path.is_file())
        self._rewrite({path: change for path in paths if not excludes.is_vendor_s(path)}, check=check)

    def _rewrite(self, changes: t.Mapping[str, _Edit], *, check: bool) -> None:
        """Files of others, whose owner and mode stay."""
        entries = []
        for path, change in changes.items():
            text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
            changed = change(text)
            if changed != text:
                now = os.stat(path)
                # A repository's password: in a file that others may not read, or one that is readable already.
                private = not now.st_mode & stat.S_IROTH or shows_password(text)
                mode = f"0{now.st_mode & 0o7777:03o}"
                owner, group = str(now.st_uid), str(now.st_gid)
                entries.append(file_request(path, changed, mode, owner, group, sensitive=private))
        if entries:
            self.write({**NOTHING, "files": entries}, check=check)

    # -- now -------------------------------------------------------------------------------------------------------

    def apply_sysctl(self, *, check: bool) -> None:
        """Set what differs, where the kernel is this machine's and lets us."""
        if not self.live:
            return
        for key, value in self.settings.sysctl.items():
            path = self.root / "proc/sys" / key.replace(".", "/")
            if self.settings.container:
                self._skip(key, "this is a container: kernel settings are its host's")
            elif not path.exists():
                self._skip(key, "this kernel has no such setting now; it counts once its module is loaded")
            elif read_text(path).split() != value.split():
                if not os.access(path, os.W_OK):
                    self._skip(key, "the kernel does not let it be written")
                    continue
                change = Change("sysctl", key, f"set to {value}", f"{read_text(path)}\n", f"{value}\n")
                if not check:
                    try:
                        path.write_text(value, encoding="ascii")
                    except OSError as exc:
                        self._skip(key, f"the kernel refused {value}: {exc.strerror}")
                        continue
                self.changes.add(change)

    def check_rxe(self) -> None:
        """Say what is missing for RDMA over Ethernet before a unit fails for it."""
        netdev = self.settings.rxe_netdev
        if not netdev or not self.live:
            return
        if not (self.root / "sys/class/net" / netdev).exists():
            names = sorted(path.name for path in (self.root / "sys/class/net").glob("*"))
            raise ClusterError(
                "no_interface", f"There is no interface {netdev}: {', '.join(names)}.", "Correct `rxe_netdev`."
            )
        if (self.root / "sys/module/rdma_rxe").exists():
            return
        if self.host.run_command(["modprobe", "--dry-run", "--quiet", "rdma_rxe"])[0] != 0:
            raise ClusterError(
                "module_missing",
                "This kernel has no module rdma_rxe.",
                "Install the package that carries it (Ubuntu: linux-modules-extra-$(uname -r), EL: kernel-modules-extra).",
            )

    def revive_rxe(self, *, check: bool) -> None:
        """Make the device again that was deleted under a unit that is still active."""
        if not self.settings.rxe_netdev or not self.live or self._rxe_exists():
            return
        if self.changes.names("unit"):
            return
        self.changes.note("unit", _RXE_UNIT, "restart", f"no {self.settings.rxe_device}\n", "active\n")
        if not check:
            systemctl(self.host, "restart", _RXE_UNIT)
            if not self._rxe_exists():
                raise ClusterError(
                    "no_device",
                    f"{_RXE_UNIT} was restarted and made no {self.settings.rxe_device}.",
                    f"Read `journalctl -u {_RXE_UNIT}` on the node.",
                )

    def _rxe_exists(self) -> bool:
        return (self.root / "sys/class/infiniband" / self.settings.rxe_device).exists()

    def reread_service_limits(self) -> None:
        """Services that are started from now on get the limits. Of a file that is gone systemd forgets only when it starts anew."""
        if self.live and is_running() and (files.SERVICE_LIMITS in self.changes.names() or self._limits_unread()):
            systemctl(self.host, "daemon-reexec")

    def _limits_unread(self) -> bool:
        """Whether systemd hands out others than the file says: a run that wrote it may have ended before systemd read it."""
        wanted = self.settings.service_limits
        found = read_defaults(self.host) if wanted else {}
        return any(
            set(found[name]) != {in_kernel_s_words(name, value)} for name, value in wanted.items() if name in found
        )

    def reload_udev(self, users: t.Callable[[], t.Sequence[str]]) -> None:
        """New rules count at once; names of devices that are there change only while nobody uses RDMA."""
        changed = set(self.changes.names()) & {files.NAMES, files.READ_AHEAD}
        if not changed or not self.live or not (self.root / "run/udev/control").exists():
            return
        self.host.run_command(["udevadm", "control", "--reload"])
        if files.NAMES not in changed or not list((self.root / "sys/class/infiniband").glob("*")):
            return
        if users():
            self._skip("names of RDMA devices", "RDMA is in use; they change at the next boot")
            return
        self.host.run_command(["udevadm", "trigger", "--action=add", "--subsystem-match=infiniband"])
        with contextlib.suppress(OSError):
            self.host.run_command(["udevadm", "settle", "--timeout=30"])


__all__ = ["NodeSettings"]
