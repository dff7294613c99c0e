# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The rounds of a health check: which launches come next, and what their outcomes say. Pure: the clock and the nodes are the caller's.

Every check is launched over all nodes first. One that is slow, hangs or fails is taken apart by `_attribution`, one check after the
other; whom it names is left out of those that come later, which then tell whether anything else is wrong.
"""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._attribution.plan import FaultFinder, worst_case
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import COLLECTIVES, Launch, Outcome

#: How much longer than a healthy launch one may take before it is taken to hang (performance goal A5).
PATIENCE = 1.5
#: More nodes than this are screened by groups: where every group fails as well, it is the tool, and not every node.
_SMALL = 8


@dataclasses.dataclass(frozen=True)
class Request:
    """What to check.

    ``topology``: node -> its places, such as ``{"leaf": "l3"}``. ``expected_gbytes_s``: bus bandwidth of a healthy fleet by check; without
    one the parts of the fleet are compared with each other. ``noise``: relative standard deviation of a sample, if it is known.
    ``timeout_s``: of a launch while no healthy one was seen; from then on 1.5 times as long as that, and ``grace_s`` more.
    """

    nodes: tuple[str, ...]
    checks: tuple[str, ...] = ("all_reduce", "alltoall", "all_gather")
    topology: t.Mapping[str, t.Mapping[str, str]] = dataclasses.field(default_factory=dict)
    expected_gbytes_s: t.Mapping[str, float] = dataclasses.field(default_factory=dict)
    noise: float | None = None
    min_bytes: str = "8G"
    max_bytes: str = "8G"
    iterations: int = 5
    rdma: bool = True
    attribution: bool = True
    acceptance: bool = True
    timeout_s: float = 600.0
    grace_s: float = 30.0
    max_minutes: float = 0.0
    max_nodes: int = 0
    max_launches: int = 0
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be checked."""
        unknown = [name for name in self.checks if name not in COLLECTIVES]
        if unknown:
            raise ClusterError(
                "bad_input", f"There is no check {unknown[0]!r}.", f"`checks` knows {', '.join(sorted(COLLECTIVES))}."
            )
        twice = [name for names in (self.nodes, self.checks) for name in names if names.count(name) > 1]
        if twice:
            raise ClusterError("bad_input", f"{twice[0]} is named twice.", "Name each node and each check once.")
        if not self.nodes or not self.checks:
            raise ClusterError(
                "bad_input", "There is nothing to check.", "Name nodes in `nodes` and checks in `checks`."
            )
        if self.max_nodes and len(self.nodes) > self.max_nodes:
            raise ClusterError(
                "too_many_nodes",
                f"The check would take {len(self.nodes)} nodes, and `max_nodes` is {self.max_nodes}.",
                "Name fewer nodes, or raise `max_nodes`.",
            )


