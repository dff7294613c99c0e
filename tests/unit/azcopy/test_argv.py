# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From requests to command lines: what AzCopy is told, and what it is never told."""

from __future__ import annotations

import dataclasses
import math
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import (
    MAX_ARGUMENT_BYTES,
    CopyRequest,
    block_size_mib,
    build_argv,
    build_environment,
    check_request,
    split_request,
    suggest_processes,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings, check_settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st

URL = "https://acc.blob.core.windows.net/data/train"
SAS = "sv=1&sig=abcdefgh"
DOWN = CopyRequest("/usr/bin/azcopy", URL, "/mnt/out", sas=SAS)
UP = CopyRequest("/usr/bin/azcopy", "/mnt/in", URL, sas=SAS)

COMMON = "--output-type json --log-level ERROR --overwrite true"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (DOWN, f"copy {URL}?{SAS} /mnt/out --from-to BlobLocal --check-md5 FailIfDifferent {COMMON} --recursive --as-subdir=false"),
        (UP, f"copy /mnt/in {URL}?{SAS} --from-to LocalBlob {COMMON} --recursive --as-subdir=false"),
        (
            dataclasses.replace(DOWN, recursive=False, include_pattern="a*", check_md5="NoCheck", dry_run=True),
            f"copy {URL}/*?{SAS} /mnt/out --from-to BlobLocal --check-md5 NoCheck {COMMON} --include-pattern a* --dry-run",
        ),
        (
            dataclasses.replace(DOWN, decompress=True, cap_mbps=20),
            f"copy {URL}?{SAS} /mnt/out --from-to BlobLocal --check-md5 FailIfDifferent {COMMON} --recursive --as-subdir=false"
            " --decompress --cap-mbps 20 --block-size-mb 2",
        ),
        (
            dataclasses.replace(UP, put_md5=True, content_encoding="gzip", cap_mbps=2300),
            f"copy /mnt/in {URL}?{SAS} --from-to LocalBlob {COMMON} --recursive --as-subdir=false --put-md5"
            " --content-encoding gzip --cap-mbps 2300",
        ),
        (
            dataclasses.replace(DOWN, source=f"{URL}?{SAS}", sas=""),
            f"copy {URL}?{SAS} /mnt/out --from-to BlobLocal --check-md5 FailIfDifferent {COMMON} --recursive --as-subdir=false",
        ),
    ],
    ids=["download", "upload", "one level", "unpack with cap", "compressed upload", "sas in the url"],
)  # fmt: skip
def test_argv(request_: CopyRequest, expected: str) -> None:
    check_request(request_)
    assert " ".join(build_argv(request_)) == f"/usr/bin/azcopy {expected}"


def test_a_list_goes_by_file_and_names_are_quoted_in_urls() -> None:
    request = dataclasses.replace(DOWN, source="https://acc.blob.core.windows.net/data/a b/ü")
    argv = build_argv(request, list_file="/run/list")
    assert argv[argv.index("--list-of-files") + 1] == "/run/list"
    assert argv[2] == f"https://acc.blob.core.windows.net/data/a%20b/%C3%BC?{SAS}"


def test_the_secret_is_in_no_representation() -> None:
    assert "abcdefgh" not in repr(DOWN)


@given(st.floats(min_value=0.05, max_value=100_000))
def test_a_block_always_passes_the_cap(cap: float) -> None:
    block = block_size_mib(dataclasses.replace(DOWN, cap_mbps=cap))
    assert block * 1024 * 1024 <= cap * 125_000
    # AzCopy's own 8 MiB are left alone where they pass, and otherwise at least half of what would pass is used.
    assert (block or 8) * 1024 * 1024 >= min(8 * 1024 * 1024, cap * 125_000 / 2)
    assert float(block * 1024 * 1024).is_integer()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"destination": "https://b.blob.core.windows.net/data"}, "Exactly one"),
        ({"source": "/mnt/in"}, "Exactly one"),
        ({"destination": "out"}, "relative"),
        ({"include_pattern": ""}, "copy everything"),
        ({"include_pattern": " ; "}, "copy everything"),
        ({"include_pattern": "*_000*,*_001*"}, "commas"),
        ({"include_pattern": "a" * MAX_ARGUMENT_BYTES}, "more than Linux accepts"),
        ({"file_list": []}, "file_list is empty"),
        ({"file_list": ["a\nb"]}, "line break"),
        ({"file_list": ["/etc/passwd"]}, "absolute"),
        ({"file_list": ["a/../../b"]}, r"`\.\.`"),
        ({"file_list": ["ü", "caf\udce9"]}, r"The entry 'caf\\udce9' of file_list is not UTF-8"),
        ({"file_list": ["a"], "include_pattern": "a"}, "Both"),
        ({"content_encoding": "gzip"}, "upload only"),
        ({"identity": "magic"}, "unknown"),
        ({"cap_mbps": -1}, "negative"),
        ({"cap_mbps": math.nan}, "negative"),
        ({"cap_mbps": math.inf}, "negative"),
        ({"block_size_mib": math.nan}, "negative"),
        ({"block_size_mib": 0.3}, r"0\.3, which is 314572\.8 bytes\. AzCopy takes whole bytes only"),
        ({"cap_mbps": 0.01}, "too low"),
        ({"cap_mbps": 50, "block_size_mib": 8}, "do not pass a cap"),
        ({"sas": "nothing"}, "not a shared access signature"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, t.Any], words: str) -> None:
    with pytest.raises(ClusterError, match=words) as caught:
        check_request(dataclasses.replace(DOWN, **change))
    assert caught.value.kind == "bad_input"


