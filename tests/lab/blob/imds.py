# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the token endpoint of Azure's instance metadata service (IMDS), and nothing else of it.

Requests, answers, and errors are those that Microsoft documents in "How to use managed identities for Azure resources on
an Azure VM to acquire an access token" (learn.microsoft.com, read 2026-11); the texts of the errors are those that users
report from real machines (Azure/azure-sdk-for-net #37278, Hexadite/acs-keyvault-agent #43). The tokens are well-formed
JSON Web Tokens with the claims that a service looks at; their signature is not one, and no real service accepts them.
"""

from __future__ import annotations

import base64
import http.server
import itertools
import json
import threading
import time
import typing as t
import urllib.parse

ADDRESS = ("169.254.169.254", 80)
PATH = "/metadata/identity/oauth2/token"
STORAGE = "https://storage.azure.com"
_ISSUER = "https://sts.windows.net/00000000-0000-0000-0000-000000000001/"
_SYSTEM = "00000000-0000-0000-0000-00000000000a"
# The documented ones that a caller is to wait out, and the documented last resort.
_MEANINGS = {404: "not_found", 410: "gone", 429: "too_many_requests", 500: "unknown"}


class Call(t.NamedTuple):
    """A request for a token, with the status that it was answered with."""

    query: dict[str, str]
    user_agent: str
    status: int


class Imds:
    """What a machine's metadata service knows, changed by tests while it runs, and what it was asked."""

    def __init__(self) -> None:
        self.system_assigned = True
        self.user_assigned: list[str] = []  # client ids
        self.audience = STORAGE
        self.lifetime_s = 3600.0
        self.promised_s = 0.0  # lifetime that the answer names, where that is not the token's
        self.silent_s = 0.0  # wait before every answer
        self.failures: list[int] = []  # statuses of the next answers
        self.calls: list[Call] = []
        self.tokens: list[str] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def reset(self) -> None:
        """A machine with a system-assigned identity, asked nothing; ``tokens`` keeps what was ever handed out."""
        tokens, numbers = self.tokens, self._numbers
        self.__init__()  # type: ignore[misc]
        self.tokens, self._numbers = tokens, numbers

    def answer(self, path: str, headers: t.Mapping[str, str]) -> tuple[int, dict[str, str]]:
        query = dict(urllib.parse.parse_qsl(path.partition("?")[2]))
        time.sleep(self.silent_s)
        with self._lock:
            status, document = self._answer(path.partition("?")[0], query, headers)
            self.calls.append(Call(query, headers.get("User-Agent") or "", status))
        return status, document

    def _answer(self, path: str, query: dict[str, str], headers: t.Mapping[str, str]) -> tuple[int, dict[str, str]]:
        if self.failures:
            status = self.failures.pop(0)
            return status, {"error": _MEANINGS.get(status, "unknown"), "error_description": "Try again later"}
        if path != PATH:
            return 404, {"error": "Not found"}
        if (headers.get("Metadata") or "").lower() != "true" or headers.get("X-Forwarded-For"):
            return _refuse("Required metadata header not specified", "bad_request_102")
        if not query.get("api-version"):
            return _refuse("Required query variable 'api-version' is missing")
        if not query.get("resource"):
            return _refuse("Required query variable 'resource' is missing")
        client = query.get("client_id", "")
        if client and client not in self.user_assigned:
            return _refuse("Identity not found")
        if not client and not self.system_assigned:
            if len(self.user_assigned) > 1:
                return _refuse(
                    "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity "
                    "in the token request"
                )
            if not self.user_assigned:
                return _refuse("Identity not found")
            client = self.user_assigned[0]
        return 200, self._token(client or _SYSTEM, query["resource"])

    def _token(self, client: str, resource: str) -> dict[str, str]:
        now = time.time()
        promised = self.promised_s or self.lifetime_s
        claims = {
            "aud": self.audience,
            "iss": _ISSUER,
            "iat": int(now),
            "nbf": int(now) - 300,
            "exp": now + self.lifetime_s,
            "appid": client,
            "uti": f"stand-in-{next(self._numbers)}",
        }
        token = ".".join(_encode(part) for part in ({"typ": "JWT", "alg": "RS256"}, claims, "not a signature"))
        self.tokens.append(token)
        return {
            "access_token": token,
            "client_id": client,
            "expires_in": str(int(promised)),
            "expires_on": str(int(now + promised)),
            "ext_expires_in": str(int(promised)),
            "not_before": str(int(now) - 300),
            "resource": resource,
            "token_type": "Bearer",
        }


def _refuse(why: str, error: str = "invalid_request") -> tuple[int, dict[str, str]]:
    return 400, {"error": error, "error_description": why}


def _encode(part: t.Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


class ImdsServer:
    """``imds`` over HTTP; ``with ImdsServer(imds, ADDRESS):`` serves it at its real address where that one is free."""

    def __init__(self, imds: Imds, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_version = "IMDS/150.870.65.1015"

            def do_GET(self) -> None:
                status, document = imds.answer(self.path, self.headers)
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: t.Any) -> None:
                """Stay quiet: tests read ``calls`` instead."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: t.Any, client_address: t.Any) -> None:
                """A client that does not wait for an answer is what some tests are about."""

        self._server = Server(address, Handler)
        self.url = f"http://{address[0]}:{self._server.server_address[1]}{PATH}"

    def __enter__(self) -> ImdsServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._server.server_close()


__all__ = ["ADDRESS", "PATH", "STORAGE", "Call", "Imds", "ImdsServer"]
