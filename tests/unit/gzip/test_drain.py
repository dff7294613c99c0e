# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files are finished while others still land; nothing that lands is missed, and what fails or never comes is named."""

from __future__ import annotations

import concurrent.futures
import errno
import gzip
import os
import pathlib
import queue
import threading
import types
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip import drain, inflate
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.drain import Finished, LandingItem


def files_in(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def landing_items(root: pathlib.Path, names: list[str]) -> list[LandingItem]:
    return [
        LandingItem(name, str(root / "landing" / name), str(root / "out" / name.removesuffix(".gz")), decompress=None)
        for name in names
    ]


def test_drain_finishes_files_while_others_are_still_landing(tmp_path: pathlib.Path) -> None:
    names = [f"d{number % 3}/f{number}.gz" for number in range(30)] + ["plain.txt"]
    arrived = threading.Event()
    done = threading.Event()
    seen: list[str] = []

    def deliver() -> None:
        for number, name in enumerate(names):
            path = tmp_path / "landing" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.parent / f".azDownload-job-{path.name}"
            temporary.write_bytes(gzip.compress(name.encode()) if name.endswith(".gz") else b"plain")
            if number == 10:  # only goes on once something has been finished
                assert arrived.wait(120)
            temporary.rename(path)
        done.set()

    thread = threading.Thread(target=deliver)
    thread.start()
    for finished in drain.drain(landing_items(tmp_path, names), copier_done=done.is_set, poll_s=0.01):
        assert finished.error is None
        seen.append(finished.name)
        arrived.set()
    thread.join()
    assert sorted(seen) == sorted(names)
    assert (tmp_path / "out/d1/f1").read_bytes() == b"d1/f1.gz"
    assert (tmp_path / "out/plain.txt").read_bytes() == b"plain"
    assert [path for path in (tmp_path / "landing").rglob("*") if path.is_file()] == []


def test_drain_does_not_miss_what_lands_last(tmp_path: pathlib.Path) -> None:
    """The last file may land, and AzCopy end, at any moment: here it does so right when it is asked whether it has."""
    items = landing_items(tmp_path, ["last.gz"])
    (tmp_path / "landing").mkdir()

    def copier_done() -> bool:
        raw = tmp_path / "landing/last.gz"
        if not (tmp_path / "out").exists():
            raw.write_bytes(gzip.compress(b"last"))
        return True

    finished = list(drain.drain(items, copier_done=copier_done, poll_s=0.01))
    assert [(file.name, file.error) for file in finished] == [("last.gz", None)]
    assert (tmp_path / "out/last").read_bytes() == b"last"


def test_drain_tells_once_that_all_has_landed(tmp_path: pathlib.Path) -> None:
    names = ["a.gz", "b.gz"]
    (tmp_path / "landing").mkdir()
    looks: list[int] = []
    told_at: list[int] = []

    def copier_done() -> bool:
        looks.append(len(looks))
        if len(looks) in (2, 4):
            (tmp_path / "landing" / names[len(looks) // 2 - 1]).write_bytes(gzip.compress(b"x"))
        return False

    items = landing_items(tmp_path, names)
    finished = list(
        drain.drain(items, copier_done=copier_done, poll_s=0.01, on_landed=lambda: told_at.append(len(looks)))
    )
    assert sorted(file.name for file in finished) == names
    assert told_at == [4]


def test_drain_removes_raw_files_of_failures_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/good").write_bytes(gzip.compress(b"good"))
    (tmp_path / "landing/bad").write_bytes(gzip.compress(b"bad")[:-3])
    kinds = {
        file.name: file.error and file.error.kind
        for file in drain.drain(landing_items(tmp_path, ["good", "bad"]), copier_done=lambda: True)
    }
    assert kinds == {"good": None, "bad": "truncated"}
    assert files_in(tmp_path / "landing") == []


def test_drain_finishes_what_runs_when_it_is_stopped(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "landing").mkdir()
    for name in ("quick.gz", "slow.gz"):
        (tmp_path / "landing" / name).write_bytes(gzip.compress(name.encode()))
    stopping, asked_again = threading.Event(), threading.Event()
    real = inflate.inflate_file

    def inflate_file(src: str, dst: str, **options: t.Any) -> inflate.InflateResult:
        if dst.endswith("slow"):
            assert asked_again.wait(120)
        return real(src, dst, **options)

    def should_stop() -> bool:
        if stopping.is_set():
            asked_again.set()
        return stopping.is_set()

    monkeypatch.setattr(drain, "inflate_file", inflate_file)
    finished = []
    items = landing_items(tmp_path, ["quick.gz", "slow.gz", "never.gz"])
    for file in drain.drain(items, copier_done=lambda: False, threads=2, poll_s=0.01, should_stop=should_stop):
        finished.append((file.name, file.error))
        stopping.set()
    assert finished == [("quick.gz", None), ("slow.gz", None)]


def test_a_file_without_gzip_in_its_name_is_inflated_where_its_bytes_say_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "landing").mkdir()
    contents = {"packed": gzip.compress(b"packed"), "plain": b"plain", "empty": b"", "one": b"\x1f"}
    for name, content in contents.items():
        (tmp_path / "landing" / name).write_bytes(content)
    results = list(drain.drain(landing_items(tmp_path, list(contents)), copier_done=lambda: True))
    assert [file.error for file in results] == [None] * 4
    assert {file.name: file.result.members for file in results if file.result} == dict.fromkeys(contents, 0) | {
        "packed": 1
    }
    assert {name: (tmp_path / "out" / name).read_bytes() for name in contents} == {**contents, "packed": b"packed"}


def test_drain_reports_what_failed_and_what_never_came(tmp_path: pathlib.Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/good.gz").write_bytes(gzip.compress(b"good"))
    (tmp_path / "landing/bad.gz").write_bytes(b"bad")
    (tmp_path / "landing/.azDownload-1-late.gz").write_bytes(gzip.compress(b"half"))
    items = landing_items(tmp_path, ["good.gz", "bad.gz", "late.gz", "sub/never.gz"])
    items[1] = LandingItem("bad.gz", items[1].raw_path, items[1].final_path, decompress=True)
    results = {finished.name: finished for finished in drain.drain(items, copier_done=lambda: True)}
    kinds = {name: finished.error.kind if finished.error else None for name, finished in results.items()}
    assert kinds == {"good.gz": None, "bad.gz": "not_gzip", "late.gz": "partial", "sub/never.gz": "partial"}
    assert files_in(tmp_path / "out") == ["good"]


def test_drain_can_be_stopped(tmp_path: pathlib.Path) -> None:
    asked: list[str] = []

    def copier_done() -> bool:
        asked.append("copier_done")
        return False

    items = landing_items(tmp_path, ["a.gz"])
    results: list[Finished] = list(drain.drain(items, copier_done=copier_done, should_stop=lambda: True))
    assert results == []
    assert len(asked) <= 1, "it went on looking"


def test_drain_looks_at_directories_not_at_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"f{number:05d}" for number in range(5000)]
    (tmp_path / "landing").mkdir()
    looks = []
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: looks.append(path) or real(path))
    results = drain.drain(landing_items(tmp_path, names), copier_done=lambda: len(looks) >= 3, poll_s=0)
    assert len([finished for finished in results if finished.error]) == 5000
    assert len(looks) <= 5


def test_a_landing_disk_that_fails_is_no_fault_of_the_blob(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: t.Any, **_options: t.Any) -> t.NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "landing").mkdir()
    for name in ("a.gz", "b.gz"):
        (tmp_path / "landing" / name).write_bytes(gzip.compress(name.encode()))
    monkeypatch.setattr(drain, "inflate_file", fail)
    results = list(drain.drain(landing_items(tmp_path, ["a.gz", "b.gz"]), copier_done=lambda: True))
    assert [file.error.kind for file in results if file.error] == ["io", "io"]
    assert files_in(tmp_path / "landing") == []


