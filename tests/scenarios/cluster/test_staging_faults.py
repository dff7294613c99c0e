"""Faults while a dataset is staged on the lab: each ends whole or with a clear error, never with wrong data."""

from __future__ import annotations

import gzip
import hashlib
import pathlib
import time
import typing as t
import urllib.parse

import pytest
from lab.bandwidth import host_device, shape

if t.TYPE_CHECKING:
    from conftest import Dataset, Lab


def md5s(content: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.md5(data).hexdigest() for name, data in content.items()}


def assert_whole(dataset: Dataset, node: str = "gpu-1") -> None:
    report = dataset.report(node)
    assert (report["verdict"], report["verified_files"]) == ("ok", len(dataset.content)), report
    assert dataset.checksums(node) == md5s(dataset.content)


def limit(lab: Lab, mbit: int) -> None:
    """Limit what every node receives, or lift the limit with 0."""
    for node in lab.nodes:
        shape(["tc"], host_device(lab.container(node)), mbit)


@pytest.fixture
def slow_network(lab: Lab) -> t.Iterator[None]:
    """So slow that there is time to break something."""
    limit(lab, 10)
    yield
    limit(lab, 0)


def kill(lab: Lab, *pattern: str) -> None:
    """Kill what ``pkill`` finds by these arguments on every node. A fault that hits nobody proves nothing.

    Between two batches no AzCopy runs, on all nodes at the same time where their first batches are equal.
    """
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = [lab.run(node, "pkill", "--echo", "-KILL", *pattern, check=False) for node in lab.nodes]
        if "killed" in "".join(found):
            return
    raise AssertionError(f"no node had a process to kill: {pattern}")


def test_azcopy_killed_everywhere_and_blob_service_restarted(lab: Lab, dataset: Dataset, slow_network: None) -> None:
    dataset.fill(300, bytes_each=60_000)
    play = lab.start_playbook("staging", dataset.variables())
    kill(lab, "-f", "azcopy copy")  # the first that is seen: on a quick machine the copy takes ten seconds
    dataset.wait_for_files(30, play)
    lab.run("blob", "systemctl", "kill", "--signal=KILL", "azurite")
    time.sleep(3)
    assert dataset.done_files() < len(dataset.content), "the copy had ended before the service did"
    lab.run("blob", "systemctl", "restart", "azurite")
    limit(lab, 0)
    output, _none = play.communicate(timeout=300)
    assert play.returncode == 0, output[-3000:]
    assert_whole(dataset)


def test_interrupted_with_ctrl_c_and_run_again(lab: Lab, dataset: Dataset, slow_network: None) -> None:
    dataset.fill(200, bytes_each=60_000)
    play = lab.start_playbook("staging", dataset.variables())
    dataset.wait_for_files(20, play)
    lab.interrupt(play)
    limit(lab, 0)
    again = dataset.stage()
    assert again.rc == 0, again.output[-3000:]
    assert_whole(dataset)


def test_workers_killed_everywhere_and_run_again(lab: Lab, dataset: Dataset, slow_network: None) -> None:
    """As after a power cut of all nodes: no worker ends in order, AzCopy dies with it."""
    dataset.fill(400, bytes_each=60_000)  # there has to be work left when the play has ended
    play = lab.start_playbook("staging", dataset.variables())
    dataset.wait_for_files(20, play)
    lab.interrupt(play)
    kill(lab, "-x", "dataset_stage")
    limit(lab, 0)
    for node in lab.nodes:
        assert not lab.run(node, "pgrep", "-x", "azcopy", check=False), "AzCopy outlived its supervisor"
    again = dataset.stage()
    assert again.rc == 0, again.output[-3000:]
    assert_whole(dataset)
    left = "find /mnt/scratch /mnt/resource_nvme -name .azDownload-* -o -name *.part"
    assert not any(lab.run(node, *left.split()) for node in lab.nodes)


