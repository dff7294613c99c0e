# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest: its file, its digest, and the names it accepts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blob, Blobs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import (
    Manifest,
    check_names,
    final_name,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import _part_name
from hypothesis import given, settings
from hypothesis import strategies as st

SOURCES = [{"url": "https://example.blob.core.windows.net/data", "prefix": "train/"}]
ODD_NAMES = [
    "a;b",
    "a[0-9]",
    "with space",
    "ünïcode/日本",
    "quote'\"",
    "tab\there",
    "back\\slash",
    "%41",
    "a..b",
    "...",
    "-x",
    "whole.part",
    ".hidden.part",
    "dir.part/a",
]

blobs_strategy = st.lists(
    st.builds(
        Blob,
        st.text(min_size=1),
        st.integers(0, 2**50),
        st.text(),
        st.text(),
        st.sampled_from(["", "gzip"]),
        st.just(0),
    ),
    unique_by=lambda blob: blob.name,
)


def check(blobs: list[Blob], decompress: bool) -> None:
    check_names(Blobs.of(blobs), decompress)


@pytest.mark.slow
@given(blobs_strategy)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, blobs: list[Blob]) -> None:
    path = str(tmp_path_factory.mktemp("manifest") / "manifest.jsonl")
    manifest = Manifest(SOURCES, blobs)
    manifest.write(path)
    again = Manifest.read(path)
    assert list(again.blobs) == list(manifest.blobs) == sorted(blobs)
    assert (again.sources, again.digest, again.total_bytes) == (SOURCES, manifest.digest, manifest.total_bytes)
    assert Manifest(SOURCES, again.blobs).digest == manifest.digest


def test_odd_names_survive(tmp_path: Path) -> None:
    path = str(tmp_path / "manifest.jsonl")
    check([Blob(name, 1) for name in ODD_NAMES], decompress=True)
    Manifest(SOURCES, [Blob(name, 1) for name in ODD_NAMES]).write(path)
    assert [blob.name for blob in Manifest.read(path).blobs] == sorted(ODD_NAMES)


def test_the_digest_depends_on_content_not_on_order() -> None:
    blobs = [Blob(f"{number}", number, "md5", "etag") for number in range(50)]
    shuffled = random.Random(7).sample(blobs, len(blobs))
    assert Manifest(SOURCES, blobs).digest == Manifest(SOURCES, shuffled).digest
    digests = {Manifest(SOURCES, blobs).digest, Manifest([], blobs).digest}
    for change in ({"name": "x"}, {"size": 99}, {"md5": "x"}, {"etag": "x"}, {"encoding": "gzip"}, {"source": 1}):
        digests.add(Manifest(SOURCES, [blobs[0]._replace(**change), *blobs[1:]]).digest)
    assert len(digests) == 8


def test_the_header_can_be_read_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "manifest.jsonl")
    manifest = Manifest(SOURCES, [Blob("a", 3), Blob("b", 4)])
    manifest.write(path)
    header = Manifest.read_header(path)
    assert (header["blobs"], header["bytes"], header["digest"], header["version"]) == (2, 7, manifest.digest, 1)
    assert list(tmp_path.iterdir()) == [Path(path)]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.jsonl"
    path.write_text("old")

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="No space"):
        Manifest(SOURCES, [Blob("a", 3)]).write(str(path))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("damage", "fragment"),
    [
        (lambda lines: lines[:-1], "1 blobs were found, 2 are announced"),
        (lambda lines: [*lines, lines[-1]], "3 blobs were found"),
        (lambda lines: [lines[0], lines[1].replace("3", "4"), lines[2]], "does not match its digest"),
        (lambda lines: [lines[0].replace("example", "another"), *lines[1:]], "does not match its digest"),
        (lambda lines: [lines[0], lines[1], lines[2][:5]], "is not a blob"),
        (lambda lines: [lines[0], lines[1], "[1]\n"], "is not a blob"),
        (lambda lines: lines[1:], "is not a header"),
        (lambda lines: [], "is not a header"),
        (lambda lines: ["[]\n", *lines[1:]], "is not a header"),
        (lambda lines: [lines[0].replace('"blobs":2,', ""), *lines[1:]], "header is incomplete"),
        (lambda lines: [lines[0].replace('"version":1', '"version":2'), *lines[1:]], "has version 2"),
    ],
)
def test_a_damaged_file_is_noticed(tmp_path: Path, damage: object, fragment: str) -> None:
    path = tmp_path / "manifest.jsonl"
    Manifest(SOURCES, [Blob("a", 3), Blob("b", 5)]).write(str(path))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(damage(lines)))  # type: ignore[operator]
    with pytest.raises(ClusterError, match=fragment) as caught:
        Manifest.read(str(path))
    assert caught.value.kind in ("corrupt", "bad_input")
    assert caught.value.remedy


