# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The driver's packages: which ones belong to it, which are wanted, and how those of a node differ. Pure."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import (
    Distribution,
    parse_os_release,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed, Root, matches, upstream
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import Remedies

#: Canonical builds these for a kernel, with the kernel's version, and signs them with a key that its kernels trust.
SIGNED_MODULES = "linux-modules-nvidia-"
# The branch and the kind of driver that they are for; what follows is a kernel, or a flavor whose newest kernel it follows.
_SIGNED_FOR = re.compile(rf"^{SIGNED_MODULES}\d+(-server)?(-open)?(?=-)")
# A driver's version as NVIDIA writes it, without a distribution's epoch and revision: 580.95.05, 550.54.
_DRIVER_VERSION = re.compile(r"^\d{3}\.\d+(\.\d+)?$")
# Names that NVIDIA, Canonical, Debian and RPM Fusion give to parts of the driver.
_STACK = re.compile(
    r"^(nvidia-|libnvidia-|libnvsdm|cuda-drivers|kmod-nvidia|dkms-nvidia|xserver-xorg-video-nvidia|firmware-nvidia-"
    r"|libcuda1$|libnvcuvid1$|libnvoptix1$|libegl-nvidia|libglx-nvidia|libgles-nvidia|libgl1-nvidia|libxnvctrl|xorg-x11-nvidia)"
)
# Separate programs with versions of their own, or not the driver at all though the names look like it.
_APART = re.compile(
    r"^(nvidia-(settings|modprobe|persistenced|xconfig|container|docker|support|installer-cleanup|alternative|egl"
    r"|driver-pinning|cuda|cudnn|ml-py|prime|detect|suspend|gds|fs)|libnvidia-container|libxnvctrl)"
)
# GDRCopy's packages, under the names that NVIDIA's recipes give them (NVIDIA/gdrcopy, packages/): the kernel module as source
# for dkms, and the library that must fit it.
_GDRCOPY = re.compile(r"^(gdrcopy(-[\w.+-]+)?|gdrdrv-dkms|libgdrapi)$")
# What came along with the driver and is of no use without it.
_COMPANIONS = re.compile(
    r"^(nvidia-open|cuda-drivers|nvidia-persistenced|nvidia-modprobe|nvlsm|datacenter-gpu-manager-4.*"
    r"|linux-(modules|objects|signatures)-nvidia-.*)$"
)
# Small programs and links of a driver, with versions of their own, that another one may replace by its own.
_REPLACEABLE = re.compile(
    r"^(nvidia-(settings|xconfig|support|installer-cleanup|legacy-check|alternative|egl|driver-pinning)|libxnvctrl|glx-alternative-)"
)
#: What a transaction of the driver brings along, and may leave half done where it is cut off.
NEEDED: tuple[str, ...] = ("dkms",)
#: For unattended-upgrades and apt preferences: patterns that cover every part of the driver.
NAME_PATTERNS: tuple[str, ...] = (
    "nvidia-*",
    "libnvidia-*",
    "libnvsdm*",
    "cuda-drivers*",
    "firmware-nvidia-*",
    "xserver-xorg-video-nvidia*",
    "libcuda1",
    "libnvcuvid1",
    "libnvoptix1",
)
#: What helps where a package system cannot bring a driver.
REMEDIES = Remedies(
    no_manager="Set `source: preinstalled`.",
    no_version="Set `version` to one of these, or use a repository that keeps the wanted one.",
    no_package="Check `source` and the repository, or name the packages in `packages`.",
)


def branch_of(version: str) -> int:
    """The first number of a driver's version; 0 for none."""
    first = version.partition(".")[0]
    return int(first) if first.isdigit() else 0


def check_version(version: str) -> str:
    """Accept only a whole version, so that "580" never means whichever came last."""
    if not _DRIVER_VERSION.match(version):
        raise ClusterError(
            "bad_input",
            f"`version` is {version!r}.",
            "Write the whole version as NVIDIA does, without epoch or revision, for example 580.95.05.",
        )
    return version


def has_driver_version(name: str, version: str) -> bool:
    """Whether a package bears a driver's name and version: a part of it, or a program that came with one."""
    return bool(_STACK.match(name) and _DRIVER_VERSION.match(upstream(version)))


