# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The pure half of ``node_state``: what a node should hold, and which changes lead there.

Nothing here touches the node: every function takes plain data and returns plain data.
"""

from __future__ import annotations

import dataclasses
import os.path
import re
import shlex
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import UnitState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.content import content_of, digest, shown

_WHEN: dict[str, t.Any] = {"when": {"type": "bool", "default": True}}
_OWNERSHIP: dict[str, t.Any] = {
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}

#: Where the content of a file comes from. The action reads those of the controller, and sends what they hold.
CONTROLLER_SOURCES = ["src", "template", "program"]
FILE_SOURCES = ["content", "secret_content", "content_base64", "sha256", *CONTROLLER_SOURCES]

ARGUMENT_SPEC: dict[str, t.Any] = {
    "packages": {"type": "list", "elements": "raw", "default": []},
    "directories": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "mode": {"type": "str", "default": "0755"},
            **_OWNERSHIP,
            **_WHEN,
        },
    },
    "archives": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "src": {"type": "str"},
            "controller_src": {"type": "path"},
            "staged_src": {"type": "path"},
            "sha256": {"type": "str", "required": True},
            "strip_components": {"type": "int", "default": 1},
            "timeout_s": {"type": "int", "default": 900},
            "build": {"type": "list", "elements": "str", "default": []},
            "build_timeout_s": {"type": "int", "default": 3600},
            **_WHEN,
        },
    },
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "mutually_exclusive": [FILE_SOURCES],
        "required_one_of": [FILE_SOURCES],
        "required_by": {"template_vars": ["template"]},
        "options": {
            "path": {"type": "path", "required": True},
            "content": {"type": "str"},
            "secret_content": {"type": "str", "no_log": True},
            "content_base64": {"type": "str", "no_log": True},
            "sha256": {"type": "str"},
            "size": {"type": "int"},
            "src": {"type": "str"},
            "template": {"type": "str"},
            "template_vars": {"type": "dict"},
            "program": {"type": "str"},
            "sensitive": {"type": "bool", "default": False},
            "mode": {"type": "str", "default": "0644"},
            "validate": {"type": "list", "elements": "str", "default": []},
            **_OWNERSHIP,
            **_WHEN,
        },
    },
    "links": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "target": {"type": "str", "required": True},
            **_WHEN,
        },
    },
    "absent": {"type": "list", "elements": "raw", "default": []},
    "units": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "stopped"]},
            "enabled": {"type": "bool"},
            "restart_on": {"type": "list", "elements": "path", "default": []},
            **_WHEN,
        },
    },
}

# Left in a directory that was unpacked from an archive: says which one, and what was built in it, so that the next run need
# not look further.
ARCHIVE_MARKER = ".node_state.json"

# What `systemctl show` and `systemctl is-enabled` call a unit that starts with the machine, or that cannot be enabled
# because something else pulls it in.
_ENABLED = frozenset(["enabled", "static", "indirect", "alias", "generated", "transient"])

_ABSENT_KEYS = ("path", "recursive", "unless_target_of", "remedy", "if_empty", "if_unpacked")


@dataclasses.dataclass(frozen=True)
class PathState:
    """What is at a path now.

    ``mount`` names a mount point at or below it, ``archive`` and ``built`` are the digest and the command in our marker.
    """

    kind: str = "absent"  # absent | file | directory | link | other
    mode: str = ""
    uid: int = -1
    gid: int = -1
    content: bytes | None = None
    target: str = ""
    empty: bool = True
    mount: str = ""
    archive: str = ""
    built: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Of a file's content; empty where there is no file, or nobody read it."""
        return "" if self.content is None else digest(self.content)


@dataclasses.dataclass(frozen=True)
class Absent:
    """A path that must not exist. ``unless_target_of`` is a link that protects what it points at, ``remedy`` what helps."""

    path: str
    recursive: bool = False
    unless_target_of: str = ""
    remedy: str = ""
    if_empty: bool = False
    if_unpacked: bool = False


def _bad(message: str, remedy: str) -> ClusterError:
    return ClusterError("bad_input", message, remedy)


def check_path(path: str) -> str:
    """Accept only an absolute path in its normal form: a surprise in a path is how the wrong thing gets deleted."""
    if not path.startswith("/") or "\n" in path or "\0" in path or path.startswith("//"):
        raise _bad(f"{path!r} is not an absolute path.", "Write the whole path, from the root.")
    if os.path.normpath(path) != path.rstrip("/") and path != "/":
        raise _bad(f"{path!r} is not in its normal form.", "Write it without '.', '..' and doubled slashes.")
    return path.rstrip("/") or "/"


