# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After site.yml on the lab: the nodes are sound, see each other, share a file system, and the dataset on it is whole."""

from __future__ import annotations

import json
import typing as t

SCRATCH = "/mnt/scratch"


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
