# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finishing landed files: every way a gzip file can be wrong ends right, and nothing unproven gets a final name."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import os
import pathlib
import stat
import subprocess
import sys
import types
import typing as t
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip import inflate
from hypothesis import given, settings
from hypothesis import strategies as st

ENGINES = ("stdlib", "isal")
NOISE = os.urandom(1 << 20)
DATA = {
    "empty": b"",
    "byte": b"x",
    "noise over several reads": NOISE * 3,
    "zeros (a bomb in small)": bytes(8 << 20),
    "exactly one output block": b"y" * (1 << 20),
    "repeating": NOISE[:1000] * 9000,
}


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def members(data: bytes, count: int) -> bytes:
    size = len(data) // count + 1
    return b"".join(gzip.compress(data[part * size : (part + 1) * size], mtime=0) for part in range(count))


def files_in(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("padding", [0, 512, 3 << 20], ids=["bare", "padded", "padded much"])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("name", DATA)
def test_good_files(tmp_path: pathlib.Path, name: str, count: int, padding: int, engine: str) -> None:
    data = DATA[name]
    raw = members(data, count) + bytes(padding)
    (tmp_path / "raw").write_bytes(raw)
    result = inflate.inflate_file(
        str(tmp_path / "raw"), str(tmp_path / "out/x"), raw_size=len(raw), raw_md5=md5(raw), engine=engine
    )
    assert (tmp_path / "out/x").read_bytes() == data
    assert (result.bytes, result.crc32, result.members) == (len(data), zlib.crc32(data), count)
    assert result.raw_bytes == len(raw)
    assert stat.S_IMODE((tmp_path / "out/x").stat().st_mode) == 0o644
    assert files_in(tmp_path / "out") == ["x"]


RAW = gzip.compress(NOISE[:5000] * 3, mtime=0)
BAD = {
    "empty": (b"", "not_gzip"),
    "text": (b"hello, I am not compressed", "not_gzip"),
    "half a magic": (b"\x1f", "not_gzip"),
    "only zeros": (bytes(100), "not_gzip"),
    "garbage after": (RAW + b"garbage", "corrupt"),
    "garbage after that begins with a byte below the magic": (RAW + b"\x01garbage", "corrupt"),
    "garbage after padding": (RAW + bytes(20) + b"garbage", "corrupt"),
    "second member cut": (RAW + RAW[:-1], "truncated"),
    "second member one byte": (RAW + RAW[:1], "truncated"),
    "no length": (RAW[:-4], "truncated"),
    "wrong crc": (RAW[:-8] + bytes(4) + RAW[-4:], "corrupt"),
    "wrong length": (RAW[:-4] + bytes(4), "corrupt"),
    "unknown method": (RAW[:2] + b"\x07" + RAW[3:], "corrupt"),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path: pathlib.Path, name: str, engine: str) -> None:
    raw, kind = BAD[name]
    (tmp_path / "raw").write_bytes(raw)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x").write_bytes(b"what was there")
    with pytest.raises(ClusterError) as caught:
        inflate.inflate_file(
            str(tmp_path / "raw"), str(tmp_path / "out/x"), raw_size=len(raw), raw_md5=md5(raw), engine=engine
        )
    assert caught.value.kind == kind
    assert (tmp_path / "out/x").read_bytes() == b"what was there"
    assert files_in(tmp_path / "out") == ["x"]


def verdict(folder: pathlib.Path, engine: str) -> str:
    """Kind of the error, or '' for a good file."""
    try:
        inflate.inflate_file(str(folder / "raw"), str(folder / "out/x"), engine=engine)
    except ClusterError as exc:
        return exc.kind
    return ""


@pytest.mark.parametrize("engine", ENGINES)
def test_no_cut_and_no_flip_passes_as_something_else(tmp_path: pathlib.Path, engine: str) -> None:
    data = NOISE[:3000]
    raw = gzip.compress(data, mtime=0)
    variants = [raw[:size] for size in range(0, len(raw), 31)]
    variants += [
        raw[: bit // 8] + bytes([raw[bit // 8] ^ 1 << bit % 8]) + raw[bit // 8 + 1 :]
        for bit in range(0, len(raw) * 8, 37)
    ]
    harmless = 0
    for variant in variants:
        (tmp_path / "raw").write_bytes(variant)
        kind = verdict(tmp_path, engine)
        assert kind in ("", "not_gzip", "truncated", "corrupt")
        if kind:
            assert files_in(tmp_path / "out") == []
        else:  # time stamp, flags and system in the header are not data
            assert (tmp_path / "out/x").read_bytes() == data
            (tmp_path / "out/x").unlink()
            harmless += 1
    assert harmless < 5


#: Of all MD5s the first and the last in the order of their letters.
WRONG_MD5S = ("+++++++++++++++++++++w==", "zzzzzzzzzzzzzzzzzzzzzQ==")


@pytest.mark.parametrize("raw_md5", WRONG_MD5S)
@pytest.mark.parametrize("raw", [RAW, RAW[:-20]], ids=["whole", "damaged"])
def test_a_blob_that_was_replaced_has_another_md5(tmp_path: pathlib.Path, raw: bytes, raw_md5: str) -> None:
    (tmp_path / "raw").write_bytes(raw)
    for finish in (inflate.inflate_file, inflate.place_file):
        with pytest.raises(ClusterError, match="manifest says") as caught:
            finish(str(tmp_path / "raw"), str(tmp_path / "out/x"), raw_size=len(raw), raw_md5=raw_md5)
        assert caught.value.kind == "changed_at_source"
        assert files_in(tmp_path / "out") == []


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_blob_that_was_replaced_has_another_size(tmp_path: pathlib.Path, difference: int) -> None:
    (tmp_path / "raw").write_bytes(RAW)
    for finish in (inflate.inflate_file, inflate.place_file):
        with pytest.raises(
            ClusterError, match=f"has {len(RAW)} bytes, the manifest says {len(RAW) + difference}"
        ) as caught:
            finish(str(tmp_path / "raw"), str(tmp_path / "out/x"), raw_size=len(RAW) + difference)
        assert caught.value.kind == "changed_at_source"
        assert files_in(tmp_path / "out") == []


@pytest.mark.parametrize("size", [(64 << 10) + more for more in range(10)] + [(1 << 20) + more for more in range(10)])
def test_a_trailer_may_lie_across_two_pieces_of_the_input(tmp_path: pathlib.Path, size: int) -> None:
    """Files are read and unpacked in pieces; the checksum at the end is found wherever a piece ends."""
    data = NOISE[: size - 1000]
    while len(raw := gzip.compress(data, 0, mtime=0)) != size:  # level 0 stores: each byte more is one byte more
        data = NOISE[: len(data) + size - len(raw)]
    (tmp_path / "raw").write_bytes(raw)
    result = inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "x"))
    assert (result.crc32, result.bytes, result.members) == (zlib.crc32(data), len(data), 1)


