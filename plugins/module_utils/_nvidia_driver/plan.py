# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What has to be done to a node for a request, why, and with whose consent. Pure: facts in, a plan out."""

from __future__ import annotations

import dataclasses
import enum
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Root, upstream
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.hardware import (
    check_cuda,
    choose_module,
    cudas_of_dcgm,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.kernels import metapackage_headers
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts, Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    SIGNED_MODULES,
    Difference,
    branch_of,
    check_version,
    compare,
    flavor_of,
    gdrcopy_roots,
    has_streams,
    in_stack,
    is_fabric_manager,
    is_gdrcopy,
    is_kernel_module,
    is_nscq,
    supported_distribution,
    wanted_roots,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.settings import module_options

# What the kernel calls an option of the module where it is not the option's name without NVreg_.
_PARAMETERS = {"NVreg_RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The driver that a node is to have. ``flavor`` is empty where there is no GPU to choose a kernel module for."""

    version: str
    branch: int
    flavor: str
    dist: Distribution
    fabric: bool
    peermem: bool
    nvlink5: bool = False
    roots: tuple[Root, ...] = ()

    def text(self) -> str:
        """For people."""
        return f"{self.version} ({self.flavor} module)"


class Do(enum.Enum):
    """What a step does."""

    FETCH = "have NVIDIA's installer, and know that it is the right one"
    REPOSITORY = "add the repository where packages have to come from it"
    SIMULATE = "ask the package system what it would do, with the repository"
    DOWNLOAD = "have the packages on the node"
    RELEASE = "get the driver that runs out of the way, or decide on a reboot"
    FILES = "write the settings"
    PACKAGES = "make the one transaction"
    INSTALLER = "run NVIDIA's installer"
    UNITS = "let the services start with the machine, and as they should"
    HOLD = "keep upgrades of the system away from the driver"
    INITRAMFS = "rebuild the initramfs where settings changed that lie in it"
    CONFIGURE = "load the driver, start its services, set modes of GPUs"


@dataclasses.dataclass(frozen=True)
class Step:
    """One step. ``reasons`` are for people; one of the options ``consents`` has to be true for it."""

    do: Do
    reasons: tuple[str, ...] = ()
    consents: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps in their order.

    ``prepare`` touches nothing that serves. From the first step of ``change`` on, the node may be without a driver, and
    there is a way back as long as nothing was installed. ``finish`` comes when all is in its place.
    """

    wanted: Wanted
    difference: Difference
    replaces: str
    reload: tuple[str, ...]
    prepare: tuple[Step, ...]
    change: tuple[Step, ...]
    finish: tuple[Step, ...]


def _wants(option: str, found: bool) -> bool:
    return option == "always" or (option == "auto" and found)


def choose(request: Request, facts: Facts) -> Wanted:
    """The driver for this node, without its packages; refuses what cannot serve its GPUs."""
    version = check_version(request.version)
    branch = branch_of(version)
    flavor = choose_module(facts.hardware, request.kernel_module, branch)
    check_cuda(facts.hardware, request.cuda_version, branch)
    dist = supported_distribution(facts.os_release)
    fabric = _wants(request.fabric_manager, facts.hardware.nvswitches > 0)
    peermem, nvlink5 = _wants(request.peermem, facts.openibd), fabric and facts.hardware.nvlink5
    return Wanted(version, branch, flavor, dist, fabric, peermem, nvlink5)


def with_roots(request: Request, facts: Facts, wanted: Wanted) -> Wanted:
    """The same, with the packages that are wanted by name."""
    roots = wanted_roots(
        wanted.dist,
        source=request.source,
        flavor=wanted.flavor,
        version=wanted.version,
        fabric_manager=wanted.fabric,
        nscq=request.nscq and wanted.fabric,
        kernels=[one for one in dict.fromkeys((facts.kernel, facts.next_kernel)) if one],
        headers=request.kernel_headers,
        nvlink5=wanted.nvlink5,
        dcgm_cudas=cudas_of_dcgm(facts.hardware, wanted.branch) if request.dcgm else (),
        dcgm_version=request.dcgm_version,
        cuda=request.cuda_version,
        override=request.packages,
    )
    if request.gdrcopy:
        roots += gdrcopy_roots(wanted.dist.manager, request.gdrcopy_version)
    if facts.stream is not None and request.hold:
        roots.append(Root("python3-dnf-plugin-versionlock"))
    return dataclasses.replace(wanted, roots=tuple(roots))


def with_later_kernels(request: Request, facts: Facts, wanted: Wanted) -> Wanted:
    """The same, with the packages that bring the headers of kernels to come, wherever a package brings those kernels."""
    if not request.kernel_headers or wanted.dist.manager != "dpkg":
        return wanted
    names = metapackage_headers(facts.packages)
    return dataclasses.replace(wanted, roots=(*wanted.roots, *(Root(name) for name in names)))


def stream_to_enable(request: Request, facts: Facts, wanted: Wanted) -> str:
    """The module stream to enable on EL; empty when the right one is, or there is none to choose."""
    if facts.stream is None or request.source != "cuda_repo" or not has_streams(wanted.dist):
        return ""
    stream = f"{wanted.branch}-{'open' if wanted.flavor == 'open' else 'dkms'}"
    return "" if facts.stream == stream else stream


def difference_of(request: Request, facts: Facts, wanted: Wanted) -> Difference:
    """What differs between the packages of the node and those that are wanted."""
    version, flavor = (wanted.version, wanted.flavor) if request.packaged else ("", "")
    return compare(facts.packages, wanted.roots, version, flavor)


def _rides_along(name: str) -> bool:
    """Whether this has the driver's version, and is none by itself: what NVSwitches need."""
    return is_fabric_manager(name) or is_nscq(name) or name.startswith("libnvsdm")


def check_source(request: Request, facts: Facts, wanted: Wanted) -> None:
    """Refuse a driver beside one that came another way: they would overwrite each other's files."""
    if request.packaged and facts.uninstaller and difference_of(request, facts, wanted):
        raise ClusterError(
            "other_source",
            "A driver from NVIDIA's .run file is installed; packages beside it would overwrite each other's files.",
            "Remove it first (`state: absent`, the role's entry point remove, with `source: runfile`).",
        )
    drivers = [name for name, one in facts.packages.items() if in_stack(name, one.version) and not _rides_along(name)]
    if drivers and not request.packaged:
        raise ClusterError(
            "other_source",
            f"Packages of a driver are installed ({', '.join(sorted(drivers)[:6])}); the .run file would overwrite them.",
            "Remove them first (`state: absent`, the role's entry point remove, with `source: cuda_repo` or `source: distro`).",
        )


def installer_pending(request: Request, wanted: Wanted, libraries: t.Sequence[str], on_disk: tuple[str, str]) -> bool:
    """Whether NVIDIA's installer has to run: another driver than the wanted one, or none, lies on the disk."""
    there = list(libraries) == [wanted.version] and on_disk == (wanted.version, wanted.flavor)
    return not request.packaged and not there


def builds_module(request: Request, facts: Facts, wanted: Wanted) -> bool:
    """Whether the change builds a kernel module on this node, which dkms does for every driver that is not there yet."""
    difference = difference_of(request, facts, wanted)
    if any(map(is_gdrcopy, (*difference.missing, *difference.other_version))):
        return True
    if not request.packaged:
        return installer_pending(request, wanted, facts.libraries, facts.on_disk)
    if not difference:
        return False
    if any(name.startswith(SIGNED_MODULES) for name in request.packages):
        # Those that dkms built leave, unless they are asked for as well.
        return any(map(is_kernel_module, request.packages))
    there = (name for name, one in facts.packages.items() if one.present and upstream(one.version) == wanted.version)
    return flavor_of(there) != wanted.flavor


def replaced(request: Request, facts: Facts, wanted: Wanted, difference: Difference) -> str:
    """The driver that would be replaced, for people; empty when there is none.

    Fabric Manager alone is none: with another version than the driver's it does not even start. Nor is a library for NVSwitches.
    """
    if not request.packaged:
        have = [one for one in facts.libraries if one != wanted.version]
        return have[0] if have else ""
    stack = {name: one for name, one in facts.packages.items() if in_stack(name, one.version)}
    others = [name for name in difference.other_version if name in stack and not _rides_along(name)]
    if not others and not difference.other_flavor:
        return ""
    versions = sorted({upstream(one.version) for name, one in stack.items() if not _rides_along(name)})
    flavor = flavor_of(stack)
    return f"{'/'.join(versions)}{f' ({flavor} module)' if flavor else ''}"


def _reasons(request: Request, facts: Facts, wanted: Wanted) -> tuple[str, ...]:
    if facts.chroot:
        return ()
    options = module_options(request) if request.configures else {}
    nouveau = facts.hardware.nouveau
    return tuple(reload_reasons(facts.loaded, wanted.version, wanted.flavor, options, nouveau=nouveau))


def plan(request: Request, facts: Facts, wanted: Wanted) -> Plan:
    """The steps that make this node what it is wanted to be."""
    difference = difference_of(request, facts, wanted)
    pending = installer_pending(request, wanted, facts.libraries, facts.on_disk)
    reload = _reasons(request, facts, wanted)
    replaces = replaced(request, facts, wanted, difference)
    agreed = ("allow_upgrade",) if replaces else ()
    differs = tuple(difference.text(facts.packages))
    installer = [Step(Do.INSTALLER, (f"{wanted.text()} is not installed",), agreed)] if pending else []
    prepare = [
        *([Step(Do.FETCH, installer[0].reasons)] if pending else []),
        Step(Do.REPOSITORY),
        *([Step(Do.SIMULATE, differs)] if difference else []),
        # While the old driver still serves, the network may fail.
        *([Step(Do.DOWNLOAD, differs)] if difference and reload else []),
    ]
    change = [
        *([Step(Do.RELEASE, reload, ("allow_unload", "allow_reboot"))] if reload else []),
        Step(Do.FILES),
        *([Step(Do.PACKAGES, differs, agreed)] if difference else []),
        *installer,
        Step(Do.UNITS),
        *([Step(Do.HOLD)] if request.hold else []),
        Step(Do.INITRAMFS),
    ]
    finish = [Step(Do.CONFIGURE)] if request.configures else []
    return Plan(wanted, difference, replaces, reload, tuple(prepare), tuple(change), tuple(finish))


def _as_kernel_reads(value: str) -> int | str:
    """What an option's value is to the kernel. It shows integers unsigned and in decimal, and strings in quotes."""
    text = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    if not re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text):
        return text
    digits = text.lstrip("+-")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return int(text, base) % 2**32


def reload_reasons(
    loaded: Loaded, version: str, flavor: str, options: t.Mapping[str, str], *, nouveau: bool
) -> list[str]:
    """Why the kernel module that runs must be replaced by another one; empty when it need not."""
    reasons = []
    if nouveau:
        reasons.append("nouveau drives the GPUs")
    if not loaded.version:
        return reasons
    if loaded.version != version:
        reasons.append(f"the kernel runs driver {loaded.version}, and {version} is wanted")
    elif loaded.flavor and flavor and loaded.flavor != flavor:
        reasons.append(f"the kernel runs the {loaded.flavor} module, and the {flavor} one is wanted")
    for option, value in options.items():
        have = loaded.parameters.get(_PARAMETERS.get(option, option.replace("NVreg_", "", 1)))
        if have is not None and _as_kernel_reads(have) != _as_kernel_reads(value):
            reasons.append(f"the kernel module runs with {option}={have}, and {value} is wanted")
    return reasons


def check_consent(
    request: Request,
    *,
    replaces: str,
    wanted: str,
    would: t.Sequence[str],
    reload: t.Sequence[str],
    users: t.Sequence[str],
) -> None:
    """Refuse what was not agreed to. ``replaces`` names the driver that would be replaced, ``would`` what would be done."""
    plan = ("" if not would else f" It would {', '.join(would[:12])}") + (", ..." if len(would) > 12 else "")
    plan += "." if plan else ""
    if replaces and not request.allow_upgrade:
        raise ClusterError(
            "consent_missing",
            f"Installed is {replaces}, wanted is {wanted}.{plan} Nothing was changed.",
            "Set `allow_upgrade: true` to replace the driver, or ask for the one that is installed.",
            would=list(would),
        )
    if not reload:
        return
    if not (request.allow_unload or request.allow_reboot):
        raise ClusterError(
            "consent_missing",
            f"This needs the kernel module to be unloaded or the node to be rebooted: {'; '.join(reload)}.{plan} "
            "Nothing was changed.",
            "Set `allow_unload: true` or `allow_reboot: true`.",
            would=list(would),
        )
    if users and not request.allow_reboot and not request.drain:
        raise ClusterError(
            "in_use",
            f"The kernel module cannot be unloaded, the GPUs are used by {', '.join(users[:8])}. Nothing was changed.",
            "Wait for them or stop them, set `drain: true`, or agree to `allow_reboot`.",
        )


__all__ = [
    "Do",
    "Plan",
    "Step",
    "Wanted",
    "builds_module",
    "check_consent",
    "check_source",
    "choose",
    "difference_of",
    "installer_pending",
    "plan",
    "reload_reasons",
    "replaced",
    "stream_to_enable",
    "with_later_kernels",
    "with_roots",
]
