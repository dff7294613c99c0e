# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a run changes, or would change: the record that becomes ``changed``, ``changes`` and ``diff`` of a result."""

from __future__ import annotations

import dataclasses
import typing as t


class Told(t.Protocol):
    """A change that can be told in a result."""

    def summary(self) -> dict[str, str]:
        """``kind``, ``name`` and ``what``."""

    def diff(self) -> dict[str, str]:
        """The change in the form that Ansible prints."""


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference between a node and what it should be.

    ``kind`` and ``name`` say what changes (``file``, ``/etc/x``), ``what`` how (``create``). ``before`` and ``after`` are the two
    sides of a diff, in whole lines. ``want`` is the request that the change answers, for whoever carries it out.
    """

    kind: str
    name: str
    what: str
    before: str = ""
    after: str = ""
    want: t.Any = None

    def summary(self) -> dict[str, str]:
        """What a person wants to read of it."""
        return {"kind": self.kind, "name": self.name, "what": self.what}

    def diff(self) -> dict[str, str]:
        """The change in the form that Ansible prints."""
        return {
            "before_header": f"{self.kind} {self.name}",
            "after_header": f"{self.kind} {self.name} ({self.what})",
            "before": self.before,
            "after": self.after,
        }


class Changes:
    """The changes of one run, in order. It is true when there are any."""

    def __init__(self, changes: t.Iterable[Told] = ()) -> None:
        self._changes: list[Told] = list(changes)

    def note(self, kind: str, name: str, what: str, before: str = "", after: str = "") -> None:
        """Record one change by its parts."""
        self.add(Change(kind, name, what, before, after))

    def add(self, *changes: Told) -> None:
        """Record changes, such as all of another run."""
        self._changes += changes

    def __iter__(self) -> t.Iterator[Told]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def names(self, kind: str = "", what: str = "") -> list[str]:
        """The names of what changed: all, or those of one kind and those that changed in one way."""
        told = [change.summary() for change in self._changes]
        return [one["name"] for one in told if kind in ("", one["kind"]) and what in ("", one["what"])]

    def result(self) -> dict[str, t.Any]:
        """``changed``, ``changes`` and ``diff`` as a module returns them."""
        return {
            "changed": bool(self._changes),
            "changes": [change.summary() for change in self._changes],
            "diff": [change.diff() for change in self._changes],
        }


__all__ = ["Change", "Changes", "Told"]
