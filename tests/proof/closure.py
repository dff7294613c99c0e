# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files whose content can change the result of a scenario, and a digest over them.

From a scenario's roots and parts on, every file that is mentioned belongs to it. A name that a program makes while
it runs stands in no file, so two rules err on the side of too much: where a name has a hole, everything that fits is taken
unless the scenario's own files say which; and a file that no scenario knows belongs to all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import posixpath
import re
import typing as t

import tomllib
import yaml
from proof import mentions, parts
from proof.mentions import HOLE, Mentions
from proof.scenario import Scenario
from proof.tree import Tree

# Every scenario asks of every file again.
_told_only = functools.cache(parts.matcher([*parts.TOLD_ONLY, parts.LEDGER]))
_by_hand = functools.cache(parts.matcher(parts.BY_HAND))
_not_followed = functools.cache(parts.matcher(parts.NOT_FOLLOWED))
#: Directories that are looked into as one: what their files mention completes each other.
_UNIT = re.compile(r"(roles/[^/]+|molecule/[^/]+|tests/unit/[^/]+|tests/[^/]+/(?:apt|cluster|dnf|vm))/")
#: The list of programs, and one of it: its name, and the module of its entry below module_utils.
_PROGRAMS = "plugins/plugin_utils/_programs.py"
_PROGRAM = re.compile(r'\bProgram\(\s*"([\w-]+)",\s*"([\w.]+):')
#: It names every module of the collection.
_RUNTIME = "meta/runtime.yml"
#: Where a task file looks for files besides its own directory.
_BESIDE = ("tasks", "handlers", "vars", "defaults", "templates")


class _Filling(t.NamedTuple):
    """A word that fits into a hole, and the files that are meant then."""

    hole: mentions.Name | mentions.Path
    word: str
    files: set[str]


@dataclasses.dataclass
class Cache:
    """What was read out of contents. It may serve many trees."""

    mentions: dict[tuple[str, str], Mentions] = dataclasses.field(default_factory=dict)
    #: By the paths of a tree, and in it by what a file and those around it say.
    references: dict[frozenset[str], dict[tuple[str, ...], frozenset[str]]] = dataclasses.field(default_factory=dict)
    fillings: dict[frozenset[str], dict[tuple[str, str], list[_Filling]]] = dataclasses.field(default_factory=dict)
    content_digests: dict[tuple[str, str], bytes] = dataclasses.field(default_factory=dict)


