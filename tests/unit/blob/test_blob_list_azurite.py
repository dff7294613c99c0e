# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listing against Azurite, whose pages somebody else wrote."""

from __future__ import annotations

import base64
import hashlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.catalogue import build_manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.blob.listed import list_blobs
from lab.blob.service import Azurite, ToolMissingError, azurite

pytestmark = pytest.mark.blob

CONTENT = {
    "train/a.gz": (b"one", "gzip", True),
    "train/b;c [0-3].gz": (b"two!", "", True),
    "train/d&e<f>'g\".bin": (b"", "", True),
    "train/ünï/日本.bin": (b"x" * 70, "", False),
    "train/100%41+.bin": (b"y", "", True),
    "val/x": (b"z", "", True),
}


@pytest.fixture(scope="module")
def service() -> t.Iterator[Azurite]:
    try:
        with azurite() as server:
            server.create_container("data")
            for name, (body, encoding, md5) in CONTENT.items():
                server.put("data", name, body, encoding=encoding, md5=md5)
            yield server
    except ToolMissingError as exc:
        pytest.skip(str(exc))


@pytest.mark.parametrize("page_size", [1, 2, 5000])
def test_names_and_properties(service: Azurite, page_size: int) -> None:
    blobs = list(list_blobs(service.url("data"), sas=service.sas(), page_size=page_size))
    assert {blob.name: (blob.size, blob.encoding) for blob in blobs} == {
        name: (len(body), encoding) for name, (body, encoding, _md5) in CONTENT.items()
    }
    for blob in blobs:
        body, _encoding, has_md5 = CONTENT[blob.name]
        if has_md5:
            assert blob.md5 == base64.b64encode(hashlib.md5(body).digest()).decode()
        assert blob.etag.strip('"') == service.headers("data", blob.name)["etag"].strip('"')


def test_a_prefix_and_its_directories(service: Azurite) -> None:
    manifest = build_manifest([{"url": service.url("data"), "prefix": "train", "sas": service.sas()}], page_size=2)
    assert [blob.name for blob in manifest.blobs] == sorted(
        name.partition("/")[2] for name in CONTENT if name.startswith("train/")
    )


@pytest.mark.parametrize(
    ("container", "options", "kind"),
    [
        ("data", {"expires_in_s": -60}, "sas_expired"),
        ("data", {"permissions": "r"}, "auth_failed"),
        ("nowhere", {}, "container_missing"),
    ],
)
def test_refusals(service: Azurite, container: str, options: dict[str, t.Any], kind: str) -> None:
    sas = service.sas(**options)
    with pytest.raises(ClusterError) as caught:
        list(list_blobs(service.url(container), sas=sas))
    assert caught.value.kind == kind
    assert sas.rpartition("sig=")[2] not in str(caught.value)


def test_a_wrong_signature(service: Azurite) -> None:
    rest, _sig, _signature = service.sas().rpartition("sig=")
    with pytest.raises(ClusterError) as caught:
        list(list_blobs(service.url("data"), sas=f"{rest}sig={'A' * 43}%3D"))
    assert caught.value.kind == "auth_failed"
