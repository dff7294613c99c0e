# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the modules of the staging have in common at their edge: options with a secret in them, and how they fail."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import redact
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

SAS: dict[str, t.Any] = {"type": "str", "default": "", "no_log": True}
_GLOBS: dict[str, t.Any] = {"type": "list", "elements": "str", "default": []}
SOURCES: dict[str, t.Any] = {
    "type": "list",
    "elements": "dict",
    "required": True,
    "options": {
        "url": {"type": "str", "required": True},
        "prefix": {"type": "str", "default": ""},
        "include": _GLOBS,
        "exclude": _GLOBS,
        "sas": SAS,
    },
}
IDENTITY: dict[str, t.Any] = {
    "identity": {"type": "str", "choices": ["msi", "workload", "azcli", "spn", "none"], "default": "msi"},
    "identity_client_id": {"type": "str", "default": ""},
}
AZCOPY: dict[str, t.Any] = {
    "azcopy": {"type": "path", "default": "azcopy"},
    "log_path": {"type": "path", "default": "/var/log/azcopy"},
}


def failure(error: ClusterError, *secrets: str) -> dict[str, t.Any]:
    """The arguments of ``fail_json``, with the secrets taken out of the message."""
    return {**error.as_result(), "msg": redact(str(error), *secrets)}


__all__ = ["AZCOPY", "IDENTITY", "SAS", "SOURCES", "failure"]
