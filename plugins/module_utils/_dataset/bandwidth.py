# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How much each node or process may take, so that together they stay within what a storage account gives.

All rates are megabits per second (10^6 bit/s), as AzCopy's ``--cap-mbps`` counts them. A rate of 0 means unknown in the
input and "no cap" in the result. Beyond its limit an account answers 503, AzCopy backs off, and everybody gets less.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import MOST_PROCESSES, SMALLEST_CAP_MBPS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.plan import DEFAULT_BYTES_PER_SECOND

# Eight processes of 2,300 Mb/s each below an ingress limit of 20 Gb/s: 18,400 / 20,000.
UPLOAD_SHARE = 0.92
# AZCOPY_CONCURRENCY_VALUE of one of several uploads side by side: it leaves cores to the job whose checkpoint this is.
UPLOAD_CONCURRENCY = 10


_Key = t.TypeVar("_Key")


class DownloadPlan(t.NamedTuple):
    """``bound`` is what limits the copy (``nic``, ``egress``, ``unknown``), ``expected_gbps`` that of all nodes."""

    cap_mbps: float  # per node; 0: none needed
    bound: str
    expected_gbps: float  # 0: unknown
    explanation: list[str]


class UploadPlan(t.NamedTuple):
    """Caps for several AzCopy processes that write to one account at the same time."""

    cap_mbps: float  # per process
    total_mbps: float
    concurrency: int  # AZCOPY_CONCURRENCY_VALUE
    explanation: list[str]


def expected_bytes_per_second(bandwidth: DownloadPlan, nodes: int) -> float:
    """What one node is expected to take: batches are as long as wanted only where that is about right."""
    if bandwidth.expected_gbps:
        return bandwidth.expected_gbps * 125e6 / nodes
    return min(DEFAULT_BYTES_PER_SECOND, bandwidth.cap_mbps * 125e3 or DEFAULT_BYTES_PER_SECOND)


def plan_download(*, nodes: int, nic_mbps: float = 0, egress_mbps: float = 0, accounts: int = 1) -> DownloadPlan:
    """Caps per node for ``nodes`` that read from ``accounts`` storage accounts of ``egress_mbps`` each."""
    _check(nodes=nodes, accounts=accounts)
    _check_rates(nic_mbps=nic_mbps, egress_mbps=egress_mbps)
    demand, supply = nodes * nic_mbps, accounts * egress_mbps
    if not supply:
        text = "The egress limit of the storage account is not known: nodes are not capped."
        return DownloadPlan(0.0, "nic" if nic_mbps else "unknown", demand / 1000, [text])
    cap = math.floor(supply / nodes * 1000) / 1000
    offer = f"{_count(accounts, 'storage account')} {'gives' if accounts == 1 else 'give'} {_gbps(supply)}"
    if not nic_mbps:
        _check_node_cap(cap, nodes)
        text = f"{offer}: each of {_count(nodes, 'node')} may take {_gbps(cap)}. The nodes' own limit is not known."
        return DownloadPlan(cap, "unknown", 0.0, [text])
    wish = f"{_count(nodes, 'node')} of {_gbps(nic_mbps)} can take {_gbps(demand)}"
    if demand <= supply:
        text = f"{wish}, {offer}: the network interfaces are the limit, no cap is needed."
        return DownloadPlan(0.0, "nic", demand / 1000, [text])
    _check_node_cap(cap, nodes)
    needed = math.ceil(demand / egress_mbps)
    explanation = [
        f"{wish}, {offer}: the account limit binds, so each node is capped at {_gbps(cap)}.",
        f"Spread over {needed} storage accounts the data would arrive at the full {_gbps(demand)}.",
    ]
    return DownloadPlan(cap, "egress", supply / 1000, explanation)


