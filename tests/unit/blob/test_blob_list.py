# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listing against a server that serves real XML and can be told to fail."""

from __future__ import annotations

import http.server
import pathlib
import threading
import time
import typing as t
from unittest import mock

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob import catalogue, patience
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.capacity import Capacity, free_memory_bytes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.catalogue import (
    build_manifest,
    directory_prefix,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.blob.listed import list_blobs
from lab.list_server import Entry, Fault, ListServer, dataset, in_process

SECRET = "s3cr3t-signature"
SAS = f"sv=2021-12-02&sp=rl&se=2099-01-01T00:00:00Z&sig={SECRET}"
PATIENCE: dict[str, t.Any] = {"timeout_s": 120, "retries": 2, "deadline_s": 240}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FIRST_PAUSE_S", 0.01)


def names_of(server: ListServer, prefix: str = "", **options: t.Any) -> list[str]:
    return [blob.name for blob in list_blobs(server.url, prefix, **{**PATIENCE, **options})]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 95])
def test_all_pages_and_no_call_too_many(count: int) -> None:
    names = dataset(count)
    with in_process(names) as server:
        assert names_of(server, page_size=10) == names
        assert server.stats["LIST"] == max(-(-count // 10), 1)


def test_every_property_is_read() -> None:
    entries = [
        Entry("a.gz", 12345678901, "q83vEjRWeJCrze8SNFZ4kA==", "0x8DE1", "gzip"),
        Entry("b", 0, "", "0x8DE2"),
        Entry("c", 7, "x==", "&quot;0x8DE3&quot;", "a&amp;b"),
    ]
    with in_process(entries) as server:
        blobs = list(list_blobs(server.url, **PATIENCE))
    assert [tuple(blob) for blob in blobs] == [
        ("a.gz", 12345678901, "q83vEjRWeJCrze8SNFZ4kA==", "0x8DE1", "gzip", 0),
        ("b", 0, "", "0x8DE2", "", 0),
        ("c", 7, "x==", '"0x8DE3"', "a&b", 0),
    ]


ODD = ["a&b<c>.gz", "a;b", "a[0]", "a b", "ünï/日本", "q'\"", "100%", "%41", "plus+", "&amp;"]


def test_odd_names_arrive_as_they_are() -> None:
    with in_process(ODD) as server:
        assert names_of(server) == sorted(ODD)
        assert names_of(server, page_size=2) == sorted(ODD)
        assert names_of(server, prefix="ünï/") == ["ünï/日本"]
        assert [blob.name for blob in build_manifest([{"url": server.url, "prefix": "ünï"}]).blobs] == ["日本"]


def test_percent_encoded_names_are_decoded_and_only_they() -> None:
    with in_process(
        [Entry("ctl\x01.gz", encoded=True), Entry("plain%20.gz"), Entry("x%25.gz", encoded=True)]
    ) as server:
        assert names_of(server) == ["ctl\x01.gz", "plain%20.gz", "x%25.gz"]


def test_directories_are_left_out() -> None:
    entries = [
        Entry("d", 0, resource="directory"),
        Entry("d/f", 1, resource="file"),
        Entry("stub", 0, metadata="<hdi_isfolder>true</hdi_isfolder>"),
        Entry("upper", 0, metadata="<Hdi_isfolder>True</Hdi_isfolder>"),
        Entry("file", 0, metadata="<hdi_isfolder>false</hdi_isfolder>"),
        Entry("stub/f", 2),
    ]
    with in_process(entries) as server:
        assert names_of(server) == ["d/f", "file", "stub/f"]


@pytest.mark.parametrize("mark", ["", "<other>x</other>"])
def test_empty_blobs_that_make_directories_visible_are_left_out(mark: str) -> None:
    """``train/`` without bytes and without ``hdi_isfolder``: portals and object stores' tools make such ones."""
    entries = [
        Entry("train/", 0, metadata=mark),
        Entry("train/a", 3),
        Entry("train/empty", 0),
        Entry("train/sub\x01/", 0, encoded=True),
    ]
    with in_process(entries) as server:
        assert names_of(server) == ["train/a", "train/empty"]
        assert [blob.name for blob in build_manifest([{"url": server.url, "prefix": "train"}]).blobs] == ["a", "empty"]


def test_a_name_that_ends_in_a_slash_but_has_content_is_no_marker() -> None:
    with in_process([Entry("train/", 3), Entry("train/a", 3)]) as server:
        assert names_of(server) == ["train/", "train/a"]


def test_metadata_named_like_properties_do_not_confuse() -> None:
    fake = "<Etag>fake</Etag><Content-Length>9</Content-Length><Snapshot>x</Snapshot>"
    with in_process([Entry("a", 3, metadata=fake), Entry("b", 4)]) as server:
        assert [(blob.name, blob.size, blob.etag[:3]) for blob in list_blobs(server.url)] == [
            ("a", 3, "0x8"),
            ("b", 4, "0x8"),
        ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        [Fault("status", times=2)],
        [Fault("status", status=500, code="InternalError")],
        [Fault("drop", times=2)],
        [Fault("truncate")],
        [Fault("cut")],
        [Fault("status", after=3), Fault("drop", after=5), Fault("truncate", after=7)],
        [Fault("hang", seconds=5)],
    ],
    ids=lambda faults: "-".join(fault.kind for fault in faults),
)
def test_passing_faults_are_ridden_out(faults: list[Fault]) -> None:
    names = dataset(95)
    with in_process(names) as server:
        server.faults = list(faults)
        # A hanging request must be given up, and a busy machine may let more of them go by.
        hurry = {"timeout_s": 2, "retries": 50} if faults[0].kind == "hang" else {}
        assert names_of(server, page_size=10, **hurry) == names
        assert server.faults == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "fragment"),
    [
        (Fault("status", times=99, status=500, code="InternalError"), "keeps answering HTTP 500 InternalError"),
        (Fault("drop", times=99), "does not answer"),
        (Fault("truncate", times=99), "the answer was cut short"),
        (Fault("cut", times=99), "the listing of .* is incomplete"),
        (Fault("hang", times=99, seconds=3), "no answer in time"),
        (Fault("truncate", times=99, after=3), "the answer was cut short"),
    ],
)
def test_lasting_faults_end_as_unreachable_and_never_short(fault: Fault, fragment: str) -> None:
    with in_process(dataset(95)) as server:
        server.faults = [fault]
        hurry = {"timeout_s": 0.5} if fault.kind == "hang" else {}
        with pytest.raises(ClusterError, match=f"(?i){fragment}") as caught:
            names_of(server, page_size=10, sas=SAS, **hurry)
        assert server.faults[0].times >= 99 - 3, "a page is asked for once and twice again"
        assert caught.value.kind == "unreachable"
        assert_clean(caught.value)


