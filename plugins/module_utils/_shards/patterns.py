# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Patterns for AzCopy: few globs that select exactly the names of an index range, and what AzCopy makes of a glob.

AzCopy splits ``--include-pattern`` at ``;`` and nothing else, and matches each part with Go's ``path.Match`` against the
last component of a name: ``*``, ``?``, ``[a-c]``, ``[^a-c]``, ``\\`` escapes. It ignores a malformed glob without a word
and takes an empty pattern for "everything", so both are errors here.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

SEPARATOR = ";"
# One argument of a process may have 131,072 bytes with its final NUL on Linux (MAX_ARG_STRLEN, 32 pages).
MAX_ARGUMENT_BYTES = 131_071
_MAX_WIDTH = 18
_FIELD = re.compile(r"\{index(?::(0?)(\d*)d?)?\}")
_ANYTHING = "[^/]*"
_WILDCARDS = "*?[]\\"
_SPECIAL = re.compile(r"[*?\[\\]")


def tokens(pattern: str) -> list[str]:
    """Regular expressions that, joined, mean what Go's ``path.Match`` makes of ``pattern``, one per thing that it matches."""
    parts: list[str] = []
    position, end = 0, len(pattern)
    while position < end:
        character = pattern[position]
        position += 1
        if character == "*":
            parts.append(_ANYTHING)
        elif character == "?":
            parts.append("[^/]")
        elif character == "[":
            expression, position = _translate_class(pattern, position)
            parts.append(expression)
        else:
            if character == "\\":
                if position == end:
                    raise _malformed(pattern)
                character = pattern[position]
                position += 1
            parts.append(re.escape(character))
    return parts


def _translate_class(pattern: str, position: int) -> tuple[str, int]:
    negated = pattern[position : position + 1] == "^"
    position += negated
    ranges: list[tuple[str, str]] = []
    while not (ranges and pattern[position : position + 1] == "]"):
        low, position = _class_character(pattern, position)
        high = low
        if pattern[position : position + 1] == "-":
            high, position = _class_character(pattern, position + 1)
        ranges.append((low, high))
    # A range that runs backwards is no error for Go: it matches nothing.
    inner = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in ranges if low <= high)
    if negated:
        return (f"[^{inner}]" if inner else "."), position + 1
    return (f"[{inner}]" if inner else "(?!)"), position + 1


def _class_character(pattern: str, position: int) -> tuple[str, int]:
    character = pattern[position : position + 1]
    if character == "\\":
        position += 1
        character = pattern[position : position + 1]
    elif character in ("-", "]"):
        character = ""
    # Go wants something after every character of a class, at least the closing bracket.
    if not character or position + 1 >= len(pattern):
        raise _malformed(pattern)
    return character, position + 1


def escape(name: str) -> str:
    """The glob that matches this one file name. A name with ``;`` has none: see ``fits_a_pattern``."""
    return _SPECIAL.sub(lambda match: f"\\{match.group()}", name)


def fits_a_pattern(name: str) -> bool:
    """Whether a pattern can name this file at all: AzCopy knows no way to write a ``;`` in one."""
    return bool(name) and SEPARATOR not in name


def join(globs: t.Sequence[str]) -> str:
    """The argument of ``--include-pattern``."""
    return SEPARATOR.join(globs)


def fits_an_argument(globs: t.Sequence[str], limit: int = MAX_ARGUMENT_BYTES) -> bool:
    """Whether the joined globs may be one argument of a process."""
    return sum(len(glob.encode("utf-8", "surrogatepass")) + 1 for glob in globs) - 1 <= limit


