# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module against real AzCopy and Azurite: what it copies, what it leaves alone, and what it says when it cannot."""

from __future__ import annotations

import errno
import gzip
import os
import pathlib
import shutil
import stat
import typing as t
import urllib.parse

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy import supervisor
from lab.blob.service import Azurite

pytestmark = pytest.mark.blob

RunModule = t.Callable[..., dict[str, t.Any]]
ODD_NAME = "a/we;ird [x] {1} ü%20.bin"


def fill(blobs: Azurite, container: str) -> dict[str, bytes]:
    """A few files of different sizes; returns name -> content."""
    files = {f"d/f{number:02d}.bin": os.urandom(1000 * (number + 1)) for number in range(6)}
    files["d/deep/er/g.bin"] = b"g" * 70_000
    for name, data in files.items():
        blobs.put(container, name, data)
    return files


def tree(root: pathlib.Path) -> dict[str, bytes]:
    """All files but the module's own record."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".azcopy_copy-")
    }


@pytest.mark.newest
def test_downloads_everything_then_nothing(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    files = fill(blobs, container)
    options = {"source": blobs.url(container), "destination": str(tmp_path / "out")}

    planned = run_module(check=True, **options)
    assert planned["changed"]
    assert not (tmp_path / "out").exists()

    first = run_module(**options)
    assert tree(tmp_path / "out") == files
    assert (first["changed"], first["files_copied"], first["files_total"]) == (True, len(files), len(files))
    assert first["bytes_copied"] == sum(map(len, files.values())) == planned["bytes_copied"]
    assert first["diff"]["after"].split("\n")[:-1] == sorted(files)

    second = run_module(**options)
    assert (second["changed"], second["files_copied"], second["bytes_total"]) == (False, 0, first["bytes_total"])


@pytest.mark.parametrize(
    "damage", ["delete", "truncate", "alter", "alter_same_mtime", "replace_at_source", "lose_record_and_alter"]
)
def test_repairs_only_what_is_wrong(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, damage: str
) -> None:
    files = fill(blobs, container)
    options = {"source": blobs.url(container), "destination": str(tmp_path / "out")}
    run_module(**options)
    victim = tmp_path / "out" / "d" / "f03.bin"
    before = victim.stat()
    if damage == "delete":
        victim.unlink()
    elif damage == "truncate":
        victim.write_bytes(files["d/f03.bin"][:10])
    elif damage == "replace_at_source":
        files["d/f03.bin"] = os.urandom(before.st_size)
        blobs.put(container, "d/f03.bin", files["d/f03.bin"])
    else:
        victim.write_bytes(b"x" * before.st_size)
    if damage == "alter_same_mtime":  # another size, as the same size and time would need the MD5 of everything
        victim.write_bytes(b"x" * (before.st_size + 1))
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    if damage == "lose_record_and_alter":
        for record in (tmp_path / "out").glob(".azcopy_copy-*"):
            record.unlink()
    result = run_module(**options)
    assert (result["changed"], result["files_copied"]) == (True, 1)
    assert tree(tmp_path / "out") == files


def test_without_a_record_equal_files_are_proven_by_md5(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    files = fill(blobs, container)
    for name, data in files.items():
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_bytes(data)
    result = run_module(source=blobs.url(container), destination=str(tmp_path / "out"))
    assert not result["changed"]


def test_refuses_to_replace_without_consent(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    fill(blobs, container)
    (tmp_path / "out" / "d").mkdir(parents=True)
    (tmp_path / "out" / "d" / "f03.bin").write_bytes(b"mine")
    options = {"source": blobs.url(container), "destination": str(tmp_path / "out"), "overwrite": False}
    result = run_module(**options)
    assert result["failed"]
    assert result["error_kind"] == "bad_input"
    assert "d/f03.bin" in result["msg"]
    assert tree(tmp_path / "out") == {"d/f03.bin": b"mine"}


def test_file_list_with_odd_names_over_three_processes(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    files = fill(blobs, container)
    blobs.put(container, ODD_NAME, b"odd")
    wanted = [ODD_NAME, "d/f01.bin", "d/deep/er/g.bin"]
    result = run_module(
        source=blobs.url(container), destination=str(tmp_path / "out"), file_list=wanted, processes=3, expected_files=3
    )
    assert result["changed"]
    assert len(result["job_ids"]) == 3
    assert tree(tmp_path / "out") == {ODD_NAME: b"odd", **{name: files[name] for name in wanted[1:]}}


def test_pattern_with_ranges_matches_like_azcopy(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    fill(blobs, container)
    result = run_module(
        source=f"{blobs.url(container)}/d", destination=str(tmp_path), include_pattern="f0[1-2].bin;*5.bin"
    )
    assert result["files_copied"] == 3
    assert sorted(tree(tmp_path)) == ["f01.bin", "f02.bin", "f05.bin"]


@pytest.mark.parametrize("landing", [False, True])
def test_unpacks_while_downloading(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, landing: bool
) -> None:
    plain = {f"t/u{number}.tfrecord": os.urandom(500) * 100 for number in range(5)}
    for name, data in plain.items():
        blobs.put(container, f"{name}.gz", gzip.compress(data), encoding="gzip")
    blobs.put(container, "t/readme.txt", b"not compressed")
    plain["t/readme.txt"] = b"not compressed"
    options: dict[str, t.Any] = {
        "source": blobs.url(container),
        "destination": str(tmp_path / "out"),
        "decompress": True,
    }
    if landing:
        options["landing_dir"] = str(tmp_path / "nvme")
    assert run_module(**options)["changed"]
    assert tree(tmp_path / "out") == plain
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").rglob("*") if path.suffix} <= {
        0o644,
        0o755,
    }
    assert not any((tmp_path / "nvme").glob("*")) if landing else not list((tmp_path / "out").glob("*.landing"))
    assert not run_module(**options)["changed"]
    (tmp_path / "out" / "t" / "u2.tfrecord").write_bytes(b"")
    again = run_module(**options)
    assert again["files_copied"] == 1
    assert tree(tmp_path / "out") == plain


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"this is not gzip", "not_gzip"),
        (b"", "not_gzip"),
        (gzip.compress(os.urandom(5000))[:-2000], "truncated"),
        (gzip.compress(b"a" * 5000)[:-8] + bytes(8), "corrupt"),
        (gzip.compress(b"a" * 5000) + b"garbage", "corrupt"),
    ],
    ids=["text", "empty", "truncated", "wrong_trailer", "garbage"],
)
def test_bad_gzip_never_reaches_its_name(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, content: bytes, kind: str
) -> None:
    blobs.put(container, "bad.gz", content, encoding="gzip")
    blobs.put(container, "good.gz", gzip.compress(b"good"), encoding="gzip")
    result = run_module(source=blobs.url(container), destination=str(tmp_path / "out"), decompress=True)
    assert (result["failed"], result["error_kind"]) == (True, kind)
    assert result["failed_files"] == ["bad.gz"]
    assert tree(tmp_path / "out") == {"good": b"good"}


@pytest.mark.parametrize("overwrite", [True, False])
def test_after_a_bad_gzip_only_the_rest_is_copied(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, overwrite: bool
) -> None:
    for name in ("good", "other"):
        blobs.put(container, f"{name}.gz", gzip.compress(name.encode()), encoding="gzip")
    blobs.put(container, "bad.gz", b"this is not gzip", encoding="gzip")
    options = {
        "source": blobs.url(container),
        "destination": str(tmp_path / "out"),
        "decompress": True,
        "overwrite": overwrite,
    }
    for _time in range(2):  # what the first run left to do is all that the second one tries
        assert run_module(**options)["failed_files"] == ["bad.gz"]
        planned = run_module(check=True, **options)
        assert planned["diff"]["after"] == "bad.gz\n"
    blobs.put(container, "bad.gz", gzip.compress(b"mended"), encoding="gzip")
    assert run_module(**options)["files_copied"] == 1
    assert tree(tmp_path / "out") == {"good": b"good", "other": b"other", "bad": b"mended"}
    assert not run_module(**options)["changed"]


def test_two_blobs_that_would_get_one_name_are_refused(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    blobs.put(container, "a", b"plain")
    blobs.put(container, "a.gz", gzip.compress(b"packed"))
    result = run_module(source=blobs.url(container), destination=str(tmp_path / "out"), decompress=True)
    assert result["error_kind"] == "bad_input"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x" * 230, "a component of 230 bytes, and AzCopy leaves room for 206"),
        ("d//f01.bin", "an empty component"),
        ("d/./f01.bin", "a '.' or '..' component"),
        ("d/../../up", "a '.' or '..' component"),
        ("d/", "an empty component"),
        ("/f", "an absolute path"),
    ],
    ids=lambda text: text[:20],
)
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_copied(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, name: str, reason: str
) -> None:
    """AzCopy gives some of them another name, and fails on others without a reason that the copy could name."""
    blobs.put(container, "p/d/f01.bin", b"one")
    blobs.put(container, f"p/{name}", b"two")
    options = {"source": blobs.url(container, "p"), "destination": str(tmp_path / "out")}
    result = run_module(**options)
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert result["names"] == [name]
    assert reason in result["msg"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["x.bin", "ContainerNotFound.bin", "no space left on device"])
def test_an_archived_blob_is_told_whatever_its_name(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, name: str
) -> None:
    blobs.put(container, name, b"cold")
    path = f"{container}/{urllib.parse.quote(name)}"
    blobs._call("PUT", path, "comp=tier", headers={"x-ms-access-tier": "Archive"})
    options = {"source": blobs.url(container), "destination": str(tmp_path / "out")}
    assert run_module(**options)["error_kind"] == "archived"
    blobs.put(container, "other", b"hot")
    result = run_module(**options)
    assert result["error_kind"] == "partial"
    assert "archived:" in result["msg"]


def test_odd_names_at_the_destination_of_an_upload_are_no_hindrance(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "f").write_bytes(b"new")
    for name in ("p/d//f", "p//f", "p/../f", "p/d/../../f"):
        blobs.put(container, name, b"old")
    options = {"source": str(tmp_path / "src"), "destination": blobs.url(container, "p")}
    assert run_module(**options)["files_copied"] == 1
    assert not run_module(**options)["changed"]
    assert blobs.get(container, "p/f") == b"new"


@pytest.mark.newest
def test_uploads_compressed_then_nothing_then_what_changed(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    for number in range(4):
        (tmp_path / "src" / "sub").mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / "sub" / f"f{number}.gz").write_bytes(gzip.compress(bytes([number]) * 1000))
    options = {"source": str(tmp_path / "src"), "destination": blobs.url(container, "p"), "content_encoding": "gzip"}
    assert run_module(check=True, **options)["files_copied"] == 4
    first = run_module(**options)
    assert (first["changed"], first["files_copied"]) == (True, 4)
    headers = blobs.headers(container, "p/sub/f3.gz")
    assert headers["content-encoding"] == "gzip"
    assert headers["content-md5"]
    assert not run_module(**options)["changed"]
    (tmp_path / "src" / "sub" / "f2.gz").write_bytes(gzip.compress(b"new" * 1000))
    assert run_module(**options)["files_copied"] == 1
    assert gzip.decompress(blobs.get(container, "p/sub/f2.gz")) == b"new" * 1000


def test_uploads_one_file_under_the_name_in_the_url(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "rank-3.pt").write_bytes(b"weights" * 1000)
    options = {
        "source": str(tmp_path / "rank-3.pt"),
        "destination": blobs.url(container, "run/step-900.pt"),
        "cap_mbps": 5,
    }
    assert run_module(**options)["changed"]
    assert blobs.get(container, "run/step-900.pt") == b"weights" * 1000
    assert not run_module(**options)["changed"]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"source": "{container}/nowhere"}, "not_found"),
        ({"include_pattern": "zzz*"}, "no_match"),
        ({"include_pattern": ""}, "bad_input"),
        ({"include_pattern": "*_000*,*_001*"}, "bad_input"),
        ({"file_list": ["d/f01.bin", "d/none.bin"]}, "not_found"),
        ({"file_list": []}, "bad_input"),
        ({"file_list": ["../etc/passwd"]}, "bad_input"),
        ({"expected_files": 8}, "changed_at_source"),
        ({"expected_bytes": 5}, "changed_at_source"),
        ({"sas": "{sas_wrong}"}, "auth_failed"),
        ({"sas": "{sas_expired}"}, "sas_expired"),
        ({"sas": "{sas_no_list}"}, "auth_failed"),
        ({"sas": ""}, "auth_failed"),
        ({"sas": "sv=1&se=2030-01-01"}, "bad_input"),
        ({"source": "{missing}"}, "container_missing"),
        ({"destination": "relative/path"}, "bad_input"),
        ({"azcopy": "/nowhere/azcopy"}, "azcopy_missing"),
        ({"cap_mbps": 50, "block_size_mib": 8}, "bad_input"),
    ],
)
def test_each_fault_has_its_own_error(
    blobs: Azurite,
    container: str,
    run_module: RunModule,
    tmp_path: pathlib.Path,
    change: dict[str, t.Any],
    kind: str,
) -> None:
    fill(blobs, container)
    sas = blobs.sas()
    texts = {
        "{container}/nowhere": f"{blobs.url(container)}/nowhere",
        "{sas_wrong}": sas.split("sig=")[0] + "sig=" + urllib.parse.quote("A" * 43 + "="),
        "{sas_expired}": blobs.sas(expires_in_s=-60),
        "{sas_no_list}": blobs.sas("r"),
        "{missing}": blobs.url("nowhere"),
    }
    options = {"source": blobs.url(container), "destination": str(tmp_path / "out")}
    options.update({key: texts.get(value, value) if isinstance(value, str) else value for key, value in change.items()})
    result = run_module(**options)
    assert result["failed"]
    assert result["error_kind"] == kind, result["msg"]
    assert result["remedy"]
    assert not (tmp_path / "out").exists()


def test_a_sas_in_the_url_is_taken_out_and_hidden(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path
) -> None:
    fill(blobs, container)
    sas = blobs.sas()
    result = run_module(source=f"{blobs.url(container)}?{sas}", destination=str(tmp_path / "out"), sas=None)
    assert result["changed"]
    signature = dict(urllib.parse.parse_qsl(sas))["sig"]
    text = str(result)
    assert sas not in text
    assert signature not in text
    assert urllib.parse.quote(signature, safe="") not in text


def test_a_query_that_is_no_sas_is_hidden_too(run_module: RunModule, tmp_path: pathlib.Path) -> None:
    url = "https://account.blob.core.windows.net/c?sv=1&Sig=U0VDUkVUc2VjcmV0"
    result = run_module(source=url, destination=str(tmp_path / "out"), sas=None)
    assert result["error_kind"] == "bad_input"
    assert "U0VDUkVUc2VjcmV0" not in str(result)


def test_a_full_destination_is_said_before_anything_is_copied(
    blobs: Azurite, container: str, run_module: RunModule, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(blobs, container)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
    result = run_module(source=blobs.url(container), destination=str(tmp_path / "out"))
    assert result["error_kind"] == "disk_full"
    assert not (tmp_path / "out").exists()


def test_a_destination_that_may_be_too_small_for_what_is_inflated_is_said(
    blobs: Azurite,
    container: str,
    run_module: RunModule,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    warned: list[str],
) -> None:
    blobs.put(container, "a.gz", gzip.compress(os.urandom(10_000)))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=15_000))
    result = run_module(source=blobs.url(container), destination=str(tmp_path / "out"), decompress=True)
    assert result["files_copied"] == 1
    assert ["15000 bytes are free" in text for text in warned] == [True]


@pytest.mark.parametrize("decompress", [False, True])
@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, "disk_full"), (errno.EIO, "io")])
def test_a_disk_that_fails_before_azcopy_starts_has_its_own_error(
    blobs: Azurite,
    container: str,
    run_module: RunModule,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    decompress: bool,
    code: int,
    kind: str,
) -> None:
    def fail(_directory: str) -> t.NoReturn:
        raise OSError(code, os.strerror(code))

    blobs.put(container, "a.gz", gzip.compress(b"a"), encoding="gzip")
    monkeypatch.setattr(supervisor, "_file_system_time", fail)
    options = {"source": blobs.url(container), "destination": str(tmp_path / "out"), "file_list": ["a.gz"]}
    result = run_module(**options, decompress=decompress)
    assert (result["failed"], result.get("error_kind")) == (True, kind)
    assert result["remedy"]
