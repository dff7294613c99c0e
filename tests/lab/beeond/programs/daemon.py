# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dummy services: beegfs-mgmtd, beegfs-meta, beegfs-storage and (7) beegfs-helperd.

They start, fail, detach and stop in the order of the real ones, listen at their ports, lock their directories, and register
with the management service; they store no files. Which failure shows before they detach, and which only in a log, is what matters.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import sys
import threading
import time
import typing as t
from pathlib import Path

import configuration
import registry
import settings

NAMES = {
    "beegfs-mgmtd": "Management Node",
    "beegfs-meta": "Metadata Node",
    "beegfs-storage": "Storage Node",
    "beegfs-helperd": "Helper",
}
INVALID_CONFIG, INITIALIZATION_ERROR = 1, 2
SUBDIRECTORIES = {"beegfs-meta": ("buddymir", "dentries", "inodes"), "beegfs-storage": ("buddymir", "chunks")}


class Service:
    """One service of version 7, or a metadata or storage service of version 8."""

    def __init__(self, name: str, arguments: t.Sequence[str]) -> None:
        self.name, self.kind = name, name.partition("-")[2]
        self.values = configuration.read(name, dict(word.partition("=")[::2] for word in arguments))
        self.secret = configuration.secret(self.values)
        self.held: list[t.Any] = []

    @property
    def directories(self) -> list[Path]:
        key = {"mgmtd": "storeMgmtdDirectory", "meta": "storeMetaDirectory", "storage": "storeStorageDirectory"}.get(
            self.kind
        )
        return [Path(one) for one in self.values.get(key or "", "").split(",") if one]

    def log(self, level: int, message: str) -> None:
        """A line of the log file; syslog, where it is configured, is left out."""
        if self.values.get("logType", "logfile") == "logfile" and self.values.get("logStdFile"):
            with open(self.values["logStdFile"], "a", encoding="utf-8") as stream:
                stream.write(f"({level}) {time.strftime('%b%d %H:%M:%S')} Main [App] >> {message}\n")

    def prepare(self) -> None:
        """All that the real one checks before it detaches."""
        if "pidFile" in self.values:
            self.held.append(lock(Path(self.values["pidFile"])))
        if self.kind != "helperd":
            if not self.directories:
                raise configuration.InvalidError("No storage target directories defined")
            for directory in self.directories:
                self.held.append(lock_directory(directory))
                for name in SUBDIRECTORIES.get(self.name, ()):
                    (directory / name).mkdir(exist_ok=True)
                mark(directory / "format.conf", "version=4\n")
                for name in ("originalNodeID", "nodeID"):
                    mark(directory / name, f"{settings.host()}\n")
        if self.kind in ("meta", "storage") and not self.values.get("sysMgmtdHost"):
            raise configuration.InvalidError("Management host undefined")
        configuration.check_interfaces(self.values)

    def listen(self) -> list[socket.socket]:
        port = configuration.port(self.values, self.name)
        found = [bind(socket.SOCK_STREAM, port)]
        if self.kind != "helperd":
            self.held.append(bind(socket.SOCK_DGRAM, port))
        return found

    def register(self) -> t.Mapping[str, t.Any]:
        """Wait for the management service, without a limit, and write down the numbers that it gives."""
        directory, manager = self.directories[0], self.values["sysMgmtdHost"]
        port = configuration.port(self.values, "beegfs-mgmtd")
        number = directory / "nodeNumID"
        question: dict[str, t.Any] = {
            "do": "register",
            "type": self.kind,
            "host": settings.host(),
            "secret": self.secret,
        }
        question["targets"] = [str(one) for one in self.directories]
        question["number"] = int(number.read_text()) if number.exists() else 0
        answer = registry.ask(manager, port, question)
        while answer is None:
            time.sleep(1)
            answer = registry.ask(manager, port, question)
        mark(number, f"{answer['number']}\n")
        if self.kind == "storage":
            for one, target in zip(self.directories, answer["targets"]):
                mark(one / "targetNumID", f"{target}\n")
                mark(one / "targetID", f"{target}-{answer['filesystem'][:8]}\n")
        return {"manager": manager, "port": port, "number": answer["number"]}

    def report(self, link: t.Mapping[str, t.Any]) -> None:
        """Tell the management service every second that the service is there."""
        while True:
            if self.name not in settings.load()["not_good"]:
                usage = os.statvfs(self.directories[0])
                space = {
                    "total": usage.f_blocks * usage.f_frsize,
                    "free": usage.f_bavail * usage.f_frsize,
                    "inodes": usage.f_files,
                    "inodes_free": usage.f_favail,
                }
                question = {"do": "online", "type": self.kind, "number": link["number"], "space": space}
                registry.ask(link["manager"], link["port"], {**question, "secret": self.secret})
            time.sleep(1)

    def run(self) -> int:
        self.prepare()
        self.log(1, f"Version: {settings.load()['version']}")
        early = self.kind in ("mgmtd", "helperd")
        listeners = self.try_to_listen() if early else []
        if listeners is None:
            return INITIALIZATION_ERROR
        if self.values.get("runDaemonized") == "true":
            detach(self.values.get("pidFile"), f"{self.name}/Main")
        if not early:
            link = self.register()
            listeners = self.try_to_listen()
            if listeners is None:
                return INITIALIZATION_ERROR
            threading.Thread(target=self.report, args=(link,), daemon=True).start()
        known = registry.Registry(self.directories[0], self.secret) if self.kind == "mgmtd" else None
        return stay(self.name, listeners, known, self.log)

    def try_to_listen(self) -> list[socket.socket] | None:
        try:
            return self.listen()
        except OSError as exc:
            port = configuration.port(self.values, self.name)
            self.log(0, f"Unable to bind socket to port {port} (SysErr: {exc.strerror})")
            self.log(1, "A hard error occurred. Shutting down...")
            return None


