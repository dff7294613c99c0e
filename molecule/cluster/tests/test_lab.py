# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After site.yml on the lab: the nodes are sound, see each other, share a file system, and the dataset on it is whole.

And the run that changed nothing, ``molecule idempotence``, cost no more than it may.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import typing as t

SCRATCH = "/mnt/scratch"
#: Goals of the collection: what a run that changes nothing may cost a node, the first one too, in task results.
RESULTS_PER_NODE, RESULTS_PER_ROLE = 45, 3


def test_no_unit_has_failed(host: t.Any) -> None:
    failed = host.run("systemctl list-units --failed --plain --no-legend")
    assert failed.stdout.strip() == "", host.run("journalctl --no-pager --priority=3 --lines=30").stdout


def test_nodes_and_storage_accounts_have_names(host: t.Any) -> None:
    for name in ("gpu-1", "blob", "labtrain.blob.lab", "labvalidation.blob.lab"):
        assert host.addr(name).is_resolvable, name


def test_scratch_is_the_shared_file_system(host: t.Any) -> None:
    assert host.mount_point(SCRATCH).filesystem == "fuse.glusterfs"


def test_every_node_sees_the_whole_dataset(host: t.Any) -> None:
    report = json.loads(host.file(f"{SCRATCH}/cosmoflow/.staging/staging.json").content_string)
    assert report["verdict"] == "ok"
    found = host.run(f"find {SCRATCH}/cosmoflow -name 'univ_ics_2019-03_a*.tfrecord' -type f -printf '%s\\n'")
    sizes = [int(line) for line in found.stdout.split()]
    assert len(sizes) == report["total_files"] == report["verified_files"]
    assert sum(sizes) == report["verified_bytes"]


def test_a_run_that_changes_nothing_costs_few_results(host: t.Any) -> None:
    """Of the run before this one, as benchmarks/converge/callbacks wrote it down: play, role, task, host, kind, changed."""
    noted = json.loads(pathlib.Path(os.environ["CONVERGE_RESULTS"]).read_text())["results"]
    assert not [one for one in noted if one[5]], (
        "the last run changed something: run molecule idempotence before verify"
    )
    mine = [one for one in noted if one[3] == host.backend.get_hostname()]
    assert "dataset_staging" in {role.rpartition(".")[2] for _play, role, *_rest in mine}, (
        "the last run was not site.yml"
    )
    assert len(mine) <= RESULTS_PER_NODE, collections.Counter(role for _play, role, *_rest in mine)
    per_role = collections.Counter((play, role) for play, role, *_rest in mine if role)
    assert max(per_role.values()) <= RESULTS_PER_ROLE, per_role.most_common(3)