def test_a_refusal_reaches_the_recap_without_the_signature(dataset: Dataset) -> None:
    """One is enough here: tests/unit/dataset/test_refusals.py has every other, and an endpoint that does not answer."""
    dataset.fill(4)
    sas = dataset.blobs.sas("rl").replace("sig=", "sig=AAAA")
    source = {**dataset.variables()["dataset_staging_sources"][0], "sas": sas}
    result = dataset.stage(dataset_staging_sources=[source])
    assert result.rc == 2
    assert "error_kind: auth_failed" in result.output
    assert sas.split("sig=")[1].split("&")[0] not in result.output
    assert dataset.done_files() == 0


def test_a_damaged_blob_is_named_and_the_rest_is_whole_whatever_its_names(dataset: Dataset) -> None:
    for name in ("semi;colon.gz", "bracket[0-9].gz", "two words.gz", "ünïcode/名前.gz", "quote'\".gz", "star*?.gz"):
        dataset.put(name, name.encode() * 500)
    dataset.blobs.put(dataset.name, "bad.tfrecord.gz", gzip.compress(b"x" * 10_000)[:-6], encoding="gzip")
    result = dataset.stage()
    assert result.rc == 2
    assert "bad.tfrecord" in result.output
    assert dataset.checksums() == md5s(dataset.content)


def test_full_destination(lab: Lab, dataset: Dataset) -> None:
    """A node-local share on a file system that is too small for it."""
    for number in range(40):
        dataset.put(f"f_{number:04d}.tfrecord.gz", hashlib.sha256(bytes([number])).digest() * 50_000)
    small = "/mnt/small"
    for node in lab.nodes:
        lab.run(node, "mkdir", "-p", small)
        lab.run(node, "mount", "-t", "tmpfs", "-o", "size=8m", "none", small)
    try:
        options = {
            "dataset_staging_scope": "local",
            "dataset_staging_mount_point": small,
            "dataset_staging_destination": f"{small}/data",
        }
        result = dataset.stage(**options)
        assert result.rc == 2
        assert "error_kind: disk_full" in result.output
        assert "Free space" in result.output
        names = lab.run("gpu-1", "find", f"{small}/data", "-name", "*.tfrecord").split()
        assert names, "nothing came, so nothing could be wrong"
        for path in names:
            digest = lab.run("gpu-1", "md5sum", path).split()[0]
            assert digest == md5s(dataset.content)[path.rpartition("/")[2]], "wrong data at a final name"
    finally:
        for node in lab.nodes:
            lab.run(node, "umount", small)
            lab.run(node, "rmdir", small)


def test_nodes_receive_no_more_bytes_per_second_than_their_share_of_the_account(lab: Lab, dataset: Dataset) -> None:
    """By the counter of a node's interface: no quicker test has several nodes that share an account."""
    mbps_each = 8
    dataset.fill(32, bytes_each=500_000)
    dataset.destination = f"/mnt/resource_nvme/{dataset.name}"
    # Shares of their own, so that nothing but blobs arrives.
    options = {"dataset_staging_scope": "local", "dataset_staging_mount_point": ""}
    options["dataset_staging_egress_mbps"] = mbps_each * len(lab.nodes)
    play = lab.start_playbook("staging", dataset.variables(**options))
    samples = [received(lab)]
    while play.poll() is None:
        time.sleep(0.2)
        samples.append(received(lab))
    output = play.communicate(timeout=10)[0]
    assert play.returncode == 0, output[-3000:]
    first, last = samples[0][1], samples[-1][1]
    share = sum(map(len, dataset.content.values())) / len(lab.nodes)
    assert last - first >= share / 2, "the node received too little to tell how quickly"
    # Without what comes before and after the copy.
    middle = [(when, count) for when, count in samples if 0.2 <= (count - first) / (last - first) <= 0.8]
    assert len(middle) > 1, "all came at once"
    (begin, low), (end, high) = middle[0], middle[-1]
    assert (high - low) / (end - begin) <= 1.25 * mbps_each * 1e6 / 8


def received(lab: Lab, node: str = "gpu-1") -> tuple[float, int]:
    """When, in seconds, and how many bytes a node had received."""
    count = int(lab.run(node, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))
    return time.monotonic(), count


