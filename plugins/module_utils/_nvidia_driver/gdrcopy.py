# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""GDRCopy's kernel module gdrdrv, through which programs map the memory of GPUs: loaded, built for the driver, reachable.

Its package builds it once, against the driver that is there at that moment: none yet where both come in one transaction, and no
package builds it again for the open driver that follows (NVIDIA/gdrcopy, packages/gdrcopy.spec, triggers of
``kmod-nvidia-latest-dkms`` only).
"""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed, Root, matches
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import dkms
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.read import vendor_unit

MODULE = "gdrdrv"
_DEVICE = "dev/gdrdrv"
# EL's packages and Debian's call it differently.
_SERVICES = ("gdrcopy", "gdrdrv")


def is_loaded(root: Path) -> bool:
    """Whether the kernel runs it."""
    return (root / "sys/module" / MODULE).is_dir()


def has_device(root: Path) -> bool:
    """Whether programs find it."""
    return (root / _DEVICE).exists()


def is_built(host: Host, kernel: str) -> bool:
    """Whether there is one for this kernel."""
    return host.run_command(["modinfo", "-k", kernel, "-n", MODULE])[0] == 0


def load(host: Host, kernel: str) -> tuple[str, bool]:
    """Load it, built anew for the driver where that is refused; returns why it is not loaded, and whether it was built."""
    rc, _out, err = host.run_command(["modprobe", MODULE])
    if rc == 0:
        return "", False
    if dkms.rebuild(host, MODULE, r"[\w.+~-]+", kernel):
        return _reason(err), False
    rc, _out, err = host.run_command(["modprobe", MODULE])
    return ("" if rc == 0 else _reason(err)), True


def _reason(err: str) -> str:
    return " ".join(err.split())[:200] or "modprobe failed"


def service(root: Path) -> str:
    """The service that makes the device where udev does not: by its unit, or in older packages by its init script."""
    for name in _SERVICES:
        if vendor_unit(root, f"{name}.service") or (root / "etc/init.d" / name).exists():
            return f"{name}.service"
    return ""


def module_findings(root: Path, host: Host, kernel: str, *, managed: bool) -> t.Iterator[dict[str, str]]:
    """Whether programs reach it. ``managed``: whether the role brings it."""
    if not is_loaded(root):
        how = "is not loaded" if is_built(host, kernel) else f"is not built for kernel {kernel}"
        look = f"ee `modprobe {MODULE}`, dmesg and `dkms status`."
        remedy = f"Run the role; s{look}" if managed else f"S{look}"
        yield _finding(f"GDRCopy's kernel module {MODULE} {how}.", remedy)
    elif not has_device(root):
        unit = service(root) or f"{_SERVICES[0]}.service"
        yield _finding(f"{MODULE} is loaded, and /{_DEVICE} is missing: no program reaches it.", f"Restart {unit}.")


def package_findings(packages: t.Mapping[str, Installed], wanted: t.Sequence[Root]) -> t.Iterator[dict[str, str]]:
    """Packages of GDRCopy that are missing or have another version than was asked for."""
    for root in wanted:
        if root.is_missing(packages):
            yield _finding(f"{root.name} is not installed.", "Run the role.")
        elif not matches(root, packages[root.name].version):
            have = packages[root.name].version
            yield _finding(f"{root.name} is at {have}, wanted is {root.upstream}.", "Run the role.")


def _finding(message: str, remedy: str) -> dict[str, str]:
    return {"verdict": "fail", "what": "gdrcopy", "message": message, "remedy": remedy}


__all__ = ["MODULE", "has_device", "is_built", "is_loaded", "load", "module_findings", "package_findings", "service"]
