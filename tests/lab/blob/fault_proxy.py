# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP proxy in front of a Blob service that breaks chosen requests in chosen ways.

A SAS does not cover host and port, so clients simply use the proxy's port. The first rule that matches a request and
is not used up decides what happens to it; requests without a rule pass through.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import http.server
import re
import socket
import threading
import time
import typing as t

_HOP_HEADERS = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"))


@dataclasses.dataclass
class Rule:
    """What to do with requests whose ``METHOD path?query`` matches ``pattern`` (at most ``times``; 0 is always)."""

    pattern: str
    status: int = 0  # answer this status with the error code below instead of asking the server
    code: str = "InternalError"
    drop: bool = False  # close the connection without an answer
    truncate: int = -1  # pass this many bytes of the body, then close the connection
    stall: int = -1  # pass this many bytes of the body, then stay silent until the proxy ends
    delay_s: float = 0.0  # wait before anything else
    times: int = 0
    used: int = 0


class FaultProxy:
    """The proxy; ``with FaultProxy(azurite.port) as proxy: proxy.add(Rule("GET .*x.bin", status=503, times=2))``."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.requests: list[str] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                proxy._answer(self)

            def log_message(self, format: str, *args: t.Any) -> None:
                """Stay quiet: tests read ``requests`` instead."""

        for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 512

            def handle_error(self, request: t.Any, client_address: t.Any) -> None:
                """A client that goes away in the middle is what the tests do on purpose."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def add(self, rule: Rule) -> None:
        with self._lock:
            self._rules.append(rule)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()
            self.requests.clear()

    def _rule_for(self, request: str) -> Rule | None:
        with self._lock:
            self.requests.append(request)
            for rule in self._rules:
                if re.search(rule.pattern, request) and (not rule.times or rule.used < rule.times):
                    rule.used += 1
                    return rule
        return None

    def _answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        rule = self._rule_for(f"{handler.command} {handler.path}") or Rule("")
        if rule.delay_s:
            self._closing.wait(rule.delay_s)
        if rule.drop:
            self._hang_up(handler)
        elif rule.status:
            self._refuse(handler, rule)
        else:
            self._pass_on(handler, body, rule)

    @staticmethod
    def _hang_up(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        with contextlib.suppress(OSError):
            handler.connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _refuse(handler: http.server.BaseHTTPRequestHandler, rule: Rule) -> None:
        text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{rule.code}</Code><Message>{rule.code}.</Message></Error>'
        handler.send_response(rule.status)
        handler.send_header("x-ms-error-code", rule.code)
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(text.encode())

    def _pass_on(self, handler: http.server.BaseHTTPRequestHandler, body: bytes, rule: Rule) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self._upstream_port, timeout=120)
        try:
            headers = {
                name: value for name, value in handler.headers.items() if name.lower() not in ("connection", "host")
            }
            try:
                upstream.request(handler.command, handler.path, body=body, headers=headers)
                response = upstream.getresponse()
                data = response.read()
            except (OSError, http.client.HTTPException):
                self._hang_up(handler)  # the server is down: so are we
                return
            handler.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _HOP_HEADERS:
                    handler.send_header(name, value)
            length = response.headers.get("Content-Length", "0") if handler.command == "HEAD" else str(len(data))
            handler.send_header("Content-Length", length)
            handler.end_headers()
            if handler.command == "HEAD":
                return
            if rule.truncate >= 0:
                handler.wfile.write(data[: rule.truncate])
                handler.wfile.flush()
                self._hang_up(handler)
            elif rule.stall >= 0:
                handler.wfile.write(data[: rule.stall])
                handler.wfile.flush()
                self._closing.wait(3600)
                self._hang_up(handler)
            else:
                handler.wfile.write(data)
        finally:
            upstream.close()


def silent_port() -> tuple[socket.socket, int]:
    """A port that accepts connections and never answers; close the socket to end it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    return listener, listener.getsockname()[1]


def wait_until(condition: t.Callable[[], bool], timeout_s: float, step_s: float = 0.05) -> bool:
    """Poll ``condition`` until it holds (True) or the time is over (False)."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(step_s)
    return True


__all__ = ["FaultProxy", "Rule", "silent_port", "wait_until"]