class HealthRun:
    """Hands out rounds, takes their outcomes, and has a document at any moment."""

    def __init__(self, request: Request) -> None:
        request.check()
        self.request = request
        self.checks = [Check(request, name) for name in request.checks]
        self.lost: dict[str, str] = {}
        self.rounds = 0
        self.launches = 0
        self.seconds = 0.0
        self.stopped = ""
        self._current: Check | None = None
        self._round: tuple[Launch, ...] = ()

    def next_round(self) -> tuple[Launch, ...]:
        """What to launch side by side; nothing when the run is over."""
        if not self._round and not self.stopped:
            self._current = next((one for one in self.checks if not one.rounds and not one.done), None) or next(
                (one for one in self.checks if not one.done), None
            )
            planned = self._current.next_round(self.rounds + 1) if self._current else ()
            self.stopped = self._bound(planned)
            self._round = () if self.stopped else planned
        return self._round

    def _bound(self, planned: tuple[Launch, ...]) -> str:
        request = self.request
        if planned and request.max_launches and self.launches + len(planned) > request.max_launches:
            return f"{request.max_launches} launches (`max_launches`) were not enough"
        if planned and request.max_minutes and self.seconds / 60 >= request.max_minutes:
            return f"{request.max_minutes:g} minutes (`max_minutes`) were not enough"
        return ""

    def record(self, outcomes: t.Sequence[Outcome], seconds: float = 0.0) -> None:
        """The outcomes of the whole round, in any order, and how long it took."""
        launches, self._round = self._round, ()
        if self._current is None or {one.id for one in outcomes} != {one.id for one in launches}:
            raise ClusterError(
                "internal", "These are not the outcomes of the round.", "Record each launch of a round once."
            )
        self.rounds += 1
        self.launches += len(launches)
        self.seconds += seconds
        lost = {node: why for one in outcomes for node, why in one.lost.items() if node in self.request.nodes}
        if len(lost) == len(self.request.nodes):
            # Also the one that asks: it is not the nodes.
            why = f"no node answers: {next(iter(lost))} {next(iter(lost.values()))}"
            outcomes, lost = [dataclasses.replace(one, lost={}, trouble=why) for one in outcomes], {}
        by_id = {one.id: one for one in outcomes}
        self._current.record(launches, [by_id[one.id] for one in launches])
        self.lost.update(lost)
        for check in self.checks:
            if not check.done:
                check.leave_out(lost)
        if self._current.done:
            for check in self.checks:
                if not check.done:
                    check.leave_out(dict.fromkeys(self._current.named(), f"named by {self._current.name}"))

    def progress(self) -> str:
        """A line about the round that was recorded last."""
        if self._current is None:
            return "nothing was launched"
        return f"round {self.rounds}: {self._current.progress()}"

    def plan(self) -> dict[str, t.Any]:
        """What a run costs before anything is known: the launches over all nodes, and the most that attribution would add."""
        worst = worst_case(len(self.request.nodes))
        rounds = worst["at_most"]["rounds"] if self.request.attribution else 1
        return {
            "nodes": len(self.request.nodes),
            "checks": list(self.request.checks),
            "first_rounds": [
                {
                    "check": one.name,
                    "nodes": len(launch.nodes),
                    "command": " ".join([launch.program, *launch.arguments]),
                }
                for one in self.checks
                for launch in one.next_round(1)
            ],
            "healthy": {"rounds": len(self.checks), "launches": len(self.checks)},
            "one_bad_node": worst["one_bad_node"],
            "at_most": {
                "rounds": rounds * len(self.checks),
                "seconds": min(
                    [rounds * len(self.checks) * self.request.timeout_s]
                    + [self.request.max_minutes * 60 + self.request.timeout_s] * bool(self.request.max_minutes)
                ),
            },
        }