@pytest.mark.parametrize("size_mib", [0.25, 0.5, 1 / 1024, 8])
def test_a_block_of_whole_bytes_is_taken(size_mib: float) -> None:
    check_request(dataclasses.replace(DOWN, block_size_mib=size_mib))


@pytest.mark.parametrize("destination", ["/", "//", "/mnt/.."])
def test_the_root_of_the_node_is_no_destination(destination: str) -> None:
    with pytest.raises(ClusterError, match="Name a directory below it"):
        check_request(dataclasses.replace(DOWN, destination=destination))


@pytest.mark.parametrize("name", ["timeout_s", "stall_timeout_s", "processes", "expected_files", "expected_bytes"])
def test_a_negative_number_is_refused_by_its_name(name: str) -> None:
    """A copy with a negative time would be ended at once, as one that took too long."""
    check_settings(Settings(**{name: 0}))
    with pytest.raises(ClusterError, match=f"^{name} is -1: ") as caught:
        check_settings(Settings(**{name: -1}))
    assert caught.value.kind == "bad_input"


def test_a_comma_in_a_name_is_no_list() -> None:
    check_request(dataclasses.replace(DOWN, include_pattern="a,b*.gz"))


def test_unpacking_an_upload_is_refused() -> None:
    with pytest.raises(ClusterError, match="downloads only"):
        check_request(dataclasses.replace(UP, decompress=True))


def test_environment() -> None:
    base = {"PATH": "/bin", "AZCOPY_CONCURRENCY_VALUE": "1", "AZCOPY_TENANT_ID": "t", "AZCOPY_LOG_LOCATION": "/home"}
    request = dataclasses.replace(DOWN, log_dir="/var/l", plan_dir="/var/p", concurrency=10, identity="msi")
    with_sas = build_environment(request, base)
    assert with_sas["PATH"] == "/bin"
    assert with_sas["AZCOPY_TENANT_ID"] == "t"
    assert (with_sas["AZCOPY_LOG_LOCATION"], with_sas["AZCOPY_JOB_PLAN_LOCATION"]) == ("/var/l", "/var/p")
    assert with_sas["AZCOPY_CONCURRENCY_VALUE"] == "10"
    assert "AZCOPY_AUTO_LOGIN_TYPE" not in with_sas
    assert "abcdefgh" not in str(with_sas)
    without = build_environment(dataclasses.replace(request, sas="", identity_client_id="id", concurrency=0), base)
    assert (without["AZCOPY_AUTO_LOGIN_TYPE"], without["AZCOPY_MSI_CLIENT_ID"]) == ("MSI", "id")
    assert "AZCOPY_CONCURRENCY_VALUE" not in without


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ({}, None),
        ({"https_proxy": "http://p:8"}, None),
        ({"http_proxy": "http://p:8"}, "169.254.169.254"),
        ({"HTTP_PROXY": "http://p:8", "no_proxy": "lan,.local"}, "lan,.local,169.254.169.254"),
    ],
)
def test_the_metadata_service_is_not_behind_a_proxy(base: dict[str, str], expected: str | None) -> None:
    request = dataclasses.replace(DOWN, sas="", identity="msi")
    assert build_environment(request, base).get("NO_PROXY") == expected
    assert build_environment(dataclasses.replace(request, identity="none"), base).get("NO_PROXY") is None


@given(st.integers(1, 40), st.integers(1, 12))
def test_shares_of_a_list_are_exact(files: int, processes: int) -> None:
    names = [f"f{number}" for number in range(files)]
    request = dataclasses.replace(DOWN, file_list=names, processes=processes, cap_mbps=1200, concurrency=60)
    shares = split_request(request)
    assert sorted(name for share in shares for name in share.file_list or ()) == sorted(names)
    assert all(share.file_list for share in shares)
    assert len(shares) == min(files, processes)
    assert sum(share.cap_mbps for share in shares) == pytest.approx(1200)
    assert sum(share.concurrency for share in shares) <= 60


@pytest.mark.parametrize(
    ("files", "cpus", "expected"), [(0, 2, 1), (249, 96, 1), (1000, 2, 4), (1000, 1, 2), (10**5, 96, 8)]
)
def test_suggested_processes(files: int, cpus: int, expected: int) -> None:
    assert suggest_processes(files, cpus) == expected
