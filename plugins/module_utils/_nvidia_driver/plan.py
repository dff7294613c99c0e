# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The pure half of ``nvidia_driver``: the files that a request leads to, and what may happen to a running node."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    NAME_PATTERNS,
    Distribution,
    upstream,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request

MANAGED = "# Managed by the role hpcai.gpu_cluster.nvidia_driver. Changes here are overwritten."
_PLACES = Repository()
SOURCES, KEYRING = _PLACES.sources, _PLACES.keyring("dpkg")
PIN, UNATTENDED = "/etc/apt/preferences.d/nvidia-driver", "/etc/apt/apt.conf.d/52nvidia-driver"
REPO, RPM_KEY = _PLACES.repo, _PLACES.keyring("rpm")
MODPROBE, PEERMEM = "/etc/modprobe.d/nvidia-driver.conf", "/etc/modules-load.d/nvidia-peermem.conf"
OPENIBD = "/etc/systemd/system/openibd.service.d/nvidia-peermem.conf"
FABRIC_UNIT = "/etc/systemd/system/nvidia-fabricmanager.service"
PERSISTENCED = "/etc/systemd/system/nvidia-persistenced.service.d/nvidia-driver.conf"
ALL_FILES = (SOURCES, KEYRING, PIN, UNATTENDED, REPO, RPM_KEY, MODPROBE, PEERMEM, OPENIBD, PERSISTENCED)

