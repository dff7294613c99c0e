# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which GPUs are meant, and what to say of those that do not answer."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiReport
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import bus_id_or_empty

_NAMES_REMEDY = "Name GPUs by index, UUID or bus id; a GPU that is missing has an XID in the kernel log."


def lost_gpus(report: SmiReport) -> list[dict[str, str]]:
    """GPUs that are there and do not answer; not what the driver complains about in general."""
    return [item for item in report.unknown if item["what"].startswith("gpu") and item["what"] != "gpus"]


def selected(gpus: list[Gpu], wanted: t.Sequence[str]) -> tuple[list[Gpu], list[str]]:
    """The GPUs that were named, and names that none answers to. Refuses where that is all of them."""
    if not wanted:
        return gpus, []
    chosen: list[Gpu] = []
    missing: list[str] = []
    for name in wanted:
        bus_id = bus_id_or_empty(name)
        found = [gpu for gpu in gpus if name in (str(gpu.index), gpu.uuid) or gpu.bus_id == bus_id]
        chosen += [gpu for gpu in found if gpu not in chosen]
        missing += [] if found else [name]
    if not chosen:
        there = ", ".join(f"{gpu.index} ({gpu.bus_id})" for gpu in gpus) or "none"
        raise ClusterError(
            "no_such_gpu",
            f"GPU {', '.join(missing)} does not answer. These do: {there}. No clock was changed.",
            _NAMES_REMEDY,
        )
    return chosen, missing


def unanswered(names: t.Sequence[str], report: SmiReport) -> list[dict[str, str]]:
    """What to say of GPUs that were named and do not answer."""
    found = []
    for name in names:
        item = {"reason": "nvidia-smi does not list it", "remedy": _NAMES_REMEDY}
        for known in lost_gpus(report):
            # "gpu 3 (0004:00:00.0)", or as much of it as is known.
            label, _space, place = known["what"].partition(" (")
            if label == f"gpu {name}" or (place and place.rstrip(")") == bus_id_or_empty(name)):
                item = known
        found.append({**item, "what": f"GPU {name} does not answer"})
    return found


__all__ = ["lost_gpus", "selected", "unanswered"]
