# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is said of a fleet: who is bad, by which launches, and how sure that is."""

from __future__ import annotations

import math
import typing as t

from .judge import Judge
from .model import Run

#: How often a launch of good nodes hangs or fails. No source: one in a hundred is more than anybody would put up with.
FAILS_BY_CHANCE = 0.01
#: No number of samples makes a launch that was measured once more certain than this.
LEAST_CHANCE = 1e-4


class Link(t.NamedTuple):
    ends: tuple[str, str]  # two nodes, or two domains as ``key=value``
    nodes: tuple[
        str, ...
    ]  # one of the two, or those of one of the domains, have to stay away for the others to be fast
    runs: list[Run]


class Domain(t.NamedTuple):
    name: str
    nodes: tuple[str, ...]
    runs: list[Run]


def report(
    *,
    nodes: t.Sequence[str],
    judge: Judge,
    runs: t.Sequence[Run],
    bad: t.Mapping[str, list[Run]],
    links: t.Sequence[Link],
    domains: t.Sequence[Domain],
    unknown: t.Mapping[str, str],
    accepted: bool | None,
    stopped: str,
) -> dict[str, t.Any]:
    """Lists of dicts: what is blamed, ``confidence`` (0 to 1), and the launches that convict it as ``evidence``."""
    blamed = dict(bad)
    reasons = dict(unknown)
    if stopped:
        named = {*blamed, *(node for domain in domains for node in domain.nodes)}
        reasons.update((node, stopped) for node in nodes if node not in named)
    expected = judge.is_expected(2) or (accepted and judge.is_expected(len(nodes)))
    if 2 * len(blamed) > len(nodes) and not expected:
        # Against launches of each other the larger part cannot be called slow: the few may be the odd ones.
        reasons.update(dict.fromkeys(nodes, "more than half of the fleet differs, and nothing was expected of it"))
        blamed = {}

    def of(convicting: t.Sequence[Run]) -> dict[str, t.Any]:
        return {"confidence": _confidence(judge, convicting), "evidence": [_evidence(judge, run) for run in convicting]}

    return {
        "bad_nodes": [{"node": node, **of(blamed[node])} for node in nodes if node in blamed],
        "bad_links": [{"between": list(link.ends), **of(link.runs)} for link in links],
        "bad_domains": [{"domain": domain.name, "nodes": list(domain.nodes), **of(domain.runs)} for domain in domains],
        "unknown": [{"node": node, "reason": reasons[node]} for node in nodes if node in reasons],
        "accepted": accepted,
        "rounds": max((run.number for run in runs), default=0),
        "launches": len(runs),
    }


def _confidence(judge: Judge, runs: t.Sequence[Run]) -> float:
    """1 - the chance that healthy nodes give all of these launches: of each the tail of the normal distribution below the floor."""
    chance = 1.0
    for run in runs:
        deficit = judge.deficit(run)
        by_chance = FAILS_BY_CHANCE if deficit is None else math.erfc(deficit / math.sqrt(2)) / 2
        chance *= max(by_chance, LEAST_CHANCE)
    return round(1 - chance, 6)


def _evidence(judge: Judge, run: Run) -> dict[str, t.Any]:
    """A launch: ``busbw_gbytes_s`` None where it hung or failed, and what it should have been."""
    baseline = judge.baseline(run.scale)
    return {
        "round": run.number,
        "nodes": list(run.nodes),
        "busbw_gbytes_s": run.busbw_gbytes_s,
        "baseline_gbytes_s": baseline,
        "samples": run.samples,
    }
