# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What runs on every node: it reaches a node as text, through ssh, and stands on nothing but Python's own library.

``main`` takes one request as JSON and prints one answer as JSON. ``observe`` changes nothing. ``prepare`` makes the directories and
the mark, ``keep`` tells the mark that the file system was in use, ``sweep`` takes away what a session left, ``purge`` also its data.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.processes import (
    SERVICE_DIRECTORIES,
    SOURCE,
    alive,
    claimed,
    device_below,
    end,
    held_by_another,
    is_ondemand,
    kill,
    launchers,
    mounted_at,
    mounting,
    mounts,
    mounts_below,
    processes,
    read,
    users,
)

#: In the data path of a node: this module made the directory. What has no such file is never removed.
MARK = ".hpcai_beeond"
#: Where BeeGFS has a file for each one of a user's, and for each of its pieces (Metadata.h and Storagedata.h of BeeGFS 7.4.7).
_FILES = ("beegfs-meta/dentries", "beegfs-meta/buddymir/dentries", "beegfs-storage/chunks", "beegfs-storage/buddymir")
_PID_FILE = re.compile(r"(beegfs-[a-z]+)-\d{8}-\d{6}\.pid")
#: How long a step waits for one of an earlier run that still works on this node.
_LOCK_S = 20.0
_CAPACITY_S = 5.0
_TAIL_LINES = 20
#: Where packages put BeeGFS' programs. That of 7 has beegfs-ctl in /usr/sbin on Debian and in /usr/bin on EL (debian/rules, beegfs.spec).
_PATH = "/usr/bin:/usr/sbin:/opt/beegfs/sbin:/usr/local/bin:/bin"
_TAIL_BYTES = 16384


def status_rows(path: str) -> list[list[str]]:
    """The lines of BeeOND's status file: host, service, path, log, pid file."""
    rows = [line.split(",") for line in read(path).splitlines()]
    return [row for row in rows if len(row) == 5]


