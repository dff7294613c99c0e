# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory that stands for the root of a node with disks: sysfs and /dev as the nodes of the VM lab have them."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

MIB = 1 << 20
PREFIX = ["timeout", "-k", "5", "60"]


class FakeDisks:
    """Builds the tree, and answers the commands of whoever reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.signatures: dict[str, list[dict[str, str]]] = {}
        self.examine: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self.commands: list[list[str]] = []
        self.mountinfo: list[str] = []
        for folder in ("sys/block", "sys/class/nvme", "proc/self", "dev/disk/by-id", "mnt/scratch"):
            (root / folder).mkdir(parents=True)
        self.write("proc/self/mountinfo", "")
        self.write("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority")

    def write(self, path: str, text: object) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n", encoding="utf-8")

    def disk(
        self, name: str, number: str, serial: str = "", model: str = "QEMU NVMe Ctrl", **attributes: object
    ) -> None:
        """A disk of 4 MiB whose content is zeros."""
        base = f"sys/block/{name}"
        for key, value in {
            "dev": number,
            "size": 4 * MIB // 512,
            "ro": 0,
            "removable": 0,
            "hidden": 0,
            **attributes,
        }.items():
            self.write(f"{base}/{key}", value)
        for key, value in {"model": model, "serial": serial, "transport": "pcie"}.items():
            self.write(f"{base}/device/{key}", value)
        (self.root / base / "holders").mkdir()
        (self.root / "dev" / name).write_bytes(bytes(4 * MIB))
        if serial:
            link = self.root / "dev/disk/by-id" / f"nvme-{model.replace(' ', '_')}_{serial}"
            link.symlink_to(f"../../{name}")
            (link.parent / f"nvme-eui.{serial}").symlink_to(f"../../{name}")

    def write_bytes(self, name: str, offset: int, data: bytes) -> None:
        """Put something on a disk."""
        with (self.root / "dev" / name).open("r+b") as handle:
            handle.seek(offset)
            handle.write(data)

    def partition(self, disk: str, name: str, number: str) -> None:
        self.write(f"sys/block/{disk}/{name}/partition", 1)
        self.write(f"sys/block/{disk}/{name}/dev", number)
        (self.root / f"sys/block/{disk}/{name}/holders").mkdir()

    def on_top(self, name: str, number: str, *below: str) -> None:
        """A dm or md device on disks or partitions."""
        self.write(f"sys/block/{name}/dev", number)
        for folder in ("holders", "slaves"):
            (self.root / f"sys/block/{name}/{folder}").mkdir()
        for device in below:
            base = next(self.root.glob(f"sys/block/{device}"), None) or next(self.root.glob(f"sys/block/*/{device}"))
            (base / "holders" / name).touch()
            (self.root / f"sys/block/{name}/slaves/{device}").touch()

    def array(self, name: str, number: str, *members: str, **attributes: object) -> None:
        self.on_top(name, number, *members)
        basic = {"array_state": "clean", "level": "raid0", "raid_disks": len(members), "chunk_size": 524288}
        for key, value in {**basic, **attributes}.items():
            self.write(f"sys/block/{name}/md/{key}", value)
        (self.root / "dev" / name).write_bytes(bytes(4 * MIB))

    def mount(self, number: str, point: str, device: str, filesystem: str = "xfs") -> None:
        self.mountinfo.append(f"30 1 {number} / {point} rw,noatime shared:1 - {filesystem} {device} rw")
        self.write("proc/self/mountinfo", "\n".join(self.mountinfo))

    def sign(self, name: str, kind: str, label: str = "", uuid: str = "") -> None:
        self.signatures.setdefault(name, []).append({"device": name, "type": kind, "label": label, "uuid": uuid})

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        """wipefs and mdadm, as far as a reader uses them; blkid is the real one, on the file that stands for the disk."""
        self.commands.append(args)
        assert args[:4] == PREFIX
        words = args[4:]
        if words[:3] == ["wipefs", "--no-act", "--json"]:
            names = [os.path.basename(path) for path in words[3:]]
            broken = [name for name in names if name in self.unreadable]
            if broken:
                return 1, "", f"wipefs: error: /dev/{broken[0]}: probing initialization failed: Input/output error"
            found = [entry for name in names for entry in self.signatures.get(name, [])]
            return 0, json.dumps({"signatures": found}), ""
        if words[0] == "blkid":
            argv = [*words[:-1], str(self.root / words[-1].lstrip("/"))]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr
        assert words[:3] == ["mdadm", "--examine", "--export"]
        return 0, self.examine.get(os.path.basename(words[3]), ""), ""
