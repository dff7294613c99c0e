# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Mounts and processes of a node. It reaches the node as text, together with ``agent``."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import typing as t

#: Names that BeeOND gives to the directories of its services (beeond/source/beeond of BeeGFS 7.4.7 and 8.3.1).
SERVICE_DIRECTORIES = ("beegfs-mgmtd", "beegfs-meta", "beegfs-storage")
#: How BeeOND calls its mount; its type is beegfs.
SOURCE = "beegfs_ondemand"
#: beeond-lib waits ten seconds for a service that was told to end; this waits as long before it kills.
_STOP_S = 10.0
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Mount(t.NamedTuple):
    """A line of proc(5)'s mountinfo. ``device`` and ``root``: which part of which file system it shows."""

    source: str
    point: str
    device: str
    root: str


def read(path: str) -> str:
    """The text of a file, "" where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _plain(text: str) -> str:
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    return text


def mounts(pid: str = "self") -> list[Mount]:
    """What a process sees mounted, the last on top."""
    found = []
    for line in read(f"/proc/{pid}/mountinfo").splitlines():
        words, _dash, rest = line.partition(" - ")
        fields, last = words.split(" "), rest.split(" ")
        if len(fields) > 4 and len(last) > 1:
            found.append(Mount(_plain(last[1]), _plain(fields[4]), fields[2], _plain(fields[3])))
    return found


def mounted_at(point: str) -> Mount | None:
    """What is on top at a mount point."""
    return next((one for one in reversed(mounts()) if one.point == point), None)


def is_ondemand(point: str) -> bool:
    """Whether that is a file system of BeeOND."""
    top = mounted_at(point)
    return top is not None and top.source == SOURCE


def mounts_below(path: str) -> list[str]:
    """Mount points at a path or below it, whatever links lead there."""
    real = os.path.realpath(path)
    return [one.point for one in mounts() if one.point == real or one.point.startswith(f"{real}/")]


def device_below(path: str) -> str:
    """The block device of the file system of a path, "" where it has none. Subvolumes of one file system have numbers of their own."""
    real, best = f"{os.path.realpath(path).rstrip('/')}/", Mount("", "", "", "")
    for one in mounts():
        if real.startswith(f"{one.point.rstrip('/')}/") and len(one.point) >= len(best.point):
            best = one
    return best.source if best.source.startswith("/dev/") else ""


def everybody() -> list[str]:
    """All processes, as the names of their directories."""
    return [name for name in os.listdir("/proc") if name.isdigit()]


def arguments(pid: str) -> list[str]:
    """The words of a process of this node, [] for one that is gone or that lives in a container."""
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return []
    except OSError:
        return []
    return read(f"/proc/{pid}/cmdline").split("\0")


def _is(service: str, words: t.Sequence[str]) -> bool:
    return any(os.path.basename(word) == service for word in words[:3])


def alive(pid_file: str, service: str) -> int:
    """The process of a pid file if it is this service, started with this file; 0 otherwise.

    The number may be another process's by now, even the same service of another file system. The file's name holds the time of the start.
    """
    pid = read(pid_file).strip()
    if not pid.isdigit():
        return 0
    words, name = arguments(pid), os.path.basename(pid_file)
    return int(pid) if _is(service, words) and any(word.endswith(name) for word in words) else 0


def claimed(path: str) -> bool:
    """Whether a process of this node was started with a file of this name. A container has a /run of its own."""
    name = os.path.basename(path)
    return any(name in " ".join(arguments(pid)) for pid in everybody())


def processes(data: str, logs: str) -> dict[int, str]:
    """Services that have a directory below the data path, by process: with a status file or without.

    The helper service of 7 keeps no data. It is known by its log.
    """
    places = {service: f"{data}/{service}" for service in SERVICE_DIRECTORIES}
    places["beegfs-helperd"] = logs
    found = {}
    for pid in everybody():
        words = arguments(pid)
        for service, place in places.items():
            if _is(service, words) and any(
                (word.rpartition("=")[2] + "/").startswith(f"{place}/") for word in words[1:]
            ):
                found[int(pid)] = service
    return found


def launchers(status_file: str) -> list[int]:
    """BeeOND itself, at work for this status file: of a run that was killed, as two runs at once are refused."""
    found = []
    for pid in everybody():
        words = arguments(pid)
        if status_file in words and _is("beeond", words) and {"start", "stop"} & set(words[:4]):
            found.append(int(pid))
    return found


def mounting(point: str) -> list[int]:
    """What is about to mount here for a start that has gone: it may have to build the module first, which takes minutes."""
    return [int(pid) for pid in everybody() if f"{SOURCE} {point} -o" in " ".join(arguments(pid))]


def users(point: str) -> list[int]:
    """Processes that work in a mount or have something of it open or mapped, in containers, too, whatever they call it."""
    top = mounted_at(point)
    if top is None:
        return []
    found: list[int] = []
    places: dict[tuple[str, str], list[str]] = {}
    for pid in everybody():
        try:
            space, root = os.readlink(f"/proc/{pid}/ns/mnt"), os.readlink(f"/proc/{pid}/root").rstrip("/")
        except OSError:
            continue
        if (space, root) not in places:
            inside = f"{top.root.rstrip('/')}/"
            places[space, root] = [
                f"{root}{one.point}"
                for one in mounts(pid)
                if one.device == top.device and f"{one.root.rstrip('/')}/".startswith(inside)
            ]
        if int(pid) != os.getpid() and places[space, root] and _uses(pid, places[space, root]):
            found.append(int(pid))
    return found


def _uses(pid: str, places: t.Sequence[str]) -> bool:
    links = [f"/proc/{pid}/cwd", f"/proc/{pid}/exe"]
    with contextlib.suppress(OSError):
        links += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    for link in links:
        with contextlib.suppress(OSError):
            target = f"{os.readlink(link)}/"
            if any(target.startswith(f"{place}/") for place in places):
                return True
    mapped = read(f"/proc/{pid}/maps")
    return any(f" {place}/" in mapped for place in places)


def begun(pid: int) -> str:
    """When a process began, in the kernel's ticks; "" for one that has ended or only waits to be collected (proc(5): fields 3 and 22)."""
    words = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return words[19] if len(words) > 19 and words[0] not in ("Z", "X") else ""


def end(pids: t.Iterable[int]) -> None:
    """End processes: asked first, killed after ten seconds. A number that went to another process meanwhile is left alone."""
    known = {pid: begun(pid) for pid in pids}

    def left() -> list[int]:
        return [pid for pid, when in known.items() if when and begun(pid) == when]

    for number, wait_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, 5.0)):
        for pid in left():
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        limit = time.monotonic() + wait_s
        while time.monotonic() < limit and left():
            time.sleep(0.1)


def kill(pid: int) -> None:
    """Kill a process at once; with all that it started here where it leads a group."""
    with contextlib.suppress(OSError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


def held_by_another(lock: str, token: str) -> bool:
    """Whether another run holds a lock. Asking the kernel's list takes no lock, which would get in that run's way."""
    try:
        found = os.stat(lock)
    except OSError:
        return False
    name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    held = any(words[1:2] == ["FLOCK"] and name in words for words in map(str.split, read("/proc/locks").splitlines()))
    return held and read(lock).strip() != token


__all__ = [
    "SERVICE_DIRECTORIES",
    "SOURCE",
    "Mount",
    "alive",
    "arguments",
    "begun",
    "claimed",
    "device_below",
    "end",
    "held_by_another",
    "is_ondemand",
    "kill",
    "launchers",
    "mounted_at",
    "mounting",
    "mounts",
    "mounts_below",
    "processes",
    "read",
    "users",
]
