# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Bearer tokens for storage from the instance metadata service of an Azure machine.

Source of requests, answers, and what to try again: "How to use managed identities for Azure resources on an Azure VM to
acquire an access token" (learn.microsoft.com). No message holds a token.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
import time
import typing as t
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.metadata import METADATA_ADDRESS

_ENDPOINT = f"http://{METADATA_ADDRESS}/metadata/identity/oauth2/token"
_RESOURCE = "https://storage.azure.com/"
_CONNECT_S = 2.0  # the address is link-local: it answers in milliseconds or not at all
_ANSWER_S = 4.0
# Errors that pass, by the documentation: the service is being updated, throttles, or failed once.
_PASSING = frozenset((404, 408, 410, 429, 500, 502, 503, 504))
_PAUSES_S = (1.0, 2.0, 4.0)
# 410 says that an update is under way, which takes up to 70 s.
_UPDATE_PAUSES_S = (10.0,) * 7
_RENEW_BEFORE_S = 300.0
# What a header can carry: also what a token may consist of (RFC 6750, section 2.1).
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ROLE = "'Storage Blob Data Reader' ('Storage Blob Data Contributor' to upload)"
_ASSIGN = f"Assign a managed identity with the role {_ROLE} to this machine, or give a SAS."
# Other places that AzCopy asks for an identity: Arc, App Service, Azure ML; and its own name for one.
_ELSEWHERE = ("IDENTITY_ENDPOINT", "IMDS_ENDPOINT", "MSI_ENDPOINT", "AZCOPY_MSI_RESOURCE_STRING")
_ARC_AGENT = "/opt/azcmagent/bin/himds"


class ManagedIdentity:
    """The identity of this machine, or the user-assigned one with ``client_id``. May be shared by threads."""

    def __init__(
        self,
        client_id: str = "",
        *,
        endpoint: str = _ENDPOINT,
        pause: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._client_id = client_id
        self._endpoint = endpoint
        self._pause = pause
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = self._ends_at = 0.0

    def token(self, refused: str = "") -> str:
        """A token that is still good for a while. One that was ``refused`` is not given again unasked."""
        with self._lock:
            now = time.time()
            if not self._token or now >= self._renew_at or refused == self._token:
                try:
                    self._token, self._ends_at = self._fetch()
                except ClusterError:
                    if refused == self._token or now >= self._ends_at:
                        raise
                # The service hands out a token that it has until shortly before its end: then ask at half of what is left.
                left = self._ends_at - now
                self._renew_at = now + max(left - _RENEW_BEFORE_S, left / 2, 0.2)
            return self._token

    def _fetch(self) -> tuple[str, float]:
        """Token and its end, asked for again where the documentation says so."""
        attempt = 0
        while True:
            try:
                status, body = self._ask()
            except (OSError, http.client.HTTPException) as exc:
                # Twice at most: together with the pause that is less than ten seconds.
                if attempt:
                    raise _no_answer(exc) from exc
                status, body = 408, b""
            if status == 200:
                return _read(body)
            pauses = _UPDATE_PAUSES_S if status == 410 else _PAUSES_S
            if status not in _PASSING or attempt >= len(pauses):
                raise self._refused(status, body)
            self._pause(pauses[attempt])
            attempt += 1

    def _ask(self) -> tuple[int, bytes]:
        query = {"api-version": "2018-02-01", "resource": _RESOURCE}
        if self._client_id:
            query["client_id"] = self._client_id
        parts = urllib.parse.urlsplit(self._endpoint)
        # http.client and not urllib: the address is link-local and must never go through a proxy.
        connection = http.client.HTTPConnection(parts.netloc, timeout=_CONNECT_S)
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(_ANSWER_S)
            connection.request("GET", f"{parts.path}?{urllib.parse.urlencode(query)}", headers={"Metadata": "true"})
            response = connection.getresponse()
            return response.status, response.read(1 << 20)
        finally:
            connection.close()

    def _refused(self, status: int, body: bytes) -> ClusterError:
        try:
            document = json.loads(body)
            error, why = (str(document.get(key) or "")[:200] for key in ("error", "error_description"))
        except (ValueError, AttributeError):
            error = why = ""
        said = f"HTTP {status} {error}".rstrip() + (f": {why}" if why else "")
        if status == 400 and "identity not found" in why.lower():
            if self._client_id:
                return ClusterError(
                    "auth_failed",
                    f"This machine has no managed identity with the client id {self._client_id} ({said}).",
                    f"Assign that identity to this machine, with the role {_ROLE}, or correct `identity_client_id`.",
                )
            return ClusterError("auth_failed", f"This machine has no managed identity ({said}).", _ASSIGN)
        if status == 400 and "multiple" in why.lower() and not self._client_id:
            return ClusterError(
                "auth_failed",
                f"This machine has several user-assigned identities, and none was chosen ({said}).",
                "Name one by its client id in `identity_client_id`.",
            )
        if status in _PASSING and status != 404:
            return ClusterError(
                "unreachable",
                f"The instance metadata service keeps answering {said}.",
                "It is being updated or is asked too often by this machine: wait a minute and run again.",
            )
        return ClusterError("auth_failed", f"The instance metadata service gave no token ({said}).", _ASSIGN)


def check_identity(client_id: str, environment: t.Mapping[str, str] | None = None) -> None:
    """Raise unless AzCopy can log in as this identity; AzCopy itself says less about it, and later.

    Nothing is checked where AzCopy asks another service than the instance metadata service.
    """
    environment = os.environ if environment is None else environment
    if not any(environment.get(name) for name in _ELSEWHERE) and not os.path.exists(_ARC_AGENT):
        ManagedIdentity(client_id).token()


def _read(body: bytes) -> tuple[str, float]:
    try:
        document = json.loads(body)
        token = document["access_token"]
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError
        return token, float(document.get("expires_on") or time.time())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ClusterError(
            "auth_failed", "The instance metadata service's answer holds no token.", _ASSIGN
        ) from None  # its text may hold one after all


def _no_answer(exc: Exception) -> ClusterError:
    late = isinstance(exc, socket.timeout)
    why = "no answer in time" if late else getattr(exc, "strerror", None) or type(exc).__name__
    return ClusterError(
        "auth_failed",
        f"No instance metadata service answered at 169.254.169.254 ({why}).",
        "On a machine in Azure, let this node reach 169.254.169.254 port 80 (routes, firewall). Elsewhere there is no "
        "managed identity: give a SAS.",
    )


__all__ = ["ManagedIdentity", "check_identity"]
