# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compression for the upload: what comes out unpacks to what went in, is repeatable, and is not done twice."""

from __future__ import annotations

import concurrent.futures
import gzip
import os
import pathlib
import threading
import types
import typing as t
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip import deflate

ENGINES = ("stdlib", "isal")


def make_tree(root: pathlib.Path) -> dict[str, bytes]:
    files = {"a.tfrecord": os.urandom(1000) * 3000, "sub/deep/b": b"", "sub/c with space": b"c"}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return files


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tree_comes_out_whole_and_is_left_alone_the_second_time(tmp_path: pathlib.Path, engine: str) -> None:
    files = make_tree(tmp_path / "in")
    first = list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), engine=engine))
    assert {result.name: result.raw_bytes for result in first} == {name: len(data) for name, data in files.items()}
    assert all(result.fresh and result.error is None for result in first)
    assert {name: gzip.decompress((tmp_path / "out" / f"{name}.gz").read_bytes()) for name in files} == files
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == len(files)

    (tmp_path / "in" / "a.tfrecord").write_bytes(b"new")
    second = list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), engine=engine))
    assert [result.name for result in second if result.fresh] == ["a.tfrecord"]
    assert gzip.decompress((tmp_path / "out" / "a.tfrecord.gz").read_bytes()) == b"new"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_input_gives_the_same_bytes_whenever_and_wherever(tmp_path: pathlib.Path, engine: str) -> None:
    outputs = set()
    for number in range(2):
        source = tmp_path / f"in{number}"
        source.write_bytes(b"same" * 5000)
        os.utime(source, (number * 1000, number * 1000))
        deflate.deflate_file(str(source), str(tmp_path / f"out{number}.gz"), engine=engine)
        outputs.add((tmp_path / f"out{number}.gz").read_bytes())
    assert len(outputs) == 1


def test_the_content_is_on_disk_before_the_time_that_a_later_run_trusts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").write_bytes(b"x" * 5000)
    calls: list[str] = []
    for name in ("fsync", "utime", "replace"):

        def note(
            *arguments: t.Any, name: str = name, real: t.Callable[..., None] = getattr(os, name), **how: t.Any
        ) -> None:
            calls.append(name)
            real(*arguments, **how)

        monkeypatch.setattr(os, name, note)
    deflate.deflate_file(str(tmp_path / "in"), str(tmp_path / "out.gz"))
    assert calls == ["fsync", "utime", "replace"]


def test_standard_library_compresses_as_well_as_gzip(tmp_path: pathlib.Path) -> None:
    data = b"".join(str(number).encode() for number in range(100_000))
    (tmp_path / "in").write_bytes(data)
    _size, packed = deflate.deflate_file(str(tmp_path / "in"), str(tmp_path / "out.gz"), engine="stdlib")
    assert packed == len(gzip.compress(data, 6))


@pytest.mark.parametrize("size", [2_000_000, 3_000_000, 4_000_000], ids=["shorter", "as long", "longer"])
def test_a_file_that_changes_meanwhile_gets_no_result(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"x" * 3_000_000)
    os.utime(source, (1, 1))
    real = zlib.compressobj

    def write_during_the_start(*arguments: int) -> object:
        source.write_bytes(b"y" * size)
        return real(*arguments)

    monkeypatch.setattr(zlib, "compressobj", write_during_the_start)
    with pytest.raises(ClusterError) as caught:
        deflate.deflate_file(str(source), str(tmp_path / "out" / "x.gz"), engine="stdlib")
    assert caught.value.kind == "changed_at_source"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("source", ["/proc/self/status", "/sys/devices/system/cpu/online"])
def test_a_file_that_holds_more_or_less_than_it_says_gets_no_result(tmp_path: pathlib.Path, source: str) -> None:
    """The kernel says 0 bytes for all of /proc, and 4096 for all of /sys."""
    with pytest.raises(ClusterError) as caught:
        deflate.deflate_file(source, str(tmp_path / "out" / "x.gz"))
    assert caught.value.kind == "changed_at_source"
    assert list((tmp_path / "out").iterdir()) == []


def test_a_faulty_compressor_is_noticed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Losing:
        """Drops the first block that it is given."""

        def __init__(self) -> None:
            self._real = zlib.compressobj(6, zlib.DEFLATED, 31)
            self._lost = False

        def compress(self, block: bytes) -> bytes:
            self._lost, lose = True, not self._lost
            return b"" if lose else self._real.compress(block)

        def flush(self) -> bytes:
            return self._real.flush()

    monkeypatch.setattr(deflate, "_compressor", lambda engine: Losing())
    (tmp_path / "in").write_bytes(os.urandom(3_000_000))
    with pytest.raises(ClusterError) as caught:
        deflate.deflate_file(str(tmp_path / "in"), str(tmp_path / "out" / "x.gz"))
    assert caught.value.kind == "corrupt"
    assert list((tmp_path / "out").iterdir()) == []


