# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether a blob is still the version that was listed: its ETag, which every write to a blob changes.

Who asks after all bytes are here, and finds the listed ETag, has the bytes of that version, also where it has no MD5 to compare.
The service itself stores an MD5 of what is uploaded in one request ("Put Blob", learn.microsoft.com), so those without one are
large, and one request more for each is little.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import typing as t
import urllib.parse
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.connection import open_connection
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.patience import (
    BUSY,
    PASSING,
    Patience,
    retry_after_s,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.refusal import refusal, untrusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import BlobUrl, clean_sas, parse_blob_url
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# Bearer tokens need 2017-11-09 or later; every service and emulator that is met knows this one.
_API_VERSION = "2021-12-02"
_TIMEOUT_S = 15.0
_RETRIES = 4
_DEADLINE_S = 60.0
_LIST_AGAIN = "Run again to list the source anew and to copy it as it is now."


class Source(t.NamedTuple):
    """A directory of a container, and how to get in: with a SAS, else with ``login``, which gives a bearer token."""

    url: str
    sas: str = ""
    login: t.Callable[[str], str] | None = None


class Versions:
    """Asks for the present versions of blobs. May be shared by threads, each of which keeps connections of its own."""

    def __init__(self, sources: t.Sequence[Source], should_stop: t.Callable[[], bool] = lambda: False) -> None:
        self._sources = [(parse_blob_url(source.url), clean_sas(source.sas), source.login) for source in sources]
        self._should_stop = should_stop
        self._local = threading.local()
        self._opened: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    def confirm(self, blob: Blob) -> None:
        """Raise ClusterError unless the blob is what was listed.

        ``changed_at_source`` where it was replaced or deleted; else why that cannot be told: ``unreachable``, or as for a listing.
        """
        directory, sas, login = self._sources[blob.source]
        place = directory.container_url
        patience = Patience(_RETRIES, _DEADLINE_S)
        logged_in_again = False
        while True:
            answer = _Answer()
            try:
                answer = self._head(blob)
                if answer.status == 200:
                    _compare(blob, answer.etag)
                    return
                if answer.status == 404 and answer.code in ("", "BlobNotFound"):
                    raise _gone(blob)
                failure = refusal(place, answer.status, f"<Code>{answer.code}</Code>".encode(), sas)
                if answer.status in (401, 403) and login is not None and not sas and not logged_in_again:
                    # By the service's clock the token has ended, whatever ours says.
                    logged_in_again = True
                    if login(answer.token) != answer.token:
                        continue
                if answer.status not in PASSING:
                    raise failure
            except ssl.SSLCertVerificationError as exc:
                raise untrusted(place, exc) from None
            except (OSError, http.client.HTTPException) as exc:
                failure = _unreachable(place, exc)
            self._hang_up(blob.source)
            pause_s = patience.pause_s(busy=answer.status in BUSY, asked_s=answer.asked_s)
            if pause_s is None or self._should_stop():
                raise failure
            time.sleep(pause_s)

    def _head(self, blob: Blob) -> _Answer:
        directory, sas, login = self._sources[blob.source]
        url = replace(directory, path=f"{directory.path}/{blob.name}".lstrip("/"))
        target = str(url).split(url.host, 1)[1]
        headers = {"x-ms-version": _API_VERSION}
        token = ""
        if login is not None and not sas:
            token = login("")
            headers["Authorization"] = f"Bearer {token}"
        connection = self._connection(blob.source, directory)
        connection.request("HEAD", f"{target}?{sas}" if sas else target, headers=headers)
        response = connection.getresponse()
        response.read()
        return _Answer(
            response.status,
            response.getheader("ETag") or "",
            response.getheader("x-ms-error-code") or "",
            retry_after_s(response.getheader("Retry-After"), time.time()),
            token,
        )

    def _connection(self, source: int, directory: BlobUrl) -> http.client.HTTPConnection:
        mine: dict[int, http.client.HTTPConnection] = self._local.__dict__.setdefault("connections", {})
        if source not in mine:
            mine[source] = open_connection(urllib.parse.urlsplit(directory.container_url), _TIMEOUT_S)
            self._opened.append(mine[source])
        return mine[source]

    def _hang_up(self, source: int) -> None:
        connection = self._local.__dict__.get("connections", {}).get(source)
        if connection is not None:
            connection.close()  # the next request opens it again


class _Answer(t.NamedTuple):
    """What a service says of one blob. ``asked_s`` is how long it asks us to wait, ``token`` what the request was sent with."""

    status: int = 0
    etag: str = ""
    code: str = ""
    asked_s: float = 0.0
    token: str = ""


def _compare(blob: Blob, etag: str) -> None:
    # A listing gives it without the quotes that a header has (RFC 9110, section 8.8.3).
    if etag.strip('"') != blob.etag.strip('"'):
        raise ClusterError(
            "changed_at_source", f"`{blob.name}` was replaced at the source since it was listed.", _LIST_AGAIN
        )


def _gone(blob: Blob) -> ClusterError:
    return ClusterError(
        "changed_at_source", f"`{blob.name}` was deleted at the source since it was listed.", _LIST_AGAIN
    )


def _unreachable(place: str, exc: Exception) -> ClusterError:
    why = "no answer in time" if isinstance(exc, socket.timeout) else type(exc).__name__
    return ClusterError(
        "unreachable",
        f"{place} does not say whether a blob was replaced ({why}).",
        "Check network, name resolution and the storage firewall from this node, then run again.",
    )


__all__ = ["Source", "Versions"]
