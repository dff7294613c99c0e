# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which node is it? Rounds of collectives, side by side, until those that slow the fleet down are named.

The whole fleet first: where it is fast, that was all. Then groups; then the members of slow groups, each with another partner that was
proven good; then the whole again without the condemned. What is slow as a whole and fast in every part is looked for along the topology,
from the narrowest domain to the widest, and then by halves until two nodes are left whose link it is.

Everything is decided from what was recorded, and chance comes from the seed: the same records in the same order give the same rounds, so
a check that was interrupted goes on from its journal. Pure: no clock, no I/O.
"""

from __future__ import annotations

import math
import random
import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

from .groups import Pair, Topology, group_size, groups, tournament
from .judge import Judge
from .model import Found, Launch, Run, Scale, Trial
from .verdict import Domain, Link, report

#: Up to here all pairs are tried: seven rounds at most, and no node has to be believed good before it is.
SMALL = 8
#: Launches that a node or a domain gets after its first before it stays unknown.
TRIES = 4
#: How often the fleet is searched again because it is still slow without those that were found.
SEARCHES = 3
CONTROLS = 2
#: Rounds on end without any measurement: a parser or launcher that is broken everywhere.
MOST_UNMEASURED = 2

_Party = tuple[str, ...]
_Result = t.TypeVar("_Result")


class _Round(t.NamedTuple):
    parties: list[tuple[_Party, Scale]]
    samples: int


_Steps = t.Generator[_Round, list[Run], _Result]


class _Standing(t.NamedTuple):
    good: set[str]
    bad: dict[str, list[Run]]
    links: dict[Pair, list[Run]]


class FaultFinder:
    """Asks for rounds of launches, takes what they measured, and says who is bad.

    ``topology`` has for each node its place, for example ``{"leaf": "leaf-3", "rack": "r12"}``. ``expected_gbytes_s`` is the bus bandwidth
    of a healthy fleet: a number for the whole of it, or by node count. What is not given is learned from launches of the same
    size, and then the whole fleet cannot be called fast before its parts were compared. ``noise`` is the relative standard deviation of
    a sample, where it is known. Without ``acceptance`` the whole fleet is never launched.
    """

    def __init__(
        self,
        nodes: t.Sequence[str],
        topology: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
        expected_gbytes_s: float | t.Mapping[int, float] | None = None,
        seed: int = 0,
        acceptance: bool = True,
        noise: float | None = None,
    ) -> None:
        if not nodes or len(set(nodes)) != len(nodes):
            raise ClusterError(
                "bad_nodes", "The check needs nodes, each of them once.", "Name each node once in the list of nodes."
            )
        self._nodes = tuple(nodes)
        expected: t.Mapping[int, float] = {}
        if isinstance(expected_gbytes_s, t.Mapping):
            expected = expected_gbytes_s
        elif expected_gbytes_s is not None:
            expected = {len(nodes): expected_gbytes_s}
        self._judge = Judge(expected, noise)
        self._topology = Topology(topology or {}, self._nodes)
        self._chance = random.Random(seed)  # noqa: S311 - the same seed has to give the same rounds
        self._acceptance = acceptance or len(nodes) <= 2
        self._runs: list[Run] = []
        self._trials: list[Trial] = []  # of nodes, in the search that is going on
        self._bad: dict[str, list[Run]] = {}
        self._links: list[Link] = []
        self._domains: list[Domain] = []
        self._unexplained: list[_Party] = []
        self._unknown: dict[str, str] = {}
        self._accepted: bool | None = None
        self._stopped = ""
        self._unmeasured_rounds = 0
        self._number = 0
        self._answers: dict[_Party, list[float] | None] = {}
        self._incomplete: set[_Party] = set()
        self._steps = self._check()
        self._round: _Round | None = next(self._steps)

    def next_round(self) -> list[Launch]:
        """What to launch now, side by side; no node is in two of them. Empty when the check is over.

        Of a round that was interrupted, those that are not recorded yet.
        """
        if self._round is None:
            return []
        parties = [nodes for nodes, _scale in self._round.parties if nodes not in self._answers]
        return [Launch(nodes, self._round.samples) for nodes in parties]

    def record(
        self, nodes: t.Sequence[str], busbw_gbytes_s: t.Sequence[float] | None, incomplete: bool = False
    ) -> None:
        """What a launch of this round measured: a number for each sample; None if it hung or failed.

        ``incomplete``, or no number at all: nothing was measured and no node is to blame, as where a tool is missing.
        """
        launched = tuple(nodes)
        if launched not in {launch.nodes for launch in self.next_round()}:
            raise ClusterError(
                "not_in_round",
                f"Round {self._number + 1} has no open launch of {len(launched)} nodes from {', '.join(launched[:2])} on.",
                "Record each launch of a round once, with its nodes in their order.",
            )
        self._answers[launched] = None if busbw_gbytes_s is None else list(busbw_gbytes_s)
        if incomplete or (busbw_gbytes_s is not None and not busbw_gbytes_s):
            self._incomplete.add(launched)
        if not self.next_round():
            self._advance()

    def verdict(self) -> dict[str, t.Any]:
        """``bad_nodes``, ``bad_links``, ``bad_domains``, ``unknown``, ``accepted`` and ``rounds``, as far as is known by now.

        ``accepted`` is True where the fleet, without what is named, was as fast as expected, False where it was not, and None where
        it was not launched or there is nothing to compare it with.
        """
        return report(
            nodes=self._nodes,
            judge=self._judge,
            runs=self._runs,
            bad=self._bad,
            links=self._links,
            domains=self._domains,
            unknown=self._unknown,
            accepted=self._accepted,
            stopped=self._stopped,
        )

    def _advance(self) -> None:
        if self._round is None:
            return
        self._number += 1
        ended: list[tuple[Run, list[float]]] = []
        for nodes, scale in self._round.parties:
            samples = self._answers[nodes] or []
            value = statistics.median(samples) if samples else None
            ended.append((Run(self._number, nodes, scale, value, len(samples), nodes in self._incomplete), samples))
        self._judge.add((run, samples) for run, samples in ended if not run.incomplete)
        runs = [run for run, _samples in ended]
        self._runs += runs
        self._answers, self._incomplete = {}, set()
        self._unmeasured_rounds = self._unmeasured_rounds + 1 if all(run.incomplete for run in runs) else 0
        self._round = None
        if self._unmeasured_rounds == MOST_UNMEASURED:
            self._stopped = "no launch of the last rounds was measured"
        elif self._number >= most_rounds(len(self._nodes)):
            self._stopped = f"{self._number} rounds did not tell"
        else:
            self._round = _next(self._steps, runs)

    # What follows are the steps of a check. Each `yield` hands out a round and gets its runs.

    def _check(self) -> _Steps[None]:
        whole = Found.UNCLEAR
        if self._acceptance:
            whole = yield from self._whole()
        if whole is Found.FAST:
            return
        if len(self._nodes) <= 2:
            reason = (
                "it is slow, and no other node can tell which" if whole is Found.SLOW else "nothing to compare it with"
            )
            self._unknown.update(dict.fromkeys(self._nodes, reason))
            return
        for _search in range(SEARCHES):
            found = yield from self._find_nodes(whole)
            if not self._acceptance or (whole is Found.UNCLEAR and not found):
                return
            if (yield from self._is_accepted()):
                return
            if found:
                continue
            if not (yield from self._find_in_fabric()):
                break
            if (yield from self._is_accepted()):
                return
        slow = [node for node in self._active() if node not in self._unknown]
        self._unknown.update(dict.fromkeys(slow, "the nodes that are left are slow together, and fast in every part"))

    def _launch(
        self,
        parties: t.Sequence[_Party],
        size: int,
        members: t.Mapping[str, t.Sequence[str]] | None = None,
        doubt: int = 0,
    ) -> _Steps[list[Trial]]:
        """A round. ``size`` says what its launches are compared with; ``members`` are the nodes of domains."""
        if not parties:
            return []
        planned = []
        for party in parties:
            nodes = party if members is None else tuple(node for item in party for node in members[item])
            planned.append((nodes, (size, self._topology.spanned(nodes))))
        runs = yield _Round(planned, self._judge.samples(doubt))
        return [Trial(party, run) for party, run in zip(parties, runs)]

    def _whole(self) -> _Steps[Found]:
        """Whether those that are left are fast together. UNCLEAR where there is nothing to compare them with."""
        found = Found.UNCLEAR
        nodes = tuple(self._active())
        for doubt in range(2):
            [trial] = yield from self._launch([nodes], len(self._nodes), doubt=doubt)
            deficit = self._judge.deficit(trial.run)
            # One margin only: more would launch healthy fleets twice whose slowest of a thousand nodes is 1.6 % below the others.
            found = self._judge.find(trial.run, margin=1.0 if doubt == 0 else 0.0)
            if found is not Found.UNCLEAR or (deficit is None and not trial.run.incomplete):
                break
        self._accepted = {Found.FAST: True, Found.SLOW: False, Found.UNCLEAR: None}[found]
        return found

    def _is_accepted(self) -> _Steps[bool]:
        """Also where nobody is left to be launched: no launch was fast, and more of them tell nothing."""
        if len(self._active()) < 2:
            self._accepted = None
            return True
        return (yield from self._whole()) is not Found.SLOW

    def _active(self) -> list[str]:
        """Those that are to be fast together: without the condemned, the unknown, and one end of each bad link."""
        out = {node for domain in self._domains for node in domain.nodes} | {link.nodes[0] for link in self._links}
        return [node for node in self._nodes if node not in self._bad and node not in self._unknown and node not in out]

    def _standing(self, trials: t.Sequence[Trial]) -> _Standing:
        """Who was in a fast launch is good. Slow beside one that is good is bad. Two that are good and slow together have a bad link."""
        found = [(trial, self._judge.find(trial.run)) for trial in trials]
        good = {item for trial, speed in found if speed is Found.FAST for item in trial.items}
        bad: dict[str, list[Run]] = {}
        links: dict[Pair, list[Run]] = {}
        unclear: dict[str, int] = {}
        for trial, speed in found:
            if speed is Found.FAST or len(trial.items) != 2:
                continue
            suspects = [item for item in trial.items if item not in good]
            if speed is Found.UNCLEAR:
                unclear.update((item, unclear.get(item, 0) + 1) for item in suspects if len(suspects) == 1)
            elif len(suspects) == 1:
                bad.setdefault(suspects[0], []).append(trial.run)
            elif not suspects:
                links.setdefault((min(trial.items), max(trial.items)), []).append(trial.run)
        # One slow launch and one that could be fast may be a bad link.
        bad = {node: runs for node, runs in bad.items() if len(runs) > unclear.get(node, 0)}
        return _Standing(good, bad, links)

    def _resolve(
        self,
        asked: t.Sequence[str],
        trials: list[Trial],
        size: int = 2,
        members: t.Mapping[str, t.Sequence[str]] | None = None,
    ) -> _Steps[_Standing]:
        """Launch each of ``asked`` with another that is good, until it is known what it is. Adds to ``trials``."""
        for doubt in range(TRIES):
            standing = self._standing(trials)
            open_items = [item for item in asked if item not in standing.good and item not in standing.bad]
            met = {frozenset(trial.items) for trial in trials}
            good = [item for item in (members or self._nodes) if item in standing.good and item not in self._bad]
            pairs = self._topology.partners(open_items, good, met)
            if not pairs:
                return standing
            trials += yield from self._launch([*pairs, *self._controls(pairs, good, members)], size, members, doubt)
        return self._standing(trials)

    def _controls(self, pairs: list[Pair], good: list[str], members: t.Mapping[str, t.Any] | None) -> list[Pair]:
        """Good pairs for what no launch of its kind was measured before: suspects alone would set their own baseline."""
        if members is not None:
            return []
        controls: list[Pair] = []
        scales = {(2, self._topology.spanned(pair)): pair for pair in pairs}
        for scale, pair in scales.items():
            if not self._judge.is_known(scale):
                busy = {node for one in (*pairs, *controls) for node in one}
                controls += self._topology.controls(pair, [node for node in good if node not in busy], CONTROLS)
        return controls

    def _find_nodes(self, whole: Found) -> _Steps[bool]:
        """Screen all that are left, and try the suspects one by one. Whether somebody was found."""
        order = self._topology.shuffled(self._active(), self._chance)
        known = len(self._bad) + len(self._links)
        trials = self._trials = []
        if len(order) <= SMALL:
            yield from self._all_pairs(order, trials, whole)
        else:
            size = group_size(len(order))
            trials += yield from self._launch(groups(order, size), size)
        standing = yield from self._resolve(order, trials)
        if (yield from self._hear_inside(trials)):
            standing = yield from self._resolve(order, trials)
        self._bad.update(standing.bad)
        # Whom a partner has condemned that is condemned itself is heard again.
        doubtful = [
            node for node, runs in self._bad.items() if all(self._bad.keys() & set(run.nodes) > {node} for run in runs)
        ]
        for node in doubtful:
            del self._bad[node]
        if doubtful:
            standing = yield from self._resolve(doubtful, trials)
            self._bad.update(standing.bad)
        self._name_domains()
        for pair, runs in standing.links.items():
            yield from self._convict_link(pair, runs)
        fast = standing.good - self._bad.keys()
        named = self._bad.keys() | {node for domain in self._domains for node in domain.nodes}
        for node in [*order, *doubtful]:
            if node not in fast and node not in named:
                self._unknown[node] = "no launch with it was fast, and none told whose fault it is"
        slow = [trial for trial in trials if len(trial.items) > 2 and self._judge.find(trial.run) is Found.SLOW]
        self._unexplained = [trial.items for trial in slow if fast.issuperset(trial.items)]
        return len(self._bad) + len(self._links) > known or bool(self._domains)

    def _hear_inside(self, trials: list[Trial]) -> _Steps[bool]:
        """Where hardly a node of a domain was fast in a launch that leaves it, the way out may be bad: its nodes are heard inside of it.

        The pairs that crossed its border say nothing of them and are dropped. Whether there was such a domain.
        """
        good, met = self._standing(trials).good, {frozenset(trial.items) for trial in trials}
        pairs: list[Pair] = []
        dropped: list[Trial] = []
        while True:
            nodes, crossed = self._cut_off(trials)
            if not crossed:
                break
            trials[:] = [trial for trial in trials if trial not in crossed]
            dropped += crossed
            asked = [node for node in nodes if any(node in trial.items for trial in crossed)]
            inside_good = [node for node in nodes if node in good]
            pairs += self._topology.partners([node for node in asked if node not in good], inside_good, met)
        trials += yield from self._launch(pairs, 2)
        return bool(dropped)

    def _cut_off(self, trials: t.Sequence[Trial]) -> tuple[list[str], list[Trial]]:
        """The domain that most slow pairs leave while hardly a launch does that is fast, and those pairs."""
        found = [(trial, self._judge.find(trial.run)) for trial in trials]
        worst: tuple[list[str], list[Trial]] = [], []
        for nodes in (
            nodes for key in self._topology.keys for nodes in self._topology.domains(key, self._nodes).values()
        ):
            inside = set(nodes)
            crossing = [
                (trial, speed) for trial, speed in found if 0 < len(inside.intersection(trial.items)) < len(trial.items)
            ]
            slow = [trial for trial, speed in crossing if speed is Found.SLOW and len(trial.items) == 2]
            fast = sum(1 for _trial, speed in crossing if speed is Found.FAST)
            if len(slow) > max(1, len(worst[1])) and len(slow) >= 4 * fast:  # by chance a few are fast
                worst = nodes, slow
        return worst

    def _all_pairs(self, order: t.Sequence[str], trials: list[Trial], whole: Found) -> _Steps[None]:
        """As many rounds as it takes to tell. Three at least where nothing is expected: in one all pairs may be slow alike."""
        # Of three, one that hangs leaves a single pair with a number: that takes a second one to be compared with.
        for number, pairs in enumerate([*tournament(order)] * (2 if len(order) <= 3 else 1), 1):
            trials += yield from self._launch(pairs, 2)
            standing = self._standing(trials)
            told = bool(standing.bad or standing.links) or (whole is not Found.SLOW and number >= 3)
            if any(len(runs) < 2 for runs in standing.bad.values()):
                continue  # one slow pair may be a bad link
            if told and standing.good.union(standing.bad).issuperset(order):
                return

    def _name_domains(self) -> None:
        """A domain of which every node is bad is named instead of them, unless so many are bad that chance does it."""
        for key in reversed(self._topology.keys):
            domains = self._topology.domains(key, self._nodes)
            for name, nodes in domains.items():
                if len(nodes) < 2 or not self._bad.keys() >= set(nodes):
                    continue
                # Others that are bad, and one more so that there is never none.
                share = (len(self._bad) - len(nodes) + 1) / (len(self._nodes) - len(nodes) + 1)
                if len(domains) * share ** len(nodes) < 0.01:
                    self._domains.append(
                        Domain(name, tuple(nodes), [run for node in nodes for run in self._bad.pop(node)])
                    )

    def _convict_link(self, pair: Pair, runs: list[Run]) -> _Steps[bool]:
        """Both ends were fast with others: the pair is launched once more before it is blamed."""
        [trial] = yield from self._launch([pair], 2, doubt=1)
        if not self._is_slow(trial):
            return False
        self._links.append(Link(pair, pair, [*runs, trial.run]))
        return True

    def _is_slow(self, trial: Trial) -> bool:
        return self._judge.find(trial.run, margin=0.0) is Found.SLOW

    def _find_in_fabric(self) -> _Steps[bool]:
        """Every part is fast and the whole is slow. Whether a domain or a link was found."""
        for key in self._topology.keys:
            active = self._topology.shuffled(self._active(), self._chance)
            members = self._topology.domains(key, active)
            if len(members) < 3:
                continue
            size = 2 * round(statistics.median(len(nodes) for nodes in members.values()))
            trials = yield from self._launch(groups(list(members), 2), size, members)
            standing = yield from self._resolve(list(members), trials, size, members)
            for name, runs in standing.bad.items():
                inside = yield from self._launch([(name,)] if len(members[name]) > 1 else [], size // 2, members)
                if any(self._is_slow(trial) for trial in inside) and (yield from self._find_link(members[name])):
                    return True
                everybody = self._topology.domains(key, self._nodes)[name]
                self._domains.append(Domain(name, tuple(everybody), runs))
                # What was taken for the link of one of its nodes to another domain.
                self._links = [link for link in self._links if len(set(link.ends) & set(everybody)) != 1]
            found = bool(standing.bad)
            for (one, other), runs in standing.links.items():
                found |= yield from self._find_between(members[one], members[other], (one, other), runs)
            if found:
                return True
        for part in self._unexplained:
            if (yield from self._find_link(part)):
                return True
        return (yield from self._find_link(self._active()))

    def _find_link(self, nodes: t.Sequence[str]) -> _Steps[bool]:
        """Halve what is slow until both halves are fast: the link is between them."""
        while True:
            halves = _halves(nodes)
            trials = yield from self._launch([tuple(half) for half in halves if len(half) > 1], max(len(halves[0]), 2))
            slow = [trial.items for trial in trials if self._is_slow(trial)]
            if not slow:
                return (yield from self._find_between(*halves))
            nodes = slow[0]

    def _find_between(
        self, left: t.Sequence[str], right: t.Sequence[str], domains: Pair | None = None, runs: t.Sequence[Run] = ()
    ) -> _Steps[bool]:
        """Both sides are fast and slow together: halve both. Where everything between two domains is slow, it is theirs."""
        trial: Trial | None = None
        while len(left) > 1 or len(right) > 1:
            (left_a, left_b), (right_a, right_b) = _halves(left), _halves(right)
            for crossing in ((left_a, right_a), (left_b, right_b)), ((left_a, right_b), (left_b, right_a)):
                sides = [(tuple(one), tuple(other)) for one, other in crossing if one and other]
                trials = yield from self._launch(
                    [(*one, *other) for one, other in sides], max(sum(map(len, sides[0])), 2)
                )
                slow = [number for number, one in enumerate(trials) if self._is_slow(one)]
                if slow:
                    break
            else:
                return False
            if domains and len(slow) == 2:
                self._links.append(Link(domains, tuple(left), [*runs, *(one.run for one in trials)]))
                return True
            domains, trial = None, trials[slow[0]]
            left, right = sides[slow[0]]
        return (yield from self._settle((left[0], right[0]), trial))

    def _settle(self, pair: Pair, trial: Trial | None) -> _Steps[bool]:
        """Two nodes are slow together. It is their link if each is fast with another now, and else the one that is not."""
        trials = [one for one in self._trials if not set(pair) & set(one.items)]
        if trial is None:
            [trial] = yield from self._launch([pair], 2)
        trials.append(trial)
        standing = yield from self._resolve(pair, trials)
        if standing.bad:
            self._bad.update(standing.bad)
            return True
        return (
            standing.good.issuperset(pair)
            and self._is_slow(trial)
            and (yield from self._convict_link(pair, [trial.run]))
        )


def _halves(nodes: t.Sequence[str]) -> tuple[t.Sequence[str], t.Sequence[str]]:
    middle = (len(nodes) + 1) // 2
    return nodes[:middle], nodes[middle:]


def _next(steps: _Steps[None], runs: list[Run]) -> _Round | None:
    try:
        return steps.send(runs)
    except StopIteration:
        return None


def most_rounds(nodes: int) -> int:
    """Where a check ends whatever it knows: a link takes two rounds per halving of both its ends, and each search ten of its own."""
    return 10 * SEARCHES + 4 * math.ceil(math.log2(max(nodes, 2)))


def worst_case(nodes: int) -> dict[str, dict[str, int]]:
    """Rounds and launches of a healthy fleet, with one bad node, and at most, to tell before anything is launched."""
    one_bad = 1 + nodes // group_size(nodes) + group_size(nodes) + CONTROLS + 1
    return {
        "healthy": {"rounds": 1, "launches": 1},
        "one_bad_node": {"rounds": 4, "launches": one_bad},
        "at_most": {"rounds": most_rounds(nodes), "launches": most_rounds(nodes) * max(nodes // 2, 1)},
    }
