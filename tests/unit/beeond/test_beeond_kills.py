# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill the module, a program of BeeOND's, or a node at any moment: without consent no file of a user is lost.

``BEEOND_KILLS=50`` tries as many moments, ``BEEOND_KILLS_SEED`` others. The double's services store no files, so that the test writes what
BeeGFS has of one, on the disks of both nodes. It is out of reach when the management service begins anew, too.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import time
import typing as t

import pytest
from beeond_nodes import DATA, POINT, Cluster, small

pytestmark = [
    pytest.mark.skipif(not small.possible(), reason="needs user namespaces with a network"),
    pytest.mark.slow,
]

KILLS = int(os.environ.get("BEEOND_KILLS", "4"))
SEED = int(os.environ.get("BEEOND_KILLS_SEED", "1"))
PIECE = f"{DATA}/beegfs-storage/chunks/u0/file"
ENTRY = f"{DATA}/beegfs-meta/dentries/38/51/root/file"
NAME = f"{DATA}/beegfs-mgmtd/beegfs-mgmtd.sqlite3"
#: Starting and stopping take about this long here; later kills meet what has ended.
LONGEST_S = 12.0


class Trial:
    """One kill. ``told`` is what a person needs to see when it fails."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.nodes, self.chance = cluster, cluster.nodes, random.Random(f"{SEED} {number}")
        self.told: list[t.Any] = [f"BEEOND_KILLS_SEED={SEED}, kill {number}"]
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Cluster]:
    with small.Nodes(tmp_path_factory.mktemp("kills") / "nodes", 2) as nodes:
        yield Cluster(nodes, "8.3.1")


@pytest.mark.parametrize("number", range(KILLS))
def test_no_kill_loses_a_file(cluster: Cluster, number: int) -> None:
    trial = Trial(cluster, number)
    try:
        trial.run()
    except BaseException:
        print(json.dumps(trial.told, indent=1))
        raise
    finally:
        done = cluster.module("cleaned", allow_data_loss=True)
    assert not done.get("failed"), done
    assert [cluster.there(name) for name in cluster.nodes.names] == [set(), set()]