def test_the_magic_of_the_next_member_may_lie_across_two_reads(tmp_path: pathlib.Path) -> None:
    first = gzip.compress(b"first", mtime=0)
    raw = first + bytes((1 << 20) - 1 - len(first)) + gzip.compress(b"second", mtime=0)
    (tmp_path / "raw").write_bytes(raw)
    result = inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"firstsecond"
    assert (result.members, result.crc32) == (2, zlib.crc32(b"firstsecond"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.ENOENT, "not_found"), (errno.EACCES, "not_found"), (errno.EIO, "io"), (errno.ECOMM, "io")],
)
def test_a_landing_disk_that_fails_is_told_from_a_file_that_is_not_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: str
) -> None:
    def fail(*_arguments: t.Any) -> t.NoReturn:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        with pytest.raises(ClusterError, match="cannot be read") as caught:
            inflate.place_file(str(tmp_path / "raw"), str(tmp_path / "x"))
    assert caught.value.kind == kind


def test_seconds_are_those_of_the_work(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raw").write_bytes(RAW)
    for finish in (inflate.inflate_file, inflate.place_file):
        clock = iter([100.0, 250.0])
        monkeypatch.setattr(inflate, "time", types.SimpleNamespace(monotonic=clock.__next__))
        assert finish(str(tmp_path / "raw"), str(tmp_path / "x")).seconds == 150


def test_a_file_that_is_no_gzip_is_told_by_its_first_bytes(tmp_path: pathlib.Path) -> None:
    (tmp_path / "raw").write_bytes(b"hello")
    with pytest.raises(ClusterError, match=r"\(found 68656c6c\)"):
        inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "x"))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, "disk_full"),
        (errno.EDQUOT, "disk_full"),
        (errno.EROFS, "bad_input"),
        (errno.EACCES, "bad_input"),
        (errno.EIO, "io"),
        (errno.ENODEV, "io"),
        (errno.ENOTCONN, "io"),
        (errno.ESHUTDOWN, "io"),
        (errno.ESTALE, "io"),
        (errno.ETIMEDOUT, "io"),
        (errno.EHOSTDOWN, "io"),
        (errno.EREMOTEIO, "io"),
    ],
    ids=errno.errorcode.get,
)
@pytest.mark.parametrize("call", ["write", "close", "replace"])
def test_a_full_disk_or_quota_leaves_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: str
) -> None:
    """A network file system may tell of it only when the file is closed or gets its name."""
    real = getattr(os, call)
    calls = []

    def fill_up(*arguments: t.Any, **_directories: int) -> t.Any:
        calls.append(call)
        if call == "write" and len(calls) == 1:
            return real(*arguments)
        if call == "close":
            real(*arguments)
        raise OSError(code, os.strerror(code))

    (tmp_path / "raw").write_bytes(gzip.compress(NOISE * 3))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fill_up)
        with pytest.raises(ClusterError) as caught:
            inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "out/x"))
    assert calls
    assert caught.value.kind == kind
    assert str(tmp_path / "out/x") in caught.value.message
    assert files_in(tmp_path / "out") == []


