# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What NVIDIA hardware a node has, read without a driver, and which kernel module and CUDA it can use.

A PCI device id names the chip, and chips of a generation have ids in a row (pci.ids of pciutils, vendor 10de;
NVIDIA/gpu-admin-tools, gpu/devid_names.py; NVIDIA/open-gpu-kernel-modules, "Compatible GPUs"). What a generation needs:

* NVIDIA Driver Installation Guide, "Kernel Modules": Maxwell, Pascal and Volta need the proprietary modules, the open
  ones are for Turing and newer; Blackwell and Grace Hopper work with the open ones only, and machines with older and
  newer GPUs use the proprietary ones. https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
* CUDA 13.0 release notes: Maxwell, Pascal and Volta are no longer supported; R580 is their last driver branch.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import entry_names, read_text

_VERSION = re.compile(r"\d+(?:\.\d+)*")
_NVIDIA, _MELLANOX = "0x10de", "0x15b3"
_DISPLAY, _BRIDGE = "0x03", "0x0680"
# First and last device id of each generation; what lies between belongs to audio, USB and bridge functions as well.
_GENERATIONS: tuple[tuple[int, int, str], ...] = (
    (0x0000, 0x133F, "kepler"),
    (0x1340, 0x15EF, "maxwell"),
    (0x15F0, 0x15FF, "pascal"),
    (0x1600, 0x1724, "maxwell"),
    (0x1725, 0x172F, "pascal"),
    (0x1730, 0x1AFF, "maxwell"),
    (0x1B00, 0x1D7F, "pascal"),
    (0x1D80, 0x1DFF, "volta"),
    (0x1E00, 0x207F, "turing"),
    (0x2080, 0x20FF, "ampere"),
    (0x2100, 0x21FF, "turing"),
    (0x2200, 0x22FF, "ampere"),
    (0x2300, 0x233F, "hopper"),
    (0x2340, 0x237F, "grace-hopper"),
    (0x2380, 0x267F, "ampere"),
    (0x2680, 0x28FF, "ada"),
)
_NEWEST = "blackwell"
_PROPRIETARY_ONLY = frozenset({"maxwell", "pascal", "volta"})
_OPEN_ONLY = frozenset({"grace-hopper", _NEWEST})
# The last branch of the driver, and the last CUDA, for the generations above.
LAST_BRANCH, LAST_CUDA = 580, (12, 9)
# The first branch for Blackwell (Fabric Manager User Guide, "Minimum versions").
_FIRST_BRANCH = 570
# GPUs whose NVSwitches are reached through a ConnectX function instead of being PCI devices themselves (HGX B200, B300).
_HIDDEN_SWITCH = ((0x2900, 0x29FF), (0x3180, 0x31FF))


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU on the PCI bus."""

    bus_id: str
    device_id: int

    @property
    def generation(self) -> str:
        """The name of its architecture, in small letters."""
        return next((name for low, high, name in _GENERATIONS if low <= self.device_id <= high), _NEWEST)


@dataclasses.dataclass(frozen=True)
class Hardware:
    """The NVIDIA devices of a node. ``nvlink5``: its NVSwitches are reached through ConnectX functions, as an InfiniBand subnet."""

    gpus: tuple[Gpu, ...] = ()
    nvswitches: int = 0
    nvlink5: bool = False
    nouveau: bool = False

    @property
    def generations(self) -> list[str]:
        """Which architectures there are, sorted."""
        return sorted({gpu.generation for gpu in self.gpus})


def _manages_switches(device: Path) -> bool:
    """Whether a ConnectX function is the one through which Fabric Manager reaches NVSwitches.

    Its vital product data says so: NVIDIA Fabric Manager User Guide, "NVLink 5 systems" (``SW_MNG``).
    """
    try:
        return b"SW_MNG" in (device / "vpd").read_bytes()
    except OSError:
        return False


def read_hardware(root: Path) -> Hardware:
    """The devices below ``root``'s ``/sys``; nothing there is an empty bus."""
    base = root / "sys/bus/pci/devices"
    gpus, switches, others = [], 0, []
    for name in entry_names(base):
        vendor, kind = read_text(base / name / "vendor"), read_text(base / name / "class")
        if vendor == _MELLANOX:
            others.append(base / name)
        if vendor != _NVIDIA:
            continue
        if kind.startswith(_DISPLAY):
            gpus.append(Gpu(name, int(read_text(base / name / "device") or "0", 16)))
        elif kind.startswith(_BRIDGE):
            switches += 1
    # Vital product data is slow to read, so only where it can matter.
    nvlink5 = not switches and any(low <= gpu.device_id <= high for gpu in gpus for low, high in _HIDDEN_SWITCH)
    if nvlink5:
        switches = sum(map(_manages_switches, others))
    return Hardware(tuple(gpus), switches, nvlink5 and switches > 0, nouveau=(root / "sys/module/nouveau").is_dir())


