# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Blob URLs and SAS tokens: split them, join them, and keep the secret out of everything a person may read."""

from __future__ import annotations

import calendar
import dataclasses
import functools
import ipaddress
import json
import re
import socket
import time
import typing as t
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

HIDDEN = "REDACTED"

# A signature in any spelling that a URL, a JSON string or a percent-encoded URL inside another URL can give it.
_SIGNATURE = re.compile(r"(?i)(\bsig(?:=|%3d|\\u003d))[^&\s\"'\\<>]+")
# Names of Microsoft's own clouds, where the account is the first label of the host name.
_PRODUCTION_HOST = re.compile(r"(?i)^[a-z0-9-]+\.(?:[a-z0-9-]+\.)*(?:blob|dfs)\.")
_CONTAINER = re.compile(r"^(?:\$root|\$web|\$logs|[a-z0-9](?:[a-z0-9]|-(?=[a-z0-9])){2,62})$")


@dataclasses.dataclass(frozen=True)
class BlobUrl:
    """A container or something in it, without a SAS. ``path`` is decoded and has no slash at either end."""

    scheme: str
    host: str  # with the port, as in the URL
    account: str  # only in URLs of emulators, where it is the first part of the path; otherwise empty
    container: str
    path: str

    @property
    def hostname(self) -> str:
        return urllib.parse.urlsplit(f"//{self.host}").hostname or ""

    @property
    def port(self) -> int:
        return urllib.parse.urlsplit(f"//{self.host}").port or (443 if self.scheme == "https" else 80)

    @property
    def container_url(self) -> str:
        return "/".join(part for part in (f"{self.scheme}://{self.host}", self.account, self.container) if part)

    def __str__(self) -> str:
        quoted = urllib.parse.quote(self.path, safe="/~")
        return f"{self.container_url}/{quoted}" if quoted else self.container_url


def is_url(text: str) -> bool:
    """Whether ``text`` names something on a server rather than a local path."""
    return text.lower().startswith(("http://", "https://"))


def clean_sas(sas: str) -> str:
    """Return the token as it is appended to a URL: no leading ``?`` or ``&``, no space around it. '' stays ''."""
    cleaned = sas.strip().lstrip("?&")
    if not cleaned:
        return ""
    fields = dict(urllib.parse.parse_qsl(cleaned))
    # A SAS copied from a web page may carry invisible characters.
    if "sig" not in fields or re.search(r"[^!-~]|[\"'<>\\]", cleaned):
        raise ClusterError(
            "bad_input",
            "The value of `sas` is not a shared access signature: it has no `sig` field, or holds spaces, quotes or "
            "characters that are not ASCII (some of them are invisible).",
            "Pass the whole query string that the portal or `az storage container generate-sas` gives.",
        )
    return cleaned


def split_sas(url: str) -> tuple[str, str]:
    """Split a URL into itself without its query and the SAS ('' when it has none)."""
    base, _question, query = url.strip().partition("?")
    if not query:
        return base, ""
    return base, clean_sas(query)


def join_sas(url: str, sas: str) -> str:
    """Append a token to a URL that has none."""
    sas = clean_sas(sas)
    return f"{url}?{sas}" if sas else url


def sas_expiry(sas: str) -> float | None:
    """When the token expires (seconds since the epoch), or None where it does not say (stored access policy)."""
    text = dict(urllib.parse.parse_qsl(sas.lstrip("?"))).get("se", "")
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d"):
        try:
            return float(calendar.timegm(time.strptime(re.sub(r"\.\d+Z$", "Z", text), form)))
        except ValueError:
            continue
    return None


