#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is trusted at a destination after the power of a machine was cut at a random moment of staging.

    python benchmarks/staging/power_cuts.py                     # ten cuts on two machines; prints its seed
    python benchmarks/staging/power_cuts.py --seed 7            # the same cuts again
    python benchmarks/staging/power_cuts.py --seed 7 --only 3   # only the third of them

Needs what the VM lab needs (`tests/lab/vm/README.md`), and a directory of its own, `.cache/staging-power-cuts` or LAB_VM_DIR. The
machines' drives have a volatile cache (`benchmarks/power_cuts`): of what was not flushed all, nothing or some blocks are lost, as drawn.
A machine stages from a server of this one with the real AzCopy, to XFS or ext4. Half of the blobs are inflated. The moment is drawn from
the time that the staging takes undisturbed, and a tenth more: what was reported may be lost, too. After the boot every file that a look
without reading takes for right is read: its bytes have to be right. Then the same staging runs again and has to make all whole.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import gzip
import hashlib
import io
import json
import os
import random
import shlex
import subprocess
import sys
import tarfile
import threading
import time
import traceback
import typing as t
from pathlib import Path

from _report import AZCOPY, ROOT, Goal, exit_status, report

sys.path[:0] = [str(ROOT / "tests/scenarios/vm"), str(ROOT / "benchmarks/power_cuts")]
os.environ.setdefault("LAB_VM_DIR", str(ROOT / ".cache/staging-power-cuts"))
os.environ.pop("LAB_VM_NODE", None)

import _power_guest as guest
from _machine import LabOfCuts, Machine
from _ranks import parameters
from _volatile_cache import TornLogError
from lab.blob.fast_server import ACCOUNT, CONTAINER, Body, FastServer
from lab.vm import machine, state
from module_archive import module_archive

FILES = 160
#: This machine, seen from a machine of the lab.
_HOST = "10.0.2.2"
_LONGER = 1.1
_STAGE_S = 600.0
_FILESYSTEMS = ("xfs", "ext4")
_LOSSES = ("some", "all", "some", "none")
#: Every system has them, and none but its own.
_SYSTEM_LIBRARIES = ("ld-linux", "libc.", "libm.", "libpthread.", "libdl.", "librt.", "libresolv.", "linux-vdso")


@dataclasses.dataclass(frozen=True)
class Cut:
    """One power cut. ``fraction``: when, as a part of what the staging takes undisturbed."""

    number: int
    filesystem: str
    fraction: float
    loss: str
    seed: str  # of what else is drawn for it: which of the writes that were not flushed are lost

    def __str__(self) -> str:
        return (
            f"cut {self.number} on {self.filesystem} at {self.fraction:.0%}, losing {self.loss} of what was not flushed"
        )


def draw(seed: int, count: int) -> tuple[Cut, ...]:
    """The cuts of a run. A longer run begins with the cuts of a shorter one with the same seed."""
    rng = random.Random(seed)
    cuts = []
    for number in range(1, count + 1):
        filesystem = _FILESYSTEMS[number % len(_FILESYSTEMS)]
        cuts.append(Cut(number, filesystem, rng.uniform(0, _LONGER), rng.choice(_LOSSES), f"{seed}/{number}"))
    return tuple(cuts)


@dataclasses.dataclass
class Ending:
    """What a cut left. ``wrong`` is trusted and not right; ``told`` the last that the staging said."""

    cut: Cut
    node: str
    told: str = ""
    trusted: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)
    refused: str = ""
    whole: bool = False
    trouble: str = ""


def dataset(seed: int) -> tuple[dict[str, Body], dict[str, str]]:
    """Blobs by name, and the digest of what each becomes at the destination."""
    rng = random.Random(seed)
    blobs, wanted = {}, {}
    for number in range(FILES):
        content = rng.randbytes(rng.randrange(20_000, 300_000))
        name = f"part-{number % 3}/f{number:04d}"
        packed = number % 2 == 0
        blobs[f"{name}.gz" if packed else name] = (
            Body(gzip.compress(content * 2, 1, mtime=0), "gzip") if packed else Body(content)
        )
        wanted[name] = hashlib.sha256(content * 2 if packed else content).hexdigest()
    return blobs, wanted


def azcopy_archive() -> bytes:
    """AzCopy and the libraries that it needs besides those that every system has."""
    said = subprocess.run(["ldd", AZCOPY], capture_output=True, text=True, check=True).stdout
    paths = [Path(line.split()[2]) for line in said.splitlines() if "=> /" in line]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, dereference=True) as archive:
        archive.add(AZCOPY, "azcopy")
        for path in paths:
            if not path.name.startswith(_SYSTEM_LIBRARIES):
                archive.add(path, f"lib/{path.name}")
    return buffer.getvalue()


