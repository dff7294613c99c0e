# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own tools: podman settings, bandwidth limits, the dataset, the inventory, tokens and the summary."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import pathlib
import stat
import types
import typing as t

import pytest
from lab import bandwidth, blob_access, dataset, host, summary

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOOD = host.Host(
    root=True, cgroup="unified", may_raise_limits=True, nofile=1 << 20, nproc=1 << 20, fuse=True, runc=True, missing=()
)


def _load(path: pathlib.Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# host.py


def test_good_host_has_no_problems_and_keeps_podmans_defaults() -> None:
    assert host.problems(GOOD) == []
    text = host.containers_conf(GOOD)
    assert "default_ulimits" not in text
    assert "runtime" not in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"missing": ("podman", "iproute2")}, "podman iproute2"),
        ({"cgroup": "hybrid", "runc": False}, "runc"),
        ({"fuse": False}, "/dev/fuse"),
        ({"root": False}, "root"),
    ],
)
def test_each_obstacle_is_named_with_the_next_step(change: dict[str, t.Any], words: str) -> None:
    found = host.problems(GOOD._replace(**change))
    assert len(found) == 1
    assert words in found[0]


def test_limits_stay_below_what_the_host_and_podman_can_set() -> None:
    text = host.containers_conf(GOOD._replace(may_raise_limits=False, nofile=20000, nproc=96365))
    assert 'default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]' in text


def test_mixed_cgroups_need_runc() -> None:
    assert 'runtime = "runc"' in host.containers_conf(GOOD._replace(cgroup="hybrid"))


# bandwidth.py


class Tc:
    """A tc that remembers what it was told."""

    def __init__(self, bucket: dict[str, t.Any] | None = None) -> None:
        self.bucket = bucket
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str]) -> str:
        if "show" in argv:
            return json.dumps([self.bucket or {"kind": "noqueue", "options": {}}])
        self.calls.append(argv)
        return ""


@pytest.mark.parametrize(
    ("now", "mbit", "expected"),
    [
        (None, 0, None),
        (None, 200, ["replace", "rate", "200mbit", "250000"]),
        (200, 200, None),
        (100, 200, ["replace", "rate", "200mbit"]),
        (200, 0, ["del"]),
        (None, 10, ["replace", "10mbit", "131072"]),
    ],
)
def test_shape_changes_only_what_differs(now: int | None, mbit: int, expected: list[str] | None) -> None:
    tc = Tc({"kind": "tbf", "options": {"rate": now * 125_000}} if now else None)
    assert bandwidth.shape(["tc"], "veth7", mbit, tc) is (expected is not None)
    assert len(tc.calls) == (expected is not None)
    for word in expected or []:
        assert word in tc.calls[0]


def test_host_device_is_found_by_the_index_that_the_container_sees() -> None:
    def command(argv: list[str]) -> str:
        return (
            "41\n"
            if argv[0] == "podman"
            else json.dumps([{"ifindex": 4, "ifname": "veth4"}, {"ifindex": 41, "ifname": "veth41"}])
        )

    assert bandwidth.host_device("gpu-1", command) == "veth41"


def test_host_device_says_what_may_be_wrong() -> None:
    with pytest.raises(LookupError, match="No device with index 41"):
        bandwidth.host_device("gpu-1", lambda argv: "41" if argv[0] == "podman" else "[]")


# dataset.py


@pytest.fixture(scope="module")
def blobs() -> list[dataset.Blob]:
    return list(dataset.make_blobs(groups=26, mean_bytes=20_000))


@pytest.mark.slow
def test_blobs_are_ordinary_gzip_files_of_the_declared_size(blobs: list[dataset.Blob]) -> None:
    for blob in blobs[::97]:
        content = gzip.decompress(blob.data)
        assert len(content) == blob.raw_bytes
        assert blob.data.count(b"\x1f\x8b\x08\x00") >= 1


@pytest.mark.slow
def test_names_follow_the_reference_and_the_accounts_split_them(blobs: list[dataset.Blob]) -> None:
    assert len(blobs) == 26 * dataset.GROUP_SIZE
    assert blobs[0].name == "train/univ_ics_2019-03_a10000_000.tfrecord.gz"
    assert {blob.account for blob in blobs} == set(dataset.ACCOUNTS)
    assert len({blob.name for blob in blobs}) == len(blobs)
    assert len({hashlib.sha256(blob.data).digest() for blob in blobs}) == len(blobs)


@pytest.mark.slow
def test_the_same_seed_makes_the_same_bytes(blobs: list[dataset.Blob]) -> None:
    again = dataset.make_blobs(groups=1, mean_bytes=20_000)
    assert [blob.data for blob in again] == [blob.data for blob in blobs[: dataset.GROUP_SIZE]]


def test_a_labs_copy_is_made_once_and_replaces_older_ones(tmp_path: pathlib.Path) -> None:
    made = tmp_path / "cache" / "abc"
    (made / "workspace").mkdir(parents=True)
    (made / "workspace" / "index").write_text("x")
    (tmp_path / "state" / "azurite-old").mkdir(parents=True)
    workspace, changed = dataset.copy(made, tmp_path / "state")
    assert changed
    assert (workspace / "index").read_text() == "x"
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["azurite-abc"]
    assert dataset.copy(made, tmp_path / "state") == (workspace, False)


