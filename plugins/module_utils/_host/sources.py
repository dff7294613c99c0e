# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Where archives and keys come from: a URL, or a path on the node."""

from __future__ import annotations

import errno
import os.path
import typing as t

_TIMEOUT_S = 60


def open_source(source: str) -> t.Any:
    """Open a URL or a file to read bytes from. Raises OSError for what is no file, a pipe for example: nobody may ever write into it."""
    if "://" not in source:
        if os.path.exists(source) and not os.path.isfile(source):
            raise OSError(errno.EINVAL, "it is no regular file", source)
        return open(source, "rb")
    # Only when something is fetched: this import takes longer than all others of a module together, and a run that changes
    # nothing fetches nothing.
    from ansible.module_utils.urls import open_url

    return open_url(source, timeout=_TIMEOUT_S)


__all__ = ["open_source"]
