"""The container lab as pytest sees it: its nodes, its Blob service, and playbooks run against it.

The lab must be up and configured (``bin/test --all`` does that). A test stages a small dataset of its own to a directory of
its own, so that tests need no order and leave the lab as they found it.
"""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import random
import shlex
import signal
import subprocess
import time
import typing as t

import pytest
from lab.blob.service import BlobService

ROOT = pathlib.Path(__file__).resolve().parents[3]
STATE = pathlib.Path(os.environ.get("LAB_DIR") or ROOT / ".cache" / "lab").absolute()
ACCOUNT = "labtrain"
# Podman with the lab's settings. By its own it may look for the lab's network where another kind of networks is kept.
os.environ["CONTAINERS_CONF"] = str(STATE / "containers.conf")


class Result(t.NamedTuple):
    """How a playbook ended. ``output`` is everything it printed."""

    rc: int
    output: str

    def recap(self, host: str) -> dict[str, int]:
        line = next(line for line in self.output.splitlines() if line.startswith(f"{host} ") and "changed=" in line)
        return {key: int(value) for key, value in (word.split("=") for word in line.split(":")[1].split())}


class Lab:
    """The machines of the lab."""

    def __init__(self) -> None:
        state = json.loads((STATE / "machines.json").read_text())
        self.name: str = state["name"]
        self.addresses: dict[str, str] = state["machines"]
        self.nodes = [machine for machine in self.addresses if machine != "blob"]
        self.dataset_files: int = state["dataset"]["files"]

    def run(self, machine: str, *argv: str, check: bool = True) -> str:
        """Run a command in a machine, past ssh: it works while the network or sshd does not."""
        done = subprocess.run(
            ["podman", "exec", f"{self.name}-{machine}", *argv],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{machine}: {' '.join(argv)} ended with {done.returncode}: {done.stderr or done.stdout}"
            )
        return done.stdout

    def podman(self, *argv: str) -> None:
        done = subprocess.run(["podman", *argv], check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"podman {shlex.join(argv)} ended with {done.returncode}: {done.stderr}"

    def wait_for_ssh(self, machine: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            done = subprocess.run(
                ["ansible", "-i", "inventories/lab", machine, "-m", "ansible.builtin.ping"],
                cwd=ROOT,
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, f"{machine} does not answer: {done.stdout.decode()}"
            time.sleep(1)

    def container(self, machine: str) -> str:
        return f"{self.name}-{machine}"

    def start_playbook(
        self, name: str, options: dict[str, t.Any], *argv: str, env: t.Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a playbook; its output is a pipe. ``options`` are extra variables, passed in a file: they hold a SAS."""
        variables = STATE / f"test-{os.getpid()}-{time.monotonic_ns()}.json"
        descriptor = os.open(variables, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(options, stream)
        return subprocess.Popen(
            ["ansible-playbook", "-i", "inventories/lab", f"playbooks/{name}.yml", "-e", f"@{variables}", *argv],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "ANSIBLE_FORCE_COLOR": "0", **(env or {})},
        )

    def playbook(
        self,
        name: str,
        options: dict[str, t.Any],
        *argv: str,
        timeout_s: float = 300,
        env: t.Mapping[str, str] | None = None,
    ) -> Result:
        process = self.start_playbook(name, options, *argv, env=env)
        output, _none = process.communicate(timeout=timeout_s)
        return Result(process.returncode, output)

    def interrupt(self, process: subprocess.Popen[str]) -> None:
        """What Ctrl-C in a terminal does: SIGINT to the whole foreground group."""
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)


class Dataset:
    """A small dataset in a container of its own, and its place on the nodes."""

    def __init__(self, lab: Lab, name: str) -> None:
        keys = json.loads((STATE / "blob_keys.json").read_text())
        self.lab = lab
        self.name = name
        self.blobs = BlobService(10000, ACCOUNT, keys[ACCOUNT], lab.addresses["blob"])
        self.blobs.create_container(name)
        self.content: dict[str, bytes] = {}
        self.destination = f"/mnt/scratch/{name}"
        self.options: dict[str, t.Any] = {"dataset_staging_batch_s": 1, "dataset_staging_claim_expiry_s": 10}

    def fill(self, files: int = 60, bytes_each: int = 20_000, seed: int = 3) -> None:
        numbers = random.Random(seed)
        for number in range(files):
            self.put(f"f_{number:04d}.tfrecord.gz", numbers.randbytes(bytes_each) * 2)

    def put(self, name: str, content: bytes) -> None:
        self.blobs.put(self.name, name, gzip.compress(content, 1, mtime=0), encoding="gzip")
        self.content[name.removesuffix(".gz")] = content

    def variables(self, **options: t.Any) -> dict[str, t.Any]:
        url = f"http://{ACCOUNT}.blob.lab:10000/{self.name}"
        return {
            "dataset_staging_sources": [{"url": url, "prefix": "", "sas": self.blobs.sas("rl")}],
            "dataset_staging_destination": self.destination,
            **self.options,
            **options,
        }

    def stage(self, *argv: str, **options: t.Any) -> Result:
        return self.lab.playbook("staging", self.variables(**options), *argv)

    def report(self, node: str = "gpu-1") -> dict[str, t.Any]:
        return t.cast(
            "dict[str, t.Any]", json.loads(self.lab.run(node, "cat", f"{self.destination}/.staging/staging.json"))
        )

    def checksums(self, node: str = "gpu-1") -> dict[str, str]:
        """Name to MD5 of what is at the destination, our own state left out."""
        script = f"cd {self.destination} && find . -path ./.staging -prune -o -type f -exec md5sum {{}} +"
        lines = self.lab.run(node, "sh", "-c", script).splitlines()
        return {line[34:].removeprefix("./"): line[:32] for line in lines}

    def done_files(self, node: str = "gpu-1") -> int:
        return len(self.lab.run(node, "sh", "-c", f"ls {self.destination} 2>/dev/null || true").split())

    def wait_for_files(self, count: int, process: subprocess.Popen[str], timeout_s: float = 120) -> None:
        """Return when so many files have their final names while the play is still running."""
        deadline = time.monotonic() + timeout_s
        while self.done_files() < count:
            if process.poll() is not None or time.monotonic() > deadline:
                output = process.communicate(timeout=10)[0] if process.poll() is not None else ""
                raise AssertionError(f"The copy never reached {count} files.\n{output[-3000:]}")
            time.sleep(0.3)

    def remove(self) -> None:
        for node in self.lab.nodes:
            self.lab.run(node, "rm", "-rf", self.destination, check=False)


@pytest.fixture(scope="session")
def lab() -> Lab:
    if not (STATE / "machines.json").exists():
        pytest.fail("The lab is down. Run bin/test --all, or bin/demo and then bin/test -- tests/scenarios/cluster.")
    return Lab()


@pytest.fixture
def dataset(lab: Lab, request: pytest.FixtureRequest) -> t.Iterator[Dataset]:
    name = f"t{abs(hash((request.node.nodeid, time.time_ns()))) % 10**15}"
    made = Dataset(lab, name)
    yield made
    made.remove()