def stay(name: str, listeners: t.Sequence[socket.socket], known: t.Any, log: t.Callable[[int, str], None]) -> int:
    """Serve until SIGTERM; faults make the process end early or deaf to the signal."""
    faults, done = settings.load(), threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if name in faults["stuck"] else lambda *_: done.set())
    for listener in listeners:
        threading.Thread(target=registry.serve, args=(listener, known), daemon=True).start()
    done.wait(faults["dies_after_s"].get(name))
    if not done.is_set():
        os._exit(139)  # as a crash: nothing is tidied up and nothing logged
    log(1, "All components stopped. Exiting now!")
    return 0


def lock(path: Path) -> t.Any:
    """The file, created and locked; the lock goes with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("a+")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        text = f"Unable to lock PID file: {path} (already locked).\nCheck if service is already running."
        print(text, file=sys.stderr)
        raise configuration.InvalidError(f"Unable to create/lock PID file: {path}") from None
    return stream


def lock_directory(directory: Path) -> t.Any:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return lock(directory / "lock.pid")
    except OSError as exc:
        print(f"Unable to create working directory: {directory}; SysErr: {exc.strerror}", file=sys.stderr)
    except configuration.InvalidError:
        text = "Unable to lock working directory. Check if the directory is already in use:"
        print(f"{text} {directory}", file=sys.stderr)
    raise configuration.InvalidError("Invalid working directory: locking failed")


def mark(path: Path, text: str) -> None:
    if not path.exists():
        path.write_text(text, encoding="utf-8")


def bind(kind: socket.SocketKind, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, kind)
    if kind == socket.SOCK_STREAM:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((settings.load()["address"], port))
    if kind == socket.SOCK_STREAM:
        found.listen()
    return found


def detach(pid_file: str | None, kernel_name: str) -> None:
    """Go on in the background: the caller's process ends with 0 whatever happens from here."""
    if os.fork():
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    if pid_file:
        Path(pid_file).write_text(f"{os.getpid()}\n", encoding="utf-8")
    ctypes.CDLL(None).prctl(15, kernel_name.encode()[:15], 0, 0, 0)  # PR_SET_NAME: what ps and pgrep show


def main(name: str, arguments: t.Sequence[str]) -> int:
    """The programs' entry: NAME is the service."""
    settings.hang_if_asked(name)
    if name in settings.load()["refuse"]:
        print("\nUnrecoverable error: refused by the settings of the double\n", file=sys.stderr)
        return 3
    try:
        if name == "beegfs-mgmtd" and settings.major() > 7:
            import management

            return management.main(arguments)
        service = Service(name, arguments)
        if name in settings.load()["dead"]:
            service.prepare()
            detach(service.values.get("pidFile"), name)
            return 3
        return service.run()
    except configuration.InvalidError as exc:
        print(f"\nError: {exc}\n\n[BeeGFS {NAMES[name]} Version: {settings.load()['version']}", file=sys.stderr)
        print(f"Refer to the default config file (/etc/beegfs/{name}.conf)", file=sys.stderr)
        print("or visit http://www.beegfs.com to find out about configuration options.]\n", file=sys.stderr)
        return INVALID_CONFIG


def forget(directory: Path) -> None:
    """Remove what stood for the files of the file system that DIRECTORY, a management service's, knew."""
    shared = settings.load()["shared_directory"]
    for name in ("nodes.json", "beegfs-mgmtd.sqlite3"):
        if shared and (directory / name).exists():
            import json

            known = json.loads((directory / name).read_text(encoding="utf-8"))
            shutil.rmtree(Path(shared, known["filesystem"]), ignore_errors=True)
