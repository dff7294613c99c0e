# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""TOML (toml.io, v1.0.0) as far as it takes to carry settings from one file into another: which keys there are, and each value
as it is written.

Python has a reader since 3.11 only, and no writer. A value stays a piece of the file's text: a time, a number or a text with
escapes comes out as it went in. What does not read like TOML is refused with its line; whether a value is one that its key may
have is left to the program whose file it is.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: A table: for each key the text of its value, another table, or the tables of an array of tables.
Tree = dict[str, t.Any]
Path = tuple[str, ...]

_BOM = "\ufeff"
_BLANKS = re.compile(r"[ \t]*")
_END_OF_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z)")
# Between the elements of an array, and, more than TOML 1.0 allows, of an inline table.
_BETWEEN = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = r'"(?:[^"\\\n]|\\[^\n])*"'
_LITERAL = r"'[^'\n]*'"
#: A text. One or two quotation marks may stand before the three that end such a text.
TEXT = re.compile(rf'"""(?:[^\\]|\\.)*?"""(?!")|\'\'\'.*?\'\'\'(?!\')|{_BASIC}|{_LITERAL}', re.S)
_QUOTED_KEY = re.compile(rf"{_BASIC}|{_LITERAL}")
# Numbers, words, and times, of which one kind has a blank between day and hour.
_PLAIN = re.compile(r"\d{4}-\d\d-\d\d \d\d:[\w:.+-]+|[\w.+:-]+", re.A)
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([btnfr"\\])|[ \t]*\n[ \t\n]*|)')
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_DEEPEST = 100


@dataclasses.dataclass(frozen=True)
class Document:
    """A file. ``spans``: where the value of each key of the root table begins and ends that is not part of a dotted one;
    ``first_table``: where the line of the first header of a table begins, or the file ends."""

    tree: Tree
    spans: t.Mapping[str, tuple[int, int]]
    first_table: int


def read(text: str, name: str) -> Document:
    """The file ``name``. Raises ClusterError (``containerd_config``) with the line that does not read like TOML."""
    return _Reader(text, name).document()


def text_of(raw: str) -> str | None:
    """The text that a value stands for; None where the value is none, or has an escape that TOML does not know."""
    if not TEXT.fullmatch(raw):
        return None
    raw = raw.replace("\r\n", "\n")
    marks = 3 if raw[:3] in ('"""', "'''") else 1
    inner = raw[marks:-marks]
    if marks > 1:
        inner = inner[1:] if inner.startswith("\n") else inner
    return inner if raw[0] == "'" else _unescaped(inner)


def _unescaped(inner: str) -> str | None:
    def one(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        if code:
            return chr(int(code, 16))
        if len(found[0]) == 1:
            raise ValueError
        return _ESCAPED[found[3]] if found[3] else ""

    try:
        plain = _ESCAPE.sub(one, inner)
        plain.encode("utf-8", "surrogateescape")
    except (ValueError, OverflowError):
        return None
    return plain


def lines_of(tree: Tree, path: Path = ()) -> list[str]:
    """A table as lines: its own values, then the tables in it, each below its header."""
    values = [f"{_key(name)} = {value}" for name, value in tree.items() if isinstance(value, str)]
    head = [f"[{'.'.join(map(_key, path))}]"] if path and (values or not tree) else []
    lines = [*head, *values]
    for name, value in tree.items():
        if isinstance(value, dict):
            lines += lines_of(value, (*path, name))
        elif isinstance(value, list):
            for one in value:
                below = lines_of(one, (*path, name))
                header = f"[{'.'.join(map(_key, (*path, name)))}]"
                lines += [f"[{header}]", *(below[1:] if below[:1] == [header] else below)]
    return lines


def _key(name: str) -> str:
    if _BARE_KEY.fullmatch(name):
        return name
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", re.sub(r'(["\\])', r"\\\1", name))
    return f'"{escaped}"'


class _Reader:
    """Goes through a text once; ``at`` is how far it has come."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.at = len(_BOM) if text.startswith(_BOM) else 0
        self.depth = 0

    def document(self) -> Document:
        tree: Tree = {}
        spans: dict[str, tuple[int, int]] = {}
        here, first_table = tree, -1
        while self.at < len(self.text):
            start = self.at
            if self._take(_END_OF_LINE):
                continue
            self._take(_BLANKS)
            if self.text.startswith("[", self.at):
                first_table = start if first_table < 0 else first_table
                here = self._header(tree)
            else:
                path, begins = self._pair(here)
                if here is tree and len(path) == 1:
                    spans[path[0]] = (begins, self.at)
            if not self._take(_END_OF_LINE):
                raise self._error("something follows that does not belong there")
        return Document(tree, spans, len(self.text) if first_table < 0 else first_table)

    def _take(self, pattern: re.Pattern[str]) -> str:
        """What the pattern finds here, which is behind us then; empty where it finds nothing."""
        found = pattern.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found.group() or " "

    def _error(self, why: str) -> ClusterError:
        line = self.text.count("\n", 0, self.at) + 1
        return ClusterError(
            "containerd_config",
            f"{self.name} does not read like TOML: {why} (line {line}).",
            "Correct it, then run the role again.",
        )

    def _expect(self, word: str) -> None:
        if not self.text.startswith(word, self.at):
            raise self._error(f"{word} is missing")
        self.at += len(word)

    def _header(self, tree: Tree) -> Tree:
        """The table that begins here."""
        many = self.text.startswith("[[", self.at)
        self._expect("[[" if many else "[")
        path = self._path()
        self._expect("]]" if many else "]")
        if not many:
            return self._enter(tree, path)
        above = self._enter(tree, path[:-1])
        tables = above.setdefault(path[-1], [])
        if not isinstance(tables, list):
            raise self._error(f"{path[-1]} is not an array of tables elsewhere")
        tables.append({})
        return t.cast(Tree, tables[-1])

    def _pair(self, here: Tree) -> tuple[Path, int]:
        """Put a key with its value into a table. Returns its path below that, and where its value begins."""
        path = self._path()
        self._expect("=")
        self._take(_BLANKS)
        begins = self.at
        value = self._value()
        table = self._enter(here, path[:-1])
        if path[-1] in table:
            raise self._error(f"{path[-1]} is there twice")
        table[path[-1]] = value
        return path, begins

    def _enter(self, table: Tree, path: Path) -> Tree:
        """The table below another one; of an array of tables that is the last one."""
        for name in path:
            inner = table.setdefault(name, {})
            inner = inner[-1] if isinstance(inner, list) else inner
            if not isinstance(inner, dict):
                raise self._error(f"{name} has a value elsewhere and is a table here")
            table = inner
        return table

    def _path(self) -> Path:
        """The names of a key, between which dots stand."""
        names: list[str] = []
        while True:
            self._take(_BLANKS)
            name = self._name()
            if name is None:
                raise self._error("there is no key that could be read")
            names.append(name)
            self._take(_BLANKS)
            if not self.text.startswith(".", self.at):
                return tuple(names)
            self.at += 1

    def _name(self) -> str | None:
        quoted = self._take(_QUOTED_KEY)
        if quoted:
            return text_of(quoted)
        bare = _BARE_KEY.match(self.text, self.at)
        if not bare:
            return None
        self.at = bare.end()
        return bare.group()

    def _value(self) -> str | Tree:
        """The value that begins here: an inline table as a table, everything else as it is written."""
        begins = self.at
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._error("arrays and tables are nested too deeply")
        found: str | Tree = ""
        if self.text.startswith("{", self.at):
            found = self._inline_table()
        elif self.text.startswith("[", self.at):
            self._elements("[", "]", self._value)
            found = self.text[begins : self.at]
        elif self._take(TEXT) or self._take(_PLAIN):
            found = self.text[begins : self.at]
        else:
            raise self._error("there is no value that could be read")
        self.depth -= 1
        return found

    def _inline_table(self) -> Tree:
        table: Tree = {}
        self._elements("{", "}", lambda: self._pair(table))
        return table

    def _elements(self, first: str, last: str, element: t.Callable[[], t.Any]) -> None:
        """What stands between two brackets, with commas between."""
        self._expect(first)
        self._take(_BETWEEN)
        while not self.text.startswith(last, self.at):
            element()
            self._take(_BETWEEN)
            if self.text.startswith(last, self.at):
                break
            self._expect(",")
            self._take(_BETWEEN)
        self._expect(last)


__all__ = ["TEXT", "Document", "Path", "Tree", "lines_of", "read", "text_of"]
