# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One run of ``rdma_check``: look at a node's stack and ports, and measure where that was asked for."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.kernels import next_kernel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_running
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.compare import describe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import read_bus, read_hcas
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import perftest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.check_request import CheckRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.limits import limit_allowed, read_limits
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Modules, Software, System, Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.plan import installed_stack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.read import (
    read_modules,
    read_software,
    read_system,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.verify import (
    Port,
    Verdict,
    judge_bandwidth,
    judge_next_kernel,
    judge_services,
    judge_stack,
    measured_devices,
    settled,
)


def check(request: CheckRequest, host: Runner) -> dict[str, t.Any]:
    """Read, judge, and measure if asked to; returns the module's result, with ``failed`` where something is wrong."""
    system, wanted = read_system(), request.wanted
    modules = read_modules(host, system) if wanted.kernel_parts else Modules()
    root = Path("/")
    ports, judged = settled(request.fabric, lambda: read_hcas(root) or [], request.settle_s, read_bus(root))
    software = read_software(host, system)
    verdicts = judge_stack(wanted, software, modules) + _next_boot(wanted, software, system, host)
    verdicts += _services(request, host) + judged
    result: dict[str, t.Any] = {"changed": False, "verdicts": verdicts, "ports": ports}
    # A port that is wrong, or not known, is not worth waiting for.
    if request.bandwidth != "none" and not describe(verdicts, "fail", "incomplete"):
        result["bandwidth"], judged = _measure(request, ports)
        verdicts += judged
    wrong = describe(verdicts, "fail")
    unknown = describe(verdicts, "incomplete")
    if wrong:
        told = "\n".join(filter(None, ["RDMA is not what it should be.", wrong, unknown]))
        result.update(failed=True, error_kind="rdma_mismatch", msg=told)
    elif unknown:
        result.update(failed=True, error_kind="rdma_unknown", msg=f"RDMA could not be looked at in full.\n{unknown}")
    return result


def _next_boot(wanted: Wanted, software: Software, system: System, host: Runner) -> list[Verdict]:
    """Whether the stack has modules for the kernel that boots by default, where that is another one than runs now."""
    if not wanted.kernel_parts or not installed_stack(software)[0] or system.container:
        return []
    kernel = next_kernel(host)
    if kernel in ("", system.kernel):
        return []
    return judge_next_kernel(wanted, kernel, read_modules(host, dataclasses.replace(system, kernel=kernel)))


def _services(request: CheckRequest, host: Runner) -> list[Verdict]:
    """The limits that a service gets."""
    wanted = {name: str(value) for name, value in request.service_limits.items()}
    if not wanted:
        return []
    allowed = {name for name, value in wanted.items() if limit_allowed(name, value, "service_limits")}
    return judge_services(wanted, allowed, read_limits(host) if is_running() else {})


def _measure(request: CheckRequest, ports: list[Port]) -> tuple[list[dict[str, t.Any]], list[Verdict]]:
    """Measure and judge; only the client judges, so that a slow pair is told once."""
    devices = measured_devices(request.fabric, ports)
    if not devices:
        raise ClusterError(
            "no_port", "There is no active RDMA port to measure with.", "Look at the ports in this result (ibstat)."
        )
    test = perftest.Measurement(
        tuple(devices), request.size_bytes, request.iterations, request.tcp_port, request.arguments
    )
    names = [name for name, _port in devices]
    verdicts: list[Verdict] = []
    if request.bandwidth == "server":
        found = perftest.serve(test, request.timeout_s)
    else:
        found = perftest.measure(test, request.peer, request.timeout_s)
        verdicts = judge_bandwidth(names, found, request.peer, request.least_gbps)
    rows = [{"device": name, "peer": request.peer, **dataclasses.asdict(result)} for name, result in zip(names, found)]
    return rows, verdicts


__all__ = ["check"]
