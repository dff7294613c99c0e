# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""URLs and secrets."""

from __future__ import annotations

import calendar
import json
import string
import urllib.parse

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import (
    clean_sas,
    join_sas,
    parse_blob_url,
    redact,
    sas_expiry,
    split_sas,
    with_address,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st

SAS = "sv=2021-12-02&se=2026-11-21T11%3A05%3A20Z&sp=rl&sig=L1gGf41k%2BR%2FoWSl5ACw%3D"


@pytest.mark.parametrize(
    ("url", "account", "container", "path", "container_url"),
    [
        ("https://acc.blob.core.windows.net/data", "", "data", "", "https://acc.blob.core.windows.net/data"),
        ("https://acc.z12.blob.storage.azure.net/$web/a", "", "$web", "a", "https://acc.z12.blob.storage.azure.net/$web"),
        ("https://acc.blob.core.windows.net/data/a%20b/c/", "", "data", "a b/c", "https://acc.blob.core.windows.net/data"),
        ("https://files.example.org/data/x", "", "data", "x", "https://files.example.org/data"),
        ("http://127.0.0.1:10000/devstoreaccount1/data/p", "devstoreaccount1", "data", "p", "http://127.0.0.1:10000/devstoreaccount1/data"),
        ("http://[::1]:10000/acc/data", "acc", "data", "", "http://[::1]:10000/acc/data"),
        ("http://blob:10000/acc/data", "acc", "data", "", "http://blob:10000/acc/data"),
        ("http://blob.lab.internal:10000/acc/data", "acc", "data", "", "http://blob.lab.internal:10000/acc/data"),
    ],
)  # fmt: skip
def test_parse(url: str, account: str, container: str, path: str, container_url: str) -> None:
    parsed = parse_blob_url(url)
    assert (parsed.account, parsed.container, parsed.path) == (account, container, path)
    assert parsed.container_url == container_url
    assert parse_blob_url(str(parsed)) == parsed


@pytest.mark.parametrize(
    "url",
    [
        "data", "ftp://acc.blob.core.windows.net/data", "https://acc.blob.core.windows.net", "https:///data",
        "https://acc.blob.core.windows.net/UPPER", "https://acc.blob.core.windows.net/a--b", "http://127.0.0.1:10000/acc",
        "https://user:pass@acc.blob.core.windows.net/data",
    ],
)  # fmt: skip
def test_parse_refuses(url: str) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_blob_url(url)
    assert caught.value.kind == "bad_input"


def test_a_refused_url_does_not_show_its_sas() -> None:
    with pytest.raises(ClusterError) as caught:
        parse_blob_url(f"https://acc.blob.core.windows.net/?{SAS}")
    assert "L1gGf41k" not in str(caught.value)


@pytest.mark.parametrize("text", [SAS, f"?{SAS}", f"  ?{SAS}\n", f"&{SAS}"])
def test_clean_and_join(text: str) -> None:
    assert clean_sas(text) == SAS
    assert join_sas("https://a/b", text) == f"https://a/b?{SAS}"
    assert split_sas(f"https://a/b?{SAS}") == ("https://a/b", SAS)


@pytest.mark.parametrize(
    "text", ["sv=1&se=2", "sv=1&sig=a b", 'sv=1&sig="x"', "hello", "sv=1&sig=a\u200bb", "sv=1&sig=\u00e4"]
)
def test_what_is_no_sas_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        clean_sas(text)
    assert caught.value.kind == "bad_input"
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-21T11%3A05%3A20Z", (2026, 11, 21, 11, 5, 20)),
        ("2026-11-21T11:05Z", (2026, 11, 21, 11, 5, 0)),
        ("2026-11-21", (2026, 11, 21, 0, 0, 0)),
        ("2026-11-21T11:05:20.1234567Z", (2026, 11, 21, 11, 5, 20)),
        ("soon", None),
    ],
)
def test_expiry(value: str, expected: tuple[int, ...] | None) -> None:
    assert sas_expiry(f"?sv=1&se={value}&sig=x") == (calendar.timegm((*expected, 0, 0, 0)) if expected else None)
    assert sas_expiry("si=policy&sig=x") is None


SIGNATURE = "L1gGf41k+R/oWSl5ACw="


@pytest.mark.parametrize(
    "text",
    [
        f"GET https://a/b?{SAS}",
        f"GET https://a/b?{urllib.parse.unquote(SAS)}",
        json.dumps({"url": f"https://a/b?{SAS}"}).replace("&", "\\u0026"),
        urllib.parse.quote(f"https://a/b?{SAS}", safe=""),
        f"signature {SIGNATURE}",
        f"signature {urllib.parse.quote(SIGNATURE, safe='')}",
        "signature L1gGf41k%2bR%2foWSl5ACw%3d",
        json.dumps(SIGNATURE).replace("/", "\\/"),
    ],
)  # fmt: skip
def test_redact_every_spelling(text: str) -> None:
    cleaned = redact(text, f"?{SAS}")
    assert "L1gGf41k" not in cleaned
    assert "oWSl5ACw" not in cleaned


def test_redact_knows_signatures_that_nobody_told_it() -> None:
    assert redact("x?sv=1&sig=abc%2Bdef&se=2") == "x?sv=1&sig=REDACTED&se=2"
    assert redact("design=nice and signal") == "design=nice and signal"
    assert redact("", None, "") == ""


@given(
    st.text(alphabet=string.ascii_letters + string.digits + "+/", min_size=20, max_size=60),
    st.text(alphabet=" ?=.-é{}", max_size=30),
)
def test_redact_any_signature(signature: str, around: str) -> None:
    sas = urllib.parse.urlencode({"sv": "1", "sig": signature + "="})
    for text in (sas, signature + "=", urllib.parse.quote(sas, safe="")):
        assert signature not in urllib.parse.unquote(urllib.parse.unquote(redact(f"{around} {text} {around}", sas)))


def test_an_emulator_by_name_is_given_to_azcopy_by_address() -> None:
    assert str(with_address(parse_blob_url("http://localhost:10000/acc/data"))) == "http://127.0.0.1:10000/acc/data"
    for url in (
        "https://acc.blob.core.windows.net/data",
        "http://10.0.0.1:10000/acc/data",
        "https://blob:10000/acc/data",
    ):
        assert str(with_address(parse_blob_url(url))) == url
    with pytest.raises(ClusterError) as caught:
        with_address(parse_blob_url("http://no-such-host-here:10000/acc/data"))
    assert caught.value.kind == "unreachable"
