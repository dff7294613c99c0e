# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""List one container over the REST interface of Azure Blob storage, with nothing but the standard library.

A listing is whole or it is an error: a page that does not end as a page must, or whose blobs cannot all be read, is
fetched again and finally refused. No message holds the query part of a URL, which may be a SAS.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import typing as t
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.connection import open_connection
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.page import (
    Page,
    PageError,
    Reason,
    next_marker,
    page_text,
    parse_page,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.patience import (
    BUSY,
    PASSING,
    Patience,
    retry_after_s,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.refusal import refusal, untrusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# Names that XML cannot hold come percent-encoded from 2021-02-12 on; Azurite 3.35 knows this version as Azure does.
API_VERSION = "2023-11-03"
PAGE_SIZE = 5000  # the service's own maximum
# This many virtual directories are listed side by side whatever is in them.
MAX_DIRECTORIES = 128
_READ_BYTES = 256 << 10
# Gives a bearer token; called with the one that the service has just refused, else with "".
Login = t.Callable[[str], str]


class Limits(t.NamedTuple):
    """How many blobs to ask for at a time, and how long to wait for them."""

    page_size: int = PAGE_SIZE
    timeout_s: float = 30  # without a byte from the endpoint
    retries: int = 4  # per page, those not counted that a busy service caused
    deadline_s: float = 60  # per page, retries and pauses included


class Listing:
    """One keep-alive connection to one container."""

    def __init__(
        self, url: str, sas: str, login: Login | None, limits: Limits, stop: threading.Event | None = None
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.query or parts.fragment:
            raise ClusterError(
                "bad_input", "The URL of a source carries a query part.", "Give the SAS in its own option."
            )
        if parts.scheme not in ("http", "https") or not parts.netloc or not parts.path.strip("/"):
            raise ClusterError(
                "bad_input",
                f"{url!r} is not the URL of a container.",
                "Give it as https://ACCOUNT.blob.core.windows.net/CONTAINER.",
            )
        self._place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._path = urllib.parse.quote(parts.path.rstrip("/"), safe="/%$-_.~")
        self._sas = sas.strip().lstrip("?&")
        self._limits = limits
        self._headers = {"x-ms-version": API_VERSION, "Accept": "application/xml"}
        self._login = login
        self._token = ""  # that the last request was sent with
        self._connection = open_connection(parts, limits.timeout_s)
        self._asked = ""  # the request that was sent ahead and whose answer is still to be read
        self._asked_s = 0.0  # how long the last answer asks us to wait
        # Every answer is read into this one: new memory for each page costs as much as the page's way over the network.
        self._answer = bytearray()
        self._stop = stop or threading.Event()

    def close(self) -> None:
        self._hang_up()

    def pages(self, prefix: str, cut: int = 0, source: int = 0) -> t.Iterator[Page]:
        """All pages. While one is read here, the service already works on the next. For the rest see ``parse_page``."""
        marker = ""
        while True:
            text = self._fetch(self._target(prefix, marker))
            following = next_marker(text)
            if following and following == marker:
                raise self._incomplete("every page names the same marker")
            if following:
                self._ask_ahead(self._target(prefix, following))
            page = self._parse(text, cut, source)
            del text  # or it would be in memory while the next one is read
            yield page
            if not following:
                return
            marker = following

    def level(self, prefix: str, cut: int, source: int, most: int = MAX_DIRECTORIES) -> Page:
        """What is directly below ``prefix``; it has a next marker where that is more than ``most`` entries."""
        blobs: list[Blob] = []
        unreadable: list[tuple[Blob, Reason]] = []
        prefixes: dict[str, None] = {}
        marker = ""
        while True:
            text = self._fetch(self._target(prefix, marker, "/", min(most, PAGE_SIZE)))
            page = self._parse(text, cut, source, directories=True)
            blobs += page.blobs
            unreadable += page.unreadable
            prefixes.update(dict.fromkeys(page.prefixes))  # one may begin on a page and go on on the next
            marker = page.next_marker
            if not marker or len(blobs) + len(prefixes) >= most:
                return Page(blobs, list(prefixes), marker, unreadable)

    def _target(self, prefix: str, marker: str, delimiter: str = "", page_size: int = 0) -> str:
        query = {"restype": "container", "comp": "list", "include": "metadata"}
        query["maxresults"] = str(page_size or self._limits.page_size)
        optional = {"prefix": prefix, "delimiter": delimiter, "marker": marker}
        query.update({key: text for key, text in optional.items() if text})
        target = f"{self._path}?{urllib.parse.urlencode(query)}"
        return f"{target}&{self._sas}" if self._sas else target

    def _fetch(self, target: str) -> str:
        """The text of one whole page, asked for again after a passing fault until retries or time run out."""
        patience = Patience(self._limits.retries, self._limits.deadline_s)
        logged_in_again = False
        while True:
            status, self._asked_s = 0, 0.0
            try:
                status, size = self._exchange(target, patience.deadline)
                if status == 200:
                    text = page_text(memoryview(self._answer)[:size])
                    next_marker(text)  # a page without its end is a fault like any other
                    return text
                failure = refusal(self._place, status, bytes(self._answer[:size]), self._sas)
                if status in (401, 403) and self._login is not None and not logged_in_again:
                    # By the service's clock the token has ended, whatever ours says.
                    logged_in_again = True
                    if self._login(self._token) != self._token:
                        continue
                if status not in PASSING:
                    raise failure
            except PageError as exc:
                failure = self._incomplete(str(exc))
            except (http.client.InvalidURL, UnicodeEncodeError):
                # Both hold the target with the SAS, and the first quotes it.
                raise ClusterError(
                    "bad_input",
                    "The SAS or the URL holds a character that cannot be sent, perhaps an invisible one.",
                    "Copy them again without line breaks, from where they were made.",
                ) from None
            except ssl.SSLCertVerificationError as exc:
                raise untrusted(self._place, exc) from None
            except (OSError, http.client.HTTPException) as exc:
                failure = self._unreachable(exc)
            self._hang_up()
            pause_s = patience.pause_s(busy=status in BUSY, asked_s=self._asked_s)
            if pause_s is None or self._stop.wait(pause_s):
                raise failure

    def _ask_ahead(self, target: str) -> None:
        """Send a request whose answer ``_fetch`` will read. A failure shows there, where it is retried."""
        try:
            self._send(target)
            self._asked = target
        except (OSError, http.client.HTTPException):
            self._hang_up()

    def _send(self, target: str) -> None:
        if self._login is not None:
            self._token = self._login("")
            self._headers["Authorization"] = f"Bearer {self._token}"
        self._connection.request("GET", target, headers=self._headers)

    def _hang_up(self) -> None:
        self._connection.close()
        self._asked = ""

    def _parse(self, text: str, cut: int, source: int, *, directories: bool = False) -> Page:
        try:
            return parse_page(text, cut, source, directories=directories)
        except PageError as exc:
            raise self._incomplete(str(exc)) from exc

    def _exchange(self, target: str, deadline: float) -> tuple[int, int]:
        """Ask, and read the answer into ``_answer``; returns its status and its size."""
        left = max(min(self._limits.timeout_s, deadline - time.monotonic()), 0.001)
        self._connection.timeout = left
        if self._connection.sock is not None:
            self._connection.sock.settimeout(left)
        if self._asked != target:
            if self._asked:
                self._hang_up()
            self._send(target)
        self._asked = ""
        response = self._connection.getresponse()
        size = 0
        while chunk := response.read1(_READ_BYTES):
            self._answer[size : size + len(chunk)] = chunk
            size += len(chunk)
            if time.monotonic() > deadline:
                raise socket.timeout("the answer came too slowly")
        response.close()  # read1 leaves it open, and an open answer blocks the connection for the next request
        self._asked_s = retry_after_s(response.getheader("Retry-After"), time.time())
        announced = response.getheader("Content-Length")
        if announced is not None and announced.isdigit() and int(announced) != size:
            raise http.client.IncompleteRead(b"", int(announced) - size)
        return response.status, size

    def _unreachable(self, exc: Exception) -> ClusterError:
        return ClusterError(
            "unreachable",
            f"{self._place} does not answer ({_why(exc)}).",
            "Check the URL, name resolution, routes and the storage firewall from this machine, then run again.",
        )

    def _incomplete(self, why: str) -> ClusterError:
        return ClusterError(
            "unreachable",
            f"The listing of {self._place} is incomplete: {why}.",
            "Check what stands between this machine and the storage account (proxy, gateway), then run again.",
        )


def _why(exc: Exception) -> str:
    if isinstance(exc, socket.timeout):
        return "no answer in time"
    if isinstance(exc, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(exc, http.client.IncompleteRead):
        return "the answer was cut short"
    if isinstance(exc, ssl.SSLError):
        return f"TLS: {exc.reason or 'handshake failed'}"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    if isinstance(exc, OSError) and str(exc).startswith("Tunnel connection failed"):
        return f"through the proxy: {exc}"
    return type(exc).__name__


__all__ = [
    "API_VERSION",
    "MAX_DIRECTORIES",
    "PAGE_SIZE",
    "Limits",
    "Listing",
    "Login",
]
