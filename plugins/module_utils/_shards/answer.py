# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What M(hpcai.gpu_cluster.azcopy_shard) answers: the share of each rank, as patterns and as names."""

from __future__ import annotations

import collections
import typing as t
from bisect import bisect_right
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.patterns import (
    MAX_ARGUMENT_BYTES,
    Template,
    escape,
    fits_a_pattern,
    fits_an_argument,
    join,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.plan import (
    contiguous,
    imbalance,
    plan_shards,
    round_robin,
)

# AzCopy tries every pattern on every name that it lists: what is longer than this is better copied by a file list.
MAX_PATTERN_BYTES = 4096


@dataclass(frozen=True)
class Index:
    """File names that differ in a running number."""

    template: str
    count: int
    start: int = 0
    order: str = "contiguous"  # or round_robin


class Share(t.NamedTuple):
    """What one rank copies. ``use`` says how: by ``pattern``, by ``file_list``, or ``nothing``.

    ``include_pattern`` is empty for the last two, where it must not reach AzCopy: that would copy everything.
    """

    rank: int
    skip: bool
    use: str
    patterns: list[str]
    include_pattern: str
    files: list[str]
    expected_files: int | None  # None: unknown, since only patterns were given
    expected_bytes: int | None


class Shares(t.NamedTuple):
    """The shares that were asked for, and max/ideal over those of all ranks."""

    shares: list[Share]
    imbalance: float


def share_out(
    world_size: int,
    *,
    rank: int | None = None,
    index: Index | None = None,
    files: t.Sequence[tuple[str, int]] | None = None,
    pattern_style: str = "compact",
    file_cost_bytes: int = 0,
) -> Shares:
    """The shares of all ranks, or of ``rank`` alone: by the numbers in the names, or balanced by bytes without them."""
    if world_size < 1:
        raise ClusterError("bad_input", f"world_size is {world_size}.", "Give the number of ranks, one or more.")
    if rank is not None and not 0 <= rank < world_size:
        raise ClusterError(
            "bad_input",
            f"rank is {rank}, but world_size {world_size} has the ranks 0 to {world_size - 1}.",
            "Give a rank in this range, or leave it out for the shares of all ranks.",
        )
    if files is not None:
        _check_files(files)
    ranks = range(world_size) if rank is None else range(rank, rank + 1)
    if index is not None:
        return _by_number(index, files, world_size, ranks, pattern_style)
    if files is None:
        raise ClusterError("bad_input", "There is nothing to share out.", "Give index, files or manifest.")
    return _by_bytes(files, world_size, ranks, file_cost_bytes)


def _by_bytes(files: t.Sequence[tuple[str, int]], world_size: int, ranks: range, cost: int) -> Shares:
    if cost < 0:
        raise ClusterError("bad_input", f"file_cost_bytes is {cost}.", "Give zero or more bytes.")
    plan = plan_shards([size + cost for _name, size in files], world_size)
    bases = collections.Counter(name.rpartition("/")[2] for name, _size in files)
    shares = []
    for rank in ranks:
        mine = [files[member] for member in plan.shares[rank]]
        shares.append(_share(rank, _literal_globs([name for name, _size in mine], bases), mine))
    return Shares(shares, plan.imbalance)


def _by_number(
    index: Index, files: t.Sequence[tuple[str, int]] | None, world_size: int, ranks: range, style: str
) -> Shares:
    if index.count < 1 or index.start < 0:
        raise ClusterError(
            "bad_input",
            f"index has start {index.start} and count {index.count}.",
            "Give a start of zero or more and a count of one or more.",
        )
    template = Template(index.template)
    indexes = range(index.start, index.start + index.count)
    template.check_range(indexes)
    parts = (round_robin if index.order == "round_robin" else contiguous)(index.count, world_size)
    blocks = [indexes[part.start : part.stop : part.step] for part in parts]
    if files is None:
        loads = [len(block) for block in blocks]
        return Shares([_unlisted(rank, template, blocks[rank], style) for rank in ranks], imbalance(loads, 1))
    starts = [block.start for block in blocks]
    members: list[list[tuple[str, int]]] = [[] for _rank in range(world_size)]
    for name, size in files:
        number = template.index_of(name, indexes)
        # Of several blocks that begin at the same number all but the last are empty.
        offset = number - index.start
        owner = offset % world_size if index.order == "round_robin" else bisect_right(starts, number) - 1
        members[owner].append((name, size))
    loads = [sum(size for _name, size in mine) for mine in members]
    if not any(loads):
        loads = [len(mine) for mine in members]
    shares = [_share(rank, _globs(template, blocks[rank], style), members[rank]) for rank in ranks]
    heaviest = max((size for _name, size in files), default=0)
    return Shares(shares, imbalance(loads, heaviest))


def _unlisted(rank: int, template: Template, block: range, style: str) -> Share:
    """A share of which only the numbers are known: how many files carry one of them shows in a listing alone."""
    names = [template.name(number) for number in block] if template.is_literal else []
    if not block:
        return _share(rank, [], [])
    globs = _globs(template, block, style)
    if not fits_an_argument(globs, MAX_ARGUMENT_BYTES) and not names:
        raise ClusterError(
            "bad_input",
            f"The patterns of rank {rank} are longer than an argument may be ({MAX_ARGUMENT_BYTES} bytes).",
            "Use order: contiguous, or give files or a manifest, so that file lists can be used.",
        )
    if not fits_an_argument(globs, MAX_ARGUMENT_BYTES):
        return Share(rank, False, "file_list", [], "", names, len(names), None)
    return Share(rank, False, "pattern", globs, join(globs), names, len(names) if names else None, None)


def _share(rank: int, globs: list[str], mine: list[tuple[str, int]]) -> Share:
    names = [name for name, _size in mine]
    total = sum(size for _name, size in mine)
    if not names:
        return Share(rank, True, "nothing", [], "", [], 0, 0)
    if not globs or not fits_an_argument(globs, MAX_PATTERN_BYTES):
        return Share(rank, False, "file_list", [], "", names, len(names), total)
    return Share(rank, False, "pattern", globs, join(globs), names, len(names), total)


def _globs(template: Template, block: range, style: str) -> list[str]:
    if style == "literal":
        literal = [template.name(number) for number in block]
        if fits_an_argument(literal, MAX_PATTERN_BYTES):
            return literal
    return template.globs(block)


def _literal_globs(names: list[str], bases: t.Mapping[str, int]) -> list[str]:
    """One glob per file, or none at all where globs would select other files too, or cannot name one of these."""
    globs = []
    for name in names:
        base = name.rpartition("/")[2]
        if bases[base] > 1 or not fits_a_pattern(base):
            return []
        globs.append(escape(base))
    return globs


def _check_files(files: t.Sequence[tuple[str, int]]) -> None:
    if not files:
        raise ClusterError(
            "no_match", "The list of files is empty.", "Check the prefix that was listed, or skip the copy."
        )
    seen: set[str] = set()
    for name, size in files:
        fault = ""
        if name in seen:
            fault = "is listed twice"
        elif size < 0:
            fault = f"has a size of {size} bytes"
        elif not name or name.endswith("/"):
            fault = "is not the name of a file"
        elif "\n" in name or "\r" in name or "\0" in name:
            fault = "holds a NUL or a line break, which no list of files can hold"
        if fault:
            raise ClusterError("bad_input", f"The file {name!r} {fault}.", "Correct the list of files.", name=name)
        seen.add(name)


__all__ = ["MAX_PATTERN_BYTES", "Index", "Share", "Shares", "share_out"]
