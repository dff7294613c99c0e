# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes that keep a share each are told about the dataset, which passes the controller once for every node."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan
from lab.list_server import ListServer, dataset, in_process
from module_run import run_main

SAS = "sv=2021-12-02&sp=rl&se=2099-01-01T00:00:00Z&sig=c2lnbmF0dXJl"


def plan(server: ListServer, data: pathlib.Path, nodes: int, **options: t.Any) -> dict[str, t.Any]:
    return run_main(
        dataset_plan.main,
        {
            "destination": str(data),
            "sources": [{"url": server.url, "sas": SAS}],
            "hosts": [f"gpu-{rank}" for rank in range(nodes)],
            **options,
        },
    )


@pytest.mark.parametrize(("files", "nodes", "listings"), [(60, 3, 1), (60, 1000, 2)])
def test_at_most_a_megabyte_is_handed_to_all_nodes(
    tmp_path: pathlib.Path, files: int, nodes: int, listings: int
) -> None:
    with in_process(dataset(files)) as server:
        listed = plan(server, tmp_path / "first", nodes, return_manifest=True)
        assert not listed["failed"], listed
        assert len(listed["manifest"]) * nodes <= 1_000_000
        own = plan(server, tmp_path / "own", nodes, rank=1, manifest=listed["manifest"])
        assert not own["failed"], own
        assert own["manifest_digest"] == listed["manifest_digest"]
        assert own["total_files"] == len(range(1, files, nodes))
        assert server.stats["LIST"] == listings


def test_a_node_that_lists_something_else_than_the_first_takes_no_share(tmp_path: pathlib.Path) -> None:
    """Of two manifests a file may be in nobody's share."""
    with in_process(dataset(60)) as server:
        listed = plan(server, tmp_path / "first", 1000, return_manifest=True)
        server.names.append("z")
        own = plan(server, tmp_path / "own", 1000, rank=1, manifest=listed["manifest"])
    assert own["failed"]
    assert own["error_kind"] == "changed_at_source"
    assert not (tmp_path / "own").exists()
