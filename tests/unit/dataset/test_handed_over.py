# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes that keep a share each are told about the dataset, which passes the controller once for every node."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan
from lab.list_server import ListServer, dataset, in_process
from module_run import run_main

SAS = "sv=2021-12-02&sp=rl&se=2099-01-01T00:00:00Z&sig=c2lnbmF0dXJl"


def first(server: ListServer, data: pathlib.Path, nodes: int) -> dict[str, t.Any]:
    """What the node that lists first answers."""
    return plan(server, data, hosts=[f"gpu-{rank}" for rank in range(nodes)], return_manifest=True)


def own(server: ListServer, data: pathlib.Path, nodes: int, manifest: str, rank: int = 1) -> dict[str, t.Any]:
    """What a node with a share of its own answers."""
    return plan(server, data, rank=rank, world_size=nodes, host=f"gpu-{rank}", manifest=manifest)


def plan(server: ListServer, data: pathlib.Path, **options: t.Any) -> dict[str, t.Any]:
    sources = [{"url": server.url, "sas": SAS}]
    return run_main(dataset_plan.main, {"destination": str(data), "sources": sources, **options})


@pytest.mark.parametrize(("files", "nodes", "listings"), [(60, 3, 1), (60, 1000, 2)])
def test_at_most_a_megabyte_is_handed_to_all_nodes(
    tmp_path: pathlib.Path, files: int, nodes: int, listings: int
) -> None:
    with in_process(dataset(files)) as server:
        listed = first(server, tmp_path / "first", nodes)
        assert not listed["failed"], listed
        # There, and back among the options that a module returns.
        assert 2 * len(listed["manifest"]) * nodes <= 1_000_000
        planned = own(server, tmp_path / "own", nodes, listed["manifest"])
        assert not planned["failed"], planned
        assert planned["manifest_digest"] == listed["manifest_digest"]
        assert planned["total_files"] == len(range(1, files, nodes))
        assert server.stats["LIST"] == listings


def test_a_node_that_lists_something_else_than_the_first_takes_no_share(tmp_path: pathlib.Path) -> None:
    """Of two manifests a file may be in nobody's share."""
    with in_process(dataset(60)) as server:
        listed = first(server, tmp_path / "first", 1000)
        server.names.append("z")
        planned = own(server, tmp_path / "own", 1000, listed["manifest"])
    assert planned["failed"]
    assert planned["error_kind"] == "changed_at_source"
    assert not (tmp_path / "own").exists()


def test_what_a_node_is_told_and_answers_does_not_grow_with_their_number(tmp_path: pathlib.Path) -> None:
    """It was a list of all hosts, there and back: 90 MB through the controller at 1,000 nodes."""
    with in_process(dataset(4000)) as server:
        sizes = []
        for nodes in (2, 2000):
            digest = f"sha256:{first(server, tmp_path / 'first', nodes)['manifest_digest']}"
            planned = own(server, tmp_path / str(nodes), nodes, digest)
            assert planned["total_files"] == 4000 // nodes
            sizes.append(len(json.dumps(planned)))
    assert max(sizes) < 2500
    assert abs(sizes[1] - sizes[0]) < 100


@pytest.mark.parametrize(
    "nodes",
    [
        {},
        {"hosts": []},
        {"rank": 0},
        {"rank": 0, "world_size": 2},
        {"rank": 0, "host": "gpu-0"},
        {"rank": 0, "world_size": 2, "host": "gpu-0", "hosts": ["gpu-0", "gpu-1"]},
        {"hosts": ["gpu-0"], "world_size": 2},
        {"rank": 2, "world_size": 2, "host": "gpu-2"},
        {"rank": 0, "world_size": 0, "host": "gpu-0"},
    ],
)
def test_who_copies_is_said_in_one_of_two_ways(tmp_path: pathlib.Path, nodes: dict[str, t.Any]) -> None:
    with in_process(dataset(4)) as server:
        refused = plan(server, tmp_path, **nodes)
        assert refused.get("error_kind") == "bad_input", refused
        assert "rank" in refused["msg"]
        assert server.stats["LIST"] == 0