class Stage:
    """A machine that stages the dataset, as often as it is told to."""

    def __init__(self, lab: LabOfCuts, node: str, port: int, wanted: t.Mapping[str, str]) -> None:
        self.machine, self.lab, self.node, self._wanted = Machine(lab, node), lab, node, wanted
        self.length_s = 0.0
        url = f"http://{_HOST}:{port}/{ACCOUNT}/{CONTAINER}"
        own = {"azcopy": f"{guest.PLACE}/azcopy", "log_path": "/var/log/azcopy", "decompress": True, "processes": 1}
        slow = {"stall_timeout_s": 200, "concurrency": 4, "nic_mbps": 20, "batch_s": 2, "threads": 2}
        self._options = {**parameters(url, Path(guest.DESTINATION), 1, **own, **slow), "hosts": ["node"]}

    @property
    def _device(self) -> str:
        return f"/dev/disk/by-id/virtio-{self.machine.members[0]}"

    def prepare(self) -> None:
        """Bring the programs, and measure an undisturbed staging."""
        self.machine.boot()
        self.lab.run(self.node, "mkdir", "-p", guest.PLACE)
        for archive in (azcopy_archive(), module_archive()[1]):
            self.lab.unpack(self.node, archive, guest.PLACE, "-z")
        self.lab.shell(self.node, guest.INSTALL)
        self.lab.run(self.node, "sync")
        self._empty(_FILESYSTEMS[0])
        began = time.monotonic()
        self.stage()
        self.length_s = time.monotonic() - began
        found = self.look()
        if found["trusted"] != self._wanted:
            raise state.LabError(f"The undisturbed staging on {self.node} is not whole: {found}")

    def _empty(self, filesystem: str) -> None:
        self.lab.run(self.node, "sh", "-euc", guest.EMPTY, "empty", filesystem, self._device)

    def start(self) -> subprocess.Popen[str]:
        words = shlex.join(["python3", "-c", guest.STAGE, guest.PLACE])
        process = subprocess.Popen(
            self.lab.ssh_argv(self.node, words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._options) + "\n")
        process.stdin.flush()
        return process

    def stage(self) -> None:
        """An undisturbed staging. Raises LabError where it fails."""
        process = self.start()
        said, _none = process.communicate(timeout=_STAGE_S)
        if process.returncode:
            raise state.LabError(f"The staging on {self.node} fails: {said[-3000:]}")

    def look(self) -> dict[str, t.Any]:
        return dict(json.loads(self.machine.python(guest.LOOK, guest.PLACE, guest.DESTINATION)))

    def play(self, cut: Cut) -> Ending:
        """Make one cut, and see what comes of it."""
        ending = Ending(cut, self.node)
        self._empty(cut.filesystem)
        began = time.monotonic()
        process = self.start()
        said: list[str] = []
        listener = threading.Thread(target=lambda: said.extend(process.stdout or ()), daemon=True)
        listener.start()
        time.sleep(max(0.0, began + cut.fraction * self.length_s - time.monotonic()))
        self.machine.cut(cut.loss, random.Random(cut.seed))
        process.kill()
        listener.join(30)
        ending.told = said[-1].strip() if said else "nothing"
        self.machine.boot()
        self.lab.run(self.node, "mount", self._device, guest.POINT)
        found = self.look()
        ending.refused, ending.trusted = found["refused"], len(found["trusted"])
        ending.wrong = [name for name, digest in found["trusted"].items() if self._wanted.get(name) != digest]
        self.stage()
        ending.whole = self.look()["trusted"] == self._wanted
        return ending


def play_all(stage: Stage, cuts: t.Sequence[Cut], until: float) -> list[Ending]:
    """The cuts of one machine, one after another."""
    stage.prepare()
    print(f"{stage.node}: an undisturbed staging takes {stage.length_s:.0f} s", flush=True)
    endings = []
    for cut in cuts:
        if time.monotonic() > until:
            print(f"{stage.node}: no time for {cut}", flush=True)
            continue
        try:
            ending = stage.play(cut)
        except TornLogError as exc:
            print(f"{cut}: not judged. {exc}", flush=True)
            stage.machine.boot()
            continue
        except (AssertionError, state.LabError, OSError, ValueError, subprocess.SubprocessError):
            ending = Ending(cut, stage.node, trouble=traceback.format_exc())
        endings.append(ending)
        print(
            f"{stage.node}, {cut}: it had said {ending.told!r}; {ending.trusted} files trusted, {len(ending.wrong)} of them WRONG"
            f" {ending.wrong[:3]}; {ending.refused}"
            f" {'Whole' if ending.whole else 'NOT WHOLE'} after a rerun. {ending.trouble}",
            flush=True,
        )
        if ending.trouble:
            break
    return endings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--seed", type=int, help="a run with the same one draws the same cuts (default: drawn)")
    parser.add_argument("--only", type=int, action="append", default=[], metavar="NUMBER", help="only this cut")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin none after so many (default: %(default)s)")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    cuts = draw(seed, max([options.cuts, *options.only]))
    cuts = tuple(cut for cut in cuts if not options.only or cut.number in options.only)
    print(f"seed {seed}, {len(cuts)} cuts", flush=True)
    until = time.monotonic() + 60 * options.minutes
    blobs, wanted = dataset(seed)
    machines = min(int(os.environ.get("LAB_VM_NODES") or 2), len(cuts))
    paths = state.Paths.here()
    with FastServer(blobs) as server:
        with machine.only_one(paths):
            lab = LabOfCuts.bring_up(machines)
        try:
            stages = [Stage(lab, node, server.port, wanted) for node in lab.nodes]
            with concurrent.futures.ThreadPoolExecutor(machines) as pool:
                work = [pool.submit(play_all, stage, cuts[n::machines], until) for n, stage in enumerate(stages)]
                endings = [ending for done in work for ending in done.result()]
        finally:
            with machine.only_one(paths):
                machine.down(paths)
    rows = [
        {
            "cut": ending.cut.number,
            "on": ending.cut.filesystem,
            "at": f"{ending.cut.fraction:.0%}",
            "lost": ending.cut.loss,
            "had said": ending.told,
            "trusted": ending.trusted,
            "wrong": len(ending.wrong),
            "whole after a rerun": ending.whole,
        }
        for ending in sorted(endings, key=lambda ending: ending.cut.number)
    ]
    goals = [
        Goal("files that are trusted and not right", sum(len(ending.wrong) for ending in endings), 0),
        Goal("whole after one rerun", sum(ending.whole for ending in endings), len(cuts), at_least=True),
    ]
    report(f"Power cuts while {FILES} files are staged, seed {seed}", rows, goal=goals)
    return exit_status(goals)


if __name__ == "__main__":
    sys.exit(main())