class Template:
    """A file name with a running number: ``*_{index:03d}.tfrecord.gz``. What surrounds the number is a glob."""

    def __init__(self, text: str) -> None:
        fields = list(_FIELD.finditer(text))
        if len(fields) != 1 or "{index" in text[: fields[0].start()] + text[fields[0].end() :]:
            raise ClusterError(
                "bad_input",
                f"The template {text!r} does not hold exactly one {{index}}.",
                "Write the place of the number as {index:03d}, for three digits.",
            )
        padding, digits = fields[0].group(1) or "", fields[0].group(2) or ""
        self.text = text
        self.before, self.after = text[: fields[0].start()], text[fields[0].end() :]
        self.width = int(digits) if digits else 1
        if (digits and not padding) or not 1 <= self.width <= _MAX_WIDTH:
            raise ClusterError(
                "bad_input",
                f"The number in the template {text!r} is not padded with zeros, or has more than {_MAX_WIDTH} digits.",
                "Write it as {index} or, for three digits, as {index:03d}.",
            )
        if SEPARATOR in text or "/" in text:
            raise ClusterError(
                "bad_input",
                f"The template {text!r} holds a ';' or a '/', which no AzCopy pattern can match.",
                "Give a template of the file name alone.",
            )
        before, after = tokens(self.before), tokens(self.after)
        # Without "*" a glob has a length, and the number a known place.
        self._before_length = -1 if _ANYTHING in before else len(before)
        self._after_length = -1 if _ANYTHING in after else len(after)
        self._before = re.compile("".join(before), re.DOTALL)
        self._after = re.compile("".join(after), re.DOTALL)

    @property
    def is_literal(self) -> bool:
        """Whether every index stands for exactly one file name."""
        return not _SPECIAL.search(self.before + self.after)

    def name(self, index: int) -> str:
        """The glob (or, for a literal template, the file name) of one index."""
        return f"{self.before}{index:0{self.width}d}{self.after}"

    def globs(self, indexes: range) -> list[str]:
        """Few globs that match the names of these ascending indexes and of no others."""
        texts: list[str] = []
        for width, part in _by_width(indexes, self.width):
            if part.step == 1 or len(part) == 1:
                texts += range_globs(part[0], part[-1], width)
            else:
                texts += set_globs([f"{index:0{width}d}" for index in part])
        return [f"{self.before}{text}{self.after}" for text in texts]

    def check_range(self, indexes: range) -> None:
        """Refuse numbers of several lengths beside a wildcard or a digit, where 12 and 2 could not be told apart."""
        if not indexes or len(str(indexes[-1])) <= max(self.width, len(str(indexes[0]))):
            return
        loose = _WILDCARDS + "0123456789"
        beside = (self._before_length < 0 and self.before[-1] in loose) or (
            self._after_length < 0 and self.after[0] in loose
        )
        if beside:
            raise ClusterError(
                "bad_input",
                f"The numbers {indexes[0]} to {indexes[-1]} of the template {self.text!r} differ in length and stand"
                " next to a wildcard: one pattern would match the files of another.",
                "Pad the number with zeros, or put a fixed character beside it.",
            )

    def index_of(self, name: str, indexes: range) -> int:
        """The number of a file; an error where it has none of ``indexes``, or where patterns could take it for two."""
        last = name.rpartition("/")[2]
        found = {number for number in self._numbers(last) if number in indexes}
        if len(found) == 1:
            return found.pop()
        if found:
            what = f"can be read as number {' or '.join(map(str, sorted(found)))} of the template {self.text!r}"
        else:
            what = f"has no number from {indexes[0]} to {indexes[-1]} where the template {self.text!r} has its own"
        raise ClusterError(
            "bad_input",
            f"The file {name!r} {what}.",
            "Correct template, start or count, leave the file out, or shard by files instead of numbers.",
            name=name,
        )

    def _numbers(self, last: str) -> t.Iterator[int]:
        """Every number that some pattern of this template could find in a file name."""
        starts: t.Iterable[int] = range(len(last)) if self._before_length < 0 else (self._before_length,)
        fixed_stop = len(last) - self._after_length
        for start in starts:
            stops = range(start + self.width, len(last) + 1) if self._after_length < 0 else (fixed_stop,)
            for stop in stops:
                text = last[start:stop]
                if not (text.isdigit() and text.isascii()):
                    continue
                padded = len(text) == self.width or (len(text) > self.width and text[0] != "0")
                if padded and self._before.fullmatch(last, 0, start) and self._after.fullmatch(last, stop):
                    yield int(text)


def _by_width(indexes: range, width: int) -> t.Iterator[tuple[int, range]]:
    """Cut ascending indexes where their numbers become longer than ``width``, and again for every digit more."""
    while indexes:
        shorter = len(range(indexes.start, max(indexes.start, min(10**width, indexes.stop)), indexes.step))
        if shorter:
            yield width, indexes[:shorter]
        indexes = indexes[shorter:]
        width += 1


def range_globs(first: int, last: int, width: int) -> list[str]:
    """At most ``2 * width - 1`` globs for the zero-padded numbers ``first`` to ``last``: disjoint, exact, ascending."""
    return _ranges(f"{first:0{width}d}", f"{last:0{width}d}")


def _ranges(low: str, high: str) -> list[str]:
    if not low:
        return [""]
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return [_digits(low[0], high[0]) + "[0-9]" * rest]
    if low[0] == high[0]:
        return [low[0] + glob for glob in _ranges(low[1:], high[1:])]
    globs: list[str] = []
    first, last = int(low[0]), int(high[0])
    if low[1:] != "0" * rest:
        globs += [low[0] + glob for glob in _ranges(low[1:], "9" * rest)]
        first += 1
    tail: list[str] = []
    if high[1:] != "9" * rest:
        tail = [high[0] + glob for glob in _ranges("0" * rest, high[1:])]
        last -= 1
    if first <= last:
        globs.append(_digits(str(first), str(last)) + "[0-9]" * rest)
    return globs + tail


def _digits(low: str, high: str) -> str:
    return _class("".join(str(digit) for digit in range(int(low), int(high) + 1)))


def set_globs(numbers: t.Sequence[str]) -> list[str]:
    """Globs for any set of equally long digit strings: digits with the same continuations share one class."""
    if not numbers[0]:
        return [""]
    continuations: dict[str, list[str]] = {}
    for number in numbers:
        continuations.setdefault(number[0], []).append(number[1:])
    alike: dict[tuple[str, ...], str] = {}
    for digit in sorted(continuations):
        globs = tuple(set_globs(continuations[digit]))
        alike[globs] = alike.get(globs, "") + digit
    return [_class(digits) + glob for globs, digits in alike.items() for glob in globs]


def _class(digits: str) -> str:
    if len(digits) == 1:
        return digits
    if len(digits) > 2 and int(digits[-1]) - int(digits[0]) == len(digits) - 1:
        return f"[{digits[0]}-{digits[-1]}]"
    return f"[{digits}]"


def _malformed(pattern: str) -> ClusterError:
    return ClusterError(
        "bad_input",
        f"The pattern {pattern!r} is malformed; AzCopy would ignore it without a word.",
        "Close every '[' with a ']', and put a backslash before a bracket that stands for itself.",
    )


__all__ = [
    "MAX_ARGUMENT_BYTES",
    "SEPARATOR",
    "Template",
    "escape",
    "fits_a_pattern",
    "fits_an_argument",
    "join",
    "range_globs",
    "set_globs",
    "tokens",
]