def plan_upload(*, processes: int, ingress_mbps: float, share: float = UPLOAD_SHARE) -> UploadPlan:
    """Caps for ``processes`` that write to one account: together they take ``share`` of its ingress limit at most."""
    _check(processes=processes)
    _check_rates(ingress_mbps=ingress_mbps)
    if not ingress_mbps or not 0 < share <= 1:
        raise ClusterError(
            "bad_input",
            f"An upload cannot be planned for {share} of an ingress limit of {ingress_mbps} Mb/s.",
            "Give the ingress limit of the storage account in Mb/s, and a share above 0 and up to 1.",
        )
    # Rounded before it is cut: 0.92 x 20,000 must not become 18,399 because of the binary fraction.
    cap = math.floor(round(ingress_mbps * share / processes, 6) * 1000) / 1000
    cap = float(math.floor(cap)) if cap >= 100 else cap
    if cap < SMALLEST_CAP_MBPS:
        raise ClusterError(
            "bad_input",
            f"A cap of {cap:g} Mb/s for each of {_count(processes, 'process', 'processes')} is too low for AzCopy.",
            "Let fewer `processes` copy, or correct `ingress_mbps`.",
        )
    text = (
        f"{_count(processes, 'process', 'processes')} of {cap:g} Mb/s take {processes * cap:g} of the"
        f" {ingress_mbps:g} Mb/s that the storage account accepts ({share:.0%} at most)."
    )
    return UploadPlan(cap, processes * cap, UPLOAD_CONCURRENCY, [text])


def split_cap(cap_mbps: float, bytes_of: t.Mapping[_Key, int]) -> dict[_Key, float]:
    """A node's cap (0: none) for each of several sources that it copies from at once: by their bytes.

    None gets less than AzCopy needs to send anything: one small file beside 9 GB must not fail the copy.
    """
    least = min(SMALLEST_CAP_MBPS, cap_mbps / max(1, len(bytes_of)))
    caps = dict.fromkeys(bytes_of, least)
    left = sorted(bytes_of, key=lambda source: bytes_of[source])  # those that may get more than the least
    while left:
        total = sum(bytes_of[source] for source in left)
        rest = cap_mbps - least * (len(bytes_of) - len(left))
        shares = {source: rest * (bytes_of[source] / total if total else 1 / len(left)) for source in left}
        if len(left) == 1 or shares[left[0]] >= least:
            caps.update(shares)
            break
        left = left[1:]
    return caps


def most_processes(cap_mbps: float) -> int:
    """How many processes of AzCopy a cap (0: none) is enough for."""
    return max(1, min(MOST_PROCESSES, int(cap_mbps / SMALLEST_CAP_MBPS))) if cap_mbps else MOST_PROCESSES


def _check_node_cap(cap_mbps: float, nodes: int) -> None:
    """A node's cap is shared by as many processes as a batch may have."""
    if cap_mbps < MOST_PROCESSES * SMALLEST_CAP_MBPS:
        raise ClusterError(
            "bad_input",
            f"A cap of {cap_mbps:g} Mb/s for each of {_count(nodes, 'node')} is too low for AzCopy.",
            "Let fewer nodes copy, or correct `egress_mbps`.",
        )


def _check(**counts: int) -> None:
    for what, count in counts.items():
        if count < 1:
            raise ClusterError("bad_input", f"The number of {what} is {count}.", "Give one or more.")


def _check_rates(**rates: float) -> None:
    for what, rate in rates.items():
        if not math.isfinite(rate) or rate < 0:
            raise ClusterError("bad_input", f"{what} is {rate}.", "Give a rate in Mb/s, or 0 where it is not known.")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _gbps(mbps: float) -> str:
    return f"{mbps / 1000:.4g} Gb/s" if mbps >= 1000 else f"{mbps:.4g} Mb/s"


__all__ = [
    "UPLOAD_CONCURRENCY",
    "UPLOAD_SHARE",
    "DownloadPlan",
    "UploadPlan",
    "most_processes",
    "plan_download",
    "plan_upload",
    "split_cap",
]