def check_mode(mode: str, path: str) -> str:
    """Accept modes as they are written in octal. An unquoted ``0644`` reaches us as the number 420."""
    if not re.fullmatch(r"0[0-7]{3,4}", mode):
        raise _bad(f"The mode {mode!r} of {path} is not octal.", 'Quote it and begin with a zero, for example "0644".')
    return f"{int(mode, 8):04o}"


def parse_absent(items: t.Sequence[t.Any]) -> list[Absent]:
    """Each item is a path, or a mapping with the fields of ``Absent``."""
    wanted = []
    for item in items:
        entry = {"path": item} if isinstance(item, str) else item
        if not isinstance(entry, t.Mapping) or not isinstance(entry.get("path"), str):
            raise _bad(f"An item of absent is {item!r}.", "Give a path, or a mapping with the key path.")
        unknown = sorted(set(entry) - set(_ABSENT_KEYS))
        if unknown:
            raise _bad(f"An item of absent has the unknown key {unknown[0]!r}.", f"Known: {', '.join(_ABSENT_KEYS)}.")
        path = check_path(entry["path"])
        flags: dict[str, t.Any] = {key: entry.get(key, False) for key in ("recursive", "if_empty", "if_unpacked")}
        wrong = [key for key, value in flags.items() if not isinstance(value, bool)]
        if wrong:
            raise _bad(f"{wrong[0]} of {path} is not a boolean.", "Write true or false.")
        if path == "/" or (flags["recursive"] and path.count("/") < 2):
            raise _bad(f"{path} will not be removed.", "Only paths below a top-level directory can be removed.")
        words: dict[str, t.Any] = {key: entry.get(key) or "" for key in ("unless_target_of", "remedy")}
        if not all(isinstance(value, str) for value in words.values()):
            raise _bad(f"unless_target_of and remedy of {path} are words.", "Give the path of a link, and a sentence.")
        wanted.append(Absent(path=path, **words, **flags))
    return wanted


def package_names(items: t.Sequence[t.Any], manager: str) -> list[str]:
    """The names for one package system, without doubles.

    An item is a name, or a mapping with ``name``, or with ``dpkg`` and ``rpm`` where the systems differ. Each of these is
    an item or a list of items in turn.
    """
    return list(dict.fromkeys(name for item in items for name in _names(item, manager)))


def _names(item: t.Any, manager: str) -> list[str]:
    if isinstance(item, str):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9+._()-]*", item):
            raise _bad(f"{item!r} is not the name of a package.", "Give its bare name, without a version.")
        return [item]
    known = isinstance(item, t.Mapping) and item and (set(item) == {"name"} or set(item) <= {"dpkg", "rpm"})
    if not known:
        raise _bad(
            f"An item of packages is {item!r}.", "Give a name, or a mapping with name, or with the keys dpkg and rpm."
        )
    # The names for other systems are checked, too.
    named = {key: package_names(one if isinstance(one, (list, tuple)) else [one], manager) for key, one in item.items()}
    return named.get("name") or named.get(manager) or []


def check_request(params: t.Mapping[str, t.Any]) -> list[Absent]:
    """Check everything that can be wrong in a request before the node is touched; returns the parsed ``absent``."""
    absent = parse_absent(params["absent"])
    package_names(params["packages"], "")
    seen: dict[str, str] = {entry.path: "absent" for entry in absent}
    for kind in ("directories", "archives", "files", "links"):
        for entry in params[kind]:
            path = entry["path"] = check_path(entry["path"])
            if "mode" in entry:
                entry["mode"] = check_mode(entry["mode"], path)
            if path in seen:
                raise _bad(f"{path} is listed under {seen[path]} and {kind}.", "List every path once.")
            seen[path] = kind
    for entry in params["files"]:
        for source in CONTROLLER_SOURCES:
            if entry.get(source) is not None:
                raise _bad(
                    f"The `{source}` of {entry['path']} is on the controller.",
                    "Use the module in a task, through its action.",
                )
        if entry["validate"] and not any("%s" in word for word in entry["validate"]):
            raise _bad(f"validate of {entry['path']} has no %s.", "Write %s where the name of the file belongs.")
    for entry in params["archives"]:
        entry["sha256"] = entry["sha256"].lower()
        if not re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]):
            raise _bad(f"The sha256 of {entry['path']} is not 64 hexadecimal digits.", "Copy it from `sha256sum`.")
        if bool(entry["src"]) == bool(entry["controller_src"]):
            raise _bad(f"{entry['path']} needs one of src and controller_src.", "Say where the archive comes from.")
    return absent


