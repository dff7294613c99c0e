# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a blob is still the version that was listed, asked of a server that may be busy, refuse, or hang up."""

from __future__ import annotations

import contextlib
import http.server
import threading
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob import patience
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.version import Source, Versions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

SECRET = "s3cr3t-signature"
SAS = f"sv=2021-12-02&sp=rl&se=2099-01-01T00:00:00Z&sig={SECRET}"
BLOB = Blob("a b/ü%.bin", 8, etag="0x8DE1")
#: Status and headers; None hangs up without an answer.
Answer = t.Optional[tuple[int, dict[str, str]]]
SAME: Answer = (200, {"ETag": '"0x8DE1"'})


class Endpoint(http.server.ThreadingHTTPServer):
    """Gives the answers one after the other, the last one for ever, and notes what it was asked."""

    daemon_threads = True

    def __init__(self, *answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/account/data/train"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_HEAD(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer[0])
        for name, value in {"Content-Length": "0", **answer[1]}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@contextlib.contextmanager
def serving(*answers: Answer) -> t.Iterator[Endpoint]:
    with Endpoint(*answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST_PAUSE_S", 0.01)


def confirm(server: Endpoint, blob: Blob = BLOB, **options: t.Any) -> None:
    with contextlib.closing(Versions([Source(server.url, options.pop("sas", SAS), **options)])) as versions:
        versions.confirm(blob)


@pytest.mark.parametrize("listed", ["0x8DE1", '"0x8DE1"'])
def test_the_listed_version_is_confirmed_by_one_request(listed: str) -> None:
    with serving(SAME) as server:
        confirm(server, BLOB._replace(etag=listed))
    assert server.asked == [(f"/account/data/train/a%20b/%C3%BC%25.bin?{SAS}", "")]


@pytest.mark.parametrize(
    ("answer", "fragment"),
    [
        ((200, {"ETag": '"0x8DE2"'}), "was replaced"),
        ((404, {"x-ms-error-code": "BlobNotFound"}), "was deleted"),
    ],
)
def test_another_version_and_none_are_changes_at_the_source(answer: Answer, fragment: str) -> None:
    with serving(answer) as server, pytest.raises(ClusterError, match=f"`a b/ü%.bin` {fragment}") as caught:
        confirm(server)
    assert caught.value.kind == "changed_at_source"
    assert len(server.asked) == 1


@pytest.mark.slow
def test_what_passes_is_waited_for() -> None:
    busy: Answer = (503, {"x-ms-error-code": "ServerBusy", "Retry-After": "0"})
    with serving(*[busy] * 6, None, (500, {}), SAME) as server:
        confirm(server)
    assert len(server.asked) == 9, "a busy server uses up no retries"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, "unreachable"),
        ((500, {}), "unreachable"),
        ((403, {"x-ms-error-code": "AuthenticationFailed"}), "auth_failed"),
        ((404, {"x-ms-error-code": "ContainerNotFound"}), "container_missing"),
    ],
)
def test_what_cannot_be_told_is_no_confirmation_and_names_no_secret(answer: Answer, kind: str) -> None:
    with serving(answer) as server, pytest.raises(ClusterError) as caught:
        confirm(server)
    assert caught.value.kind == kind
    assert SECRET not in str(caught.value)


def test_who_is_told_to_stop_does_not_wait() -> None:
    with serving((503, {"Retry-After": "60"})) as server, pytest.raises(ClusterError, match="503"):
        Versions([Source(server.url, SAS)], lambda: True).confirm(BLOB)
    assert len(server.asked) == 1


@pytest.mark.slow
def test_a_token_that_has_ended_is_renewed_once() -> None:
    given = ["old"]

    def login(refused: str) -> str:
        given[:] = ["new"] if refused == "old" else given
        return given[0]

    with serving((401, {}), SAME) as server:
        confirm(server, sas="", login=login)
    assert server.asked == [("/account/data/train/a%20b/%C3%BC%25.bin", f"Bearer {token}") for token in ("old", "new")]
    given[:] = ["old"]
    with serving((401, {})) as server, pytest.raises(ClusterError) as caught:
        confirm(server, sas="", login=login)
    assert caught.value.kind == "auth_failed"
    assert len(server.asked) == 2


def test_threads_do_not_share_a_connection() -> None:
    with serving(SAME) as server, contextlib.closing(Versions([Source(server.url, SAS)])) as versions:
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                for _time in range(20):
                    versions.confirm(BLOB)
            except BaseException as exc:
                failed.append(exc)

        threads = [threading.Thread(target=ask) for _number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (failed, len(server.asked)) == ([], 80)
