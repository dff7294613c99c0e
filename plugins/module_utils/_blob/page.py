# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Read one page of a List Blobs answer.

A page of 5,000 blobs is some 3.5 MB of XML, a large dataset has hundreds of them, and a DOM costs ten times what the
rest of a listing does. The service writes the properties of all blobs of a page in one order, so the first blob of a
page is made into a regular expression that reads them all. Where that does not find every blob of the page, a slower one
is tried, and then each blob is read by itself, in any order. In every case the number of blobs read must equal the number
of blobs in the page.
"""

from __future__ import annotations

import functools
import html
import re
import typing as t
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blob

_WANTED = ("Content-Length", "Content-MD5", "Etag", "Content-Encoding")
_ELEMENT = re.compile(r"<([\w-]+)(?: [^<>]*)?(?:/>|>([^<]*)</\1>)")
_NAME = re.compile(r'<Name(?: Encoded="(true|false)")?>([^<]*)</Name>')
_METADATA = re.compile(r"<Metadata>.*?</Metadata>", re.DOTALL)
_PREFIX = re.compile(r'<BlobPrefix><Name(?: Encoded="(true|false)")?>([^<]*)</Name>')
_MARKER = re.compile(r"<NextMarker(?: ?/>|>([^<]*)</NextMarker>)")
# As AzCopy has them (10.32.2): the first letter of a key in either case, "true" in any.
_FOLDER_STUB = re.compile(r"<([hH]di_isfolder)>\s*(?i:true)\s*</\1>")
_LINK = re.compile(r"<([iI]s_symlink)>\s*(?i:true)\s*</\1>")
# Without any of these on a page all of its blobs can be copied.
_MARKS = (">Archive<", "di_isfolder>", "s_symlink>", "<CustomerProvidedKeySha256>")
_DIRECTORY_MARKS = ("di_isfolder", "<ResourceType>directory", "/</Name>")


class PageError(Exception):
    """The page is cut short or not what the service documents. The text says which."""


#: ``archived``: in the archive tier. ``folder``: with data, but marked as a directory, for which AzCopy takes it. ``link``: marked as a
#: symbolic link, which AzCopy passes over. ``encrypted``: with a key that the service does not have.
Reason = t.Literal["archived", "encrypted", "folder", "link"]


class Page(t.NamedTuple):
    """``blobs`` under their names in the container, virtual directories (``prefixes``), and the next page's marker.

    ``unreadable`` are blobs among them that cannot be copied as they are, each with the reason.
    """

    blobs: list[Blob]
    prefixes: list[str]
    next_marker: str
    unreadable: t.Sequence[tuple[Blob, Reason]] = ()


def page_text(body: bytes | bytearray | memoryview) -> str:
    """An answer as text, without the mark of the byte order that the service begins it with."""
    try:
        return str(body, "utf-8-sig")
    except UnicodeDecodeError as exc:
        raise PageError("a page is not UTF-8") from exc


def next_marker(text: str) -> str:
    """Where the next page begins, "" after the last one; ``PageError`` where the page's end is missing."""
    tail = text[text.rfind("<NextMarker") :]
    marker = _MARKER.match(tail)
    if not tail.rstrip().endswith("</EnumerationResults>") or marker is None:
        raise PageError("a page does not end as a page must")
    return html.unescape(marker.group(1) or "")


def parse_page(text: str, cut: int = 0, source: int = 0, *, directories: bool = True) -> Page:
    """Read a page or raise ``PageError``; never fewer blobs than the page has, directories and snapshots excepted.

    The blobs carry the number of their ``source``, and their names lose the first ``cut`` characters. Virtual
    ``directories`` are in a page only where a delimiter was sent: not looking for them saves a tenth.
    """
    marker = next_marker(text)
    unreadable: list[tuple[Blob, Reason]] = []
    blobs = None if any(mark in text for mark in _MARKS) else _read_alike(text, cut, source)
    if blobs is None:
        blobs = _read_each(text, cut, source, unreadable)
    prefixes = [_decode(name, encoded) for encoded, name in _PREFIX.findall(text)] if directories else []
    return Page(blobs, prefixes, marker, unreadable)


