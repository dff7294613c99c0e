# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What benchmarks/power_cuts draws, loses and judges, without a machine."""

from __future__ import annotations

import collections
import dataclasses
import io
import pathlib
import random
import struct
import sys
import typing as t

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "benchmarks/power_cuts"))

from _cuts import PHASES, draw, shared_out
from _judge import AFTER, AGAIN, UNTOUCHED, WHOLE, Outcome, Seen, Verdict, judge, table, where_it_fell
from _volatile_cache import Entry, TornLogError, entries, replay, surviving

SECTOR = 512


def test_a_seed_draws_the_same_cuts_and_a_longer_run_begins_with_them() -> None:
    cuts = draw(7, 30)
    assert cuts == draw(7, 30) == draw(7, 50)[:30]
    assert cuts != draw(8, 30)
    assert [cut.number for cut in cuts] == list(range(1, 31))
    counted = collections.Counter(cut.phase for cut in cuts)
    assert set(counted) == set(PHASES)
    assert min(counted.values()) >= 5
    assert collections.Counter(cut.shape for cut in cuts).most_common(1)[0][0] == "raid0"
    assert {cut.maker for cut in cuts if cut.phase in ("create", "mkfs")} == {"unit", "play", "boot"}
    assert not [cut for cut in cuts if (cut.shape, cut.phase) == ("single", "create")]
    assert all(0 <= cut.fraction < 1 for cut in cuts)


def test_machines_share_the_cuts_and_keep_turns_together() -> None:
    cuts = draw(7, 30)
    first, second = shared_out(cuts, 2)
    assert sorted((*first, *second), key=lambda cut: cut.number) == list(cuts)
    assert [cut.number for cut in first[:8]] == [1, 2, 3, 4, 9, 10, 11, 12]
    assert shared_out(cuts, 1) == [cuts]


