#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many rounds and launches it takes to name the bad nodes, links and leaves of a fleet: the planner, and what others do.

    python benchmarks/attribution/run.py                                # all cells, minutes
    python benchmarks/attribution/run.py --nodes 64,256 --fleets 5

The same simulated fleets for everybody (``_fleets.py``), half of them of a kind that the planner was not tuned on. The others are modelled
(``_peers.py``). Pairs of all nodes are launched up to 64 nodes: more take a second per fleet and tell the same.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import typing as t

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "staging"))

from _fleets import LEAF_NODES, Fleet, with_bad_leaf, with_bad_link, with_bad_nodes
from _peers import PEERS
from _report import Goal, exit_status, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._attribution.plan import FaultFinder

ALL_PAIRS_UP_TO = 64
LAUNCH_MIN, TIMEOUT = 4.0, 1.5
#: What the others do, too: none of them launches the whole again in the end.
NO_ACCEPTANCE = "ours, no acceptance"


class Found(t.NamedTuple):
    nodes: set[str]
    links: set[frozenset[str]]
    domains: set[str]
    rounds: int
    launches: int
    slowest_s: float
    minutes: float


def ours(fleet: Fleet, acceptance: bool = True) -> Found:
    """Run the planner to its end. ``minutes``: with launches of four minutes, and hangs that are ended after one and a half as many."""
    finder = FaultFinder(
        fleet.nodes,
        topology=fleet.topology,
        expected_gbytes_s=fleet.healthy(fleet.count, 2 if fleet.count > LEAF_NODES else 1),
        seed=fleet.seed,
        acceptance=acceptance,
        # Of a small fleet the site knows its noise.
        noise=fleet.noise if fleet.count <= 64 else None,
    )
    slowest = minutes = 0.0
    launches = 0
    while True:
        began = time.perf_counter()
        planned = finder.next_round()
        if not planned:
            break
        results = [fleet.measure(launch.nodes, launch.samples) for launch in planned]
        launches += len(planned)
        minutes += LAUNCH_MIN * (TIMEOUT if None in results else 1)
        began = time.perf_counter()
        for launch, values in zip(planned, results):
            finder.record(launch.nodes, values)
        slowest = max(slowest, time.perf_counter() - began)
    verdict = finder.verdict()
    return Found(
        {one["node"] for one in verdict["bad_nodes"]},
        {frozenset(one["between"]) for one in verdict["bad_links"]},
        {one["domain"] for one in verdict["bad_domains"]},
        verdict["rounds"],
        launches,
        slowest,
        minutes,
    )


def mean(values: t.Sequence[float]) -> float:
    return sum(values) / len(values)


def nodes_cell(count: int, bad: int, noise: float, fleets: int) -> tuple[list[dict[str, t.Any]], dict[str, float]]:
    """A row for each planner over the same fleets; and the planner's numbers."""
    sides: dict[str, list[tuple[set[str], set[str], int, int]]] = {}
    slowest, silent = 0.0, 0
    for number in range(fleets):
        held_out = bool(number % 2)
        fleet = with_bad_nodes(count, bad, noise, number, held_out)
        found = ours(fleet)
        extra = {f"link {one}" for one in found.links} | found.domains
        sides.setdefault("ours", []).append((set(fleet.slow), found.nodes | extra, found.rounds, found.launches))
        again = with_bad_nodes(count, bad, noise, number, held_out)
        alone = ours(again, acceptance=False)
        sides.setdefault(NO_ACCEPTANCE, []).append((set(again.slow), alone.nodes, alone.rounds, alone.launches))
        slowest = max(slowest, found.slowest_s)
        silent += bool(bad and not found.nodes)
        for name, peer in PEERS.items():
            if name != "all pairs" or count <= ALL_PAIRS_UP_TO:
                other = with_bad_nodes(count, bad, noise, number, held_out)
                sides.setdefault(name, []).append((set(other.slow), peer(other), other.rounds, other.launches))
    rows = []
    for name, runs in sides.items():
        right = sum(len(slow & named) for slow, named, _rounds, _launches in runs)
        named = sum(len(one[1]) for one in runs)
        slow = sum(len(one[0]) for one in runs)
        rows.append(
            {
                "nodes": count, "bad": bad, "noise": f"{noise:.0%}", "planner": name,
                "rounds": mean([one[2] for one in runs]), "launches": mean([one[3] for one in runs]),
                "precision": right / named if named else 1.0, "recall": right / slow if slow else 1.0,
            }
        )  # fmt: skip
    alarms = sum(1 for slow, named, _rounds, _launches in sides["ours"] if named - slow) / fleets
    return rows, {**rows[0], "slowest_s": slowest, "silent": silent, "alarms": alarms}