def test_a_source_with_a_query_is_refused_without_repeating_it() -> None:
    with pytest.raises(ClusterError) as caught:
        Manifest([{"url": "https://a.example/c?sv=1&sig=SECRET", "prefix": ""}], [])
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("/etc/passwd", "absolute"),
        ("../x", "'..'"),
        ("a/../x", "'..'"),
        ("a/..", "'..'"),
        ("..", "'..'"),
        ("./a", "'.'"),
        ("a/./b", "'.'"),
        ("", "its source's prefix, a directory"),
        ("a//b", "empty component"),
        ("a/", "empty component"),
        ("a\nb", "line break"),
        ("a\rb", "line break"),
        ("a\0b", "NUL"),
        (".staging/x", "'.staging'"),
        ("a/.staging", "'.staging'"),
        (".azDownload-1-x", "AzCopy"),
        ("a/.azDownload-1-x", "AzCopy"),
        pytest.param(_part_name("a"), "unfinished files", id="part"),
        pytest.param(f"dir/{_part_name('a')}", "unfinished files", id="part below"),
        pytest.param(f"{_part_name('a')}/b", "unfinished files", id="part as directory"),
        pytest.param(f"{_part_name('a')}.gz", "unfinished files", id="packed part"),
        ("x" * 207, "component of 207 bytes, and AzCopy leaves room for 206"),
        ("a/" + "ü" * 104, "component of 208 bytes, and AzCopy leaves room for 206"),
        ("x" * 204 + ".gz", "component of 207 bytes, and AzCopy leaves room for 206"),
        ("x" * 256, "component of 256 bytes, and AzCopy leaves room for 206"),
        ("a/" + "ü" * 128 + "/b", "more than 255 bytes"),
        ("a\ud800", "unicode"),
    ],
)
def test_unsafe_names_are_refused_wherever_they_stand(name: str, fragment: str) -> None:
    others = [Blob(f"file{number:05d}", 1) for number in range(12_000)]
    for blobs in ([Blob(name, 1, encoding="gzip")], [*others, Blob(name, 1, encoding="gzip")]):
        with pytest.raises(ClusterError, match=fragment) as caught:
            check(blobs, decompress=True)
        assert caught.value.kind == "bad_input"


@given(st.lists(st.text("a./\n\0é", max_size=6), max_size=4), st.booleans())
def test_an_accepted_name_is_a_path_below_the_destination(names: list[str], decompress: bool) -> None:
    try:
        check([Blob(name, 1) for name in names], decompress)
    except ClusterError:
        return
    for name in names:
        assert name
        assert not {"", ".", ".."}.intersection(name.split("/"))
        assert not {"\n", "\0"}.intersection(name)
    assert len(set(names)) == len(names)


def test_names_as_long_as_azcopy_and_the_file_system_allow_are_accepted() -> None:
    check([Blob("d" * 255 + "/" + "x" * 206, 1), Blob("ü" * 103, 1)], decompress=True)


def test_all_names_that_are_refused_are_named_at_once() -> None:
    names = ["../a", *(f"f{number}" for number in range(25_000)), "b.azDownload-", "c/", "x" * 207]
    with pytest.raises(ClusterError) as caught:
        check([Blob(name, 1, encoding="gzip") for name in names], decompress=True)
    message = caught.value.message
    assert message.startswith(
        "3 blob names cannot be staged: '../a' holds a '.' or '..' component; 'c/' holds an empty"
    )
    assert "leaves room for 206" in message
    assert caught.value.details["names"] == ["../a", "c/", "x" * 207]
    many = [Blob(f"{number}/", 1) for number in range(500)]
    with pytest.raises(ClusterError, match="500 blob names") as caught:
        check(many, decompress=False)
    assert (len(caught.value.message) < 1000, len(caught.value.details["names"])) == (True, 100)


def test_both_blobs_that_clash_are_named_with_their_sources() -> None:
    blobs = [Blob("x", 1), Blob("x.gz", 1, encoding="gzip", source=1)]
    with pytest.raises(ClusterError, match=r"'x' of source 1 and 'x\.gz' of source 2"):
        check(blobs, decompress=True)


