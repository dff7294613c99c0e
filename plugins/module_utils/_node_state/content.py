# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a file should hold: its bytes, or their digest where the controller keeps them until they are needed."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import typing as t

#: More than this many bytes are described in a diff, not shown.
DIFF_LIMIT = 100_000
#: What in an item of ``files`` tells its bytes.
CONTENTS = ("content", "secret_content", "content_base64", "sha256")


def digest(data: bytes) -> str:
    """The sha256 of these bytes, in 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def text_of(data: bytes) -> str | None:
    """The text that a diff shows; None for too many bytes, and for what is no text."""
    try:
        return data.decode("utf-8") if len(data) <= DIFF_LIMIT else None
    except UnicodeDecodeError:
        return None


def shown(data: bytes) -> str:
    """One side of a diff: the text, or the digest of what is not shown."""
    text = text_of(data)
    return _described(digest(data), len(data)) if text is None else text


def _described(sha256: str, size: int) -> str:
    return f"sha256: {sha256} ({size} bytes)\n"


@dataclasses.dataclass(frozen=True)
class Content:
    """What a file should hold.

    ``data`` is None where only the digest came; then ``size`` says how many bytes they are if a diff would not show them.
    """

    sha256: str
    data: bytes | None = None
    size: int | None = None
    secret: bool = False

    @property
    def shown(self) -> str:
        """The right side of a diff."""
        if self.secret:
            return "(hidden, changed)\n"
        if self.data is not None:
            return shown(self.data)
        return _described(self.sha256, self.size or 0)

    def is_lacking(self, *, check: bool) -> bool:
        """Whether the bytes have to come: to be written, or with ``check`` to be shown."""
        return self.data is None and not (check and self.size is not None)


def content_of(item: t.Mapping[str, t.Any]) -> Content:
    """The content of an item of ``files``, which has one of CONTENTS."""
    secret = bool(item["sensitive"]) or item.get("secret_content") is not None
    if item.get("sha256") is not None:
        return Content(item["sha256"], None, item.get("size"), secret)
    if item.get("content_base64") is not None:
        data = base64.b64decode(item["content_base64"])
    else:
        text = item["secret_content"] if item.get("secret_content") is not None else item["content"]
        # What is not UTF-8 in a file of others comes with the stand-ins that reading gave it.
        data = str(text).encode("utf-8", "surrogateescape")
    return Content(digest(data), data, None, secret)


__all__ = ["CONTENTS", "DIFF_LIMIT", "Content", "content_of", "digest", "shown", "text_of"]
