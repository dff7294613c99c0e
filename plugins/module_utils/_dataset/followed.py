# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether a play follows the current run of a destination, so that another one does not take it away from it.

Who follows a run touches a file in it whenever it looks at the progress, about once a second. The workers alone say nothing: they go
on when their play is killed, and then the next play is welcome to begin anew. When they have ended, the play may read for hours what
they brought, on all nodes: each of those touches a file of its own, which stays until the report, since others still read.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    Run,
    current_run_id,
    read_progress,
    read_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest

#: Longer than between two looks, and than NFS keeps a file's attributes at least (`acregmin`, 3 s).
_PATIENCE_S = 6.0
_LOOK_S = 0.2
_TOUCH_S = 1.0
_READER = re.compile(r"reading-[0-9a-f]{16}")


def mark_of(destination: str, run_id: str) -> str:
    """The file that is touched."""
    return os.path.join(StatePaths(destination).run(run_id), "followed")


def show_start(destination: str, run_id: str) -> None:
    """Touch the mark as a worker starts: until all of them have, nobody follows the run."""
    _touch(mark_of(destination, run_id))


def _touch(mark: str) -> None:
    """Who may not write there does without."""
    with contextlib.suppress(OSError):
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        os.utime(mark, follow_symlinks=False)


@contextlib.contextmanager
def reading(destination: str) -> t.Iterator[None]:
    """Show that a play reads what is there, or compares it, as long as the block takes. The mark stays for ``forget_readers``.

    Who reads on although its play has forgotten it, or hears it no more, is no reason to wait.
    """
    mark = os.path.join(StatePaths(destination).root, f"reading-{node_digest(destination)}")
    over = threading.Event()

    def touch() -> None:
        with contextlib.suppress(OSError):  # the mark is gone
            while not over.wait(_TOUCH_S) and _is_heard():
                os.utime(mark, follow_symlinks=False)

    _touch(mark)
    thread = threading.Thread(target=touch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_TOUCH_S)  # no longer: the file system may hang


def _is_heard() -> bool:
    """Whether somebody still waits for what a module prints: nobody does where the connection broke."""
    asked = select.poll()
    asked.register(1, 0)  # POLLERR and POLLHUP are told unasked
    return not any(told & (select.POLLERR | select.POLLHUP) for _handle, told in asked.poll(0))


def forget_readers(destination: str) -> None:
    """Remove the marks of all readers, when the report is written."""
    for mark in _readers(destination):
        with contextlib.suppress(OSError):
            os.unlink(mark)


def _readers(destination: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(StatePaths(destination).root) as entries:
        return [entry.path for entry in entries if _READER.fullmatch(entry.name)]
    return []


def refuse_if_followed(destination: str) -> None:
    """Raise ``busy`` while a play follows the current run, or reads what is there. Takes six seconds where one was left, else no time.

    The files' times are compared with themselves only, so that clocks need not agree.
    """
    run_id = current_run_id(destination)
    run = read_run(destination, run_id) if run_id else None
    mark = mark_of(destination, run.id) if run else ""
    before, began = _touched(_readers(destination) + [mark] * bool(mark)), time.monotonic()
    while time.monotonic() - began < _PATIENCE_S:
        followed = run is not None and not _ended(run)
        readers = _readers(destination)
        if not followed and not readers:
            return
        time.sleep(_LOOK_S)
        now = _touched(readers + [mark] * followed)
        busy = [path for path, touched in now.items() if touched not in (0, before.get(path))]
        if busy:
            does = "copies to" if busy == [mark] else "reads what was copied to"
            raise ClusterError(
                "busy",
                f"Another play {does} {destination} at the moment{f' (run {run.id})' if run else ''}.",
                "Wait until it has ended, then run again: that copies only what is missing.",
            )


def _touched(marks: t.Iterable[str]) -> dict[str, int]:
    """When each was touched last; 0 for one that is not there."""
    found = {}
    for mark in marks:
        try:
            found[mark] = os.stat(mark).st_mtime_ns
        except OSError:
            found[mark] = 0
    return found


def _ended(run: Run) -> bool:
    """Whether every rank that began has said that it ended. A run that none has begun may be about to."""
    try:
        ranks = read_progress(run)
    except FileNotFoundError:
        return True
    return bool(ranks) and all(rank.ended for rank in ranks)


__all__ = ["forget_readers", "mark_of", "reading", "refuse_if_followed", "show_start"]
