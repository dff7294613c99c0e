# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Work that may hang in a file system, done by a child, so that the module answers within a deadline all the same.

A process that waits for a dead disk or a stalled NFS server may sleep uninterruptibly (state D in proc(5)): no signal ends it, no
timer of its own runs, and a thread of that kind keeps its process. So the parent touches no file that the child works on, and
leaves a child behind that cannot be killed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import struct
import sys
import threading
import time
import traceback
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

Result = dict[str, t.Any]

_LOOK_S = 1.0
#: How long a child that was killed may take to be gone. One that sleeps uninterruptibly never is.
_KILL_S = 2.0
_READ_BYTES = 1 << 20
_SECONDS = struct.Struct("d")
#: Behind the answer. JSON as it is written here has none within.
_END = b"\n"
#: Longer than anything takes: no deadline.
_NO_END_S = 1e12


class OverdueError(Exception):
    """The work did not end in time. ``killed`` is False where its process ``pid`` is still there, since it cannot be killed."""

    def __init__(self, limit_s: float, pid: int, killed: bool) -> None:
        super().__init__(f"{limit_s:.0f} s")
        self.limit_s = limit_s
        self.pid = pid
        self.killed = killed


class _Allowance:
    """Seconds in memory that parent and child share: the child adds to them as it finds more to do."""

    def __init__(self, seconds: float) -> None:
        self._memory = mmap.mmap(-1, _SECONDS.size)
        self._lock = threading.Lock()
        _SECONDS.pack_into(self._memory, 0, seconds)

    @property
    def seconds(self) -> float:
        return float(_SECONDS.unpack_from(self._memory)[0])

    def add(self, seconds: float) -> None:
        with self._lock:
            _SECONDS.pack_into(self._memory, 0, self.seconds + seconds)


#: Of this process, where it is such a child.
_own: _Allowance | None = None


def allow(seconds: float) -> None:
    """Put the deadline off, for work that was just found. Does nothing where nobody waits with a deadline that follows from the work."""
    if _own is not None:
        _own.add(seconds)


@contextlib.contextmanager
def without_deadline() -> t.Iterator[None]:
    """The block's time does not count: what it does ends by limits of its own."""
    began = time.monotonic()
    allow(_NO_END_S)
    try:
        yield
    finally:
        allow(time.monotonic() - began - _NO_END_S)


def run_within(work: t.Callable[[], Result], *, timeout_s: float, start_s: float) -> Result:
    """What ``work`` returns, which has to be JSON, from a child process. It is killed after ``timeout_s``.

    Where that is 0, after ``start_s`` and what the work has been allowed since (``allow``). Raises ``OverdueError`` then, the ClusterError
    that ``work`` raises, RuntimeError with the traceback of any other exception, and ClusterError (``worker_lost``) where the child was
    killed.
    """
    allowance = _Allowance(timeout_s or start_s)
    answers, answer_to = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _work(work, answer_to, None if timeout_s else allowance)
    os.close(answer_to)
    try:
        answer = _wait(child, answers, allowance)
    finally:
        os.close(answers)
    if not answer.endswith(_END):
        raise _died(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    _kill(child)  # a thread of it may hang though it has answered
    return _told(json.loads(answer))


def _work(work: t.Callable[[], Result], answer_to: int, allowance: _Allowance | None) -> t.NoReturn:
    """The child's whole life. Ansible waits until nobody has its pipes any more; stdout is the pipe to the parent."""
    global _own
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, own in ((null, 0), (answer_to, 1), (null, 2)):
            os.dup2(descriptor, own)
        os.close(answer_to)
        _own = allowance
        answer = json.dumps(_answer(work)).encode() + _END
        while answer:
            answer = answer[os.write(1, answer) :]
        code = 0
    finally:
        os._exit(code)


def _answer(work: t.Callable[[], Result]) -> Result:
    try:
        return {"result": work()}
    except ClusterError as error:
        told = {"kind": error.kind, "message": error.message, "remedy": error.remedy}
        return {"error": told, "details": error.details}
    except Exception:
        return {"crash": traceback.format_exc()}


def _told(answer: Result) -> Result:
    if "crash" in answer:
        raise RuntimeError(answer["crash"])
    if "error" in answer:
        raise ClusterError(**answer["error"], **answer["details"])
    return t.cast(Result, answer["result"])


def _died(code: int) -> ClusterError:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return ClusterError(
        "worker_lost",
        f"The process that does the work {how}.",
        "`journalctl -k` names a process that was killed for lack of memory. Run again.",
    )


def _wait(child: int, answers: int, allowance: _Allowance) -> bytes:
    """The child's answer, or what there is of it where the child ended. Raises OverdueError.

    Ends the module where nobody hears it any more.
    """
    began = time.monotonic()
    poll = select.poll()
    poll.register(answers, select.POLLIN)
    poll.register(1, 0)  # POLLERR and POLLHUP are told unasked
    answer = bytearray()
    while True:
        left_s = began + allowance.seconds - time.monotonic()
        if left_s <= 0:
            raise OverdueError(allowance.seconds, child, _kill(child))
        told = dict(poll.poll(min(left_s, _LOOK_S) * 1000))
        if answers in told:
            piece = os.read(answers, _READ_BYTES)
            answer += piece
            if not piece or piece.endswith(_END):
                return bytes(answer)
        elif told.get(1, 0) & (select.POLLERR | select.POLLHUP):
            # The connection broke. The child works on, and sees by its stdout that it is not heard.
            sys.exit(1)


def _kill(child: int) -> bool:
    """Whether it is gone then."""
    os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(_KILL_S / 100)
    return False


__all__ = ["OverdueError", "allow", "run_within", "without_deadline"]
