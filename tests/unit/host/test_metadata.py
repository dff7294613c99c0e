# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cloud a node runs in, and what its metadata service says; a real HTTP server answers on loopback."""

from __future__ import annotations

import http.server
import threading
import time
import typing as t
from contextlib import contextmanager

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import metadata

AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"


@pytest.mark.parametrize(
    ("vendor", "product", "tag", "cloud"),
    [
        ("Microsoft Corporation", "Virtual Machine", AZURE_TAG, "azure"),
        ("Microsoft Corporation", "Virtual Machine", "", "azure"),
        # Hyper-V on somebody's own server.
        ("Microsoft Corporation", "Virtual Machine", "4711-0815", ""),
        ("Amazon EC2", "p4d.24xlarge", "Amazon EC2", "aws"),
        ("Google", "Google Compute Engine", "", "gcp"),
        ("NVIDIA", "DGXA100 920-23687-2531-001", "", ""),
        ("", "", "", ""),
    ],
)
def test_the_cloud_is_known_from_firmware_names(vendor: str, product: str, tag: str, cloud: str) -> None:
    assert metadata.detect_cloud({"sys_vendor": vendor, "product_name": product, "chassis_asset_tag": tag}) == cloud


@pytest.mark.parametrize(
    ("vendor", "product", "sku"),
    [
        ("Amazon EC2", "p4d.24xlarge", "p4d.24xlarge"),
        ("Amazon EC2", "u-6tb1.metal", "u-6tb1.metal"),
        ("Amazon EC2", "HVM domU", None),
        ("QEMU", "p4d.24xlarge", None),
    ],
)
def test_nitro_names_the_machine_type(vendor: str, product: str, sku: str | None) -> None:
    assert metadata.sku_from_dmi({"sys_vendor": vendor, "product_name": product}) == sku


Answer = tuple[int, str]
Log = list[tuple[str, str, dict[str, str]]]


@contextmanager
def metadata_service(answers: dict[str, Answer], delay_s: float = 0) -> t.Iterator[tuple[tuple[str, int], Log]]:
    requests: Log = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            requests.append((self.command, self.path, dict(self.headers)))
            time.sleep(delay_s)
            status, text = answers.get(self.path, (404, ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = _answer  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request: t.Any, client_address: t.Any) -> None:
            """A client that gave up is what one of the tests wants."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield ("127.0.0.1", server.server_address[1]), requests
    finally:
        server.shutdown()
        server.server_close()


AZURE_PATH = "/metadata/instance?api-version=2021-02-01"


def test_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy of the environment must not be used for a link-local address.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with metadata_service({AZURE_PATH: (200, '{"compute": {"vmSize": "Standard_ND96asr_v4"}}')}) as (address, requests):
        assert metadata.fetch_sku("azure", 120, address) == "Standard_ND96asr_v4"
    assert requests[0][2]["Metadata"] == "true"


def test_google_names_the_machine_type_by_its_path() -> None:
    path = "/computeMetadata/v1/instance/machine-type"
    answer = (200, "projects/123456789012/machineTypes/a3-megagpu-8g")
    with metadata_service({path: answer}) as (address, requests):
        assert metadata.fetch_sku("gcp", 120, address) == "a3-megagpu-8g"
    assert requests[0][2]["Metadata-Flavor"] == "Google"


def test_aws_uses_a_session_token() -> None:
    answers = {"/latest/api/token": (200, "AQAE-token"), "/latest/meta-data/instance-type": (200, "p4d.24xlarge\n")}
    with metadata_service(answers) as (address, requests):
        assert metadata.fetch_sku("aws", 120, address) == "p4d.24xlarge"
    assert [request[0] for request in requests] == ["PUT", "GET"]
    headers = {key.lower(): value for key, value in requests[1][2].items()}
    assert headers["x-aws-ec2-metadata-token"] == "AQAE-token"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, ""), "answered 404"),
        ((500, "oops"), "answered 500"),
        ((200, "<html>"), "no compute.vmSize"),
        ((200, "{}"), "no compute.vmSize"),
        ((200, "[]"), "no compute.vmSize"),
        ((200, '{"compute": {"vmSize": ""}}'), "empty machine type"),
    ],
)
def test_wrong_answers_are_named(answer: Answer, words: str) -> None:
    with metadata_service({AZURE_PATH: answer}) as (address, _requests), pytest.raises(ClusterError, match=words):
        metadata.fetch_sku("azure", 120, address)


def test_nobody_there() -> None:
    with metadata_service({}) as (address, _requests):
        pass
    with pytest.raises(ClusterError, match="did not answer") as caught:
        metadata.fetch_sku("azure", 120, address)
    assert caught.value.kind == "metadata_unavailable"


def test_a_slow_service_does_not_hold_the_play() -> None:
    with metadata_service({}, delay_s=600) as (address, _requests):
        started = time.monotonic()
        with pytest.raises(ClusterError, match="did not answer"):
            metadata.fetch_sku("azure", 0.2, address)
        assert time.monotonic() - started < 120
