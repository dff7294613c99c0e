# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What our patterns select, checked against what the real AzCopy selects."""

from __future__ import annotations

import random

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.answer import Index, share_out
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._shards.patterns import Template, escape, join
from lab.globs import selected
from lab.list_server import in_process
from lab.list_server.azcopy import available, dry_run

from benchmarks.staging._prefixes import prefix_buckets

pytestmark = [pytest.mark.blob, pytest.mark.skipif(not available(), reason="AzCopy is not installed, see bin/test")]

ODD = [
    "a[1].gz",
    "a1.gz",
    "b;c.gz",
    "d*e.gz",
    "dxe.gz",
    "sp ace.gz",
    "ü.gz",
    "q?.gz",
    "back\\slash.gz",
    "x%20y.gz",
    "p^q",
]


def test_fifty_random_shares_are_what_azcopy_takes() -> None:
    chance = random.Random(20261120)
    names = [
        f"data/{part}/u_a{number:03d}_{group:03d}.gz"
        for part in ("x", "y")
        for number in (1, 64)
        for group in range(120)
    ]
    with in_process(names) as server:
        for _case in range(50):
            ranks, count = chance.randint(1, 40), chance.randint(1, 120)
            index = Index("u_*_{index:03d}.gz", count, 120 - count, chance.choice(["contiguous", "round_robin"]))
            style = chance.choice(["compact", "literal"])
            share = share_out(ranks, rank=chance.randrange(ranks), index=index, pattern_style=style).shares[0]
            if share.skip:
                assert ranks > count
                continue
            taken = dry_run(server.url, "data", "--recursive", "--include-pattern", share.include_pattern).names
            assert sorted(taken) == selected(share.include_pattern, names)
            assert taken


def test_all_shares_together_are_the_dataset() -> None:
    names = [f"data/u_a{number:03d}_{group:03d}.gz" for number in range(5) for group in range(64)]
    with in_process(names) as server:
        taken: list[str] = []
        for share in share_out(7, index=Index("*_{index:03d}.gz", 64)).shares:
            taken += dry_run(server.url, "data", "--recursive", "--include-pattern", share.include_pattern).names
    assert sorted(taken) == names


@pytest.mark.parametrize("name", [name for name in ODD if ";" not in name])
def test_an_escaped_name_takes_that_file_alone(name: str) -> None:
    with in_process([f"data/{odd}" for odd in ODD]) as server:
        assert dry_run(server.url, "data", "--recursive", "--include-pattern", escape(name)).names == [f"data/{name}"]


@pytest.mark.parametrize("pattern", ["*", "?1*", "[^a-c]*", "a[[]*", "*\\**", "[!a]*", "*[.]gz", "*;x", "ü*"])
def test_the_matcher_agrees_with_azcopy(pattern: str) -> None:
    names = sorted(f"data/{odd}" for odd in ODD)
    with in_process(names) as server:
        taken = dry_run(server.url, "data", "--recursive", "--include-pattern", pattern).names
    assert sorted(taken) == selected(pattern, names)


def test_prefix_buckets_are_listed_by_the_service() -> None:
    names = [f"data/u_a{number:04d}_{group:02d}.gz" for number in range(300) for group in range(10)] + [
        "data/sub/u_a0001"
    ]
    buckets, left = prefix_buckets(names, [1.0] * len(names), 12)
    with in_process(names, page_limit=100) as server:
        taken: list[str] = []
        for bucket in buckets:
            before = len(server.queries)
            got = dry_run(server.url, f"{bucket.directory}*", "--include-pattern", bucket.pattern).names
            assert sorted(got) == [names[member] for member in bucket.members]
            assert all(
                query.get("prefix", "").startswith(bucket.directory + bucket.pattern[:-1])
                for query in server.queries[before:]
                if query.get("delimiter")
            )
            taken += got
    assert sorted(taken) == sorted(names)
    assert left == []


def test_the_template_of_the_reference_as_literals() -> None:
    globs = [Template("*_{index:03d}.tfrecord.gz").name(index) for index in range(4)]
    names = [f"data/univ_ics_2019-03_a00001_{group:03d}.tfrecord.gz" for group in range(64)]
    with in_process(names) as server:
        assert dry_run(server.url, "data", "--recursive", "--include-pattern", join(globs)).names == names[:4]
