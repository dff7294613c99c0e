# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of mkfs that are given through: none of them reaches another disk than the one that was looked at."""

from __future__ import annotations

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import wanted_from


@pytest.mark.parametrize(
    ("filesystem", "words"),
    [
        # mke2fs takes the first name for the device: it formatted this one, and nobody had consented.
        ("ext4", "/dev/sdb"),
        ("ext4", "-b 4096 /dev/sdb"),
        ("ext4", "-- /dev/sdb"),
        ("ext4", "4096"),
        ("ext4", "-J device=/dev/sdb"),
        ("ext4", "-J size=4,device=LABEL=journal"),
        ("ext4", "-Jdevice=UUID=1"),
        ("ext4", "-O journal_dev"),
        ("xfs", "-l logdev=/dev/sdb"),
        ("xfs", "-llogdev=/dev/sdb,size=64m"),
        ("xfs", "-r rtdev=/dev/sdb"),
        ("xfs", "-d name=/dev/sdb"),
        ("xfs", "-d file,name=x"),
        # It would not be found at the next boot.
        ("ext4", "-L other"),
        ("ext4", "-Lother"),
        ("ext4", "-vLother"),
        ("xfs", "-L other"),
        ("ext4", "-t ext2"),
        ("ext4", "-qt ext3"),
        ("ext4", "-E nodiscard,offset=1048576"),
        ("ext4", "-qtext3"),
        ("ext4", "-E lazy_itable_init=0,test_fs"),
        # No file system is made.
        ("ext4", "-n"),
        ("ext4", "-V"),
        ("ext4", "-S"),
        ("xfs", "-N"),
        ("xfs", "-V"),
        # The device would be taken for the value.
        ("ext4", "-b"),
        ("xfs", "-m crc=1 -d"),
    ],
)
def test_what_means_another_device_or_no_file_system_of_ours_is_refused(filesystem: str, words: str) -> None:
    with pytest.raises(ClusterError, match="`mkfs_options`") as refused:
        wanted_from({"filesystem": filesystem, "mkfs_options": words.split(" ")})
    assert refused.value.kind == "bad_input"


def test_an_empty_word_is_refused() -> None:
    with pytest.raises(ClusterError, match="`mkfs_options`"):
        wanted_from({"filesystem": "ext4", "mkfs_options": [""]})


@pytest.mark.parametrize(
    ("filesystem", "words"),
    [
        ("ext4", "-b 4096 -i 65536 -E lazy_itable_init=0"),
        ("ext4", "-O ^has_journal"),
        ("ext4", "-T largefile -m 1"),
        ("ext4", "-U random -vD"),
        ("xfs", "-m reflink=0,crc=1 -i size=512 -n size=16k"),
        ("xfs", "-l size=1g,version=2"),
        ("xfs", "-c options=/usr/share/xfsprogs/mkfs/lts_6.6.conf"),
        ("xfs", "-d agcount=32 -q -s size=4096"),
    ],
)
def test_what_sites_set_is_taken(filesystem: str, words: str) -> None:
    assert wanted_from({"filesystem": filesystem, "mkfs_options": words.split(" ")}).mkfs_options == tuple(
        words.split(" ")
    )