class References:
    """Which files of a tree refer to which."""

    def __init__(self, tree: Tree, cache: Cache | None = None) -> None:
        self._tree = tree
        self._cache = cache or Cache()
        self.paths = tree.paths()
        self._below: dict[str, set[str]] = {}
        for path in self.paths:
            directory = posixpath.dirname(path)
            while directory:
                self._below.setdefault(directory, set()).add(path)
                directory = posixpath.dirname(directory)
        self._parts: dict[str, frozenset[str]] = {}
        self._around: dict[str, str] = {}
        self._known: dict[str, frozenset[str]] = {}
        self._resolved = self._cache.references.setdefault(self.paths, {})
        self._holes = self._cache.fillings.setdefault(self.paths, {})

    def expand(self, patterns: t.Iterable[str]) -> set[str]:
        """The files that patterns name: a file, all of a directory, or what fits."""
        found: set[str] = set()
        for pattern in patterns:
            if pattern in self.paths:
                found.add(pattern)
            elif pattern.rstrip("/") in self._below:
                found |= self.below(pattern.rstrip("/"))
            elif "*" in pattern or "{" in pattern:
                found |= set(filter(parts.matcher([pattern]), self.paths))
        return found

    def below(self, directory: str) -> set[str]:
        """The files of a directory. What is run by hand is not meant, unless the directory is full of that."""
        found = self._below.get(directory, set())
        return {path for path in found if not _by_hand(path)} or found

    def part(self, name: str) -> frozenset[str]:
        if name not in self._parts:
            matching = filter(parts.matcher(parts.PARTS[name].files), self.paths)
            self._parts[name] = frozenset(path for path in matching if not _by_hand(path))
        return self._parts[name]

    def said_in(self, path: str) -> Mentions:
        key = (path, self._tree.identity(path))
        if key not in self._cache.mentions:
            self._cache.mentions[key] = mentions.mentions(path, self._tree.read(path))
        return self._cache.mentions[key]

    def of(self, path: str) -> frozenset[str]:
        """The files that this one refers to, but for those whose names have holes."""
        if path not in self._known:
            key = (path, self._tree.identity(path), self._identity_around(path), self._programs_identity)
            if key not in self._resolved:
                self._resolved[key] = frozenset(self._resolve(path)) - {path}
            self._known[path] = self._resolved[key]
        return self._known[path]

    def _identity_around(self, path: str) -> str:
        unit = _UNIT.match(path)
        if not unit:
            return ""
        if unit[1] not in self._around:
            said = sorted(f"{one} {self._tree.identity(one)}" for one in self._below[unit[1]])
            self._around[unit[1]] = hashlib.sha256("\n".join(said).encode()).hexdigest()
        return self._around[unit[1]]

    @functools.cached_property
    def _programs_identity(self) -> str:
        return self._tree.identity(_PROGRAMS) if _PROGRAMS in self.paths else ""

    def _resolve(self, path: str) -> set[str]:
        if _not_followed(path):
            return set()
        said = self.said_in(path)
        found = self._settings(path)
        for one in said.imports:
            found |= self._imported(path, one)
        for name in said.names:
            if HOLE not in name.text:
                found |= self._named(name)
        shared: set[str] = set()
        for written in said.paths:
            directory = written.text.partition("/" + HOLE)[0]
            if HOLE not in directory:
                for target in self._placed(path, written._replace(text=directory)):
                    if target in parts.SHARED:
                        shared.add(target)
                    elif directory == written.text:
                        found |= {target} if target in self.paths else self.below(target)
        if path.startswith("roles/"):
            # A package of the collection under its own name, in a list of what a role brings to the nodes.
            found |= self._inside({"plugins/module_utils"}, {word for word in said.words if word.startswith("_")})
            found |= self._programs(said.words)
        for directory in shared:
            found |= self._inside({directory}, self._words_around(path, directory)) or self.below(directory)
        return found

    def _programs(self, words: t.Collection[str]) -> set[str]:
        """The entries of programs that a role names: an import of theirs is in no file that the role refers to."""
        listed = _PROGRAM.findall(self._tree.read(_PROGRAMS).decode()) if _PROGRAMS in self.paths else []
        return {
            f"plugins/module_utils/{entry.replace('.', '/')}.py" for name, entry in listed if name in words
        } & self.paths

    # --- what is found beside a file ----------------------------------------------------------------------------------

    def _settings(self, path: str) -> set[str]:
        """What pytest and Ansible take without being told."""
        found: set[str] = set()
        directory, name = posixpath.split(path)
        if path.startswith("tests/") and (name.startswith("test_") or name == "conftest.py"):
            while directory:
                found |= {f"{directory}/conftest.py"} & self.paths
                directory = posixpath.dirname(directory)
        if path.startswith("plugins/action/"):
            found |= {f"plugins/modules/{name}"} & self.paths
        return found

    def around(self, path: str) -> set[str]:
        """The files that are looked into as one with this one."""
        unit = _UNIT.match(path)
        return self._below[unit[1]] if unit else {path}

    def _words_around(self, path: str, directory: str) -> set[str]:
        """What may be a file of the directory. Words such as ``blob`` are too common to mean one, if they are not paths."""
        near = [self.said_in(one) for one in self.around(path) if not _told_only(one)]
        if directory.startswith("plugins/"):
            return set().union(*(said.words for said in near))
        return {written.text for said in near for written in said.paths}

    def _inside(self, directories: t.Iterable[str], words: t.Iterable[str]) -> set[str]:
        """The files of directories that words name."""
        found: set[str] = set()
        for directory in directories:
            for word in words:
                bare = word.replace(HOLE, "").strip("/")
                where = f"{directory}/{bare}"
                if not bare:
                    continue
                found |= {where} & self.paths
                found |= self.below(where)
                if directory.startswith("plugins/"):
                    # As a list spells them, and as an import does.
                    found |= {f"{where}.py", f"{directory}/{bare.replace('.', '/')}.py"} & self.paths
        return found

    # --- imports ------------------------------------------------------------------------------------------------------

    def _imported(self, path: str, one: mentions.Import) -> set[str]:
        here = posixpath.dirname(path)
        module = one.module
        if one.level:
            for _step in range(one.level - 1):
                here = posixpath.dirname(here)
            bases = [here]
        elif f"{module}.".startswith(mentions.PACKAGE):
            bases, module = [""], module.removeprefix(mentions.PACKAGE[:-1]).lstrip(".")
        else:
            bases = list(dict.fromkeys([here, posixpath.dirname(here), "tests"]))
        dotted = [module] if not one.names else [f"{module}.{name}".strip(".") for name in one.names] + [module]
        for base in bases:
            found: set[str] = set().union(*(self._module(base, name.split(".")) for name in dotted if name))
            if found:
                return found
        return set()

    def _module(self, base: str, names: list[str]) -> set[str]:
        """The file of a module and those of the packages around it."""
        found: set[str] = set()
        where = base
        for number, name in enumerate(names, 1):
            where = f"{where}/{name}".lstrip("/")
            found |= {f"{where}/__init__.py"} & self.paths
            if f"{where}.py" in self.paths and (number == len(names) or where not in self._below):
                return found | {f"{where}.py"}
            if where not in self._below:
                return set()
        return found

    # --- names of the collection --------------------------------------------------------------------------------------

    def _named(self, name: mentions.Name) -> set[str]:
        found: set[str] = set()
        if name.kind in {"any", "plugin"}:
            found |= set(
                filter(
                    re.compile(rf"plugins/(?!module_utils|plugin_utils)\w+/{name.text}\.py").fullmatch, self._plugins
                )
            )
        if name.kind in {"any", "role"}:
            found |= self._below.get(f"roles/{name.text}", set())
        if name.kind in {"any", "playbook"}:
            found |= {f"playbooks/{name.text}.yml"} & self.paths
        return found

    @property
    def _plugins(self) -> set[str]:
        return self._below.get("plugins", set())

    # --- paths --------------------------------------------------------------------------------------------------------

    def _placed(self, path: str, written: mentions.Path) -> set[str]:
        """The files and directories that a path may mean, from the root or from where it is written."""
        text = written.text
        bare = re.sub(r"^(?:\.\./)+", "", text).removeprefix("ansible_collections/hpcai/gpu_cluster/")
        here = posixpath.dirname(path)
        if "*" in bare:
            return set(filter(parts.matcher([bare]), self.paths)) if "/" in bare and not bare.startswith("*") else set()
        if bare in parts.SEARCHED:
            return set()
        found = {bare} & self.paths
        if bare in self._below and ("/" in bare or written.rooted):
            found.add(bare)
        beside = [here, posixpath.dirname(here)] if posixpath.basename(here) in _BESIDE else [here]
        for base in filter(None, beside):
            target = posixpath.normpath(posixpath.join(base, text))
            found |= {target} & self.paths
            if target in self._below and ("/" in bare or written.anchored):
                found.add(target)
        return found

    # --- holes --------------------------------------------------------------------------------------------------------

    def holes(self, path: str) -> list[_Filling]:
        """What fits into the names with holes that a file mentions."""
        key = (path, self._tree.identity(path))
        if key not in self._holes:
            self._holes[key] = [] if _not_followed(path) else self._fillings(path)
        return self._holes[key]

    def _fillings(self, path: str) -> list[_Filling]:
        said = self.said_in(path)
        found: list[_Filling] = []
        for name in said.names:
            if HOLE in name.text:
                fits = re.compile(re.escape(name.text).replace(re.escape(HOLE), r"(\w+)"))
                for candidate in self._candidates(name.kind):
                    match = fits.fullmatch(candidate)
                    if match:
                        found.append(_Filling(name, match[1], self._named(mentions.Name(candidate, name.kind))))
        for written in said.paths:
            text = re.sub(r"^(?:\.\./)+", "", written.text)
            first = text.partition("/")[0]
            shared = text.partition("/" + HOLE)[0] in parts.SHARED
            if HOLE in text and HOLE not in first and first in self._below and first != text and not shared:
                fits = re.compile(re.escape(text).replace(re.escape(HOLE), "([^/]+)"))
                for target in self.paths | self._below.keys():
                    match = fits.fullmatch(target)
                    if match:
                        files = {target} if target in self.paths else self.below(target)
                        found.append(_Filling(written, match[1], files))
        return found

    def _candidates(self, kind: mentions.Kind) -> set[str]:
        found: set[str] = set()
        if kind in {"any", "plugin"}:
            found |= {
                posixpath.basename(path)[:-3]
                for path in self._plugins
                if "_utils/" not in path and path.endswith(".py")
            }
        if kind in {"any", "role"}:
            found |= {path.split("/")[1] for path in self._below.get("roles", ())}
        if kind in {"any", "playbook"}:
            found |= {
                posixpath.basename(path)[:-4] for path in self._below.get("playbooks", ()) if path.endswith(".yml")
            }
        return found