def _attributes(
    entry: t.Mapping[str, t.Any], have: PathState, uid: int | None, gid: int | None
) -> tuple[list[str], str, str]:
    """Which of mode, owner and group differ: words for people, and the two sides of a diff."""
    words, before, after = [], "", ""
    pairs: list[tuple[str, t.Any, t.Any]] = [("mode", have.mode, entry["mode"])]
    # An owner that a package still has to create is None: it cannot be compared yet.
    if uid is not None:
        pairs.append(("owner", have.uid, uid))
    if gid is not None:
        pairs.append(("group", have.gid, gid))
    for name, old, new in pairs:
        if old != new:
            words.append(f"{name} {old} to {new}")
            before += f"{name}: {old}\n"
            after += f"{name}: {new}\n"
    return words, before, after


def plan_directory(entry: t.Mapping[str, t.Any], have: PathState, uid: int | None, gid: int | None) -> Change | None:
    """A directory with its mode and owner; what it holds is never looked at."""
    path = entry["path"]
    if have.kind == "absent":
        return Change("directory", path, "create", "", f"mode: {entry['mode']}\n", entry)
    if have.kind != "directory":
        raise ClusterError("in_the_way", f"{path} should be a directory but is a {have.kind}.", "Move it away first.")
    words, before, after = _attributes(entry, have, uid, gid)
    return Change("directory", path, ", ".join(words), before, after, entry) if words else None


def plan_file(entry: t.Mapping[str, t.Any], have: PathState, uid: int | None, gid: int | None) -> Change | None:
    """A file's content, mode and owner. A secret shows in a diff only as changed."""
    path, content = entry["path"], content_of(entry)
    if have.kind not in ("absent", "file"):
        raise ClusterError(
            "in_the_way",
            f"{path} should be a file but is a {have.kind}.",
            "Move it away first, or name the file that a link points at.",
        )
    if have.sha256 != content.sha256:
        before = "" if have.content is None else "(hidden)\n" if content.secret else shown(have.content)
        return Change("file", path, "create" if have.kind == "absent" else "content", before, content.shown, entry)
    words, before, after = _attributes(entry, have, uid, gid)
    return Change("file", path, ", ".join(words), before, after, entry) if words else None


def plan_link(entry: t.Mapping[str, t.Any], have: PathState) -> Change | None:
    """A symbolic link; anything that is not one is never replaced."""
    path, target = entry["path"], entry["target"]
    if have.kind == "absent":
        return Change("link", path, "create", "", f"{target}\n", entry)
    if have.kind != "link":
        raise ClusterError("in_the_way", f"{path} should be a link but is a {have.kind}.", "Move it away first.")
    if have.target == target:
        return None
    return Change("link", path, f"point at {target}", f"{have.target}\n", f"{target}\n", entry)


def plan_archive(entry: t.Mapping[str, t.Any], have: PathState) -> Change | None:
    """A directory made from an archive. One that we did not make, or made from another archive, is left alone."""
    path = entry["path"]
    if have.kind == "absent":
        return Change("archive", path, "unpack", "", f"sha256: {entry['sha256']}\n", entry)
    if have.archive == entry["sha256"]:
        return None
    made = f"was unpacked from the archive {have.archive}" if have.archive else "was not made by this module"
    raise ClusterError(
        "in_the_way", f"{path} exists and {made}.", "Remove it, or unpack this archive into another directory."
    )


def plan_build(entry: t.Mapping[str, t.Any], have: PathState) -> Change | None:
    """The command that is still to be run in an unpacked archive, because it never was or had other words."""
    wanted = tuple(entry["build"])
    if not wanted or wanted == have.built:
        return None
    before, after = (f"{shlex.join(words)}\n" if words else "" for words in (have.built, wanted))
    return Change("build", entry["path"], f"run {wanted[0]}", before, after, entry)


def plan_absent(entry: Absent, have: PathState, real: str, protected: str = "") -> Change | None:
    """The removal of one path. ``real`` is the same without links above it, as is ``protected``, what its link points at."""
    path = entry.path
    if have.kind == "absent" or (entry.if_unpacked and not have.archive):
        return None
    if have.mount:
        raise ClusterError("in_use", f"{path} will not be removed: {have.mount} is mounted.", "Unmount it first.")
    if protected and (protected == real or protected.startswith(real + "/")):
        raise ClusterError(
            "in_use",
            f"{path} will not be removed: {entry.unless_target_of} points at it.",
            entry.remedy or f"Point {entry.unless_target_of} elsewhere first.",
        )
    if have.kind == "directory" and not have.empty and not entry.recursive:
        if entry.if_empty:
            return None
        raise ClusterError(
            "not_empty", f"The directory {path} is not empty.", "Set recursive for it if all that it holds may go."
        )
    return Change("absent", path, f"remove {have.kind}", f"{have.kind}\n", "", entry)


