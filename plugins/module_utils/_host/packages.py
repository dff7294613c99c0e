# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The pure half of the driver's packages: which ones belong to the driver, which are wanted, and what a package system
says it would do. Plain data and text in, plain data out.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

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


@dataclasses.dataclass(frozen=True)
class Installed:
    """A package as the package system knows it. ``state`` is dpkg's: ``installed``, ``half-configured``, ..."""

    name: str
    version: str
    state: str = "installed"
    held: bool = False

    @property
    def broken(self) -> bool:
        """Whether an interrupted run left it between two states."""
        return self.state not in ("installed", "config-files", "not-installed")

    @property
    def present(self) -> bool:
        """Whether its files are there and it is configured."""
        return self.state == "installed"


@dataclasses.dataclass(frozen=True)
class Root:
    """A package that is wanted by name; what it depends on follows. ``upstream`` is empty when any version will do."""

    name: str
    upstream: str = ""
    prefix: bool = False  # the version only has to begin like this


@dataclasses.dataclass(frozen=True)
class Action:
    """One package in what a package system says it would do."""

    verb: str  # install | upgrade | downgrade | remove | reinstall
    name: str
    version: str = ""
    old: str = ""

    def text(self) -> str:
        """The action as a line for people."""
        if self.verb == "remove":
            return f"remove {self.name} {self.old}".rstrip()
        change = f"{self.old} to {self.version}" if self.old and self.old != self.version else self.version
        return f"{self.verb} {self.name} {change}".rstrip()


def upstream(version: str) -> str:
    """A version without epoch and revision: ``3:580.95.05-1.el9`` is ``580.95.05``."""
    return version.partition(":")[2].partition("-")[0] if ":" in version else version.partition("-")[0]


def branch_of(version: str) -> int:
    """The first number of a driver's version; 0 for none."""
    first = version.partition(".")[0]
    return int(first) if first.isdigit() else 0


def check_version(version: str) -> str:
    """Accept only a whole version, so that "580" never means whichever came last."""
    if not _DRIVER_VERSION.match(version):
        raise ClusterError(
            "bad_input",
            f"nvidia_driver_version is {version!r}.",
            "Write the whole version as NVIDIA does, without epoch or revision, for example 580.95.05.",
        )
    return version


def in_stack(name: str, version: str) -> bool:
    """Whether a package is a part of the driver that must have the driver's version."""
    return bool(_STACK.match(name) and not _APART.match(name) and _DRIVER_VERSION.match(upstream(version)))


def to_hold(packages: t.Mapping[str, Installed], version: str) -> list[str]:
    """Packages that an upgrade must leave alone: the driver's parts, and the small programs that came at its version."""
    return sorted(
        name
        for name, one in packages.items()
        if in_stack(name, one.version) or (version and _STACK.match(name) and upstream(one.version) == version)
    )


def is_fabric_manager(name: str) -> bool:
    """Whether this is Fabric Manager itself, under any of its names (not its headers)."""
    return bool(re.match(r"^nvidia-fabric-?manager(-\d+)?$", name))


def flavor_of(names: t.Iterable[str]) -> str:
    """``open`` or ``proprietary``, by the kernel module's package; empty when there is none.

    CUDA repository: nvidia-dkms-580-open, nvidia-dkms-open, kmod-nvidia-open-dkms, nvidia-kernel-open-dkms; Debian:
    nvidia-open-kernel-dkms. Without the word open it is the proprietary one.
    """
    kernel = [
        name
        for name in names
        if re.match(r"^(nvidia-dkms|nvidia-(open-)?kernel-(open-)?dkms|kmod-nvidia|nvidia-kmod|dkms-nvidia)", name)
        and not name.endswith("-common")
    ]
    if not kernel:
        return ""
    return "open" if any("open" in name.split("-") for name in kernel) else "proprietary"


# -- what is wanted --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Distribution:
    """What /etc/os-release says, as far as it matters here."""

    id: str
    version: str
    manager: str  # dpkg | rpm
    name: str = ""

    @property
    def repository(self) -> str:
        """The distribution's directory in NVIDIA's CUDA repository: ubuntu2204, debian12, rhel9."""
        if self.manager == "rpm":
            return f"rhel{self.version.partition('.')[0]}"
        return f"{self.id}{self.version.replace('.', '')}"


