"""Upload and stage again: what comes back is what was sent."""

from __future__ import annotations

import pathlib
import random
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.upload import Upload, upload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.blob.service import azcopy_path

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
