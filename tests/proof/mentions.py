# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a file mentions that may be another file: imports, names of the collection, and paths. No other file is looked at.

Comments, docstrings, and the documentation of plugins mention nothing. In a text with spaces, such as a message, only what
is quoted or hangs on a variable is a path.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
import typing as t

import yaml

#: Stands for what is only known when the file runs.
HOLE = "\0"
COLLECTION = "hpcai.gpu_cluster."
PACKAGE = "ansible_collections.hpcai.gpu_cluster."

#: What a name of the collection can be. Ansible looks for a role, a playbook, and a plugin by the same name.
Kind = t.Literal["any", "plugin", "role", "playbook"]


class Import(t.NamedTuple):
    """``level``: of a relative import, 0 for an absolute one. ``names``: what is taken out of the module."""

    level: int
    module: str
    names: tuple[str, ...] = ()


class Name(t.NamedTuple):
    """A name of the collection, without its prefix. It may have a hole, or be one. ``function``: where it is written."""

    text: str
    kind: Kind
    function: str = ""


class Path(t.NamedTuple):
    """A path, perhaps with holes and ``*``. It may begin with ``../``.

    ``anchored``: it hangs on something, a variable or ``/``. ``rooted``: it hangs on what looks like the repository's root.
    """

    text: str
    anchored: bool
    rooted: bool = False
    function: str = ""


@dataclasses.dataclass
class Mentions:
    """``words``: all that may complete a hole or name a file of a directory that is mentioned. ``used``: Python's names."""

    imports: set[Import] = dataclasses.field(default_factory=set)
    names: set[Name] = dataclasses.field(default_factory=set)
    paths: set[Path] = dataclasses.field(default_factory=set)
    words: set[str] = dataclasses.field(default_factory=set)
    used: set[str] = dataclasses.field(default_factory=set)

    def add_text(self, text: str, kind: Kind = "any", function: str = "", *, prose: bool = True) -> None:
        """``prose``: in a text with spaces a bare path is not meant."""
        text = _without_variables(text)
        for found in _NAMES.finditer(text):
            self.names.add(Name(found[1] or HOLE, kind, function))
        for found in _DOTTED.finditer(text):
            self.imports.add(Import(0, found[0].rstrip(".")))
        if kind == "role" and _WORD.fullmatch(text):
            self.names.add(Name(text, "role", function))
        picky = prose and any(map(str.isspace, text.strip()))
        for found in _PATHS.finditer(text):
            word = found[0]
            bare = word.lstrip(HOLE + "/")
            if not bare:
                continue
            anchored = bare != word
            quoted = (
                text[found.start() - 1 : found.start()] in _QUOTES and text[found.end() : found.end() + 1] in _QUOTES
            )
            if not picky or anchored or (quoted and found.start() > 0):
                self.add_path(bare, function, anchored=anchored)

    def add_path(self, text: str, function: str = "", *, anchored: bool, rooted: bool = False) -> None:
        text = re.sub(r"/{2,}|/(\./)+", "/", text).removeprefix("./").rstrip("/")
        if not text.strip("./" + HOLE + "*"):
            return
        self.words.add(text)
        if not text.startswith("-") and ("/" in text or "." in text or "-" in text or anchored or rooted):
            self.paths.add(Path(text, anchored, rooted, function))


_NAMES = re.compile(r"\bhpcai\.gpu_cluster\.(\w*(?:\0\w*)*)")
_DOTTED = re.compile(r"\bansible_collections\.hpcai\.gpu_cluster\.[\w.]+")
_PATHS = re.compile(r"[\w.\-/*\0]+")
_WORD = re.compile(r"\w+")
_QUOTES = ("'", '"', "`")
_VARIABLE = re.compile(r"\{\{-?\s*[\w.\[\]']+\s*-?\}\}|\$\{[^}]*\}|\$\w+")
_JINJA_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)


def _without_variables(text: str) -> str:
    """Holes in the places of variables. Other expressions stay: there are paths in them."""
    if "{" in text or "$" in text:
        return _VARIABLE.sub(HOLE, _JINJA_COMMENT.sub("", text))
    return text