def goals_of(cells: t.Sequence[dict[str, t.Any]]) -> t.Iterator[Goal]:
    """A1 to A4 and A7, as means over the cells of one noise."""
    for noise in sorted({one["noise"] for one in cells}):
        of_noise = [one for one in cells if one["noise"] == noise]
        high = noise == "5%"
        healthy = [one for one in of_noise if not one["bad"]]
        yield Goal(
            f"A1 rounds of a healthy fleet at {noise}", mean([one["rounds"] for one in healthy]), 1.1 if high else 1.0
        )
        yield Goal(f"A1 false alarms at {noise}", mean([one["alarms"] for one in healthy]), 0.001)
        few = [
            one
            for one in of_noise
            if one["bad"] and one["bad"] <= max(1, one["nodes"] // 100) and 64 <= one["nodes"] <= 1024
        ]
        many = [one for one in of_noise if one["bad"] > max(1, one["nodes"] // 100) and 64 <= one["nodes"] <= 1024]
        for what, some, limits in (("k <= 1 %", few, (4.2, 4.5, 6.5)), ("k <= 10 %", many, (4.5, 5.5, 7.0))):
            if some:
                limit = limits[("1%", "2%", "5%").index(noise)]
                yield Goal(
                    f"A2 rounds, {what}, n = 64 … 1,024, at {noise}", mean([one["rounds"] for one in some]), limit
                )
        faulty = [one for one in of_noise if one["bad"]]
        large = [one for one in faulty if one["nodes"] >= 256] if high else faulty
        for what, limit in (("precision", 0.995 if high else 0.999), ("recall", 0.985 if high else 0.995)):
            if large:
                yield Goal(f"A4 least {what} at {noise}", min(one[what] for one in large), limit, at_least=True)
        yield Goal(f"A4 silent passes at {noise}", sum(one["silent"] for one in faulty), 0)
    for bad, limit in ((1, 90.0), (10, 230.0), (51, 1228.8), (102, 1228.8)):
        some = [one for one in cells if one["nodes"] == 1024 and one["bad"] == bad and one["noise"] != "5%"]
        if some:
            yield Goal(f"A3 launches, n = 1,024, k = {bad}", max(one["launches"] for one in some), limit)
    yield Goal("A7 slowest round of the planner", max(one["slowest_s"] for one in cells), 1.0, " s")


def beside(rows: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """A6: cells in which somebody names as well and needs fewer rounds, or names better."""
    missed = []
    for row in rows:
        if row["planner"].startswith("ours") or not row["bad"]:
            continue
        own = next(
            one
            for one in rows
            if one["planner"] == NO_ACCEPTANCE and all(one[key] == row[key] for key in ("nodes", "bad", "noise"))
        )
        named = row["precision"] > own["precision"] + 0.005 or row["recall"] > own["recall"] + 0.005
        as_well = row["precision"] >= own["precision"] and row["recall"] >= own["recall"]
        if named or (as_well and row["rounds"] < own["rounds"]):
            missed.append(
                f"{row['planner']} at n = {row['nodes']}, k = {row['bad']}, {row['noise']}: {row['rounds']:.2f} rounds"
            )
    return missed


def fabric_rows(counts: t.Sequence[int], fleets: int) -> tuple[list[dict[str, t.Any]], list[Goal]]:
    """A5: links, leaves and hangs."""
    rows, right_of = [], {"link": [], "leaf": []}  # type: tuple[list[dict[str, t.Any]], dict[str, list[bool]]]
    blamed = 0
    for count in counts:
        for kind, make in (("link", with_bad_link), ("leaf", with_bad_leaf)):
            if kind == "leaf" and count <= 2 * LEAF_NODES:
                continue
            right, rounds = [], []
            for number in range(fleets):
                fleet = make(count, 0.02, number, bool(number % 2))
                found = ours(fleet)
                links = {fleet.link[0]} if fleet.link else set()
                domains = {fleet.leaf[0]} if fleet.leaf else set()
                right.append((found.nodes, found.links, found.domains) == (set(), links, domains))
                rounds.append(found.rounds)
                blamed += len(found.nodes)
            right_of[kind] += right
            rows.append({"nodes": count, "fault": kind, "named as such": mean(right), "rounds": mean(rounds)})
    goals = [
        Goal(f"A5 a bad {kind} is named as such", mean(right), 0.98, at_least=True)
        for kind, right in right_of.items()
        if right
    ]
    goals.append(Goal("A5 nodes that are blamed for it", blamed, 0))
    hangs = []
    for number in range(fleets):
        fleet = Fleet(max(counts), 0.02, number, bool(number % 2))
        fleet.slow = {fleet.chance.choice(fleet.nodes): 0.0}
        hangs.append(ours(fleet).minutes)
    goals.append(Goal(f"A5 minutes to name one that hangs of {max(counts)}, launches of 4 minutes", max(hangs), 22.0))
    return rows, goals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="16,64,256,1024,4096", help="fleet sizes (default: %(default)s)")
    parser.add_argument("--fleets", type=int, default=20, help="fleets of each cell (default: %(default)s)")
    options = parser.parse_args()
    counts = [int(one) for one in options.nodes.split(",")]
    rows: list[dict[str, t.Any]] = []
    cells: list[dict[str, t.Any]] = []
    for count in counts:
        fleets = max(2, options.fleets // (4 if count > 1024 else 1))
        for noise in (0.01, 0.02, 0.05):
            for bad in sorted({0, 1, max(1, count // 100), max(1, count // 20), max(1, count // 10)}):
                more, cell = nodes_cell(count, bad, noise, fleets * (10 if not bad else 1))
                rows += more
                cells.append(cell)
    goals = list(goals_of(cells))
    missed = beside(rows)
    goals.append(Goal("A6 cells in which another planner is better", len(missed), 0))
    report("Bad nodes", rows, ratio="\n       ".join(missed), goal=goals)
    fabric, more_goals = fabric_rows([count for count in counts if count <= 1024], options.fleets)
    report("Bad links and leaves, noise 2 %", fabric, goal=more_goals)
    return exit_status([*goals, *more_goals])


if __name__ == "__main__":
    sys.exit(main())