def _unit_change(unit: t.Mapping[str, t.Any], what: str, before: str, after: str) -> Change:
    return Change("unit", unit["name"], what, f"{before}\n", f"{after}\n", unit)


def plan_units_down(
    units: t.Sequence[t.Mapping[str, t.Any]], states: t.Mapping[str, UnitState], running: bool
) -> list[Change]:
    """What must stop or lose its place at boot; planned apart, because it comes before files are removed."""
    changes = []
    for unit in units:
        have = states[unit["name"]]
        if running and unit["state"] == "stopped" and have.active not in ("inactive", "failed"):
            changes.append(_unit_change(unit, "stop", have.active, "inactive"))
        if unit["enabled"] is False and have.file_state in ("enabled", "enabled-runtime"):
            changes.append(_unit_change(unit, "disable", have.file_state, "disabled"))
    return changes


def plan_units_up(
    units: t.Sequence[t.Mapping[str, t.Any]],
    states: t.Mapping[str, UnitState],
    changed_paths: t.AbstractSet[str],
    *,
    running: bool,
    may_appear: bool,
) -> list[Change]:
    """What must be enabled, started or restarted.

    ``running``: systemd is up; in an image under construction units are only enabled. ``may_appear``: a unit that is
    not known yet may come with a package or file that check mode did not install.
    """
    changes = []
    for unit in units:
        have, name = states[unit["name"]], unit["name"]
        wants_up = unit["state"] == "started" or unit["enabled"] is True
        if not wants_up:
            continue
        if not have.known and not may_appear:
            raise ClusterError("unit_missing", f"There is no unit {name}.", "List its package or its file, too.")
        if have.load == "masked" or have.file_state in ("masked", "masked-runtime"):
            raise ClusterError("unit_masked", f"The unit {name} is masked.", f"Run `systemctl unmask {name}`.")
        if unit["enabled"] is True and have.file_state not in _ENABLED:
            changes.append(_unit_change(unit, "enable", have.file_state or "unknown", "enabled"))
        if unit["state"] != "started" or not running:
            continue
        if have.active not in ("active", "reloading", "activating"):
            changes.append(_unit_change(unit, "start", have.active, "active"))
        elif changed_paths & set(unit["restart_on"]):
            changes.append(_unit_change(unit, "restart", have.active, "active"))
    return changes


def installed_debs(output: str) -> set[str]:
    """Names that are installed or provided: `dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Provides}\\n'`."""
    names: set[str] = set()
    for line in output.splitlines():
        status, _sep, rest = line.partition("|")
        package, _sep, provides = rest.partition("|")
        # The second letter is the state now; the first is only what somebody once wanted.
        if len(status) > 1 and status[1] == "i":
            names.add(package)
            names.update(part.strip().split(" ")[0].split(":")[0] for part in provides.split(",") if part.strip())
    return names


#: A request that asks for nothing, for those who call NodeState from Python.
NOTHING: dict[str, t.Any] = {
    key: [] for key in ("packages", "directories", "archives", "files", "links", "absent", "units")
}


def directory_request(path: str, mode: str = "0755", owner: str = "root", group: str = "root") -> dict[str, t.Any]:
    """An item of ``directories`` with every suboption, as the module would fill it in."""
    return {"path": path, "mode": mode, "owner": owner, "group": group}


def file_request(
    path: str, content: str, mode: str = "0644", owner: str = "root", group: str = "root"
) -> dict[str, t.Any]:
    """An item of ``files`` with every suboption, as the module would fill it in."""
    return {
        "path": path,
        "content": content,
        "secret_content": None,
        "sensitive": False,
        "mode": mode,
        "owner": owner,
        "group": group,
        "validate": [],
    }


__all__ = [
    "ARCHIVE_MARKER",
    "ARGUMENT_SPEC",
    "NOTHING",
    "Absent",
    "Change",
    "PathState",
    "check_mode",
    "check_path",
    "check_request",
    "directory_request",
    "file_request",
    "installed_debs",
    "package_names",
    "parse_absent",
    "plan_absent",
    "plan_archive",
    "plan_build",
    "plan_directory",
    "plan_file",
    "plan_link",
    "plan_units_down",
    "plan_units_up",
]