def mentions(path: str, content: bytes) -> Mentions:
    """What the file mentions, in the way that fits its kind."""
    found = Mentions()
    if _says_nothing(path):
        return found
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return found
    suffix = pathlib.PurePosixPath(path).suffix
    first = text.partition("\n")[0]
    try:
        if suffix == ".py" or (first.startswith("#!") and "python" in first):
            _Python(found, path.startswith("plugins/")).visit(ast.parse(text))
        elif suffix in {".yml", ".yaml"}:
            for node in yaml.compose_all(text, Loader=yaml.CSafeLoader):
                _add_yaml(found, node, "any", "")
        else:
            _add_lines(found, text)
    except (SyntaxError, ValueError, yaml.YAMLError):
        # A template of such a file, or one that a test wants to be wrong.
        found = Mentions()
        _add_lines(found, text)
    return found


def _says_nothing(path: str) -> bool:
    """Pages, recorded outputs, and C: words in them may look like names of files, but nothing reads these."""
    return path.endswith((".md", ".lock", "package-lock.json", ".c")) or "/fixtures/" in path


def _add_lines(found: Mentions, text: str) -> None:
    for line in text.splitlines():
        if not line.lstrip().startswith(("#", ";")):
            found.add_text(re.sub(r"\s#\s.*", "", line), prose=False)


# --- YAML ------------------------------------------------------------------------------------------------------------

_ROLE_KEYS = ("role", "roles", "include_role", "import_role")
_PROSE_KEYS = ("description", "short_description", "notes", "seealso", "author")
_COMMAND_KEYS = ("command", "shell", "script", "raw", "cmd")


def _add_yaml(found: Mentions, node: yaml.Node | None, kind: Kind, key: str) -> None:
    if isinstance(node, yaml.ScalarNode):
        found.add_text(node.value, kind, prose=key not in _COMMAND_KEYS)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _add_yaml(found, item, kind, key)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode):
                found.add_text(name.value, "plugin")
                short = name.value.rpartition(".")[2]
                if short not in _PROSE_KEYS:
                    _add_yaml(found, value, _kind_below(short, kind), short)


def _kind_below(key: str, kind: Kind) -> Kind:
    if key in _ROLE_KEYS:
        return "role"
    if key == "import_playbook":
        return "playbook"
    # What a role is given says no roles.
    return "any" if kind in {"role", "playbook"} and key != "name" else kind


# --- Python ----------------------------------------------------------------------------------------------------------

_DOCUMENTATION = ("DOCUMENTATION", "EXAMPLES", "RETURN")


class _Python(ast.NodeVisitor):
    def __init__(self, found: Mentions, plugin: bool) -> None:
        self._found = found
        # Plugins call plugins. A role that is named there is a word in a message.
        self._kind: Kind = "plugin" if plugin else "any"
        self._function = ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside, self._function = self._function, self._function or node.name
        self.generic_visit(node)
        self._function = outside

    def visit_Name(self, node: ast.Name) -> None:
        self._found.used.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._found.used.add(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        # Where to look for modules is no mention of all that is there.
        if not ast.unparse(node.func).startswith("sys.path."):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self._found.imports.update(Import(0, alias.name) for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._found.imports.add(Import(node.level, node.module or "", tuple(alias.name for alias in node.names)))

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id in _DOCUMENTATION for target in node.targets):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._found.add_text(node.value, self._kind, self._function)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._found.add_text(_text(node) or "", self._kind, self._function)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """``ROOT / "roles" / name / "tasks"`` is one path."""
        if not isinstance(node.op, ast.Div):
            self.generic_visit(node)
            return
        parts: list[str] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div):
            parts.insert(0, _text(left.right) or HOLE)
            if _text(left.right) is None:
                self.visit(left.right)
            left = left.left
        self.visit(left)
        self._found.words.update(parts)
        path = "/".join(parts).lstrip("/" + HOLE)
        self._found.add_path(path, self._function, anchored=True, rooted=_is_root(left))

    def visit_Dict(self, node: ast.Dict) -> None:
        outside = self._kind
        for key, value in zip(node.keys, node.values, strict=True):
            name = _text(key) if key else None
            if key is not None:
                self._kind = "plugin"
                self.visit(key)
            self._kind = _kind_below(name.rpartition(".")[2], outside) if name else outside
            self.visit(value)
        self._kind = outside


def _text(node: ast.expr) -> str | None:
    """A string, with holes where it is formatted."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
    return None


def _is_root(node: ast.expr) -> bool:
    """A constant such as ROOT, or something made from ``__file__``."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return "__file__" in names or any(name.isupper() for name in names)


__all__ = ["COLLECTION", "HOLE", "PACKAGE", "Import", "Mentions", "Name", "Path", "mentions"]
