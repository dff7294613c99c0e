# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that cannot work are refused by their names, before anything is listed, made, or copied."""

from __future__ import annotations

import os
import pathlib
import subprocess
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.limits import LEAST, NOT_ROOT, PATHS, POSITIVE
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.writable import check_writable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan, dataset_stage, dataset_upload
from module_run import run_main

LIMITS = pathlib.Path(__file__).parents[3] / "roles/dataset_staging/meta/limits.yml"
WHOLE = {"destination": "/nowhere/data", "sources": [{"url": "https://account.blob.core.windows.net/c"}]}
MODULES = {
    "plan": (dataset_plan, {**WHOLE, "hosts": ["gpu-1"]}),
    "stage": (dataset_stage, {**WHOLE, "run": "r", "rank": 0, "host": "gpu-1"}),
    "upload": (dataset_upload, {"url": WHOLE["sources"][0]["url"], "source": "/nowhere/source"}),
}


def refused(name: str, **options: t.Any) -> str:
    module, arguments = MODULES[name]
    result = run_main(module.main, {**arguments, **options})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input"), result
    return t.cast(str, result["msg"])


@pytest.mark.parametrize(
    ("name", "option", "value", "wanted"),
    [
        ("plan", "batch_s", 0, "more than 0"),
        ("plan", "batch_s", "nan", "more than 0"),
        ("plan", "nic_mbps", -1, "0 or more"),
        ("plan", "egress_mbps", -1, "0 or more"),
        ("plan", "destination", "data", "an absolute path"),
        ("plan", "destination", "", "an absolute path"),
        ("plan", "destination", "/", "a directory below /, which belongs to the whole node"),
        ("plan", "destination", "//mnt/..", "a directory below /, which belongs to the whole node"),
        ("plan", "landing_path", "landing", "an absolute path"),
        ("plan", "mount_point", "mnt", "an absolute path"),
        ("stage", "processes", 0, "1 or more"),
        ("stage", "concurrency", -1, "0 or more"),
        ("stage", "threads", -1, "0 or more"),
        ("stage", "stall_timeout_s", 0, "more than 0"),
        ("stage", "claim_expiry_s", 0, "more than 0"),
        ("stage", "timeout_s", "inf", "0 or more"),
        ("stage", "log_path", "log", "an absolute path"),
        ("upload", "processes", 0, "1 or more"),
        ("upload", "ingress_mbps", -1, "0 or more"),
        ("upload", "source", "source", "an absolute path"),
    ],
)
def test_a_value_outside_its_limit_is_refused(name: str, option: str, value: t.Any, wanted: str) -> None:
    said = refused(name, **{option: value})
    assert said.startswith(f"`{option}` is ")
    assert f": it has to be {wanted}." in said


def test_a_file_where_the_state_belongs_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / ".staging").write_text("")
    said = refused("plan", destination=str(tmp_path), sources=[{"url": "https://account.blob.core.windows.net/data"}])
    assert said.startswith(f"`{tmp_path}/.staging` is no directory, where one of our own belongs. Look at what it is")


def test_a_source_that_goes_on_behind_the_container_is_told_its_prefix() -> None:
    said = refused("plan", sources=[{"url": "https://account.blob.core.windows.net/data/train/2024"}])
    assert "Give `https://account.blob.core.windows.net/data` as URL, and `train/2024` as `prefix`" in said


def test_all_of_them_are_named_at_once() -> None:
    said = refused("plan", batch_s=0, nic_mbps=-1, destination="data")
    assert said.count("it has to be") == 3


def test_the_role_has_the_same_limits() -> None:
    """It refuses before any node is touched what a module would refuse there."""
    limits = {
        name.removeprefix("dataset_staging_"): limit for name, limit in yaml.safe_load(LIMITS.read_text()).items()
    }
    for option in {*POSITIVE, *LEAST, *PATHS} & set(limits):
        kind = "absolute" if option in PATHS else "above" if option in POSITIVE else "least"
        # A staging without end is none, an upload may have one.
        expected = {"above": 0} if option in ("timeout_s", *POSITIVE) else {kind: LEAST.get(option, True)}
        expected.update({"not_root": True, "below": "dataset_staging_mount_point"} if option in NOT_ROOT else {})
        assert limits[option] == expected, option
    assert {*POSITIVE, *LEAST, *PATHS} - set(limits) == {"cap_mbps", "source", "work_path"}


@pytest.mark.parametrize("below", ["", "/deep/er"])
def test_a_file_where_a_directory_belongs_is_named(tmp_path: pathlib.Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for name in ("file", "gone"):
        with pytest.raises(ClusterError, match=rf"^`landing_path` is .*{name} is no directory") as caught:
            check_writable("landing_path", f"{tmp_path}/{name}{below}")
        assert caught.value.kind == "bad_input"
    check_writable("landing_path", f"{tmp_path}{below}")
    assert len(list(tmp_path.iterdir())) == 2, "nothing was made"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_a_read_only_file_system_is_named(tmp_path: pathlib.Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path], check=True)
    try:
        with pytest.raises(ClusterError, match=r"is mounted read-only\. Mount it for writing"):
            check_writable("destination", str(tmp_path / "data"))
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, who may become another")
def test_a_directory_of_somebody_else_is_named(tmp_path: pathlib.Path) -> None:
    child = os.fork()
    if not child:
        os.setuid(65534)
        try:
            check_writable("destination", str(tmp_path / "data"))
        except ClusterError as error:
            os._exit(0 if "this user may not write to" in error.message else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
