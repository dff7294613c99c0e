# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Put the node's facts together: sysfs, firmware, cloud metadata and two nvidia-smi calls."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import metadata as host_metadata
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi as smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import remapped_rows, sysfs

Facts = dict[str, t.Any]


def _unknown(what: str, reason: str, remedy: str) -> dict[str, str]:
    return {"what": what, "reason": reason, "remedy": remedy}


def place_on_numa(facts: Facts) -> None:
    """Fill ``numa`` of every device and the device lists of every NUMA node.

    The kernel says -1 where the firmware or hypervisor told it nothing. With one NUMA node there is only one answer;
    with several a guess would pin work to the wrong memory, so the device stays without one and ``unknown`` says so.
    """
    nodes = {node["id"]: node for node in facts["numa"]}
    only = next(iter(nodes)) if len(nodes) == 1 else None
    for kind, key in (("gpus", "index"), ("hcas", "device"), ("nvme", "path")):
        for node in nodes.values():
            node[kind] = []
        unplaced = []
        for device in facts[kind]:
            if device["numa"] is None or device["numa"] not in nodes:
                device["numa"] = only
            if device["numa"] is None:
                unplaced.append(str(device[key]))
            elif device[key] not in nodes[device["numa"]][kind]:
                # A two-port HCA is two entries but one device.
                nodes[device["numa"]][kind].append(device[key])
        if unplaced:
            facts["unknown"].append(
                _unknown(
                    f"numa of {kind} {', '.join(unplaced)}",
                    "the kernel does not tell the NUMA node (numa_node is -1 or the PCI device is not visible)",
                    "Choose a machine type by `name` of node_profile: its NUMA map can be used instead.",
                )
            )


def _platform(root: Path, facts: Facts, metadata: str, timeout_s: float, address: tuple[str, int] | None) -> None:
    dmi = sysfs.read_dmi(root)
    cloud = host_metadata.detect_cloud(dmi)
    sku = host_metadata.sku_from_dmi(dmi)
    ask = {"auto": [cloud] if cloud and not sku else [], "always": [cloud] if cloud else ["azure", "aws"], "never": []}
    failures = []
    for candidate in ask[metadata]:
        try:
            sku = host_metadata.fetch_sku(candidate, timeout_s, **({"address": address} if address else {}))
            cloud = candidate
            break
        except ClusterError as exc:
            failures.append(exc)
    if failures and not sku:
        facts["unknown"].append(_unknown("platform.sku", failures[0].message, failures[0].remedy))
    facts["platform"] = {
        "sku": sku,
        "cloud": cloud or None,
        "product": dmi["product_name"] or None,
        "vendor": dmi["sys_vendor"] or None,
    }


def _minor(root: Path, bus_id: str) -> int | None:
    """The N of a GPU's /dev/nvidiaN, which need not be its index; None where no driver tells it."""
    text = read_text(root / "proc/driver/nvidia/gpus" / bus_id / "information")
    told = re.search(r"^Device Minor:[ \t]*([0-9]+)[ \t]*$", text, re.MULTILINE)
    return int(told.group(1)) if told else None


def _gpus(root: Path, facts: Facts, report: smi.SmiReport, asking: tuple[str, float]) -> None:
    """``asking``: the program, and how long it may take in seconds."""
    facts["gpus"] = report.gpus
    facts["nvidia_smi"] = {"state": report.state, "rc": report.rc}
    facts["unknown"] += report.unknown
    # Only of a driver that has just answered: the second call would hang where the first one did.
    rows = remapped_rows.ask(*asking) if report.state == "answered" and report.gpus else {}
    facts["pci_gpus"] = sysfs.read_pci_gpus(root)
    on_bus = {gpu["bus_id"]: gpu for gpu in facts["pci_gpus"] or []}
    for gpu in facts["gpus"]:
        gpu["numa"] = sysfs.pci_numa(root, gpu["bus_id"])
        gpu["pci_path"] = sysfs.pci_path(root, gpu["bus_id"])
        # A driver in which nvidia-smi hangs may not let go of whoever reads its files either.
        gpu["minor"] = _minor(root, gpu["bus_id"]) if report.state == "answered" else None
        gpu["remapped_rows"] = rows.get(gpu["bus_id"])
    answered = {gpu["bus_id"] for gpu in facts["gpus"]}
    silent = sorted(set(on_bus) - answered)
    if silent and report.state == "answered":
        facts["unknown"].append(
            _unknown(
                f"gpus at {', '.join(silent)}",
                "the PCI bus lists them but nvidia-smi does not",
                "Read the XID messages in the kernel log; reset the GPU or reboot the node.",
            )
        )


def _devices(root: Path, facts: Facts, kind: str, found: list[dict[str, t.Any]] | None, driver: str) -> None:
    facts[kind] = found or []
    if found is None:
        facts["unknown"].append(
            _unknown(
                kind,
                f"no {driver} driver is loaded (its directory under /sys/class is absent)",
                f"Load the {driver} driver if the node has such devices.",
            )
        )


def collect(
    root: Path = Path("/"),
    *,
    nvidia_smi: str = "nvidia-smi",
    nvidia_smi_timeout_s: float = 20,
    metadata: str = "auto",
    metadata_timeout_s: float = 1,
    metadata_address: tuple[str, int] | None = None,
) -> Facts:
    """The content of ``ansible_facts.gpu_node``. ``root`` and ``metadata_address`` exist for the tests."""
    query = smi.Query(nvidia_smi, nvidia_smi_timeout_s)
    facts: Facts = {"numa": sysfs.read_numa(root), "cpus": sysfs.read_cpus(root), "unknown": []}
    facts["memory_mib"], facts["swap_mib"] = sysfs.read_memory(root)
    _devices(root, facts, "hcas", sysfs.read_hcas(root), "RDMA")
    _devices(root, facts, "nvme", sysfs.read_nvme(root), "NVMe")
    _platform(root, facts, metadata, metadata_timeout_s, metadata_address)
    _gpus(root, facts, smi.parse(query.result()), (nvidia_smi, nvidia_smi_timeout_s))
    place_on_numa(facts)
    return facts


__all__ = ["collect", "place_on_numa"]
