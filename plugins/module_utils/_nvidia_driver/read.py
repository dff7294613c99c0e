# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The running half of a node's driver: what the kernel has loaded, who uses the GPUs, unloading, and draining."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.plan import Loaded

# In the order in which they let go of each other.
_MODULES = ("nvidia_fs", "nvidia_peermem", "gdrdrv", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
#: Those that make a driver; the others are extras, some of them from packages of their own.
BASE_MODULES = ("nvidia", "nvidia_uvm")
# Services that keep the driver open by themselves; they are stopped for the time that it is away.
_FABRIC_MANAGER = "nvidia-fabricmanager.service"
_SERVICES = ("nvidia-dcgm.service", "dcgm.service", _FABRIC_MANAGER, "nvidia-persistenced.service")
_SERVICE_PROGRAMS = frozenset(
    {"nvidia-persistenced", "nvidia-persiste", "nv-fabricmanager", "nv-fabricmanage", "nv-hostengine"}
)
_LIBRARY_PATHS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
)
# Debian names the files nvidia-current.ko and so on, and lets modprobe find them; in the kernel they are nvidia all the same.
_FILE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
_DRAIN_REASON = "hpcai.gpu_cluster.nvidia_driver"
_POLL_S = 5.0
# States of a node that has jobs, or is still cleaning up after one.
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


@dataclasses.dataclass(frozen=True)
class Away:
    """What has to come back when a driver runs again: the modules that went and the services that were stopped."""

    modules: t.Sequence[str] = ()
    units: t.Sequence[str] = ()


def read_loaded(root: Path) -> Loaded:
    """The NVIDIA module that the kernel runs."""
    text = read_text(root / "proc/driver/nvidia/version")
    found = re.search(r"Kernel Module.*?\s(\d{3}\.\d+(?:\.\d+)?)\s", text + "\n")
    version = read_text(root / "sys/module/nvidia/version") or (found.group(1) if found else "")
    if not version:
        return Loaded()
    parameters = {}
    for line in read_text(root / "proc/driver/nvidia/params").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            parameters[name.strip()] = value.strip()
    flavor = "" if not text else "open" if "Open Kernel Module" in text else "proprietary"
    return Loaded(version, flavor, parameters)


def read_libraries(root: Path) -> list[str]:
    """Versions of libnvidia-ml that are installed, whoever installed them: the file's name says it."""
    found = set()
    for directory in _LIBRARY_PATHS:
        for name in glob.glob(str(root / directory / "libnvidia-ml.so.*.*")):
            found.add(os.path.basename(name).replace("libnvidia-ml.so.", ""))
    return sorted(found)


def in_chroot() -> bool:
    """Whether this is an image under construction: the root directory is not that of the first process."""
    try:
        here, first = os.stat("/"), os.stat("/proc/1/root/.")
    except OSError:
        return not os.path.isdir("/run/systemd/system")
    return (here.st_dev, here.st_ino) != (first.st_dev, first.st_ino)


def gpu_users(root: Path) -> list[str]:
    """Processes that hold a GPU open, without NVIDIA's own services: ``name (pid)``."""
    users = []
    for process in glob.glob(str(root / "proc/[0-9]*")):
        opened = False
        with contextlib.suppress(OSError):
            for name in os.listdir(f"{process}/fd"):
                with contextlib.suppress(OSError):
                    opened = opened or os.readlink(f"{process}/fd/{name}").startswith("/dev/nvidia")
        if opened:
            program = read_text(Path(process) / "comm")
            if program not in _SERVICE_PROGRAMS:
                users.append(f"{program} ({os.path.basename(process)})")
    return sorted(users)


def module_on_disk(host: Host, kernel: str) -> tuple[str, str]:
    """Version and flavor of the module that ``modprobe nvidia`` would load; empty when there is none."""
    for name in _FILE_NAMES:
        rc, out, _err = host.run_command(["modinfo", "-k", kernel, name])
        if rc == 0:
            break
    else:
        return "", ""
    fields = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
    # The open module is dual-licensed, the other one says NVIDIA.
    flavor = "open" if "MIT" in fields.get("license", "") else "proprietary"
    return fields.get("version", "").strip(), flavor


def load(host: Host) -> None:
    """Load the driver."""
    for name in BASE_MODULES:
        rc, _out, err = host.run_command(["modprobe", name])
        if rc != 0:
            raise ClusterError(
                "module_failed",
                f"The kernel module {name} could not be loaded: {err.strip()}",
                "See dmesg and `dkms status`; with Secure Boot the module must be signed with an enrolled key.",
            )


def _stop(host: Host, units: t.Iterable[str]) -> list[str]:
    stopped = []
    for unit in units:
        if host.run_command(["systemctl", "is-active", "--quiet", unit])[0] == 0:
            host.run_command(["systemctl", "stop", unit])
            stopped.append(unit)
    return stopped


def stop_holders(host: Host) -> list[str]:
    """Stop the services that keep GPUs from being reset; returns those that ran.

    Not Fabric Manager, which NVSwitch systems need for a reset (nvidia-smi manual, ``--gpu-reset``).
    """
    return _stop(host, [unit for unit in _SERVICES if unit != _FABRIC_MANAGER])


def set_aside(host: Host, root: Path) -> list[str]:
    """Unload the modules that count as users of GPUs although nobody uses them; returns those that went.

    nvidia_drm is known for it (NVIDIA/mig-parted, "Known Issues"), nvidia_uvm as well. One that is really in use stays.
    """
    loaded = [name for name in ("nvidia_uvm", "nvidia_drm", "nvidia_modeset") if (root / "sys/module" / name).is_dir()]
    return [name for name in loaded if host.run_command(["modprobe", "-r", "-i", name])[0] == 0]


