# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Compare a node's facts with its profile.

``fail`` needs evidence: a tool that is missing, hung or not allowed gives ``incomplete``, and an expectation that is
itself not verified gives ``warn`` at most.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import remapped_rows
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.profile import CHECKS, Profile, model_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import parse_ranges

Facts = dict[str, t.Any]
Verdict = dict[str, t.Any]
# Drivers print 40536, 40537 or 40960 MiB for the same A100: a real difference in size is far larger.
_GPU_MEMORY_TOLERANCE_PERCENT = 3
# Worst last.
_ORDER = ("ok", "warn", "incomplete", "fail")
_GPU_REMEDY = "Read the XID messages in the kernel log, reset the GPU or reboot; if it stays, replace the node."
_TYPE_REMEDY = "Check that the node is of this machine type (`name` of node_profile), or override the value."
_RATE_REMEDY = "Look at /sys/class/infiniband/*/ports/*/rate, and for the driver's messages in the kernel log."


class _Section:
    """Collects the verdicts of one section of the profile and stamps them with its source."""

    def __init__(self, check: str, section: dict[str, t.Any]) -> None:
        self.check = check
        self.values = section
        self.verdicts: list[Verdict] = []

    def add(self, verdict: str, what: str, expected: t.Any, found: t.Any, remedy: str = "") -> None:
        source = f"{self.values.get('source', 'unknown')} ({self.values.get('date', 'no date')})"
        if verdict == "fail" and not self.values.get("verified", True):
            verdict, source = "warn", f"{source}, not verified"
        self.verdicts.append(
            {
                "check": self.check,
                "verdict": verdict,
                "what": what,
                "expected": expected,
                "found": found,
                "source": source,
                "remedy": remedy,
            }
        )

    def done(self, what: str, expected: t.Any) -> list[Verdict]:
        if not self.verdicts:
            self.add("ok", what, expected, expected)
        return self.verdicts


def _reason(facts: Facts, what: str) -> dict[str, str] | None:
    return next((item for item in facts["unknown"] if item["what"] == what), None)


def _near(found: float, expected: float, percent: float) -> bool:
    return abs(found - expected) <= expected * percent / 100


def _cpu(section: _Section, _profile: Profile, facts: Facts) -> list[Verdict]:
    keys = [key for key in ("sockets", "cores", "threads") if key in section.values]
    for key in keys:
        found, expected = facts["cpus"].get(key), section.values[key]
        if found is None:
            section.add("incomplete", f"CPU {key}", expected, "the kernel does not tell", "Run on the host itself.")
        elif found != expected:
            remedy = "Look for offline CPUs and the SMT setting (lscpu), and check the machine type."
            section.add("fail", f"CPU {key}", expected, found, remedy)
    return section.done("CPUs", ", ".join(f"{section.values[key]} {key}" for key in keys))


def _memory(section: _Section, _profile: Profile, facts: Facts) -> list[Verdict]:
    expected, percent = section.values.get("mib"), section.values.get("tolerance_percent", 3)
    if expected is not None:
        found = facts["memory_mib"]
        if found is None:
            section.add("incomplete", "memory", f"{expected} MiB", "/proc/meminfo is not readable")
        elif not _near(found, expected, percent):
            remedy = "Look for failed memory modules (edac-util, ipmitool sel) and check the machine type."
            section.add("fail", "memory", f"{expected} MiB within {percent} %", f"{found} MiB", remedy)
    swap = section.values.get("swap_mib")
    if swap is not None and facts["swap_mib"] is not None and facts["swap_mib"] > swap:
        # A setting and not hardware: worth knowing, no reason to take a node out.
        remedy = "Take the swap area out of /etc/fstab and run swapoff -a."
        section.add("warn", "swap", f"{swap} MiB", f"{facts['swap_mib']} MiB", remedy)
    return section.done("memory", f"{expected} MiB")


def _gpu_label(index: int, bus_ids: list[str]) -> str:
    return f"GPU {index} ({bus_ids[index]})" if index < len(bus_ids) else f"GPU {index}"


def _said(facts: Facts, index: int, bus_id: str) -> str:
    """What the driver said about a GPU that it does not list; a lost one may keep its index and nothing else."""
    reasons = [item["reason"] for item in facts["unknown"] if bus_id in item["what"] or item["what"] == f"gpu {index}"]
    return next(iter(reasons), "")


