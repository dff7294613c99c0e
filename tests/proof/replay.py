# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the changes of the past would have cost: which scenarios each of the last commits affected, and their minutes.

    PYTHONPATH=tests python -m proof.replay --commits 100

Minutes are the measured ones of tests/proven.json where there are some, and otherwise estimates. They are those of the
affected scenarios, one after the other, without what --always names.
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
from proof.scenario import Scenario
from proof.scenarios import scenarios
from proof.tree import CommitTree, Objects, Tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
Table = t.Callable[[Tree], list[Scenario]]


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one commit. ``affected``: scenarios and their minutes."""

    commit: str
    title: str
    affected: dict[str, float]

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
        self._minutes: dict[str, float] = {}

    def digests(self, commit: str) -> dict[str, str]:
        if commit not in self._digests:
            tree = CommitTree(self._root, commit, self._objects)
            given = self._table(tree)
            found = closures(tree, given, self._cache)
            self._minutes.update((one.name, one.minutes) for one in given)
            self._digests[commit] = {name: digest(tree, files, cache=self._cache) for name, files in found.items()}
        return self._digests[commit]

    def cost(self, commit: str, parent: str, title: str) -> Cost:
        before, after = self.digests(parent), self.digests(commit)
        changed = [name for name in after if after[name] != before.get(name) and name not in self._always]
        return Cost(commit, title, {name: self._minutes_of(name) for name in changed})

    def _minutes_of(self, name: str) -> float:
        return self._proofs[name].seconds / 60 if name in self._proofs else self._minutes[name]


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
    minutes = [cost.minutes for cost in costs]
    low, middle, high = statistics.quantiles(minutes, n=4, method="inclusive") if len(minutes) > 1 else minutes * 3
    without = sum(not cost.needs_lab for cost in costs)
    return [
        f"{len(costs)} commits: median {middle:.1f} min, quartiles {low:.1f} and {high:.1f} min, most {max(minutes):.1f} min",
        f"{without} of them ({without / len(costs):.0%}) need no lab",
    ]


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
            print(
                f"{commit[:9]} {cost.minutes:5.1f} min {labs:3d} labs {len(cost.affected) - labs:3d} unit  {title[:90]}"
            )
            if arguments.names:
                print("          " + " ".join(sorted(filter(is_lab, cost.affected))))
    print("\n".join(summary(costs) if costs else ["No commits."]))
    return 0


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["Cost", "Replay", "history", "is_lab", "summary"]
