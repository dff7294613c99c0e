#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random kills while a dataset is staged: what is whole after one rerun, what is wrong, what hangs, and where a SAS is left.

    python benchmarks/staging/kills.py                          # fifty; prints its seed
    python benchmarks/staging/kills.py --seed 7                 # the same kills again
    python benchmarks/staging/kills.py --seed 7 --only 12       # only the twelfth of them

The role runs against Azurite on three nodes that share a destination, all on this machine: what is killed is real (the worker, AzCopy,
the controller, all of a node), what a network does between them is not. A connection that is cut refuses every later command. Which
kill, on which node and when is drawn from the seed; an undisturbed run measures first how long there is something to kill. A kill that
came too late is made again; in the table it counts once. After each the files are compared byte by byte, and the SAS (another one for
each kill) is looked for in all files of the controller and the nodes, in /var/log and in the processes; then the same play runs again,
and all has to be whole. ``--lanes`` work side by side. The output of what went wrong is kept below .cache/staging-kills.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import gzip
import queue
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from _kill_stage import Stage
from _kills import Ending, Kill, draw, rows, until_hit
from _report import ROOT, Goal, exit_status, report
from lab.blob.service import Azurite, azurite

HOSTS = 3
CONTAINER = "kills"
#: Later a copy may be over before there is somebody to kill: batches that land last are short.
_PART = 0.6
#: So often a kill is made that comes too late.
_TRIES = 3
EVIDENCE = ROOT / ".cache/staging-kills"


@dataclasses.dataclass
class Usual:
    """How long an undisturbed play takes, and the part of it in which there is a worker."""

    play_s: float
    copy_s: float

    def learn(self, play_s: float) -> None:
        """An undisturbed run says how quick the machine is now."""
        self.copy_s *= play_s / self.play_s
        self.play_s = play_s


def fill(server: Azurite, seed: int, files: int) -> dict[str, bytes]:
    """Put a dataset into the account; returns it by final names."""
    rng = random.Random(seed)
    server.create_container(CONTAINER)
    content = {}
    for number in range(files):
        name = f"part-{number % 4}/f_{number:04d}.tfrecord"
        content[name] = rng.randbytes(rng.randrange(10_000, 70_000)) * 2
        if number % 20 == 0:  # takes long enough to inflate for a kill to fall into it
            content[name] += bytes(16_000_000)
        server.put(CONTAINER, f"{name}.gz", gzip.compress(content[name], 1, mtime=0), encoding="gzip")
    return content


def undisturbed(stage: Stage, sas: str) -> Usual:
    """Measure an undisturbed run, and a second one, which has nothing to do."""
    stage.clean(sas)
    stage.start("undisturbed")
    if not stage.wait_for_copy():
        sys.exit(f"The undisturbed run copies nothing:\n{stage.output('undisturbed')}")
    copying = stage.since_start_s()
    while stage.playing and any(stage.worker(host) for host in stage.hosts):
        time.sleep(0.1)
    copied = stage.since_start_s()
    status = stage.end(300)
    usual = Usual(stage.since_start_s(), copied - copying)
    if status or stage.missing() or stage.wrong():
        sys.exit(f"The undisturbed run fails ({status}):\n{stage.output('undisturbed')}")
    return usual


def play(stage: Stage, kill: Kill, sas: str, usual: Usual) -> Ending:
    """One kill, and what comes of it."""
    limit_s = 120 + 10 * usual.play_s
    ending = Ending(kill, hit=False)
    stage.clean(sas)
    stage.start("killed")
    window_s, begins = usual.play_s, True
    if kill.window == "copy":
        begins, window_s = stage.wait_for_copy(), usual.copy_s
    until = time.monotonic() + _PART * kill.fraction * window_s
    if kill.window == "play":
        until = stage.began + kill.fraction * window_s
    while begins and stage.playing and time.monotonic() < until:
        time.sleep(0.01)
    ending.secrets += stage.secrets_in_processes()
    ending.hit = stage.kill(kill)
    ending.when_s = stage.since_start_s()
    ending.first, ending.first_s = stage.end(limit_s), stage.since_start_s()
    ending.wrong += stage.wrong()
    ending.secrets += stage.secrets_on_disk()
    stage.mend()
    stage.start("again")
    ending.again, ending.again_s = stage.end(limit_s), stage.since_start_s()
    ending.wrong += [name for name in stage.wrong() if name not in ending.wrong]
    ending.missing, ending.leftovers = stage.missing(), stage.leftovers()
    ending.secrets += [place for place in stage.secrets_on_disk() if place not in ending.secrets]
    ending.crashes = stage.crashes("killed") + stage.crashes("again")
    stage.kill_all()
    return ending


