# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab as pytest sees it: its nodes, their power and disks, and playbooks run against them.

The lab must be up (``bin/demo --vm``); LAB_VM_DIR chooses another one. A test leaves the nodes running, with all disks in
their slots, and cleans them before it uses them, so that files need no order and run alone. An emulated machine runs on one
core: processes with different LAB_VM_NODE, or those of ``--numprocesses 2 --dist loadfile``, have one machine each. Tests
marked ``both`` need all machines, and a process that has no other beside it.

A role run costs a playbook and about 4 s per task. Tests run a role for what is the role's (variables, units, order, handlers,
check mode) and call its module (``VmLab.module``) for the module's own cases, without a Python that starts for each of them.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
import typing as t

import pytest
import yaml
from lab.vm import machine, qemu, runtime, state
from lab.vm.module_runner import NODE_SIDE, ModuleRunner, RunnerEnded
from module_archive import module_archive
from own_machine import NODE, SHARED

ROOT = pathlib.Path(__file__).resolve().parents[3]
SIMULATOR = ROOT / "tests" / "lab" / "gpu_simulator"
PREPARE = "molecule/vm/prepare.yml"
# Where modules lie on a node: in memory, so that a power cut leaves no half of them. A boot takes them away.
MODULES = "/run/lab-modules"
_ABSENT = 90


class Result(t.NamedTuple):
    """How a playbook ended. ``output`` is everything it printed."""

    rc: int
    output: str
    seconds: float

    def recap(self, host: str) -> dict[str, int]:
        line = next(line for line in self.output.splitlines() if line.startswith(f"{host} ") and "changed=" in line)
        return {key: int(value) for key, value in (word.split("=") for word in line.split(":")[1].split())}


