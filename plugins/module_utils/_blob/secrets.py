# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Keep a SAS that was left in a URL out of what a module returns.

A module with such an option also needs ``no_log=True``, which keeps its options out of the system log and hides no result:
that line is written before any of our code could take a secret out of it.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import redact, spellings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# Where the query begins; also in a URL that was percent-encoded as a whole, where a name may hold `%3F`.
_QUERY = re.compile(r"(?i)[?#]|%3f(?=.*sig(?:=|%3d))")


def query_of(url: str) -> str:
    """What follows the ``?``, '' where there is none."""
    return _QUERY.split(url, maxsplit=1)[1] if _QUERY.search(url) else ""


def hide_secrets(module: t.Any, *secrets: str | None) -> None:
    """Have Ansible blacken the secrets in the result of the module, its options included, however they are spelled."""
    for secret in secrets:
        module.no_log_values.update(spellings(secret or ""))


def refuse_queries(module: t.Any, urls: t.Iterable[str]) -> None:
    """Refuse a URL with a query, without repeating the query."""
    with_query = [url for url in urls if _QUERY.search(url)]
    hide_secrets(module, *(query_of(url) for url in with_query))
    if with_query:
        base = redact(_QUERY.split(with_query[0], maxsplit=1)[0])
        raise ClusterError(
            "bad_input",
            f"The URL `{base}` is followed by a query, and a SAS in a URL reaches logs and results.",
            "End the URL where the query begins, and give the SAS beside it as `sas`.",
        )


__all__ = ["hide_secrets", "query_of", "refuse_queries"]
