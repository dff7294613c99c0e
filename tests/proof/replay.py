# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the changes of the past would have cost: which scenarios each of the last commits affected, and their minutes.

    PYTHONPATH=tests python -m proof.replay --commits 100

Minutes are the measured ones of tests/proven.json where there are some, and otherwise estimates, and leave out what
--always names. They are told twice: those of the affected scenarios one after the other, and by the clock those of
bin/test --affected, which runs two steps at once and also the static checks and what sets the labs up.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import subprocess
import sys
import typing as t

from proof import ledger
from proof.closure import Cache, closures, digest
from proof.plan import make_plan
from proof.scenario import Scenario
from proof.scenarios import scenarios
from proof.timetable import length_s
from proof.tree import CommitTree, Objects, Tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: On a machine with two processors.
AT_ONCE = 2
Table = t.Callable[[Tree], list[Scenario]]


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one commit. ``affected``: scenarios and their minutes. ``clock_minutes``: of the run that proves them."""

    commit: str
    title: str
    affected: dict[str, float]
    clock_minutes: float = 0.0

    @property
    def minutes(self) -> float:
        return sum(self.affected.values())

    @property
    def needs_lab(self) -> bool:
        return any(is_lab(name) for name in self.affected)


def is_lab(name: str) -> bool:
    """Unit tests need none."""
    return name.partition("/")[0] != "unit"


class Replay:
    """Digests of commits. Contents are read once, whatever the number of commits that have them."""

    def __init__(
        self, root: pathlib.Path, objects: Objects, table: Table, proofs: ledger.Ledger, always: t.Collection[str] = ()
    ) -> None:
        """``always``: scenarios that are not counted, because they run in any case."""
        self._root = root
        self._objects = objects
        self._table = table
        self._proofs = proofs
        self._always = always
        self._cache = Cache()
        self._digests: dict[str, dict[str, str]] = {}
        self._scenarios: dict[str, list[Scenario]] = {}

    def digests(self, commit: str) -> dict[str, str]:
        if commit not in self._digests:
            tree = CommitTree(self._root, commit, self._objects)
            given = self._table(tree)
            found = closures(tree, given, self._cache)
            self._scenarios[commit] = given
            self._digests[commit] = {name: digest(tree, files, cache=self._cache) for name, files in found.items()}
        return self._digests[commit]

    def cost(self, commit: str, parent: str, title: str) -> Cost:
        before, after = self.digests(parent), self.digests(commit)
        changed = [name for name in after if after[name] != before.get(name) and name not in self._always]
        given = self._scenarios[commit]
        minutes = {one.name: self._minutes_of(one) for one in given if one.name in changed}
        return Cost(commit, title, minutes, self._clock_minutes(given, changed))

    def _minutes_of(self, one: Scenario) -> float:
        return self._proofs[one.name].seconds / 60 if one.name in self._proofs else one.minutes

    def _clock_minutes(self, given: t.Sequence[Scenario], changed: t.Iterable[str]) -> float:
        plan = make_plan("affected", False, given, dict.fromkeys(changed, ""), self._proofs)
        return length_s(plan.steps, plan.seconds, AT_ONCE) / 60


def history(root: pathlib.Path, count: int) -> list[tuple[str, str, str]]:
    """The last commits of the first line of parents, the newest first: commit, parent, title. The very first has no parent."""
    done = subprocess.run(
        ["git", "-C", str(root), "log", "--first-parent", f"--max-count={count}", "--format=%H%x00%P%x00%s"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\0") for line in done.stdout.splitlines()]
    return [(commit, parents.split()[0], title) for commit, parents, title in lines if parents]


def summary(costs: t.Sequence[Cost]) -> list[str]:
    """Median, quartiles, and the share of changes that need no lab."""
    without = sum(not cost.needs_lab for cost in costs)
    return [
        f"{len(costs)} commits, one step after the other: {_spread([cost.minutes for cost in costs])}",
        f"by the clock, {AT_ONCE} steps at once: {_spread([cost.clock_minutes for cost in costs])}",
        f"{without} of them ({without / len(costs):.0%}) need no lab",
    ]


def _spread(minutes: list[float]) -> str:
    low, middle, high = statistics.quantiles(minutes, n=4, method="inclusive") if len(minutes) > 1 else minutes * 3
    return f"median {middle:.1f} min, quartiles {low:.1f} and {high:.1f} min, most {max(minutes):.1f} min"


def main(argv: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="proof.replay", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=100, help="how many of the last commits")
    parser.add_argument(
        "--always", action="append", default=[], help="a scenario that runs in any case and is not counted"
    )
    parser.add_argument("--names", action="store_true", help="name the scenarios of every commit")
    arguments = parser.parse_args(argv)
    commits = history(ROOT, arguments.commits)
    costs = []
    with Objects(ROOT) as objects:
        replay = Replay(ROOT, objects, scenarios, ledger.read(ROOT / ledger.PATH), arguments.always)
        for commit, parent, title in commits:
            cost = replay.cost(commit, parent, title)
            costs.append(cost)
            labs = sum(map(is_lab, cost.affected))
            minutes = f"{cost.minutes:5.1f} min {cost.clock_minutes:5.1f} by the clock"
            print(
                f"{commit[:9]} {minutes} {labs:3d} labs {len(cost.affected) - labs:3d} unit  {title[:90]}", flush=True
            )
            if arguments.names:
                print("          " + " ".join(sorted(filter(is_lab, cost.affected))))
    print("\n".join(summary(costs) if costs else ["No commits."]))
    return 0


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["Cost", "Replay", "history", "is_lab", "summary"]
