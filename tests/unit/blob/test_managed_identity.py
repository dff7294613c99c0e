# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens from a metadata service on loopback: kept, renewed, asked for again, and refused with the reason."""

from __future__ import annotations

import http.server
import socket
import threading
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import find_cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob import identity as blob_identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.identity import ManagedIdentity, check_identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.refusal import refusal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.blob.imds import Imds, ImdsServer

CLIENT = "11111111-1111-1111-1111-111111111111"


class Node(t.NamedTuple):
    imds: Imds
    url: str
    pauses: list[float]

    def identity(self, client_id: str = "") -> ManagedIdentity:
        return ManagedIdentity(client_id, endpoint=self.url, pause=self.pauses.append)


@pytest.fixture
def node() -> t.Iterator[Node]:
    imds = Imds()
    with ImdsServer(imds) as server:
        yield Node(imds, server.url, [])


def failure(identity: ManagedIdentity) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        identity.token()
    return caught.value


def test_a_token_is_asked_for_once_as_documented(node: Node) -> None:
    identity = node.identity()
    assert [identity.token() for _again in range(3)] == node.imds.tokens * 3
    assert [call.query for call in node.imds.calls] == [
        {"api-version": "2018-02-01", "resource": "https://storage.azure.com/"}
    ]


def test_a_user_assigned_identity_is_named_by_its_client_id(node: Node) -> None:
    node.imds.user_assigned = [CLIENT]
    node.identity(CLIENT).token()
    assert node.imds.calls[0].query["client_id"] == CLIENT


def test_threads_share_one_request(node: Node) -> None:
    node.imds.silent_s = 0.2
    identity = node.identity()
    threads = [threading.Thread(target=identity.token) for _number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(node.imds.calls) == 1


@pytest.mark.parametrize(
    ("lifetime_s", "asked_after_s", "calls"), [(3600, 3200, 1), (3600, 3350, 2), (100, 40, 1), (100, 60, 2)]
)
def test_a_token_is_renewed_before_it_ends(
    node: Node, monkeypatch: pytest.MonkeyPatch, lifetime_s: float, asked_after_s: float, calls: int
) -> None:
    node.imds.lifetime_s = lifetime_s
    identity = node.identity()
    identity.token()
    now = time.time()
    monkeypatch.setattr(blob_identity.time, "time", lambda: now + asked_after_s)
    identity.token()
    assert len(node.imds.calls) == calls


def test_a_token_that_cannot_be_renewed_yet_is_used_to_its_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = node.identity()
    first = identity.token()
    now = time.time()
    node.imds.failures = [403] * 2
    monkeypatch.setattr(blob_identity.time, "time", lambda: now + 3400)
    assert identity.token() == identity.token() == first
    assert len(node.imds.calls) == 2  # not asked again at once
    monkeypatch.setattr(blob_identity.time, "time", lambda: now + 3700)
    with pytest.raises(ClusterError, match="HTTP 403"):
        identity.token()


def test_a_refused_token_is_not_given_again_unasked(node: Node) -> None:
    identity = node.identity()
    first = identity.token()
    second = identity.token(refused=first)
    assert first != second
    assert identity.token(refused=first) == second
    assert len(node.imds.calls) == 2


def test_passing_errors_are_waited_out(node: Node) -> None:
    node.imds.failures = [404, 429, 500]
    assert node.identity().token() == node.imds.tokens[0]
    assert node.pauses == [1, 2, 4]


def test_an_update_of_the_service_is_waited_out_for_70_s(node: Node) -> None:
    node.imds.failures = [410] * 7
    node.identity().token()
    assert node.pauses == [10] * 7
    node.imds.failures = [410] * 8
    error = failure(node.identity())
    assert (error.kind, "HTTP 410 gone" in error.message) == ("unreachable", True)


@pytest.mark.parametrize(
    ("status", "kind", "calls"), [(429, "unreachable", 4), (404, "auth_failed", 4), (403, "auth_failed", 1)]
)
def test_errors_that_stay(node: Node, status: int, kind: str, calls: int) -> None:
    node.imds.failures = [status] * 10
    error = failure(node.identity())
    assert error.kind == kind
    assert f"HTTP {status}" in error.message
    assert len(node.imds.calls) == calls


@pytest.mark.parametrize(
    ("user_assigned", "client_id", "message", "remedy"),
    [
        (
            [],
            "",
            "has no managed identity (HTTP 400",
            "Assign a managed identity with the role 'Storage Blob Data Reader'",
        ),
        ([CLIENT], CLIENT.replace("1", "2"), "22222222-2222", "correct `identity_client_id`"),
        ([CLIENT, "other"], "", "several user-assigned identities", "in `identity_client_id`"),
    ],
)
def test_a_machine_without_the_identity(
    node: Node, user_assigned: list[str], client_id: str, message: str, remedy: str
) -> None:
    node.imds.system_assigned = False
    node.imds.user_assigned = user_assigned
    error = failure(node.identity(client_id))
    assert error.kind == "auth_failed"
    assert message in error.message
    assert remedy in error.remedy
    assert (len(node.imds.calls), node.pauses) == (1, [])


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"access_token": 7}', b'{"access_token": "se\\r\\ncret"}', b'{"access_token": "secret\xff"}'],
)
def test_an_answer_without_a_token_is_not_repeated(body: bytes) -> None:
    class Odd(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        error = failure(ManagedIdentity(endpoint=f"http://127.0.0.1:{server.server_address[1]}/token"))
        server.shutdown()
    assert (error.kind, "holds no token" in error.message) == ("auth_failed", True)
    assert "secret" not in str(error)


def test_nobody_there_is_said_at_the_second_try() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening: connections are refused
        pauses: list[float] = []
        error = failure(
            ManagedIdentity(endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}/token", pause=pauses.append)
        )
    assert (error.kind, pauses) == ("auth_failed", [1])
    assert "No instance metadata service answered at 169.254.169.254 (Connection refused)" in error.message
    assert "give a SAS" in error.remedy


@pytest.mark.parametrize("name", ["IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZCOPY_MSI_RESOURCE_STRING"])
def test_where_azcopy_asks_somebody_else_nothing_is_checked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked: list[str] = []
    monkeypatch.setattr(blob_identity, "ManagedIdentity", lambda client: asked.append(client) or Imds)
    check_identity("me", {name: "something"})
    assert not asked


@pytest.mark.parametrize("code", ["AuthorizationPermissionMismatch", "AuthorizationFailure"])
def test_a_missing_role_is_named(code: str) -> None:
    """Azure's documented answers to an identity that may not, for the listing and in AzCopy's own words."""
    listing = refusal("https://a.blob.core.windows.net/c", 403, f"<Error><Code>{code}</Code></Error>".encode())
    azcopy = find_cause(
        f"RESPONSE 403: 403 This request is not authorized to perform this operation.\nERROR CODE: {code}"
    )
    for error in (listing, azcopy):
        assert error is not None
        assert error.kind == "auth_failed"
        assert "'Storage Blob Data Reader'" in error.remedy
