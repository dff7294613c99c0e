# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategies for hypothesis: what a TOML file may hold, and every way in which a person may write the same."""

from __future__ import annotations

import datetime
import typing as t

from hypothesis import strategies as st

Draw = st.DrawFn
Tree = dict[str, t.Any]

_TRICKY = [
    "]",
    "[x]",
    "{",
    "}",
    "#",
    "=",
    '"',
    "'",
    '"""',
    "'''",
    "\\",
    ",",
    "\n[plugins]\n",
    "\nimports = [",
    " ",
    "\u2028",
    "\x85",
    "\x0b",
]
TEXTS = st.lists(st.sampled_from(["a", "b", "é", "\t", "\n", "\x01", "\x7f", *_TRICKY]), max_size=6).map("".join)
NAMES = st.sampled_from(
    ["a", "b-1", "3", "", "ключ", "x.y", 'q"q', "q'q", "[t]", "a=b", "#", "new\nline", "imports", "version"]
)
SCALARS = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.just(datetime.timezone.utc)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TREES = st.dictionaries(NAMES, VALUES, max_size=5)


def _escaped(value: str, *, lines: bool) -> str:
    """What stands between quotation marks; ``lines``: line feeds stay."""
    said = []
    for char in value:
        if char in '"\\':
            said.append("\\" + char)
        elif (ord(char) < 32 and char != "\t" and not (lines and char == "\n")) or ord(char) == 127:
            said.append(f"\\u{ord(char):04x}")
        else:
            said.append(char)
    return "".join(said)


def _plain(value: str, *, lines: bool) -> bool:
    """Whether a text can be written without escapes."""
    return all((ord(char) >= 32 and ord(char) != 127) or char == "\t" or (lines and char == "\n") for char in value)


@st.composite
def texts(draw: Draw, value: str, *, key: bool = False) -> str:
    """One of the four ways to write a text; two for a key."""
    ways = [f'"{_escaped(value, lines=False)}"']
    if "'" not in value and _plain(value, lines=False):
        ways.append(f"'{value}'")
    if not key:
        glue = draw(st.sampled_from(["", "\n", "\\\n   \n  "]))
        # After a backslash at the end of a line blanks do not count, whoever wrote them.
        glue = "" if glue.startswith("\\") and value[:1] in (" ", "\t", "\n") else glue
        glue = "\n" if not glue and value[:1] == "\n" else glue
        ways.append(f'"""{glue}{_escaped(value, lines=True)}"""')
        if "'''" not in value and value[-1:] != "'" and _plain(value, lines=True):
            ways.append("'''\n" + value + "'''")
    return draw(st.sampled_from(ways))


@st.composite
def keys(draw: Draw, name: str) -> str:
    """A name as a key."""
    bare = bool(name) and all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    return name if bare and draw(st.booleans()) else draw(texts(name, key=True))


def _blanks(draw: Draw) -> str:
    return draw(st.sampled_from(["", " ", "\t", "  "]))


def _between(draw: Draw) -> str:
    return draw(st.sampled_from(["", " ", "\n", "\n  # ] } \" ''' , [\n", "\n\n\t"]))


def _dotted(draw: Draw, path: t.Sequence[str]) -> str:
    return draw(st.sampled_from([".", " . ", "\t."])).join(draw(keys(name)) for name in path)


@st.composite
def values(draw: Draw, value: t.Any) -> str:
    """A value, with whatever may stand in and around it."""
    if isinstance(value, str):
        return draw(texts(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (datetime.date, datetime.time)):
        said = value.isoformat()
        return said.replace("T", draw(st.sampled_from(["T", "t", " "])))
    if isinstance(value, list):
        parts = [f"{_between(draw)}{draw(values(one))}{_between(draw)}" for one in value]
        return f"[{','.join(parts)}{draw(st.sampled_from(['', ','])) if parts else ''}{_between(draw)}]"
    if isinstance(value, dict):
        pairs = [
            f"{_blanks(draw)}{draw(keys(name))}{_blanks(draw)}={_blanks(draw)}{draw(values(one))}{_blanks(draw)}"
            for name, one in value.items()
        ]
        return f"{{{','.join(pairs) or _blanks(draw)}}}"
    return draw(st.sampled_from(_numbers(value)))


def _numbers(value: float) -> list[str]:
    if isinstance(value, int):
        return [str(value), *([hex(value), f"+{value}"] if value >= 0 else [])]
    return [repr(value), *([f"+{value!r}"] if value > 0 else [])]


def _end(draw: Draw) -> str:
    return (
        _blanks(draw)
        + draw(st.sampled_from(["", '# a remark = [ " \'\'\' """', "#"]))
        + "\n"
        + draw(st.sampled_from(["", "\n", "  # [x]\n"]))
    )


def _table(draw: Draw, tree: Tree, path: tuple[str, ...], at: tuple[str, ...] = ()) -> tuple[str, str]:
    """The lines of a table that stand below its header, ``at`` a dotted key there, and the tables that follow."""
    own, below = "", ""
    for name, value in tree.items():
        here, whole = (*at, name), (*path, name)
        way = draw(st.sampled_from(["inline", "dotted", "header"]))
        tables = isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
        if isinstance(value, dict) and way == "dotted" and value:
            inner, after = _table(draw, value, whole, here)
            own, below = own + inner, below + after
        # A table that a dotted key has made cannot get a header, nor can one in it.
        elif not at and way == "header" and isinstance(value, dict):
            below += _headed(draw, value, whole, "[", "]")
        elif not at and way == "header" and tables:
            below += "".join(_headed(draw, one, whole, "[[", "]]") for one in value)
        else:
            own += (
                f"{_blanks(draw)}{_dotted(draw, here)}{_blanks(draw)}={_blanks(draw)}{draw(values(value))}{_end(draw)}"
            )
    return own, below


def _headed(draw: Draw, tree: Tree, path: tuple[str, ...], opening: str, closing: str) -> str:
    own, below = _table(draw, tree, path)
    if below and not own and opening == "[" and draw(st.booleans()):
        # What is below it makes the table.
        return below
    head = f"{_blanks(draw)}{opening}{_blanks(draw)}{_dotted(draw, path)}{_blanks(draw)}{closing}{_end(draw)}"
    return head + own + below


@st.composite
def documents(draw: Draw, trees: st.SearchStrategy[Tree] = TREES) -> tuple[str, Tree]:
    """A file, and what is in it."""
    tree = draw(trees)
    own, below = _table(draw, tree, ())
    text = draw(st.sampled_from(["", "# first\n", "\n"])) + own + below
    text = text if draw(st.booleans()) else text.removesuffix("\n")
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text), tree


__all__ = ["NAMES", "SCALARS", "TEXTS", "TREES", "VALUES", "documents"]