# blob_access.py


def test_tokens_and_keys_are_made_once_and_closed_to_others(tmp_path: pathlib.Path) -> None:
    endpoint = "http://{account}.blob.lab:10000"
    assert blob_access.ensure(tmp_path, endpoint)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert not blob_access.ensure(tmp_path, endpoint)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    sources = json.loads(before["dataset_sources.json"])
    assert [source["url"] for source in sources] == [
        f"http://{name}.blob.lab:10000/datasets" for name in dataset.ACCOUNTS
    ]
    assert all("sp=rl&" in source["sas"] for source in sources)


def test_tokens_follow_new_keys(tmp_path: pathlib.Path) -> None:
    blob_access.ensure(tmp_path, "http://{account}.x")
    before = (tmp_path / "dataset_sources.json").read_text()
    (tmp_path / "blob_keys.json").unlink()
    assert blob_access.ensure(tmp_path, "http://{account}.x")
    assert (tmp_path / "dataset_sources.json").read_text() != before


# inventories/lab/machines.py


def test_inventory_groups_the_machines() -> None:
    machines = _load(ROOT / "inventories" / "lab" / "machines.py")
    found = machines.inventory({"machines": {"blob": "10.0.0.10", "gpu-1": "10.0.0.11", "gpu-2": "10.0.0.12"}})
    assert found["gpu_nodes"] == {"hosts": ["gpu-1", "gpu-2"]}
    assert found["blob_servers"] == {"hosts": ["blob"]}
    assert found["_meta"]["hostvars"]["gpu-2"]["ansible_host"] == "10.0.0.12"
    assert "StrictHostKeyChecking=yes" in found["_meta"]["hostvars"]["gpu-2"]["ansible_ssh_common_args"]


def test_who_logs_in_is_root_or_becomes_root() -> None:
    machines = _load(ROOT / "inventories" / "lab" / "machines.py")
    lab = {"machines": {"gpu-1": "10.0.0.11"}}
    assert machines.inventory(lab)["_meta"]["hostvars"]["gpu-1"]["ansible_user"] == "root"
    variables = machines.inventory(lab, user="azureuser")["_meta"]["hostvars"]["gpu-1"]
    assert (variables["ansible_user"], variables["ansible_become"]) == ("azureuser", True)


@pytest.mark.parametrize(
    ("asked", "chosen"), [("", ["gpu-1", "gpu-2"]), ("gpu-2", ["gpu-2"]), ("gpu-2,gpu-1", ["gpu-2", "gpu-1"])]
)
def test_inventory_knows_the_nodes_of_a_scenario(asked: str, chosen: list[str]) -> None:
    machines = _load(ROOT / "inventories" / "lab" / "machines.py")
    lab = {"machines": {"blob": "10.0.0.10", "gpu-1": "10.0.0.11", "gpu-2": "10.0.0.12"}}
    assert machines.inventory(lab, asked)["scenario_nodes"] == {"hosts": chosen}
    assert machines.inventory({"machines": {}}, asked)["scenario_nodes"] == {"hosts": []}


@pytest.mark.parametrize("asked", ["gpu-3", "gpu-1,gpu-9", "blob"])
def test_a_node_that_the_lab_lacks_is_an_error(asked: str) -> None:
    machines = _load(ROOT / "inventories" / "lab" / "machines.py")
    with pytest.raises(SystemExit, match=f"LAB_SCENARIO_NODES is {asked}, but"):
        machines.inventory({"machines": {"blob": "10.0.0.10", "gpu-1": "10.0.0.11"}}, asked)


# summary.py

EXPECTED = {"files": 2, "bytes": 30, "raw_bytes": 90}
REPORT = {
    "verdict": "ok",
    "verified_files": 2,
    "total_files": 2,
    "total_raw_bytes": 30,
    "verified_bytes": 90,
    "rounds": [
        {
            "imbalance": 1.0002,
            "ranks": [
                {
                    "rank": 0,
                    "host": "gpu-1",
                    "files": 2,
                    "raw_bytes": 30,
                    "seconds": 2.0,
                    "gbps": 0.1,
                    "batches": 1,
                    "stolen_batches": 0,
                    "retried_batches": 0,
                }
            ],
        }
    ],
}


def test_summary_of_a_whole_dataset() -> None:
    text = "\n".join(summary.lines(REPORT, EXPECTED))
    assert "2 of 2 files verified (ok)" in text
    assert "max/ideal bytes per rank 1.0002" in text
    assert "WRONG" not in text
    assert summary.whole(REPORT, EXPECTED)


@pytest.mark.parametrize(
    "change",
    [{"verdict": "fail"}, {"verified_files": 1}, {"verified_bytes": 89}, {"total_files": 3}, {"total_raw_bytes": 31}],
)
def test_a_dataset_that_is_not_what_was_uploaded_is_not_whole(change: dict[str, t.Any]) -> None:
    assert not summary.whole({**REPORT, **change}, EXPECTED)
