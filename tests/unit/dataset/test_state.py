"""Receipts say in which form a file was made; those that do not are judged by the file."""

from __future__ import annotations

import gzip
import json
import pathlib
import zlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import read_receipts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import inspect_destination

CONTENT = b"content " * 50
RAW = gzip.compress(CONTENT, mtime=0)


def state_of(
    tmp_path: pathlib.Path,
    content: bytes,
    *,
    encoding: str,
    decompress: bool,
    form: tuple[bool, ...],
    blob_name: str = "a",
    name: str = "a",
) -> str:
    """The state of a file with a receipt, whose blob has the size of RAW."""
    (tmp_path / name).write_bytes(content)
    mtime_ns = (tmp_path / name).stat().st_mtime_ns
    receipt = (name, "etag", "", len(RAW), len(content), zlib.crc32(content), mtime_ns, *form)
    (tmp_path / "log.jsonl").write_text(json.dumps(receipt) + "\n")
    blob = Blob(blob_name, len(RAW), etag="etag", encoding=encoding)
    found = inspect_destination([blob], str(tmp_path), read_receipts(str(tmp_path)), decompress=decompress)
    return next(name for name in ("verified", "missing", "altered", "outdated", "foreign") if getattr(found, name))


@pytest.mark.parametrize("form", [(True,), (False,)], ids=["inflated", "raw"])
@pytest.mark.parametrize("decompress", [True, False])
def test_the_receipt_tells(tmp_path, form: tuple[bool, ...], decompress: bool) -> None:
    state = state_of(tmp_path, CONTENT if form[0] else RAW, encoding="gzip", decompress=decompress, form=form)
    assert state == ("verified" if form[0] == decompress else "outdated")


SAME_SIZE = b"x" * len(RAW)


@pytest.mark.parametrize(
    ("content", "decompress", "state"),
    [
        (RAW, False, "verified"),
        (RAW, True, "outdated"),
        (CONTENT, True, "verified"),
        (CONTENT, False, "outdated"),
        (SAME_SIZE, True, "outdated"),
        (SAME_SIZE, False, "outdated"),
    ],
    ids=["raw-wanted", "raw", "inflated-wanted", "inflated", "cannot-be-told", "cannot-be-told-either"],
)
def test_without_a_word_of_the_receipt_the_file_tells(tmp_path, content: bytes, decompress: bool, state: str) -> None:
    assert state_of(tmp_path, content, encoding="gzip", decompress=decompress, form=()) == state


@pytest.mark.parametrize("encoding", ["", "gzip,aws-chunked"])
@pytest.mark.parametrize("form", [(True,), (False,), ()], ids=["inflated", "raw", "not-said"])
@pytest.mark.parametrize("decompress", [True, False])
def test_what_is_gzip_by_its_name_has_two_forms(
    tmp_path, encoding: str, form: tuple[bool, ...], decompress: bool
) -> None:
    name = "a" if decompress else "a.gz"
    content = CONTENT if form == (True,) else RAW
    state = state_of(
        tmp_path, content, encoding=encoding, decompress=decompress, form=form, blob_name="a.gz", name=name
    )
    assert state == ("verified" if (form == (True,)) == decompress else "outdated")


@pytest.mark.parametrize("decompress", [True, False])
def test_a_blob_that_is_not_gzip_has_one_form(tmp_path, decompress: bool) -> None:
    assert state_of(tmp_path, SAME_SIZE, encoding="", decompress=decompress, form=()) == "verified"
    assert state_of(tmp_path, SAME_SIZE, encoding="", decompress=decompress, form=(False,)) == "verified"
