# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Why one blob did not arrive: is it gone, or are we not let in?

AzCopy asks for every name of a list, and passes over those that it gets no good answer for, whatever the answer was: a
refused SAS looks like an empty list.
"""

from __future__ import annotations

import http.client
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.connection import open_connection
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.refusal import refusal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import BlobUrl
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# Older than every service and emulator that is met; the range request below needs nothing newer.
_API_VERSION = "2021-12-02"


def explain_absence(blob: BlobUrl, sas: str, *, timeout_s: float = 15) -> ClusterError | None:
    """None when the blob can be read; else the reason: ``not_found`` when it is gone, or what the service refuses."""
    connection = open_connection(urllib.parse.urlsplit(str(blob)), timeout_s)
    try:
        target = str(blob).split(blob.host, 1)[1]
        headers = {"x-ms-version": _API_VERSION, "Range": "bytes=0-0"}
        connection.request("GET", f"{target}?{sas}", headers=headers)
        response = connection.getresponse()
        status, body = response.status, response.read(64 << 10)
    except (OSError, http.client.HTTPException) as error:
        return ClusterError(
            "unreachable", f"{blob.host} does not answer: {type(error).__name__}.", "Check network and name resolution."
        )
    finally:
        connection.close()
    if status in (200, 206, 416):  # 416: a blob without bytes has no first byte
        return None
    if status == 404 and b"BlobNotFound" in body:
        return ClusterError(
            "not_found", f"`{blob.path}` is not there any more.", "List the source again: run once more."
        )
    return refusal(blob.container_url, status, body, sas)


__all__ = ["explain_absence"]
