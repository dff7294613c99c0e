# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules of ours under vendors' names, on a node: what is loaded, who holds it, and how often the node booted."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import typing as t

from own_machine import NODE

if t.TYPE_CHECKING:
    from conftest import VmLab

BOOTS = "/var/lib/lab-boots"
HOLD = "import os, sys, time; os.open(sys.argv[1], os.O_RDWR); open('/run/held', 'w'); time.sleep(900)"
# Shorter than what a playbook may take here, so that it is the role that tells of a node that did not come back.
REBOOT_TIMEOUT_S = 600

# A line for each boot.
BOOTS_UNIT = f"""[Service]
Type=oneshot
ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id >>{BOOTS}'
[Install]
WantedBy=multi-user.target
"""
SEE = f"""
for module in nvidia nvidia_uvm mlx5_core; do
  [ ! -d /sys/module/$module ] || echo "$module $(cat /sys/module/$module/version 2>/dev/null || echo inbox)"
done
echo boot $(cat /proc/sys/kernel/random/boot_id)
echo boots $(cat {BOOTS} 2>/dev/null | wc -l)
echo packages $(dpkg-query -W | sha256sum)
echo debug_mask $(cat /sys/module/mlx5_core/parameters/debug_mask 2>/dev/null || true)
echo persistenced $(systemctl is-active nvidia-persistenced.service || true)
"""


def see(lab: VmLab) -> dict[str, str]:
    """Versions of the modules that the kernel runs, the boot, the packages."""
    pairs = (line.split(maxsplit=1) for line in lab.shell(NODE, SEE).splitlines())
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def hold(lab: VmLab, path: str) -> None:
    """Let an unknown process keep a device open."""
    lab.run(NODE, "systemd-run", "--quiet", "--unit=lab-holder", "--collect", "python3", "-c", HOLD, path)
    lab.shell(NODE, "for n in $(seq 60); do test -e /run/held && exit; sleep 1; done; exit 1")


def let_go(lab: VmLab) -> None:
    lab.shell(NODE, "systemctl stop lab-holder.service 2>/dev/null || true; rm -f /run/held")


def pack(files: t.Mapping[str, bytes]) -> bytes:
    """A tar archive of programs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644 if name.endswith(".service") else 0o755
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def made(*argv: str | pathlib.Path) -> dict[str, t.Any]:
    """What a maker of packages says that it made."""
    done = subprocess.run([sys.executable, *argv], check=True, capture_output=True, text=True).stdout
    return t.cast("dict[str, t.Any]", json.loads(done))


@contextlib.contextmanager
def counting_boots(lab: VmLab) -> t.Iterator[pathlib.Path]:
    """The node counts its boots meanwhile; yields where the image has our modules."""
    lab.unpack(NODE, pack({"lab-boots.service": BOOTS_UNIT.encode()}), "/opt")
    lab.shell(NODE, f"rm -f {BOOTS}; systemctl --quiet enable /opt/lab-boots.service")
    yield pathlib.Path(lab.lab["image"]) / "modules"
    lab.shell(NODE, f"systemctl --quiet disable lab-boots.service; rm -f /opt/lab-boots.service {BOOTS}")


__all__ = ["REBOOT_TIMEOUT_S", "counting_boots", "hold", "let_go", "made", "pack", "see"]
