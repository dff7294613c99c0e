# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether a node's driver is what it should be. Changes nothing."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import upstream
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import manager_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_active
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi as smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import Query, SmiReport, parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import cuda, fabric, gdrcopy, peermem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.kernels import kernel_packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.modes import FIELDS, plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    REMEDIES,
    SIGNED_MODULES,
    gdrcopy_roots,
    in_stack,
    is_fabric_manager,
    is_nscq,
    supported_distribution,
    to_hold,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request

_RUN_ROLE = "Run the role."
# Of a driver that the image brought the role installs, removes and reloads nothing.
_KEPT = "The role leaves a preinstalled driver as it is."
_FABRIC_MANAGER, _PERSISTENCED = "nvidia-fabricmanager.service", "nvidia-persistenced.service"
_PERSISTENCE_SETTLE_S, _PAUSE_S = 20.0, 1.0
# Whose GPUs register with the fabric, also where no NVSwitch is on the PCI bus.
_FABRIC_GENERATIONS = frozenset({"hopper", "grace-hopper", "blackwell"})


def _version_remedies(driver: str, managed: bool) -> tuple[str, str, str]:
    """What to do about another driver than is wanted, one that is not the one on disk, and a Fabric Manager that does not fit it."""
    if managed:
        return _RUN_ROLE, "Run the role with `allow_unload` or `allow_reboot`.", _RUN_ROLE
    return (
        f"Use an image that has it, correct `version`, or set `source` to let the role install it. {_KEPT}",
        f"Reboot the node: what is on its disk is loaded then. If that does not fit, mend the image. {_KEPT}",
        f"Install Fabric Manager {driver} in the image. {_KEPT}",
    )


def version_findings(
    *,
    wanted: str,
    loaded: str,
    on_disk: str,
    libraries: t.Sequence[str],
    smi: t.Sequence[str],
    fabric: str,
    switches: int,
    managed: bool = True,
) -> list[tuple[str, str]]:
    """What is wrong with the versions of a running driver: (message, remedy). Empty strings are unknown.

    ``managed``: the role may change the driver; it does not with one that is preinstalled.
    """
    wrong = []
    driver = loaded or wanted or (smi[0] if smi else "")
    other, reload, manager = _version_remedies(driver, managed)
    if wanted and smi and set(smi) != {wanted}:
        wrong.append((f"nvidia-smi reports driver {', '.join(sorted(set(smi)))}, wanted is {wanted}.", other))
    if loaded and libraries and loaded not in libraries:
        wrong.append(
            (
                f"The kernel runs driver {loaded}, but the libraries are those of {', '.join(libraries)}: programs "
                "fail with 'Driver/library version mismatch'.",
                reload,
            )
        )
    if loaded and on_disk and loaded != on_disk:
        wrong.append(
            (
                f"The kernel runs driver {loaded}, but the module on disk is {on_disk}: the next boot brings another driver.",
                reload,
            )
        )
    if switches and not fabric:
        wrong.append((f"This node has {switches} NVSwitches, but Fabric Manager is not installed.", manager))
    elif fabric and driver and upstream(fabric) != driver:
        wrong.append((f"Fabric Manager is {upstream(fabric)}, the driver is {driver}: it refuses to start.", manager))
    return wrong