def keep(stage: Stage, ending: Ending) -> None:
    """The outputs of a kill that did not end well, for whoever wants to know why."""
    place = EVIDENCE / f"kill-{ending.kill.number}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in (stage.place / "controller").glob("*.out"):
        shutil.copy(path, place)
    (place / "ending").write_text(f"{ending}\n" + "\n".join([*ending.secrets, *ending.leftovers, *ending.missing]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--files", type=int, default=240, help="of the dataset (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="a run with the same one draws the same kills (default: drawn)")
    parser.add_argument("--only", type=int, action="append", default=[], metavar="NUMBER", help="only this kill")
    parser.add_argument("--lanes", type=int, default=3, help="so many side by side (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin none after so many (default: %(default)s)")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    kills = draw(seed, max([options.kills, *options.only]), HOSTS)
    kills = tuple(kill for kill in kills if not options.only or kill.number in options.only)
    print(f"seed {seed}, {len(kills)} kills", flush=True)
    until = time.monotonic() + 60 * options.minutes
    endings: list[Ending] = []
    with tempfile.TemporaryDirectory(prefix="kills-") as base, azurite() as server:
        content = fill(server, seed, options.files)
        url = server.url(CONTAINER)
        stages: queue.SimpleQueue[Stage] = queue.SimpleQueue()
        for lane in range(min(options.lanes, len(kills))):
            stages.put(Stage(Path(base) / f"lane-{lane + 1}", url, content, HOSTS))
        first = stages.get()
        usual = undisturbed(first, server.sas("rl"))
        stages.put(first)
        print(f"undisturbed: {usual.play_s:.1f} s, of which {usual.copy_s:.1f} s there is a worker", flush=True)

        def one(kill: Kill) -> Ending | None:
            stage = stages.get()
            try:
                if time.monotonic() > until:
                    return None

                def attempt(number: int) -> Ending:
                    # No two have the same expiry, so none has another one's signature.
                    ending = play(stage, kill, server.sas("rl", 86400 + 300 * kill.number + number), usual)
                    print(ending, flush=True)
                    if ending.right and not ending.hit:
                        usual.learn(ending.first_s)
                    return ending

                ending = until_hit(attempt, _TRIES)
                if not ending.right:
                    keep(stage, ending)
                return ending
            finally:
                stages.put(stage)

        with concurrent.futures.ThreadPoolExecutor(options.lanes) as pool:
            endings = [ending for ending in pool.map(one, kills) if ending is not None]
    hit = sum(ending.hit for ending in endings)
    goals = [
        Goal("kills that hit somebody", hit, len(kills), at_least=True),
        Goal("wrong files at final names", sum(len(ending.wrong) for ending in endings), 0),
        Goal("whole after one rerun", sum(ending.whole for ending in endings), len(kills), at_least=True),
        Goal("hangs", sum(ending.hangs for ending in endings), 0),
        Goal("kills with a traceback", sum(bool(ending.crashes) for ending in endings), 0),
        Goal("kills that left a SAS", sum(bool(ending.secrets) for ending in endings), 0),
        Goal("kills with temporary files after the rerun", sum(bool(ending.leftovers) for ending in endings), 0),
    ]
    report(f"{len(endings)} kills over staging, seed {seed}", rows(endings), ratio=f"{hit} hit somebody", goal=goals)
    again = ",".join(str(ending.kill.number) for ending in endings if not ending.right)
    if again:
        print(f"not right: {again}. One of them again: {Path(__file__).name} --seed {seed} --only NUMBER")
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
