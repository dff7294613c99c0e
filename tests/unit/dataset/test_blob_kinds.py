# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blobs and containers of other kinds: what cannot be copied is named before the copy, what can is copied."""

from __future__ import annotations

import gzip
import typing as t
import urllib.parse

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.prepare import list_dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.modules.dataset_plan import read_options

pytestmark = [pytest.mark.blob, pytest.mark.slow]


def call(staging: t.Any, name: str, query: str = "", body: bytes = b"", **headers: str) -> None:
    path = f"{staging.container}/{urllib.parse.quote(name)}" if name else staging.container
    named = {f"x-ms-{key.replace('__', '-')}": value for key, value in headers.items()}
    staging.service._call("PUT", path, query, headers=named, body=body)


def own_share(staging: t.Any) -> dict[str, t.Any]:
    """Options of the only node of those that keep a share each."""
    hosts = ["gpu-1"]
    listed = list_dataset(read_options(staging.params(hosts=hosts)))
    return {"hosts": hosts, "rank": 0, "manifest": listed["manifest"]}


def test_archived_blobs_are_named_at_the_listing_unless_they_are_staged_already(staging) -> None:
    for name in ("a", "b", "c"):
        staging.put(f"{name}.bin", name.encode() * 100, compress=False)
    call(staging, "b.bin", "comp=tier", access__tier="Archive")
    for attempt in (staging.plan, lambda: staging.plan(**own_share(staging))):
        with pytest.raises(ClusterError, match=r"^1 blob is in the archive tier.*'b\.bin'") as caught:
            attempt()
        assert (caught.value.kind, caught.value.details) == ("archived", {"names": ["b.bin"]})
    assert not (staging.destination / "data").exists()
    call(staging, "b.bin", "comp=tier", access__tier="Hot")
    staging.stage()
    call(staging, "b.bin", "comp=tier", access__tier="Archive")
    assert staging.plan()["missing_files"] == 0


def test_a_share_of_its_own_needs_no_copy_once_its_source_is_archived(staging) -> None:
    for name in ("a", "b"):
        staging.put(f"{name}.bin", name.encode() * 100, compress=False)
    share = own_share(staging)
    assert not share["manifest"].startswith("sha256:")
    staging.copy(staging.plan(**share)["run"], ranks=1, **share)
    call(staging, "b.bin", "comp=tier", access__tier="Archive")
    share = own_share(staging)
    assert share["manifest"].startswith("sha256:")
    assert staging.plan(**share)["missing_files"] == 0


def test_a_directory_with_data_is_refused_before_anything_is_copied(staging) -> None:
    staging.put("a.bin", b"a", compress=False)
    for name, data in (("empty", b""), ("full", b"data"), ("fuller", b"more data")):
        call(staging, name, body=data, blob__type="BlockBlob", meta__hdi_isfolder="true")
    with pytest.raises(ClusterError, match=r"^2 blobs are marked as directories.*'full', 'fuller'\.") as caught:
        staging.plan()
    assert caught.value.kind == "bad_input"


def test_a_symbolic_link_is_refused_before_anything_is_copied_and_can_be_left_out(staging) -> None:
    staging.put("a.bin", b"a", compress=False)
    for name, key, value in (("link", "is_symlink", "true"), ("upper", "Is_symlink", "True")):
        call(staging, name, body=b"a.bin", blob__type="BlockBlob", **{f"meta__{key}": value})
    call(staging, "no link", body=b"data", blob__type="BlockBlob", meta__is_symlink="false")
    staging.content["no link"] = b"data"
    with pytest.raises(ClusterError, match=r"^2 blobs are .*symbolic links.*'link', 'upper'\.") as caught:
        staging.plan()
    assert (caught.value.kind, caught.value.details) == ("bad_input", {"names": ["link", "upper"]})
    assert not (staging.destination / "data").exists()
    sources = [{**source, "exclude": ["link", "upper"]} for source in staging.params()["sources"]]
    assert staging.stage(sources=sources)["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content


@pytest.mark.parametrize("engine", ["collection", "azcopy"])
@pytest.mark.parametrize("encoding", ["", "gzip,aws-chunked", "aws-chunked", "gzip", "utf-8"])
def test_gzip_is_inflated_however_its_content_encoding_says_so(one_batch, engine: str, encoding: str) -> None:
    """By the name, where it says nothing."""
    one_batch.options["decompress_engine"] = engine
    for number in range(3):
        content = f"inflated {number} ".encode() * 500
        raw = gzip.compress(content, mtime=0)
        name = f"train/{number}.tfrecord.{'GZ' if number == 2 else 'gz'}"
        one_batch.service.put(one_batch.container, name, raw, encoding=encoding)
        one_batch.content[f"train/{number}.tfrecord"] = content
    one_batch.put("train/index.idx", b"no gzip", compress=False)
    assert one_batch.stage()["verified"]["verdict"] == "ok"
    assert one_batch.files() == one_batch.content
    assert one_batch.verify()["verdict"] == "ok"
    again = one_batch.plan()
    assert (again["changed"], again["missing_files"], again["verified_files"]) == (False, 0, 4)


def test_what_is_only_called_gzip_is_named(one_batch) -> None:
    one_batch.service.put(one_batch.container, "a.gz", b"no gzip at all")
    one_batch.put("b.bin", b"whole", compress=False)
    result = one_batch.stage()["verified"]
    assert [(cause["kind"], cause["name"]) for cause in result["causes"]] == [("not_gzip", "a.gz")]
    assert one_batch.files() == {"b.bin": b"whole"}


def test_azcopy_leaves_encodings_alone_that_it_cannot_inflate(staging) -> None:
    staging.put("a.bin.gz", b"inflated " * 500)
    raw = b"not really brotli " * 50
    staging.service.put(staging.container, "b.bin.br", raw, encoding="br")
    staging.content["b.bin.br"] = raw
    plan = staging.stage(decompress_engine="azcopy")
    assert plan["verified"]["verdict"] == "ok"
    assert plan["notes"] == [
        "`decompress` undoes gzip, and once. What it leaves packed, by Content-Encoding (1): 'b.bin.br' (br)."
    ]
    assert staging.files() == staging.content


def test_a_public_container_needs_neither_sas_nor_identity(staging) -> None:
    source = {"url": staging.service.url(staging.container), "prefix": "", "sas": ""}
    with pytest.raises(ClusterError) as caught:
        staging.plan(sources=[source], identity="none")
    assert caught.value.kind == "auth_failed"
    staging.container += "public"  # with a SAS only a new one can be made public
    call(staging, "", "restype=container", blob__public__access="container")
    staging.fill(4)
    source["url"] = staging.service.url(staging.container)
    assert staging.stage(sources=[source], identity="none")["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content
