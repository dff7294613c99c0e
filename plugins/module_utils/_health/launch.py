# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Start the launches of a round side by side from one node, read what they print, and leave nothing of them on any node."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import signal
import subprocess
import tempfile
import threading
import time
import types
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health import agent
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import Launch, Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.nccl_tests import (
    Incomplete,
    failure,
    parse,
    transports,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.nodes import Nodes, is_setting, text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._mpi.verify import known_failure

#: How long a node may take to end what is left on it: the agent's own limits, and a login.
_SWEEP_S = 30.0
_GRACE_S = 5.0
#: NCCL's lines of thousands of ranks; what is beyond that is neither table nor transport of the first ranks.
_READ_BYTES = 64 << 20
_TAIL_BYTES = 4096
#: Loads a module as users do, and lets mpirun give to the ranks of other nodes what it set for NCCL and UCX, but for what is given anyway
#: (azurehpc-health-checks names each with ``-x``). Words are handed over as arguments: nothing of them is read as shell.
_WITH_MODULE = """module load "$1" && shift || exit
words=()
if [[ $1 == mpirun ]]; then
  for name in "${!NCCL_@}" "${!UCX_@}" CUDA_DEVICE_ORDER LD_LIBRARY_PATH; do
    [[ ! -v $name || " $HPCAI_HEALTH_GIVEN " == *" $name "* ]] || words+=(-x "$name")
  done
fi
exec "$1" "${words[@]}" "${@:2}"
"""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How programs are started. ``tag`` marks all processes of a run; ``directory`` is where nccl-tests lies on every node."""

    tag: str
    launcher: str = "mpirun"
    directory: str = "/opt/nccl-tests/build"
    ranks_per_node: int = 1
    module: str = ""
    user: str = ""
    mca: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    srun_arguments: tuple[str, ...] = ()
    parallel: int = 64

    def path(self, program: str) -> str:
        return os.path.join(self.directory, program)


def launch_argv(settings: Settings, launch: Launch) -> list[str]:
    """The words that start a launch. With an environment module they go through a login shell, as users go."""
    words = [settings.path(launch.program), *launch.arguments]
    ranks = settings.ranks_per_node
    if settings.launcher == "srun":
        argv = [
            "srun",
            f"--nodes={len(launch.nodes)}",
            f"--nodelist={','.join(launch.nodes)}",
            f"--ntasks-per-node={ranks}",
        ]
        argv += ["--kill-on-bad-exit=1", *settings.srun_arguments, *words]
    else:
        hosts = ",".join(f"{node}:{ranks}" for node in launch.nodes)
        argv = ["mpirun", "-np", str(len(launch.nodes) * ranks), "--host", hosts, "--map-by", f"ppr:{ranks}:node"]
        for key, value in sorted(settings.mca.items()):
            argv += ["--mca", key, value]
        for key, value in sorted({**settings.environment, agent.TAG: settings.tag}.items()):
            argv += ["-x", f"{key}={value}"]
        argv += words
    if not settings.module:
        return argv
    return ["bash", "-lc", _WITH_MODULE, "health_check", settings.module, *argv]


class Round:
    """The launches of one round."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        me = pwd.getpwuid(os.geteuid()).pw_name
        self._prefix = () if settings.user in ("", me) else ("runuser", "-u", settings.user, "--")
        given = {**settings.environment, agent.TAG: settings.tag, "HPCAI_HEALTH_GIVEN": " ".join(settings.environment)}
        self._environment = {**os.environ, "LC_ALL": "C.UTF-8", **given}
        if (settings.user or me) == "root":
            self._environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self._text = _agent_text()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._over = False

    def run(self, launches: t.Sequence[Launch]) -> list[Outcome]:
        """All outcomes, in order. Whatever ends this, no process of the round is left where nodes answer."""
        pool = ThreadPoolExecutor(max_workers=max(1, min(self.settings.parallel, len(launches))))
        try:
            outcomes = list(pool.map(self._launch, launches))
        except BaseException:
            self._kill_all()
            pool.shutdown(wait=True, cancel_futures=True)
            self.sweep([node for one in launches for node in one.nodes], ())
            raise
        pool.shutdown()
        return self._with_nodes(launches, outcomes)

    def sweep(self, nodes: t.Iterable[str], programs: t.Iterable[str]) -> dict[str, dict[str, t.Any]]:
        """End on these nodes what is left of the run, this one included; what each answered."""
        names = list(dict.fromkeys(nodes))
        paths = [self.settings.path(one) for one in dict.fromkeys(programs)]
        request = {"tag": self.settings.tag, "programs": paths}
        return Nodes(names, lambda _name: request, _SWEEP_S, self._text, self._prefix).run(names)

    def _with_nodes(self, launches: t.Sequence[Launch], outcomes: list[Outcome]) -> list[Outcome]:
        """What the nodes of launches that did not end well have to say."""
        ended_badly = {one.id for one in outcomes if one.rc != 0 or one.timed_out}
        asked = [node for one in launches if one.id in ended_badly for node in one.nodes]
        answers = self.sweep(asked, (one.program for one in launches)) if asked else {}
        return [self._judged(one, answers) if one.id in ended_badly else one for one in outcomes]

    def _judged(self, outcome: Outcome, answers: t.Mapping[str, t.Mapping[str, t.Any]]) -> Outcome:
        lost, missing = {}, {}
        for node in outcome.nodes:
            answer = answers[node]
            if "error" in answer and is_setting(answer["error"]):
                return dataclasses.replace(outcome, trouble=f"{node} {answer['error']}")
            if "error" in answer:
                lost[node] = str(answer["error"])
            elif answer["left"]:
                lost[node] = "; ".join(answer["left"])
            elif answer["missing"]:
                missing[node] = answer["missing"][0]
        if lost:
            return dataclasses.replace(outcome, lost=lost)
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            text = f"there is no {next(iter(missing.values()))} on {', '.join(list(missing)[:3])}{more}"
            return dataclasses.replace(outcome, trouble=text)
        return outcome

    def _launch(self, launch: Launch) -> Outcome:
        """Start it, wait, and read it. Output goes to a file: what is left of a launch may keep a pipe open."""
        outcome = Outcome(launch.id, launch.nodes)
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            argv = [*self._prefix, *launch_argv(self.settings, launch)]
            try:
                with self._lock:
                    if self._over:
                        return outcome
                    process = subprocess.Popen(
                        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd="/",
                        env=self._environment, start_new_session=True,
                    )  # fmt: skip
                    self._running.add(process)
            except OSError as exc:
                return dataclasses.replace(outcome, trouble=f"{argv[0]} cannot be started: {exc.strerror}")
            timed_out = False
            try:
                process.wait(launch.timeout_s)
            except subprocess.TimeoutExpired:
                timed_out = True
                _end(process)
            with self._lock:
                self._running.discard(process)
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _READ_BYTES))
            text = output.read().decode(errors="replace")
        seconds = round(time.monotonic() - began, 2)
        return _read(
            dataclasses.replace(outcome, seconds=seconds, rc=process.returncode, timed_out=timed_out),
            text,
            launch.samples,
        )

    def _kill_all(self) -> None:
        with self._lock:
            self._over = True
            running = list(self._running)
        for process in running:
            _end(process)