def parse_os_release(text: str) -> Distribution:
    """Read /etc/os-release; refuses what nothing here was written for."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    fields = {key: value.strip().strip("\"'") for key, value in fields.items()}
    ident, version = fields.get("ID", ""), fields.get("VERSION_ID", "")
    name = fields.get("PRETTY_NAME", ident)
    if (ident, version) in (("ubuntu", "22.04"), ("ubuntu", "24.04"), ("debian", "12")):
        return Distribution(ident, version, "dpkg", name)
    if ident in ("rhel", "almalinux", "rocky", "ol") and version.partition(".")[0] in ("8", "9"):
        return Distribution(ident, version, "rpm", name)
    raise ClusterError(
        "unsupported_distribution",
        f"nvidia_driver does not install drivers on {name or 'this system'}.",
        "It knows Ubuntu 22.04 and 24.04, Debian 12, and RHEL, AlmaLinux and Rocky 8 and 9. Install the driver another "
        "way and set nvidia_driver_source: preinstalled.",
    )


def _fabric_manager(source: str, manager: str, branch: int) -> str:
    # Renamed with R580 in NVIDIA's repositories (azhpc-images, components/install_nvidia_fabric_manager.sh).
    if source == "distro":
        return f"nvidia-fabricmanager-{branch}"
    if branch >= 580:
        return "nvidia-fabricmanager"
    return "nvidia-fabric-manager" if manager == "rpm" else f"nvidia-fabricmanager-{branch}"


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
        "Set nvidia_driver_source to cuda_repo or runfile.",
    )


def wanted_roots(
    dist: Distribution,
    *,
    source: str,
    flavor: str,
    version: str,
    fabric_manager: bool,
    kernel: str,
    dcgm_cuda: int,
    dcgm_version: str,
    cuda: str,
    override: t.Sequence[str],
) -> list[Root]:
    """Every package that is wanted by name, the driver's own first."""
    roots: list[Root] = []
    if source in ("cuda_repo", "distro"):
        roots += [Root(name, version) for name in override] or driver_roots(dist, source, flavor, version)
    else:
        # The installer builds the module itself.
        roots += [Root(name) for name in (["dkms", "gcc", "make"] if dist.manager == "dpkg" else ["gcc", "make"])]
    if fabric_manager:
        if source == "distro" and dist.id == "debian":
            raise ClusterError(
                "no_fabric_manager",
                f"This node has NVSwitches, and {dist.name} has no Fabric Manager for them.",
                "Set nvidia_driver_source: cuda_repo.",
            )
        roots.append(Root(_fabric_manager(source, dist.manager, branch_of(version)), version))
    if kernel:
        headers = "linux-headers-" if dist.manager == "dpkg" else "kernel-devel-"
        roots.append(Root(f"{headers}{kernel}"))
    if dcgm_cuda:
        roots.append(Root(f"datacenter-gpu-manager-4-cuda{dcgm_cuda}", dcgm_version, prefix=True))
    if cuda:
        roots.append(Root("cuda-toolkit-" + "-".join(cuda.split(".")[:2])))
    return roots


# -- what is there ---------------------------------------------------------------------------------------------------

DPKG_FORMAT = "${Package}|${Version}|${db:Status-Want}|${db:Status-Status}|${db:Status-Eflag}\\n"
RPM_FORMAT = "%{NAME}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n"


def parse_dpkg(text: str) -> dict[str, Installed]:
    """Read ``dpkg-query -W -f DPKG_FORMAT``; packages that are gone but for their settings are left out."""
    found = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != 5:
            continue
        name, version, want, state, flag = parts
        if flag == "reinstreq":
            state = "half-installed"
        if state in ("config-files", "not-installed"):
            continue
        found[name] = Installed(name, version, state, held=want == "hold")
    return found


def parse_rpm(text: str, locked: t.Collection[str] = ()) -> dict[str, Installed]:
    """Read ``rpm -qa --queryformat RPM_FORMAT``; ``locked`` are names in dnf's versionlock list."""
    found = {}
    for line in text.splitlines():
        name, separator, version = line.partition("|")
        if separator:
            found[name] = Installed(name, version, held=name in locked)
    return found


