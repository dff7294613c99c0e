# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The files that a request leads to, as text and places. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import NAME_PATTERNS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request

MANAGED = "# Managed by the role hpcai.gpu_cluster.nvidia_driver. Changes here are overwritten."
_PLACES = Repository()
SOURCES, KEYRING = _PLACES.sources, _PLACES.keyring("dpkg")
PIN, UNATTENDED = "/etc/apt/preferences.d/nvidia-driver", "/etc/apt/apt.conf.d/52nvidia-driver"
REPO, RPM_KEY = _PLACES.repo, _PLACES.keyring("rpm")
MODPROBE, PEERMEM = "/etc/modprobe.d/nvidia-driver.conf", "/etc/modules-load.d/nvidia-peermem.conf"
UMAD = "/etc/modules-load.d/nvidia-fabricmanager.conf"
OPENIBD = "/etc/systemd/system/openibd.service.d/nvidia-peermem.conf"
FABRIC_UNIT = "/etc/systemd/system/nvidia-fabricmanager.service"
PERSISTENCED = "/etc/systemd/system/nvidia-persistenced.service.d/nvidia-driver.conf"
ALL_FILES = (SOURCES, KEYRING, PIN, UNATTENDED, REPO, RPM_KEY, MODPROBE, PEERMEM, UMAD, OPENIBD, PERSISTENCED)

#: What Ubuntu and Debian let nvidia-persistenced start with.
NO_PERSISTENCE = "--no-persistence-mode"
#: Over these Fabric Manager speaks to NVSwitches behind ConnectX functions; nothing else loads ib_umad.
SUBNET_MODULES = ("mlx5_ib", "ib_umad")
#: Where NVIDIA keeps its repositories, and the keys that sign them, with their fingerprints where one could be checked (CUDA
#: Installation Guide for Linux; for EL 10 the repository file cuda-rhel10.repo, as AlmaLinux packages it).
CUDA_REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos"
CUDA_KEYS = {
    "dpkg": ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    "rpm": ("D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    "rhel10": ("CDF6BA43.pub", ""),
}


def cuda_directory(dist: Distribution) -> str:
    """The distribution's directory in NVIDIA's CUDA repository: ubuntu2204, debian12, rhel9."""
    if dist.manager == "rpm":
        return f"rhel{dist.version.partition('.')[0]}"
    return f"{dist.id}{dist.version.replace('.', '')}"


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
    url = f"{CUDA_REPOSITORY}/{cuda_directory(dist)}/{directory}"
    key, fingerprint = CUDA_KEYS.get(cuda_directory(dist)) or CUDA_KEYS[dist.manager]
    fingerprint = given.fingerprint or fingerprint
    if not fingerprint:
        raise ClusterError(
            "bad_input",
            f"The fingerprint of the key {key}, with which NVIDIA signs its packages for {dist.name}, is not known here.",
            "Set `repository_fingerprint` to the 40 digits that `gpg --show-keys` prints for a copy of the key that you trust.",
        )
    return Repository(url, key=given.key or f"{url}/{key}", fingerprint=fingerprint)


def pin_text(version: str, priority: int = 1001) -> str:
    """Preferences that keep every part of the driver at one version, also when it is older than what is installed."""
    return "\n".join(
        [
            MANAGED,
            f"Package: {' '.join(NAME_PATTERNS)}",
            f"Pin: version {version}-*",
            # Above 1000: apt may go back to an older version as well.
            f"Pin-Priority: {priority}",
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


def settings_files(
    request: Request, dist: Distribution, *, peermem: bool, nvlink5: bool = False
) -> list[dict[str, t.Any]]:
    """The files of the role besides the repository's."""
    files = [{"path": MODPROBE, "content": modprobe_text(module_options(request))}]
    if dist.manager == "dpkg" and request.hold and request.packaged:
        files.append({"path": PIN, "content": pin_text(request.version)})
        files.append({"path": UNATTENDED, "content": unattended_text()})
    if nvlink5:
        files.append({"path": UMAD, "content": "\n".join([MANAGED, *SUBNET_MODULES, ""])})
    if peermem:
        files.append({"path": PEERMEM, "content": f"{MANAGED}\nnvidia_peermem\n"})
        # openibd replaces the InfiniBand modules, and nvidia_peermem leaves with them (azhpc-images,
        # components/setup_sku_customizations.sh).
        start = "ExecStartPost=-/bin/sh -c 'modinfo nvidia_peermem >/dev/null 2>&1 && modprobe nvidia_peermem'"
        files.append({"path": OPENIBD, "content": "\n".join([MANAGED, "[Service]", start, ""])})
    return files


def persistenced_dropin(vendor: str) -> str:
    """How nvidia-persistenced is started. ``vendor`` is its unit's text, empty where there is none.

    Ubuntu's starts it with ``--no-persistence-mode`` and lets systemd stop it when nothing needs it: clocks and ECC counters are
    lost whenever the last program leaves a GPU. Everything else of the vendor's line stays, the user differs everywhere.
    """
    lines = [MANAGED, "[Unit]", "StopWhenUnneeded=no", "[Service]", "Restart=always", "RestartSec=5"]
    for line in vendor.splitlines():
        if line.startswith("ExecStart=") and NO_PERSISTENCE in line.split():
            lines += ["ExecStart=", line.replace(NO_PERSISTENCE, "--persistence-mode")]
    return "\n".join([*lines, ""])


def fabric_unit(vendor: str) -> str:
    """Fabric Manager's unit, where the vendor's would not start with the machine; empty where it would.

    Some versions order the unit after multi-user.target, which wants it, and a drop-in cannot take an order back
    (azhpc-images removes the line, too).
    """
    lines = vendor.splitlines()
    kept = [line for line in lines if line.replace(" ", "") != "After=multi-user.target"]
    return "\n".join([MANAGED, *kept, ""]) if kept != lines else ""


def unwanted_files(request: Request, dist: Distribution, *, peermem: bool, nvlink5: bool = False) -> list[str]:
    """Files of an earlier request that the present one does not want."""
    gone = [*([] if peermem else [PEERMEM, OPENIBD]), *([] if nvlink5 else [UMAD])]
    return gone if dist.manager == "dpkg" and request.hold and request.packaged else [*gone, PIN, UNATTENDED]


__all__ = [
    "ALL_FILES",
    "CUDA_KEYS",
    "CUDA_REPOSITORY",
    "FABRIC_UNIT",
    "MANAGED",
    "MODPROBE",
    "NO_PERSISTENCE",
    "OPENIBD",
    "PERSISTENCED",
    "PIN",
    "SUBNET_MODULES",
    "UMAD",
    "UNATTENDED",
    "cuda_directory",
    "fabric_unit",
    "modprobe_text",
    "module_options",
    "persistenced_dropin",
    "pin_text",
    "repository_for",
    "settings_files",
    "unwanted_files",
]
