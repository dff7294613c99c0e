# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""A module that goes on after Ansible has left, without a file that holds its options.

Ansible's own ``async_wrapper`` starts a module from a file, and the options lie in that file as long as the module runs, or
for ever where it is killed. Here the process that Ansible started, which may have read everything from stdin, goes on
itself: a supervisor in a session of its own, and its child, which works. The result is written as ``async_wrapper`` writes it,
so that ``async_status`` reads it; the supervisor says in its place how a child ended that could not. Where both were killed,
nobody says anything: until there is a result, the job's file names both, so that who asks can see whether they are there (``lost``).
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import signal
import sys
import time
import traceback
import typing as t
from dataclasses import dataclass

Result = dict[str, t.Any]

#: Set by the action: after so many seconds the job is killed, as with Ansible's ``async``.
LIMIT_VARIABLE = "GPU_CLUSTER_JOB_LIMIT_S"
_DIRECTORY_VARIABLE = "ANSIBLE_ASYNC_DIR"
#: Results that wait to be collected for so long are deleted.
_KEEP_S = 7 * 86400
_LOOK_S = 0.5
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
#: Of the fields behind a process's name in ``/proc/PID/stat``: its state, and when it was started, in ticks since boot (proc(5)).
_STATE, _STARTED = 0, 19
_MARKS = ("boot_id", "processes")


@dataclass(frozen=True)
class Job:
    """``name`` is that of the process and the beginning of the job's id, ``directory`` where the result will lie."""

    name: str
    directory: str
    limit_s: float

    def start(self, work: t.Callable[[], Result], lost: t.Callable[[str], Result]) -> Result:
        """Have ``work`` done in a process of its own, and return at once what Ansible needs to ask for the result.

        ``work`` returns the result of the module. ``lost`` makes it from how the process ended where it could not. Raises OSError
        where the directory cannot be written.
        """
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._prune()
        identifier = f"{self.name}-{secrets.token_hex(8)}"
        path = os.path.join(self.directory, identifier)
        started = {"started": True, "finished": False, "ansible_job_id": identifier}
        _write(path, started)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _never_return(lambda: self._detach(path, work, lost))
        os.waitpid(child, 0)
        return {**started, "results_file": path}

    def _detach(self, path: str, work: t.Callable[[], Result], lost: t.Callable[[str], Result]) -> None:
        os.setsid()
        if os.fork():
            return
        # Ansible waits until nobody has its pipes any more.
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.umask(0o022)
        # A core would hold what the module was told.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _sign(path)
        child = os.fork()
        if child == 0:
            _never_return(lambda: self._work(path, work, lost))
        reason = _wait(child, self.limit_s)
        if reason:
            _write(path, lost(reason))

    def _work(self, path: str, work: t.Callable[[], Result], lost: t.Callable[[str], Result]) -> None:
        with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as stream:
            stream.write(self.name)
        _sign(path)
        try:
            result = work()
        except Exception:
            # As Ansible does with a module that it waits for.
            result = lost(traceback.format_exc())
        _write(path, result)

    def _prune(self) -> None:
        """Delete results of ours that are old."""
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    ours = entry.name.startswith(f"{self.name}-") and entry.is_file(follow_symlinks=False)
                    if ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > _KEEP_S:
                        os.unlink(entry.path)


def asked_for(name: str) -> Job | None:
    """The job that the action wants the module to be; None where Ansible waits for the module."""
    limit_s = os.environ.get(LIMIT_VARIABLE)
    if not limit_s:
        return None
    directory = os.environ.get(_DIRECTORY_VARIABLE) or "~/.ansible_async"
    return Job(name, os.path.expanduser(directory), float(limit_s))


def _sign(path: str) -> None:
    """Note in the job's file that this process works on it, too. Only one at a time writes there: who was forked last."""
    with contextlib.suppress(OSError, ValueError):
        with open(_BOOT_ID, encoding="ascii") as stream:
            boot_id = stream.read().strip()
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:
            mine = [os.getpid(), _fields(stream.read())[_STARTED]]
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
        _write(path, {**document, "boot_id": boot_id, "processes": [*document.get("processes", ()), mine]})


def question(document: t.Mapping[str, t.Any]) -> list[str]:
    """The files of the node that tell whether the job of this document goes on; none where the document does not know."""
    if not _is_marked(document):
        return []
    return [_BOOT_ID, *(f"/proc/{int(pid)}/stat" for pid, _started in document["processes"])]


def lost(document: t.Mapping[str, t.Any], answer: str) -> str:
    """How a job without a result ended, "" where it goes on or nobody knows. ``answer`` is what stands in the files of ``question``."""
    boot_id, _newline, stats = answer.partition("\n")
    if not _is_marked(document) or not boot_id.strip():
        return ""
    if boot_id.strip() != document["boot_id"]:
        return "the node was rebooted meanwhile"
    if any(state not in "ZX" for _pid, state in _states(document, stats)):
        return ""
    return "all its processes were killed"


def stopped(document: t.Mapping[str, t.Any], answer: str) -> int:
    """The process of a job without a result that works no more until somebody lets it (``SIGCONT``), 0 where there is none."""
    boot_id, _newline, stats = answer.partition("\n")
    if not _is_marked(document) or boot_id.strip() != document["boot_id"]:
        return 0
    return next((pid for pid, state in _states(document, stats) if state == "T"), 0)


def _states(document: t.Mapping[str, t.Any], stats: str) -> t.Iterator[tuple[int, str]]:
    """The job's processes that are there, each with its state. A number may be that of another process by now."""
    there = {line.partition(" ")[0]: _fields(line) for line in stats.splitlines()}
    for pid, started in document["processes"]:
        fields = there.get(str(pid), [])
        if len(fields) > _STARTED and fields[_STARTED] == started:
            yield pid, fields[_STATE]


def unmarked(document: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The document without what is only for ``lost``."""
    return {key: value for key, value in document.items() if key not in _MARKS}


def _is_marked(document: t.Mapping[str, t.Any]) -> bool:
    return all(key in document for key in _MARKS)


def _fields(stat: str) -> list[str]:
    """What follows the name in ``/proc/PID/stat``. The name may hold blanks and parentheses."""
    return stat.rpartition(")")[2].split()


def _never_return(act: t.Callable[[], None]) -> t.NoReturn:
    """End a forked process here: what is around belongs to the process that it was forked from."""
    code = 1
    try:
        act()
        code = 0
    except BaseException:
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        os._exit(code)


def _wait(child: int, limit_s: float) -> str:
    """How the process ended, "" where it ended well. One that outlasts the limit is killed, and not waited for: it may hang."""
    deadline = time.monotonic() + limit_s
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return _ending(os.waitstatus_to_exitcode(status))
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            return f"it took longer than {limit_s:g} s"
        time.sleep(_LOOK_S)


def _ending(code: int) -> str:
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with status {code}" if code else ""


def _write(path: str, document: Result) -> None:
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    os.replace(part, path)


__all__ = ["LIMIT_VARIABLE", "Job", "asked_for", "lost", "question", "stopped", "unmarked"]