def parse_madison(text: str) -> dict[str, list[str]]:
    """Read ``apt-cache madison NAME...``: the versions that can be had, newest first, by name."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and parts[1] not in versions.setdefault(parts[0], []):
            versions[parts[0]].append(parts[1])
    return versions


def matches(root: Root, version: str) -> bool:
    """Whether a package of this version is what is wanted."""
    if not root.upstream:
        return True
    have = upstream(version)
    return have.startswith(root.upstream) if root.prefix else have == root.upstream


_APT_INST = re.compile(r"^Inst (\S+?)(?::\S+)? (?:\[([^\]]+)\] )?\((\S+)")
_APT_REMV = re.compile(r"^(?:Remv|Purg) (\S+?)(?::\S+)? \[([^\]]+)\]")


def parse_apt_simulation(text: str, newer: t.Callable[[str, str], bool]) -> list[Action]:
    """Read ``apt-get -s``. ``newer`` says whether its first version is newer than its second."""
    actions = []
    for line in text.splitlines():
        found = _APT_INST.match(line)
        if found:
            name, old, version = found.group(1), found.group(2) or "", found.group(3)
            verb = "install"
            if old:
                verb = "reinstall" if old == version else "upgrade" if newer(version, old) else "downgrade"
            actions.append(Action(verb, name, version, old))
            continue
        found = _APT_REMV.match(line)
        if found:
            actions.append(Action("remove", found.group(1), "", found.group(2)))
    return actions


_DNF_SECTIONS = {
    "Installing": "install",
    "Installing dependencies": "install",
    "Installing weak dependencies": "install",
    "Upgrading": "upgrade",
    "Downgrading": "downgrade",
    "Reinstalling": "reinstall",
    "Removing": "remove",
    "Removing dependent packages": "remove",
    "Removing unused dependencies": "remove",
}


def parse_dnf_simulation(text: str) -> list[Action]:
    """Read the table of ``dnf --assumeno``; long rows are folded after the name, as dnf does on a narrow terminal."""
    actions, verb, name = [], "", ""
    for line in text.splitlines():
        head = line.rstrip()
        if head.endswith(":") and head[:-1] in _DNF_SECTIONS:
            verb, name = _DNF_SECTIONS[head[:-1]], ""
            continue
        if not line.startswith(" ") or not verb:
            verb = "" if line and not line.startswith(" ") else verb
            continue
        words = line.split()
        if line.startswith("     replacing") or not words:
            continue
        if len(words) == 1:
            name = words[0]
        elif name:
            actions.append(_dnf_action(verb, [name, *words]))
            name = ""
        else:
            actions.append(_dnf_action(verb, words))
    return [action for action in actions if action]


def _dnf_action(verb: str, words: list[str]) -> Action:
    version = words[2] if len(words) > 2 else ""
    return Action(verb, words[0], "" if verb == "remove" else version, version if verb == "remove" else "")


# -- comparing -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Difference:
    """What has to change: names of packages by what is the matter with them."""

    missing: tuple[str, ...] = ()
    other_version: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    other_flavor: str = ""

    def __bool__(self) -> bool:
        return bool(self.missing or self.other_version or self.broken or self.other_flavor)

    @property
    def replaces_driver(self) -> bool:
        """Whether a driver that is there would become another one."""
        return bool(self.other_version or self.other_flavor)

    def text(self, packages: t.Mapping[str, Installed]) -> list[str]:
        """Lines for people."""
        lines = [f"{name} {packages[name].version} is {packages[name].state}" for name in self.broken]
        lines += [f"{name} is missing" for name in self.missing]
        lines += [f"{name} is at {packages[name].version}" for name in self.other_version]
        if self.other_flavor:
            lines.append(f"the kernel module is the {self.other_flavor} one")
        return lines


def compare(packages: t.Mapping[str, Installed], roots: t.Sequence[Root], version: str, flavor: str) -> Difference:
    """What differs between the packages of a node and what is wanted. ``version`` empty: any, but one only."""
    stack = {name: one for name, one in packages.items() if in_stack(name, one.version)}
    # Others that are broken are not this role's, unless a transaction is needed: then apt wants them mended first.
    names = {root.name for root in roots}
    broken = [name for name, one in packages.items() if one.broken and (name in names or _STACK.match(name))]
    missing = [root.name for root in roots if root.name not in packages]
    other = {name for name, one in stack.items() if version and upstream(one.version) != version}
    other |= {root.name for root in roots if root.name in packages and not matches(root, packages[root.name].version)}
    have = flavor_of(name for name, one in stack.items() if not one.broken)
    return Difference(
        tuple(missing), tuple(sorted(other)), tuple(sorted(broken)), have if have and flavor and have != flavor else ""
    )


def stragglers_of(actions: t.Sequence[Action], packages: t.Mapping[str, Installed], version: str) -> list[str]:
    """Parts of the driver, and programs with a driver's version, that a plan would leave at another version."""
    touched = {action.name for action in actions}
    return [
        name
        for name, one in packages.items()
        if version
        and name not in touched
        and _STACK.match(name)
        and _DRIVER_VERSION.match(upstream(one.version))
        and upstream(one.version) != version
    ]


def check_plan(actions: t.Sequence[Action], packages: t.Mapping[str, Installed], version: str) -> None:
    """Refuse a transaction after which parts of the driver would have different versions."""
    after = {name: one.version for name, one in packages.items()}
    for action in actions:
        if action.verb == "remove":
            after.pop(action.name, None)
        else:
            after[action.name] = action.version
    mixed = [
        f"{name} {held}" for name, held in sorted(after.items()) if in_stack(name, held) and upstream(held) != version
    ]
    if mixed:
        raise ClusterError(
            "mixed_versions",
            f"The package system would leave parts of the driver at other versions than {version}: {', '.join(mixed)}.",
            "Nothing was changed. Remove these packages, or use a repository that has all of them at one version.",
        )


__all__ = [
    "DPKG_FORMAT",
    "NAME_PATTERNS",
    "RPM_FORMAT",
    "Action",
    "Difference",
    "Distribution",
    "Installed",
    "Root",
    "branch_of",
    "check_plan",
    "check_version",
    "compare",
    "driver_roots",
    "flavor_of",
    "in_stack",
    "is_fabric_manager",
    "matches",
    "parse_apt_simulation",
    "parse_dnf_simulation",
    "parse_dpkg",
    "parse_madison",
    "parse_os_release",
    "parse_rpm",
    "stragglers_of",
    "to_hold",
    "upstream",
    "wanted_roots",
]