def in_stack(name: str, version: str) -> bool:
    """Whether a package is a part of the driver that must have the driver's version."""
    return has_driver_version(name, version) and not _APART.match(name)


def to_hold(packages: t.Mapping[str, Installed], version: str, *, gdrcopy: bool) -> list[str]:
    """Packages that an upgrade must leave alone: the driver's parts, and the small programs that came at its version.

    ``gdrcopy``: those of GDRCopy as well, whose module was built for this driver.
    """
    return sorted(
        name
        for name, one in packages.items()
        if in_stack(name, one.version)
        or (version and _STACK.match(name) and upstream(one.version) == version)
        or (gdrcopy and is_gdrcopy(name))
    )


def is_fabric_manager(name: str) -> bool:
    """Whether this is Fabric Manager itself, under any of its names (not its headers)."""
    return bool(re.match(r"^nvidia-fabric-?manager(-\d+)?$", name))


def is_nscq(name: str) -> bool:
    """Whether this is the library through which DCGM asks NVSwitches, under any of its names."""
    return bool(re.match(r"^libnvidia-nscq(-\d+)?$", name))


def is_gdrcopy(name: str) -> bool:
    """Whether this is a package of GDRCopy."""
    return bool(_GDRCOPY.match(name))


def is_companion(name: str) -> bool:
    """Whether a package came along with the driver, and is of no use without it."""
    return bool(_COMPANIONS.match(name))


def is_of_others(name: str, version: str) -> bool:
    """Whether a package is none that a change of the driver may take away."""
    own = has_driver_version(name, version) or is_companion(name) or is_gdrcopy(name) or _REPLACEABLE.match(name)
    return not own


def is_kernel_module(name: str) -> bool:
    """Whether this is the package of the driver's kernel module, built by dkms or as a kmod of EL."""
    pattern = r"^(nvidia-dkms|nvidia-(open-)?kernel-(open-)?dkms|kmod-nvidia|nvidia-kmod|dkms-nvidia)"
    return bool(re.match(pattern, name)) and not name.endswith("-common")


def flavor_of(names: t.Iterable[str]) -> str:
    """``open`` or ``proprietary``, by the kernel module's package; empty when there is none.

    CUDA repository: nvidia-dkms-580-open, nvidia-dkms-open, kmod-nvidia-open-dkms, nvidia-kernel-open-dkms; Debian:
    nvidia-open-kernel-dkms. Without the word open it is the proprietary one.
    """
    kernel = [name for name in names if is_kernel_module(name)]
    if not kernel:
        return ""
    return "open" if any("open" in name.split("-") for name in kernel) else "proprietary"


# -- what is wanted --------------------------------------------------------------------------------------------------


def supported_distribution(text: str) -> Distribution:
    """The distribution by /etc/os-release; refuses one that has no driver's packages known here."""
    dist = parse_os_release(text)
    first = dist.version.partition(".")[0]
    known = (dist.id, dist.version) in (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("debian", "12"))
    if known or (dist.id in ("rhel", "almalinux", "rocky", "ol") and first in ("8", "9", "10")):
        return dist
    raise ClusterError(
        "unsupported_distribution",
        f"nvidia_driver does not install drivers on {dist.name or 'this system'}.",
        "It knows Ubuntu 22.04 and 24.04, Debian 12, and RHEL, AlmaLinux, Rocky and Oracle Linux 8, 9 and 10. Install the driver "
        "another way and set `source: preinstalled`.",
    )


def has_streams(dist: Distribution) -> bool:
    """Whether dnf sees only the driver of an enabled module stream.

    From EL 10 on there are none (NVIDIA's installation guide, "Kernel Modules"): exact versions choose the branch, and locks keep it.
    """
    return dist.manager == "rpm" and dist.version.partition(".")[0] in ("8", "9")


def _fabric_manager(source: str, manager: str, branch: int) -> str:
    # Renamed with R580 in NVIDIA's repositories (azhpc-images, components/install_nvidia_fabric_manager.sh).
    if source == "distro":
        return f"nvidia-fabricmanager-{branch}"
    if branch >= 580:
        return "nvidia-fabricmanager"
    return "nvidia-fabric-manager" if manager == "rpm" else f"nvidia-fabricmanager-{branch}"


