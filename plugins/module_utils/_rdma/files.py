# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The files that ``rdma_stack`` keeps on a node, as text: device names, limits, kernel settings, units.

Nothing here touches the node. Values and their reasons: Azure's ``hpc-tuning.sh`` (azhpc-images).
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import normalize_bus_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.limits import manager_file

HEADER = "# Written by the module hpcai.gpu_cluster.rdma_stack; changes made here are lost.\n"
# The same name as rdma-core's own rules, which takes their place: a device can be renamed only once.
DISTRIBUTION_NAMES = "/usr/lib/udev/rules.d/60-rdma-persistent-naming.rules"
NAMES = "/etc/udev/rules.d/60-rdma-persistent-naming.rules"
READ_AHEAD = "/etc/udev/rules.d/90-mofed-nfs.rules"
LIMITS = "/etc/security/limits.d/90-mofed.conf"
SERVICE_LIMITS = "/etc/systemd/system.conf.d/90-mofed.conf"
SYSCTL = "/etc/sysctl.d/90-mofed.conf"
MODPROBE = "/etc/modprobe.d/mofed.conf"
MODULES = "/etc/modules-load.d/mofed.conf"
OPENIBD = "/etc/systemd/system/openibd.service.d/90-mofed.conf"
RXE = "/etc/systemd/system/mofed-rxe.service"
PINS = "/etc/apt/preferences.d/mofed"
#: What the vendor's repository has and no node is to have of it: dkms, and what flashes adapters.
KEPT_AWAY = ("dkms", "mlnx-fw-updater")
WAAGENT = "/etc/waagent.conf"
OPENIB_CONF = "/etc/infiniband/openib.conf"
# All that is wholly ours, so that a switch that was turned off takes its file away.
OWNED = (NAMES, READ_AHEAD, LIMITS, SERVICE_LIMITS, SYSCTL, MODPROBE, MODULES, OPENIBD, RXE, PINS)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
#: How comments begin above a line of others that was changed, and above one that was added.
WAS = "#mofed had: "
ADDED = "#mofed added:"
# On Azure the HCAs lie in PCI domains 0x101, 0x102, ... in the order of their ports (azhpc-images, topology/*.xml).
_AZURE_FIRST_DOMAIN = 0x101
_AZURE_HCAS = 16
_AZURE_NICS = 4


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the files are made of: see the options of the module of the same names."""

    source: str = "inbox"
    user_space_only: bool = False
    container: bool = False
    manager: str = "dpkg"
    persistent_names: bool = False
    device_names: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    distribution_names: str = ""
    ipoib: bool | None = None
    rxe_netdev: str = ""
    rxe_device: str = "rxe0"
    limits: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_limits: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    sysctl: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    sunrpc_slots: int = 0
    nfs_read_ahead_kib: int = 0


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ClusterError("bad_input", f"{name!r} is no name for a device.", "Use letters, digits, '_', '-' and '.'.")
    return name


def naming_rules(device_names: t.Mapping[str, str], distribution: str = "") -> str:
    """udev rules: first the given addresses, then Azure's domains; ``distribution`` holds the rules for all others."""
    lines = [HEADER, 'ACTION!="add", GOTO="mofed_end"\n', 'SUBSYSTEM!="infiniband", GOTO="mofed_end"\n']

    def rule(match: str, name: str) -> str:
        return f'{match}, PROGRAM="rdma_rename %k NAME_FIXED {name}", GOTO="mofed_end"\n'

    names = list(device_names.values())
    if len(set(names)) != len(names):
        raise ClusterError("bad_input", "Two devices of `device_names` have one name.", "Give each its own.")
    for address, name in sorted(device_names.items()):
        try:
            bus_id = normalize_bus_id(address)
        except ValueError as exc:
            raise ClusterError("bad_input", f"`device_names`: {exc}.", "Quote it, as lspci -D prints it.") from exc
        lines.append(rule(f'KERNELS=="{bus_id}"', _checked_name(name)))
    lines.append('ATTR{[dmi/id]sys_vendor}!="Microsoft Corporation", GOTO="mofed_distribution"\n')
    for number in range(_AZURE_HCAS):
        domain = f"{_AZURE_FIRST_DOMAIN + number:04x}"
        lines.append(rule(f'SUBSYSTEMS=="pci", KERNELS=="{domain}:*", DRIVERS=="mlx5_core"', f"mlx5_ib{number}"))
    # Renaming fails where the name is taken, and the next rule is tried.
    for number in range(_AZURE_NICS):
        lines.append(rule('ATTR{ports/1/link_layer}=="Ethernet", DRIVERS=="mlx5_core"', f"mlx5_an{number}"))
    lines.append('LABEL="mofed_distribution"\n')
    lines += [f"{line}\n" for line in distribution.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    lines.append('LABEL="mofed_end"\n')
    return "".join(lines)


def limits_file(limits: t.Mapping[str, str]) -> str:
    """Limits of login sessions. A wildcard does not reach root, so root is named as well."""
    rows = [
        f"{who} {kind} {name} {value}\n"
        for name, value in limits.items()
        for who in ("*", "root")
        for kind in ("soft", "hard")
    ]
    return HEADER + "".join(rows)


def sysctl_file(settings: t.Mapping[str, str]) -> str:
    """Kernel settings of every boot. The hyphen lets a boot go on where the kernel lacks one."""
    for key in settings:
        if not re.fullmatch(r"[a-z0-9_]+([./][A-Za-z0-9_*-]+)+", key):
            raise ClusterError("bad_input", f"{key!r} is not the name of a kernel setting.", "See `sysctl --all`.")
    return HEADER + "".join(f"-{key} = {value}\n" for key, value in settings.items())


def modprobe_file(sunrpc_slots: int, ipoib: bool | None) -> str:
    """Options of modules; those of sunrpc are read when it is loaded, which is later than sysctl at boot."""
    text = f"options sunrpc tcp_max_slot_table_entries={sunrpc_slots}\n" if sunrpc_slots else ""
    if ipoib is False:
        text += "blacklist ib_ipoib\n"
    return HEADER + text if text else ""


def rxe_unit(netdev: str, device: str) -> str:
    """A unit that makes RDMA over an ordinary interface at every boot."""
    escaped = re.sub(r"[^A-Za-z0-9_.]", lambda match: f"\\x{ord(match.group()):02x}", netdev)
    link, there = f"sys-subsystem-net-devices-{escaped}.device", f"/sys/class/infiniband/{device}"
    return (
        f"{HEADER}[Unit]\nDescription=RDMA over Ethernet on {netdev}\n"
        f"Wants={link}\nAfter={link}\n\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        "ExecStart=/sbin/modprobe rdma_rxe\n"
        f"ExecStart=/bin/sh -c 'test -e {there} || exec rdma link add {device} type rxe netdev {netdev}'\n"
        f"ExecStop=/bin/sh -c 'test ! -e {there} || exec rdma link delete {device}'\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def pins() -> str:
    """dkms comes from the distribution, and nothing of the vendor's may flash an adapter by itself."""
    tools, updater = KEPT_AWAY
    blocks = [
        f"Package: {tools}\nPin: release l=DOCA-HOST*\nPin-Priority: -1\n",
        f"Package: {updater}\nPin: release *\nPin-Priority: -1\n",
        "Package: mft mft-*\nPin: origin developer.download.nvidia.com\nPin-Priority: -1\n",
    ]
    return HEADER + "\n" + "\n".join(blocks)


def wanted_files(settings: Settings) -> dict[str, str]:
    """Content by path. What is missing from it but in ``OWNED`` has to go."""
    for name in (settings.rxe_netdev, settings.rxe_device):
        if name:
            _checked_name(name)
    kernel = not settings.user_space_only
    # What the image brought keeps the settings that it came with.
    vendor = settings.source in ("doca", "mlnx_ofed")
    files = {
        NAMES: naming_rules(settings.device_names, settings.distribution_names)
        if settings.persistent_names and kernel
        else "",
        LIMITS: limits_file(settings.limits) if settings.limits else "",
        SERVICE_LIMITS: HEADER + manager_file(settings.service_limits) if settings.service_limits else "",
        SYSCTL: sysctl_file(settings.sysctl) if settings.sysctl and kernel else "",
        MODPROBE: modprobe_file(settings.sunrpc_slots, settings.ipoib) if kernel else "",
        MODULES: f"{HEADER}ib_ipoib\n" if settings.ipoib and kernel and not settings.container else "",
        PINS: pins() if vendor and settings.manager == "dpkg" else "",
    }
    if settings.nfs_read_ahead_kib and kernel:
        files[READ_AHEAD] = (
            f'{HEADER}ACTION=="add", SUBSYSTEM=="bdi", PROGRAM="/bin/grep -qw %k /proc/fs/nfsfs/volumes", '
            f'ATTR{{read_ahead_kb}}="{settings.nfs_read_ahead_kib}"\n'
        )
    if vendor and kernel:
        files[OPENIBD] = (
            f"{HEADER}[Unit]\nWants=systemd-udev-settle.service\nAfter=systemd-udev-settle.service\n\n"
            "[Service]\nRestart=on-failure\nRestartSec=5\n"
        )
    if settings.rxe_netdev:
        if settings.container:
            raise ClusterError(
                "container",
                "`rxe_netdev` is set, but this is a container: kernel modules belong to its host.",
                "Set it for the host.",
            )
        files[RXE] = rxe_unit(settings.rxe_netdev, settings.rxe_device)
    return {path: text for path, text in files.items() if text}


def set_key(text: str, key: str, value: str) -> str:
    """``key=value`` in a file of such lines, all others kept. What was there is remembered in a comment above it."""
    lines = text.splitlines(keepends=True)
    pattern = re.compile(rf"\s*{re.escape(key)}\s*=\s*(.*?)\s*$")
    places = [number for number, line in enumerate(lines) if pattern.match(line)]
    if places:
        last = places[-1]
        found = t.cast("re.Match[str]", pattern.match(lines[last]))
        if found.group(1) == value:
            return text
        ours = last > 0 and lines[last - 1].startswith((WAS, ADDED))
        was = [] if ours else [f"{WAS}{lines[last].strip()}\n"]
        return "".join([*lines[:last], *was, f"{key}={value}\n", *lines[last + 1 :]])
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, f"{ADDED} {key}\n", f"{key}={value}\n"])


def restore_keys(text: str) -> str:
    """The reverse of :func:`set_key` for all keys that it set."""
    lines, kept, skip = text.splitlines(keepends=True), [], False
    for line in lines:
        if skip:
            skip = False
        elif line.startswith(WAS):
            kept.append(line[len(WAS) :])
            skip = True
        elif line.startswith(ADDED):
            skip = True
        else:
            kept.append(line)
    return "".join(kept)


__all__ = [
    "ADDED",
    "DISTRIBUTION_NAMES",
    "HEADER",
    "KEPT_AWAY",
    "LIMITS",
    "MODPROBE",
    "MODULES",
    "NAMES",
    "OPENIBD",
    "OPENIB_CONF",
    "OWNED",
    "PINS",
    "READ_AHEAD",
    "RXE",
    "SERVICE_LIMITS",
    "SYSCTL",
    "WAAGENT",
    "WAS",
    "Settings",
    "limits_file",
    "modprobe_file",
    "naming_rules",
    "pins",
    "restore_keys",
    "rxe_unit",
    "set_key",
    "sysctl_file",
    "wanted_files",
]
