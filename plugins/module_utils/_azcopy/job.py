# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One AzCopy process: started so that it dies with us, read without waiting, ended whatever it ignores."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import (
    CopyRequest,
    build_argv,
    build_environment,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.leftovers import TEMPORARY_PREFIX, find_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import JobState

TERM_GRACE_S = 10.0
_LOG_TAIL_BYTES = 256 * 1024


@functools.lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libc.so.6", use_errno=True)
    except OSError:
        return None


def _die_with_parent() -> None:
    """In the child: have the kernel kill AzCopy when our process ends, however it ends (PR_SET_PDEATHSIG = 1)."""
    library = _libc()
    if library is not None:
        library.prctl(1, signal.SIGKILL, 0, 0, 0)


class Job:
    """One AzCopy process."""

    def __init__(self, request: CopyRequest, owner: int, list_file: str) -> None:
        self.request = request
        self.owner = owner  # index of the request that this is a share of
        self.state = JobState(secrets=(request.token,))
        self.stopped = ""
        self.rc = -1
        self.stuck = False  # not even SIGKILL ends it
        self._killed = False
        self._term_at = 0.0
        self._activity = (0, 0)
        self._sampled_at = 0.0
        self._rest = b""
        _libc()  # loaded here, so that the child does not have to between fork and exec
        self.process = subprocess.Popen(
            build_argv(request, list_file=list_file),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=build_environment(request, os.environ),
            cwd="/",
            start_new_session=True,
            preexec_fn=_die_with_parent,  # one prctl call on a library that is already loaded
        )
        self._output = t.cast("t.IO[bytes]", self.process.stdout)
        self._input = t.cast("t.IO[bytes]", self.process.stdin)
        os.set_blocking(self._output.fileno(), False)
        self.last_signature: tuple[t.Any, ...] = ()
        self.last_progress = time.monotonic()

    def read(self) -> bool:
        """Take what the process has written; False at its end."""
        try:
            data = os.read(self._output.fileno(), 1 << 18)
        except BlockingIOError:
            return True
        if not data:
            self.state.feed(self._rest)
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.state.feed(line)
        if self.state.signature != self.last_signature:
            self.last_signature = self.state.signature
            self.last_progress = time.monotonic()
        if self.state.asked and self.stopped:
            self._answer_yes()
        return True

    def _answer_yes(self) -> None:
        """AzCopy asks whether it may really stop while it scans."""
        self.state.asked = False
        with contextlib.suppress(OSError):
            self._input.write(b"y\n")
            self._input.flush()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, reason: str, now: float) -> None:
        """Stop the process for this reason, or go on stopping it: SIGTERM first, SIGKILL when that took too long.

        What waits for a disk that does not answer is not ended by that either: it is ``stuck`` then.
        """
        if self.stopped:
            if now - self._term_at > TERM_GRACE_S:
                self.stuck = self._killed
                self.signal(signal.SIGKILL)
                self._killed = True
                self._term_at = now
        elif reason:
            self.stopped = reason
            self._term_at = now
            if reason == "stalled" and self.request.is_download:
                # AzCopy hangs on the files that it was working on, and removes them when it ends.
                prefix = f"{TEMPORARY_PREFIX}{self.state.job_id}-"
                self.state.stuck = sorted(
                    name[len(prefix) :] for _path, name in find_files(self.request.destination, (prefix,))
                )
            self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process, whatever it does, and wait for that; but not for one that is ``stuck``."""
        self.signal(signal.SIGKILL)
        try:
            self.rc = self.process.wait(timeout=0 if self.stuck else TERM_GRACE_S)
        except subprocess.TimeoutExpired:
            self.stuck = True

    def watch_scan(self, now: float) -> None:
        """While AzCopy lists or looks up names it is silent, for minutes on large containers: watch what it reads."""
        if not self.state.scanning or now - self._sampled_at < 1:
            return
        self._sampled_at = now
        activity = _activity(self.process.pid)
        if activity != self._activity:
            self._activity = activity
            self.last_progress = now

    def log_text(self) -> str:
        """The end of the job's own logs, where AzCopy hides the reasons of failed transfers."""
        texts = []
        for name in (f"{self.state.job_id}.log", f"{self.state.job_id}-scanning.log"):
            try:
                with open(os.path.join(self.request.log_dir, name), "rb") as stream:
                    before = os.fstat(stream.fileno()).st_size - _LOG_TAIL_BYTES
                    if before > 0:  # whole lines: of half a name nobody could tell that it is one
                        stream.seek(before)
                        stream.readline()
                    texts.append(stream.read().decode("utf-8", "replace"))
            except OSError:
                continue
        return "\n".join(texts)


def _activity(pid: int) -> tuple[int, int]:
    """What a process has read (in units of 4 KiB, network included) and computed (0.2 s): idling changes neither."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as stream:
            read = int(stream.readline().split()[1])
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except (OSError, ValueError, IndexError):
        return (0, 0)
    ticks = int(fields[11]) + int(fields[12])  # utime and stime, proc(5)
    return (read // 4096, ticks * 5 // os.sysconf("SC_CLK_TCK"))


__all__ = ["TERM_GRACE_S", "Job"]
