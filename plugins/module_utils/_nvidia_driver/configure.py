# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Let the driver that is installed run: its module, its services, and the modes of the GPUs."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_active, systemctl
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import gdrcopy, kernel, peermem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.modes import Modes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.plan import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.read import module_on_disk, vendor_unit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.running import Running
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.settings import (
    NO_PERSISTENCE,
    PERSISTENCED,
    SUBNET_MODULES,
)

_PERSISTENCED, _FABRIC_MANAGER = "nvidia-persistenced.service", "nvidia-fabricmanager.service"
_DCGM = "nvidia-dcgm.service"
_NO_SUBNET = (
    "Fabric Manager reaches the NVSwitches of this node over InfiniBand: install the rest of the kernel's modules "
    "(linux-modules-extra-… on Ubuntu, kernel-modules-extra on EL), or DOCA-OFED."
)


def _unit(name: str) -> dict[str, t.Any]:
    return {"name": name, "state": "started", "enabled": True, "restart_on": []}


def own_units(request: Request, facts: Facts, wanted: Wanted) -> list[str]:
    """The role's services, as far as packages have brought them."""
    units = [_PERSISTENCED]
    units += [_FABRIC_MANAGER] if wanted.fabric else []
    units += [_DCGM] if request.dcgm else []
    # A unit that a package is still to bring is started with it.
    return [name for name in units if vendor_unit(facts.root, name)]


def own_modules(request: Request, wanted: Wanted) -> list[str]:
    """The modules besides the driver that every run has to find loaded."""
    return [*([peermem.MODULE] if wanted.peermem else []), *([gdrcopy.MODULE] if request.gdrcopy else [])]


def brought_back(request: Request, facts: Facts, wanted: Wanted) -> list[str]:
    """What a run that finishes a change starts and loads, besides the driver."""
    return [*own_units(request, facts, wanted), *own_modules(request, wanted)]


def _runs_without_persistence(root: Path) -> bool:
    commands = (read_text(path).split("\0") for path in (root / "proc").glob("[0-9]*/cmdline"))
    return any(words[0].endswith("nvidia-persistenced") and NO_PERSISTENCE in words for words in commands)