class _Walk:
    """The files of one scenario, each with the one that led to it."""

    def __init__(self, references: References, scenario: Scenario) -> None:
        self._references = references
        self.from_where: dict[str, str] = {}
        roots = references.expand(scenario.roots)
        for part in (parts.EVERYWHERE, *scenario.parts):
            files = references.part(part)
            if not parts.PARTS[part].followed:
                self.from_where.update(dict.fromkeys(files, f"part {part}"))
                continue
            self._follow(files, f"part {part}")
        self._follow(roots, "root")
        self._fill(roots)

    def _follow(self, files: t.Iterable[str], source: str) -> None:
        waiting = [(path, source) for path in sorted(files)]
        while waiting:
            path, source = waiting.pop()
            if path not in self.from_where and not _told_only(path):
                self.from_where[path] = source
                waiting += [(target, path) for target in sorted(self._references.of(path))]

    def _fill(self, roots: set[str]) -> None:
        """Holes are filled by words of the scenario's own files: its roots, and what they use beside them."""
        beside = {posixpath.dirname(path) for path in roots}
        own = roots | {path for path in self.from_where if posixpath.dirname(path) in beside}
        words = set().union(*(self._references.said_in(path).words for path in own))
        used = set().union(*(self._references.said_in(path).used for path in own))
        done: set[str] = set()
        while done != set(self.from_where):
            for path in set(self.from_where) - done:
                done.add(path)
                if self.from_where[path] != f"part {parts.EVERYWHERE}" and self._references.holes(path):
                    for files in self._filled(
                        path, words | self._references.said_in(path).words, used if path in own else None
                    ):
                        self._follow(files, path)

    def _filled(self, path: str, words: set[str], used: set[str] | None) -> t.Iterator[set[str]]:
        """``used``: the Python names that the scenario's own files use, where this is one of them."""
        holes: dict[mentions.Name | mentions.Path, list[_Filling]] = {}
        for one in self._references.holes(path):
            holes.setdefault(one.hole, []).append(one)
        for hole, fillings in holes.items():
            called = (
                used is None or not hole.function or hole.function in used or hole.function.startswith(("test_", "_"))
            )
            if called:
                meant = [one for one in fillings if one.word in words]
                yield set().union(*(one.files for one in meant or fillings))


