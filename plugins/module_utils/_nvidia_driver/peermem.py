# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""nvidia_peermem, over which adapters of NVIDIA's InfiniBand stack reach the memory of GPUs, and what can take its place.

It is built against the stack that is there when dkms builds the driver. Built without one, or for an earlier one, it is refused
by the kernel ("Invalid argument", "Unknown symbol"), and openibd does not tell: GPUDirect RDMA is lost without a word.
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import dkms
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Loaded

MODULE = "nvidia_peermem"
# The kernel that lets adapters register a dma-buf of a GPU (GPUDirect RDMA documentation, "Linux kernel version 5.12").
_DMA_BUF_KERNEL = (5, 12)
_SYMBOLS = ("usr/src/ofa_kernel/default/Module.symvers", "usr/src/ofa_kernel/x86_64/{kernel}/Module.symvers")


def is_loaded(root: Path) -> bool:
    """Whether the kernel runs it."""
    return (root / "sys/module" / MODULE).is_dir()


def has_dma_buf(loaded: Loaded, kernel: str) -> bool:
    """Whether programs can do without it: with the open modules, and a kernel that knows how."""
    number = re.match(r"(\d+)\.(\d+)", kernel)
    return loaded.flavor == "open" and number is not None and tuple(map(int, number.groups())) >= _DMA_BUF_KERNEL


def is_built(host: Host, kernel: str) -> bool:
    """Whether there is one for this kernel, which may still refuse it."""
    return host.run_command(["modinfo", "-k", kernel, "-n", MODULE])[0] == 0


def is_older_than_stack(host: Host, root: Path, kernel: str) -> bool:
    """Whether the InfiniBand stack was installed after the module was built."""
    rc, out, _err = host.run_command(["modinfo", "-k", kernel, "-n", MODULE])
    stacks = [root / path.format(kernel=kernel) for path in _SYMBOLS]
    try:
        built = (root / out.strip().lstrip("/")).stat().st_mtime
        return rc == 0 and any(path.stat().st_mtime > built for path in stacks if path.exists())
    except OSError:
        return False


def load(host: Host) -> str:
    """Load it; returns why that does not work."""
    rc, _out, err = host.run_command(["modprobe", MODULE])
    return "" if rc == 0 else " ".join(err.split())[:200] or "modprobe failed"


def rebuild(host: Host, version: str, kernel: str) -> str:
    """Build the driver's modules for the stack that is there; returns why that does not work. What runs goes on running."""
    return dkms.rebuild(host, r"nvidia[\w-]*", re.escape(version), kernel)


def findings(root: Path, loaded: Loaded, kernel: str, *, demanded: bool) -> t.Iterator[dict[str, str]]:
    """What is wrong where it is wanted. ``demanded``: by name, and not only because the stack is there."""
    if is_loaded(root) or not loaded.version:
        return
    remedy = f"See `modprobe {MODULE}` and dmesg; `dkms build` and `dkms install` with --force build it for the stack that is there."
    if not demanded and has_dma_buf(loaded, kernel):
        message = f"{MODULE} is not loaded: GPUDirect RDMA is left to programs that use dma-buf."
        yield {"verdict": "warn", "what": "peermem", "message": message, "remedy": remedy}
    else:
        message = f"{MODULE} is not loaded: GPUDirect RDMA does not work."
        yield {"verdict": "fail", "what": "peermem", "message": message, "remedy": remedy}


__all__ = [
    "MODULE",
    "findings",
    "has_dma_buf",
    "is_built",
    "is_loaded",
    "is_older_than_stack",
    "load",
    "rebuild",
]