class VmLab:
    """The machines of the lab, as far as they are this process's. Nothing here touches another one.

    What changes the lab's description holds the lab's lock. Power needs none, and a boot must not keep the other process.
    """

    def __init__(self) -> None:
        self.paths = state.Paths.here()
        everything = list(self.lab["nodes"])
        assert NODE in everything, f"The lab has no {NODE}: no more --numprocesses than machines, {len(everything)}"
        self.nodes = [NODE] if SHARED else everything
        # Under emulation a login takes two seconds, a command over a connection that is there 0.2 s.
        self.connections = pathlib.Path("~/.ansible").expanduser() / f"cp-{self.lab['name']}"
        self.connections.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.runners: dict[str, ModuleRunner] = {}

    @property
    def lab(self) -> dict[str, t.Any]:
        return state.load(self.paths)

    def ssh_argv(self, node: str, command: str, login: bool = False) -> list[str]:
        """The command that runs another one on a node, with ``login`` over a connection of its own."""
        path = "none" if login else str(self.connections / "test-%p")
        return runtime.ssh_argv(self.paths, self.lab, node, command, control_path=path)

    def run(self, node: str, *argv: str, check: bool = True, timeout_s: float = 300, login: bool = False) -> str:
        """Run a command on a node and return what it printed. Limits of users apply with the next ``login``."""
        done = subprocess.run(
            self.ssh_argv(node, shlex.join(argv), login),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode == 255 or (check and done.returncode):
            said = f"{node}: {shlex.join(argv)} ended with {done.returncode}: {done.stderr or done.stdout}"
            if done.returncode == 255:  # ssh itself
                said += runtime.last_words(self.paths, self.lab, node)
            raise AssertionError(said)
        return done.stdout

    def shell(self, node: str, script: str, check: bool = True, timeout_s: float = 300) -> str:
        """Run a shell script on a node and return what it printed."""
        return self.run(node, "sh", "-euc", script, check=check, timeout_s=timeout_s)

    def everywhere(self, script: str) -> dict[str, str]:
        """What a shell script prints on each node. All run it at the same time."""
        with concurrent.futures.ThreadPoolExecutor(len(self.nodes)) as pool:
            return dict(zip(self.nodes, pool.map(lambda node: self.shell(node, script), self.nodes)))

    def unpack(self, node: str, archive: bytes, directory: str, *options: str) -> None:
        """Unpack a tar archive into a directory of a node."""
        words = shlex.join(["tar", "-x", *options, "--no-same-owner", "-C", directory])
        subprocess.run(self.ssh_argv(node, words), input=archive, timeout=300, check=True)

    def module(
        self,
        name: str,
        options: t.Mapping[str, t.Any],
        node: str = NODE,
        check: bool = False,
        timeout_s: float = 900,
    ) -> dict[str, t.Any]:
        """Run a module of this collection on a node, without a playbook, and return its result, with ``failed``.

        Its files are brought once per boot, so that Python compiles and imports them once, and Ansible reads the options from
        standard input, as it does to debug modules. An action of the same name takes no part: no reboot, no packages.
        """
        hidden = {"_ansible_check_mode": check, "_ansible_diff": check, "_ansible_remote_tmp": "/tmp"}
        hidden["_ansible_module_name"] = name.rpartition(".")[2]
        told = json.dumps({"ANSIBLE_MODULE_ARGS": {**options, **hidden}})
        full = "ansible_collections." + ".plugins.modules.".join(name.rsplit(".", 1))
        try:
            done = self._runner(node).run(full, told, timeout_s)
        except RunnerEnded as exc:
            raise AssertionError(f"{node}: module {name}: {exc}\n{self.silent()}") from exc
        try:
            return {"failed": False, **json.loads(done.stdout)}
        except json.JSONDecodeError as exc:
            said = f"{node}: module {name} ended with {done.rc}: {done.stderr or done.stdout}\n{self.silent()}"
            raise AssertionError(said) from exc

    def _runner(self, node: str) -> ModuleRunner:
        """What runs modules on a node. It is started again when the node has booted."""
        runner = self.runners.get(node)
        if runner and runner.lost():
            self.forget(node)
        if node not in self.runners:
            digest, archive = module_archive()
            place = f"{MODULES}/{digest}"
            script = f'test -d "$0" || exit {_ABSENT}; exec python3 -c "$1" "$0"'
            argv = self.ssh_argv(node, shlex.join(["sh", "-c", script, place, NODE_SIDE]))
            try:
                self.runners[node] = ModuleRunner(argv)
            except RunnerEnded as exc:
                if exc.rc != _ABSENT:
                    raise
                self.shell(node, f"rm -rf {place}.part; mkdir -p {place}.part")
                self.unpack(node, archive, f"{place}.part", "-z")
                self.run(node, "mv", f"{place}.part", place)
                self.runners[node] = ModuleRunner(argv)
        return self.runners[node]

    def forget(self, *nodes: str) -> None:
        """End what runs modules on these nodes, or on all."""
        for node in nodes or list(self.runners):
            if node in self.runners:
                self.runners.pop(node).close()

    def playbook(
        self,
        path: str | pathlib.Path | list[dict[str, t.Any]],
        *argv: str,
        limit: str = "",
        timeout_s: float = 900,
        **extra_vars: t.Any,
    ) -> Result:
        """Run a playbook: its path from the root of the repository, or plays as data. Extra variables go through a file."""
        stem = self.paths.directory / f"test-{os.getpid()}-{time.monotonic_ns()}"
        variables, plays = stem.with_suffix(".vars.json"), stem.with_suffix(".yml")
        variables.write_text(json.dumps(extra_vars))
        if isinstance(path, list):
            plays.write_text(json.dumps(path))
            path = plays
        words = ["ansible-playbook", "-i", str(ROOT / "inventories" / "vm"), str(ROOT / path), "-e", f"@{variables}"]
        started = time.monotonic()
        try:
            done = subprocess.run(
                [*words, *argv, "--limit", limit or ",".join(["localhost", *self.nodes])],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_s,
                check=False,
                env={**os.environ, "ANSIBLE_FORCE_COLOR": "0"},
            )
        except subprocess.TimeoutExpired as exc:
            said = bytes(exc.stdout or b"").decode(errors="replace")
            raise AssertionError(f"No end after {timeout_s:.0f} s:\n{said}\n{self.silent()}") from exc
        finally:
            variables.unlink()
            plays.unlink(missing_ok=True)
        said = f"{done.stdout}\n{self.silent()}" if done.returncode else done.stdout
        return Result(done.returncode, said, time.monotonic() - started)

    def prepared(self, node: str) -> bool:
        """Whether the simulated GPUs are there, and are what molecule/vm/prepare.yml would bring."""
        names = yaml.safe_load((ROOT / PREPARE).read_text())[0]["vars"]["lab_simulator_files"]
        names.append("libcuda/libcuda.so.1")
        subprocess.run(
            [sys.executable, str(SIMULATOR / "libcuda/make_libcuda.py")], check=True, stdout=subprocess.DEVNULL
        )
        digests = {name: hashlib.sha256((SIMULATOR / name).read_bytes()).hexdigest() for name in names}
        wanted = [digests["nvidia-smi"], *(digests[name] for name in names)]
        files = ["/usr/bin/nvidia-smi", *(f"/opt/gpu_simulator/{name}" for name in names)]
        script = f"nvidia-smi -L >/dev/null && sha256sum {shlex.join(files)} || true"
        return [line.split()[0] for line in self.shell(node, script).splitlines()] == wanted

    def silent(self) -> str:
        """The last words of nodes that do not answer."""
        lost = [node for node in self.nodes if not runtime.greets(self.lab, node)]
        return "\n".join(runtime.last_words(self.paths, self.lab, node) for node in lost)

    def role(
        self,
        name: str,
        tasks_from: str = "main",
        *argv: str,
        limit: str = "",
        timeout_s: float = 900,
        times: int = 1,
        **variables: t.Any,
    ) -> Result:
        """Run one entry point of a role of this collection, several ``times`` one after the other in one play."""
        task = {
            "name": f"Run {name}, {tasks_from}",
            "ansible.builtin.include_role": {"name": f"hpcai.gpu_cluster.{name}", "tasks_from": tasks_from},
        }
        play = {"name": f"Test {name}", "hosts": "gpu_nodes", "gather_facts": False, "tasks": [task] * times}
        return self.playbook([play], *argv, limit=limit, timeout_s=timeout_s, **variables)

    def power_off(self, node: str, clean: bool = False) -> None:
        """Cut the power (or press the power button)."""
        self.forget(node)
        runtime.power_off(self.paths, self.lab, node, clean)

    def power_on(self, node: str) -> None:
        """Start the node and wait until it has booted."""
        if runtime.pid(self.paths, self.lab, node) is None:
            runtime.power_on(self.paths, self.lab, node)
            runtime.wait(self.paths, self.lab, node)

    def power_cycle(self, node: str) -> None:
        """Cut the power, start the node again, wait until it has booted."""
        self.power_off(node)
        self.power_on(node)

    def replace_disks(self, node: str, disks: t.Sequence[int] = (), same_serial: bool = False) -> list[str]:
        """Put new, empty disks into a node that is off; returns their serial numbers."""
        with machine.only_one(self.paths):
            return machine.replace_disks(self.paths, node, disks, same_serial)

    def remove_disk(self, node: str, disk: int) -> None:
        with machine.only_one(self.paths):
            machine.set_present(self.paths, node, disk, False)

    def insert_disk(self, node: str, disk: int) -> None:
        with machine.only_one(self.paths):
            machine.set_present(self.paths, node, disk, True)

    def reorder_disks(self, node: str) -> list[int]:
        with machine.only_one(self.paths):
            return machine.reorder_disks(self.paths, node)

    def checksums(self, node: str, disks: t.Iterable[int] = range(qemu.DISKS)) -> list[str]:
        """SHA-256 of what is on each disk; the guest is told to write out first if it runs."""
        if runtime.pid(self.paths, self.lab, node):
            self.run(node, "sync")
        return [machine.checksum(self.paths, node, disk) for disk in disks]

    def written(self, node: str) -> list[int]:
        """The disks that something was written to since they held nothing, as far as the guest has written it out."""
        return [disk for disk in range(qemu.DISKS) if machine.is_written(self.paths, node, disk)]

    def serial(self, node: str, disk: int) -> str:
        """The serial number of a disk."""
        return str(self.lab["nodes"][node]["disks"][disk]["serial"])

    def devices(self, node: str, *disks: int) -> list[str]:
        """The devices that these disks are right now, such as /dev/nvme3n1."""
        script = "for d in /sys/block/nvme*; do read -r serial < $d/device/serial; echo $serial /dev/${d##*/}; done"
        found = dict(line.split() for line in self.shell(node, script).splitlines())
        serials = [self.serial(node, disk) for disk in disks]
        assert found.keys() >= set(serials), f"{node} has {found}, not all of {serials}"
        return [found[serial] for serial in serials]


@pytest.fixture(scope="session")
def vm_lab() -> t.Iterator[VmLab]:
    paths = state.Paths.here()
    if not paths.machines.exists():
        pytest.fail("The VM lab is down. Run bin/demo --vm, and then bin/test -- tests/scenarios/vm.")
    lab = VmLab()
    for node in lab.nodes:
        lab.power_on(node)
    if not all(map(lab.prepared, lab.nodes)):
        prepared = lab.playbook(PREPARE)
        assert prepared.rc == 0, prepared.output
    yield lab
    lab.forget()


@pytest.fixture(scope="module", autouse=True)
def answering(vm_lab: VmLab) -> None:
    """A node that an earlier test lost costs no other test."""
    for node in vm_lab.nodes:
        if not runtime.greets(vm_lab.lab, node):
            vm_lab.power_cycle(node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Starts of machines that the lab had to repeat, and what QEMU complained about."""
    logs = sorted(state.Paths.here().directory.glob("*/qemu.log"))
    lines = [f"{log.parent.name}: {line}" for log in logs for line in log.read_text(errors="replace").splitlines()]
    if lines:
        terminalreporter.section("QEMU")
        terminalreporter.write_line("\n".join(lines))