class Findings:
    """Compares what runs with what was asked for and with itself, and collects what is wrong."""

    def __init__(self, request: Request, facts: Facts, host: Host) -> None:
        self.request, self.facts, self.host = request, facts, host
        self.found: list[dict[str, str]] = []
        self.managed = request.source != "preinstalled"

    def look(self, report: SmiReport) -> None:
        """Look at everything. ``report`` is what the GPUs answered."""
        self._driver(report)
        self._modes_of(report)
        self._peermem()
        self._next_boot()
        self._persistence(report)
        if self.managed:
            self._packages()
        if self._has_fabric:
            self._nscq()
        if self.request.gdrcopy:
            self._gdrcopy(self.managed)
        self._units(self.managed)
        if report.state == "answered" and report.gpus:
            self._fabric()
            self._cuda(report)

    def _find(self, verdict: str, what: str, message: str, remedy: str) -> None:
        self.found.append({"verdict": verdict, "what": what, "message": message, "remedy": remedy})

    def _driver(self, report: SmiReport) -> None:
        # A time-out says nothing about the GPUs; the rest is evidence.
        verdict = "incomplete" if report.state == "timeout" else "fail"
        for unknown in report.unknown:
            self._find(verdict, "nvidia-smi", f"{unknown['what']}: {unknown['reason']}.", unknown["remedy"])
        there = len(self.facts.hardware.gpus)
        if there and not self.facts.loaded.version:
            message = f"The kernel runs no driver, and there are NVIDIA GPUs on the PCI bus ({there})."
            self._find("fail", "driver", message, self._without_driver())
        gpus, expected = len(report.gpus), max(self.request.expect_gpus, there)
        if report.state == "answered" and gpus < expected:
            self._find("fail", "gpus", f"nvidia-smi lists {gpus} of {expected} GPUs.", "See dmesg for XIDs.")
        for message, remedy in self._versions(report):
            self._find("fail", "version", message, remedy)
        if self.facts.hardware.nouveau:
            remedy = "Run the role with `allow_reboot: true`."
            if not self.managed:
                remedy = f"Let the image keep it away (`blacklist nouveau` in /etc/modprobe.d), and reboot. {_KEPT}"
            self._find("fail", "nouveau", "nouveau is loaded.", remedy)

    def _without_driver(self) -> str:
        if not self.managed:
            return "See `modprobe nvidia` and dmesg, or let the role install a driver: set `source` and `version`."
        return f"{_RUN_ROLE} See `modprobe nvidia` and dmesg."

    @property
    def _has_fabric(self) -> bool:
        """Whether Fabric Manager and what goes with it have to be there."""
        return self.facts.hardware.nvswitches > 0 and self.request.fabric_manager != "never"

    def _versions(self, report: SmiReport) -> list[tuple[str, str]]:
        facts, loaded = self.facts, self.facts.loaded.version
        return version_findings(
            wanted=self.request.version,
            loaded=loaded,
            on_disk=node.module_on_disk(self.host, facts.kernel)[0] if loaded else "",
            libraries=node.read_libraries(facts.root),
            smi=[gpu["driver"] for gpu in report.gpus if gpu["driver"]],
            fabric=next((one.version for name, one in facts.packages.items() if is_fabric_manager(name)), ""),
            switches=facts.hardware.nvswitches if self._has_fabric else 0,
            managed=self.managed,
        )

    def _modes_of(self, report: SmiReport) -> None:
        changes, unsupported = plan(report, self.request.ecc, self.request.mig)
        self.found += [*(change.finding() for change in changes), *unsupported]

    def _packages(self) -> None:
        dist = supported_distribution(self.facts.os_release)
        stack = {name: one for name, one in self.facts.packages.items() if in_stack(name, one.version)}
        for name, one in sorted(stack.items()):
            if one.broken:
                self._find("fail", "packages", f"{name} {one.version} is {one.state}.", _RUN_ROLE)
        request, packages = self.request, self.facts.packages
        names = to_hold(packages, request.version, gdrcopy=request.gdrcopy) if request.hold else []
        names += kernel_packages(packages, dist) if request.hold and request.kernel_hold else []
        loose = [name for name in names if not packages[name].held]
        if loose:
            message = f"An upgrade of the system could replace the driver: {', '.join(loose[:6])} are not held."
            self._find("fail", "hold", message, _RUN_ROLE)

    def _units(self, managed: bool) -> None:
        units = [_PERSISTENCED] if managed else []
        if self._has_fabric:
            units.append(_FABRIC_MANAGER)
        if self._has_fabric and self.facts.hardware.nvlink5:
            self._subnet()
        for unit in units:
            if node.vendor_unit(self.facts.root, unit) and not is_active(self.host, unit):
                self._find("fail", "units", f"{unit} does not run.", f"Read `journalctl -u {unit}` on the node.")

    def _next_boot(self) -> None:
        kernel = node.with_next_kernel(self.facts, self.host, self.request).next_kernel
        if kernel and kernel != self.facts.kernel and not node.module_on_disk(self.host, kernel)[0]:
            message = f"The next boot takes kernel {kernel}, for which there is no driver."
            signed = any(name.startswith(SIGNED_MODULES) for name in self.request.packages)
            by_hand = f"nstall that kernel's headers and run `dkms autoinstall -k {kernel}`."
            # Where they are signed, no dkms is there, and the role knows which package is for that kernel.
            remedy = f"I{by_hand}" if not self.managed else _RUN_ROLE if signed else f"{_RUN_ROLE[:-1]}, or i{by_hand}"
            self._find("fail", "kernel", message, remedy)

    def _peermem(self) -> None:
        facts, option = self.facts, self.request.peermem
        if option == "always" or (option == "auto" and facts.openibd):
            self.found += peermem.findings(facts.root, facts.loaded, facts.kernel, demanded=option == "always")

    def _nscq(self) -> None:
        """The library through which DCGM asks the NVSwitches: there if asked for, and at the driver's version anyway."""
        have = next((one.version for name, one in self.facts.packages.items() if is_nscq(name)), "")
        driver = self.facts.loaded.version or self.request.version
        remedy = _RUN_ROLE if self.managed else f"Install libnvidia-nscq {driver}, the version of the driver."
        if self.request.nscq and not have:
            self._find("fail", "nscq", "libnvidia-nscq is not installed: DCGM does not see the NVSwitches.", remedy)
        elif have and driver and upstream(have) != driver:
            message = f"libnvidia-nscq is {upstream(have)}, the driver is {driver}: DCGM does not see the NVSwitches."
            self._find("fail", "nscq", message, remedy)

    def _gdrcopy(self, managed: bool) -> None:
        facts, request = self.facts, self.request
        if managed:
            manager = supported_distribution(facts.os_release).manager
            self.found += gdrcopy.package_findings(facts.packages, gdrcopy_roots(manager, request.gdrcopy_version))
        if facts.loaded.version:
            self.found += gdrcopy.module_findings(facts.root, self.host, facts.kernel, managed=managed)

    def _subnet(self) -> None:
        """What Fabric Manager needs where the NVSwitches are an InfiniBand subnet."""
        if "nvlsm" not in self.facts.packages:
            message = "The NVSwitches of this node need the subnet manager nvlsm, which is not installed."
            remedy = _RUN_ROLE if self.managed else f"Install it in the image. {_KEPT}"
            self._find("fail", "nvlink5", message, remedy)
        if not (self.facts.root / "sys/module/ib_umad").is_dir():
            message = "ib_umad is not loaded: Fabric Manager does not start without it."
            always = "the role so that it is loaded at boot."
            if not self.managed:
                always = f"let the image load it at boot (/etc/modules-load.d). {_KEPT}"
            self._find("fail", "nvlink5", message, f"Run `modprobe ib_umad`, and {always}")

    def _persistence(self, report: SmiReport) -> None:
        without = _without_persistence(report)
        if without:
            message = (
                f"Persistence mode is off on {', '.join(without)}: clocks are lost with the last program of a GPU."
            )
            # NVIDIA's .run file brings the daemon, but no unit for it, and how an image starts its own is the image's business.
            there = self.managed and node.vendor_unit(self.facts.root, _PERSISTENCED)
            remedy = (
                _RUN_ROLE if there else "Let nvidia-persistenced start with the machine, or run `nvidia-smi -pm 1`."
            )
            self._find("fail" if there else "warn", "persistence", message, remedy)

    def _fabric(self) -> None:
        hardware, request = self.facts.hardware, self.request
        if not hardware.nvswitches and not _FABRIC_GENERATIONS & set(hardware.generations):
            return
        settle_s = fabric.SETTLE_S if is_active(self.host, _FABRIC_MANAGER) else 0.0
        found = fabric.ask(request.nvidia_smi, request.nvidia_smi_timeout_s, settle_s)
        all_join = self._has_fabric and _FABRIC_GENERATIONS.issuperset(hardware.generations)
        self.found += fabric.findings(found, all_join=all_join)

    def _cuda(self, report: SmiReport) -> None:
        if self.request.cuda_library:
            mig = any(gpu["mig"]["enabled"] for gpu in report.gpus)
            self.found += cuda.findings(cuda.start(self.request.cuda_library), len(report.gpus), mig=mig)