def closures(tree: Tree, scenarios: t.Iterable[Scenario], cache: Cache | None = None) -> dict[str, frozenset[str]]:
    """Every scenario's files by its name. A file that none of them knows belongs to all."""
    references = References(tree, cache)
    given = list(scenarios)
    found = {one.name: set(_Walk(references, one).from_where) for one in given}
    known = set().union(*(references.expand(one.roots) if one.walks else found[one.name] for one in given))
    strangers = {path for path in references.paths - known if not _told_only(path) and not _by_hand(path)}
    walked = {one.name: references.expand(one.walks) - {parts.LEDGER} for one in given}
    return {name: frozenset(files | strangers | walked[name]) for name, files in found.items()}


def chain(tree: Tree, scenario: Scenario, path: str) -> list[str]:
    """Why a file belongs to a scenario: the files that lead to it, the scenario's own first. Empty where none does."""
    from_where = _Walk(References(tree), scenario).from_where
    found: list[str] = []
    while path in from_where:
        found.insert(0, path)
        path = from_where[path]
    return [path, *found] if found else []


def digest(tree: Tree, paths: t.Iterable[str], how: str = "", cache: Cache | None = None) -> str:
    """A digest over paths and contents. ``how``: how the scenario is run, where that shall count."""
    cache = cache or Cache()
    total = hashlib.sha256(how.encode())
    chosen = sorted(paths)
    for path in chosen:
        if path == _RUNTIME:
            content = hashlib.sha256(_groups_among(tree.read(path), chosen)).digest()
        else:
            key = (path, tree.identity(path))
            if key not in cache.content_digests:
                cache.content_digests[key] = hashlib.sha256(_relevant(path, tree.read(path))).digest()
            content = cache.content_digests[key]
        total.update(b"\0%d\0" % len(path.encode()) + path.encode() + content)
    return total.hexdigest()


def _groups_among(content: bytes, paths: t.Collection[str]) -> bytes:
    """The collection's settings, without the modules that are not among the paths: no default of a group reaches them here."""
    try:
        said = yaml.safe_load(content)
        groups = {
            name: [one for one in members if not isinstance(one, str) or f"plugins/modules/{one}.py" in paths]
            for name, members in said.get("action_groups", {}).items()
        }
    except (yaml.YAMLError, AttributeError, TypeError):
        return content
    kept = {name: members for name, members in groups.items() if members}
    return json.dumps({**said, "action_groups": kept}, sort_keys=True).encode()


def _relevant(path: str, content: bytes) -> bytes:
    """The content; of the Python tools' settings, what pytest reads."""
    if path != "pyproject.toml":
        return content
    try:
        tools = tomllib.loads(content.decode()).get("tool", {})
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return content
    return json.dumps({name: tools[name] for name in ("pytest", "coverage") if name in tools}, sort_keys=True).encode()


__all__ = ["Cache", "References", "chain", "closures", "digest"]
