"""Plan, copy with real AzCopy from a real Blob service, verify: whole, exact, and again."""

from __future__ import annotations

import gzip
import json
import os
import pwd
import stat

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.prepare import prepare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.report import explain
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_remove, dataset_verify
from ansible_collections.hpcai.gpu_cluster.plugins.modules.dataset_plan import read_options
from ansible_collections.hpcai.gpu_cluster.plugins.modules.dataset_remove import staged_files
from module_run import run_main

pytestmark = [pytest.mark.blob, pytest.mark.slow]
one_batch = pytest.mark.usefixtures("one_batch")


def test_a_dataset_is_staged_and_a_second_run_copies_nothing(staging) -> None:
    staging.fill()
    first = staging.stage()
    assert first["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content
    assert sum(rank["files"] for rank in first["ranks"].values()) == 40
    again = staging.plan()
    assert (again["changed"], again["missing_files"], again["run"]) == (False, 0, "")
    report = json.loads((staging.destination / "data/.staging/staging.json").read_text())
    assert report["verdict"] == "ok"
    assert report["verified_files"] == report["total_files"] == 40
    assert len(report["rounds"][0]["ranks"]) == 3
    assert not list(staging.destination.rglob(".azDownload-*"))
    assert not list((staging.destination / "data").rglob("*.part"))


def test_a_plan_returns_the_hosts_that_it_was_made_for(staging) -> None:
    staging.fill(2)
    assert staging.plan()["hosts"] == ["gpu-1", "gpu-2", "gpu-3"]
    assert staging.plan(rank=1)["hosts"] == ["gpu-2"]


@one_batch
def test_a_run_that_nobody_reported_is_reported_by_the_next(staging) -> None:
    """Its workers went on after Ctrl-C and finished."""
    staging.fill(5)
    plan = staging.plan()
    staging.copy(plan["run"])
    report = staging.destination / "data/.staging/staging.json"
    assert not report.exists()
    again = staging.plan()
    assert (again["missing_files"], again["changed"]) == (0, True)
    assert json.loads(report.read_text())["verified_files"] == 5
    assert staging.plan()["changed"] is False


@one_batch
def test_only_what_is_damaged_is_copied_again(staging) -> None:
    staging.fill(6)
    staging.stage()
    data = staging.destination / "data/train"
    (data / "f_001.tfrecord").unlink()
    (data / "f_002.tfrecord").write_bytes(b"cut")
    altered = data / "f_003.tfrecord"
    altered.write_bytes(b"x" * altered.stat().st_size)
    plan = staging.stage()
    assert plan["missing_files"] == 3
    assert staging.files() == staging.content


@one_batch
def test_damage_that_keeps_size_and_time_is_found_by_content(staging) -> None:
    staging.fill(5)
    staging.stage()
    victim = staging.destination / "data/train/f_003.tfrecord"
    before = victim.stat()
    victim.write_bytes(b"x" * before.st_size)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert staging.plan()["missing_files"] == 0
    assert staging.plan(content=True)["missing_files"] == 1


@one_batch
def test_a_replaced_blob_is_fetched_again(staging) -> None:
    staging.fill(6)
    staging.stage()
    staging.put("train/f_000.tfrecord.gz", b"new content")
    plan = staging.stage()
    assert plan["missing_files"] == 1
    assert staging.files() == staging.content


def test_a_blob_replaced_between_listing_and_copy_never_gets_the_final_name(staging) -> None:
    staging.fill(6)
    plan = staging.plan()
    staging.put("train/f_000.tfrecord.gz", b"newer content")
    staging.copy(plan["run"])
    result = staging.verify()
    assert (result["verdict"], result["verified_files"], result["again"]) == ("fail", 5, True)
    assert [cause["kind"] for cause in result["causes"]] == ["changed_at_source"]
    assert not (staging.destination / "data/train/f_000.tfrecord").exists()
    assert staging.stage()["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content


@pytest.mark.parametrize("engine", ["collection", "azcopy"])
def test_a_blob_replaced_where_no_md5_tells_is_named_and_copied_again(staging, engine: str) -> None:
    """Its size is the same, or AzCopy inflates it and neither size nor MD5 are those of the blob any more."""
    staging.options["decompress_engine"] = engine
    staging.fill(2)

    def put(content: bytes) -> None:
        if engine == "azcopy":
            staging.put("train/x.bin.gz", content)
        else:
            staging.service.put_in_blocks(staging.container, "train/x.bin", content)
            staging.content["train/x.bin"] = content

    put(b"old" * 500)
    plan = staging.plan()
    put(b"new" * 500)
    staging.copy(plan["run"])
    result = staging.verify()
    assert (result["verdict"], result["verified_files"], result["again"]) == ("fail", 2, True)
    assert [cause["kind"] for cause in result["causes"]] == ["changed_at_source"]
    assert "`train/x.bin" in result["causes"][0]["message"]
    assert not (staging.destination / "data/train/x.bin").exists()
    assert staging.stage()["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content


def test_a_blob_deleted_between_listing_and_copy_is_named(staging) -> None:
    staging.fill(6)
    plan = staging.plan()
    staging.service.delete(staging.container, "train/f_000.tfrecord.gz")
    staging.copy(plan["run"])
    result = staging.verify()
    assert result["problems"][0]["names"] == ["train/f_000.tfrecord"]
    assert [cause["kind"] for cause in result["causes"]] == ["changed_at_source"]


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("truncated", lambda raw: raw[:-5]),
        ("corrupt", lambda raw: raw[:40] + bytes([raw[40] ^ 255]) + raw[41:]),
        ("not_gzip", lambda raw: b"plain text"),
        ("not_gzip", lambda raw: b""),
    ],
    ids=["truncated", "flipped", "plain", "empty"],
)
def test_a_damaged_blob_is_named_and_the_rest_arrives(staging, kind: str, damage) -> None:
    staging.fill(6)
    raw = damage(gzip.compress(b"some content that is long enough to be damaged " * 20, mtime=0))
    staging.service.put(staging.container, "train/bad.tfrecord.gz", raw, encoding="gzip")
    staged = staging.stage()
    result = staged["verified"]
    assert [file["name"] for rank in staged["ranks"].values() for file in rank["failed_files"]] == [
        "train/bad.tfrecord.gz"
    ]
    assert (result["verdict"], result["verified_files"], result["total_files"]) == ("fail", 6, 7)
    assert [(cause["kind"], cause["name"]) for cause in result["causes"]] == [(kind, "train/bad.tfrecord.gz")]
    assert staging.files() == staging.content


@one_batch
def test_names_that_confuse_shells_and_globs_arrive(staging) -> None:
    for name in ("a;b.bin", "a[0-9].bin", "with space.bin", "ünïcode/名前.bin", "star*.bin", "quo'te\".bin", "50%.bin"):
        staging.put(name, name.encode() * 100, compress=False)
    assert staging.stage()["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content


@one_batch
def test_names_like_those_of_unfinished_files_arrive_and_stay(staging) -> None:
    """Other tools' ``.part`` files are data like all: only what has our own names for them is swept."""
    for name in ("whole.part", ".hidden.part", "dir.part/a.bin", ".0123456789ab.part", "train/x-1-2.part"):
        staging.put(name, name.encode() * 100, compress=False)
    staging.put("train/inflated.part.gz", b"inflated" * 1000)
    assert staging.stage()["verified"]["verdict"] == "ok"
    assert staging.plan()["missing_files"] == 0
    assert staging.files() == staging.content


@one_batch
def test_foreign_files_are_refused_unless_allowed(staging) -> None:
    staging.fill(3)
    foreign = staging.destination / "data/train/f_001.tfrecord"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("my own results")
    with pytest.raises(ClusterError, match="`allow_overwrite: true`") as caught:
        staging.plan()
    assert caught.value.kind == "foreign_files"
    assert foreign.read_text() == "my own results"
    staging.stage(allow_overwrite=True)
    assert staging.files() == staging.content


@one_batch
def test_a_file_that_was_renamed_but_lost_its_receipt_is_copied_again(staging) -> None:
    """The worker was killed between the two."""
    staging.fill(5)
    staging.stage()
    for receipts in (staging.destination / "data/.staging/receipts").iterdir():
        receipts.unlink()
    plan = staging.stage()
    assert plan["missing_files"] == 5
    assert plan["verified"]["verdict"] == "ok"
    assert staging.files() == staging.content


def test_files_that_are_already_right_are_adopted(staging) -> None:
    staging.put("a.bin", b"content" * 1000, compress=False)
    (staging.destination / "data").mkdir()
    (staging.destination / "data/a.bin").write_bytes(b"content" * 1000)
    plan = staging.plan()
    assert (plan["missing_files"], plan["verified_files"]) == (0, 1)
    assert staging.verify()["verdict"] == "ok"


@one_batch
@pytest.mark.parametrize("before", [False, True], ids=["raw-first", "inflated-first"])
def test_a_file_in_the_other_form_is_copied_again(staging, before: bool) -> None:
    """Without `.gz` in the blob's name, both forms have the same final name."""
    raw = gzip.compress(b"content " * 500, 1, mtime=0)
    staging.put("train/a.bin", b"content " * 500)
    staging.put("train/plain.bin", b"plain", compress=False)
    staging.stage(decompress=before)
    assert staging.plan(decompress=before)["missing_files"] == 0
    plan = staging.stage(decompress=not before)
    assert (plan["missing_files"], plan["verified"]["verdict"]) == (1, "ok")
    assert staging.files()["train/a.bin"] == (raw if before else b"content " * 500)


@one_batch
def test_what_an_earlier_prefix_brought_is_still_known(staging) -> None:
    """It needs no copy when it is wanted again, and can be deleted alone."""
    for name in ("train/a.bin", "train/changed.bin", "val/b.bin"):
        staging.put(name, name.encode() * 100, compress=False)
    data = staging.destination / "data"
    source = staging.params()["sources"][0]
    staging.stage(sources=[{**source, "prefix": "train"}])
    (data / "changed.bin").write_bytes(b"my own results")
    second = {"sources": [{**source, "prefix": "val"}]}
    verified = staging.stage(**second)["verified"]
    assert (verified["verdict"], verified["former_files"]) == ("ok", 1)
    assert explain(verified).endswith("deletes them with `only_former`.")
    assert sorted(staging.files()) == ["a.bin", "b.bin", "changed.bin"]

    remove = {"destination": str(data), "only_former": True}
    refused = run_main(dataset_remove.main, remove)
    assert (refused["failed"], refused["files"]) == (True, 1)
    would = run_main(dataset_remove.main, {**remove, "allow_data_loss": True, "_ansible_check_mode": True})
    assert sorted(staging.files()) == ["a.bin", "b.bin", "changed.bin"]
    done = run_main(dataset_remove.main, {**remove, "allow_data_loss": True})
    assert (done["changed"], done["files"], done["diff"]) == (True, 1, would["diff"])
    assert sorted(staging.files()) == ["b.bin", "changed.bin"]
    assert run_main(dataset_remove.main, {**remove, "allow_data_loss": True})["changed"] is False
    assert staging.plan(**second)["changed"] is False


@one_batch
def test_a_prefix_that_comes_back_needs_no_copy_and_remove_takes_all(staging) -> None:
    for name in ("train/a.bin", "val/b.bin"):
        staging.put(name, name.encode() * 100, compress=False)
    source = staging.params()["sources"][0]
    train, val = ({"sources": [{**source, "prefix": prefix}]} for prefix in ("train", "val"))
    staging.stage(**train)
    staging.stage(**val)
    assert staging.plan(**train)["missing_files"] == 0
    run_main(dataset_remove.main, {"destination": str(staging.destination / "data"), "allow_data_loss": True})
    assert not (staging.destination / "data").exists()


def test_a_raw_file_is_not_adopted_where_the_inflated_one_is_wanted(staging) -> None:
    staging.put("a.bin", b"content " * 500)
    (staging.destination / "data").mkdir()
    (staging.destination / "data/a.bin").write_bytes(gzip.compress(b"content " * 500, 1, mtime=0))
    with pytest.raises(ClusterError, match="`allow_overwrite: true`"):
        staging.plan()
    assert staging.plan(decompress=False)["verified_files"] == 1
    assert staging.plan()["missing_files"] == 1, "it is ours since it was adopted, and still raw"


def test_a_wrong_sas_stops_at_once_and_names_the_cause(staging) -> None:
    staging.fill(3)
    plan = staging.plan()
    source = {**staging.params()["sources"][0], "sas": staging.service.sas("rl").replace("sig=", "sig=AAAA")}
    ranks = staging.copy(plan["run"], sources=[source])
    # A rank that finds all attempts used up has nothing to fail at.
    assert {rank.get("error_kind") for rank in ranks.values()} - {None} == {"auth_failed"}
    result = staging.verify()
    assert (result["verdict"], result["again"]) == ("fail", False)


def test_the_destination_must_be_mounted(staging) -> None:
    staging.fill(1)
    with pytest.raises(ClusterError, match="is not mounted here"):
        staging.plan(mount_point=str(staging.destination))
    would = prepare(read_options(staging.params(mount_point=str(staging.destination))), write=False)
    assert (would["missing_files"], list(staging.destination.iterdir())) == (1, [])


@pytest.mark.parametrize("option", ["destination", "landing_path"])
def test_a_file_where_a_directory_belongs_is_refused_before_anything_is_made(staging, option: str) -> None:
    staging.fill(1)
    (staging.destination / "file").write_text("")
    with pytest.raises(ClusterError, match=f"^`{option}` is .*file is no directory"):
        staging.plan(**{option: f"{staging.destination}/file/data"})
    assert [path.name for path in staging.destination.iterdir()] == ["file"]


def test_a_node_that_cannot_land_anything_says_so_at_once(staging) -> None:
    staging.fill(1)
    plan = staging.plan()
    (staging.destination / "file").write_text("")
    ranks = staging.copy(plan["run"], ranks=1, landing_path=f"{staging.destination}/file")
    assert (ranks[0]["error_kind"], "`landing_path` is" in ranks[0]["msg"]) == ("bad_input", True)


def test_the_destination_is_open_to_readers_whatever_the_umask(staging) -> None:
    staging.fill(1)
    before = os.umask(0o077)
    try:
        staging.plan()
    finally:
        os.umask(before)
    assert (staging.destination / "data").stat().st_mode & 0o777 == 0o755


def test_a_mount_point_may_end_in_a_slash(staging) -> None:
    staging.fill(1)
    data = f"{staging.destination}/data"
    assert (
        prepare(read_options(staging.params(mount_point=f"{staging.destination}/")), write=False)["missing_files"] == 1
    )
    with pytest.raises(ClusterError, match="is not below the mount point"):
        prepare(read_options(staging.params(mount_point=f"{data}/", destination=f"{data}/../elsewhere")), write=False)


def test_an_identity_that_only_azcopy_knows_is_refused_before_anything_is_listed(staging) -> None:
    source = {"url": staging.service.url(staging.container), "prefix": "", "sas": ""}
    with pytest.raises(ClusterError, match="`identity: msi`"):
        staging.plan(sources=[source], identity="azcli")


@one_batch
def test_two_sources_form_one_dataset(staging, blobs) -> None:
    staging.put("train/a.bin", b"a" * 1000, compress=False)
    staging.put("validation/b.bin", b"b" * 1000, compress=False)
    url, sas = blobs.url(staging.container), blobs.sas("rl")
    sources = [{"url": url, "prefix": prefix, "sas": sas} for prefix in ("train", "validation")]
    assert staging.stage(sources=sources)["verified"]["verdict"] == "ok"
    assert staging.files() == {"a.bin": b"a" * 1000, "b.bin": b"b" * 1000}


def source_of(staging, **globs: list[str]) -> list[dict[str, object]]:
    return [{**staging.params()["sources"][0], **globs}]


@one_batch
def test_only_chosen_blobs_are_staged_and_a_name_that_cannot_be_is_left_out(staging) -> None:
    staging.fill(4)
    chosen = dict(staging.content)
    staging.put("logs/.staging/odd", b"odd", compress=False)
    staging.put("train/f_000.bak", b"backup", compress=False)
    with pytest.raises(ClusterError, match="`exclude`"):
        staging.plan()
    sources = source_of(staging, include=["/train/"], exclude=["*.bak", "*.tmp"])
    plan = staging.stage(sources=sources)
    assert (plan["total_files"], plan["verified"]["verdict"]) == (4, "ok")
    assert [note.partition(" in ")[0] for note in plan["notes"]] == ["The glob '*.tmp'"]
    assert staging.files() == chosen
    assert staging.plan(sources=sources)["changed"] is False


@one_batch
def test_another_choice_deletes_nothing_and_forgets_nothing(staging) -> None:
    staging.fill(6)
    staging.stage()
    fewer = source_of(staging, include=["f_00[0-2]*"])
    narrowed = staging.stage(sources=fewer)
    assert (narrowed["missing_files"], narrowed["total_files"]) == (0, 3)
    assert (narrowed["verified"]["verdict"], narrowed["verified"]["extra_files"]) == ("ok", 3)
    assert staging.files() == staging.content
    # The report packs the receipts: those of the files that are not chosen any more are still there.
    assert json.loads((staging.destination / "data/.staging/staging.json").read_text())["total_files"] == 3
    again = staging.plan()
    assert (again["missing_files"], again["verified_files"]) == (0, 6)
    assert sorted(staged_files(str(staging.destination / "data"))) == sorted(staging.content)


@one_batch
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_staged_belongs_to_whom_it_shall(staging) -> None:
    staging.fill(3)
    staging.stage()
    staging.put("later/raw.bin", b"raw" * 1000, compress=False)
    data = staging.destination / "data"

    def modes() -> dict[str, tuple[int, int, int]]:
        found = {str(path.relative_to(data)): path.stat() for path in data.rglob("*") if ".staging" not in path.parts}
        return {name: (one.st_uid, one.st_gid, stat.S_IMODE(one.st_mode)) for name, one in found.items()}

    wanted = {"owner": "nobody", "group": "12345", "mode": "0640", "directory_mode": "0750"}
    with pytest.raises(ClusterError, match="user 'nobdy'"):
        staging.plan(**{**wanted, "owner": "nobdy"})
    uid = pwd.getpwnam("nobody").pw_uid
    assert prepare(read_options(staging.params(**wanted)), write=False)["changed"] is True
    assert set(modes().values()) == {(0, 0, 0o755), (0, 0, 0o644)}
    plan = staging.stage(**wanted)
    assert (plan["missing_files"], plan["verified"]["verdict"]) == (1, "ok")
    assert "files and directories of another owner" in plan["diff"]["before"]
    files = dict.fromkeys(staging.content, (uid, 12345, 0o640))
    assert modes() == {**files, "train": (uid, 12345, 0o750), "later": (uid, 12345, 0o750)}
    assert staging.plan(**wanted)["changed"] is False
    # The ranks ask no receipt for it, and content stays what it was.
    assert staging.verify()["verdict"] == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_node_that_gives_a_name_another_number_copies_nothing(staging) -> None:
    staging.fill(2)
    plan = staging.plan(owner="nobody")
    document = staging.destination / "data/.staging/runs" / plan["run"] / "run.json"
    run = json.loads(document.read_text())
    run["ownership"]["uid"] += 1
    document.write_text(json.dumps(run))
    ranks = staging.copy(plan["run"])
    assert all("the user 'nobody' is" in rank["msg"] for rank in ranks.values())
    assert staging.files() == {}


def test_every_rank_keeps_its_own_share(staging, tmp_path) -> None:
    staging.fill(9)
    seen: dict[str, bytes] = {}
    for rank in range(3):
        destination = tmp_path / f"node{rank}"
        options = {"destination": str(destination), "rank": rank}
        plan = staging.plan(**options)
        staging.copy(plan["run"], ranks=1, **options)
        files = {path.name: path.read_bytes() for path in destination.rglob("*.tfrecord")}
        assert not set(files) & set(seen)
        assert staging.plan(**options)["missing_files"] == 0
        seen.update(files)
    assert seen == {name.rpartition("/")[2]: content for name, content in staging.content.items()}


@one_batch
def test_a_form_that_comes_back_is_the_one_that_is_verified_and_kept(staging) -> None:
    staging.put("x.gz", b"content " * 500)
    for form in (False, True):
        assert staging.stage(decompress=form)["verified"]["verdict"] == "ok"
    assert staging.plan(decompress=False)["missing_files"] == 0
    data = staging.destination / "data"
    run_main(dataset_remove.main, {"destination": str(data), "only_former": True, "allow_data_loss": True})
    assert list(staging.files()) == ["x.gz"]
    (data / "x.gz").unlink()
    assert staging.verify()["verdict"] == "fail"


@one_batch
def test_a_file_that_somebody_wrote_under_a_former_name_is_not_removed(staging) -> None:
    staging.put("a.bin", b"a" * 100, compress=False)
    staging.put("labels.csv", b"theirs", compress=False)
    staging.stage()
    staging.stage(sources=source_of(staging, exclude=["labels.csv"]))
    data = staging.destination / "data"
    (data / "labels.csv").write_bytes(b"written by a user since")
    run_main(dataset_remove.main, {"destination": str(data), "allow_data_loss": True})
    assert {path.name for path in data.rglob("*") if path.is_file()} == {"labels.csv"}


@one_batch
def test_another_dataset_at_the_same_place_is_not_called_whole(staging) -> None:
    staging.put("a.bin", b"a" * 100, compress=False)
    staging.put("b.bin", b"b" * 100, compress=False)
    first = staging.stage()["manifest_digest"]
    staging.stage(sources=source_of(staging, include=["a.bin"]))
    options = {"destination": str(staging.destination / "data"), "fail": False, "manifest_digest": first}
    assert run_main(dataset_verify.main, options)["error_kind"] == "superseded"
