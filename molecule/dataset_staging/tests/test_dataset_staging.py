# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dataset_staging leaves on a node: AzCopy, the dataset as it was uploaded, and nothing of the work."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

LAB = pathlib.Path(os.environ.get("LAB_DIR") or pathlib.Path(__file__).resolve().parents[3] / ".cache/lab")
DATASET = "/mnt/scratch/cosmoflow"


def test_azcopy_is_installed_and_its_logs_are_private(host: t.Any) -> None:
    assert host.file("/opt/azcopy").is_directory
    assert host.package("libsecret-1-0").is_installed
    logs = host.file("/var/log/azcopy")
    assert (logs.user, logs.mode) == ("root", 0o700)


def test_the_dataset_is_what_was_uploaded(host: t.Any) -> None:
    uploaded = json.loads((LAB / "machines.json").read_text())["dataset"]
    report = json.loads(host.file(f"{DATASET}/.staging/staging.json").content_string)
    assert (report["verdict"], report["verified_files"]) == ("ok", uploaded["files"])
    sizes = host.check_output(f"find {DATASET} -path '*/.staging' -prune -o -type f -printf '%s\\n'").split()
    assert (len(sizes), sum(map(int, sizes))) == (uploaded["files"], uploaded["raw_bytes"])


def test_every_node_took_part(host: t.Any) -> None:
    report = json.loads(host.file(f"{DATASET}/.staging/staging.json").content_string)
    ranks = {rank["host"] for staged in report["rounds"] for rank in staged["ranks"]}
    assert host.backend.get_hostname() in ranks


def test_nothing_of_the_work_is_left(host: t.Any) -> None:
    assert not host.process.filter(comm="azcopy")
    landing = host.file("/mnt/resource_nvme/landing")
    assert not landing.exists or landing.listdir() == []
    assert not host.check_output(f"find {DATASET} -name '.azDownload-*' -o -name '*.part'")
