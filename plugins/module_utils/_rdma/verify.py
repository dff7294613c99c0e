# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Judge a node's RDMA ports, its stack and a measured bandwidth. Plain data in, verdicts out."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.compare import compare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import NO_BUS, Bus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.limits import in_kernel_s_words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Modules, Software, Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.perftest import Bandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.plan import installed_stack, is_current

Port = dict[str, t.Any]
Verdict = dict[str, t.Any]
_POLL_S = 0.5
# Of so many, only machines are made whose GPUs train together over a fabric of their own.
_GPUS_OF_A_FABRIC = 8
_INFINIBAND = "InfiniBand"
_NONE_EXPECTED = "or say with `fabric` that none is expected: `count` 0"


def is_active(port: Port) -> bool:
    """Whether data can go through a port now."""
    return str(port.get("state", "")).upper() == "ACTIVE"


def judge_ports(expected: t.Mapping[str, t.Any], ports: t.Sequence[Port], bus: Bus = NO_BUS) -> list[Verdict]:
    """Ports against a profile's ``fabric`` section; ``link_layer`` beside ``count`` says which ports count.

    A port that is down does not count, whatever rate it still shows. A rate or link layer alone expects one such port.
    Where nothing is expected, a node that cannot use RDMA although it looks made for it gets a warning; a ``count`` of 0 says
    that this is as it should be.
    """
    section = {"source": "variables of the role", "date": "this run", **expected}
    link_layer = section.pop("link_layer", "")
    if not section.get("hcas") and "count" not in section and (link_layer or section.get("rate_gbps")):
        section["count"] = 1
    verdicts: list[Verdict] = []
    if section.get("hcas"):
        named = {key: value for key, value in section.items() if key not in ("count", "rate_gbps")}
        verdicts += compare({"fabric": named}, {"hcas": list(ports), "unknown": []}, ["fabric"])
    if section.get("count"):
        usable = [port for port in ports if is_active(port) and link_layer in ("", port["link_layer"])]
        counted = {key: value for key, value in section.items() if key != "hcas"}
        judged = compare({"fabric": counted}, {"hcas": usable, "unknown": []}, ["fabric"])
        down = [f"{port['device']} is {port['state']}" for port in ports if not is_active(port)]
        for verdict in judged:
            if verdict["verdict"] == "fail" and down:
                verdict["found"] = f"{verdict['found']} ({', '.join(down)})"
        verdicts += judged
    if not verdicts and "count" not in section:
        verdicts += _judge_unexpected(ports, bus)
    return verdicts or [_verdict("ok", "RDMA ports", "none in particular", f"{len(ports)}")]


def _judge_unexpected(ports: t.Sequence[Port], bus: Bus) -> list[Verdict]:
    """A warning where nobody said what to expect, and no port can be used on a node that has ports, adapters or many GPUs.

    Ethernet that is up says nothing of InfiniBand: a node's storage and its cloud's network have ports for RDMA, too.
    """
    infiniband = [port for port in ports if port["link_layer"] == _INFINIBAND]
    fabric = infiniband or ports
    if any(map(is_active, fabric)):
        return []
    if fabric:
        down = ", ".join(f"{port['device']} is {port['state']}" for port in fabric)
        remedy = f"Check cables, switch ports and the subnet manager (ibstat), {_NONE_EXPECTED}."
        what, wanted = ("RDMA ports", "those there are") if fabric == ports else ("InfiniBand ports", "them")
        return [_verdict("warn", what, f"an ACTIVE one among {wanted}", f"none of {len(fabric)}: {down}", remedy)]
    if bus.adapters:
        remedy = (
            f"See with `lspci -k` whether a driver is bound to them (mlx5_core with mlx5_ib, efa), {_NONE_EXPECTED}."
        )
        return [_verdict("warn", "RDMA ports", f"those of {bus.adapters} adapters on the PCI bus", "none", remedy)]
    if bus.gpus >= _GPUS_OF_A_FABRIC:
        remedy = f"Look for the adapters with lspci, {_NONE_EXPECTED}."
        return [_verdict("warn", "RDMA ports", f"some beside {bus.gpus} data-center GPUs", "none", remedy)]
    return []


def settled(
    expected: t.Mapping[str, t.Any], read: t.Callable[[], t.Sequence[Port]], wait_s: float, bus: Bus = NO_BUS
) -> tuple[list[Port], list[Verdict]]:
    """Ports and their verdicts, once they are right or the time is over: links need a while after their driver was loaded."""
    deadline = time.monotonic() + wait_s
    while True:
        ports = list(read())
        verdicts = judge_ports(expected, ports, bus)
        if time.monotonic() >= deadline or {one["verdict"] for one in verdicts} == {"ok"}:
            return ports, verdicts
        time.sleep(_POLL_S)


def _verdict(level: str, what: str, expected: t.Any, found: t.Any, remedy: str = "", source: str = "") -> Verdict:
    return {
        "check": "fabric",
        "verdict": level,
        "what": what,
        "expected": expected,
        "found": found,
        "source": source or "variables of the role",
        "remedy": remedy,
    }