def mark_of(data: str) -> dict[str, t.Any] | None:
    """What the mark in the data path says, None where there is none."""
    try:
        found = json.loads(read(f"{data}/{MARK}"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def holds_files(data: str) -> bool:
    """Whether the services keep anything that a user made, whatever the mark says: the start may have been killed after the mount."""
    return any(files for part in _FILES for _place, _directories, files in os.walk(f"{data}/{part}"))


def marked_above(path: str) -> str:
    """The directory above a path that is the data of another file system, "" where there is none."""
    while path != "/":
        path = os.path.dirname(path)
        if os.path.lexists(f"{path}/{MARK}"):
            return path
    return ""


def is_link(path: str) -> bool:
    """Whether a path, or a directory above it, is a link."""
    return os.path.realpath(path) != path


def capacity(point: str) -> int:
    """The size of a mounted file system, 0 where its servers do not answer: then whoever asks waits for many minutes."""
    script = "import os, sys; found = os.statvfs(sys.argv[1]); print(found.f_blocks * found.f_frsize)"
    argv = [sys.executable, "-I", "-c", script, point]
    asking = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        text = asking.communicate(timeout=_CAPACITY_S)[0].strip()
    except subprocess.TimeoutExpired:
        # Not waited for: it may not end before its file system does.
        asking.kill()
        return 0
    return int(text) if text.isdigit() else 0


def space(path: str) -> dict[str, int]:
    """The nearest directory that is there, and what its file system has."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return {
        "free_bytes": found.f_bavail * found.f_frsize,
        "total_bytes": found.f_blocks * found.f_frsize,
        # Some file systems make inodes as they need them, and say 0.
        "free_inodes": found.f_favail if found.f_files else -1,
        "device": os.stat(path).st_dev,
    }


def on_root(path: str) -> bool:
    """Whether a path is in the root's file system by another name: a subvolume or a bind mount of it."""
    device = device_below(path)
    return bool(device) and device == device_below("/")


def busy_ports(ports: t.Sequence[int]) -> list[int]:
    """Ports of TCP at which something listens here, on any address (proc_net_tcp: the state 0A is LISTEN)."""
    listening = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read(name).splitlines()[1:]:
            words = line.split()
            if len(words) > 3 and words[3] == "0A":
                listening.add(int(words[1].rpartition(":")[2], 16))
    return [port for port in ports if port in listening]


def unresolved(names: t.Sequence[str]) -> list[str]:
    """Names that this node cannot turn into an address."""
    found = []
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            found.append(name)
    return found


def tail(log: str, service: str) -> str:
    """The last lines of a service's log, or of the node's journal: 8's services log there."""
    if os.path.isfile(log):
        with open(log, "rb") as stream:
            stream.seek(max(0, os.path.getsize(log) - _TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])
    argv = ["journalctl", "--no-pager", "-n", str(_TAIL_LINES), "-t", service]
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def observe(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """What there is of a session on this node, and what a start would need."""
    data, point = request["data_path"], request["mount_point"]
    top = mounted_at(point)
    rows, mark = status_rows(request["status_file"]), mark_of(data)
    live = {row[1]: alive(row[4], row[1]) for row in rows if row[4] != "-"}
    strays = {service: pid for pid, service in processes(data, request["log_dir"]).items() if pid not in live.values()}
    mounted = top is not None and top.source == SOURCE
    others = {row[2] for row in rows if row[1] == "beegfs-client"} | {str((mark or {}).get("mount_point") or point)}
    storage = space(data)
    config, conf = request["config_dir"], read("/etc/beegfs/beegfs-client.conf")
    settings = dict(line.replace(" ", "").split("=", 1) for line in conf.splitlines() if "=" in line and line[0] != "#")
    return {
        "program": shutil.which("beeond", path=_PATH) or "",
        "version": 7 if shutil.which("beegfs-ctl", path=_PATH) else 8 if shutil.which("beegfs", path=_PATH) else 0,
        "pdsh": bool(shutil.which("pdsh")),
        "shell_is_bash": os.environ.get("SHELL", "") == "/bin/bash",
        # Two names of one machine share both; nodes that are containers share the first.
        "machine": f"{read('/proc/sys/kernel/random/boot_id').strip()} {socket.gethostname()}",
        "other_run": bool(request["run"]) and held_by_another(request["lock"], request["run"]),
        "mounted": mounted,
        "foreign_mount": top.source if top is not None and not mounted else "",
        "mount_entries": [] if top is not None or not os.path.isdir(point) else os.listdir(point)[:3],
        # What is mounted is not asked for anything here: its servers may have gone.
        "point_is_link": is_link(point if top is None else os.path.dirname(point)),
        "point_is_no_directory": top is None and os.path.lexists(point) and not os.path.isdir(point),
        "mounted_elsewhere": sorted(place for place in others - {point} if is_ondemand(place)),
        "mounts_below": sorted({one.point for one in mounts() if one.point.startswith(f"{point}/")})[:5]
        if mounted
        else [],
        "status_there": os.path.lexists(request["status_file"]),
        "status_services": [row[1] for row in rows],
        "run_dir_there": os.path.isdir(request["run_dir"]),
        "services": {name: bool(pid) for name, pid in live.items()},
        "strays": strays,
        "launchers": launchers(request["status_file"]),
        "logs": {row[1]: row[3] for row in rows if row[3] != "-"},
        "mark": mark,
        "data_entries": sorted(os.listdir(data))[:5] if os.path.isdir(data) else [],
        "data_there": [name for name in SERVICE_DIRECTORIES if os.path.isdir(f"{data}/{name}")],
        "data_is_link": is_link(data),
        "data_mounts": mounts_below(data)[:3],
        "inside_data": marked_above(data),
        "files": mark is not None and (mark.get("state") == "used" or holds_files(data)),
        "on_os_disk": storage.pop("device") == os.stat("/").st_dev or on_root(data),
        **storage,
        "ports_busy": busy_ports(request["ports"]),
        "unresolved": unresolved(request["nodes"]),
        "config_there": not config or os.path.isdir(config),
        "authentication": bool(config) and os.path.isfile(f"{config}/conn.auth"),
        "license": bool(config) and os.path.isfile(f"{config}/license.pem"),
        # That of 7 looks at the second only where the first is empty.
        "control_configured": os.path.isfile(settings["connAuthFile"])
        if settings.get("connAuthFile")
        else settings.get("connDisableAuthentication") == "true",
        "users": users(point)[:5] if mounted else [],
        "capacity_bytes": capacity(point) if mounted else 0,
    }


def write_mark(data: str, mark: dict[str, t.Any]) -> None:
    """Write the mark whole or not at all."""
    new = f"{data}/{MARK}.new"
    with open(new, "w", encoding="utf-8") as stream:
        json.dump(mark, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(new, f"{data}/{MARK}")


def write_settings(request: dict[str, t.Any]) -> None:
    """The configuration of the services, where it is this module's: interfaces, and authentication of 7."""
    for name, text in request["settings"].items():
        place = f"{request['run_dir']}/{name}"
        with open(place, "w", encoding="utf-8") as stream:
            stream.write(text)


def prepare(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Make the directories, the mark and the settings of a session that is about to start."""
    if mounted_at(request["mount_point"]) is None and os.path.isdir(request["mount_point"]):
        for name in os.listdir(request["mount_point"])[:1]:
            raise OSError(f"{request['mount_point']} is not empty ({name})")
    for path, mode in ((request["run_dir"], 0o700), (request["log_dir"], 0o755), (request["data_path"], 0o700)):
        os.makedirs(path, mode, exist_ok=True)
    os.makedirs(request["mount_point"], 0o755, exist_ok=True)
    entries = set(os.listdir(request["data_path"])) - {MARK, f"{MARK}.new"}
    if mark_of(request["data_path"]) is None and entries:
        raise OSError(f"{request['data_path']} holds {sorted(entries)[0]}, which is not this module's")
    write_mark(request["data_path"], request["mark"])
    write_settings(request)
    return {}


def keep(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """From here on there may be data of users below the data path. Set the owner and mode of the root directory."""
    write_mark(request["data_path"], request["mark"])
    if request.get("root_mode"):
        os.chmod(request["mount_point"], int(request["root_mode"], 8))
    return {}


def unmount(point: str) -> None:
    """Unmount what BeeOND mounted, also where a server that it needs has gone."""
    said = "umount did not end"
    for _attempt in range(8):
        if not is_ondemand(point):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(["umount", "-l", point], capture_output=True, text=True, timeout=3, check=False)
            said = done.stderr.strip()
    if is_ondemand(point):
        raise OSError(f"{point} cannot be unmounted ({said}), and so its services were not stopped")


def sweep(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Unmount, end the services, and remove the status file and this module's files in /run. Data stays."""
    for pid in launchers(request["status_file"]) + mounting(request["mount_point"]):
        kill(pid)
    unmount(request["mount_point"])
    rows = status_rows(request["status_file"])
    pids = {pid for row in rows if row[4] != "-" for pid in [alive(row[4], row[1])] if pid}
    end(sorted(pids | set(processes(request["data_path"], request["log_dir"]))))
    # BeeOND forgets them: its names hold the time of the start. One whose process lives is another session's.
    for path in glob.glob("/run/beegfs-*.pid"):
        if _PID_FILE.fullmatch(os.path.basename(path)) and not claimed(path):
            os.unlink(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(request["status_file"])
    with contextlib.suppress(OSError):
        shutil.rmtree(request["run_dir"])
    return {}


def purge(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Remove the data of a session that has the mark, by descriptors, so that no link leads elsewhere; and its logs."""
    data = request["data_path"]
    for place in mounts_below(data):
        raise OSError(f"{place} is a mount point, in the data at {data}")
    if not os.path.isdir(data):
        return {}
    mark = mark_of(data)
    if mark is not None and mark.get("session") != request["sessions"].get(request["name"]):
        if request.get("taking_back"):
            return {}
        raise OSError(f"{data} is of another session than a moment ago")
    if mark is not None and not request["consent"] and (mark.get("state") == "used" or holds_files(data)):
        raise OSError(f"{data} holds files of users, and stays")
    for pid in processes(data, request["log_dir"]):
        raise OSError(f"process {pid} still uses {data}")
    parent = os.open(os.path.dirname(data), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        name = os.path.basename(data)
        here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            try:
                marked = stat.S_ISREG(os.stat(MARK, dir_fd=here, follow_symlinks=False).st_mode)
            except FileNotFoundError:
                marked = False
            entries = os.listdir(here)
            if not marked:
                if entries:
                    raise OSError(f"{data} has no mark of this module")
            else:
                # From here rmtree goes down by descriptors, and refuses a link.
                os.fchdir(here)
                for service in SERVICE_DIRECTORIES:
                    if service in entries:
                        shutil.rmtree(service)
                # Last, so that a removal that was cut off can go on.
                os.unlink(MARK, dir_fd=here)
        finally:
            os.chdir("/")
            os.close(here)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)
    with contextlib.suppress(OSError):
        shutil.rmtree(request["log_dir"])
    return {}


def tails(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """The last lines of every log that the status file names."""
    rows = status_rows(request["status_file"])
    return {"log_tail": {row[1]: tail(row[3], row[1]) for row in rows}}


@contextlib.contextmanager
def alone(lock: str) -> t.Iterator[None]:
    """Wait for what an earlier run still does on this node: its ssh may have gone, and its removal of data may not."""
    os.makedirs(os.path.dirname(lock), 0o700, exist_ok=True)
    with open(lock, "w", encoding="utf-8") as stream:
        limit = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise OSError("what an earlier run began here has not ended") from None
                time.sleep(0.2)
        yield


def main(text: str) -> None:
    """Do what the request asks for within its time, and print the answer."""
    os.umask(0o022)
    request = json.loads(text)
    answer: dict[str, t.Any] = {}
    works = {"observe": observe, "prepare": prepare, "keep": keep, "sweep": sweep, "purge": purge, "tails": tails}
    step = ""

    def late(_number: int, _frame: t.Any) -> None:
        # At once: what stands in the way of an exception would go on.
        print(json.dumps({"error": f"{step}: not done within {request['limit_s']:g} s"}), flush=True)
        os._exit(1)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
    changes = set(request["steps"]) - {"observe", "tails"}
    try:
        with alone(request["node_lock"]) if changes else contextlib.nullcontext():
            for step in request["steps"]:
                answer.update(works[step](request))
    except OSError as exc:
        named = f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc)
        answer["error"] = f"{step}: {named}" if step else named
    print(json.dumps(answer))
