# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether a node's driver is what it should be. Changes nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi as smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import Query, SmiReport, parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.apply import ROOT, DriverRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.modes import FIELDS, plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    in_stack,
    is_fabric_manager,
    parse_os_release,
    to_hold,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.transaction import manager_for

_RUN_ROLE = "Run the role."


class Verifier(DriverRun):
    """Compares what runs with what was asked for and with itself."""

    def verified(self) -> dict[str, t.Any]:
        """The result, or an error that lists everything that is wrong."""
        # Drivers that do not know all of the fields have to be asked twice: only where modes matter.
        fields = smi.FIELDS if self.request.ecc == self.request.mig == "keep" else FIELDS
        query = Query(self.request.nvidia_smi, self.request.nvidia_smi_timeout_s, fields)
        managed = self.request.source != "preinstalled"
        self.findings: list[dict[str, str]] = []
        self.packages = {}
        # Where the role installs nothing and no NVSwitch needs Fabric Manager, the packages are nobody's business here.
        if managed or self.hardware.nvswitches:
            self.packages = manager_for(self.host).installed()
        report = parse(query.result())
        if not self.hardware.gpus and not report.gpus and not self.request.expect_gpus:
            return self._result(message="There is no NVIDIA GPU on the PCI bus, and none is expected.")
        self._driver(report)
        self._modes_of(report)
        if managed:
            self._packages()
        self._units(managed)
        wrong = [finding for finding in self.findings if finding["verdict"] == "fail"]
        if wrong:
            raise ClusterError(
                "driver_wrong",
                " ".join(finding["message"] for finding in wrong),
                " ".join(dict.fromkeys(finding["remedy"] for finding in wrong)),
                findings=self.findings,
            )
        return {**self._result(), "findings": self.findings}

    def _find(self, verdict: str, what: str, message: str, remedy: str) -> None:
        self.findings.append({"verdict": verdict, "what": what, "message": message, "remedy": remedy})

    def _driver(self, report: SmiReport) -> None:
        gpus, expected = report.gpus, max(self.request.expect_gpus, len(self.hardware.gpus))
        # A time-out says nothing about the GPUs; the rest is evidence.
        verdict = "incomplete" if report.state == "timeout" else "fail"
        for unknown in report.unknown:
            self._find(verdict, "nvidia-smi", f"{unknown['what']}: {unknown['reason']}.", unknown["remedy"])
        if report.state == "answered" and len(gpus) < expected:
            self._find("fail", "gpus", f"nvidia-smi lists {len(gpus)} of {expected} GPUs.", "See dmesg for XIDs.")
        wanted = self.request.version
        loaded = self.loaded.version
        fabric = next((one.version for name, one in self.packages.items() if is_fabric_manager(name)), "")
        for message, remedy in rules.version_findings(
            wanted=wanted,
            loaded=loaded,
            on_disk=node.module_on_disk(self.host, self.kernel)[0] if loaded else "",
            libraries=node.read_libraries(ROOT),
            smi=[gpu["driver"] for gpu in gpus if gpu["driver"]],
            fabric=fabric,
            switches=0 if self.request.fabric_manager == "never" else self.hardware.nvswitches,
        ):
            self._find("fail", "version", message, remedy)
        if self.hardware.nouveau:
            self._find("fail", "nouveau", "nouveau is loaded.", "Run the role with nvidia_driver_allow_reboot: true.")

    def _modes_of(self, report: SmiReport) -> None:
        changes, unsupported = plan(report, self.request.ecc, self.request.mig)
        self.findings += [*(change.finding() for change in changes), *unsupported]

    def _packages(self) -> None:
        parse_os_release(read_text(ROOT / "etc/os-release"))
        stack = {name: one for name, one in self.packages.items() if in_stack(name, one.version)}
        for name, one in sorted(stack.items()):
            if one.broken:
                self._find("fail", "packages", f"{name} {one.version} is {one.state}.", _RUN_ROLE)
        names = to_hold(self.packages, self.request.version) if self.request.hold else []
        loose = [name for name in names if not self.packages[name].held]
        if loose:
            message = f"An upgrade of the system could replace the driver: {', '.join(loose[:6])} are not held."
            self._find("fail", "hold", message, _RUN_ROLE)

    def _units(self, managed: bool) -> None:
        units = ["nvidia-persistenced.service"] if managed else []
        if self.hardware.nvswitches and self.request.fabric_manager != "never":
            units.append("nvidia-fabricmanager.service")
        for unit in units:
            if self._has_unit(unit) and self.host.run_command(["systemctl", "is-active", "--quiet", unit])[0] != 0:
                self._find("fail", "units", f"{unit} does not run.", f"Read `journalctl -u {unit}` on the node.")


__all__ = ["Verifier"]
