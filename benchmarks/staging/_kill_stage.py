# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes on this machine that stage one dataset with the role, and what runs on each of them.

A node is a name with directories of its own for temporary files, asynchronous jobs, logs and landing. All processes that Ansible
starts on it carry its name in their environment, so that they are found whatever starts them; a worker is who holds its rank's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from _kills import Kill, crashes
from _report import AZCOPY, ROOT

_LOOK_S = 0.01
_WIND_DOWN_S = 20.0
_EGRESS_MBPS = 12
_PART_OF = re.compile(r"-(\d+)-\d+\.part$")
#: Beside a stage's own directory: where Ansible, AzCopy and the system keep things for root.
_ELSEWHERE = ("/var/log", "/root/.ansible", "/root/.ansible_async", "/root/.azcopy")
_PLAY = [
    {
        "name": "Stage",
        "hosts": "nodes",
        "gather_facts": False,
        "environment": {"KILLS_HOST": "{{ inventory_hostname }}", "KILLS_STAGE": "{{ kills_stage }}"},
        "tasks": [
            {
                "name": "Apply dataset_staging",
                "ansible.builtin.import_role": {"name": "hpcai.gpu_cluster.dataset_staging"},
            }
        ],
    }
]


@dataclasses.dataclass(frozen=True)
class Process:
    """A process of a node. ``environment`` as the kernel has it."""

    pid: int
    words: tuple[bytes, ...]
    environment: bytes

    @property
    def is_azcopy(self) -> bool:
        return bool(self.words) and os.path.basename(self.words[0]).startswith(b"azcopy")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _process(pid: int) -> Process | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return Process(pid, tuple(words), Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return None  # it has ended


def _holder(path: Path) -> int:
    """The process that holds a lock of fcntl(2), 0 for none."""
    flock = struct.Struct("hhqqi4x")
    with contextlib.suppress(OSError), path.open("r+") as lock:
        asked = flock.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_place, pid = flock.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, asked))
        return 0 if kind == fcntl.F_UNLCK else int(pid)
    return 0


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class Stage:
    """One destination and the nodes that stage to it. ``content`` is what must be there, by final name."""

    def __init__(self, place: Path, url: str, content: t.Mapping[str, bytes], hosts: int) -> None:
        self.place, self._url, self._content = place, url, content
        self.hosts = [f"node-{number + 1}" for number in range(hosts)]
        self.destination = place / "data"
        self.began = 0.0
        self._sas = ""
        self._play: subprocess.Popen[bytes] | None = None

    # -- plays -----------------------------------------------------------------------------------------------------

    def clean(self, sas: str) -> None:
        """Nothing was ever staged here. ``sas`` is that of the next runs."""
        shutil.rmtree(self.place, ignore_errors=True)
        for name in ("controller", "cut", "tmp", *self.hosts):
            (self.place / name).mkdir(parents=True)
        self._sas = sas
        own = {
            name: {
                "ansible_connection": "cut",
                "ansible_python_interpreter": sys.executable,
                "ansible_remote_tmp": str(self.place / name / "tmp"),
                "ansible_async_dir": str(self.place / name / "async"),
                "dataset_staging_landing_path": str(self.place / name / "landing"),
                "dataset_staging_log_path": str(self.place / name / "log"),
            }
            for name in self.hosts
        }
        self._write("inventory.json", {"nodes": {"hosts": own}})
        self._write("play.json", _PLAY)

    def _write(self, name: str, document: t.Any) -> None:
        (self.place / name).write_text(json.dumps(document))

    def _variables(self) -> dict[str, t.Any]:
        return {
            "kills_stage": str(self.place),
            "dataset_staging_sources": [{"url": self._url, "prefix": "", "sas": self._sas}],
            "dataset_staging_destination": str(self.destination),
            "dataset_staging_decompress": True,
            "dataset_staging_azcopy_source": "preinstalled",
            "dataset_staging_azcopy_path": str(AZCOPY),
            # Slow enough that there is time to kill somebody.
            "dataset_staging_egress_mbps": _EGRESS_MBPS,
            "dataset_staging_nic_mbps": _EGRESS_MBPS,
            "dataset_staging_batch_s": 2,
            "dataset_staging_claim_expiry_s": 8,
            "dataset_staging_stall_timeout_s": 20,
            "dataset_staging_timeout_s": 300,
            "dataset_staging_processes": 2,
            "dataset_staging_concurrency": 4,
            "dataset_staging_threads": 2,
        }

    def start(self, name: str) -> None:
        """Start the play; ``name`` is that of its output."""
        self._write("variables.json", self._variables())
        home = self.place / "controller"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"),
            "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "benchmarks/staging/connections"),
            "ANSIBLE_HOME": str(home),
            "ANSIBLE_LOG_PATH": str(home / "ansible.log"),
            "ANSIBLE_FORCE_COLOR": "0",
            "ANSIBLE_PIPELINING": "true",  # as the shipped settings have it for ssh
            "KILLS_CUT": str(self.place / "cut"),
            "TMPDIR": str(self.place / "tmp"),
        }
        tags = "dataset_staging_configure,dataset_staging_verify"
        argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory.json", "play.json"]
        with (home / f"{name}.out").open("wb") as output:
            self._play = subprocess.Popen(
                [*argv, "-e", "@variables.json", "--tags", tags],
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        self.began = time.monotonic()

    @property
    def playing(self) -> bool:
        return self._play is not None and self._play.poll() is None

    def since_start_s(self) -> float:
        return time.monotonic() - self.began

    def end(self, limit_s: float) -> int | None:
        """Wait for the play's end; returns its exit status, None where it had not ended after so long, and is ended now."""
        assert self._play is not None
        try:
            status: int | None = self._play.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
            self._end_controller(signal.SIGKILL)
            self._play.wait()
        (self.place / "variables.json").unlink()  # the user's own, who may do so, too
        return status

    def output(self, name: str) -> str:
        return (self.place / "controller" / f"{name}.out").read_text(errors="replace")

    def crashes(self, name: str) -> list[str]:
        return crashes(self.output(name))

    # -- who runs --------------------------------------------------------------------------------------------------

    def processes(self, host: str = "") -> list[Process]:
        """Of one node, or of all."""
        stage = f"KILLS_STAGE={self.place}\0".encode()
        of = f"KILLS_HOST={host}\0".encode()
        found = [process for process in map(_process, _pids()) if process is not None]
        return [one for one in found if stage in one.environment and (not host or of in one.environment)]

    def worker(self, host: str) -> Process | None:
        """Who holds the lock of the node's rank."""
        for lock in (self.place / host / "log").glob("rank-*.lock"):
            process = _process(_holder(lock))
            if process is not None and str(self.place).encode() in process.environment:
                return process
        return None

    def azcopy(self, host: str) -> Process | None:
        return next((one for one in self.processes(host) if one.is_azcopy and b"copy" in one.words), None)

    def inflating(self) -> Process | None:
        """The worker that writes a file just now."""
        for folder in self.destination.glob("part-*"):
            for name in os.listdir(folder):
                part = _PART_OF.search(name)
                process = _process(int(part.group(1))) if part else None
                if process is not None and str(self.place).encode() in process.environment:
                    return process
        return None

    def wait_for_copy(self) -> bool:
        """Return True when a worker is there, False when the play ended without one."""
        while self.playing:
            if any(self.worker(host) for host in self.hosts):
                return True
            time.sleep(_LOOK_S)
        return False

    # -- kills -----------------------------------------------------------------------------------------------------

    def kill(self, kill: Kill) -> bool:
        """Make the kill, as soon as there is somebody to kill; False when the play ended before."""
        host = self.hosts[kill.host]
        while self.playing:
            if self._killed(kill, host):
                return True
            if kill.what != "inflating":  # which is over in a tenth of a second
                time.sleep(_LOOK_S)
        return False

    def _killed(self, kill: Kill, host: str) -> bool:
        if kill.what == "controller":
            self._end_controller(signal.Signals[kill.signal])
            return True
        if kill.what in ("connection", "host"):
            (self.place / "cut" / host).touch()
            if kill.what == "host":
                self.kill_all(host)
            return True
        process = self._victim(kill.what, host)
        if process is None:
            return False
        process.kill()
        return True

    def _victim(self, what: str, host: str) -> Process | None:
        """On this node, or on another one where it has nobody: near the end only one may still have work."""
        if what == "inflating":
            return self.inflating()
        find = self.worker if what == "worker" else self.azcopy
        return next(filter(None, map(find, [host, *self.hosts])), None)

    def mend(self) -> None:
        """Every node can be reached again: nothing else is done by hand before a rerun."""
        for host in self.hosts:
            (self.place / "cut" / host).unlink(missing_ok=True)

    def kill_all(self, host: str = "") -> None:
        while found := self.processes(host):
            for process in found:
                process.kill()
            time.sleep(_LOOK_S)

    def _end_controller(self, number: signal.Signals) -> None:
        """What Ctrl-C does, or the death of all of the controller's own processes; those of the nodes go on."""
        assert self._play is not None
        if number == signal.SIGKILL:
            of_nodes = {process.pid for process in self.processes()}
            for pid in _descendants(self._play.pid) - of_nodes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._play.pid, number)

    # -- what is left ----------------------------------------------------------------------------------------------

    def _files(self) -> t.Iterator[Path]:
        for path in self.destination.rglob("*"):
            if path.is_file() and ".staging" not in path.parts:
                yield path

    def wrong(self) -> list[str]:
        """Final names that hold something else than what they must."""
        names = []
        for path in self._files():
            name = str(path.relative_to(self.destination))
            if _PART_OF.search(name):
                continue
            with contextlib.suppress(FileNotFoundError):  # of a worker that still works
                if path.read_bytes() != self._content.get(name):
                    names.append(name)
        return names

    def missing(self) -> list[str]:
        return sorted(name for name in self._content if not (self.destination / name).is_file())

    def leftovers(self) -> list[str]:
        """Temporary files, and processes that do not end, after a run that ended well."""
        until = time.monotonic() + _WIND_DOWN_S
        while (alive := self.processes()) and time.monotonic() < until:
            time.sleep(0.2)
        found = [f"process {b' '.join(process.words[:3]).decode(errors='replace')}" for process in alive]
        found += [str(path) for path in self._files() if _PART_OF.search(path.name) or ".azDownload" in path.name]
        landing = [self.destination / ".staging" / "landing", *(self.place / host / "landing" for host in self.hosts)]
        return found + [str(path) for place in landing for path in place.rglob("*") if path.is_file()]

    # -- the secret ------------------------------------------------------------------------------------------------

    def secrets_on_disk(self) -> list[str]:
        """Files of the controller and the nodes, and of the system, that hold the SAS' signature."""
        words = [option for word in self._spellings() for option in ("-e", word)]
        places = [str(self.place), *(place for place in _ELSEWHERE if os.path.exists(place))]
        said = subprocess.run(["grep", "-rlsF", *words, "--", *places], capture_output=True, text=True, check=False)
        return said.stdout.splitlines()

    def secrets_in_processes(self) -> list[str]:
        """Titles and environments of our processes that hold it. AzCopy takes it in its arguments and nowhere else."""
        found = []
        for process in self.processes():
            told = process.environment if process.is_azcopy else b"\0".join([*process.words, process.environment])
            if any(word.encode() in told for word in self._spellings()):
                found.append(f"process {b' '.join(process.words[:2]).decode(errors='replace')}")
        return found

    def _spellings(self) -> set[str]:
        quoted = self._sas.split("sig=")[1].split("&")[0]
        return {quoted, quoted.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=")}


def _descendants(pid: int) -> set[int]:
    """The process and all that it started, as far as they are still its children's children."""
    parents: dict[int, int] = {}
    for other in _pids():
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{other}/stat").read_text(errors="replace")
            parents[other] = int(text.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


__all__ = ["Process", "Stage"]
