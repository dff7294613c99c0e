# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program beeond: its actions, its help, and stop."""

from __future__ import annotations

import sys
import typing as t

import options
import remote
import settings
import stoplocal

STATUS_FILE = "/var/tmp/beeond.tmp"
HELP = """
BeeOND (a double for tests, option set of BeeGFS {version})

USAGE: beeond <action> <options>

start      -n FILE -d PATH -c PATH   node file, data path, mount point
           -i FILE (default {status}) -F -m NUM (default 1) -s NUM (default: all) -p NUM (default 1000)
           -f PATH -L PATH (default /var/log) -l -P -b PATH -r -k -j -q -t FILE -T{more}
stop       -n FILE   -i FILE -d (delete data) -L (delete logs) -c (clean up) -P -b PATH -q
stoplocal  -i FILE -d -L -c -q -u (only unmount) -s (only stop services)
"""


def usage() -> t.NoReturn:
    more = " -G PORT (default 8010) -C -E -H" if settings.major() > 7 else ""
    print(HELP.format(version=settings.load()["version"], status=STATUS_FILE, more=more))
    raise SystemExit(1)


def refuse(option: str, letter: str) -> t.NoReturn:
    """What an unknown option, or one without its argument, leads to."""
    sys.stdout.flush()
    text = f"Option -{letter} requires an argument" if option == ":" else f"invalid option: -{letter}"
    print(f"ERROR: {text}", file=sys.stderr, flush=True)
    usage()


def stop(arguments: t.Sequence[str]) -> int:
    """Unmount on all nodes, stop all services, remove all status files; only pdsh makes a failure on a node an exit code."""
    given = {"i": STATUS_FILE}
    for option, value in options.read(arguments, "di:n:Pb:Lcq", "beeond"):
        if option in "?:":
            refuse(option, value)
        given[option] = value
    pdsh = remote.find_pdsh("P" in given, given.get("b", ""))
    hosts, _ = remote.node_file(given.get("n", ""))
    say = quiet if "q" in given else inform
    say(f"Using status information file: {given['i']}")
    nodes = remote.Nodes(hosts, pdsh, say)
    nodes.check()
    words = " -q" + "".join(f" -{letter}" for letter in "dLc" if letter in given)
    local = f"source {remote.HELPER}; do_stoplocal"
    everywhere(nodes, "Unmounting file system on", f"{local} -u -i {given['i']}{words}")
    everywhere(nodes, "Stopping remaining processes on", f"{local} -s -i {given['i']}{words}")
    everywhere(nodes, "Deleting status file on", f"rm -f {given['i']}")
    return int(nodes.failed)


def everywhere(nodes: remote.Nodes, what: str, command: str) -> None:
    if nodes.pdsh is not None:
        where = "hosts:" if what.startswith("Deleting") else "the following hosts:"
        nodes.say(f"{what} {where} {','.join(nodes.hosts)}")
        nodes.all_at_once(nodes.hosts, command, go_on=True)
        return
    for host in nodes.hosts:
        nodes.say(f"{what} host: {host}")
        nodes.ssh(host, command)


def inform(message: str) -> None:
    print(f"INFO: {message}", flush=True)


def quiet(message: str) -> None:
    pass


def main(arguments: t.Sequence[str]) -> int:
    """The program: an action, then its options."""
    action, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    try:
        if action == "start":
            import start

            return start.main(rest)
        if action == "stop":
            return stop(rest)
    except remote.BeeondError as exc:
        remote.complain(str(exc))
        return 1
    if action == "stoplocal":
        return stoplocal.main(rest, usage)
    usage()
