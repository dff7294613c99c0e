# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Read one page of a List Blobs answer.

A page of 5,000 blobs is some 3.5 MB of XML, a large dataset has hundreds of them, and a DOM costs ten times what the
rest of a listing does. The service writes the properties of all blobs of a page in one order, so the first blob of a
page is made into a regular expression that reads them all. Where that does not find every blob of the page, each is
read by itself, in any order. Either way the number of blobs read must equal the number of blobs in the page.
"""

from __future__ import annotations

import functools
import html
import re
import typing as t
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._manifest import Blob

_WANTED = ("Content-Length", "Content-MD5", "Etag", "Content-Encoding")
_ELEMENT = re.compile(r"<([\w-]+)(?: [^<>]*)?(?:/>|>([^<]*)</\1>)")
_NAME = re.compile(r'<Name(?: Encoded="(true|false)")?>([^<]*)</Name>')
_METADATA = re.compile(r"<Metadata>.*?</Metadata>", re.DOTALL)
_PREFIX = re.compile(r'<BlobPrefix><Name(?: Encoded="(true|false)")?>([^<]*)</Name>')
_MARKER = re.compile(r"<NextMarker(?: ?/>|>([^<]*)</NextMarker>)")
_FOLDER_STUB = re.compile(r"<hdi_isfolder>\s*true\s*</hdi_isfolder>", re.IGNORECASE)


class PageError(Exception):
    """The page is cut short or not what the service documents. The text says which."""


class Page(t.NamedTuple):
    """``blobs`` under their names in the container, virtual directories (``prefixes``), and the next page's marker."""

    blobs: list[Blob]
    prefixes: list[str]
    next_marker: str


def next_marker(body: bytes) -> str:
    """Where the next page begins, "" after the last one; ``PageError`` where the page's end is missing."""
    tail = body[body.rfind(b"<NextMarker") :]
    try:
        text = tail.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise PageError("a page is not UTF-8") from exc
    marker = _MARKER.match(text)
    if not text.rstrip().endswith("</EnumerationResults>") or marker is None:
        raise PageError("a page does not end as a page must")
    return html.unescape(marker.group(1) or "")


def parse_page(body: bytes, cut: int = 0, source: int = 0) -> Page:
    """Read a page or raise ``PageError``; never fewer blobs than the page has, directories and snapshots excepted.

    The blobs carry the number of their ``source``, and their names lose the first ``cut`` characters.
    """
    marker = next_marker(body)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise PageError("a page is not UTF-8") from exc
    blobs = _read_alike(text, cut, source)
    if blobs is None:
        blobs = _read_each(text, cut, source)
    prefixes = [_decode(name, encoded) for encoded, name in _PREFIX.findall(text)] if "<BlobPrefix>" in text else []
    return Page(blobs, prefixes, marker)


def _read_alike(text: str, cut: int, source: int) -> list[Blob] | None:
    """All blobs by the layout of the first, or None where they need a closer look.

    Names that are percent-encoded and snapshots do not fit the expression, so they show in the number of blobs. Every blob
    has one element of properties; that long word is counted faster than the blobs themselves.
    """
    start = text.find("<Blob>")
    if start < 0:
        return []
    stop = text.find("</Blob>", start)
    first = text[start : max(stop, start)]
    tags = tuple(match.group(1) for match in _ELEMENT.finditer(first[first.find("<Properties>") :]))
    if not first.startswith("<Blob><Name>") or not all(tags.count(tag) == 1 for tag in _WANTED):
        return None
    pattern, order = _layout(tags)
    found = pattern.findall(text)
    if len(found) != text.count("</Properties>"):
        return None
    length, md5, etag, encoding = (order.index(tag) + 1 for tag in _WANTED)
    # Directories are entries of no bytes: pages without such an entry need not be searched for their marks.
    if "0" in [row[length] for row in found] and ("di_isfolder" in text or "<ResourceType>directory" in text):
        return None
    # What Blob._make does, without its checks.
    new = tuple.__new__
    if "&" in text:
        unescape = html.unescape
        return [
            new(
                Blob,
                (
                    unescape(row[0])[cut:],
                    int(row[length]),
                    row[md5],
                    unescape(row[etag]),
                    unescape(row[encoding]),
                    source,
                ),
            )
            for row in found
        ]
    return [new(Blob, (row[0][cut:], int(row[length]), row[md5], row[etag], row[encoding], source)) for row in found]


@functools.lru_cache(maxsize=16)
def _layout(tags: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """The expression for properties in this order, up to the last one wanted, and the order of its groups."""
    last = max(tags.index(tag) for tag in _WANTED)
    parts = ["<Blob><Name>([^<]*)</Name><Properties>"]
    for tag in tags[: last + 1]:
        text = r"(\d+)" if tag == "Content-Length" else "([^<]*)" if tag in _WANTED else "[^<]*"
        parts.append(f"<{tag}>{text}</{tag}>" if tag == "Content-Length" else f"<{tag}(?:>{text}</{tag}>| ?/>)")
    return re.compile("".join(parts)), tuple(tag for tag in tags[: last + 1] if tag in _WANTED)


def _read_each(text: str, cut: int, source: int) -> list[Blob]:
    blobs: list[Blob] = []
    count = text.count("<Blob>")
    pieces = text.split("<Blob>")[1:]
    for piece in pieces:
        entry, closed, _rest = piece.partition("</Blob>")
        name = _NAME.match(entry)
        if not closed or name is None:
            raise PageError("an entry of a page cannot be read")
        # Metadata are the user's own words: they must not be taken for properties.
        properties = dict(_ELEMENT.findall(_METADATA.sub("", entry)))
        if not properties.get("Content-Length", "").isdigit():
            raise PageError("an entry of a page has no size")
        size = int(properties["Content-Length"])
        is_directory = properties.get("ResourceType") == "directory" or _FOLDER_STUB.search(entry)
        if "Snapshot" in properties or (is_directory and not size):
            count -= 1
            continue
        md5, etag, encoding = (html.unescape(properties.get(tag, "")) for tag in _WANTED[1:])
        full = _decode(name.group(2), name.group(1) or "")
        blobs.append(Blob(full[cut:], size, md5, etag, encoding, source))
    if len(blobs) != count:
        raise PageError("not every entry of a page could be read")
    return blobs


def _decode(name: str, encoded: str) -> str:
    plain = html.unescape(name)
    return urllib.parse.unquote(plain) if encoded == "true" else plain


__all__ = ["Page", "PageError", "next_marker", "parse_page"]
