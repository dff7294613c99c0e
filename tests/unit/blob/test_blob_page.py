# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages in every order of properties that a service may choose, and pages that are not whole."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.page import (
    PageError,
    Reason,
    page_text,
    parse_page,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.unreadable import check_readable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st

PROPERTIES = {
    "Etag": "<Etag>0x8D</Etag>",
    "Content-Length": "<Content-Length>{size}</Content-Length>",
    "Content-MD5": "<Content-MD5>bWQ1</Content-MD5>",
    "Content-Encoding": "<Content-Encoding>gzip</Content-Encoding>",
}


def page(*blobs: str, tail: str = "<NextMarker /></EnumerationResults>") -> str:
    return f'<?xml version="1.0"?><EnumerationResults><Blobs>{"".join(blobs)}</Blobs>{tail}'


def blob(name: str, properties: str, after: str = "") -> str:
    return f"<Blob><Name>{name}</Name><Properties>{properties}</Properties>{after}</Blob>"


@pytest.mark.parametrize("order", list(itertools.permutations(PROPERTIES)))
def test_any_order_of_properties(order: tuple[str, ...]) -> None:
    text = "<X>1</X>".join(PROPERTIES[key] for key in order)
    blobs = parse_page(page(*(blob(f"n{size}", text.format(size=size)) for size in range(3)))).blobs
    assert [tuple(one) for one in blobs] == [(f"n{size}", size, "bWQ1", "0x8D", "gzip", 0) for size in range(3)]


def test_blobs_of_different_layouts_on_one_page() -> None:
    blobs = parse_page(
        page(
            blob("a", "".join(PROPERTIES.values()).format(size=1)),
            blob("b", "<Content-Length>2</Content-Length>"),
            blob("c", "<Content-Encoding/><Content-MD5 /><Content-Length>3</Content-Length><Etag>e</Etag>"),
            blob("d", "".join(PROPERTIES.values()).format(size=4), "<Metadata><Etag>mine</Etag></Metadata>"),
        )
    ).blobs
    assert [(one.name, one.size, one.md5, one.etag, one.encoding) for one in blobs] == [
        ("a", 1, "bWQ1", "0x8D", "gzip"),
        ("b", 2, "", "", ""),
        ("c", 3, "", "e", ""),
        ("d", 4, "bWQ1", "0x8D", "gzip"),
    ]


TEXTS = st.text("ab/= ;0", max_size=3)
BLOBS = st.tuples(st.text("ab.", min_size=1, max_size=3), st.integers(0, 99), TEXTS, TEXTS, TEXTS)


@pytest.mark.slow
@given(st.permutations([*PROPERTIES, "Etag2", "X-1", "X-2"]), st.lists(st.tuples(BLOBS, TEXTS, TEXTS), max_size=6))
def test_every_blob_is_read_whatever_its_neighbors_look_like(order: list[str], drawn: list[t.Any]) -> None:
    """Properties of any length, alike or not, are read as they are: the fast ways give up where they do not fit."""
    entries = []
    for (name, size, md5, etag, encoding), one, two in drawn:
        values = {"Content-Length": str(size), "Content-MD5": md5, "Etag": etag, "Content-Encoding": encoding}
        values.update({"X-1": one, "X-2": two, "Etag2": etag + "2"})
        elements = [f"<{tag}>{values[tag]}</{tag}>" if values[tag] else f"<{tag} />" for tag in order]
        entries.append(blob(name, "".join(elements), f"<Metadata><Etag>{one}</Etag></Metadata>"))
    assert [tuple(one) for one in parse_page(page(*entries)).blobs] == [(*one, 0) for one, _x, _y in drawn]


def test_snapshots_are_left_out() -> None:
    one = blob("a", "<Content-Length>1</Content-Length>")
    old = one.replace("<Properties>", "<Snapshot>2026-01-01</Snapshot><Properties>")
    assert len(parse_page(page(old, one)).blobs) == 1