def test_a_full_disk_keeps_a_file_from_its_place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_source: str, _destination: str, **_directories: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    (tmp_path / "raw").write_bytes(NOISE)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ClusterError) as caught:
        inflate.place_file(str(tmp_path / "raw"), str(tmp_path / "out/x"))
    assert caught.value.kind == "disk_full"
    assert files_in(tmp_path / "out") == []


def test_short_writes_are_continued(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data[:70_001])))
    (tmp_path / "raw").write_bytes(gzip.compress(NOISE))
    inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "out/x"))
    assert (tmp_path / "out/x").read_bytes() == NOISE


def test_links_are_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret").write_bytes(RAW)
    (tmp_path / "raw").symlink_to(tmp_path / "secret")
    with pytest.raises(ClusterError):
        inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "x"))
    (tmp_path / "raw").unlink()
    (tmp_path / "raw").write_bytes(RAW)
    (tmp_path / "x").symlink_to(tmp_path / "secret")
    inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "x"))
    assert not (tmp_path / "x").is_symlink()
    assert (tmp_path / "secret").read_bytes() == RAW


def test_memory_stays_bounded_whatever_a_file_expands_to(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: sizes.append(len(data)) or real(handle, data))
    (tmp_path / "raw").write_bytes(gzip.compress(bytes(50 << 20)))
    for engine in ENGINES:
        inflate.inflate_file(str(tmp_path / "raw"), str(tmp_path / "x"), engine=engine)
    assert max(sizes) <= 1 << 20


def test_an_engine_without_trailer_checks_is_not_used() -> None:
    class Trusting:
        def __init__(self, wbits: int) -> None:
            self._real = zlib.decompressobj(-15)

        def decompress(self, data: bytes) -> bytes:
            return self._real.decompress(data[10:])

    assert not inflate._checks_trailers(inflate.Engine("trusting", Trusting, zlib.error))
    for name in ENGINES:
        engine = inflate.find_engine(name)
        assert engine.name == name
        assert inflate._checks_trailers(engine)


@pytest.mark.parametrize("part", ["crc32", "length"])
def test_an_engine_that_checks_only_part_of_a_file_is_not_used(part: str) -> None:
    class Lenient:
        """Passes over a wrong CRC32, or over a wrong length."""

        def __init__(self, wbits: int) -> None:
            self._real = zlib.decompressobj(-15)

        def decompress(self, data: bytes) -> bytes:
            found = self._real.decompress(data[10:])
            crc, length = (int.from_bytes(data[at : at + 4 or None], "little") for at in (-8, -4))
            if (part != "crc32" and crc != zlib.crc32(found)) or (part != "length" and length != len(found)):
                raise zlib.error
            return found

    assert not inflate._checks_trailers(inflate.Engine("lenient", Lenient, zlib.error))