def test_a_compressor_that_ends_early_is_noticed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut:
        """Everything is there but the last byte of the trailer."""

        def __init__(self) -> None:
            self._real = zlib.compressobj(6, zlib.DEFLATED, 31)

        def compress(self, block: bytes) -> bytes:
            return self._real.compress(block)

        def flush(self) -> bytes:
            return self._real.flush()[:-1]

    monkeypatch.setattr(deflate, "_compressor", lambda engine: Cut())
    (tmp_path / "in").write_bytes(b"data")
    with pytest.raises(ClusterError) as caught:
        deflate.deflate_file(str(tmp_path / "in"), str(tmp_path / "out" / "x.gz"))
    assert caught.value.kind == "corrupt"
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("letter", [b"D", b"E", b"F", b"G", b"H"])
def test_a_compressor_that_alters_a_byte_is_noticed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, letter: bytes
) -> None:
    class Altering:
        """Gives a gzip file that is right in itself, of as many bytes, but not of these."""

        def __init__(self) -> None:
            self._real = zlib.compressobj(6, zlib.DEFLATED, 31)

        def compress(self, block: bytes) -> bytes:
            return self._real.compress(letter + block[1:])

        def flush(self) -> bytes:
            return self._real.flush()

    monkeypatch.setattr(deflate, "_compressor", lambda engine: Altering())
    (tmp_path / "in").write_bytes(b"data")
    with pytest.raises(ClusterError) as caught:
        deflate.deflate_file(str(tmp_path / "in"), str(tmp_path / "out" / "x.gz"))
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize("size", [0, 19])
def test_what_is_too_short_to_be_gzip_is_made_again(tmp_path: pathlib.Path, size: int) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "x").write_bytes(b"data")
    (tmp_path / "out" / "x.gz").write_bytes(bytes(size))
    stamp = (tmp_path / "in" / "x").stat().st_mtime_ns
    os.utime(tmp_path / "out" / "x.gz", ns=(stamp, stamp))
    results = list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out")))
    assert [result.fresh for result in results] == [True]
    assert gzip.decompress((tmp_path / "out" / "x.gz").read_bytes()) == b"data"


def test_the_result_of_an_empty_file_is_not_made_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_bytes(b"")
    for fresh in (True, False):
        (result,) = deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), engine="stdlib")
        assert result.fresh is fresh


def test_a_result_that_is_newer_than_its_file_is_made_again(tmp_path: pathlib.Path) -> None:
    """The file may have been put back from a backup, with the time that it had then."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_bytes(b"new")
    list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out")))
    (tmp_path / "in/x").write_bytes(b"old")
    os.utime(tmp_path / "in/x", (1, 1))
    (result,) = deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"))
    assert result.fresh
    assert gzip.decompress((tmp_path / "out/x.gz").read_bytes()) == b"old"


def test_seconds_are_those_of_the_work(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_bytes(b"data")
    for name, seconds in (("gone", 150.0), ("x", 150.0), ("x", 0.0)):  # the second time there is nothing to do
        clock = iter([100.0, 250.0])
        monkeypatch.setattr(deflate, "time", types.SimpleNamespace(monotonic=clock.__next__))
        (result,) = deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), names=[name])
        assert result.seconds == seconds


def test_unless_told_otherwise_a_file_is_compressed_on_each_cpu(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the other; without the barrier's limit the test would hang where there is one thread."""
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / name).write_bytes(b"data")
    together = threading.Barrier(2, timeout=120)
    real = deflate.deflate_file

    def deflate_file(src: str, dst: str, **options: t.Any) -> tuple[int, int]:
        together.wait()
        return real(src, dst, **options)

    monkeypatch.setattr(deflate, "available_cpus", lambda: 2)
    monkeypatch.setattr(deflate, "deflate_file", deflate_file)
    results = list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out")))
    assert [result.error for result in results] == [None, None]


def test_what_has_not_begun_is_left_when_nobody_takes_results_any_more(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = threading.Event()
    begun: list[str] = []
    real = deflate.deflate_file

    class Pool(concurrent.futures.ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            closing.set()
            super().shutdown(wait=wait)

    def deflate_file(src: str, dst: str, **options: t.Any) -> tuple[int, int]:
        begun.append(src)
        if len(begun) > 1:
            assert closing.wait(120)
        return real(src, dst, **options)

    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_bytes(b"data")
    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(deflate, "deflate_file", deflate_file)
    results = t.cast(
        "t.Generator[deflate.Compressed, None, None]",
        deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), threads=1),
    )
    next(results)
    results.close()
    assert len(begun) <= 2, "the first, and the one that ran"