class Check:
    """One collective."""

    def __init__(self, request: Request, name: str) -> None:
        self.request, self.name = request, name
        self.rounds: list[list[Outcome]] = []
        self.left_out: dict[str, str] = {}
        self.done = False
        self.measured = False
        self.sockets: tuple[str, ...] = ()
        self.trouble = ""
        self._healthy: list[tuple[float, int]] = []  # seconds and samples of launches that gave numbers
        self._begin(request.nodes)

    def _begin(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self._runs: dict[tuple[int, tuple[str, ...]], Outcome] = {}  # by the finder's round
        self._finder_rounds = 0
        self.finder = FaultFinder(
            nodes,
            topology={node: self.request.topology.get(node, {}) for node in nodes},
            expected_gbytes_s=self.request.expected_gbytes_s.get(self.name) or None,
            seed=self.request.seed,
            # Without the whole there is nothing to launch where nobody is to be found.
            acceptance=self.request.acceptance or not self.request.attribution,
            noise=self.request.noise,
        )

    def leave_out(self, nodes: t.Mapping[str, str]) -> None:
        """Begin anew without these nodes."""
        gone = {node: why for node, why in nodes.items() if node in self.nodes}
        if not gone:
            return
        self.left_out.update(gone)
        rest = tuple(node for node in self.nodes if node not in gone)
        if rest:
            self._begin(rest)
        else:
            self.done = True

    def next_round(self, number: int) -> tuple[Launch, ...]:
        planned = self.finder.next_round()
        return tuple(
            Launch(
                id=f"r{number}-{self.name}-{at}",
                nodes=launch.nodes,
                program=COLLECTIVES[self.name].program,
                arguments=_arguments(self.request, launch.samples),
                samples=launch.samples,
                timeout_s=self._timeout_s(launch.samples),
            )
            for at, launch in enumerate(planned)
        )

    def _timeout_s(self, samples: int) -> float:
        if not self._healthy:
            return self.request.timeout_s
        seconds = max(took * max(1.0, samples / counted) for took, counted in self._healthy)
        return min(self.request.timeout_s, PATIENCE * seconds + self.request.grace_s)

    def record(self, launches: t.Sequence[Launch], outcomes: list[Outcome]) -> None:
        self.rounds.append(outcomes)
        self._finder_rounds += 1
        for launch, outcome in zip(launches, outcomes):
            self._runs[self._finder_rounds, launch.nodes] = outcome
            if outcome.busbw_gbytes_s:
                self.measured = True
                self._healthy.append((outcome.seconds, launch.samples))
            if self.request.rdma and outcome.transport == ("Socket",):
                self.sockets = launch.nodes
            self.finder.record(launch.nodes, _bandwidth(outcome), incomplete=bool(_unmeasured(outcome)))
        self.done = self._is_over()

    def _is_over(self) -> bool:
        if self.sockets:
            return True  # all that is slow about it follows from that
        unmeasured = [_unmeasured(one) for one in self.rounds[-1]]
        if not self.measured and all(unmeasured) and not any(one.lost for one in self.rounds[-1]):
            self.trouble = unmeasured[0]
            return True
        if not self.measured and len(self.rounds) > 1 and len(self.nodes) > _SMALL:
            self.trouble = _failures(self.rounds[-1])
            return True
        planned = self.finder.next_round()
        if not self.request.attribution:
            return [one.nodes for one in planned] != [self.nodes]
        return not planned

    def named(self) -> list[str]:
        """Nodes that are to blame, alone or as a domain. Nobody, where no launch gave a number: then it is what all have in common."""
        if not self.measured:
            return []
        verdict = self.finder.verdict()
        domains = [node for one in verdict["bad_domains"] for node in one["nodes"]]
        return [one["node"] for one in verdict["bad_nodes"]] + domains

    def outcome_of(self, evidence: t.Mapping[str, t.Any]) -> Outcome | None:
        """The launch behind a piece of the finder's evidence."""
        return self._runs.get((evidence["round"], tuple(evidence["nodes"])))

    @property
    def value_gbytes_s(self) -> float | None:
        """Of the last launch over all that take part."""
        whole = [
            one
            for outcomes in self.rounds
            for one in outcomes
            if set(one.nodes) == set(self.nodes) and one.busbw_gbytes_s
        ]
        return round(statistics.median(whole[-1].busbw_gbytes_s), 2) if whole else None

    def progress(self) -> str:
        """What the last round was, in a line."""
        outcomes = self.rounds[-1]
        values = [statistics.median(one.busbw_gbytes_s) for one in outcomes if one.busbw_gbytes_s]
        said = (
            f"{min(values):.1f} to {max(values):.1f} GB/s"
            if len(values) > 1
            else f"{values[0]:.1f} GB/s"
            if values
            else "no number"
        )
        failed = sum(1 for one in outcomes if not one.busbw_gbytes_s)
        named = self.named()
        return (
            f"{self.name}, {len(outcomes)} launch(es) of {max(len(one.nodes) for one in outcomes)} nodes: {said}"
            + (f", {failed} without one" if failed and values else "")
            + (f"; named: {', '.join(named[:5])}{' and more' if len(named) > 5 else ''}" if named else "")
        )


def _arguments(request: Request, samples: int) -> tuple[str, ...]:
    """Options of nccl-tests. Every sample is a cycle (``-N``): programs start once."""
    sizes = ("-b", request.min_bytes, "-e", request.max_bytes, "-f", "2")
    return (*sizes, "-g", "1", "-c", "1", "-w", "2", "-n", str(request.iterations), "-N", str(samples))


def _unmeasured(outcome: Outcome) -> str:
    """Why a launch tells nothing about its nodes; empty where it does."""
    if outcome.trouble or outcome.lost:
        return outcome.trouble or "a node does not answer"
    return outcome.unreadable if outcome.rc == 0 and not outcome.timed_out else ""


def _bandwidth(outcome: Outcome) -> list[float] | None:
    """None where it hung, failed, or computed something wrong."""
    if outcome.timed_out or outcome.rc != 0 or outcome.wrong or not outcome.busbw_gbytes_s:
        return None
    return list(outcome.busbw_gbytes_s)


def _failures(outcomes: t.Sequence[Outcome]) -> str:
    """What most launches of a round failed with."""
    texts = [how_it_failed(one) for one in outcomes]
    return max(texts, key=texts.count)


def how_it_failed(outcome: Outcome) -> str:
    """In words, without its bandwidth."""
    if outcome.trouble or outcome.lost:
        return outcome.trouble or next(iter(outcome.lost.values()))
    if outcome.timed_out:
        return f"it hung: not over after {outcome.seconds:.0f} s"
    if outcome.wrong:
        return f"wrong results: {outcome.wrong} elements"
    if outcome.rc != 0:
        return f"it failed with {outcome.rc}: {outcome.unreadable}"
    return outcome.unreadable


__all__ = ["Check", "HealthRun", "Request", "how_it_failed"]