def _nscq(source: str, branch: int) -> str:
    # Lost the branch with R580 in NVIDIA's repositories, as Fabric Manager did; Ubuntu keeps it.
    return "libnvidia-nscq" if source != "distro" and branch >= 580 else f"libnvidia-nscq-{branch}"


def gdrcopy_roots(manager: str, version: str) -> list[Root]:
    """GDRCopy's kernel module and its library. ``version``: how theirs must begin, empty for any."""
    names = ("gdrcopy-kmod", "gdrcopy") if manager == "rpm" else ("gdrdrv-dkms", "libgdrapi")
    return [Root(name, version, prefix=True) for name in names]


def nvlink5_roots(version: str) -> list[Root]:
    """What Fabric Manager needs besides itself where the NVSwitches are an InfiniBand subnet (Fabric Manager User Guide).

    The subnet manager has versions of its own, and Fabric Manager's start script asks ``ibstat``. The library for telemetry of
    the switches is the driver's, and was renamed with it.
    """
    branch = branch_of(version)
    return [
        Root("nvlsm"),
        Root("libnvsdm" if branch >= 580 else f"libnvsdm-{branch}", version),
        Root("infiniband-diags"),
    ]


def dcgm_names(cudas: t.Sequence[int]) -> list[str]:
    """DCGM's packages. Its proprietary modules (profiling among them) are only recommended, and so would not come by themselves."""
    if not cudas:
        return []
    name = "datacenter-gpu-manager-4"
    return [f"{name}-proprietary", *(f"{name}{part}-cuda{cuda}" for cuda in cudas for part in ("", "-proprietary"))]


def driver_roots(dist: Distribution, source: str, flavor: str, version: str) -> list[Root]:
    """The packages that bring the driver itself, for a source of packages."""
    branch, is_open = branch_of(version), flavor == "open"
    if source == "cuda_repo":
        return [Root("nvidia-open" if is_open else "cuda-drivers", version)]
    if dist.id == "ubuntu":
        tail = "-server-open" if is_open else "-server"
        return [Root(f"nvidia-headless-{branch}{tail}", version), Root(f"nvidia-utils-{branch}-server", version)]
    if dist.id == "debian":
        kernel = "nvidia-open-kernel-dkms" if is_open else "nvidia-kernel-dkms"
        return [*(Root(name, version) for name in (kernel, "nvidia-smi", "libcuda1")), Root("nvidia-persistenced")]
    raise ClusterError(
        "unsupported_source",
        f"{dist.name} has no NVIDIA driver in its own repositories.",
        "Set `source` to cuda_repo or runfile.",
    )


def kernel_headers(dist: Distribution, kernel: str) -> Root:
    """The headers of a kernel, by its ``uname -r``.

    EL has one package with an instance for each kernel. Its kernels of other flavors say so at the end (``+64k``,
    ``+rt-debug``), Oracle's own and EL 8's real-time ones in the middle (``el9uek``, ``.rt7.``).
    """
    if dist.manager == "dpkg":
        return Root(f"linux-headers-{kernel}")
    instance, _plus, flavor = kernel.partition("+")
    if not flavor:
        flavor = "uek" if "uek." in instance else "rt" if re.search(r"\.rt\d+\.", instance) else ""
    return Root(f"kernel-{flavor}-devel" if flavor else "kernel-devel", instance=instance)


def signed_modules(override: t.Sequence[str], kernels: t.Sequence[str]) -> list[str]:
    """The signed modules of these kernels, where packages of them are named: one that follows a flavor has its newest kernel only."""
    found = (_SIGNED_FOR.match(name) for name in override)
    stems = dict.fromkeys(match[0] for match in found if match)
    return [f"{stem}-{kernel}" for stem in stems for kernel in kernels]