def bring_back(host: Host, modules: t.Sequence[str]) -> dict[str, str]:
    """Load again what was set aside, in the opposite order; returns those that cannot be, and why."""
    return _each(host, ["modprobe"], modules)


def start(host: Host, units: t.Sequence[str]) -> dict[str, str]:
    """Start again what was stopped, in the opposite order; returns those that do not start, and why."""
    return _each(host, ["systemctl", "start"], units)


def _each(host: Host, argv: t.Sequence[str], names: t.Sequence[str]) -> dict[str, str]:
    failed = {}
    for name in reversed(names):
        rc, _out, err = host.run_command([*argv, name])
        if rc != 0:
            failed[name] = " ".join(err.split())[:200]
    return failed


def unload(host: Host, root: Path) -> Away:
    """Unload the driver (or nouveau), and stop the services that hold it."""
    stopped = _stop(host, _SERVICES)
    users = gpu_users(root)
    present = [name for name in (*_MODULES, "nouveau") if (root / "sys/module" / name).is_dir()]
    if read_loaded(root).version and "nvidia" not in present:
        present.append("nvidia")
    failure = f"the GPUs are used by {', '.join(users[:8])}" if users else ""
    if not failure and present:
        # By the kernel's names, whatever the files are called, and without a distribution's own remove commands.
        rc, _out, err = host.run_command(["modprobe", "-r", "-i", *present])
        if rc != 0 and "not found" in err:
            # modprobe knows only what lies on the disk, and there somebody has removed them already.
            there = [name for name in present if (root / "sys/module" / name).is_dir()]
            rc, _out, err = host.run_command(["rmmod", *there])
        failure = "" if rc == 0 else err.strip()
    if failure:
        # modprobe takes them one by one, and some may have gone before the one that does not.
        for name in reversed(present):
            if name != "nvidia" and not (root / "sys/module" / name).is_dir():
                host.run_command(["modprobe", name])
        start(host, stopped)
        raise ClusterError(
            "in_use",
            f"The kernel module could not be unloaded: {failure}. What was unloaded and stopped for it runs again.",
            "Stop what uses the GPUs (a display manager, a monitoring agent, jobs), or set nvidia_driver_allow_reboot: true.",
        )
    return Away(present, stopped)


class Slurm:
    """Takes the node out of Slurm for the time of the change, and gives it back."""

    def __init__(self, host: Host, node: str, timeout_s: int) -> None:
        self.host, self.node, self.timeout_s = host, node, timeout_s

    def _show(self) -> tuple[set[str], str]:
        try:
            argv = ["scontrol", "-o", "show", "node", self.node]
            rc, out, err = self.host.run_command(argv, handle_exceptions=False)
        except OSError as exc:
            raise ClusterError(
                "drain_failed",
                f"Slurm's scontrol cannot be run on this node: {exc.strerror}.",
                "Install Slurm's commands, or link them into /usr/local/bin, or set nvidia_driver_drain: false.",
            ) from exc
        found = re.search(r"\bState=(\S+)", out)
        if rc != 0 or not found:
            raise ClusterError(
                "drain_failed",
                f"Slurm does not tell the state of {self.node}: {(err or out).strip()[:200]}",
                "Set nvidia_driver_slurm_node to the node's name in Slurm, or nvidia_driver_drain: false.",
            )
        reason = re.search(r"\bReason=(.*?)(?: \[|$)", out)
        return set(found.group(1).split("+")), reason.group(1).strip() if reason else ""

    def _update(self, *words: str) -> None:
        rc, out, err = self.host.run_command(["scontrol", "update", f"NodeName={self.node}", *words])
        if rc != 0:
            raise ClusterError(
                "drain_failed",
                f"scontrol update failed: {(err or out).strip()}",
                "The user needs to be a Slurm operator.",
            )

    def drained_by_us(self) -> bool:
        """Whether an earlier run took the node out and did not give it back."""
        states, reason = self._show()
        return "DRAIN" in states and reason == _DRAIN_REASON

    def drain(self, *, check: bool = False) -> bool:
        """Let no new job start, and wait until those that run have ended. Returns whether the node was in service."""
        serves = "DRAIN" not in self._show()[0]
        if check:
            return serves
        if serves:
            self._update("State=DRAIN", f"Reason={_DRAIN_REASON}")
        deadline = time.monotonic() + self.timeout_s
        while True:
            trouble = ClusterError(
                "drain_timeout",
                f"Jobs still run on {self.node} after {self.timeout_s} s. The node stays drained; nothing else was changed.",
                "Run again later, or raise nvidia_driver_drain_timeout_s.",
            )
            try:
                if not _BUSY & self._show()[0]:
                    return serves
            except ClusterError as exc:
                # Jobs may take hours, and a controller that restarts meanwhile comes back.
                message = f"{exc.message} The node stays drained; nothing else was changed."
                trouble = ClusterError(exc.kind, message, exc.remedy)
            if time.monotonic() > deadline:
                raise trouble
            time.sleep(_POLL_S)

    def resume(self) -> None:
        """Give the node back, if it was this role that took it."""
        if self.drained_by_us():
            self._update("State=RESUME")


__all__ = [
    "BASE_MODULES",
    "Away",
    "Slurm",
    "bring_back",
    "gpu_users",
    "in_chroot",
    "load",
    "module_on_disk",
    "read_libraries",
    "read_loaded",
    "set_aside",
    "start",
    "stop_holders",
    "unload",
]