def _read_alike(text: str, cut: int, source: int) -> list[Blob] | None:
    """All blobs by the layout of the first, or None where they need a closer look.

    Names that are percent-encoded and snapshots do not fit the expressions, so they show in the number of blobs. Every
    blob has one element of properties; that long word is counted faster than the blobs themselves.
    """
    start = text.find("<Blob>")
    if start < 0:
        return []
    stop = text.find("</Blob>", start)
    first = text[start : max(stop, start)]
    elements = list(_ELEMENT.finditer(first, first.find("<Properties>")))
    tags = tuple(match.group(1) for match in elements)
    if not first.startswith("<Blob><Name>") or not all(tags.count(tag) == 1 for tag in _WANTED):
        return None
    order = tuple(tag for tag in tags if tag in _WANTED)
    count = text.count("</Properties>")
    for pattern in (_places(order, _distances(first, elements)), _layout(tags)):
        found = pattern.findall(text)
        if len(found) == count:
            break
    else:
        return None
    length, md5, etag, encoding = (order.index(tag) + 1 for tag in _WANTED)
    # Directories are entries of no bytes: pages without such an entry need not be searched for their marks.
    if "0" in [row[length] for row in found] and any(mark in text for mark in _DIRECTORY_MARKS):
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


def _distances(first: str, elements: t.Sequence[re.Match[str]]) -> tuple[int, ...]:
    """How many characters stand before each wanted element since the one before it."""
    end = first.find("<Properties>") + len("<Properties>")
    distances = []
    for match in elements:
        if match.group(1) in _WANTED:
            distances.append(max(match.start() - end, 0))
            end = match.end()
    return tuple(distances)


@functools.lru_cache(maxsize=64)
def _places(order: tuple[str, ...], distances: tuple[int, ...]) -> re.Pattern[str]:
    """The expression for blobs whose other properties are as long as those of the first, as dates and types mostly are.

    What is jumped over costs no time. A jump that goes wrong either misses the next element or swallows a blob.
    """
    parts = [f"(?s:.{{{distance}}}){_element(tag)}" for tag, distance in zip(order, distances)]
    return re.compile("".join(["<Blob><Name>([^<]*)</Name><Properties>", *parts]))


@functools.lru_cache(maxsize=16)
def _layout(tags: tuple[str, ...]) -> re.Pattern[str]:
    """The expression for properties in this order, up to the last one wanted."""
    last = max(tags.index(tag) for tag in _WANTED)
    return re.compile("".join(["<Blob><Name>([^<]*)</Name><Properties>", *map(_element, tags[: last + 1])]))


def _element(tag: str) -> str:
    if tag == "Content-Length":
        return f"<{tag}>(\\d+)</{tag}>"
    return f"<{tag}(?:>{'([^<]*)' if tag in _WANTED else '[^<]*'}</{tag}>| ?/>)"


def _read_each(text: str, cut: int, source: int, unreadable: list[tuple[Blob, Reason]]) -> list[Blob]:
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
        full = _decode(name.group(2), name.group(1) or "")
        # Portals and other tools make directories visible by an empty blob whose name ends in a slash.
        is_directory = full.endswith("/") or properties.get("ResourceType") == "directory" or _FOLDER_STUB.search(entry)
        if "Snapshot" in properties or (is_directory and not size):
            count -= 1
            continue
        md5, etag, encoding = (html.unescape(properties.get(tag, "")) for tag in _WANTED[1:])
        blobs.append(Blob(full[cut:], size, md5, etag, encoding, source))
        if is_directory:
            unreadable.append((blobs[-1], "folder"))
        elif _LINK.search(entry):
            unreadable.append((blobs[-1], "link"))
        elif properties.get("CustomerProvidedKeySha256"):
            unreadable.append((blobs[-1], "encrypted"))
        elif properties.get("AccessTier") == "Archive":
            unreadable.append((blobs[-1], "archived"))
    if len(blobs) != count:
        raise PageError("not every entry of a page could be read")
    return blobs


def _decode(name: str, encoded: str) -> str:
    plain = html.unescape(name)
    return urllib.parse.unquote(plain) if encoded == "true" else plain


__all__ = ["Page", "PageError", "Reason", "next_marker", "page_text", "parse_page"]
