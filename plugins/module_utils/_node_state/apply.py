# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The half of ``node_state`` that touches the node: looks at it and carries out planned changes."""

from __future__ import annotations

import contextlib
import glob
import grp
import hashlib
import json
import os
import pwd
import shutil
import stat
import tempfile
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change, Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import MountEntry, mount_below, read_mounts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.sources import open_source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import (
    UnitState,
    has_unit_file,
    is_running,
    needs_daemon_reload,
    read_units,
    systemctl,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.content import content_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.plan import (
    ARCHIVE_MARKER,
    Absent,
    PathState,
    check_request,
    directory_request,
    installed_debs,
    package_names,
    plan_absent,
    plan_archive,
    plan_build,
    plan_directory,
    plan_file,
    plan_link,
    plan_units_down,
    plan_units_up,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import wanted_items

_CHUNK = 1 << 20
#: How long systemd may take to know a unit file that was just written.
_SETTLE_S = 10.0


def look(
    path: str, mounts: t.Iterable[MountEntry] = (), *, content: bool = False, leaving: t.Collection[str] = ()
) -> PathState:
    """What is at ``path`` now, without following a link. A directory counts as empty when all in it is ``leaving``."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return PathState()
    if stat.S_ISLNK(found.st_mode):
        return PathState("link", target=os.readlink(path))
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    if stat.S_ISREG(found.st_mode):
        data = None
        if content:
            with open(path, "rb") as handle:
                data = handle.read()
        return PathState("file", mode, found.st_uid, found.st_gid, data, mount=mount_below(path, mounts))
    if stat.S_ISDIR(found.st_mode):
        with os.scandir(path) as entries:
            empty = all(entry.path in leaving for entry in entries)
        archive, built = _marker(path)
        return PathState(
            "directory",
            mode,
            found.st_uid,
            found.st_gid,
            empty=empty,
            mount=mount_below(path, mounts),
            archive=archive,
            built=built,
        )
    return PathState("other", mode, found.st_uid, found.st_gid)


def _marker(path: str) -> tuple[str, tuple[str, ...]]:
    """The digest of the archive that was unpacked here, and the command that was run in it."""
    try:
        with open(os.path.join(path, ARCHIVE_MARKER), encoding="utf-8") as handle:
            marker = json.load(handle)
        return str(marker["sha256"]), tuple(marker.get("build", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", ()


def _mark(path: str, **marker: t.Any) -> None:
    with open(os.path.join(path, ARCHIVE_MARKER), "w", encoding="utf-8") as stream:
        json.dump(marker, stream)


def _identity(name: str, kind: str, tolerate: bool) -> int | None:
    """The number of a user or group; None when it is missing and a package may still bring it."""
    if name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        if tolerate:
            return None
        raise ClusterError(
            f"{kind}_missing", f"There is no {kind} {name} on this node.", f"Create the {kind} first, or name another."
        ) from None


def missing_packages(items: t.Sequence[t.Any], host: Host) -> tuple[list[str], str]:
    """Which packages are not installed, and which package system said so (``dpkg``, ``rpm`` or an empty string)."""
    if not items:
        return [], ""
    if shutil.which("dpkg-query"):
        names = package_names(items, "dpkg")
        form = "${db:Status-Abbrev}|${Package}|${Provides}\\n"
        _rc, out, _err = host.run_command(["dpkg-query", "-W", "-f", form, "--", *names])
        have = installed_debs(out)
        if names and set(names) - have:
            # A virtual package has no entry of its own: look for one that provides it.
            _rc, out, _err = host.run_command(["dpkg-query", "-W", "-f", form])
            have = installed_debs(out)
        return [name for name in names if name not in have], "dpkg"
    if shutil.which("rpm"):
        names = package_names(items, "rpm")
        return [n for n in names if host.run_command(["rpm", "-q", "--whatprovides", "--", n])[0] != 0], "rpm"
    raise ClusterError(
        "no_package_manager",
        "This node has neither dpkg nor rpm, so its packages cannot be looked up.",
        "Install them another way and leave packages empty.",
    )


def missing_parents(paths: t.Iterable[str], listed: t.Collection[str] = ()) -> list[dict[str, t.Any]]:
    """The directories that files at ``paths`` need and that nobody made or lists, as items of ``directories``."""
    parents = sorted({os.path.dirname(path) for path in paths} - set(listed))
    return [directory_request(parent) for parent in parents if not os.path.isdir(parent)]


class NodeState:
    """Compares a node with what it should hold and makes the difference go away."""

    def __init__(self, params: dict[str, t.Any], host: Host) -> None:
        self.params = wanted_items(params)
        self.host = host
        self.absent = check_request(self.params)
        self.running = is_running()
        self.missing: list[str] = []
        self.changes = Changes()

    # -- reading ---------------------------------------------------------------------------------------------------

    def needs(self) -> dict[str, t.Any]:
        """What only the controller can bring before anything is planned: packages, and archives that lie there."""
        self.missing, manager = missing_packages(self.params["packages"], self.host)
        archives = [
            entry["path"]
            for entry in self.params["archives"]
            if entry["controller_src"] and not entry["staged_src"] and plan_archive(entry, look(entry["path"]))
        ]
        return {"packages": self.missing, "package_manager": manager, "archives": archives, "files": []}

    def _lacking(self, paths: t.Iterable[Change], *, check: bool) -> list[int]:
        """The numbers of the files whose bytes the controller keeps, and that change or that a build may replace."""
        build = not check and any(change.kind == "build" for change in paths)
        changing = {change.name for change in paths if change.kind == "file" and change.what in ("create", "content")}
        return [
            number
            for number, entry in enumerate(self.params["files"])
            if content_of(entry).is_lacking(check=check) and (build or entry["path"] in changing)
        ]

    def _units(self) -> dict[str, UnitState]:
        return read_units(self.host, [unit["name"] for unit in self.params["units"]])

    def _units_after(self, touched: t.Collection[str]) -> dict[str, UnitState]:
        """The units, now that files changed. A busy systemd may not know a new file at once after a reload."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            states = self._units()
            unread = [name for name, state in states.items() if not state.known and has_unit_file(name, touched)]
            if not unread or time.monotonic() > deadline:
                return states
            time.sleep(0.5)

    def plan_paths(self) -> list[Change]:
        """The changes to absent paths, directories, archives, what is built in them, files and links, in this order."""
        mounts = read_mounts()
        tolerate = bool(self.missing)
        plan: list[Change | None] = []
        leaving: set[str] = set()
        for absent in self.absent:
            link = absent.unless_target_of
            protected = os.path.realpath(link) if link and os.path.islink(link) else ""
            # Mount points, and what a link points at, are named without the links that lie above them.
            real = os.path.join(os.path.realpath(os.path.dirname(absent.path)), os.path.basename(absent.path))
            change = plan_absent(absent, look(real, mounts, leaving=leaving), real, protected)
            plan.append(change)
            if change:
                leaving.add(real)
        for entry in self.params["directories"]:
            have = look(entry["path"])
            if have.kind == "link" and os.path.isdir(entry["path"]):
                have = look(os.path.realpath(entry["path"]))
            plan.append(plan_directory(entry, have, *self._owner(entry, tolerate)))
        archives = [(entry, look(entry["path"])) for entry in self.params["archives"]]
        plan += [plan_archive(entry, have) for entry, have in archives]
        plan += [plan_build(entry, have) for entry, have in archives]
        for entry in self.params["files"]:
            plan.append(plan_file(entry, look(entry["path"], content=True), *self._owner(entry, tolerate)))
        plan += [plan_link(entry, look(entry["path"])) for entry in self.params["links"]]
        return [change for change in plan if change is not None]

    @staticmethod
    def _owner(entry: dict[str, t.Any], tolerate: bool) -> tuple[int | None, int | None]:
        return _identity(entry["owner"], "user", tolerate), _identity(entry["group"], "group", tolerate)

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self, *, check: bool) -> dict[str, t.Any]:
        """Plan and, unless ``check``, apply. Everything is planned before the first change is made."""
        needs = self.needs()
        if not check and (needs["packages"] or needs["archives"]):
            return {"changed": False, "needs": needs}
        units, states = self.params["units"], self._units()
        down = plan_units_down(units, states, self.running)
        paths = self.plan_paths()
        lacking = self._lacking(paths, check=check)
        if lacking:
            return {"changed": False, "needs": {**needs, "packages": [], "archives": [], "files": lacking}}
        for name in needs["packages"]:
            self.changes.note("package", name, "install", "", f"{name}\n")
        touched = {change.name for change in paths}
        self._apply(down, check)
        self._apply(paths, check)
        if not check and any(change.kind == "build" for change in paths):
            # What was built may have replaced files that were right before.
            replaced = self.plan_paths()
            touched.update(change.name for change in replaced)
            self._apply(replaced, check)
        if self.running and needs_daemon_reload(touched, states.values()):
            self._apply([Change("daemon-reload", "systemd", "read unit files again")], check)
        if not check and touched:
            states = self._units_after(touched)
        may_appear = check and bool(self.changes)
        self._apply(plan_units_up(units, states, touched, running=self.running, may_appear=may_appear), check)
        waiting = [] if self.running else [unit["name"] for unit in units if unit["state"] == "started"]
        return {**self.changes.result(), "units_not_started": waiting}

    def _apply(self, changes: t.Iterable[Change], check: bool) -> None:
        for change in changes:
            if not check:
                getattr(self, "_do_" + change.kind.replace("-", "_"))(change)
            self.changes.add(change)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _do_directory(self, change: Change) -> None:
        entry = change.want
        if not os.path.isdir(entry["path"]):
            os.makedirs(os.path.dirname(entry["path"]), mode=0o755, exist_ok=True)
            os.mkdir(entry["path"], 0o700)
        self._own(entry["path"], entry)

    def _own(self, path: str | int, entry: dict[str, t.Any]) -> None:
        uid, gid = self._owner(entry, tolerate=False)
        os.chown(path, t.cast(int, uid), t.cast(int, gid))
        os.chmod(path, int(entry["mode"], 8))

    def _do_file(self, change: Change) -> None:
        entry, path = change.want, change.name
        if change.what not in ("create", "content"):
            # Never what a link leads to that somebody put there since.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                self._own(handle, entry)
            finally:
                os.close(handle)
            return
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            raise ClusterError("no_directory", f"{parent} does not exist.", f"List it under directories for {path}.")
        handle, temporary = tempfile.mkstemp(prefix=".node_state-", dir=parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(self._bytes(entry))
            self._own(temporary, entry)
            if entry["validate"]:
                self._validate(entry, temporary)
            # Not AnsibleModule.atomic_move: that gives a new file mode 0644, whatever the mode of its source.
            os.replace(temporary, path)
            self.host.set_default_selinux_context(path, False)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    @staticmethod
    def _bytes(entry: dict[str, t.Any]) -> bytes:
        data = content_of(entry).data
        if data is None:
            raise ClusterError(
                "changed_meanwhile", f"{entry['path']} changed while the module ran.", "Run the task again."
            )
        return data

    def _validate(self, entry: dict[str, t.Any], temporary: str) -> None:
        argv = [word.replace("%s", temporary) for word in entry["validate"]]
        rc, out, err = self.host.run_command(argv)
        if rc != 0:
            said = "(hidden)" if entry["sensitive"] else (err or out).strip()[:2000]
            raise ClusterError(
                "invalid_content",
                f"{argv[0]} refused the new content of {entry['path']}: {said}",
                "The old content is still in place; correct the new one.",
            )

    def _do_link(self, change: Change) -> None:
        temporary = f"{change.name}.node_state-{os.getpid()}"
        os.symlink(change.want["target"], temporary)
        try:
            os.replace(temporary, change.name)
        except OSError:
            os.unlink(temporary)
            raise

    def _do_absent(self, change: Change) -> None:
        entry: Absent = change.want
        if os.path.isdir(entry.path) and not os.path.islink(entry.path):
            if entry.recursive:
                shutil.rmtree(entry.path)
            else:
                os.rmdir(entry.path)
        else:
            os.unlink(entry.path)

    def _do_archive(self, change: Change) -> None:
        entry, path = change.want, change.name
        parent, prefix = os.path.dirname(path), f".{os.path.basename(path)}.node_state-"
        os.makedirs(parent, mode=0o755, exist_ok=True)
        # What a killed run left behind.
        for leftover in glob.glob(os.path.join(glob.escape(parent), glob.escape(prefix) + "*")):
            shutil.rmtree(leftover)
        work = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            packed, tree = os.path.join(work, "archive"), os.path.join(work, "tree")
            fetch_archive(entry["staged_src"] or entry["src"], packed, entry["sha256"], entry["timeout_s"])
            os.mkdir(tree, 0o755)
            strip = f"--strip-components={entry['strip_components']}"
            rc, _out, err = self.host.run_command(["tar", "-x", "-f", packed, "-C", tree, "--no-same-owner", strip])
            if rc != 0:
                raise ClusterError(
                    "unpack_failed", f"tar could not unpack it: {err.strip()[:2000]}", "See the message."
                )
            if not os.listdir(tree):
                raise ClusterError(
                    "unpack_failed", f"Nothing was left to put at {path}.", "Lower strip_components of the archive."
                )
            _mark(tree, sha256=entry["sha256"])
            os.chmod(tree, 0o755)  # noqa: S103 - programs for everybody
            os.rename(tree, path)
        finally:
            shutil.rmtree(work)

    def _do_build(self, change: Change) -> None:
        entry, path = change.want, change.name
        rc, out, err = self.host.run_command(["timeout", str(entry["build_timeout_s"]), *entry["build"]], cwd=path)
        if rc == 124:
            raise ClusterError(
                "timeout",
                f"{entry['build'][0]} in {path} took longer than {entry['build_timeout_s']} s and was stopped.",
                "Raise build_timeout_s.",
            )
        if rc != 0:
            said = "\n".join((out + err).strip().splitlines()[-20:])
            raise ClusterError(
                "build_failed",
                f"{entry['build'][0]} in {path} failed with {rc}: {said}",
                "See what it said, run again.",
            )
        # Last, so that a build that was interrupted is done again.
        _mark(path, sha256=entry["sha256"], build=entry["build"])

    def _do_daemon_reload(self, _change: Change) -> None:
        systemctl(self.host, "daemon-reload")

    def _do_unit(self, change: Change) -> None:
        systemctl(self.host, change.what, change.name)


def fetch_archive(source: str, target: str, sha256: str, timeout_s: int) -> None:
    """Copy or download ``source`` to ``target``; it is checked before anything reads it."""
    digest, deadline = hashlib.sha256(), time.monotonic() + timeout_s
    # A mirror's address may carry a password: errors show only what follows the last slash.
    name = source.rsplit("/", 1)[-1].split("?", 1)[0]
    try:
        with open_source(source) as stream, open(target, "wb") as out:
            for chunk in iter(lambda: stream.read(_CHUNK), b""):
                digest.update(chunk)
                out.write(chunk)
                if time.monotonic() > deadline:
                    raise ClusterError(
                        "timeout",
                        f"Fetching {name} took longer than {timeout_s} s.",
                        "Use a nearer mirror or raise timeout_s.",
                    )
    except OSError as exc:
        code = getattr(exc, "code", None)
        if code:
            raise ClusterError("download_failed", f"{name}: the server said {code}.", "Check its address.") from exc
        reason = getattr(exc, "reason", None) or exc.strerror or type(exc).__name__
        raise ClusterError("download_failed", f"{name} could not be read: {reason}.", "Check its address.") from exc
    if digest.hexdigest() != sha256:
        raise ClusterError(
            "checksum",
            f"{name} has the sha256 {digest.hexdigest()}, but {sha256} was expected. Nothing was unpacked.",
            "Fetch it again, or correct the sha256 after checking it with its vendor.",
        )


__all__ = ["NodeState", "fetch_archive", "look", "missing_packages", "missing_parents"]
