# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Owner, group and mode of files and directories that root writes for somebody else, set by descriptor and through no link.

Ids are looked up on one node and hold for all: nodes that share a file system must agree about them.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import stat
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import parent_of

#: A mode as it has to be written. What YAML makes of 0640 without quotes, 416, has no zero in front.
MODE = re.compile(r"0[0-7]{3}")
_FILE_MODE = 0o644
_READABLE = 0o755
_LOOKS = 16  # at a time
#: As an id it means "as it is" to chown(2), and nothing is above it.
_NO_ID = 2**32 - 1
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Ownership:
    """What is asked for; None and "" leave what the system and this collection give: root, 0644, and at least 0755.

    ``owner`` and ``group`` are the names (or numbers) that ``uid`` and ``gid`` were looked up by.
    """

    owner: str = ""
    group: str = ""
    uid: int | None = None
    gid: int | None = None
    mode: int | None = None
    directory_mode: int | None = None

    @property
    def any(self) -> bool:
        return self != Ownership()

    def check_here(self, host: str) -> None:
        """Raise ClusterError (``bad_input``) where this node gives the names another meaning than the one that planned."""
        for what, name, here, planned in self._ids():
            if here != planned:
                raise ClusterError(
                    "bad_input",
                    f"On {host} the {what} {name!r} is {here}, on the node that planned it is {planned}.",
                    f"Give the {what} one id on all nodes, or write the number itself.",
                )

    def unlike_here(self) -> str:
        """What of it this node does not know, or by another id, as the end of a sentence; "" where it agrees."""
        try:
            for what, name, here, planned in self._ids():
                if here != planned:
                    return f"has {here} for the {what} {name!r}, not {planned}"
        except ClusterError as error:
            return str(error.details["unlike"])
        return ""

    def _ids(self) -> t.Iterator[tuple[str, str, int | None, int | None]]:
        """What it is, its name, its id on this node, and that on the node that planned."""
        yield "user", self.owner, _uid(self.owner), self.uid
        yield "group", self.group, _gid(self.group), self.gid

    def give_to_file(self, descriptor: int) -> None:
        """Before the file gets its final name."""
        self._give(descriptor)
        os.fchmod(descriptor, _FILE_MODE if self.mode is None else self.mode)

    def give_to_directory(self, descriptor: int) -> None:
        """After it was made. Keeps an inherited set-group-ID."""
        self._give(descriptor)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.fchmod(descriptor, mode | _READABLE if self.directory_mode is None else self._directory_mode(mode))

    def differs(self, found: os.stat_result) -> bool:
        """Whether a file or a directory has something else than what is asked for. Other kinds are never ours."""
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            wanted = mode if self.directory_mode is None else self._directory_mode(mode)
        # Who may write here can link a file of anybody to a name of ours: such a file is given to nobody.
        elif stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            wanted = mode if self.mode is None else self.mode
        else:
            return False
        return (found.st_uid, found.st_gid, mode) != (
            found.st_uid if self.uid is None else self.uid,
            found.st_gid if self.gid is None else self.gid,
            wanted,
        )

    def _give(self, descriptor: int) -> None:
        if self.uid is not None or self.gid is not None:
            os.fchown(descriptor, -1 if self.uid is None else self.uid, -1 if self.gid is None else self.gid)

    def _directory_mode(self, mode: int) -> int:
        return t.cast(int, self.directory_mode) | mode & stat.S_ISGID


def find_ownership(owner: str, group: str, mode: str, directory_mode: str) -> Ownership:
    """Look names up on this node; modes are four octal digits, "" asks for nothing. Raises ClusterError (``bad_input``)."""
    return Ownership(
        owner, group, _uid(owner), _gid(group), _mode("mode", mode), _mode("directory_mode", directory_mode)
    )


def others_below(root: str, names: t.Iterable[str], wanted: Ownership) -> list[str]:
    """The names, and those of the directories that they are in, that are there and differ; never ``root`` itself."""
    paths = set()
    for name in names:
        while name and name not in paths:
            paths.add(name)
            name = name.rpartition("/")[0]
    ordered = sorted(paths)

    def differs(name: str) -> bool:
        try:
            return wanted.differs(os.lstat(os.path.join(root, name)))
        except (FileNotFoundError, NotADirectoryError):
            return False

    with ThreadPoolExecutor(max_workers=_LOOKS) as pool:
        return [name for name, other in zip(ordered, pool.map(differs, ordered)) if other]


def give_below(root: str, names: t.Sequence[str], wanted: Ownership) -> None:
    """Change what ``others_below`` found. Who swaps a name for a link or another kind meanwhile gains nothing."""

    def give(name: str) -> None:
        with contextlib.suppress(FileNotFoundError), parent_of(root, name) as (parent, last):
            descriptor = os.open(last, _OPEN, dir_fd=parent)
            try:
                found = os.fstat(descriptor)
                if wanted.differs(found) and stat.S_ISDIR(found.st_mode):
                    wanted.give_to_directory(descriptor)
                elif wanted.differs(found):
                    mode = stat.S_IMODE(found.st_mode) if wanted.mode is None else wanted.mode
                    wanted._give(descriptor)
                    os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)

    with ThreadPoolExecutor(max_workers=_LOOKS) as pool:
        list(pool.map(give, names))


def _uid(owner: str) -> int | None:
    return _id(owner, "user", "owner", lambda name: pwd.getpwnam(name).pw_uid)


def _gid(group: str) -> int | None:
    return _id(group, "group", "group", lambda name: grp.getgrnam(name).gr_gid)


def _id(name: str, what: str, option: str, look_up: t.Callable[[str], int]) -> int | None:
    if not name:
        return None
    if name.isdecimal() and name.isascii():
        if int(name) < _NO_ID:
            return int(name)
        raise ClusterError(
            "bad_input", f"`{option}` is {name:.20}, and no {what} can have that number.", f"Give one below {_NO_ID}."
        )
    try:
        return look_up(name)
    except KeyError:
        raise ClusterError(
            "bad_input",
            f"This node knows no {what} {name!r}.",
            f"Create it on all nodes, with the same id, or correct `{option}`; a number is taken as it is.",
            unlike=f"knows no {what} {name!r}",
        ) from None


def _mode(option: str, text: str) -> int | None:
    if not text:
        return None
    if not MODE.fullmatch(text):
        raise ClusterError(
            "bad_input",
            f"`{option}` is {text!r}.",
            'Write four octal digits in quotes, the first a zero, such as "0640".',
        )
    return int(text, 8)


__all__ = ["MODE", "Ownership", "find_ownership", "give_below", "others_below"]
