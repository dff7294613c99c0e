# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The way to a Blob endpoint: direct, or through the proxy that AzCopy would go through."""

from __future__ import annotations

import base64
import http.client
import urllib.parse
import urllib.request


def open_connection(parts: urllib.parse.SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    """Direct, or for https through the proxy that the environment names, as AzCopy goes."""
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
    host = parts.hostname or ""
    proxy = "" if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get("https", "")
    if not proxy:
        return http.client.HTTPSConnection(parts.netloc, timeout=timeout_s)
    through = urllib.parse.urlsplit(proxy if "//" in proxy else f"//{proxy}")
    connection = http.client.HTTPSConnection(through.hostname or "", through.port or 80, timeout=timeout_s)
    headers = {}
    if through.username is not None:
        login = f"{urllib.parse.unquote(through.username)}:{urllib.parse.unquote(through.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    connection.set_tunnel(host, parts.port or 443, headers)
    return connection


__all__ = ["open_connection"]