def parse_blob_url(url: str) -> BlobUrl:
    """Take a URL without a SAS apart: production (``ACCOUNT.blob…/CONTAINER/…``) and emulator (``HOST:PORT/ACCOUNT/CONTAINER/…``).

    The account is part of the path where the host is an address, has no dot, or carries the port of an emulator.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ClusterError(
            "bad_input",
            f"`{redact(url)}` is not the URL of a blob container.",
            "Give `https://ACCOUNT.blob.core.windows.net/CONTAINER[/PREFIX]`, and the token apart in `sas`.",
        )
    pieces = [piece for piece in urllib.parse.unquote(parts.path).split("/") if piece]
    account = pieces.pop(0) if pieces and _account_in_path(parts.hostname, parts.port) else ""
    container = pieces.pop(0) if pieces else ""
    if not _CONTAINER.match(container):
        raise ClusterError(
            "bad_input",
            f"`{redact(url)}` has no valid container name where one belongs (found `{container}`).",
            "Container names have 3 to 63 small letters, digits and single dashes, and follow the host name in the URL.",
        )
    return BlobUrl(parts.scheme, parts.netloc, account, container, "/".join(pieces))


def check_container(url: str) -> None:
    """Raise ClusterError (``bad_input``) where the URL of a source is none of a container, or goes on behind it."""
    parsed = parse_blob_url(url)
    if parsed.path:
        raise ClusterError(
            "bad_input",
            f"`{redact(url)}` goes on behind the container.",
            f"Give `{parsed.container_url}` as URL, and `{parsed.path}` as `prefix`, or in front of the one that is there.",
        )


def _account_in_path(hostname: str, port: int | None) -> bool:
    if _PRODUCTION_HOST.match(hostname):
        return False
    if _is_address(hostname) or "." not in hostname:
        return True
    return port is not None and port not in (80, 443)


def _is_address(hostname: str) -> bool:
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return True


def with_address(url: BlobUrl) -> BlobUrl:
    """Replace the host name of an emulator URL by its address.

    AzCopy looks for the account in the path only when the host is an address (``http://blob:10000/…`` would lose the
    container). Over TLS the certificate needs the name, so such a URL is left alone.
    """
    if not url.account or url.scheme == "https" or _is_address(url.hostname):
        return url
    try:
        found = socket.getaddrinfo(url.hostname, url.port, type=socket.SOCK_STREAM)
    except OSError as exc:
        raise ClusterError(
            "unreachable",
            f"The host name `{url.hostname}` cannot be resolved: {exc}.",
            "Check the URL and the name resolution of this node.",
        ) from exc
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    address = str(found[0][4][0])
    host = f"[{address}]" if ":" in address else address
    return dataclasses.replace(url, host=f"{host}:{url.port}")


def redact(text: str, *secrets: str | None) -> str:
    """Remove every spelling of the secrets, and the signature of any SAS at all, from ``text``."""
    for form in _forms(secrets):
        text = text.replace(form, HIDDEN)
    return _SIGNATURE.sub(rf"\1{HIDDEN}", text)


@functools.lru_cache(maxsize=16)  # every line that AzCopy prints is cleaned of the same few secrets
def _forms(secrets: tuple[str | None, ...]) -> tuple[str, ...]:
    """Every spelling of the secrets, longest first."""
    return tuple(sorted({form for secret in secrets for form in spellings(secret or "")}, key=len, reverse=True))


def spellings(secret: str) -> t.Iterator[str]:
    """The secret and its signature, plain, percent-encoded and -decoded, and as Go and Python write them into JSON."""
    secret = secret.strip().lstrip("?")
    if not secret:
        return
    match = re.search(r"(?:^|&)sig=([^&]+)", secret)
    for value in [secret, *(match.groups() if match else ())]:
        decoded = urllib.parse.unquote(value)
        encoded = urllib.parse.quote(decoded, safe="")
        plain = {value, decoded, encoded, urllib.parse.quote(value, safe=""), urllib.parse.quote(decoded, safe="/=&")}
        plain |= {re.sub(r"%[0-9A-F]{2}", lambda escape: escape.group().lower(), form) for form in plain}
        for form in plain:
            if len(form) < 6:
                continue  # too short to be a signature, long enough to cut holes into ordinary words
            yield form
            yield json.dumps(form)[1:-1]
            yield form.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
            yield form.replace("/", "\\/")


__all__ = [
    "HIDDEN",
    "BlobUrl",
    "check_container",
    "clean_sas",
    "is_url",
    "join_sas",
    "parse_blob_url",
    "redact",
    "sas_expiry",
    "spellings",
    "split_sas",
    "with_address",
]
