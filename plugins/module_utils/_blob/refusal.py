# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a refusal of Blob storage, or of its certificate, means, and what to do about it."""

from __future__ import annotations

import datetime
import re
import ssl
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_CODE = re.compile(rb"<Code>\s*([A-Za-z0-9]+)\s*</Code>")
_OUTSIDE_TIME = b"not valid in the specified time frame"
_NEW_SAS = "Make a new SAS with read and list permission that outlives the staging, and give that."


def refusal(place: str, status: int, body: bytes, sas: str = "") -> ClusterError:
    """The error for an answer other than 200. ``sas`` is looked at for its dates and permissions, never repeated."""
    match = _CODE.search(body)
    code = match.group(1).decode() if match else ""
    said = f"HTTP {status} {code}".rstrip()
    if status in (401, 403) or code in ("PublicAccessNotPermitted", "NoAuthenticationInformation"):
        return _denied(place, said, code, body, sas)
    if status == 404 and code == "ResourceNotFound" and not sas:
        return ClusterError(
            "auth_failed",
            f"{place} is not there for anonymous readers ({said}).",
            "Give a SAS, or use a managed identity (`identity: msi`); if that changes nothing, check the name of the container.",
        )
    if status == 404:
        return ClusterError(
            "container_missing", f"The container {place} does not exist ({said}).", "Check the URL of the source."
        )
    if status in (408, 429, 500, 502, 503, 504):
        return ClusterError(
            "unreachable",
            f"{place} keeps answering {said}.",
            "The account is throttled or disturbed: wait, lower the load on it, and run again.",
        )
    return ClusterError(
        "bad_input",
        f"{place} refuses to list its blobs ({said}).",
        "Check the URL: it must be that of a container of a storage account's Blob endpoint.",
    )


def untrusted(place: str, exc: ssl.SSLCertVerificationError) -> ClusterError:
    """The error for a certificate that this machine does not accept: trying again would not help."""
    return ClusterError(
        "tls_untrusted",
        f"The TLS certificate of {place} is not trusted here: {exc.verify_message}.",
        "Install the certificate of the authority that signed it (update-ca-certificates on Debian and Ubuntu, "
        "update-ca-trust on EL; often that of a proxy that inspects TLS), or name it in SSL_CERT_FILE; an expired or not "
        "yet valid certificate may also mean that this machine's clock is wrong.",
    )


def _denied(place: str, said: str, code: str, body: bytes, sas: str) -> ClusterError:
    fields = dict(urllib.parse.parse_qsl(sas.lstrip("?&")))
    now = datetime.datetime.now(datetime.timezone.utc)
    begins, ends = _moment(fields.get("st", "")), _moment(fields.get("se", ""))
    if ends is not None and ends <= now:
        return ClusterError("sas_expired", f"The SAS for {place} expired on {ends:%Y-%m-%d %H:%M} UTC.", _NEW_SAS)
    if begins is not None and begins > now:
        return ClusterError(
            "auth_failed",
            f"The SAS for {place} is valid only from {begins:%Y-%m-%d %H:%M} UTC on.",
            "Wait, check this machine's clock, or make a SAS without a start time.",
        )
    if _OUTSIDE_TIME in body:
        return ClusterError("sas_expired", f"The SAS for {place} is outside its time of validity ({said}).", _NEW_SAS)
    if not sas:
        # Microsoft's documentation of role assignments ("Troubleshoot Azure RBAC") names the ten minutes.
        remedy = (
            "Give a SAS, or assign the role 'Storage Blob Data Reader' to the identity that is used; it may take ten minutes "
            "until a new assignment counts."
        )
    elif code in ("AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch") or "l" not in fields.get(
        "sp", "l"
    ):
        remedy = "The SAS lacks a permission: it needs read and list on the container (sp=rl)."
    else:
        remedy = "Check that the SAS belongs to this account and container, and that it was copied whole."
    return ClusterError("auth_failed", f"{place} refuses the identity that was given ({said}).", remedy)


def _moment(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)


__all__ = ["refusal", "untrusted"]
