# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is mounted is read as the kernel means it, whatever is in the names."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import (
    MountEntry,
    mount_at,
    mount_below,
    parse_mountinfo,
    read_mounts,
)
from hypothesis import given
from hypothesis import strategies as st

# Recorded from the container lab: the second line is GlusterFS 10.3 through FUSE.
LAB = (
    "43 320 254:0 / /mnt/resource_nvme rw,relatime - ext4 /dev/vda rw\n"
    "44 320 0:39 / /mnt/scratch rw,relatime - fuse.glusterfs localhost:/scratch rw,user_id=0,group_id=0\n"
)


def escaped(name: str) -> str:
    """As the kernel writes names: proc(5), seq_path()."""
    return "".join(f"\\{ord(letter):03o}" if letter in " \t\n\\#" else letter for letter in name)


def line(point: str, source: str = "/dev/sda1", optional: str = "", root: str = "/") -> str:
    return (
        f"36 35 8:1 {escaped(root)} {escaped(point)} rw,noatime {optional}- ext4 {escaped(source)} rw,errors=continue\n"
    )


def test_a_line_is_read_whole() -> None:
    first, second = parse_mountinfo(LAB)
    assert first == MountEntry("254:0", "/", "/mnt/resource_nvme", "ext4", "/dev/vda", ("rw", "relatime"), ("rw",))
    assert first.device == "vda"
    assert (second.filesystem, second.source, second.device) == ("fuse.glusterfs", "localhost:/scratch", "")
    assert second.options == ("rw", "relatime", "user_id=0", "group_id=0")


@pytest.mark.parametrize("optional", ["", "shared:1 ", "shared:1 master:2 "])
def test_optional_fields_do_not_shift_the_others(optional: str) -> None:
    (entry,) = parse_mountinfo(line("/mnt", optional=optional))
    assert (entry.filesystem, entry.source, entry.super_options) == ("ext4", "/dev/sda1", ("rw", "errors=continue"))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), st.sampled_from("ab"))
def test_any_name_comes_back_as_it_is(name: str, source: str) -> None:
    mounts = parse_mountinfo(line(f"/{name}", source=f"/dev/{source} {name}", root=f"/{name}"))
    assert [(entry.point, entry.root, entry.source) for entry in mounts] == [
        (f"/{name}", f"/{name}", f"/dev/{source} {name}")
    ]


def test_the_last_mount_is_the_one_on_top() -> None:
    mounts = parse_mountinfo(line("/mnt", "/dev/under") + line("/else") + line("/mnt", "/dev/top"))
    found = mount_at("/mnt", mounts)
    assert found is not None
    assert found.source == "/dev/top"
    assert mount_at("/mn", mounts) is None


def test_a_mount_below_a_path_is_found_by_whole_names() -> None:
    mounts = parse_mountinfo(line("/mnt/a b") + line("/mnt"))
    assert mount_below("/mnt", mounts) == "/mnt/a b"
    assert mount_below("/mn", mounts) == ""
    assert mount_below("/mnt/a b/c", mounts) == ""
    assert mount_below("/", mounts) == "/mnt/a b"


def test_a_line_that_is_cut_off_is_left_out() -> None:
    assert parse_mountinfo(LAB[:-40] + "\n36 35\n") == parse_mountinfo(LAB)[:1]


def test_bytes_that_are_no_utf8_stay_what_they_are(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_bytes(b"36 35 8:1 / /mnt/\xff\\040x rw - ext4 /dev/sda1 rw\n")
    assert [entry.point for entry in read_mounts(tmp_path)] == [os.fsdecode(b"/mnt/\xff x")]
    assert read_mounts(tmp_path / "nowhere") == ()


def test_this_machine_has_a_root() -> None:
    assert mount_at("/", read_mounts()) is not None
