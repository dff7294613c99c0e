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
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import redact, spellings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_QUERY = re.compile("[?#]")
_MARK = r"(?:[/?#&;@]|%(?:25)*(?:23|26|2f|3f))"
_EQUALS = r"(?:=|%(?:25)*3d)"
# Fields of a SAS ("Create a service SAS" and "Create a user delegation SAS", learn.microsoft.com), percent-encoded or not.
_FIELD = re.compile(rf"(?i){_MARK}(?:se|si|sip|skoid|sp|spr|sr|srt|ss|st|sv){_EQUALS}")
_SIGNATURE = re.compile(rf"(?i){_MARK}?sig{_EQUALS}")
_ENCODED_QUERY = re.compile(r"(?i)%(?:25)*(?:23|3f)")


def _sas_at(text: str) -> int:
    """Where a SAS begins that is no query, -1 where none does. A signature alone may be the name of a directory."""
    signature, field = _SIGNATURE.search(text), _FIELD.search(text)
    if signature is None or not (field or _ENCODED_QUERY.match(signature.group())):
        return -1
    return min(match.start() for match in (signature, field) if match)


def _end_of(url: str) -> int:
    """Where a URL has to end: before its query or fragment, or a SAS that stands in its path."""
    query = _QUERY.search(url)
    places = [query.start() if query else -1, _sas_at(url)]
    return min((place for place in places if place >= 0), default=len(url))


def query_of(url: str) -> str:
    """What follows where a URL has to end, '' where nothing does: a query, a fragment, or a SAS in the path."""
    return re.sub(rf"(?i)^{_MARK}", "", url[_end_of(url) :])


def hide_secrets(module: t.Any, *secrets: str | None) -> None:
    """Have Ansible blacken the secrets in the result of the module, its options included, however they are spelled."""
    for secret in secrets:
        module.no_log_values.update(spellings(secret or ""))


def check_place(url: str, prefix: str = "") -> None:
    """Refuse a URL that holds more than a place, and a SAS in the prefix, without repeating it."""
    end, sas = _end_of(url), _sas_at(url)
    if end < len(url):
        what = "holds a SAS" if end == sas else "is followed by a query"
        raise ClusterError(
            "bad_input",
            f"The URL `{redact(url[:end])}` {what}, and a SAS in a URL reaches logs and results.",
            f"End the URL where the {'SAS' if end == sas else 'query'} begins, and give the SAS beside it as `sas`.",
        )
    try:
        urllib.parse.urlsplit(url).port  # noqa: B018 - raises where it is no number, or none of a port
    except ValueError as error:
        raise ClusterError("bad_input", f"`{redact(url)}` is no URL: {error}.", "Correct it.") from error
    if _sas_at(f"/{prefix}") >= 0:
        raise ClusterError(
            "bad_input",
            f"The prefix beside the URL `{redact(url)}` holds a SAS, which would reach logs and results.",
            "End the prefix where the SAS begins, and give the SAS beside it as `sas`.",
        )


def refuse_queries(module: t.Any, places: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Refuse a place, which has ``url`` and ``prefix``, with a SAS in one of them, without repeating the SAS."""
    for place in places:
        url, prefix = str(place["url"]), str(place.get("prefix") or "")
        hide_secrets(module, query_of(url), prefix if _sas_at(f"/{prefix}") >= 0 else "")
        check_place(url, prefix)


__all__ = ["check_place", "hide_secrets", "query_of", "refuse_queries"]