def wanted_roots(
    dist: Distribution,
    *,
    source: str,
    flavor: str,
    version: str,
    fabric_manager: bool,
    nscq: bool,
    nvlink5: bool,
    kernels: t.Sequence[str],
    headers: bool,
    dcgm_cudas: t.Sequence[int],
    dcgm_version: str,
    cuda: str,
    override: t.Sequence[str],
) -> list[Root]:
    """Every package that is wanted by name, the driver's own first. ``kernels``: those that the driver is to run with."""
    roots: list[Root] = []
    if source in ("cuda_repo", "distro"):
        own = [Root(name, "" if name.startswith(SIGNED_MODULES) else version) for name in override]
        own += [Root(name) for name in signed_modules(override, kernels) if name not in override]
        roots += own or driver_roots(dist, source, flavor, version)
    else:
        # The installer builds the module itself.
        roots += [Root(name) for name in (["dkms", "gcc", "make"] if dist.manager == "dpkg" else ["gcc", "make"])]
    if fabric_manager:
        if source == "distro" and dist.id == "debian":
            raise ClusterError(
                "no_fabric_manager",
                f"This node has NVSwitches, and {dist.name} has no Fabric Manager for them.",
                "Set `source: cuda_repo`.",
            )
        roots.append(Root(_fabric_manager(source, dist.manager, branch_of(version)), version))
    if nscq:
        roots.append(Root(_nscq(source, branch_of(version)), version))
    if nvlink5:
        roots += nvlink5_roots(version)
    roots += [kernel_headers(dist, kernel) for kernel in kernels if headers]
    roots += [Root(name, dcgm_version, prefix=True) for name in dcgm_names(dcgm_cudas)]
    if cuda:
        roots.append(Root("cuda-toolkit-" + "-".join(cuda.split(".")[:2])))
    return roots


# -- comparing -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Difference:
    """What has to change: names of packages by what is the matter with them.

    ``superseded``: those of modules that dkms built, which the kernel would take instead of the signed ones.
    """

    missing: tuple[str, ...] = ()
    other_version: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    other_flavor: str = ""
    superseded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.other_version or self.broken or self.other_flavor or self.superseded)

    def text(self, packages: t.Mapping[str, Installed]) -> list[str]:
        """Lines for people."""
        lines = [f"{name} {packages[name].version} is {packages[name].state}" for name in self.broken]
        lines += [f"{name} is missing" for name in self.missing]
        lines += [f"{name} is at {packages[name].version}" for name in self.other_version]
        if self.other_flavor:
            lines.append(f"the kernel module is the {self.other_flavor} one")
        lines += [f"{name} takes precedence of the signed modules" for name in self.superseded]
        return lines


def compare(packages: t.Mapping[str, Installed], roots: t.Sequence[Root], version: str, flavor: str) -> Difference:
    """What differs between the packages of a node and what is wanted. ``version`` empty: any, but one only."""
    stack = {name: one for name, one in packages.items() if in_stack(name, one.version)}
    # Others that are broken are not this role's, unless a transaction is needed: then apt wants them mended first.
    names = {root.name for root in roots}
    broken = [name for name, one in packages.items() if one.broken and (name in names or _STACK.match(name))]
    missing = [root.label for root in roots if root.is_missing(packages)]
    other = {name for name, one in stack.items() if version and upstream(one.version) != version}
    other |= {root.name for root in roots if root.name in packages and not matches(root, packages[root.name].version)}
    have = flavor_of(name for name, one in stack.items() if not one.broken)
    signed = any(name.startswith(SIGNED_MODULES) for name in names)
    superseded = sorted(name for name in packages if signed and name not in names and is_kernel_module(name))
    other_flavor = have if have and flavor and have != flavor else ""
    return Difference(tuple(missing), tuple(sorted(other)), tuple(sorted(broken)), other_flavor, tuple(superseded))


__all__ = [
    "NAME_PATTERNS",
    "NEEDED",
    "REMEDIES",
    "SIGNED_MODULES",
    "Difference",
    "branch_of",
    "check_version",
    "compare",
    "dcgm_names",
    "driver_roots",
    "flavor_of",
    "gdrcopy_roots",
    "has_driver_version",
    "has_streams",
    "in_stack",
    "is_companion",
    "is_fabric_manager",
    "is_gdrcopy",
    "is_kernel_module",
    "is_nscq",
    "is_of_others",
    "kernel_headers",
    "nvlink5_roots",
    "signed_modules",
    "supported_distribution",
    "to_hold",
    "wanted_roots",
]