def _missing_gpus(section: _Section, facts: Facts) -> None:
    bus_ids, count = section.values.get("bus_ids", []), section.values["count"]
    found = {gpu["bus_id"] for gpu in facts["gpus"]}
    answered = facts["nvidia_smi"]["state"] == "answered"
    on_bus = {gpu["bus_id"] for gpu in facts.get("pci_gpus") or []}
    whole = _reason(facts, "gpus") or {"reason": "nvidia-smi gave no answer", "remedy": _GPU_REMEDY}
    if answered and not found:
        # One sentence for the node: with no row at all nobody knows which GPU is the cause.
        section.add("fail", "GPUs", f"{count} GPUs", f"none: {whole['reason']}", whole["remedy"])
        return
    if bus_ids and answered and len(found) == count and not found & set(bus_ids):
        section.add("fail", "PCI addresses of the GPUs", bus_ids, sorted(found), _TYPE_REMEDY)
        return
    if not bus_ids:
        _count_gpus(section, facts, answered, whole)
        return
    unseen = []
    for index, bus_id in enumerate(bus_ids):
        if bus_id in found:
            continue
        said = _said(facts, index, bus_id)
        # The bus speaks without a driver, but only if it shows GPUs at all: in a container it may show none.
        if answered or (on_bus and bus_id not in on_bus):
            section.add("fail", _gpu_label(index, bus_ids), "present", said or "missing", _GPU_REMEDY)
        else:
            unseen.append(index)
    if unseen:
        what = f"GPU {', '.join(map(str, unseen))}"
        section.add("incomplete", what, "present", whole["reason"], whole["remedy"])
    for bus_id in sorted(found - set(bus_ids)):
        section.add("fail", f"GPU at {bus_id}", "no GPU there", "present", _TYPE_REMEDY)


def _count_gpus(section: _Section, facts: Facts, answered: bool, whole: dict[str, str]) -> None:
    """All that can be compared when the addresses of the machine type are not published."""
    number, count = len(facts["gpus"]), section.values["count"]
    if number > count or (answered and number != count):
        reasons = [f"{item['what']}: {item['reason']}" for item in facts["unknown"] if item["what"].startswith("gpu ")]
        remedy = f"{_GPU_REMEDY} A machine made with another number has another profile: set its `name`."
        section.add("fail", "number of GPUs", count, "; ".join([str(number), *reasons]), remedy)
    elif number < count:
        section.add("incomplete", "number of GPUs", count, f"{number}: {whole['reason']}", whole["remedy"])


def _gpus(section: _Section, _profile: Profile, facts: Facts) -> list[Verdict]:
    _missing_gpus(section, facts)
    models = {model_name(model["name"]): model.get("memory_mib") for model in section.values.get("models", [])}
    for gpu in facts["gpus"]:
        name, label = model_name(gpu["name"]), f"GPU {gpu['index']} ({gpu['bus_id']})"
        _gpu_memory_errors(section, gpu, label)
        if models and name not in models:
            section.add("fail", f"model of {label}", " or ".join(models), name, _TYPE_REMEDY)
            continue
        expected, found = models.get(name), gpu["memory_mib"]
        if expected is None or found is None:
            continue
        if not _near(found, expected, _GPU_MEMORY_TOLERANCE_PERCENT):
            section.add("fail", f"memory of {label}", f"{expected} MiB", f"{found} MiB", _GPU_REMEDY)
    return section.done("GPUs", f"{section.values['count']} x {' or '.join(models) or 'GPU'}")


def _gpu_memory_errors(section: _Section, gpu: dict[str, t.Any], label: str) -> None:
    """What the memory of a GPU has lost. Errors that no row was remapped for yet end programs, and may have been one alone."""
    expected, found, remedy = remapped_rows.wrong(gpu.get("remapped_rows"))
    if found:
        section.add("fail", f"memory rows of {label}", expected, found, remedy)
    uncorrected = gpu["ecc"]["uncorrected"]
    if uncorrected:
        remedy = "Read the XID messages in the kernel log (48, 63, 64, 94, 95); with more of them reset the GPU, or replace it."
        section.add("warn", f"uncorrectable ECC errors of {label}", 0, uncorrected, remedy)


