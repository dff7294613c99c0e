# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Observe all nodes, plan, and do it; what fails is taken back, and told with its node, its service, and the end of its log."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import typing as t
import uuid

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond import plan as planning
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond import program
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import RUN_DIRECTORY, Plan, Request, Seen
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.remote import source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.settings import settings_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.nodes import Nodes

# One look at a node: connecting, and stopping services that take their time, each of which is limited in the agent.
_NODE_S = 60.0


@contextlib.contextmanager
def only_one(request: Request) -> t.Iterator[str]:
    """Refuse a second run for the same file system while this one works. Its name is in the lock, for the look at this node."""
    os.makedirs(RUN_DIRECTORY, 0o700, exist_ok=True)
    handle = os.open(request.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(
                "busy",
                f"Another run is working on the file system with port shift {request.port_shift}.",
                "Wait until it has ended, and run again.",
            ) from None
        token = uuid.uuid4().hex
        os.truncate(handle, 0)
        os.write(handle, token.encode())
        yield token
    finally:
        os.close(handle)


class FileSystem:
    """The file system of one request, from the first node."""

    def __init__(self, request: Request, run: str = "") -> None:
        self.request, self.run = request, run
        #: Whose data may go, by node: what is of another session by then came after the look at it.
        self.sessions: dict[str, str] = {}
        self.nodes = Nodes(request.nodes, self._request_for, _NODE_S, source())

    def _request_for(self, node: str) -> dict[str, t.Any]:
        request = self.request
        ports = {*request.ports_of(node, 7), *request.ports_of(node, 8)}
        return {
            "data_path": request.data_path,
            "mount_point": request.mount_point,
            "status_file": request.status_file,
            "run_dir": request.run_dir,
            "log_dir": request.log_dir,
            "config_dir": request.config_dir,
            "lock": request.lock,
            "node_lock": request.node_lock,
            "run": self.run,
            "sessions": self.sessions,
            "consent": request.allow_data_loss,
            "ports": sorted(ports),
            "nodes": list(request.nodes),
        }

    def observe(self) -> dict[str, Seen]:
        """All nodes, in order."""
        answers = self.nodes.run(self.request.nodes, "observe")
        return {
            node: Seen(unreachable=found["error"]) if "error" in found else Seen.of(found)
            for node, found in answers.items()
        }

    def plan(self, cluster: t.Mapping[str, Seen]) -> Plan:
        """What is to be done."""
        return (
            planning.plan_start(self.request, cluster)
            if self.request.state == "started"
            else planning.plan_stop(self.request, cluster)
        )

    def apply(self, plan: Plan, cluster: t.Mapping[str, Seen]) -> None:
        """Do it. Raises ClusterError where it did not succeed."""
        self.sessions = {node: str(seen.mark.get("session")) for node, seen in cluster.items() if seen.mark}
        if plan.stop:
            with program.node_file(plan.stop) as names:
                # Whatever it says, the sweep and the look at the nodes afterwards decide.
                argv = program.stop_argv(self.request, names, parallel=self._parallel(cluster))
                program.run(argv, self.request.timeout_s)
        self._must(plan.sweep, "sweep")
        # It may have terabytes to remove.
        self._must(
            plan.purge,
            "purge",
            limit_s=float(self.request.timeout_s),
            remedy="Correct this, or raise `timeout_s`, and run again: what was removed by then is gone.",
        )
        if plan.keep:
            marks = {node: dict(seen.mark) for node, seen in cluster.items() if seen.mark}
            self._keep(next(iter(marks.values())))
        if plan.start:
            self._start(plan, cluster)

    def _parallel(self, cluster: t.Mapping[str, Seen]) -> bool:
        # BeeOND calls pdsh on the node where it runs, and nowhere else.
        return cluster[self.request.nodes[0]].pdsh

    def _must(
        self, names: t.Sequence[str], *steps: str, remedy: str = "Correct this, and run again.", **more: t.Any
    ) -> None:
        """Let nodes do something, and fail with those that could not."""
        failed = {
            node: (found["error"],) for node, found in self.nodes.run(names, *steps, **more).items() if "error" in found
        }
        if failed:
            raise ClusterError("node_failed", f"{planning.named(failed)}.", remedy, problems=failed)

    def _start(self, plan: Plan, cluster: t.Mapping[str, Seen]) -> None:
        request = self.request
        version = planning.version_of(request, cluster)
        kept = not plan.purge and any(seen.data_there for seen in cluster.values())
        sessions = [seen.mark["session"] for seen in cluster.values() if seen.mark and seen.data_there and kept]
        mark = {
            "session": sessions[0] if sessions else uuid.uuid4().hex,
            "layout": request.layout(version),
            "port_shift": request.port_shift,
            "mount_point": request.mount_point,
        }
        settings = settings_of(request, version)
        config = request.config_dir or (request.run_dir if settings else "")
        modes = program.modes(request, cluster) if version == 8 else ()
        started = {**mark, "state": "used" if kept else "starting"}
        self.sessions = dict.fromkeys(request.nodes, str(mark["session"]))
        try:
            self._must(request.nodes, "prepare", mark=started, settings=settings)
            with program.node_file(request.nodes) as names:
                argv = program.start_argv(request, names, config, modes=modes, parallel=self._parallel(cluster))
                code, output = program.run(argv, request.timeout_s)
            failure = self._failure(code, output)
            if failure is not None:
                raise failure
            self._keep(mark)
        except ClusterError as exc:
            raise self._taken_back(exc, kept=kept) from exc
        except BaseException:
            self._roll_back(kept)
            raise

    def _keep(self, mark: t.Mapping[str, t.Any]) -> None:
        """Note everywhere that users may write from now on."""
        used = {**mark, "state": "used"}
        self._must(self.request.nodes[:1], "keep", mark=used, root_mode=self.request.root_mode)
        self._must(self.request.nodes[1:], "keep", mark=used, root_mode="")

    def _failure(self, code: int | None, output: str) -> ClusterError | None:
        """Why the file system is not there: the nodes tell, whatever BeeOND said."""
        cluster = self.observe()
        problems = planning.all_problems(self.request, cluster)
        if code == 0 and not problems:
            return None
        guilty = tuple(problems)
        found = self.nodes.run([node for node in guilty if not cluster[node].unreachable], "tails")
        tails = {node: answer.get("log_tail", {}) for node, answer in found.items()}
        how = f"did not end within {self.request.timeout_s} s" if code is None else f"ended with {code}"
        told = [line for line in output.splitlines() if "ERROR" in line][-1:] or output.splitlines()[-1:]
        said = f" Its last word: {told[0].strip()}" if told else ""
        return ClusterError(
            "start_failed",
            f"BeeOND {how}. {planning.named(problems) or 'All nodes look well'}.{said}",
            "See `log_tail`, correct the cause, and run again.",
            problems=problems,
            log_tail={"beeond": output, **tails},
        )

    def _taken_back(self, failure: ClusterError, *, kept: bool) -> ClusterError:
        """The same failure, with what has become of that which was started."""
        cluster, left = self._roll_back(kept)
        problems = planning.all_problems(self.request, cluster)
        details = {"problems": problems, **failure.details}
        if "problems" not in failure.details and problems:
            failure.message += f" By then: {planning.named(problems)}."
        if left:
            told = f"What was started could not be taken back everywhere: {planning.named(left)}."
        else:
            told = "What was started is stopped again."
        remedy = f"{failure.remedy} `state: stopped` tries again to stop what is left." if left else failure.remedy
        return ClusterError(
            failure.kind, f"{failure.message} {told}", remedy, **details, **({"left": left} if left else {})
        )

    def _roll_back(self, kept: bool) -> tuple[dict[str, Seen], dict[str, tuple[str, ...]]]:
        """Stop what was started; returns how the nodes were before, and what could not be done.

        Data that a start has just made goes, too, unless it holds files: some nodes may have been mounted for minutes.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # It has a limit of its own.
            signal.signal(number, signal.SIG_IGN)
        steps = ("observe", "sweep", *(() if kept else ("purge",)))
        # A metadata service that never came up has made 66,000 directories by then.
        limit_s = float(self.request.timeout_s)
        found = self.nodes.run(self.request.nodes, *steps, limit_s=limit_s, consent=False, taking_back=True)
        seen = {
            node: Seen.of(answer) if "services" in answer else Seen(unreachable=answer["error"])
            for node, answer in found.items()
        }
        return seen, {node: (answer["error"],) for node, answer in found.items() if "error" in answer}


__all__ = ["FileSystem", "only_one"]
