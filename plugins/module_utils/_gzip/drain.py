# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Many landed files to finished ones, while AzCopy is still downloading the next."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import queue
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.inflate import (
    MAGIC,
    InflateResult,
    find_engine,
    inflate_file,
    place_file,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import ANYBODY, AS_EVER, Permit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import available_cpus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import Ownership


@dataclasses.dataclass(frozen=True)
class LandingItem:
    """A file that AzCopy will put at ``raw_path`` and that has to end at ``final_path``, through no link below ``root``.

    ``decompress`` None decides by the first two bytes of the file. What AzCopy has ``checked`` itself is not read again.
    """

    name: str
    raw_path: str
    final_path: str
    raw_size: int | None = None
    raw_md5: str = ""
    decompress: bool | None = True
    root: str = ""
    ownership: Ownership = AS_EVER
    permit: Permit = ANYBODY
    checked: bool = False


@dataclasses.dataclass(frozen=True)
class Finished:
    """What became of one item: a result, or an error."""

    name: str
    result: InflateResult | None
    error: ClusterError | None = None


#: Items that have not landed: directory -> file name in it -> item.
_Pending = dict[str, dict[str, LandingItem]]


def drain(
    items: t.Iterable[LandingItem],
    *,
    copier_done: t.Callable[[], bool],
    threads: int = 0,
    engine: str = "auto",
    poll_s: float = 0.1,
    should_stop: t.Callable[[], bool] | None = None,
    on_landed: t.Callable[[], None] | None = None,
    confirm: t.Callable[[str], None] | None = None,
) -> t.Generator[Finished, None, None]:
    """Finish each item as soon as it has landed, with a pool of threads, and yield what became of it.

    AzCopy downloads under another name and renames, so a file that is there is whole. Raw files are removed once they are
    dealt with. Ends when every item is finished; once ``copier_done`` says that nothing more will land, items that are
    still absent are yielded with an error. ``on_landed`` is called once, when no item is awaited any more. ``should_stop``
    ends it early: what runs is finished, the rest not yielded. Closing it early waits for what runs, too. ``confirm`` is called
    with the name of what has landed, by many threads, before anything is done with it: its ClusterError is that of the file.
    """
    find_engine(engine)  # an engine that is not there is found before the first file
    pending = _by_folder(items)
    ready: queue.SimpleQueue[Finished] = queue.SimpleQueue()
    running = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=threads or available_cpus()) as pool:
        try:
            while pending or running:
                if should_stop is not None and should_stop():
                    pending.clear()
                over = copier_done()  # asked before the look, so that nothing can land between the two
                began = time.monotonic()
                landed = _take_landed(pending)
                for item in landed:
                    pool.submit(_finish_into, ready, item, engine, confirm)
                running += len(landed)
                if not pending and on_landed is not None:
                    on_landed()
                    on_landed = None
                if over:
                    yield from _give_up(pending)
                # Looking costs time where there are many directories: wait at least four times as long.
                next_look = time.monotonic() + max(poll_s, 4 * (time.monotonic() - began))
                for finished in _results(ready, running, next_look if pending else None):
                    running -= 1
                    yield finished
        finally:
            pool.shutdown(cancel_futures=True)


def _by_folder(items: t.Iterable[LandingItem]) -> _Pending:
    pending: _Pending = collections.defaultdict(dict)
    for item in items:
        folder, base = os.path.split(item.raw_path)
        pending[folder][base] = item
    return pending


def _results(ready: queue.SimpleQueue[Finished], running: int, next_look: float | None) -> t.Iterator[Finished]:
    """What ``running`` threads finish until the next look (a time of the monotonic clock), or all of it without one."""
    while running:
        try:
            finished = ready.get(timeout=None if next_look is None else max(0.0, next_look - time.monotonic()))
        except queue.Empty:
            return
        running -= 1
        yield finished
        if next_look is not None and time.monotonic() >= next_look:
            return
    if next_look is not None:
        time.sleep(max(0.0, next_look - time.monotonic()))


def _give_up(pending: _Pending) -> t.Iterator[Finished]:
    """An error for each item that has not landed, after which nothing is awaited any more."""
    items = [item for folder in pending.values() for item in folder.values()]
    pending.clear()
    for item in items:
        yield Finished(item.name, None, _never_landed(item))


def _take_landed(pending: _Pending) -> list[LandingItem]:
    """Take the items whose raw file is there out of ``pending``: one directory listing each, no look at single files."""
    landed = []
    for folder in list(pending):
        waiting = pending[folder]
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            continue
        landed += [waiting.pop(name) for name in names if name in waiting]
        if not waiting:
            del pending[folder]
    return landed


def _never_landed(item: LandingItem) -> ClusterError:
    return ClusterError(
        "partial", f"`{item.name}` was not delivered.", "See the error of the copy; run again to fetch what is missing."
    )


_Confirm = t.Optional[t.Callable[[str], None]]


def _finish_into(ready: queue.SimpleQueue[Finished], item: LandingItem, engine: str, confirm: _Confirm) -> None:
    try:
        finished = _finish(item, engine, confirm)
    except Exception as exc:  # nobody reads what a pool's thread raises, and its text could hold a URL
        error = ClusterError("io", f"`{item.name}` could not be finished ({type(exc).__name__}).", "Run again.")
        finished = Finished(item.name, None, error)
    ready.put(finished)


def _finish(item: LandingItem, engine: str, confirm: _Confirm) -> Finished:
    try:
        if confirm is not None:
            confirm(item.name)
        expected: t.Any = {"root": item.root, "raw_size": item.raw_size, "raw_md5": item.raw_md5}
        expected.update(ownership=item.ownership, permit=item.permit)
        if _starts_like_gzip(item.raw_path) if item.decompress is None else item.decompress:
            result = inflate_file(item.raw_path, item.final_path, engine=engine, **expected)
        else:
            result = place_file(item.raw_path, item.final_path, checked=item.checked, **expected)
    except ClusterError as exc:
        return Finished(item.name, None, exc)
    except OSError as exc:  # the raw file cannot be read; whoever takes the error decides whether the others go on
        error = ClusterError("io", f"`{item.raw_path}` cannot be read: {exc.strerror}.", "Check the landing disk.")
        return Finished(item.name, None, error)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(item.raw_path)
    return Finished(item.name, result)


def _starts_like_gzip(path: str) -> bool:
    with open(path, "rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


__all__ = ["Finished", "LandingItem", "drain"]
