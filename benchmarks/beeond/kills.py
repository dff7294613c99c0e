#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random kills while a file system of BeeOND starts or stops: is it whole after the next run, and are users' files still there?

    python benchmarks/beeond/kills.py                          # thirty; prints its seed
    python benchmarks/beeond/kills.py --seed 7                 # the same kills again
    python benchmarks/beeond/kills.py --seed 7 --only 12       # only the twelfth of them

Two nodes of namespaces on this machine with the double of `tests/lab/beeond`, under the module as Ansible sends it. Killed is the module, a
program of BeeOND's, or a whole node (processes, mounts and /run go, the disk stays); which one, where and when is drawn from the seed.
The double's services store no files: what BeeGFS keeps of a user's file is written here, on the disks of both nodes. After each kill
the module is run again without consent, as a person does who follows what it says.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/unit/beeond"), str(ROOT / "tests")]

from beeond_nodes import DATA, POINT, Cluster, small

PIECE = f"{DATA}/beegfs-storage/chunks/u0/file"
ENTRY = f"{DATA}/beegfs-meta/dentries/38/51/root/file"
NAME = f"{DATA}/beegfs-mgmtd/beegfs-mgmtd.sqlite3"
#: Starting and stopping take about this long here; later kills meet what has ended.
LONGEST_S = 12.0


class Trial:
    """One kill. ``told`` is what a person needs to see when it fails."""

    def __init__(self, cluster: Cluster, seed: int, number: int) -> None:
        self.cluster, self.nodes, self.chance = cluster, cluster.nodes, random.Random(f"{seed} {number}")
        self.told: list[t.Any] = []
        self.written, self.name = False, ""

    def module(self, state: str = "started", **options: t.Any) -> t.Any:
        found = self.cluster.module(state, **options)
        self.told.append((state, options, found.get("done"), found.get("error_kind"), found.get("msg")))
        return found

    def write(self) -> None:
        """A user writes a file, once the file system is mounted where it is."""
        if "mount" in self.cluster.there("node-1") and all(
            "data" in self.cluster.there(name) for name in self.nodes.names
        ):
            self.nodes.shell("node-1", f"mkdir -p $(dirname {ENTRY}); echo mine > {ENTRY}")
            self.nodes.shell("node-2", f"mkdir -p $(dirname {PIECE}); echo mine > {PIECE}")
            self.written, self.name = True, self.filesystem()

    def filesystem(self) -> str:
        found: str = json.loads(self.nodes.shell("node-1", f"cat {NAME}"))["filesystem"]
        return found

    def kill(self, running: subprocess.Popen[str]) -> None:
        """What is killed, at which moment, is left to chance."""
        time.sleep(self.chance.uniform(0.0, LONGEST_S))
        victim = self.chance.choice(("module", "program", "node"))
        name = self.chance.choice(self.nodes.names)
        self.told.append(f"{victim} of {name}")
        if victim == "module":
            self._kill(self._processes("node-1", "/common/run.py"))
        elif victim == "program":
            found = self._processes(name, "beegfs-", "beeond", "ssh", "mount")
            self._kill(self.chance.sample(found, min(1, len(found))))
        else:
            self.power_cycle(name)

    def _processes(self, name: str, *words: str) -> list[int]:
        mounts = os.readlink(f"/proc/{self.nodes.held[name].pid}/ns/mnt")
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                inside = os.readlink(process / "ns/mnt") == mounts
                line = (process / "cmdline").read_text(errors="replace")
            except OSError:
                continue
            if inside and any(word in line for word in words):
                found.append(int(process.name))
        return sorted(found)

    def _kill(self, pids: t.Iterable[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def power_cycle(self, name: str) -> None:
        """Processes, mounts and /run go; the disk stays."""
        self.nodes.quiet(name)
        script = f"while umount -l {POINT} 2>/dev/null; do :; done; rm -rf /run/hpcai_beeond /run/beegfs-*"
        self.nodes.shell(name, script)

    def run(self) -> None:
        """Start or stop it, kill in the middle, write, and start it again, as a person does who follows what it says."""
        if self.chance.random() < 0.6:
            assert not self.module().get("failed")
            self.write()
        state = self.chance.choice(("started", "stopped") if self.written else ("started",))
        if state == "started" and self.written and self.chance.random() < 0.7:
            assert not self.module("stopped").get("failed")
        self.told.append(f"{state} is killed")
        command = self.nodes.command("node-1", *self.cluster.words(state))
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.kill(running)
        self.told.append(running.communicate(timeout=400)[0][-600:])
        if not self.written:
            self.write()
        self.recover()
        if self.written:
            assert self.filesystem() == self.name
            assert self.nodes.shell("node-1", f"cat {ENTRY}") == "mine\n"
            assert self.nodes.shell("node-2", f"cat {PIECE}") == "mine\n"
            assert self.module("cleaned")["error_kind"] == "data_would_be_lost"

    def recover(self) -> None:
        """Start it, without consent."""
        found = self.module()
        texts = [text for one in found.get("problems", {}).values() for text in one]
        # The nodes share one loopback: one that has just booted sees the ports of the other, which still runs.
        ports = found.get("error_kind") == "cannot_start_here" and all(text.startswith("port ") for text in texts)
        if found.get("error_kind") == "half_there" or ports:
            # No program uses it here.
            assert ports or "state: stopped" in found["remedy"]
            assert not self.module("stopped").get("failed")
            found = self.module()
        assert not found.get("failed")
        again = self.module()
        assert again["changed"] is False


def play(cluster: Cluster, seed: int, number: int) -> bool:
    """One kill; whether all was right afterwards."""
    trial, why = Trial(cluster, seed, number), ""
    began = time.monotonic()
    try:
        trial.run()
    except (AssertionError, KeyError, ValueError, subprocess.TimeoutExpired) as exc:
        why = f"{type(exc).__name__} {exc}"
    done = cluster.module("cleaned", allow_data_loss=True)
    left = [cluster.there(name) for name in cluster.nodes.names]
    if not why and (done.get("failed") or any(left)):
        why = f"left behind: {left}, {done.get('msg')}"
    killed = next((one for one in trial.told if isinstance(one, str) and " of node-" in one), "nothing")
    print(
        f"{number:3} {killed:18} {time.monotonic() - began:5.1f} s  {'recovered' if not why else 'NOT RECOVERED'}",
        flush=True,
    )
    if why:
        print(f"{why}\n{json.dumps(trial.told, indent=1)}", flush=True)
    return not why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, help="a run with the same one draws the same kills (default: drawn)")
    parser.add_argument("--only", type=int, action="append", default=[], metavar="NUMBER", help="only this kill")
    parser.add_argument(
        "--version", choices=("7.4.7", "8.3.1"), default="8.3.1", help="of BeeOND (default: %(default)s)"
    )
    options = parser.parse_args()
    if not small.possible():
        parser.exit(2, "It needs user namespaces with a network.\n")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    numbers = options.only or range(1, options.kills + 1)
    print(f"seed {seed}, {len(numbers)} kills, BeeOND {options.version}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="beeond-kills-") as place,
        small.Nodes(pathlib.Path(place) / "nodes", 2) as nodes,
    ):
        cluster = Cluster(nodes, options.version)
        right = sum(play(cluster, seed, number) for number in numbers)
    print(f"{right} of {len(numbers)} recovered")
    return 0 if right == len(numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
