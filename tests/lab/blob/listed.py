# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All blobs of one container, through one connection and page by page, in the service's order."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.listing import PAGE_SIZE, Limits, Listing, Login
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob


def list_blobs(
    url: str,
    prefix: str = "",
    sas: str = "",
    login: Login | None = None,
    *,
    page_size: int = PAGE_SIZE,
    timeout_s: float = 30,
    retries: int = 4,
    deadline_s: float = 60,
) -> t.Iterator[Blob]:
    """The blobs whose names begin with ``prefix``, names as in the container. Raises ClusterError as the listing does."""
    with contextlib.closing(Listing(url, sas, login, Limits(page_size, timeout_s, retries, deadline_s))) as listing:
        for page in listing.pages(prefix):
            yield from page.blobs


__all__ = ["list_blobs"]