def test_an_engine_that_is_not_there_is_found_before_the_first_file(tmp_path: pathlib.Path) -> None:
    asked: list[str] = []
    with pytest.raises(ClusterError, match="engine `lz4` is unknown"):
        list(drain.drain(landing_items(tmp_path, ["a.gz"]), copier_done=lambda: bool(asked.append("")), engine="lz4"))
    assert asked == []


@pytest.mark.parametrize("threads", [0, 2])
def test_unless_told_otherwise_a_file_is_finished_on_each_cpu(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Each waits for the other; without the barrier's limit the test would hang where there is one thread."""
    (tmp_path / "landing").mkdir()
    for name in ("a.gz", "b.gz"):
        (tmp_path / "landing" / name).write_bytes(gzip.compress(name.encode()))
    together = threading.Barrier(2, timeout=120)
    real = drain.inflate_file

    def inflate_file(src: str, dst: str, **options: t.Any) -> inflate.InflateResult:
        together.wait()
        return real(src, dst, **options)

    monkeypatch.setattr(drain, "available_cpus", lambda: 2)
    monkeypatch.setattr(drain, "inflate_file", inflate_file)
    items = landing_items(tmp_path, ["a.gz", "b.gz"])
    options = {"threads": threads} if threads else {}
    results = list(drain.drain(items, copier_done=lambda: True, **options))
    assert sorted(file.name for file in results if file.error is None) == ["a.gz", "b.gz"]


@pytest.mark.parametrize(
    ("cost_s", "options", "wait_s"),
    [(10, {"poll_s": 0.1}, 40), (0, {}, 0.1), (0, {"poll_s": 0.5}, 0.5), (1, {"poll_s": 7}, 7)],
)
def test_a_costly_look_is_followed_by_a_wait_of_four_times_as_long(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, cost_s: float, options: dict[str, t.Any], wait_s: float
) -> None:
    now = 100.0
    waits: list[float] = []
    looks: list[int] = []
    real = drain._take_landed

    def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    def look(pending: t.Any) -> t.Any:
        nonlocal now
        now += cost_s
        looks.append(len(looks))
        return real(pending)

    monkeypatch.setattr(drain, "time", types.SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(drain, "_take_landed", look)
    items = landing_items(tmp_path, ["never.gz"])
    list(drain.drain(items, copier_done=lambda: len(looks) == 2, **options))
    assert waits == pytest.approx([wait_s] * 2)


@pytest.mark.parametrize(("seconds_each", "taken", "waits"), [(0, 4, [10]), (2, 4, [2]), (5, 2, []), (12, 1, [])])
def test_results_are_taken_until_the_next_look(
    monkeypatch: pytest.MonkeyPatch, seconds_each: float, taken: int, waits: list[float]
) -> None:
    """What is left of the time is slept; whoever takes results slowly does not put the look off."""
    now = 0.0
    slept: list[float] = []
    monkeypatch.setattr(drain, "time", types.SimpleNamespace(monotonic=lambda: now, sleep=slept.append))
    ready: queue.SimpleQueue[Finished] = queue.SimpleQueue()
    for name in "abcd":
        ready.put(Finished(name, None))
    names = []
    for finished in drain._results(ready, 4, 10.0):
        names.append(finished.name)
        now += seconds_each
    assert "".join(names) == "abcd"[:taken]
    assert slept == waits


def test_a_look_that_is_overdue_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float | None] = []

    class Empty(queue.SimpleQueue[Finished]):
        def get(self, block: bool = True, timeout: float | None = None) -> t.NoReturn:
            waited.append(timeout)
            raise queue.Empty

    monkeypatch.setattr(drain, "time", types.SimpleNamespace(monotonic=lambda: 12.0, sleep=waited.append))
    for running in (0, 1):
        assert list(drain._results(Empty(), running, 10.0)) == []
    assert waited == [0.0, 0.0]


def test_a_folder_that_is_not_there_yet_does_not_hide_the_next(tmp_path: pathlib.Path) -> None:
    (tmp_path / "landing/b").mkdir(parents=True)
    (tmp_path / "landing/b/here.gz").write_bytes(gzip.compress(b"here"))
    items = landing_items(tmp_path, ["a/never.gz", "b/here.gz"])
    kinds = {file.name: file.error and file.error.kind for file in drain.drain(items, copier_done=lambda: True)}
    assert kinds == {"a/never.gz": "partial", "b/here.gz": None}


def test_unless_told_otherwise_a_file_is_gzip(tmp_path: pathlib.Path) -> None:
    (tmp_path / "plain").write_bytes(b"plain")
    item = LandingItem("plain", str(tmp_path / "plain"), str(tmp_path / "out/plain"))
    (finished,) = drain.drain([item], copier_done=lambda: True)
    assert finished.error is not None
    assert finished.error.kind == "not_gzip"


def test_what_has_not_begun_is_left_when_nobody_takes_results_any_more(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = threading.Event()
    real = drain.inflate_file

    class Pool(concurrent.futures.ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            closing.set()
            super().shutdown(wait=wait)

    def inflate_file(src: str, dst: str, **options: t.Any) -> inflate.InflateResult:
        if files_in(tmp_path / "out"):  # the first is finished
            assert closing.wait(120)
        return real(src, dst, **options)

    (tmp_path / "landing").mkdir()
    names = ["a.gz", "b.gz", "c.gz"]
    for name in names:
        (tmp_path / "landing" / name).write_bytes(gzip.compress(name.encode()))
    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(drain, "inflate_file", inflate_file)
    results = drain.drain(landing_items(tmp_path, names), copier_done=lambda: True, threads=1)
    next(results)
    results.close()
    assert len(files_in(tmp_path / "out")) <= 2, "the first, and the one that ran"


def test_an_error_that_nobody_foresaw_is_that_of_its_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/a").write_bytes(gzip.compress(b"a"))

    def confirm(_name: str) -> None:
        raise ValueError("https://account/a?sig=secret")

    finished: list[drain.Finished] = []
    draining = drain.drain(landing_items(tmp_path, ["a"]), copier_done=lambda: True, confirm=confirm)
    thread = threading.Thread(target=lambda: finished.extend(draining), daemon=True)
    thread.start()
    thread.join(60)
    assert [file.error and file.error.kind for file in finished] == ["io"]
    assert "secret" not in str(finished)