def test_only_what_is_named_is_compressed(tmp_path: pathlib.Path) -> None:
    make_tree(tmp_path / "in")
    results = list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), names=["sub/c with space"]))
    assert [result.name for result in results] == ["sub/c with space"]
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["c with space.gz"]


def test_errors_are_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ClusterError, match="cannot be read") as caught:
        deflate.deflate_file(str(tmp_path / "none"), str(tmp_path / "x.gz"))
    assert caught.value.kind == "not_found"
    (tmp_path / "in").mkdir()
    for name in "dcba":
        (tmp_path / "in" / f"{name}.gz").write_bytes(b"")
    with pytest.raises(ClusterError, match=r"^4 files are compressed already: a\.gz, b\.gz, c\.gz\. "):
        list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out")))
    for engine in ("lzma", "zstd"):
        with pytest.raises(ClusterError, match=f"engine `{engine}` is unknown"):
            list(deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), names=[], engine=engine))


def test_a_damaged_result_is_an_error_of_that_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compressor gives is unpacked again, and that finds the damage in the middle or at the end."""

    class Damaging:
        def __init__(self, at: int) -> None:
            self._real = zlib.compressobj(0, zlib.DEFLATED, 31)
            self._at = at

        def compress(self, data: bytes) -> bytes:
            return self._real.compress(data)

        def flush(self) -> bytes:
            output = bytearray(self._real.flush())
            output[self._at] ^= 0xFF
            return bytes(output)

    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_bytes(b"content" * 100)
    for at in (12, 40, -8, -4):
        monkeypatch.setattr(deflate, "_compressor", lambda _engine, at=at: Damaging(at))
        (result,) = deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"))
        assert result.error is not None
        assert result.error.kind == "corrupt"
        assert list((tmp_path / "out").iterdir()) == []


def test_without_isal_the_standard_library_compresses(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(deflate.importlib, "import_module", fail)
    (tmp_path / "in").write_bytes(b"data")
    assert deflate.deflate_file(str(tmp_path / "in"), str(tmp_path / "x.gz"))[0] == 4
    assert gzip.decompress((tmp_path / "x.gz").read_bytes()) == b"data"
    with pytest.raises(ClusterError, match="isal is not installed") as caught:
        deflate.deflate_file(str(tmp_path / "in"), str(tmp_path / "y.gz"), engine="isal")
    assert caught.value.kind == "bad_input"


def test_sizes_are_those_of_input_and_output(tmp_path: pathlib.Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_bytes(b"data" * 1_000_000)
    for fresh in (True, False):
        (result,) = deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), threads=1)
        packed = (tmp_path / "out/x.gz").stat()
        assert (result.name, result.raw_bytes, result.bytes, result.fresh) == ("x", 4_000_000, packed.st_size, fresh)
        assert result.error is None
        assert packed.st_mtime_ns == (tmp_path / "in/x").stat().st_mtime_ns


def test_a_file_that_cannot_be_read_does_not_keep_the_others(tmp_path: pathlib.Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_bytes(b"data")
    results = {
        r.name: r for r in deflate.deflate_tree(str(tmp_path / "in"), str(tmp_path / "out"), names=["x", "gone"])
    }
    assert (results["x"].error, results["x"].raw_bytes) == (None, 4)
    error = results["gone"].error
    assert error is not None
    assert (error.kind, results["gone"].raw_bytes, results["gone"].bytes, results["gone"].fresh) == (
        "not_found",
        0,
        0,
        True,
    )


@pytest.mark.parametrize("link", ["x", "sub"])
def test_nothing_is_read_or_written_through_a_link(tmp_path: pathlib.Path, link: str) -> None:
    """Whoever may write to the source or the work path cannot have root's files read, or files of others written."""
    name = {"x": "x", "sub": "sub/x"}[link]
    (tmp_path / "in").mkdir()
    (tmp_path / "etc" / name).parent.mkdir(parents=True)
    (tmp_path / "etc" / name).write_text("root")
    (tmp_path / "in" / link).symlink_to(tmp_path / "etc" / link)
    places = (str(tmp_path / "in"), str(tmp_path / "out"))
    (refused,) = deflate.deflate_tree(*places, names=[name], follow=False)
    assert refused.error is not None
    (followed,) = deflate.deflate_tree(*places, names=[name])
    assert followed.error is None

    (tmp_path / "theirs").mkdir()
    (tmp_path / "out" / f"{name}.gz").unlink()
    if link == "sub":
        (tmp_path / "out/sub").rmdir()
        (tmp_path / "out/sub").symlink_to(tmp_path / "theirs")
    else:
        (tmp_path / "out/x.gz").symlink_to(tmp_path / "theirs/x.gz")
    (result,) = deflate.deflate_tree(*places, names=[name])
    assert (result.error is None) is (link == "x"), "a link at the end is replaced"
    assert list((tmp_path / "theirs").iterdir()) == []