def _refuse(message: str, remedy: str) -> t.NoReturn:
    raise ClusterError("unsupported_gpu", message, remedy)


def _where(hardware: Hardware, generations: t.Collection[str]) -> str:
    found = [f"{gpu.bus_id} ({gpu.generation})" for gpu in hardware.gpus if gpu.generation in generations]
    return ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")


def choose_module(hardware: Hardware, wanted: str, branch: int) -> str:
    """``open`` or ``proprietary``; refuses what cannot drive these GPUs. Empty when it cannot be known.

    ``branch`` is the first number of the driver's version, 0 when no version was asked for.
    """
    has = set(hardware.generations)
    if "kepler" in has:
        _refuse(
            f"{_where(hardware, {'kepler'})} is older than every driver that this role installs.",
            "Remove the GPU, or install its legacy driver by hand and set `source: preinstalled`.",
        )
    old, new = has & _PROPRIETARY_ONLY, has & _OPEN_ONLY
    if old and new:
        _refuse(
            f"{_where(hardware, old)} needs the proprietary kernel modules, {_where(hardware, new)} the open ones.",
            "No driver serves both: put them into different nodes.",
        )
    if old and branch > LAST_BRANCH:
        _refuse(
            f"{_where(hardware, old)} is not supported by driver {branch}; the last branch for it is {LAST_BRANCH}.",
            f"Set `version` to a version of the {LAST_BRANCH} branch.",
        )
    if _NEWEST in has and 0 < branch < _FIRST_BRANCH:
        _refuse(
            f"{_where(hardware, {_NEWEST})} is not supported by driver {branch}; the first branch for it is {_FIRST_BRANCH}.",
            f"Set `version` to a version of the {_FIRST_BRANCH} branch or newer.",
        )
    if wanted == "open" and old:
        _refuse(
            f"{_where(hardware, old)} cannot be driven by the open kernel modules.",
            "Set `kernel_module` to auto or proprietary.",
        )
    if wanted == "proprietary" and new:
        _refuse(
            f"{_where(hardware, new)} cannot be driven by the proprietary kernel modules.",
            "Set `kernel_module` to auto or open.",
        )
    if wanted != "auto":
        return wanted
    if not has:
        return ""
    return "proprietary" if old else "open"


def check_cuda(hardware: Hardware, cuda: str, branch: int) -> None:
    """Refuse a CUDA toolkit that these GPUs or this driver cannot run."""
    if not cuda:
        return
    if not _VERSION.fullmatch(cuda):
        raise ClusterError(
            "bad_input",
            f"`cuda_version` ({cuda!r}) is no version. Nothing was changed.",
            'Write numbers with dots between them, such as "13.0".',
        )
    number = tuple(int(part) for part in cuda.split(".")[:2])
    old = set(hardware.generations) & _PROPRIETARY_ONLY
    if old and number > LAST_CUDA:
        _refuse(
            f"{_where(hardware, old)} is not supported by CUDA {cuda}; the last one is {LAST_CUDA[0]}.{LAST_CUDA[1]}.",
            f'Set `cuda_version` to "{LAST_CUDA[0]}.{LAST_CUDA[1]}" or older.',
        )
    # CUDA release notes, table "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility".
    least = 580 if number >= (13, 0) else 525 if number >= (12, 0) else 450
    if branch and branch < least:
        raise ClusterError(
            "bad_input",
            f"CUDA {cuda} needs driver {least} or newer, and {branch} was asked for.",
            "Raise `version` or lower `cuda_version`.",
        )


def cudas_of_dcgm(hardware: Hardware, branch: int) -> tuple[int, ...]:
    """Which CUDA the builds of DCGM are to be for: that of the driver, and 12 as well for GPUs that CUDA 13 has forgotten.

    DCGM loads the build of the driver's CUDA before it looks at the GPUs (NVIDIA/DCGM#254; azhpc-images, install_dcgm.sh).
    """
    if branch < 580:
        return (12,)
    return (12, 13) if set(hardware.generations) & _PROPRIETARY_ONLY else (13,)


__all__ = [
    "LAST_BRANCH",
    "LAST_CUDA",
    "Gpu",
    "Hardware",
    "check_cuda",
    "choose_module",
    "cudas_of_dcgm",
    "read_hardware",
]
