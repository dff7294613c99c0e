# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the client's module needs to be built for a kernel, and to be loaded: headers, OFED's headers for the same kernel, a signature."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import secure_boot
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host

_OFED = "OFED_INCLUDE_PATH="
# Where OFED has the headers of what it built for a kernel; "default" is a link to one of them.
_FOR_KERNEL = re.compile(r"(.*/ofa_kernel/[^/]+)/([^/]+)/include")
# What BeeGFS' Makefile looks for in these headers.
_HEADER = "rdma/rdma_cm.h"
_BY_ITSELF = "install a module that a trusted key has signed, and set `client_build: false`"


def has_headers(root: Path, kernel: str) -> bool:
    """Whether modules can be built for this kernel."""
    # The link of headers that were removed is still there.
    return (root / "lib/modules" / kernel / "build").is_dir()


def require_headers(root: Path, kernel: str, manager: str) -> None:
    """Raise ClusterError where the kernel's headers are missing."""
    if has_headers(root, kernel):
        return
    package = f"linux-headers-{kernel}" if manager == "dpkg" else f"kernel-devel-{kernel}"
    raise ClusterError(
        "headers_missing",
        f"The client's module cannot be built for kernel {kernel}: its headers are not installed. Nothing was changed.",
        f"Install {package}. Where no repository has it any more, upgrade the kernel, reboot and run again.",
    )


def ofed_path(build_args: str) -> str:
    """The path of OFED's headers in the arguments of a build, "" for none."""
    found = [word[len(_OFED) :] for word in build_args.split() if word.startswith(_OFED)]
    return found[-1].strip("\"'").rstrip("/") if found else ""


def ofed_for(root: Path, path: str, kernel: str) -> str:
    """Where OFED's headers for a kernel are, as far as the path tells: itself, or the one beside it. "" where there are none."""
    real = (root / path.lstrip("/")).resolve()
    found = _FOR_KERNEL.fullmatch(str(real))
    if found and found[2] != kernel:
        real = Path(found[1]) / kernel / "include"
        path = f"/{real.relative_to(root.resolve())}"
    return path if (real / _HEADER).is_file() else ""


def require_ofed(root: Path, build_args: str, kernel: str) -> None:
    """Raise ClusterError where the build is to use OFED's headers, and they are missing or for another kernel."""
    path = ofed_path(build_args)
    if not path:
        return
    usable = ofed_for(root, path, kernel)
    if usable == path:
        return
    real = (root / path.lstrip("/")).resolve()
    if not (real / _HEADER).is_file():
        raise ClusterError(
            "ofed_headers",
            f"The client's module is to be built with OFED, and {path} has no {_HEADER}. Nothing was changed.",
            "Install OFED with its headers first (mlnx-ofa_kernel-devel on EL, mlnx-ofed-kernel-dkms on Debian and Ubuntu; the role mofed "
            "does), or take OFED_INCLUDE_PATH out of `client_build_args`.",
        )
    instead = f"write OFED_INCLUDE_PATH={usable}" if usable else f"install OFED for kernel {kernel}"
    raise ClusterError(
        "ofed_headers",
        f"The client's module is to be built for kernel {kernel}, and {path} has the headers of OFED for kernel {real.parent.name}. "
        "The module would not load. Nothing was changed.",
        f"Boot the kernel that OFED is for, or {instead} into `client_build_args`."
        if usable
        else f"Boot the kernel that OFED is for, or {instead}.",
    )


def require_signature(host: Host, root: Path, *, dkms: bool) -> None:
    """Raise ClusterError where the kernel would not load what is built here, because nobody signs it with a key that it trusts."""
    if dkms:
        secure_boot.check(host, root, instead=_BY_ITSELF)
    elif secure_boot.enforced(root):
        raise ClusterError(
            "secure_boot",
            "Secure Boot is on, and the kernel would not load the client's module: the build of the package beegfs-client signs nothing. "
            "Nothing was changed.",
            "Put beegfs-client-dkms first in `packages` (Debian and Ubuntu), whose module dkms signs with a key that you enroll with "
            f"`mokutil --import`; {_BY_ITSELF}; or turn Secure Boot off in the firmware.",
        )


def args_for(root: Path, build_args: str, kernel: str) -> list[str]:
    """The arguments of a build for another kernel than the one that they were written for."""
    path = ofed_path(build_args)
    usable = ofed_for(root, path, kernel) if path else ""
    words = build_args.split()
    return [f"{_OFED}{usable}" if usable and word.startswith(_OFED) else word for word in words]


__all__ = [
    "args_for",
    "has_headers",
    "ofed_for",
    "ofed_path",
    "require_headers",
    "require_ofed",
    "require_signature",
]