@pytest.mark.parametrize("content", [b"", b"~"])
def test_an_engine_that_unpacks_to_something_else_is_not_used(content: bytes) -> None:
    class Wrong:
        def __init__(self, wbits: int) -> None:
            self._real = zlib.decompressobj(wbits)

        def decompress(self, data: bytes) -> bytes:
            self._real.decompress(data)
            return content

    assert not inflate._checks_trailers(inflate.Engine("wrong", Wrong, zlib.error))


def test_unknown_and_missing_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match="engine `lz4` is unknown"):
        inflate.find_engine("lz4")

    def fail(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(inflate.importlib, "import_module", fail)
    inflate._find_engine.cache_clear()
    try:
        assert inflate.find_engine("auto").name == "stdlib"
        with pytest.raises(ClusterError, match="isal cannot be used"):
            inflate.find_engine("isal")
    finally:
        inflate._find_engine.cache_clear()


@given(st.binary(max_size=200), st.binary(max_size=200))
@settings(max_examples=200)
def test_crc32_combine(first: bytes, second: bytes) -> None:
    assert inflate.crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


@pytest.mark.parametrize("other_filesystem", [False, True])
def test_place_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, other_filesystem: bool) -> None:
    if other_filesystem:
        destination = pathlib.Path("/dev/shm") / f"place-{os.getpid()}-{tmp_path.name}"
        assert tmp_path.stat().st_dev != pathlib.Path("/dev/shm").stat().st_dev, "needs two filesystems"
    else:
        destination = tmp_path / "out"
    try:
        (tmp_path / "raw").write_bytes(NOISE)
        (tmp_path / "raw").chmod(0o600)
        with pytest.raises(ClusterError) as caught:
            inflate.place_file(str(tmp_path / "raw"), str(destination / "x"), raw_md5=md5(b"other"))
        assert caught.value.kind == "changed_at_source"
        assert files_in(destination) == []
        result = inflate.place_file(
            str(tmp_path / "raw"), str(destination / "x"), raw_size=len(NOISE), raw_md5=md5(NOISE)
        )
        assert (result.bytes, result.crc32, result.members) == (len(NOISE), zlib.crc32(NOISE), 0)
        assert (destination / "x").read_bytes() == NOISE
        assert stat.S_IMODE((destination / "x").stat().st_mode) == 0o644
        assert not (tmp_path / "raw").exists()
        assert files_in(destination) == ["x"]
    finally:
        if other_filesystem:
            for path in destination.glob("*"):
                path.unlink()
            destination.rmdir()


def test_a_border_within_a_filesystem_makes_a_copy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind mount or a project quota: one device number, and rename(2) says EXDEV all the same."""
    replace = os.replace

    def border(src: str, dst: str, **directories: int) -> None:
        if not src.endswith(".part"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        replace(src, dst, **directories)

    monkeypatch.setattr(os, "replace", border)
    (tmp_path / "raw").write_bytes(NOISE)
    result = inflate.place_file(str(tmp_path / "raw"), str(tmp_path / "out/x"), raw_size=len(NOISE), raw_md5=md5(NOISE))
    assert (result.bytes, result.crc32) == (len(NOISE), zlib.crc32(NOISE))
    assert (tmp_path / "out/x").read_bytes() == NOISE
    assert (files_in(tmp_path / "out"), (tmp_path / "raw").exists()) == (["x"], False)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_real_bind_mount_is_such_a_border(tmp_path: pathlib.Path) -> None:
    for name in ("data", "mounted"):
        (tmp_path / name).mkdir()
    (tmp_path / "data/raw").write_bytes(NOISE)
    program = (
        "import sys; sys.path[:0] = sys.argv[3].split(chr(58));"
        "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip import inflate;"
        "print(inflate.place_file(sys.argv[1], sys.argv[2]).bytes)"
    )
    script = 'mount --bind "$1/data" "$1/mounted" && exec "$2" -c "$3" "$1/data/raw" "$1/mounted/x" "$4"'
    paths = ":".join(path for path in sys.path if path)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program, paths],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("needs root to mount")
    assert (done.stdout, done.stderr) == (f"{len(NOISE)}\n", "")
    assert (tmp_path / "data/x").read_bytes() == NOISE
    assert not (tmp_path / "data/raw").exists()
