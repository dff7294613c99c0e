# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module azcopy_shard, and that its shares are a partition whatever the input."""

from __future__ import annotations

import math
import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.answer import Index, Share, share_out
from ansible_collections.hpcai.gpu_cluster.plugins.modules import azcopy_shard
from hypothesis import given
from hypothesis import strategies as st
from lab.globs import selected
from module_run import run_main

GROUPS = {"template": "*_{index:03d}.tfrecord.gz", "count": 64}
FIXED_KEYS = {"rank", "skip", "patterns", "include_pattern", "files", "expected_files", "expected_bytes"}


def run(**options: t.Any) -> dict[str, t.Any]:
    return run_main(azcopy_shard.main, options)


def test_rank_0_of_16_over_64_groups_as_the_reference_writes_it() -> None:
    result = run(rank=0, world_size=16, index=GROUPS, pattern_style="literal")
    assert result["include_pattern"] == "*_000.tfrecord.gz;*_001.tfrecord.gz;*_002.tfrecord.gz;*_003.tfrecord.gz"
    assert result["patterns"] == result["include_pattern"].split(";")


def test_the_same_share_in_few_patterns() -> None:
    result = run(rank=2, world_size=16, index=GROUPS)
    assert result["patterns"] == ["*_00[89].tfrecord.gz", "*_01[01].tfrecord.gz"]
    assert (result["use"], result["skip"], result["imbalance"]) == ("pattern", False, 1.0)
    assert result["expected_files"] is result["expected_bytes"] is None
    assert result["changed"] is False
    assert result["shards"] == [{key: result[key] for key in result["shards"][0]}]
    assert set(result["shards"][0]) >= FIXED_KEYS


def test_all_ranks_and_check_mode() -> None:
    result = run(world_size=16, index=GROUPS, _ansible_check_mode=True)
    assert [shard["rank"] for shard in result["shards"]] == list(range(16))
    assert all(len(shard["patterns"]) <= 2 for shard in result["shards"])
    assert "include_pattern" not in result


def test_a_surplus_rank_skips() -> None:
    result = run(world_size=100, index=GROUPS)
    idle = [shard for shard in result["shards"] if shard["skip"]]
    assert len(idle) == 36
    assert result["imbalance"] == 1.0, "a file cannot be cut"
    for shard in idle:
        assert (shard["patterns"], shard["include_pattern"], shard["files"]) == ([], "", [])
        assert (shard["expected_files"], shard["expected_bytes"], shard["use"]) == (0, 0, "nothing")


def test_a_literal_template_names_its_files() -> None:
    result = run(rank=1, world_size=2, index={"template": "part-{index}.tar", "count": 4, "start": 8})
    assert result["files"] == ["part-10.tar", "part-11.tar"]
    assert (result["expected_files"], result["expected_bytes"]) == (2, None)
    assert result["include_pattern"] == "part-1[01].tar"


def test_files_are_balanced_by_bytes() -> None:
    sizes = {"a.gz": 50, "b.gz": 30, "c.gz": 30, "d.gz": 10}
    result = run(world_size=2, files=[{"name": name, "size": size} for name, size in sizes.items()])
    assert [(shard["files"], shard["expected_bytes"]) for shard in result["shards"]] == [
        (["a.gz", "d.gz"], 60),
        (["b.gz", "c.gz"], 60),
    ]
    assert result["shards"][0]["include_pattern"] == "a.gz;d.gz"
    assert result["imbalance"] == 1.0


def test_a_manifest_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "manifest.jsonl")
    blobs = [Blob(f"train/a_{group:03d}.tfrecord.gz", 10 + group) for group in range(64)]
    Manifest([{"url": "https://example.com/c", "prefix": ""}], blobs).write(path)
    by_bytes = run(world_size=4, manifest=path)
    assert sum(shard["expected_files"] for shard in by_bytes["shards"]) == 64
    by_number = run(rank=3, world_size=4, manifest=path, index=GROUPS)
    assert by_number["files"] == [blob.name for blob in blobs[48:]]
    assert by_number["expected_bytes"] == sum(blob.size for blob in blobs[48:])
    assert by_number["imbalance"] == pytest.approx(by_number["expected_bytes"] / (sum(b.size for b in blobs) / 4))


