# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What containerd's files set for the plugin that starts Kubernetes' containers, carried over into our part.

containerd 1 puts an imported file's section of a plugin in the place of the whole section that was there, so a part that named
the NVIDIA runtime alone would lose registries, sandbox image, CNI and ``SystemdCgroup``. containerd 2 merges (containerd#5837,
#7982, #9982), and files of version 3 are only its own. In both each runtime has options of its own, and all have to agree on the
driver of cgroups (containerd, docs/cri/config.md), so ours takes those of the runtime that is the default without it.

However a file writes a section, as tables, dotted keys or one inline table, it is a tree here whose values are pieces of that file.
"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import toml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.toml import Tree
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

RUNTIME, BINARY = "nvidia", "/usr/bin/nvidia-container-runtime"
_RUNC = "io.containerd.runc.v2"
# What messages call the output of `containerd config dump`.
_DUMP = "What containerd says of its settings"
# In a dump the same as not set; there is one sandboxer only.
_NOTHING = ("", '""', "''", "false", "0", "[]", "{}", '"podsandbox"', "'podsandbox'")


def section(tree: Tree, plugin: str) -> Tree | None:
    """The section of a plugin in a file; None where it has none."""
    plugins = _table(tree, "plugins")
    return _table(plugins, plugin) if plugin in plugins else None


def _table(tree: Tree, name: str) -> Tree:
    """A table in another one; empty where there is none."""
    found = tree.get(name, {})
    if not isinstance(found, dict):
        raise ClusterError(
            "containerd_config",
            f"`{name}` in containerd's settings is not a table, so that nothing can be set in it.",
            "Correct it, or configure containerd another way and set `containerd: false`.",
        )
    return found


def last(trees: t.Sequence[Tree], plugin: str) -> Tree:
    """The section that is in effect where the last of these files that has one decides, as with containerd 1."""
    for tree in reversed(trees):
        found = section(tree, plugin)
        if found is not None:
            return found
    return {}


def merged(trees: t.Iterable[Tree], plugin: str) -> Tree:
    """The section as containerd 2 makes it of these files: each key is the last one's."""
    both: Tree = {}
    for tree in trees:
        both = _over(both, section(tree, plugin) or {})
    return both


def _over(one: Tree, two: Tree) -> Tree:
    both = dict(one)
    for name, value in two.items():
        deep = isinstance(value, dict) and isinstance(both.get(name), dict)
        both[name] = _over(both[name], value) if deep else value
    return both


def chosen(found: Tree) -> str:
    """The default runtime that a section names; empty where it names none."""
    named = _table(found, "containerd").get("default_runtime_name")
    return (toml.text_of(named) or "") if isinstance(named, str) else ""


def in_effect(dump: str) -> tuple[str, str] | None:
    """The default runtime of Kubernetes' containers and its program, in what `containerd config dump` says.

    None where the plugin is disabled.
    """
    plugins = _table(toml.read(dump, _DUMP).tree, "plugins")
    # containerd 1's plugin, and containerd 2's; others have no such table.
    for found in plugins.values():
        runtime = chosen(found) if isinstance(found, dict) and isinstance(found.get("containerd"), dict) else ""
        if runtime:
            options = _table(_table(_table(found["containerd"], "runtimes"), runtime), "options")
            binary = options.get("BinaryName", "")
            return runtime, (toml.text_of(binary) or "") if isinstance(binary, str) else ""
    return None


def lost(before: str, after: str, others: t.Sequence[str]) -> str:
    """The first setting of one dump of containerd that another one lacks, or has otherwise; empty where there is none.

    Not counted: the default runtime, ours, what is read, what is as good as not set, and words that stand in files of ``others``.
    """
    now = dict(_settings(toml.read(after, _DUMP).tree))
    for path, value in _settings(toml.read(before, _DUMP).tree):
        ours = path[3:5] == ("runtimes", RUNTIME) or path[-1] == "default_runtime_name"
        told = any(path[-1] in text for text in others)
        counts = not ours and not told and path not in (("imports",), ("version",)) and value not in _NOTHING
        if counts and now.get(path) != value:
            return ".".join(path)
    return ""


def _settings(tree: Tree, above: toml.Path = ()) -> t.Iterator[tuple[toml.Path, t.Any]]:
    """Every value with where it stands; an array of tables is one."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _settings(value, (*above, name))
        else:
            yield (*above, name), value


def with_nvidia(found: Tree, *, whole: bool) -> Tree:
    """The NVIDIA runtime as the default one and otherwise like the one that was the default in the section ``found``.

    ``whole``: together with all of that section, because nothing else is in effect beside the part, containerd's own default of
    that runtime included.
    """
    named = chosen(found)
    base = named if named not in ("", RUNTIME) else "runc"
    runtimes = _table(_table(found, "containerd"), "runtimes")
    runc: Tree = {"runtime_type": f'"{_RUNC}"'}
    like = _table(runtimes, base)
    ours = {**like, **runc, "options": {**_table(like, "options"), "BinaryName": f'"{BINARY}"'}}
    set_here: Tree = {"default_runtime_name": f'"{RUNTIME}"', "runtimes": {RUNTIME: ours}}
    if not whole:
        return copy.deepcopy({"containerd": set_here})
    set_here["runtimes"] = {**runtimes, base: runtimes.get(base, runc), RUNTIME: ours}
    return copy.deepcopy({**found, "containerd": {**_table(found, "containerd"), **set_here}})


__all__ = ["BINARY", "RUNTIME", "chosen", "in_effect", "last", "lost", "merged", "section", "with_nvidia"]