def _without_persistence(report: SmiReport) -> list[str]:
    return [gpu["bus_id"] for gpu in report.gpus if gpu["persistence"] is False]


def _settled(report: SmiReport, request: Request, fields: tuple[str, ...], host: Host) -> SmiReport:
    """What the GPUs answer when nvidia-persistenced, which may have been started a moment ago, has been at all of them."""
    managed = request.source != "preinstalled"
    if not managed or not _without_persistence(report) or not is_active(host, _PERSISTENCED):
        return report
    deadline = time.monotonic() + _PERSISTENCE_SETTLE_S
    while _without_persistence(report) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        report = parse(Query(request.nvidia_smi, request.nvidia_smi_timeout_s, fields).result())
    return report


def verified(request: Request, facts: Facts, host: Host) -> dict[str, t.Any]:
    """The result, or an error that lists everything that is wrong."""
    # Drivers that do not know all of the fields have to be asked twice: only where modes matter.
    fields = smi.FIELDS if request.ecc == request.mig == "keep" else FIELDS
    query = Query(request.nvidia_smi, request.nvidia_smi_timeout_s, fields)
    # Where the role installs nothing and no NVSwitch needs Fabric Manager, the packages are nobody's business here.
    if request.source != "preinstalled":
        facts = node.with_packages(facts, manager_for(host, REMEDIES))
    elif facts.hardware.nvswitches:
        # An image of a distribution that the role knows nothing of may have another program over rpm than dnf.
        facts = node.with_packages(facts, manager_for(host, REMEDIES, reads=True))
    report = _settled(parse(query.result()), request, fields, host)
    result = Record(host, check=True).result(facts, facts.loaded)
    if not facts.hardware.gpus and not report.gpus and not request.expect_gpus:
        return {**result, "msg": "There is no NVIDIA GPU on the PCI bus, and none is expected."}
    findings = Findings(request, facts, host)
    findings.look(report)
    wrong = [finding for finding in findings.found if finding["verdict"] == "fail"]
    if wrong:
        raise _refused("driver_wrong", wrong, findings.found)
    # What a driver that does not answer would have said is not known; that is no proof.
    silent = [finding for finding in findings.found if finding["what"] == "nvidia-smi"]
    if silent:
        raise _refused("driver_silent", silent, findings.found)
    return {**result, "findings": findings.found}


def _refused(kind: str, reasons: t.Sequence[dict[str, str]], found: list[dict[str, str]]) -> ClusterError:
    return ClusterError(
        kind,
        " ".join(finding["message"] for finding in reasons),
        " ".join(dict.fromkeys(finding["remedy"] for finding in reasons)),
        findings=found,
    )


__all__ = ["Findings", "verified", "version_findings"]
