# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small nodes on one machine: each has a root directory, mounts and a host name of its own; all share one loopback.

Made of namespaces, so that no container and no root is needed. A stand-in for ssh goes from one to another (no sshd, no keys).
Programs see each other's processes: a process id is the machine's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import typing as t
from pathlib import Path

PATH = "/opt/beegfs/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SPACES = ("-m", "-u", "-r", "-w")
ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives")
# One root: the machine's /usr by links, so that a file can be added; the rest is the node's own.
BUILD = """
set -e
hostname "$2"
mount -t tmpfs node "$1"
cd "$1"
mkdir -p machine usr/bin usr/sbin etc/init.d etc/beegfs proc dev sys tmp root run var/tmp var/log var/lib opt mnt
chmod 1777 tmp var/tmp
mount --rbind /usr machine
for name in /usr/*; do case $name in /usr/bin|/usr/sbin) ;; *) ln -s "/machine/${name#/usr/}" ".$name" ;; esac; done
(cd usr/bin && ln -s ../../machine/bin/* .)
(cd usr/sbin && ln -s ../../machine/sbin/* .)
for name in bin sbin lib lib64 lib32; do [ ! -e "/$name" ] || ln -s "usr/$name" "$name"; done
ln -s /run var/run
for name in {etc}; do cp -a "/etc/$name" etc/ 2>/dev/null || true; done
mount --rbind /proc proc
mount --rbind /dev dev
mount --rbind /sys sys
rm -f usr/bin/ssh usr/bin/pdsh
cp "$3/ssh" usr/bin/ssh
cp "$3/hosts" etc/hosts
mkdir common
mount --bind "$3" common
ln -s /common/nodes etc/ssh-nodes
echo ready
exec chroot . /usr/bin/sleep infinity
"""
SSH = """#!/bin/bash
# A stand-in for ssh: into the namespaces of the node that the file names; 255 where it has gone.
while [[ $1 == -* ]]; do [[ $1 != -o ]] || shift; shift; done
host=$1; shift
while read -r name number; do [[ $name != "$host" ]] || pid=$number; done < /etc/ssh-nodes
[[ -n $pid && -d /proc/$pid/ns ]] || exit 255
exec nsenter -t "$pid" -m -u -r -w env -i HOME=/root USER=root SHELL=/bin/bash PATH={path} /bin/bash -c "$*" < /dev/null
"""


def possible() -> bool:
    """Whether this machine lets this user make namespaces."""
    try:
        done = subprocess.run(["unshare", "-Urmnu", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


class Nodes:
    """Nodes node-1, node-2, ... at 127.0.77.1, ...; a context manager that ends everything that runs on them."""

    def __init__(self, place: Path, number: int) -> None:
        self.place, self.names = place, [f"node-{index}" for index in range(1, number + 1)]
        self.held: dict[str, subprocess.Popen[str]] = {}

    def address(self, name: str) -> str:
        return f"127.0.77.{name.partition('-')[2]}"

    def __enter__(self) -> Nodes:
        common = self.place / "common"
        common.mkdir(parents=True)
        (common / "ssh").write_text(SSH.format(path=PATH), encoding="utf-8")
        (common / "ssh").chmod(0o755)
        rows = ["127.0.0.1 localhost", *(f"{self.address(name)} {name}" for name in self.names)]
        (common / "hosts").write_text("\n".join(rows) + "\n", encoding="utf-8")
        base = ["unshare", "-Urmnu", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity"]
        self.base = self._hold(base)
        self.net = os.readlink(f"/proc/{self.base.pid}/ns/net")
        for name in self.names:
            root = self.place / name
            root.mkdir()
            enter = ["nsenter", "-t", str(self.base.pid), "-U", "-n", "--preserve-credentials", "unshare", "-mu"]
            script = BUILD.replace("{etc}", " ".join(ETC))
            self.held[name] = self._hold([*enter, "sh", "-c", script, "sh", str(root), name, str(common)])
        self.write_addresses()
        return self

    def _hold(self, argv: t.Sequence[str]) -> subprocess.Popen[str]:
        held = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert held.stdout
        if held.stdout.readline().strip() != "ready":
            held.kill()
            raise RuntimeError(f"a node could not be made: {' '.join(argv[:6])} ... ended with {held.wait()}")
        return held

    def write_addresses(self) -> None:
        text = "".join(f"{name} {held.pid}\n" for name, held in self.held.items())
        (self.place / "common/nodes").write_text(text, encoding="utf-8")

    def command(self, name: str, *argv: str) -> list[str]:
        """The words that run ARGV on a node."""
        enter = ["nsenter", "-t", str(self.held[name].pid), "-U", "-n", *SPACES, "--preserve-credentials"]
        return [*enter, "env", "-i", "HOME=/root", "USER=root", "SHELL=/bin/bash", f"PATH={PATH}", *argv]

    def run(self, name: str, *argv: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(name, *argv), capture_output=True, text=True, timeout=timeout_s, check=False)

    def shell(self, name: str, script: str, timeout_s: float = 120) -> str:
        """What a shell script on the node prints; it must end well."""
        done = self.run(name, "bash", "-c", script, timeout_s=timeout_s)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    def root(self, name: str) -> Path:
        """The node's root directory, as the machine sees it."""
        return Path(f"/proc/{self.held[name].pid}/root")

    def lose(self, name: str) -> None:
        """The node is gone: its processes are killed, and ssh no longer reaches it."""
        mounts = os.readlink(f"/proc/{self.held[name].pid}/ns/mnt")
        self._kill(lambda process: os.readlink(process / "ns/mnt") == mounts)
        self.held[name].wait(30)

    def quiet(self, name: str) -> None:
        """Kill whatever runs on a node, also what its pid file does not name yet. The node itself stays."""
        keep, mounts = self.held[name].pid, os.readlink(f"/proc/{self.held[name].pid}/ns/mnt")
        end = time.monotonic() + 30
        while any(self._runs(process, mounts, keep) for process in Path("/proc").glob("[0-9]*")):
            assert time.monotonic() < end, f"something on {name} does not end"
            self._kill(lambda process: self._runs(process, mounts, keep))
            time.sleep(0.05)

    def _runs(self, process: Path, mounts: str, keep: int) -> bool:
        try:
            return int(process.name) != keep and os.readlink(process / "ns/mnt") == mounts
        except OSError:
            return False

    def _kill(self, chosen: t.Callable[[Path], bool]) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if chosen(process):
                    os.kill(int(process.name), signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        """End whatever runs in the nodes' network, which is theirs alone."""
        end = time.monotonic() + 30
        while time.monotonic() < end and any(self._inside(process) for process in Path("/proc").glob("[0-9]*")):
            self._kill(self._inside)
            for held in (*self.held.values(), self.base):
                held.poll()
            time.sleep(0.05)
        for held in (*self.held.values(), self.base):
            held.wait(30)
            if held.stdout:
                held.stdout.close()

    def _inside(self, process: Path) -> bool:
        try:
            return os.readlink(process / "ns/net") == self.net
        except OSError:
            return False
