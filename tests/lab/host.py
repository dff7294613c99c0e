#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can this machine run the container lab, and with which podman settings?

``host.py PATH`` writes the lab's own containers.conf to PATH and prints ``changed`` or ``ok``; on a machine that cannot
run the lab it names everything that is missing and exits with 1. The person's own containers.conf is never touched.
"""

from __future__ import annotations

import os
import pathlib
import resource
import shutil
import sys
import typing as t

CAP_SYS_RESOURCE = 24
# podman lowers its own limit to this before it starts a container, and what it lowered it cannot raise again.
PODMAN_NPROC = 32768
PROGRAMS = {
    "podman": "podman",
    "mmdebstrap": "mmdebstrap",
    "ssh-keygen": "openssh-client",
    "tc": "iproute2",
    "iptables": "iptables",
}


class Host(t.NamedTuple):
    """What matters of a machine."""

    root: bool
    cgroup: str  # "unified", "hybrid" or "legacy"
    may_raise_limits: bool
    nofile: int
    nproc: int
    fuse: bool
    runc: bool
    missing: tuple[str, ...]


def observe() -> Host:
    """Look at this machine."""
    return Host(
        root=os.geteuid() == 0,
        cgroup=_cgroup_mode(pathlib.Path("/sys/fs/cgroup")),
        may_raise_limits=_has_capability(CAP_SYS_RESOURCE),
        nofile=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        nproc=resource.getrlimit(resource.RLIMIT_NPROC)[1],
        fuse=os.access("/dev/fuse", os.R_OK | os.W_OK),
        runc=_find("runc") is not None,
        missing=tuple(package for program, package in PROGRAMS.items() if _find(program) is None),
    )


def problems(host: Host) -> list[str]:
    """Everything that keeps the lab from running here, each with the next step; empty when nothing does."""
    found = []
    if host.missing:
        found.append(f"Programs are missing: apt-get install --no-install-recommends {' '.join(host.missing)}")
    if host.cgroup != "unified" and not host.runc:
        found.append("cgroup v1 is in use here, which needs runc: apt-get install --no-install-recommends runc")
    if not host.fuse:
        found.append("/dev/fuse cannot be opened (GlusterFS mounts through it): modprobe fuse, or run this as root.")
    if not host.root:
        found.append(
            "Rootless podman cannot carry this lab: GlusterFS keeps trusted.* attributes, which only root may write, and the nodes "
            "are reached at their own addresses. Run it as root."
        )
    return found


def containers_conf(host: Host) -> str:
    """Text of the containers.conf that fits the machine."""
    lines = ["# Made by tests/lab/host.py for the lab; podman reads it through CONTAINERS_CONF.", "[containers]"]
    if not host.may_raise_limits:
        # Without CAP_SYS_RESOURCE podman's own defaults are above what this machine lets anybody set.
        lines.append(
            f'default_ulimits = ["nofile={_limit(host.nofile, 1048576)}", "nproc={_limit(host.nproc, PODMAN_NPROC)}"]'
        )
    lines += ["[engine]"]
    if host.cgroup != "unified":
        lines.append('runtime = "runc"')  # crun refuses a mix of cgroup v1 and v2
    lines += ["[network]", 'network_backend = "netavark"', ""]
    return "\n".join(lines)


def _limit(hard: int, ceiling: int) -> str:
    value = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
    return f"{value}:{value}"


def _cgroup_mode(root: pathlib.Path) -> str:
    if (root / "cgroup.controllers").exists():
        return "unified"
    return "hybrid" if (root / "unified" / "cgroup.controllers").exists() else "legacy"


def _has_capability(bit: int) -> bool:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False


def _find(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def main(argv: list[str]) -> int:
    if len(argv) != 1 or argv[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    host = observe()
    found = problems(host)
    if found:
        print("This machine cannot run the lab yet:", *found, sep="\n  - ", file=sys.stderr)
        return 1
    path = pathlib.Path(argv[0])
    text = containers_conf(host)
    if path.is_file() and path.read_text() == text:
        print("ok")
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print("changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = ["Host", "containers_conf", "observe", "problems"]
