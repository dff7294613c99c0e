# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A storage account with limits, as a proxy in front of a Blob service: what exceeds them is answered 503 ServerBusy, at once.

Limits are token buckets of one second. A request is let in while there is a token of each kind; its bytes are taken when they are known,
so that a bucket can owe some, and nothing is let in until it is paid. That is admission, not shaping: who is let in gets all at once.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import multiprocessing
import signal
import socket
import threading
import time
import typing as t

_CHUNK = 256 << 10
_COUNTED = ("served", "refused", "bytes")
_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "date", "server"))
_BUSY = b'<?xml version="1.0" encoding="utf-8"?><Error><Code>ServerBusy</Code><Message>The server is busy.</Message></Error>'


class _Bucket:
    """Tokens of one kind; ``rate`` per second, 0 for no limit. It begins empty, so that nothing is given away."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._tokens = 0.0
        self._at = time.monotonic()

    def has(self, tokens: float) -> bool:
        now = time.monotonic()
        self._tokens = min(self.rate, self._tokens + (now - self._at) * self.rate)
        self._at = now
        return not self.rate or self._tokens >= tokens

    def take(self, tokens: float) -> None:
        self._tokens -= tokens


class ThrottledAccount:
    """``with ThrottledAccount(azurite.port, requests_per_s=100) as account:`` serves at ``account.port``."""

    def __init__(
        self, upstream_port: int, *, requests_per_s: float = 0, bytes_per_s: float = 0, retry_after_s: int = 1
    ):
        self._upstream_port = upstream_port
        self._requests, self._bytes = _Bucket(requests_per_s), _Bucket(bytes_per_s)
        self._retry_after_s = retry_after_s
        self._lock = threading.Lock()
        self._counts = multiprocessing.Array("q", len(_COUNTED))
        account = self

        class Handler(_Handler):
            def let_in(self) -> bool:
                return account._let_in()

            def count(self, what: str, number: int) -> None:
                account._count(what, number)

        Handler.upstream_port, Handler.retry_after_s = upstream_port, retry_after_s

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 1024

            def handle_error(self, request: t.Any, client_address: t.Any) -> None:
                """A client that goes away is none of our business."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def counts(self) -> dict[str, int]:
        """Requests that were served and refused so far, and the bytes of bodies."""
        return dict(zip(_COUNTED, self._counts))

    def __enter__(self) -> ThrottledAccount:
        self._process = multiprocessing.get_context("fork").Process(target=self._serve, daemon=True)
        self._process.start()
        self._server.server_close()
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.kill()
        self._process.join()

    def _serve(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._server.serve_forever()

    def _let_in(self) -> bool:
        with self._lock:
            if not (self._requests.has(1) and self._bytes.has(0)):
                return False
            self._requests.take(1)
            return True

    def _count(self, what: str, number: int) -> None:
        with self._counts.get_lock():
            self._counts[_COUNTED.index(what)] += number
        if what == "bytes":
            with self._lock:
                self._bytes.take(number)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client, and one to the service behind."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    upstream_port = 0
    retry_after_s = 1
    _upstream: http.client.HTTPConnection | None = None

    def let_in(self) -> bool:
        raise NotImplementedError

    def count(self, what: str, number: int) -> None:
        raise NotImplementedError

    def log_message(self, format: str, *args: t.Any) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        if not self.let_in():
            self.count("refused", 1)
            self._refuse()
            return
        self.count("served", 1)
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=120)
        # The host is part of no signature of a SAS, and everything else is passed on as it came.
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "host")}
        self._upstream.request(self.command, self.path, headers=headers)
        self._pass_on(self._upstream.getresponse())

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        chunked = answer.getheader("Content-Length") is None and self.command == "GET"
        body = answer.read() if chunked else b""
        length = len(body) if chunked else int(answer.getheader("Content-Length") or 0)
        if self.command == "GET":
            self.count("bytes", length)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP and not (chunked and name.lower() == "content-length"):
                self.send_header(name, value)
        if chunked:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)
        while not chunked and (piece := answer.read(_CHUNK)):
            self.wfile.write(piece)
        self.wfile.flush()

    def _refuse(self) -> None:
        self.send_response(503)
        self.send_header("x-ms-error-code", "ServerBusy")
        self.send_header("Content-Type", "application/xml")
        self.send_header("Retry-After", str(self.retry_after_s))
        self.send_header("Content-Length", str(len(_BUSY)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(_BUSY)

    def finish(self) -> None:
        with contextlib.suppress(OSError, socket.error):
            super().finish()
        if self._upstream is not None:
            self._upstream.close()


__all__ = ["ThrottledAccount"]
