# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which changes lead from what a node holds to what it should hold.

Nothing here touches the node: every function takes plain data and returns plain data.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution, is_built_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import UnitState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.content import digest, shown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    Absent,
    Archive,
    Directory,
    File,
    Link,
    Unit,
)

# What `systemctl show` and `systemctl is-enabled` call a unit that starts with the machine, or that cannot be enabled
# because something else pulls it in.
_ENABLED = frozenset(["enabled", "static", "indirect", "alias", "generated", "transient"])


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


def _attributes(
    item: Directory | File, have: PathState, uid: int | None, gid: int | None
) -> tuple[list[str], str, str]:
    """Which of mode, owner and group differ: words for people, and the two sides of a diff."""
    words, before, after = [], "", ""
    pairs: list[tuple[str, t.Any, t.Any]] = [("mode", have.mode, item.mode)]
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


def plan_directory(item: Directory, have: PathState, uid: int | None, gid: int | None) -> Change | None:
    """A directory with its mode and owner; what it holds is never looked at."""
    path = item.path
    if have.kind == "absent":
        return Change("directory", path, "create", "", f"mode: {item.mode}\n", item)
    if have.kind != "directory":
        raise ClusterError("in_the_way", f"{path} should be a directory but is a {have.kind}.", "Move it away first.")
    words, before, after = _attributes(item, have, uid, gid)
    return Change("directory", path, ", ".join(words), before, after, item) if words else None


def plan_file(item: File, have: PathState, uid: int | None, gid: int | None) -> Change | None:
    """A file's content, mode and owner. A secret shows in a diff only as changed."""
    path, content = item.path, item.content
    if have.kind not in ("absent", "file"):
        raise ClusterError(
            "in_the_way",
            f"{path} should be a file but is a {have.kind}.",
            "Move it away first, or name the file that a link points at.",
        )
    if have.sha256 != content.sha256:
        before = "" if have.content is None else "(hidden)\n" if content.secret else shown(have.content)
        return Change("file", path, "create" if have.kind == "absent" else "content", before, content.shown, item)
    words, before, after = _attributes(item, have, uid, gid)
    return Change("file", path, ", ".join(words), before, after, item) if words else None


def _is_foreign(ours: str, have: PathState) -> bool:
    """Whether somebody else wrote the file. An empty one is nobody's."""
    text = (have.content or b"").decode("utf-8", "replace")
    return bool(ours and text.strip()) and not re.search(ours, text)


def refuse_foreign(files: t.Iterable[tuple[File, PathState]]) -> None:
    """Raise ClusterError (``foreign_files``) where files of somebody else would be replaced by others."""
    found = [item for item, have in files if have.sha256 != item.content.sha256 and _is_foreign(item.ours, have)]
    if found:
        paths = [item.path for item in found]
        raise ClusterError(
            "foreign_files",
            f"{' and '.join(paths)} {'was' if len(paths) == 1 else 'were'} not written by this collection. Nothing was changed.",
            found[0].remedy or "Name another path, or move it away.",
            files=paths,
        )


def plan_link(item: Link, have: PathState) -> Change | None:
    """A symbolic link; anything that is not one is never replaced."""
    path, target = item.path, item.target
    if have.kind == "absent":
        return Change("link", path, "create", "", f"{target}\n", item)
    if have.kind != "link":
        raise ClusterError("in_the_way", f"{path} should be a link but is a {have.kind}.", "Move it away first.")
    if have.target == target:
        return None
    return Change("link", path, f"point at {target}", f"{have.target}\n", f"{target}\n", item)