def _same_cpus(first: str, second: str) -> bool:
    try:
        return parse_ranges(first) == parse_ranges(second)
    except ValueError:
        return first == second


def _numa(section: _Section, profile: Profile, facts: Facts) -> list[Verdict]:
    nodes = {node["id"]: node for node in facts["numa"]}
    expected_nodes = section.values.get("nodes", [])
    remedy = "Check the NPS or sub-NUMA setting in the BIOS and the machine type."
    with_cpus = {number for number, node in nodes.items() if node["cpus"]}
    if with_cpus != {node["id"] for node in expected_nodes}:
        wanted = [f"{node['id']}: {node['cpus']}" for node in expected_nodes]
        found = [f"{number}: {nodes[number]['cpus']}" for number in sorted(with_cpus)]
        section.add("fail", "NUMA nodes and their CPUs", wanted, found, remedy)
        return section.verdicts
    for node in expected_nodes:
        cpus, found_cpus = str(node["cpus"]), nodes[node["id"]]["cpus"]
        if not _same_cpus(found_cpus, cpus):
            section.add("fail", f"NUMA node {node['id']}", f"CPUs {cpus}", f"CPUs {found_cpus}", remedy)
    _numa_devices(section, profile, facts)
    return section.done("NUMA map", f"{len(expected_nodes)} nodes")


def _numa_devices(section: _Section, profile: Profile, facts: Facts) -> None:
    """Where the devices that exist are attached; that they exist is what gpus and fabric check."""
    bus_ids = profile.get("gpus", {}).get("bus_ids", [])
    gpus = {gpu["bus_id"]: gpu for gpu in facts["gpus"]} if bus_ids else {gpu["index"]: gpu for gpu in facts["gpus"]}
    hcas = {hca["name"]: hca for hca in profile.get("fabric", {}).get("hcas", [])}
    unknown = []
    for node in section.values.get("nodes", []):
        devices = [
            (_gpu_label(index, bus_ids), gpus.get(bus_ids[index] if bus_ids else index)) for index in node["gpus"]
        ]
        devices += [(f"HCA {name}", _find_hca(hcas[name], facts)) for name in node["hcas"]]
        for label, device in devices:
            if device is None:
                continue
            if device["numa"] is None:
                unknown.append(label)
            elif device["numa"] != node["id"]:
                remedy = "The hypervisor or BIOS tells another topology: report it, and do not pin by this profile."
                section.add("fail", f"NUMA node of {label}", node["id"], device["numa"], remedy)
    if unknown:
        reason = "the kernel does not tell (numa_node is -1 or the PCI device is not visible)"
        section.add("incomplete", f"NUMA node of {', '.join(unknown)}", "as in the profile", reason)


def _find_hca(expected: dict[str, t.Any], facts: Facts) -> dict[str, t.Any] | None:
    """By address where the profile has one, else by name: names depend on udev rules, addresses do not."""
    for key, value in (("bus_id", expected.get("bus_id")), ("device", expected["name"])):
        for hca in facts["hcas"]:
            if value and hca[key] == value:
                return t.cast("dict[str, t.Any]", hca)
    return None


def _fabric(section: _Section, _profile: Profile, facts: Facts) -> list[Verdict]:
    reason = _reason(facts, "hcas")
    expected = section.values.get("hcas", [])
    if reason:
        count = len(expected) or section.values.get("count")
        section.add("incomplete", "HCAs", f"{count} HCAs", reason["reason"], reason["remedy"])
        return section.verdicts
    for hca in expected:
        label = f"HCA {hca['name']}" + (f" ({hca['bus_id']})" if "bus_id" in hca else "")
        found = _find_hca(hca, facts)
        if found is None:
            remedy = (
                "Look for it with lspci, check that its driver is bound (mlx5_ib, efa), reboot or replace the node."
            )
            section.add("fail", label, "present", "missing", remedy)
            continue
        if hca.get("link_layer") and found["link_layer"] != hca["link_layer"]:
            section.add("fail", f"link layer of {label}", hca["link_layer"], found["link_layer"], _TYPE_REMEDY)
        if found["state"] not in (None, "ACTIVE"):
            remedy = "Check cable, switch port and subnet manager (ibstat)."
            section.add("fail", f"port of {label}", "ACTIVE", found["state"], remedy)
        elif hca.get("rate_gbps"):
            _rate(section, label, hca["rate_gbps"], found["rate_gbps"])
    if "count" in section.values:
        _count_ports(section, facts)
    return section.done("HCAs", f"{len(expected) or section.values.get('count')} HCAs")