@pytest.mark.parametrize("neighbors", [0, 3])
def test_blobs_that_cannot_be_copied_are_told_with_the_reason(neighbors: int) -> None:
    plain = "".join(PROPERTIES.values()).format(size=7)
    hot, archive = (f"{plain}<AccessTier>{tier}</AccessTier>" for tier in ("Hot", "Archive"))
    result = parse_page(
        page(
            *(blob(f"a{number}", hot) for number in range(neighbors)),
            blob("b", archive),
            blob("c", hot, "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"),
            blob("d", hot, "<Metadata><AccessTier>Archive</AccessTier><x>Archive</x></Metadata>"),
            blob("l", hot, "<Metadata><Is_symlink>TRUE</Is_symlink></Metadata>"),
            blob("la", archive, "<Metadata><is_symlink>true</is_symlink></Metadata>"),
            blob("lf", hot, "<Metadata><is_symlink>false</is_symlink><was_symlink>true</was_symlink></Metadata>"),
            blob(
                "x",
                f"{hot}<CustomerProvidedKeySha256>q83v</CustomerProvidedKeySha256>",
                '<Metadata Encrypted="true" />',
            ),
            *(blob(f"e{number}", hot) for number in range(neighbors)),
        )
    )
    assert {one.name: reason for one, reason in result.unreadable} == {
        "b": "archived",
        "c": "folder",
        "l": "link",
        "la": "link",
        "x": "encrypted",
    }
    assert len(result.blobs) == 7 + 2 * neighbors


@pytest.mark.parametrize("reason", t.get_args(Reason))
def test_each_reason_is_a_refusal_that_names_the_blobs(reason: str) -> None:
    wanted = [Blob(f"b{number}", 1) for number in range(9)]
    with pytest.raises(ClusterError) as caught:
        check_readable({(0, f"b{number}"): reason for number in (2, 4)} | {(1, "b3"): reason}, wanted)
    assert caught.value.details["names"] == ["b2", "b4"]
    assert caught.value.kind == ("archived" if reason == "archived" else "bad_input")
    check_readable({(0, "other"): reason}, wanted)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("<is_symlink>true</is_symlink>", "link"),
        ("<hdi_isfolder>true</hdi_isfolder>", "folder"),
        ("", "archived"),
        ("", "encrypted"),
    ],
)
def test_one_such_blob_among_thousands_is_found(metadata: str, reason: str) -> None:
    """Pages without one are read by another way, which looks at no metadata."""
    hot = "".join(PROPERTIES.values()).format(size=7)
    own = hot
    own += "<AccessTier>Archive</AccessTier>" * (reason == "archived")
    own += "<CustomerProvidedKeySha256>q83v</CustomerProvidedKeySha256>" * (reason == "encrypted")
    marked = blob("marked", own, f"<Metadata>{metadata}</Metadata>")
    result = parse_page(page(*(blob(f"a{number}", hot) for number in range(2000)), marked))
    assert [(one.name, why) for one, why in result.unreadable] == [("marked", reason)]


def test_names_are_cut_and_sources_numbered() -> None:
    blobs = parse_page(page(blob("train/a", "<Content-Length>1</Content-Length>")), cut=6, source=3).blobs
    assert [(one.name, one.source) for one in blobs] == [("a", 3)]


def test_prefixes_and_marker() -> None:
    text = page(
        "<BlobPrefix><Name>a&amp;b/</Name></BlobPrefix>",
        blob("c", "<Content-Length>1</Content-Length>"),
        '<BlobPrefix><Name Encoded="true">d%01/</Name></BlobPrefix>',
        tail="<NextMarker>2!x&amp;y</NextMarker></EnumerationResults>\r\n",
    )
    result = parse_page(text)
    assert (result.prefixes, result.next_marker, len(result.blobs)) == (["a&b/", "d\x01/"], "2!x&y", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>proxy</html>",
        page()[:-1],
        page(tail="</EnumerationResults>"),
        page(tail="<NextMarker>x</EnumerationResults>"),
        page("<Blob><Name>a</Name><Properties><Etag>x</Etag></Properties></Blob>"),
        page("<Blob><Name>a</Name><Properties><Content-Length>x</Content-Length></Properties></Blob>"),
        page("<Blob><Name>a<Name></Blob>"),
        page("<Blob><Name>a</Name><Properties><Content-Length>1</Content-Length></Properties>"),
    ],
)
def test_what_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(PageError):
        parse_page(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    whole = page(blob("a", "<Content-Length>1</Content-Length>")).encode()
    assert page_text(b"\xef\xbb\xbf" + whole).encode() == whole
    with pytest.raises(PageError):
        page_text(whole.replace(b"<Name>a", b"<Name>\xff"))
