# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands on other nodes: ssh for one after the other, pdsh for all at once, with the real program's options."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import typing as t

SSH = ("ssh", "-qq", "-oBatchMode=yes", "-oNumberOfPasswordPrompts=0", "-oStrictHostKeyChecking=no", "-n")
HELPER = "/opt/beegfs/lib/beegfs-ondemand-stoplocal"
WAYS_OUT = {
    255: "Host is unreachable via ssh: {host}",
    1: "Host doesn't use /bin/bash as default shell: {host}",
}


class BeeondError(Exception):
    """The program ends with 1 and says so."""


class Nodes:
    """The nodes of a node file, in its order, reached by ssh or by pdsh."""

    def __init__(self, hosts: t.Sequence[str], pdsh: str | None, say: t.Callable[[str], None]) -> None:
        self.hosts, self.pdsh, self.say = list(hosts), pdsh, say
        self.failed = False

    def ssh(self, host: str, command: str) -> int:
        sys.stdout.flush()
        return subprocess.run([*SSH, host, command], check=False).returncode

    def read(self, host: str, command: str) -> str:
        return subprocess.run([*SSH, host, command], check=False, stdout=subprocess.PIPE, text=True).stdout

    def raw_pdsh(self, hosts: t.Sequence[str], command: str) -> int:
        """The greatest exit code of all nodes (-S)."""
        sys.stdout.flush()
        argv = [str(self.pdsh), "-R", "ssh", "-S", "-w", ",".join(hosts), command]
        try:
            return subprocess.run(argv, check=False).returncode
        except OSError:
            return 127

    def all_at_once(self, hosts: t.Sequence[str], command: str, go_on: bool = False) -> None:
        """By pdsh; a node where it fails gets a file /tmp/beegfs.pdsh_fail.TIME."""
        mark = f"/tmp/beegfs.pdsh_fail.{time.strftime('%Y%m%d-%H%M%S')}"
        if self.raw_pdsh(hosts, f"{command} || (touch {mark} && false)") == 0:
            return
        text = "Execution of a command failed. Please see pdsh output for more information."
        if not go_on:
            raise BeeondError(text)
        complain(text)
        self.failed = True

    def check(self) -> None:
        """Every node must answer, have bash as its shell, and have the helper program."""
        if self.pdsh is None:
            for host in self.hosts:
                self.check_one(host)
            return
        self.say(f"Checking PDSH availability on the following hosts: {','.join(self.hosts)}")
        code = self.raw_pdsh(self.hosts, "test ${SHELL} = '/bin/bash' || exit 2")
        if code == 2:
            raise BeeondError("One or more hosts don't use /bin/bash as default shell.")
        if code:
            self.say("pdsh does not seem to work on all nodes. Disabling pdsh and using ssh instead")
            self.pdsh = None
            self.check()
        elif self.raw_pdsh(self.hosts, f"if [ -e {HELPER} ]; then true; else exit 2; fi"):
            text = "Unable to find BeeOND helper program on one or more nodes.\n"
            raise BeeondError(f"{text}Please make sure BeeOND is installed on all machines.")

    def check_one(self, host: str) -> None:
        self.say(f"Checking reachability of host {host}")
        code = self.ssh(host, "test ${SHELL} = '/bin/bash'")
        if code:
            raise BeeondError(WAYS_OUT.get(code, "Error contacting host: {host}").format(host=host))
        if self.ssh(host, f"test -e {HELPER}"):
            text = f"Could not find BeeOND helper program on host: {host}\n"
            raise BeeondError(f"{text}Please make sure BeeOND is installed on all machines.")


def complain(message: str) -> None:
    sys.stdout.flush()
    print(f"ERROR: {message}", file=sys.stderr, flush=True)
    print()


def find_pdsh(wanted: bool, given: str) -> str | None:
    """The path of pdsh, None where it is not wanted."""
    if not wanted:
        return None
    found = given or shutil.which("pdsh") or ""
    if not found:
        print("Unable to autodetect pdsh. Please specify using the -b option.")
        raise SystemExit(1)
    return found


def node_file(path: str) -> tuple[list[str], int]:
    """The hosts, and the number of lines: a line with several words is several hosts, but counts once.

    Empty lines and a line like the one above it are left out; there are no comments.
    """
    if not path:
        raise BeeondError("Node file undefined")
    try:
        with open(path, encoding="utf-8") as stream:
            lines = [line for line in stream.read().split("\n") if line]
    except OSError:
        raise BeeondError(f"Node file does not exist: {path}") from None
    unlike = [line for index, line in enumerate(lines) if index == 0 or line != lines[index - 1]]
    return [word for line in unlike for word in line.split()], len(unlike)