@pytest.mark.parametrize(
    ("names", "decompress", "fragment"),
    [
        (["a", "a"], False, "target of two blobs"),
        (["a", "a"], True, "listed twice"),
        (["a.gz", "a"], True, "target of two blobs"),
        (["a", "a-b", "a/b"], False, "a file and, for other blobs, a directory"),
        (["a/b.gz", "a/b/c/d"], True, "a file and, for other blobs, a directory"),
        (["x.gz", "x.gz/y"], True, "'x.gz' is a file and, for other blobs, a directory"),
        (["d/x.gz", "d/x.gz/y.gz/z"], True, "'d/x.gz' is a file and, for other blobs, a directory"),
        (["a.gz/x.gz", "a.gz/x.gz/y"], True, "'a.gz/x.gz' is a file and, for other blobs, a directory"),
    ],
)
def test_names_that_clash_are_refused(names: list[str], decompress: bool, fragment: str) -> None:
    with pytest.raises(ClusterError, match=fragment):
        check([Blob(name, 1, encoding="gzip") for name in names], decompress)


def clash(blobs: list[Blob], decompress: bool) -> bool:
    """Whether blobs clash, found with sets of all names, which ten million have no room for."""
    finals = [final_name(blob, decompress) for blob in blobs]
    if len(set(finals)) < len(finals) or len({blob.name for blob in blobs}) < len(blobs):
        return True
    packed = {(blob.source, blob.name) for blob, final in zip(blobs, finals) if blob.name != final}
    for blob, final in zip(blobs, finals):
        for end in (place for place, letter in enumerate(blob.name) if letter == "/"):
            if blob.name[:end] in finals or (blob.source, blob.name[:end]) in packed:
                return True
        assert not any(final.startswith(f"{other}/") for other in finals), (
            "a directory of a final name is one of the name, too"
        )
    return False


@pytest.mark.slow
@settings(max_examples=1000)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["a", "b", "a.gz", "b.gz", "a.gz.gz", "a-", "a.", ".gz"]), min_size=1, max_size=3),
            st.sampled_from(["", "gzip"]),
            st.integers(0, 1),
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_exactly_the_names_that_clash_are_refused(drawn: list[tuple[list[str], str, int]], decompress: bool) -> None:
    blobs = [Blob("/".join(parts), 1, "", "", encoding, source) for parts, encoding, source in drawn]
    try:
        check(blobs, decompress)
    except ClusterError:
        assert clash(blobs, decompress)
    else:
        assert not clash(blobs, decompress)


def test_a_directory_may_be_called_like_a_packed_file() -> None:
    for names in (["x.gz/y", "x/z"], ["d/x.gz/a.gz", "d/x.gz/b"]):
        check([Blob(name, 1, encoding="gzip") for name in names], decompress=True)
    # Sources land apart.
    check([Blob("x.gz", 1, encoding="gzip"), Blob("x.gz/y", 1, source=1)], decompress=True)


def test_names_that_only_their_ending_makes_one_are_refused() -> None:
    """Without a Content-Encoding it is the name that says gzip."""
    with pytest.raises(ClusterError, match="'a' is the target of two blobs"):
        check([Blob("a", 1), Blob("a.gz", 1)], decompress=True)


def test_without_decompression_both_spellings_may_stand_side_by_side() -> None:
    check([Blob("a.gz", 1, encoding="gzip"), Blob("a", 1)], decompress=False)


@pytest.mark.parametrize(
    ("name", "decompress", "encoding", "expected"),
    [
        ("a.gz", True, "gzip", "a"),
        ("a.gz", True, "GZIP", "a"),
        ("a.gz", False, "gzip", "a.gz"),
        ("a.gz", True, "", "a"),
        ("a.gz", False, "", "a.gz"),
        ("a.gz", True, "gzip,aws-chunked", "a"),
        ("a.gz", True, "aws-chunked, GZip", "a"),
        ("a.gz", True, "aws-chunked", "a"),
        ("a.gz", True, "identity", "a"),
        ("a.gz", True, "gzip, gzip", "a.gz"),
        ("a.gz", True, "br, gzip", "a.gz"),
        ("a", True, "", "a"),
        ("a.gz", True, "br", "a.gz"),
        ("a.tfrecord", True, "gzip", "a.tfrecord"),
        ("a.gz.gz", True, "gzip", "a.gz"),
        (".gz", True, "gzip", ".gz"),
        ("d/.gz", True, "gzip", "d/.gz"),
    ],
)
def test_final_name(name: str, decompress: bool, encoding: str, expected: str) -> None:
    assert final_name(Blob(name, 1, encoding=encoding), decompress) == expected