@pytest.mark.parametrize(
    ("options", "kind", "fragment"),
    [
        ({"world_size": 0, "index": GROUPS}, "bad_input", "world_size is 0"),
        ({"world_size": 4, "rank": 4, "index": GROUPS}, "bad_input", "ranks 0 to 3"),
        ({"world_size": 4, "rank": -1, "index": GROUPS}, "bad_input", "rank is -1"),
        ({"world_size": 4, "index": {"template": "*.gz", "count": 4}}, "bad_input", "exactly one {index}"),
        ({"world_size": 4, "index": {**GROUPS, "count": 0}}, "bad_input", "count 0"),
        ({"world_size": 4, "index": {**GROUPS, "start": -1}}, "bad_input", "start -1"),
        ({"world_size": 4, "files": []}, "no_match", "list of files is empty"),
        ({"world_size": 4, "files": [{"name": "a", "size": -1}]}, "bad_input", "size of -1"),
        ({"world_size": 4, "files": [{"name": "a", "size": 1}] * 2}, "bad_input", "listed twice"),
        ({"world_size": 4, "files": [{"name": "a\nb", "size": 1}]}, "bad_input", "line break"),
        ({"world_size": 4, "files": [{"name": "a\rb", "size": 1}]}, "bad_input", "line break"),
        ({"world_size": 4, "files": [{"name": "a\0b", "size": 1}]}, "bad_input", "NUL"),
        ({"world_size": 4, "files": [{"name": "", "size": 1}]}, "bad_input", "not the name of a file"),
        ({"world_size": 4, "files": [{"name": "a/", "size": 1}]}, "bad_input", "not the name of a file"),
        ({"world_size": 4, "files": [{"name": "a", "size": 1}], "file_cost_bytes": -1}, "bad_input", "file_cost_bytes"),
        ({"world_size": 4, "manifest": "/nonexistent"}, "bad_input", "No such file"),
        ({"world_size": 4, "index": GROUPS, "files": [{"name": "README", "size": 1}]}, "bad_input", "'README' has no"),
        ({"world_size": 4}, None, "one of the following is required: index, files, manifest"),
        ({"index": GROUPS}, None, "missing required arguments: world_size"),
        ({"world_size": 4, "files": [], "manifest": "x"}, None, "mutually exclusive"),
        ({"world_size": "four", "index": GROUPS}, None, "world_size"),
        ({"world_size": 4, "index": {"count": 4}}, None, "template"),
        ({"world_size": 4, "index": {**GROUPS, "order": "random"}}, None, "contiguous, round_robin"),
        ({"world_size": 4, "files": [{"name": "a", "size": "big"}]}, None, "size"),
        ({"world_size": 4, "files": ["a"]}, None, "dict"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, t.Any], kind: str | None, fragment: str) -> None:
    result = run(**options)
    assert result["failed"] is True
    assert result.get("error_kind") == kind
    assert fragment in result["msg"]
    assert kind is None or result["remedy"]


files_strategy = st.lists(
    st.tuples(
        st.text("ab0[]*?;\\ é/'\"", min_size=1, max_size=8).filter(lambda name: name[-1] != "/"), st.integers(0, 10**6)
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda file: file[0],
)


@pytest.mark.slow
@pytest.mark.newest
@given(files_strategy, st.one_of(st.integers(1, 20), st.integers(1, 10_000)), st.sampled_from([0, 1000]))
def test_any_files_over_any_ranks_are_a_partition(files: list[tuple[str, int]], ranks: int, cost: int) -> None:
    plan = share_out(ranks, files=files, file_cost_bytes=cost)
    check_partition(plan.shares, files, ranks)
    assert plan == share_out(ranks, files=files, file_cost_bytes=cost)
    loads = [t.cast("int", share.expected_bytes) + cost * t.cast("int", share.expected_files) for share in plan.shares]
    ideal = max(sum(loads) / ranks, max(size + cost for _name, size in files))
    assert plan.imbalance == pytest.approx(max(loads) / ideal if ideal else 1.0)


@pytest.mark.slow
@pytest.mark.newest
@given(
    st.integers(1, 200),
    st.integers(0, 950),
    st.one_of(st.integers(1, 20), st.integers(1, 10_000)),
    st.sampled_from(["contiguous", "round_robin"]),
    st.sampled_from(["compact", "literal"]),
)
def test_any_range_over_any_ranks_is_a_partition(count: int, start: int, ranks: int, order: str, style: str) -> None:
    files = [
        (f"{part}/u_a{part}_{number:03d}.gz", number) for part in (1, 999) for number in range(start, start + count, 2)
    ]
    plan = share_out(ranks, index=Index("*_{index:03d}.gz", count, start, order), files=files, pattern_style=style)
    check_partition(plan.shares, files, ranks)
    assert all(share.use != "file_list" for share in plan.shares)


def check_partition(shares: list[Share], files: list[tuple[str, int]], ranks: int) -> None:
    sizes, names = dict(files), [name for name, _size in files]
    assert [share.rank for share in shares] == list(range(ranks))
    assert sorted(name for share in shares for name in share.files) == sorted(names)
    for share in shares:
        assert share.skip is (not share.files) is (share.use == "nothing")
        assert share.expected_files == len(share.files)
        assert share.expected_bytes == sum(sizes[name] for name in share.files)
        assert bool(share.patterns) is bool(share.include_pattern) is (share.use == "pattern")
        assert len(share.include_pattern.encode()) <= 4096
        if share.use == "pattern":
            assert sorted(selected(share.include_pattern, names)) == sorted(share.files)


def test_one_rank_gets_what_it_gets_among_all() -> None:
    files = [(f"f{number}", number * number % 97) for number in range(500)]
    everybody = share_out(9, files=files)
    for rank in range(9):
        alone = share_out(9, rank=rank, files=files)
        assert alone.shares == [everybody.shares[rank]]
        assert alone.imbalance == everybody.imbalance


def test_beyond_the_limit_a_file_list_takes_over() -> None:
    share = share_out(1, files=[(f"a-rather-long-name-{number:06d}.tfrecord.gz", 1) for number in range(1000)]).shares[
        0
    ]
    assert (share.use, share.include_pattern, len(share.files)) == ("file_list", "", 1000)


@pytest.mark.parametrize(("length", "use"), [(4096, "pattern"), (4097, "file_list")])
def test_4096_bytes_of_patterns_are_not_beyond_it(length: int, use: str) -> None:
    names = ["a" * 2047, "b" * (length - 2048)]
    assert share_out(1, files=[(name, 1) for name in names]).shares[0].use == use


def test_a_cost_per_file_weighs_in() -> None:
    files = [("big", 100), *((f"small-{number}", 1) for number in range(10))]
    assert [len(share.files) for share in share_out(2, files=files).shares] == [1, 10]
    assert [len(share.files) for share in share_out(2, files=files, file_cost_bytes=1000).shares] == [5, 6]


@pytest.mark.parametrize("names", [["a;b", "c"], ["x/same", "y/same"]])
def test_what_a_pattern_cannot_say_becomes_a_file_list(names: list[str]) -> None:
    share = share_out(1, files=[(name, 1) for name in names]).shares[0]
    assert (share.use, share.patterns, share.include_pattern, share.files) == ("file_list", [], "", names)


@pytest.mark.slow
@pytest.mark.newest
def test_numbers_without_pattern_or_list_are_refused() -> None:
    with pytest.raises(ClusterError, match="longer than an argument") as caught:
        share_out(70, rank=0, index=Index("*_{index:07d}.gz", 9_999_999, order="round_robin"))
    assert "order: contiguous" in caught.value.remedy


def test_a_million_numbers_stay_short() -> None:
    for share in share_out(16, index=Index("*_{index:07d}.gz", 1_000_000)).shares:
        assert len(share.patterns) <= 13
        assert math.log2(len(share.include_pattern)) < 12
