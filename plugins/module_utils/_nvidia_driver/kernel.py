# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Take the driver out of the kernel and put it in, with the modules and services that come and go with it."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import attempt, is_active
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.holders import FABRIC_MANAGER, SERVICES

# In the order in which they let go of each other.
_MODULES = ("nvidia_fs", "nvidia_peermem", "gdrdrv", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
#: Those that make a driver; the others are extras, some of them from packages of their own.
BASE_MODULES = ("nvidia", "nvidia_uvm")


@dataclasses.dataclass(frozen=True)
class Away:
    """What has to come back when a driver runs again: the modules that went and the services that were stopped."""

    modules: t.Sequence[str] = ()
    units: t.Sequence[str] = ()


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


def load_others(host: Host, names: t.Iterable[str], remedy: str) -> None:
    """Load modules that are no part of the driver. ``remedy``: what helps where one cannot be loaded."""
    for name in names:
        rc, _out, err = host.run_command(["modprobe", name])
        if rc != 0:
            message = f"The kernel module {name} could not be loaded: {err.strip()}"
            raise ClusterError("module_failed", message, remedy)


def _stop(host: Host, units: t.Iterable[str]) -> list[str]:
    stopped = []
    for unit in units:
        if is_active(host, unit):
            # Where one does not stop, unloading tells who uses the GPUs.
            attempt(host, "stop", unit)
            stopped.append(unit)
    return stopped


def stop_holders(host: Host) -> list[str]:
    """Stop the services that keep GPUs from being reset; returns those that ran.

    Not Fabric Manager, which NVSwitch systems need for a reset (nvidia-smi manual, ``--gpu-reset``).
    """
    return _stop(host, [unit for unit in SERVICES if unit != FABRIC_MANAGER])


def set_aside(host: Host, root: Path) -> list[str]:
    """Unload the modules that count as users of GPUs although nobody uses them; returns those that went.

    nvidia_drm is known for it (NVIDIA/mig-parted, "Known Issues"), nvidia_uvm as well. One that is really in use stays.
    """
    loaded = [name for name in ("nvidia_uvm", "nvidia_drm", "nvidia_modeset") if _is_loaded(root, name)]
    return [name for name in loaded if host.run_command(["modprobe", "-r", "-i", name])[0] == 0]


def bring_back(host: Host, modules: t.Sequence[str]) -> dict[str, str]:
    """Load again what was set aside, in the opposite order; returns those that cannot be, and why."""
    failed = {}
    for name in reversed(modules):
        rc, _out, err = host.run_command(["modprobe", name])
        if rc != 0:
            failed[name] = " ".join(err.split())[:200]
    return failed


def start(host: Host, units: t.Sequence[str]) -> dict[str, str]:
    """Start again what was stopped, in the opposite order; returns those that do not start, and why."""
    said = {unit: attempt(host, "start", unit) for unit in reversed(units)}
    return {unit: why for unit, why in said.items() if why}


def unload(host: Host, root: Path) -> Away:
    """Unload the driver (or nouveau), and stop the services that hold it."""
    stopped = _stop(host, SERVICES)
    users = node.gpu_users(root)
    present = _present(root)
    failure = f"the GPUs are used by {', '.join(users[:8])}" if users else _remove(host, root, present)
    if failure:
        # modprobe takes them one by one, and some may have gone before the one that does not.
        for name in reversed(present):
            if name != "nvidia" and not _is_loaded(root, name):
                host.run_command(["modprobe", name])
        start(host, stopped)
        raise ClusterError(
            "in_use",
            f"The kernel module could not be unloaded: {failure}. What was unloaded and stopped for it runs again.",
            "Stop what uses the GPUs (a display manager, a monitoring agent, jobs), or set `allow_reboot: true`.",
        )
    return Away(present, stopped)


def _is_loaded(root: Path, name: str) -> bool:
    return (root / "sys/module" / name).is_dir()


def _present(root: Path) -> list[str]:
    """The modules of the driver that are loaded, and nouveau."""
    present = [name for name in (*_MODULES, "nouveau") if _is_loaded(root, name)]
    if node.read_loaded(root).version and "nvidia" not in present:
        present.append("nvidia")
    return present


def _remove(host: Host, root: Path, present: t.Sequence[str]) -> str:
    """Take these modules out of the kernel; returns why that does not work."""
    if not present:
        return ""
    # By the kernel's names, whatever the files are called, and without a distribution's own remove commands.
    rc, _out, err = host.run_command(["modprobe", "-r", "-i", *present])
    if rc != 0 and "not found" in err:
        # modprobe knows only what lies on the disk, and there somebody has removed them already.
        there = [name for name in present if _is_loaded(root, name)]
        rc, _out, err = host.run_command(["rmmod", *there])
    return "" if rc == 0 else err.strip()


__all__ = [
    "BASE_MODULES",
    "Away",
    "bring_back",
    "load",
    "load_others",
    "set_aside",
    "start",
    "stop_holders",
    "unload",
]
