# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which blobs are gzip, and what their files are called once they are inflated: one answer for plans, copies and comparisons."""

from __future__ import annotations

import functools

SUFFIX = ".gz"
_GZIP = ("gzip", "x-gzip")
# Codings that change no bytes of a stored blob. S3 clients send the first with an upload in pieces, and a service that does not know
# it keeps the word (docs.aws.amazon.com, "Signature calculations: transferring payload in multiple chunks").
_PLAIN = ("", "aws-chunked", "identity")


def is_gzip(name: str, encoding: str = "") -> bool:
    """Whether a blob is gzip: its Content-Encoding says so, or that says nothing and the name ends in ``.gz``.

    Nothing is read for that. Who inflates the blob finds out whether it begins like gzip.
    """
    codings = _codings(encoding)
    return name.endswith(SUFFIX) if not codings else len(codings) == 1 and codings[0] in _GZIP


def inflated_name(name: str) -> str:
    """The name without a trailing ``.gz``; a component that is nothing else keeps it, as the path would end in a slash."""
    return name[: -len(SUFFIX)] if name.endswith(SUFFIX) and name.rpartition("/")[2] != SUFFIX else name


@functools.lru_cache(maxsize=256)
def _codings(encoding: str) -> tuple[str, ...]:
    """The codings of a Content-Encoding, as RFC 9110 writes them: in the order in which they were applied."""
    return tuple(coding for part in encoding.split(",") if (coding := part.strip().lower()) not in _PLAIN)


__all__ = ["SUFFIX", "inflated_name", "is_gzip"]