def plan_archive(item: Archive, have: PathState, node: Distribution) -> Change | None:
    """A directory made from an archive. One that we did not make, or made from another archive, is left alone."""
    path = item.path
    if have.kind == "absent":
        if not is_built_for(item.built_for, node):
            raise ClusterError(
                "wrong_release",
                f"The archive for {path} is built for {item.built_for}, and this node is {node.name}. Nothing was fetched.",
                "Name the archive that is built for this node's release, and its sha256.",
            )
        return Change("archive", path, "unpack", "", f"sha256: {item.sha256}\n", item)
    if have.archive == item.sha256:
        return None
    made = f"was unpacked from the archive {have.archive}" if have.archive else "was not made by this module"
    raise ClusterError(
        "in_the_way", f"{path} exists and {made}.", "Remove it, or unpack this archive into another directory."
    )


def plan_build(item: Archive, have: PathState) -> Change | None:
    """The command that is still to be run in an unpacked archive, because it never was or had other words."""
    wanted = item.build
    if not wanted or wanted == have.built:
        return None
    before, after = (f"{shlex.join(words)}\n" if words else "" for words in (have.built, wanted))
    return Change("build", item.path, f"run {wanted[0]}", before, after, item)


def plan_absent(item: Absent, have: PathState, real: str, protected: str = "") -> Change | None:
    """The removal of one path. ``real`` is the same without links above it, as is ``protected``, what its link points at."""
    path = item.path
    if have.kind == "absent" or (item.if_unpacked and not have.archive):
        return None
    if item.ours and (have.kind != "file" or _is_foreign(item.ours, have)):
        return None
    if have.mount:
        raise ClusterError("in_use", f"{path} will not be removed: {have.mount} is mounted.", "Unmount it first.")
    if protected and (protected == real or protected.startswith(real + "/")):
        raise ClusterError(
            "in_use",
            f"{path} will not be removed: {item.unless_target_of} points at it.",
            item.remedy or f"Point {item.unless_target_of} elsewhere first.",
        )
    if have.kind == "directory" and not have.empty and not item.recursive:
        if item.if_empty:
            return None
        raise ClusterError(
            "not_empty", f"The directory {path} is not empty.", "Set recursive for it if all that it holds may go."
        )
    return Change("absent", path, f"remove {have.kind}", f"{have.kind}\n", "", item)


def _unit_change(unit: Unit, what: str, before: str, after: str) -> Change:
    return Change("unit", unit.name, what, f"{before}\n", f"{after}\n", unit)


def plan_units_down(units: t.Sequence[Unit], states: t.Mapping[str, UnitState], running: bool) -> list[Change]:
    """What must stop or lose its place at boot; planned apart, because it comes before files are removed."""
    changes = []
    for unit in units:
        have = states[unit.name]
        if running and unit.state == "stopped" and have.active not in ("inactive", "failed"):
            changes.append(_unit_change(unit, "stop", have.active, "inactive"))
        if unit.enabled is False and have.file_state in ("enabled", "enabled-runtime"):
            changes.append(_unit_change(unit, "disable", have.file_state, "disabled"))
    return changes


def plan_units_up(
    units: t.Sequence[Unit],
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
        have, name = states[unit.name], unit.name
        wants_up = unit.state == "started" or unit.enabled is True
        if not wants_up:
            continue
        if not have.known and not may_appear:
            raise ClusterError("unit_missing", f"There is no unit {name}.", "List its package or its file, too.")
        if have.load == "masked" or have.file_state in ("masked", "masked-runtime"):
            raise ClusterError("unit_masked", f"The unit {name} is masked.", f"Run `systemctl unmask {name}`.")
        if unit.enabled is True and have.file_state not in _ENABLED:
            changes.append(_unit_change(unit, "enable", have.file_state or "unknown", "enabled"))
        if unit.state != "started" or not running:
            continue
        if have.active not in ("active", "reloading", "activating"):
            changes.append(_unit_change(unit, "start", have.active, "active"))
        elif changed_paths & set(unit.restart_on):
            changes.append(_unit_change(unit, "restart", have.active, "active"))
    return changes


__all__ = [
    "PathState",
    "plan_absent",
    "plan_archive",
    "plan_build",
    "plan_directory",
    "plan_file",
    "plan_link",
    "plan_units_down",
    "plan_units_up",
    "refuse_foreign",
]
