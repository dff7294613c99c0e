#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limit what the lab's nodes may send and receive, each in both directions, the way a cloud limits a machine's NIC.

``bandwidth.py MBIT CONTAINER...`` (0: no limit) prints ``changed`` or ``ok``. A token bucket sits on both ends of a node's
veth pair: the host's end shapes what the node receives, the node's end what it sends. A limit ends with its container's
run: run this again after a restart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t

Command = t.Callable[[list[str]], str]


def run(argv: list[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def shape(tc: list[str], device: str, mbit: int, command: Command = run) -> bool:
    """Give ``device`` a token bucket of ``mbit`` Mbit/s, or none; ``tc`` is how to call tc where the device lives."""
    now = json.loads(command([*tc, "-json", "qdisc", "show", "dev", device, "root"]) or "[]")
    bucket = next((item for item in now if item["kind"] == "tbf"), None)
    bytes_per_s = mbit * 1_000_000 // 8
    if mbit == 0:
        if bucket is None:
            return False
        command([*tc, "qdisc", "del", "dev", device, "root"])
        return True
    if bucket is not None and bucket["options"].get("rate") == bytes_per_s:
        return False
    # The bucket holds 10 ms of traffic, at least one packet as large as segmentation offload makes them.
    burst = max(bytes_per_s // 100, 128 * 1024)
    settings = ["rate", f"{mbit}mbit", "burst", str(burst), "latency", "50ms"]
    command([*tc, "qdisc", "replace", "dev", device, "root", "tbf", *settings])
    return True


def host_device(container: str, command: Command = run) -> str:
    """Name of the host's end of the container's veth pair."""
    index = int(command(["podman", "exec", container, "cat", "/sys/class/net/eth0/iflink"]))
    for link in json.loads(command(["ip", "-json", "link", "show"])):
        if link["ifindex"] == index:
            return str(link["ifname"])
    raise LookupError(
        f"No device with index {index} on this host: is {container} on a bridge network of root's podman?"
    )


def main(argv: list[str]) -> int:
    if len(argv) < 2 or not argv[0].isdecimal():
        print(__doc__, file=sys.stderr)
        return 2
    changed = False
    try:
        for container in argv[1:]:
            changed |= shape(["tc"], host_device(container), int(argv[0]))
            changed |= shape(["podman", "exec", container, "tc"], "eth0", int(argv[0]))
    except subprocess.CalledProcessError as exc:
        print(f"{' '.join(exc.cmd)} failed: {exc.stderr.strip()}", file=sys.stderr)
        if "qdisc" in exc.stderr or "No such file" in exc.stderr:
            print(
                "The kernel may lack the token bucket filter: modprobe sch_tbf, or leave LAB_NODE_MBIT unset.",
                file=sys.stderr,
            )
        return 1
    except LookupError as exc:
        print(exc, file=sys.stderr)
        return 1
    print("changed" if changed else "ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = ["host_device", "shape"]
