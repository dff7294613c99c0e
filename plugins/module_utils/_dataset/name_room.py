# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""How long a blob's name may be, so that its file has a path where it lands and at the destination."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import NameRoom
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import landing_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.writable import check_directory

# PATH_MAX of Linux with the NUL at its end (limits.h).
_MOST_PATH_BYTES = 4095
#: A run, a batch, and a source, as they stand between the landing directory and the name, with room for more ranks.
_BATCH = "/20261120T120000-0a1b2c-r000000b0000/000/"
# ".azDownload-<36 characters>-" (AzCopy 10.32.2).
_AZCOPY_BYTES = 49


def name_room(destination: str, landing_path: str, hosts: t.Sequence[str]) -> NameRoom:
    """What paths, and the file systems of the two directories on this node, leave for names."""
    host = max(hosts, key=len, default="")
    landing = len(os.fsencode(landing_of(landing_path, destination, host) + _BATCH)) + _AZCOPY_BYTES
    most = _MOST_PATH_BYTES - max(len(os.fsencode(destination.rstrip("/"))) + 1, landing)
    kinds = {"destination": destination, "landing_path": landing_path or destination}
    components = [os.statvfs(check_directory(option, path)).f_namemax for option, path in kinds.items()]
    # Some file systems know none and say 0.
    return NameRoom(most, min([component for component in components if component] or [NameRoom().component_bytes]))


__all__ = ["name_room"]