def _read(outcome: Outcome, text: str, samples: int) -> Outcome:
    tail = text[-_TAIL_BYTES:]
    found = parse(text, samples)
    seen = dataclasses.replace(outcome, transport=transports(text), log_tail=tail)
    if isinstance(found, Incomplete):
        # Of one that failed, its own words; of one that says it is well, what its output lacks.
        reason = failure(text) if outcome.rc != 0 else found.reason
        known = "" if outcome.rc == 0 or outcome.timed_out else known_failure(text)
        return dataclasses.replace(seen, unreadable=reason, trouble=known)
    return dataclasses.replace(
        seen,
        busbw_gbytes_s=tuple(round(one, 3) for one in found.samples),
        curve=tuple((size, round(busbw, 3)) for size, busbw in found.curve),
        wrong=found.wrong,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the launcher, which ends its ranks if it can."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            return


def _agent_text() -> str:
    text = text_of(agent)
    return "\n".join(["import types", "_agent = types.ModuleType('agent')", f"exec({text!r}, _agent.__dict__)"])


@contextlib.contextmanager
def interruptible() -> t.Iterator[None]:
    """A signal that would end the module raises an error instead, so that the launches are ended first."""

    def stop(number: int, _frame: types.FrameType | None) -> None:
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        name = signal.Signals(number).name
        raise ClusterError(
            "interrupted", f"The check was interrupted ({name}). Its launches were ended.", "Run it again: it goes on."
        )

    before = [(number, signal.signal(number, stop)) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


__all__ = ["Round", "Settings", "interruptible", "launch_argv"]