def judge_stack(wanted: Wanted, software: Software, modules: Modules) -> list[Verdict]:
    """The installed stack against the declared one, and the loaded modules against those on disk."""
    want = f"{wanted.source} {wanted.version}".strip()
    source, version = installed_stack(software)
    have = f"{source} {version}".strip() or "inbox"
    if software.unfinished:
        have += f" ({software.unfinished} was interrupted)"
    if not is_current(wanted, software):
        remedy = (
            "Run the role's entry point install."
            if wanted.installs
            else "Use an image that has it, or correct `version`."
        )
        return [_verdict("fail", "RDMA stack", want, have, remedy)]
    if not wanted.installs and not source:
        # The distribution's, whose modules are the kernel's own.
        return [_verdict("ok", "RDMA stack", want, have)]
    if wanted.kernel_parts and not modules.vendor:
        return [_verdict("fail", "kernel modules of the stack", "for the running kernel", "none", _build(wanted))]
    if wanted.kernel_parts and modules.stale:
        remedy = "Restart openibd (rdma_stack with `allow_restart: true`) or reboot."
        if not wanted.installs:
            remedy = "Restart openibd while nobody works over RDMA, or reboot: a preinstalled stack is left as it is."
        return [
            _verdict("fail", "loaded modules", "those on disk", f"other builds of {', '.join(modules.stale)}", remedy)
        ]
    return [_verdict("ok", "RDMA stack", want, have)]


def judge_next_kernel(wanted: Wanted, kernel: str, modules: Modules) -> list[Verdict]:
    """The stack's modules for the kernel that the next boot takes. dkms may have failed for it, or never have had its headers."""
    what = "kernel modules of the stack for the next boot"
    if modules.vendor:
        return [_verdict("ok", what, f"for kernel {kernel}", "there")]
    lacks = "" if modules.headers else ", and its headers are missing"
    remedy = f"Install that kernel's headers and run `dkms autoinstall -k {kernel}`"
    remedy += (
        ", or run the role after that boot: it builds them." if wanted.installs else ", or let the image boot its own."
    )
    return [_verdict("fail", what, f"for kernel {kernel}", f"none{lacks}", remedy)]


def judge_services(
    wanted: t.Mapping[str, str], allowed: t.Container[str], found: t.Mapping[str, tuple[str, str]]
) -> list[Verdict]:
    """The limits of a service against those that are declared. ``allowed``: those that root may set on this machine.

    ``found`` has the soft and the hard limit in the kernel's words; it is empty where no systemd runs.
    """
    return [
        _judge_limit(name, in_kernel_s_words(name, value), name in allowed, found) for name, value in wanted.items()
    ]


def _judge_limit(name: str, want: str, allowed: bool, found: t.Mapping[str, tuple[str, str]]) -> Verdict:
    what = f"limit {name} of services"
    if name not in found:
        return _verdict("warn", what, want, "systemd does not run here, or does not tell")
    have = "/".join(dict.fromkeys(found[name]))
    if set(found[name]) == {want}:
        return _verdict("ok", what, want, have)
    if not allowed:
        return _verdict("warn", what, want, f"{have}: this machine does not let root set it")
    remedy = "Run the role's entry point configure. Look for other files that set it: `systemd-analyze cat-config systemd/system.conf`."
    return _verdict("fail", what, want, have, remedy)


def _build(wanted: Wanted) -> str:
    return (
        "Run the role: it builds them."
        if wanted.installs
        else "Build them with `dkms autoinstall`, or boot the image's kernel."
    )


def judge_bandwidth(
    devices: t.Sequence[str], found: t.Sequence[Bandwidth], peer: str, least_gbps: float
) -> list[Verdict]:
    """What was measured against the least that is accepted; nothing is judged without such a value."""
    remedy = "Measure each end with another node: a bad node fails with all, a bad cable with one. See error counters."
    verdicts = []
    for device, result in zip(devices, found):
        low = least_gbps > 0 and result.average_gbps < least_gbps
        expected = f"at least {least_gbps:g} Gb/s" if least_gbps > 0 else "a result"
        text = f"{result.average_gbps:g} Gb/s with {result.size_bytes} bytes"
        verdicts.append(
            _verdict(
                "fail" if low else "ok", f"ib_write_bw of {device} to {peer}", expected, text, remedy if low else ""
            )
        )
        if result.tries > 1:
            what = f"tries of ib_write_bw of {device} to {peer}"
            remedy_tries = "Measure again; where it stays, look at error counters and the cable."
            verdicts.append(_verdict("warn", what, 1, f"{result.tries}: {result.first_error}", remedy_tries))
    return verdicts


def measured_devices(expected: t.Mapping[str, t.Any], ports: t.Sequence[Port]) -> list[tuple[str, int]]:
    """The ports to measure, in an order that is the same on all nodes: those expected, or all that are active."""
    active = [port for port in ports if is_active(port)]
    named = expected.get("hcas") or []
    chosen = []
    for hca in named:
        for port in active:
            if port["device"] == hca["name"] or (hca.get("bus_id") and port["bus_id"] == hca["bus_id"]):
                chosen.append(port)
                break
    if not named:
        link_layer = expected.get("link_layer", "")
        chosen = sorted(
            (port for port in active if link_layer in ("", port["link_layer"])),
            key=lambda port: (port["device"], port["port"] or 0),
        )
    return [(port["device"], port["port"] or 1) for port in chosen]


__all__ = [
    "is_active",
    "judge_bandwidth",
    "judge_next_kernel",
    "judge_ports",
    "judge_services",
    "judge_stack",
    "measured_devices",
    "settled",
]
