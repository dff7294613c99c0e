# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which blobs of a source belong to the dataset: globs that include names, and globs that exclude some of these.

The globs are those of rclone (https://rclone.org/filtering/), without its regular expressions. ``fnmatch`` lets ``*`` cross
directories, and ``glob.translate`` is not in every Python that runs on nodes.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.automaton import (
    CLOSE,
    DIRECTORIES,
    OPEN,
    OR,
    STAR,
    STARS,
    Automaton,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# What Python's ``re`` matches in time quadratic in the name's length: as many wildcards, and as many ways through braces.
_MOST_WILDCARDS = 2
_MOST_WAYS = 64
#: How many names are compared once more, without their ending, with globs that match nothing: some take 50 µs for one.
_MOST_TRIALS = 20_000
_GZ = ".gz"


class _Matcher(t.Protocol):
    def fullmatch(self, name: str, /) -> t.Any: ...


class Choice:
    """The globs of one source. Without ``include`` every name is included; ``exclude`` is asked about what is included."""

    def __init__(self, include: t.Sequence[str] = (), exclude: t.Sequence[str] = ()) -> None:
        self._include = _Globs(include) if include else None
        self._exclude = _Globs(exclude) if exclude else None

    def takes(self, name: str) -> bool:
        """Whether a blob belongs to the dataset, by its name below the source's prefix."""
        if self._include is not None and not self._include.match(name):
            return False
        return self._exclude is None or not self._exclude.match(name)

    def check(self, source: str, taken: int) -> None:
        """After the last name: raise ClusterError (``no_match``) where an include chose nothing, or nothing is left."""
        if self._include is not None and self._include.idle:
            idle = self._include.idle
            raise ClusterError(
                "no_match",
                f"`include` of {source} chooses nothing with {_listed(idle)}. {self._include.there}".rstrip(),
                "Correct or drop it. A glob is compared with the path below the prefix, in its case; `*` stays within a directory.",
                patterns=idle,
            )
        if not taken:
            raise ClusterError(
                "no_match", f"`exclude` leaves no blob of {source}.", "Narrow the globs, or drop the source."
            )

    @property
    def idle_excludes(self) -> list[str]:
        """Globs that have excluded nothing so far."""
        return self._exclude.idle if self._exclude is not None else []


class _Globs:
    """Several globs, of which one is enough, and which of them have matched nothing so far."""

    def __init__(self, globs: t.Sequence[str]) -> None:
        pieces = {glob: _pieces(glob) for glob in globs}
        quick = {glob: _compiled(_joined(own)) for glob, own in pieces.items() if _is_quick(own)}
        slow = {glob: Automaton(own) for glob, own in pieces.items() if glob not in quick}
        # One expression for all globs that it suits: most names match none.
        together = [_compiled("|".join(_joined(pieces[glob]) for glob in quick))] if quick else []
        self._any: list[_Matcher] = [*together, *slow.values()]
        self._idle: dict[str, _Matcher] = {glob: quick.get(glob) or slow[glob] for glob in globs}
        self._first = ""
        #: A name by the glob that would match it without its ending.
        self._nearly: dict[str, str] = {}
        self._trials = 0

    @property
    def idle(self) -> list[str]:
        return list(self._idle)

    @property
    def there(self) -> str:
        """A name that is there, for whoever wonders why a glob matches nothing: best one that lacks only its ending in the glob."""
        for glob in self._idle:
            if glob in self._nearly:
                return f"There is {self._nearly[glob]!r}: a glob has to name the {_GZ}, too, which goes when the blob is inflated."
        return f"There is {self._first!r}, for example." if self._first else ""

    def match(self, name: str) -> bool:
        self._first = self._first or name
        if self._idle and name.endswith(_GZ) and self._trials < _MOST_TRIALS:
            self._try_without_ending(name)
        if not any(matcher.fullmatch(name) for matcher in self._any):
            return False
        if self._idle:
            self._idle = {glob: own for glob, own in self._idle.items() if not own.fullmatch(name)}
        return True

    def _try_without_ending(self, name: str) -> None:
        self._trials += 1
        for glob, own in self._idle.items():
            if glob not in self._nearly and own.fullmatch(name[: -len(_GZ)]):
                self._nearly[glob] = name


def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.DOTALL)


def _is_quick(pieces: t.Sequence[str]) -> bool:
    """Whether ``re`` matches it in time that is at most quadratic in the length of the name.

    It tries every length of every wildcard with every length of the others, and every way through the braces. Asterisks stay
    within a component; what crosses directories is combined with the directory where the glob begins, too.
    """
    begins_anywhere = pieces[:1] == [DIRECTORIES]
    crossing = sum(piece in (STARS, DIRECTORIES) for piece in pieces) - begins_anywhere
    ways = alternatives = 1
    for piece in pieces:
        if piece in (OPEN, CLOSE):
            ways, alternatives = ways * alternatives, 1
        alternatives += piece == OR
    return (
        pieces.count(STAR) + crossing + (bool(crossing) and begins_anywhere) <= _MOST_WILDCARDS and ways <= _MOST_WAYS
    )


def translate(glob: str) -> str:
    """The regular expression (for ``fullmatch`` with DOTALL) of a glob. Raises ClusterError where it is malformed."""
    return _joined(_pieces(glob))


def _joined(pieces: t.Iterable[str]) -> str:
    return f"(?:{''.join(pieces)})"


def _pieces(glob: str) -> list[str]:
    """A glob as pieces of a regular expression, which ``Automaton`` takes, too."""
    anchored = glob.startswith("/")
    body = glob[1:] if anchored else glob
    if not body or body == "/":
        raise _malformed(glob, "is empty")
    if body.endswith("/"):
        body += "**"  # a directory is what is in it
    parts: list[str] = [] if anchored else [DIRECTORIES]
    depth = position = 0
    while position < len(body):
        character = body[position]
        if character == "*":
            expression, position = _stars(body, position)
        elif character == "[":
            expression, position = _class(glob, body, position + 1)
        elif character in "{}," and (depth or character != ","):
            expression, position = {"{": OPEN, ",": OR, "}": CLOSE}[character], position + 1
            depth += {"{": 1, ",": 0, "}": -1}[character]
            if depth < 0 or body.startswith("{{", position - 1):
                raise _malformed(glob, "closes a brace that it does not open, or opens two at once")
        elif character == "?":
            expression, position = "[^/]", position + 1
        else:
            literal, position = _literal(glob, body, position)
            expression = re.escape(literal)
        parts.append(expression)
    if depth:
        raise _malformed(glob, "does not close a brace")
    return parts


def _stars(body: str, position: int) -> tuple[str, int]:
    end = position
    while body[end : end + 1] == "*":
        end += 1
    if end - position == 1:
        return STAR, end
    # Between slashes ** also stands for no directory at all.
    if body[end : end + 1] == "/" and (position == 0 or body[position - 1] == "/"):
        return DIRECTORIES, end + 1
    return STARS, end


def _class(glob: str, body: str, position: int) -> tuple[str, int]:
    negated = body[position : position + 1] in ("!", "^")
    position += negated
    ranges = []
    while body[position : position + 1] != "]":
        low, position = _literal(glob, body, position)
        high = low
        if body[position : position + 1] == "-" and body[position + 1 : position + 2] != "]":
            high, position = _literal(glob, body, position + 1)
        if low > high:
            raise _malformed(glob, "has a range that runs backwards")
        ranges.append(f"{re.escape(low)}-{re.escape(high)}")
    if not ranges:
        raise _malformed(glob, "has an empty class")
    return f"(?!/)[{'^' * negated}{''.join(ranges)}]", position + 1


def _literal(glob: str, body: str, position: int) -> tuple[str, int]:
    position += body[position : position + 1] == "\\"
    if position >= len(body):
        raise _malformed(glob, "ends within a class or after a backslash")
    return body[position], position + 1


def _malformed(glob: str, why: str) -> ClusterError:
    return ClusterError(
        "bad_input",
        f"The glob {glob!r} {why}.",
        "Put a backslash before a character of `*?[]{}` that stands for itself.",
        pattern=glob,
    )


def _listed(globs: t.Sequence[str]) -> str:
    return ", ".join(repr(glob) for glob in globs)


__all__ = ["Choice", "translate"]