def test_fewer_ranks_stage_and_remove_needs_consent_and_takes_only_that(lab: Lab, dataset: Dataset) -> None:
    dataset.fill(5)
    limited = dataset.stage("--limit", "gpu-1,gpu-2")
    assert limited.rc == 0, limited.output[-3000:]
    assert_whole(dataset)
    assert {rank["host"] for rank in dataset.report()["rounds"][0]["ranks"]} == {"gpu-1", "gpu-2"}

    lab.run("gpu-1", "sh", "-c", f"echo mine >{dataset.destination}/notes.txt")
    options = {**dataset.variables(), "gpu_cluster_scratch": "none", "gpu_cluster_mpi": False}
    refused = lab.playbook("teardown", options, "--tags", "dataset_staging_remove")
    assert refused.rc == 2
    assert "dataset_staging_allow_data_loss" in refused.output
    assert len(dataset.checksums()) == 6
    options["dataset_staging_allow_data_loss"] = True
    # AzCopy stays: other tests need it.
    options["dataset_staging_azcopy_source"] = "preinstalled"
    assert lab.playbook("teardown", options, "--tags", "dataset_staging_remove").rc == 0
    assert list(dataset.checksums()) == ["notes.txt"]


def test_no_sas_is_left_anywhere(lab: Lab, dataset: Dataset, tmp_path: pathlib.Path) -> None:
    """A run at the highest verbosity, with a fact cache, whose every trace is searched for the signature."""
    dataset.fill(20)
    variables = dataset.variables()
    signature = variables["dataset_staging_sources"][0]["sas"].split("sig=")[1].split("&")[0]
    result = lab.playbook("staging", variables, "-vvvv", "--diff")
    assert result.rc == 0, "the run that was to be searched broke off"  # its output may hold what must not be shown
    output = result.output
    spellings = {signature, urllib.parse.unquote(signature)}
    assert not [word for word in spellings if word in output]
    places = f"/var/log /root /tmp /var/tmp /run /etc /mnt/resource_nvme/landing {dataset.destination}"
    words = " ".join(f"-e '{word}'" for word in spellings)
    script = f"grep -rlsF {words} {places}; journalctl | grep -cF {words} || true"
    for node in lab.nodes:
        found = lab.run(node, "sh", "-c", script)
        assert found.split() == ["0"], f"{node}: {found}"


@pytest.fixture
def spare_volume(lab: Lab) -> t.Iterator[str]:
    """A volume with two copies of every file: the loss of one node loses nothing."""
    options = {"glusterfs_volume": "spare", "glusterfs_replica": 2, "glusterfs_mount_point": "/mnt/spare"}
    made = lab.playbook("scratch", options)
    assert made.rc == 0, made.output[-3000:]
    yield "/mnt/spare"
    mended = lab.playbook("scratch", options)  # the node that was stopped mounts it again
    assert mended.rc == 0, mended.output[-3000:]
    gone = lab.playbook("teardown", {**options, "glusterfs_allow_data_loss": True}, "--tags", "glusterfs_remove")
    assert gone.rc == 0, gone.output[-3000:]


def test_node_stopped_in_the_middle(lab: Lab, dataset: Dataset, spare_volume: str, slow_network: None) -> None:
    """The others finish its share, and the dataset is whole; after it is back, nothing is left to do."""
    dataset.fill(200, bytes_each=60_000)
    dataset.destination = f"{spare_volume}/{dataset.name}"
    dataset.options["dataset_staging_mount_point"] = spare_volume
    play = lab.start_playbook("staging", dataset.variables())
    dataset.wait_for_files(20, play)
    lab.podman("kill", lab.container("gpu-3"))
    try:
        output, _none = play.communicate(timeout=400)
        assert play.returncode == 4, f"one unreachable node, nothing else: {output[-3000:]}"
        assert_whole(dataset)
        assert "silent: gpu-3" in output
    finally:
        lab.podman("start", lab.container("gpu-3"))
        limit(lab, 0)
    lab.wait_for_ssh("gpu-3")
    mended = lab.playbook("scratch", {})  # its mount of the other volume is gone, too
    assert mended.rc == 0, mended.output[-3000:]
