"""Upload and stage again: what comes back is what was sent."""

from __future__ import annotations

import gzip
import pathlib
import random
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.catalogue import build_manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.upload import Upload, upload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_upload
from lab.blob.service import azcopy_path
from module_run import run_main

pytestmark = [pytest.mark.blob, pytest.mark.slow]


@pytest.fixture
def wanted(staging, tmp_path: pathlib.Path) -> t.Callable[..., Upload]:
    source = tmp_path / "source"
    numbers = random.Random(5)
    for number in range(6):
        path = source / "train" / f"f{number}.tfrecord"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(numbers.randbytes(numbers.randint(0, 20_000)) * 4)

    def make(**options: t.Any) -> Upload:
        return Upload(
            **{
                "source": str(source),
                "destination": staging.service.url(staging.container),
                "sas": staging.service.sas(),
                "compress": True,
                "work_path": str(tmp_path / "packed"),
                "processes": 2,
                "ingress_mbps": 0,
                "azcopy": azcopy_path(),
                "log_path": str(tmp_path / "log"),
                "identity": "msi",
                "identity_client_id": "",
                "timeout_s": 300,
                "stall_timeout_s": 120,
                **options,
            }
        )

    return make


def test_a_compressed_upload_is_staged_again_unchanged(staging, wanted) -> None:
    before = upload(wanted(), write=False)
    assert (before["changed"], before["files_copied"]) == (True, 6)
    assert upload(wanted(), write=True)["files_copied"] == 6
    assert upload(wanted(), write=True)["changed"] is False
    assert staging.service.headers(staging.container, "train/f1.tfrecord.gz")["content-encoding"] == "gzip"
    assert staging.stage()["verified"]["verdict"] == "ok"
    source = pathlib.Path(wanted().source)
    assert staging.files() == {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.tfrecord")}


def test_a_checkpoint_stays_within_the_account(staging, wanted) -> None:
    result = upload(wanted(compress=False, processes=8, ingress_mbps=20_000), write=True)
    assert result["cap_mbps"] == 2300
    assert result["files_copied"] == 6
    assert (
        staging.service.get(staging.container, "train/f2.tfrecord")
        == pathlib.Path(wanted().source, "train/f2.tfrecord").read_bytes()
    )


@pytest.mark.parametrize(("path", "kind"), [("nowhere", "not_found"), ("empty", "no_match")])
def test_nothing_to_upload_is_an_error(wanted, tmp_path: pathlib.Path, path: str, kind: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ClusterError) as caught:
        upload(wanted(source=str(tmp_path / path)), write=True)
    assert caught.value.kind == kind


def blobs_of(staging) -> dict[str, bytes]:
    """What lies in the container, by name."""
    url, sas = staging.service.url(staging.container), staging.service.sas()
    manifest = build_manifest([{"url": url, "prefix": "", "sas": sas}])
    return {blob.name: staging.service.get(staging.container, blob.name) for blob in manifest.blobs}


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_a_link_stops_the_upload_and_is_named(staging, wanted, tmp_path: pathlib.Path, compress: bool) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "source/optim").symlink_to(tmp_path / "real")
    for write in (False, True):
        with pytest.raises(ClusterError, match="symbolic links: optim") as caught:
            upload(wanted(compress=compress), write=write)
        assert caught.value.kind == "bad_input"
    with pytest.raises(ClusterError, match="is empty"):
        blobs_of(staging)


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_links_to_files_and_directories_are_followed(staging, wanted, tmp_path: pathlib.Path, compress: bool) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/state").write_bytes(b"state")
    (tmp_path / "source/optim").symlink_to(tmp_path / "real")
    (tmp_path / "source/latest").symlink_to("train/f1.tfrecord")
    options = {"compress": compress, "links": "follow"}
    assert upload(wanted(**options), write=True)["files_copied"] == 8
    assert upload(wanted(**options), write=True)["changed"] is False
    found = blobs_of(staging)
    suffix = ".gz" if compress else ""
    unpack = gzip.decompress if compress else bytes
    assert unpack(found[f"optim/state{suffix}"]) == b"state"
    assert unpack(found[f"latest{suffix}"]) == (tmp_path / "source/train/f1.tfrecord").read_bytes()


def test_links_are_left_out_and_named(staging, wanted, tmp_path: pathlib.Path) -> None:
    (tmp_path / "source/optim").symlink_to("../real")
    result = upload(wanted(compress=False, links="skip"), write=True)
    assert (result["files_copied"], result["left_out"]) == (6, ["optim"])
    assert len(blobs_of(staging)) == 6


def test_a_staged_tree_can_be_uploaded_and_staged_again(staging, wanted, tmp_path: pathlib.Path) -> None:
    staging.put("train/a.bin", b"content", compress=False)
    staging.stage()
    result = upload(wanted(source=str(staging.destination / "data"), compress=False), write=True)
    assert (result["files"], result["left_out"]) == (1, [".staging"])
    assert list(blobs_of(staging)) == ["train/a.bin"]
    assert staging.plan()["missing_files"] == 0


def test_the_prefix_is_taken_as_it_is(staging, wanted) -> None:
    service = staging.service
    options = {name: getattr(wanted(compress=False), name) for name in ("source", "sas", "azcopy", "log_path")}
    url = service.url(staging.container)
    result = run_main(dataset_upload.main, {**options, "url": url, "prefix": "/run%20A/ü #1/"})
    assert result["files_copied"] == 6, result
    assert {name.rpartition("/")[0] for name in blobs_of(staging)} == {"run%20A/ü #1/train"}
