# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The key of BeeGFS' repository, as text that apt and dnf read, once it is known whose it is."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import openpgp


def checked(data: bytes, fingerprint: str, name: str) -> str:
    """The key in a file, armored. Raises ClusterError for one with another fingerprint, and without one to compare with."""
    if not fingerprint.strip():
        raise ClusterError(
            "bad_input",
            f"Nothing says which key {name} must hold. Nothing was changed.",
            "Set `repository_fingerprint` to the fingerprint of the vendor's key.",
        )
    openpgp.check_fingerprint(data, fingerprint, name)
    return openpgp.armor(openpgp.dearmor(data))


__all__ = ["checked"]
