# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop on this node alone what its status file lists: the action stoplocal, and what stop runs on every node."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import daemon
import options
import settings

# Not the one of start and stop: so it is in the real program.
STATUS_FILE = "/tmp/beeond.tmp"
CLIENT = "beegfs-client"
PREFERRED = ("/tmp/preferredMds.fod", "/tmp/preferredTarget.fod")
Row = list[str]


class Local:
    """One stop with its options."""

    def __init__(self, given: t.Mapping[str, str]) -> None:
        self.status, self.given = Path(given["i"]), given
        self.error = False

    def say(self, message: str) -> None:
        if "q" not in self.given:
            print(f"INFO: {message}", flush=True)

    def check(self, code: int, doing: str) -> None:
        if code:
            print(f"ERROR: There was a problem {doing} on host {socket.gethostname()}", flush=True)
            self.error = True

    def rows(self) -> list[Row]:
        """Host, service, data path or mount point, log, file of the process's number; "-" for none."""
        text = self.status.read_text(encoding="utf-8") if self.status.exists() else ""
        return [(line.split(",", 4) + [""] * 5)[:5] for line in text.splitlines()]

    def run(self) -> int:
        self.say(f"Using status file {self.status}")
        if "s" not in self.given:
            self.unmount(CLIENT, "the ondemand file system")
        if settings.load()["partial_stop"]:
            return 255
        if "u" not in self.given:
            self.stop_services()
        if not self.error and "L" in self.given:
            self.delete_logs()
        if not {"s", "u"} & set(self.given):
            self.status.unlink()
        return int(self.error)

    def unmount(self, service: str, what: str) -> None:
        """Kill who has the mount point itself open, then detach it at once ("umount -l")."""
        for _, name, place, _, _ in self.rows():
            if name != service:
                continue
            self.say(f"Unmounting {place}" if service == CLIENT else f"Unmounting tmpfs at {place}")
            settings.hang_if_asked("umount")
            kill_users(place)
            silent = subprocess.DEVNULL if "c" in self.given else None
            fails = settings.load()["unmount_fails"] and service == CLIENT
            code = 32 if fails else subprocess.run(["umount", "-l", place], stderr=silent, check=False).returncode
            if "c" not in self.given:
                self.check(code, f"unmounting {what}")

    def stop_services(self) -> None:
        for _, service, data, _, pid_file in self.rows():
            if pid_file == "-":
                continue
            self.stop_one(service, pid_file)
            if "d" in self.given and data != "-":
                self.say(f"Deleting stored data; Data path: {data}")
                if service == "beegfs-mgmtd":
                    daemon.forget(Path(data))
                shutil.rmtree(data, ignore_errors=True)
                self.check(int(os.path.exists(data)), f"deleting {data}")
            for name in PREFERRED:
                Path(name).unlink(missing_ok=True)
        self.unmount("tmpfs", "tmpfs")

    def stop_one(self, service: str, pid_file: str) -> None:
        try:
            pid = int(Path(pid_file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            if "c" not in self.given:
                print(f"ERROR: PID file {pid_file} does not exist on host {socket.gethostname()}", flush=True)
                self.error = True
            return
        outcome = end(pid)
        if outcome == "stays":
            print(f"ERROR: {service} did not stop within 10 seconds (PID {pid}).", flush=True)
            self.error = True
        elif outcome == "absent":
            print(f"ERROR: {service} does not seem to be running any more (PID {pid}).", flush=True)

    def delete_logs(self) -> None:
        """The log directory stays, even an empty one: so it is in the real program, whatever its help says."""
        for _, service, _, log, _ in self.rows():
            if log == "-" or (("u" in self.given) != (service == CLIENT) and {"u", "s"} & set(self.given)):
                continue
            self.say(f"Deleting log file {log}")
            Path(log).unlink(missing_ok=True)


def end(pid: int) -> str:
    """Ask a process to stop and wait for about ten seconds: "stopped", "stays", or "absent" where there is none."""
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError:
        return "absent"
    for _ in range(100):
        if not alive(pid):
            return "stopped"
        time.sleep(0.1)
    return "stays"


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits for its parent has stopped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def kill_users(place: str) -> None:
    """As "fuser -k PLACE": the processes that have PLACE itself open or work in it, not those with files below it."""
    try:
        target = os.stat(place)
    except OSError:
        return
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [process / "cwd", process / "root", *(process / "fd").iterdir()]
        except OSError:
            continue
        if int(process.name) != os.getpid() and any(_same(link, target) for link in links):
            try:
                os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue


def _same(link: Path, target: os.stat_result) -> bool:
    try:
        found = os.stat(link)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (target.st_dev, target.st_ino)


def main(arguments: t.Sequence[str], usage: t.Callable[[], t.NoReturn] | None = None) -> int:
    """The options, what they exclude, and a status file that is not there."""
    given = {"i": STATUS_FILE}
    for option, value in options.read(arguments, ":i:dLusqc", "beeond"):
        wrong = ""
        if option == "?":
            wrong = f"invalid option -{value}"
        elif option == ":":
            wrong = f"Option -{value} requires an argument"
        elif option in "us" and {"u": "s", "s": "u"}[option] in given:
            wrong = "Options -u and -s are mutually exclusive"
        if wrong:
            print(f"ERROR: {wrong}", file=sys.stderr, flush=True)
            return usage() if usage else 1
        given[option] = value
    settings.hang_if_asked("stoplocal")
    if not Path(given["i"]).is_file():
        if "c" in given:
            return 0
        print(f"ERROR: Status file {given['i']} not found.", file=sys.stderr, flush=True)
        return usage() if usage and given["i"] == STATUS_FILE else 1
    if "c" in given and "q" not in given:
        print("INFO: Status file found.", flush=True)
    return Local(given).run()