class Configuration:
    """The last step of one run, after the driver was installed."""

    def __init__(self, request: Request, facts: Facts, wanted: Wanted, running: Running, record: Record) -> None:
        self.request, self.facts, self.wanted, self.running, self.record = request, facts, wanted, running, record
        self.live = not facts.chroot and bool(facts.hardware.gpus) and not running.reboot
        self.loads = self.live and not running.loaded.version

    def run(self, *, new_fabric: bool, new_settings: t.Collection[str]) -> None:
        """Load the driver where none runs, and start its services.

        ``new_fabric``: Fabric Manager was replaced. ``new_settings``: the files of units that changed.
        """
        if self.loads:
            self._load()
        self._build_for_next_kernel()
        if self.running.reboot:
            return
        there = own_units(self.request, self.facts, self.wanted)
        try:
            if self.live and self.wanted.peermem:
                self._ensure_peermem()
            if self.live and self.wanted.nvlink5:
                self._load_subnet_modules()
            units = [_unit(name) for name in there] if self.live or self.facts.chroot else []
            self.record.state({"units": units})
        finally:
            if self.loads and not self.record.check:
                self.running.start_others(there)
        if self.live and new_fabric:
            # Its package replaces the program and lets the old one run. Without NVSwitches it may lie there, and does not start.
            self._restart(_FABRIC_MANAGER, wanted=_FABRIC_MANAGER in there)
        if self.live and (PERSISTENCED in new_settings or _runs_without_persistence(self.facts.root)):
            # One that its package has started runs as the package says, also after a run that failed before it came here.
            self._restart(_PERSISTENCED, wanted=False)
        if self.live and self.request.gdrcopy:
            # Last: nothing that GPUs need waits for it.
            self._ensure_gdrdrv()

    def _build_for_next_kernel(self) -> None:
        """Packages build for the kernel that runs, and on EL for no other. What fails is for the verification to tell."""
        release, host = self.facts.next_kernel, self.record.host
        if release in ("", self.facts.kernel) or not host.get_bin_path("dkms") or module_on_disk(host, release)[0]:
            return
        if not self.record.check:
            host.run_command(["dkms", "autoinstall", "-k", release])
        if self.record.check or module_on_disk(host, release)[0]:
            self.record.note("kernel module", "nvidia", f"build for {release}")

    def _ensure_peermem(self) -> None:
        """Load it, and build it anew where the InfiniBand stack came after it. What fails is for the verification to judge."""
        root, record, host = self.facts.root, self.record, self.record.host
        if peermem.is_loaded(root):
            return
        if record.check:
            # A driver that is still to come brings it.
            if self.loads or peermem.is_built(host, self.facts.kernel):
                record.note("kernel module", peermem.MODULE, "load")
            return
        failure = peermem.load(host)
        if failure and peermem.is_older_than_stack(host, root, self.facts.kernel):
            failure = peermem.rebuild(host, self.wanted.version, self.facts.kernel)
            if not failure:
                record.note("kernel module", peermem.MODULE, "rebuild")
                failure = peermem.load(host)
        if not failure:
            record.note("kernel module", peermem.MODULE, "load", "", f"{peermem.MODULE}\n")
        elif self.loads:
            record.note("kernel module", peermem.MODULE, f"not loaded: {failure}")

    def _ensure_gdrdrv(self) -> None:
        """Have it loaded, built for the driver that runs, and its device made."""
        root = self.facts.root
        there = gdrcopy.is_loaded(root)
        if not there and not self._load_gdrdrv():
            return
        unit = gdrcopy.service(root)
        # Also after it was loaded: a device may have the number of the module that went, with the service counting as started.
        if unit and not (there and gdrcopy.has_device(root)):
            try:
                self._restart(unit, wanted=True)
            except ClusterError as exc:
                # Whether programs reach the device is for the verification to judge.
                self.record.note("unit", unit, f"not started: {exc.message}")

    def _load_gdrdrv(self) -> bool:
        """Whether it is loaded now. What fails is for the verification to judge."""
        record, name = self.record, gdrcopy.MODULE
        failure, built = ("", False) if record.check else gdrcopy.load(record.host, self.facts.kernel)
        if built:
            record.note("kernel module", name, "rebuild")
        if failure:
            record.note("kernel module", name, f"not loaded: {failure}")
        else:
            record.note("kernel module", name, "load", "", f"{name}\n")
        return not failure

    def _load_subnet_modules(self) -> None:
        root, record = self.facts.root, self.record
        missing = [name for name in SUBNET_MODULES if not (root / "sys/module" / name).is_dir()]
        for name in missing:
            record.note("kernel module", name, "load", "", f"{name}\n")
        if not record.check:
            kernel.load_others(record.host, missing, _NO_SUBNET)

    def _restart(self, unit: str, *, wanted: bool) -> None:
        """Restart a service that was not started by this run, if it runs or is ``wanted``."""
        record = self.record
        if unit in record.started() or not (wanted or is_active(record.host, unit)):
            return
        record.note("unit", unit, "restart")
        if not record.check:
            systemctl(record.host, "restart", unit)

    def _load(self) -> None:
        version = self.wanted.version
        self.record.note("kernel module", "nvidia", "load", "", f"{version}\n")
        if self.record.check:
            return
        try:
            self.running.load(version)
        except ClusterError as exc:
            ours = brought_back(self.request, self.facts, self.wanted)
            raise self.running.in_the_middle(exc, ours) from exc
        self.running.load_extras(but=own_modules(self.request, self.wanted))


def set_modes(request: Request, facts: Facts, running: Running, record: Record, flavor: str) -> bool:
    """ECC and MIG of every GPU that answers and has them; whatever is wrong with the others is told at the end.

    Returns whether there were GPUs to set modes of.
    """
    if request.ecc == "keep" and request.mig == "keep":
        return False
    modes = Modes(request, record.host, facts.root, record.note, running.drain)
    try:
        modes.run(check=record.check, expected=bool(facts.hardware.gpus or request.expect_gpus))
    except ClusterError as exc:
        exc.details.update(running.result(flavor))
        raise
    running.reboot = modes.reboot
    # With a reboot to come, the run after it finds out what is left.
    if modes.problems and (record.check or not running.reboot):
        raise ClusterError(
            modes.kind,
            " ".join(finding["message"] for finding in modes.problems),
            " ".join(dict.fromkeys(finding["remedy"] for finding in modes.problems)),
            **{**running.result(flavor), "findings": modes.problems},
        )
    return modes.found


__all__ = ["Configuration", "brought_back", "own_modules", "own_units", "set_modes"]