def _rate(section: _Section, label: str, least: float, found: float | None) -> None:
    if found is None:
        section.add("incomplete", f"rate of {label}", f"{least} Gb/s", "the kernel does not tell", _RATE_REMEDY)
    elif found < least:
        remedy = "Reseat or replace the cable; see the port's error counters."
        section.add("fail", f"rate of {label}", f"{least} Gb/s", f"{found} Gb/s", remedy)


def _count_ports(section: _Section, facts: Facts) -> None:
    count, rate = section.values["count"], section.values.get("rate_gbps", 0)
    fast = [hca["device"] for hca in facts["hcas"] if (hca["rate_gbps"] or 0) >= rate]
    unread = [hca["device"] for hca in facts["hcas"] if rate and hca["rate_gbps"] is None]
    wanted, found = f"{count} ports of at least {rate} Gb/s", f"{len(fast)}: {', '.join(fast)}"
    if len(fast) + len(unread) < count:
        section.add("fail", "HCA ports", wanted, found, "Check cables and switch ports.")
    elif len(fast) < count:
        reason = f"{found}; the kernel does not tell the rate of {', '.join(unread)}"
        section.add("incomplete", "HCA ports", wanted, reason, _RATE_REMEDY)


def _nvme(section: _Section, _profile: Profile, facts: Facts) -> list[Verdict]:
    reason = _reason(facts, "nvme")
    count, least = section.values.get("count"), section.values.get("min_count")
    wanted = f"{count} disks" if count is not None else f"at least {least} disks"
    if reason:
        section.add("incomplete", "NVMe disks", wanted, reason["reason"], reason["remedy"])
        return section.verdicts
    paths = [disk["path"] for disk in facts["nvme"]]
    if (count is not None and len(paths) != count) or (least is not None and len(paths) < least):
        remedy = "Look for nvme errors in the kernel log; a disk that died needs another node."
        section.add("fail", "NVMe disks", wanted, f"{len(paths)}: {', '.join(paths) or 'none'}", remedy)
    size, percent = section.values.get("bytes"), section.values.get("tolerance_percent", 5)
    for disk in facts["nvme"]:
        if size and not _near(disk["bytes"], size, percent):
            section.add("fail", f"size of {disk['path']}", f"{size} bytes", f"{disk['bytes']} bytes", _TYPE_REMEDY)
    return section.done("NVMe disks", wanted)


_COMPARE: dict[str, t.Callable[[_Section, Profile, Facts], list[Verdict]]] = {
    "cpu": _cpu,
    "memory": _memory,
    "gpus": _gpus,
    "numa": _numa,
    "fabric": _fabric,
    "nvme": _nvme,
}


def compare(profile: Profile, facts: Facts, checks: t.Iterable[str] = CHECKS) -> list[Verdict]:
    """Every verdict about the node. A section that the profile lacks is not judged."""
    wanted = set(checks)
    verdicts: list[Verdict] = []
    for name in CHECKS:
        if name in wanted and name in profile:
            verdicts += _COMPARE[name](_Section(name, profile[name]), profile, facts)
    return verdicts


def worst(verdicts: t.Iterable[Verdict]) -> str:
    """One verdict for the node."""
    return max((item["verdict"] for item in verdicts), key=_ORDER.index, default="ok")


def _plain(value: t.Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def describe(verdicts: t.Iterable[Verdict], *levels: str) -> str:
    """One line per verdict of these levels: what, expected, found, source, remedy."""
    lines = []
    for item in verdicts:
        if item["verdict"] not in levels:
            continue
        if item["verdict"] == "incomplete":
            line = f"{item['what']}: not known: {_plain(item['found'])}. {item['remedy']}"
        else:
            line = f"{item['what']}: expected {_plain(item['expected'])}, found {_plain(item['found'])}."
            line += f" {item['remedy']} Source: {item['source']}."
        lines.append(line.strip())
    return "\n".join(lines)


__all__ = ["compare", "describe", "worst"]
