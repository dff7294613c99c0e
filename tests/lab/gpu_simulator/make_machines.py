#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write machines.json, the simulator's machine types, from the profiles of the role node_profile.

The node has no PyYAML, so the profiles are turned into JSON here. A unit test fails when the file is out of date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
PROFILES = HERE.parents[2] / "roles/node_profile/files/profiles"
TARGET = HERE / "machines.json"
# Highest SM and memory clock in MHz, default application clock of the SM in MHz, compute capability, and whether it has
# MIG. The clocks as nvidia-smi prints them for the model; where the default clock is no public figure, the highest stands.
MODELS = {
    "NVIDIA A100-SXM4-40GB": (1410, 1215, 1095, "8.0", True),
    "NVIDIA A100-SXM4-80GB": (1410, 1593, 1410, "8.0", True),
    "NVIDIA A100 80GB PCIe": (1410, 1512, 1410, "8.0", True),
    "NVIDIA H100 80GB HBM3": (1980, 2619, 1980, "9.0", True),
    "NVIDIA H200": (1980, 3201, 1980, "9.0", True),
    "NVIDIA B200": (1965, 3996, 1965, "10.0", True),
    "Tesla V100-SXM2-32GB": (1530, 877, 1530, "7.0", False),
    "Tesla V100-PCIE-16GB": (1380, 877, 1230, "7.0", False),
}


def machines() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for path in sorted(PROFILES.glob("*.yml")):
        profile = yaml.safe_load(path.read_text(encoding="utf-8"))
        gpus = profile.get("gpus")
        if not gpus:
            continue
        model = gpus["models"][0]
        max_sm, max_mem, default_sm, compute_cap, mig = MODELS[model["name"]]
        # Where addresses are not published, the ones that Azure gives to its other sizes.
        bus_ids = gpus.get("bus_ids") or [f"{number + 1:04x}:00:00.0" for number in range(gpus["count"])]
        found[profile["name"]] = {
            "name": model["name"],
            "memory_mib": model["memory_mib"],
            "bus_ids": bus_ids,
            "max_sm_mhz": max_sm,
            "max_mem_mhz": max_mem,
            "default_sm_mhz": default_sm,
            "compute_cap": compute_cap,
            "mig": mig,
            "hcas": infiniband(profile.get("fabric", {})),
        }
    return found


def infiniband(fabric: dict[str, Any]) -> dict[str, int]:
    """Name and Gbit/s of the adapters that NCCL finds as NET/IB; where no names are published, the kernel's."""
    named = [hca for hca in fabric.get("hcas", []) if hca.get("link_layer") == "InfiniBand"]
    if not named and "rate_gbps" in fabric:
        return {f"mlx5_{number}": fabric["rate_gbps"] for number in range(fabric["count"])}
    return {hca["name"]: hca["rate_gbps"] for hca in named}


def text() -> str:
    return json.dumps(machines(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
