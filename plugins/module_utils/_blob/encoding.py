# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which blobs are gzip, and what their files are called once they are inflated: one answer for plans, copies and comparisons."""

from __future__ import annotations

import functools

SUFFIX = ".gz"
_GZIP = ("gzip", "x-gzip")
# Codings that change the bytes of a blob (IANA, "HTTP Content Coding Registry"). No other word does: S3 clients send `aws-chunked` with
# an upload in pieces, which a service that does not know it keeps (docs.aws.amazon.com, "Signature calculations: transferring payload
# in multiple chunks"), and people write `utf-8`, `binary`, or `none`.
_CODINGS = frozenset(
    (*_GZIP, "aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "pack200-gzip", "x-compress", "zstd")
)


def is_gzip(name: str, encoding: str = "") -> bool:
    """Whether a blob is gzip: its Content-Encoding says so, or that says nothing and the name ends in ``.gz``, in any case.

    Nothing is read for that. Who inflates the blob finds out whether it begins like gzip.
    """
    codings = _codings(encoding)
    return _ends_in_gz(name) if not codings else len(codings) == 1 and codings[0] in _GZIP


def stays_packed(name: str, encoding: str) -> bool:
    """Whether a blob is packed by its Content-Encoding, in a way that nobody here undoes: otherwise than by gzip, or more than once."""
    return bool(_codings(encoding)) and not is_gzip(name, encoding)


def inflated_name(name: str) -> str:
    """The name without a trailing ``.gz``; a component that is nothing else keeps it, as the path would end in a slash."""
    return name[: -len(SUFFIX)] if _ends_in_gz(name) and len(name.rpartition("/")[2]) > len(SUFFIX) else name


def _ends_in_gz(name: str) -> bool:
    return name[-len(SUFFIX) :].lower() == SUFFIX


@functools.lru_cache(maxsize=256)
def _codings(encoding: str) -> tuple[str, ...]:
    """The codings of a Content-Encoding, as RFC 9110 writes them: in the order in which they were applied."""
    return tuple(coding for part in encoding.split(",") if (coding := part.strip().lower()) in _CODINGS)


__all__ = ["SUFFIX", "inflated_name", "is_gzip", "stays_packed"]
