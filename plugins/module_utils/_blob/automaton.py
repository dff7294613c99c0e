# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Match a glob in time linear in the name, whatever the glob.

Python's ``re`` goes back and tries again: with several asterisks in a row the time grows with a power of the name's length for each
of them (`*a*a*a*b` takes minutes for one long name). Here all ways to read the name are followed at once, and what a character
leads to is remembered (Thompson 1968; a deterministic automaton that is made as it is needed).
"""

from __future__ import annotations

import re
import typing as t

OPEN, OR, CLOSE = "(?:", "|", ")"
#: Any characters of one component, any characters, and any directories or none.
STAR, STARS, DIRECTORIES = "[^/]*", ".*", "(?:.*/)?"

# What is remembered of one glob, at most: with 10^5 steps of about 100 bytes each some 10 MB.
_MOST_STEPS = 100_000

_Moves = list[tuple[t.Callable[[str], t.Any], int]]


def _anything(_character: str) -> bool:
    return True


def _no_slash(character: str) -> bool:
    return character != "/"


def _slash(character: str) -> bool:
    return character == "/"


class _Node(dict[str, "_Node"]):
    """All places in a glob that one beginning of a name leads to, and by a character where it goes from there."""

    def __init__(self, automaton: Automaton, places: frozenset[int]) -> None:
        super().__init__()
        self.places = places
        self._automaton = automaton

    def __missing__(self, character: str) -> _Node:
        following = self[character] = self._automaton.follow(self.places, character)
        return following


class Automaton:
    """A glob as the pieces of its regular expression: those above, and others that match one character each."""

    def __init__(self, pieces: t.Iterable[str]) -> None:
        self._moves: list[_Moves] = []
        self._free: list[list[int]] = []  # where one may go without a character
        self._nodes: dict[frozenset[int], _Node] = {}
        self._steps = 0
        place = beginning = self._place()
        groups: list[tuple[int, int]] = []
        for piece in pieces:
            if piece == OPEN:
                groups.append((place, self._place()))
                place = self._place(groups[-1][0])
            elif piece in (OR, CLOSE):
                before, behind = groups[-1]
                self._free[place].append(behind)
                if piece == OR:
                    place = self._place(before)
                else:
                    groups.pop()
                    place = behind
            else:
                place = self._add(piece, place)
        self._end = place
        self._start_places = self._with_free({beginning})
        self._start = self._node(self._start_places)

    def fullmatch(self, name: str) -> bool:
        """Whether the glob matches the whole name."""
        node = self._start
        for character in name:
            node = node[character]
            if not node.places:
                return False
        return self._end in node.places

    def follow(self, places: frozenset[int], character: str) -> _Node:
        """The node that a character leads to."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self._steps = 0
            self._nodes = {}
            self._start = self._node(self._start_places)
        found = {following for place in places for fits, following in self._moves[place] if fits(character)}
        return self._node(self._with_free(found))

    def _add(self, piece: str, place: int) -> int:
        if piece in (STAR, STARS):
            here = self._place(place)
            self._moves[here].append((_no_slash if piece == STAR else _anything, here))
            return here
        behind = self._place()
        if piece == DIRECTORIES:
            within = self._place(place)
            self._moves[within] += [(_anything, within), (_slash, behind)]
            self._free[place].append(behind)
        else:
            self._moves[place].append((re.compile(piece, re.DOTALL).fullmatch, behind))
        return behind

    def _place(self, before: int | None = None) -> int:
        """A new one, which ``before`` leads to without a character."""
        self._moves.append([])
        self._free.append([])
        if before is not None:
            self._free[before].append(len(self._moves) - 1)
        return len(self._moves) - 1

    def _with_free(self, places: set[int]) -> frozenset[int]:
        todo = list(places)
        while todo:
            new = [place for place in self._free[todo.pop()] if place not in places]
            places.update(new)
            todo += new
        return frozenset(places)

    def _node(self, places: frozenset[int]) -> _Node:
        return self._nodes.setdefault(places, _Node(self, places))


__all__ = ["CLOSE", "DIRECTORIES", "OPEN", "OR", "STAR", "STARS", "Automaton"]