@pytest.mark.slow
def test_a_busy_service_is_asked_until_the_deadline_and_after_the_pause_it_names() -> None:
    names = dataset(95)
    with in_process(names) as server:
        # More often than any other fault is ridden out.
        server.faults = [Fault("status", times=6), Fault("status", status=429, code="TooManyRequests", retry_after="1")]
        began = time.monotonic()
        assert names_of(server, page_size=10, retries=0) == names
        assert time.monotonic() - began >= 1
        server.faults = [Fault("status", times=99)]
        with pytest.raises(ClusterError, match="keeps answering HTTP 503 ServerBusy") as caught:
            names_of(server, page_size=10, sas=SAS, deadline_s=2)
        assert caught.value.kind == "unreachable"
        assert_clean(caught.value)
        # A pause that ends after the deadline is not waited for.
        server.faults = [Fault("status", retry_after="3600")]
        with pytest.raises(ClusterError, match="keeps answering HTTP 503"):
            names_of(server, page_size=10)


@pytest.mark.slow
def test_an_answer_that_trickles_is_cut_at_the_deadline() -> None:
    hung_up = threading.Event()
    sent: list[bytes] = []

    class Trickle(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            try:
                for _byte in range(999):
                    self.wfile.write(b" ")
                    sent.append(b" ")
                    time.sleep(0.2)
            except OSError:
                hung_up.set()

        def log_message(self, *_arguments: object) -> None:
            pass

    with serving(Trickle) as address:
        # No byte comes late, only all of them together.
        with pytest.raises(ClusterError, match="no answer in time"):
            list(list_blobs(f"{address}/a/c", timeout_s=120, deadline_s=1))
        assert hung_up.wait(120)
    assert len(sent) < 999


def test_a_connection_that_is_refused_ends_the_listing() -> None:
    with in_process([]) as server:
        url = server.url
    with pytest.raises(ClusterError, match="Connection refused") as caught:
        list(list_blobs(url, sas=SAS, retries=2, deadline_s=240))
    assert caught.value.kind == "unreachable"
    assert_clean(caught.value)


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(ClusterError, match="cannot be resolved") as caught:
        list(list_blobs("https://nowhere.invalid/c", sas=SAS, retries=0, deadline_s=240))
    assert caught.value.kind == "unreachable"


@pytest.mark.parametrize(
    ("fault", "sas", "kind", "fragment"),
    [
        (Fault("status", status=403, code="AuthorizationFailure"), SAS, "auth_failed", "copied whole"),
        (Fault("status", status=403, code="AuthenticationFailed"), "", "auth_failed", "Give a SAS"),
        (Fault("status", status=403, code="AuthorizationPermissionMismatch"), SAS, "auth_failed", "sp=rl"),
        (Fault("status", status=403, code="X"), SAS.replace("sp=rl", "sp=r"), "auth_failed", "sp=rl"),
        (Fault("status", status=403, code="X"), SAS.replace("2099", "2001"), "sas_expired", "expired on 2001-01-01"),
        (Fault("status", status=403, code="X"), f"st=2098-01-01&{SAS}", "auth_failed", "valid only from 2098"),
        (Fault("status", status=401, code="NoAuthenticationInformation"), "", "auth_failed", "Give a SAS"),
        (Fault("status", status=409, code="PublicAccessNotPermitted"), "", "auth_failed", "Give a SAS"),
        (Fault("status", status=404, code="ContainerNotFound"), SAS, "container_missing", "does not exist"),
        (Fault("status", status=404, code="ResourceNotFound"), "", "auth_failed", "anonymous"),
        (Fault("status", status=400, code="InvalidUri"), SAS, "bad_input", "HTTP 400 InvalidUri"),
        (
            Fault(
                "status",
                status=403,
                code="AuthenticationFailed",
                text="Signature not valid in the specified time frame",
            ),
            SAS,
            "sas_expired",
            "outside its time",
        ),
    ],
)
def test_refusals_are_named_at_once(fault: Fault, sas: str, kind: str, fragment: str) -> None:
    with in_process(dataset(5)) as server:
        server.faults = [fault]
        with pytest.raises(ClusterError, match=fragment) as caught:
            names_of(server, sas=sas)
        assert caught.value.kind == kind
        assert server.stats["LIST"] == 1
        assert_clean(caught.value)


def test_the_sas_is_sent_with_or_without_its_question_mark() -> None:
    with in_process(dataset(3), signature=SECRET) as server:
        assert len(names_of(server, sas=SAS)) == len(names_of(server, sas=f"?{SAS}\n")) == 3
        with pytest.raises(ClusterError) as caught:
            names_of(server, sas=SAS.replace(SECRET, "other"))
        assert caught.value.kind == "auth_failed"


@pytest.mark.parametrize(
    "sas", [f"{SAS}\n&x=y z", SAS.replace("sig=", "sig=\u200b")], ids=["control characters", "zero width"]
)
def test_a_sas_with_a_character_that_cannot_be_sent_is_refused_without_repeating_it(sas: str) -> None:
    with pytest.raises(ClusterError) as caught:
        list(list_blobs("http://127.0.0.1:9/a/c", sas=sas))
    assert caught.value.kind == "bad_input"
    assert_clean(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("url", ["ftp://host/c", "https://host", "https://host/", "host/c", f"https://h/c?{SAS}"])
def test_what_is_no_container_is_refused(url: str) -> None:
    with pytest.raises(ClusterError) as caught:
        list(list_blobs(url))
    assert caught.value.kind == "bad_input"
    assert_clean(caught.value)


def test_a_page_that_names_itself_as_the_next_does_not_loop() -> None:
    class Loop(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = b"<EnumerationResults><Blobs /><NextMarker>m</NextMarker></EnumerationResults>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with serving(Loop) as address, pytest.raises(ClusterError, match="same marker"):
        list(list_blobs(f"{address}/a/c"))


def test_several_sources_become_one_dataset() -> None:
    with in_process(["train/a", "train/b", "other/x"]) as one, in_process(["c", "d"]) as two:
        manifest = build_manifest(
            [{"url": one.url, "prefix": "/train/", "sas": SAS}, {"url": f"{two.url}/", "prefix": ""}],
            login=lambda refused: "t",
        )
    assert [(blob.name, blob.source) for blob in manifest.blobs] == [("a", 0), ("b", 0), ("c", 1), ("d", 1)]
    assert manifest.sources == [{"url": one.url, "prefix": "train/"}, {"url": two.url, "prefix": ""}]
    assert SECRET not in repr(manifest.sources)


def test_a_prefix_is_a_directory() -> None:
    assert [directory_prefix(text) for text in ("", "/", "a", "/a/", "a/b")] == ["", "", "a/", "a/", "a/b/"]
    with in_process(["train/a", "train2/b", "train.txt"]) as server:
        assert [blob.name for blob in build_manifest([{"url": server.url, "prefix": "train"}]).blobs] == ["a"]


@pytest.mark.parametrize(("prefix", "kind"), [("val", "not_found"), ("", "no_match")])
def test_nothing_there_is_an_error(prefix: str, kind: str) -> None:
    with in_process(["train/a"] if prefix else []) as server, pytest.raises(ClusterError) as caught:
        build_manifest([{"url": server.url, "prefix": prefix}])
    assert caught.value.kind == kind


def test_one_bad_source_stops_the_others() -> None:
    with in_process(dataset(5000), list_delay_s=0.02) as good, in_process([], missing_containers=["data"]) as bad:
        with pytest.raises(ClusterError) as caught:
            build_manifest([{"url": good.url, "prefix": ""}, {"url": bad.url, "prefix": ""}], page_size=1, **PATIENCE)
        assert caught.value.kind == "container_missing"
        assert good.stats["LIST"] < 5000


@pytest.mark.parametrize(
    ("names", "extra_calls"),
    [
        (dataset(100), 1),
        (dataset(100, directories=5), 5),
        ([f"top/{name}" for name in dataset(100, directories=5)], 6),
        ([*dataset(60, directories=3), "train/README", "train/z.txt"], 5),
        ([f"train/{number:03d}/f" for number in range(200)], 1),
    ],
    ids=["flat", "directories", "one level down", "files beside", "too many"],
)
def test_directories_are_listed_side_by_side_with_few_more_calls(names: list[str], extra_calls: int) -> None:
    with in_process(names) as server:
        manifest = build_manifest([{"url": server.url, "prefix": ""}], page_size=10)
        assert [blob.name for blob in manifest.blobs] == sorted(names)
        assert server.stats["LIST"] <= -(-len(names) // 10) + extra_calls + 1


def test_a_small_container_costs_its_pages_whatever_its_directories() -> None:
    names = dataset(60, directories=12)
    with in_process(names) as server:
        manifest = build_manifest([{"url": server.url, "prefix": ""}], page_size=10)
        assert [blob.name for blob in manifest.blobs] == sorted(names)
        assert server.stats["LIST"] == 6


def listed_whole(server: ListServer, prefix: str) -> int:
    """How many pages were asked for all that is below a prefix, whatever the depth."""
    return sum(query.get("prefix", "") == prefix and "delimiter" not in query for query in server.queries)


@pytest.mark.parametrize(
    "names",
    [
        [f"train/{number:03d}/f{file}" for number in range(300) for file in range(10)],
        [*(f"train/{number:03d}/f{file}" for number in range(300) for file in range(10)), "val/a", "val/b"],
        [*(f"train/{number:03d}/f{file}" for number in range(300) for file in range(10)), "train/.x", "train/z"],
    ],
    ids=["one level down", "two directories above", "files beside"],
)
def test_directories_that_fill_pages_are_listed_side_by_side_however_many_there_are(names: list[str]) -> None:
    """300 directories, of which 128 were the most: all pages came one after the other."""
    with in_process(names) as server:
        manifest = build_manifest([{"url": server.url, "prefix": ""}], page_size=10)
        assert [blob.name for blob in manifest.blobs] == sorted(names)
        assert listed_whole(server, "") + listed_whole(server, "train/") <= 20, "the rest is listed by directories"
        assert server.stats["LIST"] <= 300 + 40


def test_a_name_with_an_empty_component_is_listed_beside_a_directory_called_like_its_parent() -> None:
    """``train//`` below ``train/`` was taken for ``train/train/``, which had been listed already."""
    names = [
        *(f"train/-a/{number}" for number in range(6)),
        "train//lost",
        *(f"train/train/{number:02d}" for number in range(12)),
        *(f"train/zz/{number:02d}" for number in range(12)),
    ]
    with in_process(names) as server:
        manifest = build_manifest([{"url": server.url, "prefix": "train"}], page_size=3)
        assert listed_whole(server, "train/") < 11, "the rest is listed by directories"
    assert [f"train/{blob.name}" for blob in manifest.blobs] == sorted(names)


# Few components, so that a directory is often called like its parent: "" between two slashes, "-" sorts before the slash.
DIRECTORIES = st.lists(st.sampled_from(["", "a", "-", "b"]), max_size=3).map(
    lambda parts: "".join(f"{p}/" for p in parts)
)


@pytest.mark.slow
def test_a_listing_is_what_is_there_whatever_the_names_and_the_size_of_a_page() -> None:
    with in_process([]) as server:

        @given(
            st.dictionaries(DIRECTORIES, st.integers(1, 8), min_size=1, max_size=12),
            st.sets(DIRECTORIES.filter(bool), max_size=3),
            st.integers(1, 3),
            st.integers(1, 12),
            st.sampled_from(["", "a", "a/a"]),
        )
        @settings(max_examples=200)
        def is_listed(files: dict[str, int], marked: set[str], page_size: int, pages: int, prefix: str) -> None:
            base = directory_prefix(prefix)
            names = {f"{directory}{number}" for directory, count in files.items() for number in range(count)} | marked
            server.names = sorted(base + name for name in names)
            with mock.patch.object(catalogue, "SPLIT_AFTER_PAGES", pages):
                manifest = build_manifest([{"url": server.url, "prefix": prefix}], page_size=page_size)
            assert [base + blob.name for blob in manifest.blobs] == server.names

        is_listed()


def test_what_nobody_can_copy_beside_the_directories_of_a_large_container_is_named() -> None:
    names = [f"train/{number:03d}/f{file}" for number in range(20) for file in range(10)]
    marked = Entry("train/z", 4, metadata="<hdi_isfolder>true</hdi_isfolder>")
    with in_process([*map(Entry, names), marked]) as server:
        manifest = build_manifest([{"url": server.url, "prefix": ""}], page_size=10)
        assert listed_whole(server, "") < 20, "the rest is listed by directories"
    assert [blob.name for blob in manifest.blobs] == [*names, "train/z"]
    assert manifest.unreadable == {(0, "train/z"): "folder"}


def test_a_listing_with_too_many_names_is_refused_before_all_are_read() -> None:
    with in_process(dataset(5000)) as server:
        for capacity, reason in (
            (Capacity(0, most=100), "more than 100 names, which is the most"),
            (Capacity(20_000), r"more than 100 names\. To plan them takes about 200 bytes .* 0\.0 GB are free"),
        ):
            server.stats["LIST"] = 0
            with pytest.raises(ClusterError, match=reason) as caught:
                build_manifest([{"url": server.url, "prefix": ""}], page_size=10, capacity=capacity)
            assert caught.value.kind == "bad_input"
            assert server.stats["LIST"] < 30
        assert len(build_manifest([{"url": server.url}], capacity=Capacity(1_000_000, most=5000)).blobs) == 5000


def test_ten_to_the_eight_names_are_refused_whatever_the_memory(tmp_path: pathlib.Path) -> None:
    capacity = Capacity(2 * 10**12)
    capacity.add(50_000_000)
    with pytest.raises(ClusterError, match="50000000 names"):
        capacity.add(1)
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       10 kB\nMemFree:         1 kB\nMemAvailable:       4 kB\n")
    assert free_memory_bytes(str(meminfo)) == 4096
    meminfo.write_text("MemTotal:       10 kB\n")
    assert free_memory_bytes(str(meminfo)) == free_memory_bytes(str(tmp_path / "none")) == 0
    assert free_memory_bytes() > 1 << 20


def test_https_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append((self.path, self.headers["Proxy-Authorization"]))
            self.send_error(502)

        def log_message(self, *_arguments: object) -> None:
            pass

    with serving(Proxy) as address:
        monkeypatch.setenv("https_proxy", address.replace("http://", "http://me:p%40ss@"))
        monkeypatch.setenv("no_proxy", "direct.invalid")
        for host, fragment in (("example.invalid", "Tunnel connection failed: 502"), ("direct.invalid", "resolved")):
            with pytest.raises(ClusterError, match=fragment) as caught:
                list(list_blobs(f"https://{host}/c", sas=SAS, retries=0, deadline_s=240))
            assert_clean(caught.value)
    assert asked == [("example.invalid:443", "Basic bWU6cEBzcw==")]


def assert_clean(error: ClusterError) -> None:
    assert SECRET not in f"{error} {error.as_result()} {error.__cause__!r}"
    assert error.remedy


class serving:  # noqa: N801 - reads as the statement it is
    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_arguments: None  # type: ignore[method-assign]  # clients may hang up

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