#: Where NVIDIA keeps its repositories, and the keys that sign them (CUDA Installation Guide for Linux).
CUDA_REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos"
CUDA_KEYS = {
    "dpkg": ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    "rpm": ("D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
}
# What the kernel calls an option of the module where it is not the option's name without NVreg_.
_PARAMETERS = {"NVreg_RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}


def repository_for(request: Request, dist: Distribution, machine: str) -> Repository:
    """The repository that was asked for, with NVIDIA's own as the default of ``cuda_repo``."""
    given = Repository(
        request.repository_url.rstrip("/"),
        request.repository_suite,
        request.repository_components,
        request.repository_key,
        request.repository_fingerprint,
    )
    # NVIDIA's installer brings no Fabric Manager: that comes from the repository.
    if given.url or request.source not in ("cuda_repo", "runfile"):
        return given
    directory = "sbsa" if machine == "aarch64" else "x86_64"
    url = f"{CUDA_REPOSITORY}/{dist.repository}/{directory}"
    key, fingerprint = CUDA_KEYS[dist.manager]
    return Repository(url, key=given.key or f"{url}/{key}", fingerprint=given.fingerprint or fingerprint)


def pin_text(version: str) -> str:
    """Preferences that keep every part of the driver at one version, also when it is older than what is installed."""
    return "\n".join(
        [
            MANAGED,
            f"Package: {' '.join(NAME_PATTERNS)}",
            f"Pin: version {version}-*",
            # Above 1000: apt may go back to an older version as well.
            "Pin-Priority: 1001",
            "",
        ]
    )


def unattended_text() -> str:
    """Keeps unattended-upgrades away from the driver; its entries are regular expressions from the name's beginning."""
    patterns = [f'    "{pattern.rstrip("*")}{"" if pattern.endswith("*") else "$"}";' for pattern in NAME_PATTERNS]
    head = MANAGED.replace("#", "//")
    return "\n".join([head, "Unattended-Upgrade::Package-Blacklist {", *patterns, "};", ""])


def module_options(request: Request) -> dict[str, str]:
    """The options of the kernel module, by name."""
    options = {"NVreg_RestrictProfilingToAdminUsers": "1" if request.restrict_profiling else "0"}
    return {**options, **{str(key): str(value) for key, value in request.module_options.items()}}


def modprobe_text(options: t.Mapping[str, str]) -> str:
    """What modprobe is told: never nouveau, and the options."""
    words = " ".join(f"{key}={value}" for key, value in options.items())
    # Options go by the name of the file, which Debian changed.
    names = [f"options {name} {words}" for name in ("nvidia", "nvidia-current", "nvidia-current-open")]
    return "\n".join([MANAGED, "blacklist nouveau", "options nouveau modeset=0", *names, ""])


def settings_files(request: Request, dist: Distribution, *, peermem: bool, packaged: bool) -> list[dict[str, t.Any]]:
    """The files of the role besides the repository's. ``packaged``: the driver comes from packages, which can be held."""
    files = [{"path": MODPROBE, "content": modprobe_text(module_options(request))}]
    restart = "\n".join([MANAGED, "[Service]", "Restart=always", "RestartSec=5", ""])
    files.append({"path": PERSISTENCED, "content": restart})
    if dist.manager == "dpkg" and request.hold and packaged:
        files.append({"path": PIN, "content": pin_text(request.version)})
        files.append({"path": UNATTENDED, "content": unattended_text()})
    if peermem:
        files.append({"path": PEERMEM, "content": f"{MANAGED}\nnvidia_peermem\n"})
        # openibd replaces the InfiniBand modules, and nvidia_peermem leaves with them (azhpc-images,
        # components/setup_sku_customizations.sh).
        start = "ExecStartPost=-/bin/sh -c 'modinfo nvidia_peermem >/dev/null 2>&1 && modprobe nvidia_peermem'"
        files.append({"path": OPENIBD, "content": "\n".join([MANAGED, "[Service]", start, ""])})
    return files


def fabric_unit(vendor: str) -> str:
    """Fabric Manager's unit, where the vendor's would not start with the machine; empty where it would.

    Some versions order the unit after multi-user.target, which wants it, and a drop-in cannot take an order back
    (azhpc-images removes the line, too).
    """
    lines = vendor.splitlines()
    kept = [line for line in lines if line.replace(" ", "") != "After=multi-user.target"]
    return "\n".join([MANAGED, *kept, ""]) if kept != lines else ""


def unwanted_files(request: Request, dist: Distribution, *, peermem: bool, packaged: bool) -> list[str]:
    """Files of an earlier request that the present one does not want."""
    gone = [] if peermem else [PEERMEM, OPENIBD]
    return gone if dist.manager == "dpkg" and request.hold and packaged else [*gone, PIN, UNATTENDED]


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
            "Set nvidia_driver_allow_upgrade: true to replace the driver, or ask for the one that is installed.",
            would=list(would),
        )
    if not reload:
        return
    if not (request.allow_unload or request.allow_reboot):
        raise ClusterError(
            "consent_missing",
            f"This needs the kernel module to be unloaded or the node to be rebooted: {'; '.join(reload)}.{plan} "
            "Nothing was changed.",
            "Set nvidia_driver_allow_unload: true or nvidia_driver_allow_reboot: true.",
            would=list(would),
        )
    if users and not request.allow_reboot and not request.drain:
        raise ClusterError(
            "in_use",
            f"The kernel module cannot be unloaded, the GPUs are used by {', '.join(users[:8])}. Nothing was changed.",
            "Wait for them or stop them, set nvidia_driver_drain: true, or agree to nvidia_driver_allow_reboot.",
        )


def version_findings(
    *,
    wanted: str,
    loaded: str,
    on_disk: str,
    libraries: t.Sequence[str],
    smi: t.Sequence[str],
    fabric: str,
    switches: int,
) -> list[tuple[str, str]]:
    """What is wrong with the versions of a running driver: (message, remedy). Empty strings are unknown."""
    wrong = []
    if wanted and smi and set(smi) != {wanted}:
        wrong.append((f"nvidia-smi reports driver {', '.join(sorted(set(smi)))}, wanted is {wanted}.", "Run the role."))
    if loaded and libraries and loaded not in libraries:
        wrong.append(
            (
                f"The kernel runs driver {loaded}, but the libraries are those of {', '.join(libraries)}: programs "
                "fail with 'Driver/library version mismatch'.",
                "Run the role with nvidia_driver_allow_unload or nvidia_driver_allow_reboot.",
            )
        )
    if loaded and on_disk and loaded != on_disk:
        wrong.append(
            (
                f"The kernel runs driver {loaded}, but the module on disk is {on_disk}: the next boot brings another driver.",
                "Run the role with nvidia_driver_allow_unload or nvidia_driver_allow_reboot.",
            )
        )
    driver = loaded or wanted or (smi[0] if smi else "")
    if switches and not fabric:
        wrong.append((f"This node has {switches} NVSwitches, but Fabric Manager is not installed.", "Run the role."))
    elif fabric and driver and upstream(fabric) != driver:
        wrong.append(
            (f"Fabric Manager is {upstream(fabric)}, the driver is {driver}: it refuses to start.", "Run the role.")
        )
    return wrong


__all__ = [
    "ALL_FILES",
    "FABRIC_UNIT",
    "MANAGED",
    "MODPROBE",
    "OPENIBD",
    "PERSISTENCED",
    "PIN",
    "UNATTENDED",
    "check_consent",
    "fabric_unit",
    "module_options",
    "pin_text",
    "reload_reasons",
    "repository_for",
    "settings_files",
    "unwanted_files",
    "version_findings",
]