def write(sector: int, data: bytes, flags: int = 0) -> bytes:
    """An entry of a log as QEMU writes it."""
    return struct.pack("<4Q", sector, len(data) // SECTOR, flags, 0).ljust(SECTOR, b"\0") + data


FLUSH = write(0, b"", 1)


class Log(io.BytesIO):
    name = "disk.log"


def log_of(*parts: bytes) -> Log:
    return Log(bytes(SECTOR) + b"".join(parts))


def test_a_log_is_read_to_its_end() -> None:
    log = log_of(
        write(8, b"a" * 1024), FLUSH, struct.pack("<4Q", 0, 16, 4, 0).ljust(SECTOR, b"\0"), write(2, b"b" * 512)
    )
    assert entries(log) == [
        Entry("write", 8 * SECTOR, 1024, 2 * SECTOR),
        Entry("flush"),
        Entry("discard", 0, 16 * SECTOR),
        Entry("write", 2 * SECTOR, SECTOR, 7 * SECTOR),
    ]
    assert entries(log_of()) == entries(Log(b"")) == []
    # QEMU was killed while it wrote the last one, of which the guest was never told.
    assert entries(Log(log_of(FLUSH, write(2, b"b" * 1024)).getvalue()[:-600])) == [Entry("flush")]
    assert entries(log_of(FLUSH, bytes(4 * SECTOR))) == [Entry("flush")]


def test_a_log_with_a_hole_before_an_entry_is_not_believed() -> None:
    with pytest.raises(TornLogError):
        entries(log_of(FLUSH, bytes(SECTOR), FLUSH))


def medium_after(tmp_path: pathlib.Path, loss: str, *parts: bytes, seed: int = 1) -> bytes:
    log, medium = tmp_path / "log", tmp_path / "medium"
    log.write_bytes(log_of(*parts).getvalue())
    medium.write_bytes(b"." * 64 * SECTOR)
    with log.open("rb") as stream, medium.open("r+b") as target:
        replay(stream, surviving(entries(stream), loss, random.Random(seed)), target)
    return medium.read_bytes()


def test_what_was_flushed_survives_and_the_rest_as_it_is_drawn(tmp_path: pathlib.Path) -> None:
    parts = (write(0, b"a" * 4096), FLUSH, write(8, b"b" * 16384), write(0, b"c" * 4096))
    everything = medium_after(tmp_path, "none", *parts)
    assert everything == (b"c" * 4096 + b"b" * 16384).ljust(64 * SECTOR, b".")
    assert medium_after(tmp_path, "all", *parts) == (b"a" * 4096).ljust(64 * SECTOR, b".")
    seen = set()
    for seed in range(64):
        left = medium_after(tmp_path, "some", *parts, seed=seed)
        blocks = [left[start : start + 4096] for start in range(0, len(left), 4096)]
        assert [len(set(block)) for block in blocks] == [1] * 8  # a block is written whole or not at all
        assert blocks[0][:1] in b"ac"
        assert {block[:1] for block in blocks[1:5]} <= {b"b", b"."}
        seen.add(left)
    assert len(seen) > 16
    # One that bypassed the cache is there.
    assert medium_after(tmp_path, "all", write(0, b"d" * 4096, 2)).startswith(b"d" * 4096)


def test_discarded_blocks_are_zero(tmp_path: pathlib.Path) -> None:
    def discard(count: int) -> bytes:
        return struct.pack("<4Q", 0, count, 4, 0).ljust(SECTOR, b"\0")

    assert medium_after(tmp_path, "none", discard(2)) == bytes(2 * SECTOR).ljust(64 * SECTOR, b".")
    assert medium_after(tmp_path, "none", discard(64)) == bytes(64 * SECTOR)
    assert medium_after(tmp_path, "all", discard(64)) == b"." * 64 * SECTOR


SEEN = Seen(
    members=("m1", "m2"),
    others=("theirs",),
    acknowledged=9,
    readable=9,
    mounted=("m2", "m1"),
    journal=("nvme_raid: mount scratch at /mnt",),
)
MADE = ("nvme_raid: create scratch, a raid0 of 2 disks: vdb, vdc", "nvme_raid: mount scratch at /mnt")


@pytest.mark.parametrize(
    ("phase", "changes", "became"),
    [
        ("growth", {}, WHOLE),
        ("growth", {"readable": 12}, WHOLE),
        ("create", {"acknowledged": 0, "readable": 0, "journal": MADE}, AGAIN),
        ("mkfs", {"acknowledged": 0, "readable": 0}, WHOLE),
        ("removal", {}, WHOLE),
        ("removal", {"journal": MADE, "readable": 0}, AGAIN),
        ("removal", {"mounted": (), "readable": None}, AGAIN),
    ],
)
def test_disks_are_whole_or_made_again(phase: str, changes: dict[str, t.Any], became: str) -> None:
    verdict = judge(phase, dataclasses.replace(SEEN, **changes))
    assert verdict == Verdict({"theirs": UNTOUCHED, "m1": became, "m2": became})


@pytest.mark.parametrize(
    ("phase", "changes", "told"),
    [
        ("growth", {"readable": 8}, "9 records were acknowledged, and only 8 are there"),
        ("growth", {"journal": MADE, "readable": 0}, "made again, although 9 records were acknowledged"),
        ("growth", {"mounted": (), "play": "foreign_data"}, "nothing is mounted: foreign_data"),
        ("create", {"mounted": ("m1", "theirs")}, "lies on m1, theirs"),
        ("create", {"written": ("theirs",)}, "theirs is none of the file system's disks and was written to"),
        ("mkfs", {"marked": True}, "still marked"),
        ("mkfs", {"acknowledged": 0, "damage": "bad magic in AGF 3"}, "mounted and damaged: bad magic in AGF 3"),
        # It can be mounted, and is no file system that was made or left.
        ("removal", {"readable": 3}, "only 3 are there"),
        ("removal", {"given_back": "state present: foreign_data"}, "state present: foreign_data"),
    ],
)
def test_everything_else_is_wrong(phase: str, changes: dict[str, t.Any], told: str) -> None:
    (wrong,) = judge(phase, dataclasses.replace(SEEN, **changes)).wrong
    assert told in wrong


@pytest.mark.parametrize(
    ("phase", "told", "where"),
    [
        ("create", "mdadm --create begin", "mdadm --create"),
        ("create", "mdadm --create end", "clearing the new array"),
        ("mkfs", "mkfs begin", "mkfs"),
        ("mkfs", "mount end", AFTER),
        ("removal", "umount end", "clearing the file system"),
        ("removal", "mdadm --stop end", "erasing the disks"),
        ("growth", "", "writing"),
    ],
)
def test_the_last_step_that_was_told_says_where_a_cut_fell(phase: str, told: str, where: str) -> None:
    assert where_it_fell(phase, told) == where


def test_the_table_counts_by_phase() -> None:
    first, second = draw(7, 2)
    good = Outcome(first, "mdadm --create", Verdict({"m1": AGAIN, "theirs": UNTOUCHED}))
    bad = Outcome(second, AFTER, Verdict({"theirs": UNTOUCHED}, ("lost",)))
    head, create, mkfs, total = table([good, bad]).splitlines()
    assert head.split()[:2] == ["phase", "cuts"]
    assert create.split() == ["create", "1", "1", "0", "1", "1", "0", "mdadm", "--create", "1"]
    assert mkfs.split() == ["mkfs", "1", "0", "0", "0", "1", "1", *AFTER.split(), "1"]
    assert total.split() == ["all", "2", "1", "0", "1", "2", "1"]
