# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The block of host_vars that consents to exactly the disks that hold something, by the role's own template."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.apply import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Disk, Member, Node, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import wanted_from
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan
from ansible_collections.hpcai.gpu_cluster.plugins.modules.nvme_raid import describe

TEMPLATE = Path(__file__).resolve().parents[3] / "roles/nvme_raid/templates/consent.yml.j2"


def disk(number: int, *signatures: Signature, **changes: t.Any) -> Disk:
    values = {"links": (f"/dev/disk/by-id/nvme-Model_{number}",), "model": "Model", "bytes": 3 << 40, **changes}
    return Disk(f"nvme{number}n1", signatures=signatures, **values)


def block(*disks: Disk, **wanted: t.Any) -> str:
    """What is shown for a node with these disks."""
    request = wanted_from({"mount_point": "/mnt/scratch", "state": "inspected", **wanted})
    result = describe(Outcome(plan(request, Node(disks))))
    variables = {"inventory_hostname": "gpu-1", "__nvme_raid_result": result}
    # As the action template and the lookup have it.
    text = "#jinja2: trim_blocks:True\n" + TEMPLATE.read_text(encoding="utf-8")
    return str(Templar(loader=DataLoader(), variables=variables).template(trust_as_template(text)))


def consent(text: str, *disks: Disk, **wanted: t.Any) -> Plan:
    """What is planned with the block, and nothing else, added to the request."""
    options = {name.removeprefix("nvme_raid_"): value for name, value in yaml.safe_load(text).items()}
    return plan(wanted_from({"mount_point": "/mnt/scratch", **wanted, **options}), Node(disks))


EXT4, MEMBER = Signature("ext4", "theirs"), Signature("linux_raid_member", "old:scratch")


def test_what_is_shown_is_what_consents() -> None:
    disks = (
        disk(0),
        disk(1, EXT4),
        disk(2, MEMBER),
        disk(3, blank=False, data_at=4096),
        disk(4, EXT4, mounts=("/home",)),
    )
    text = block(*disks, expected_disks=4)
    shown = yaml.safe_load(text)
    assert shown == {
        "nvme_raid_allow_format": True,
        "nvme_raid_format_devices": [f"/dev/disk/by-id/nvme-Model_{number}" for number in (1, 2, 3)],
    }
    assert "# Model, 3072 GiB, holds ext4 labeled theirs" in text
    assert text.startswith("# gpu-1: ")
    made = consent(text, *disks, expected_disks=4)
    assert [step.disks for step in made.steps if step.kind == "create"] == [
        ("nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1")
    ]
    with pytest.raises(ClusterError, match="holds ext4"):
        plan(wanted_from({"mount_point": "/mnt/scratch", "expected_disks": 4}), Node(disks))


@pytest.mark.parametrize("level", ["raid0", "raid1", "raid10"])
def test_it_is_complete_where_nothing_says_which_disks_are_meant(level: str) -> None:
    """An array is first made only of disks that are counted or named: what was pasted was refused for that."""
    nameless = disk(9, EXT4, links=())
    disks = (disk(0), disk(1, EXT4), disk(2, MEMBER), disk(3, EXT4, mounts=("/home",)), nameless)
    text = block(*disks, level=level)
    assert yaml.safe_load(text) == {
        "nvme_raid_expected_disks": 3,
        "nvme_raid_allow_format": True,
        "nvme_raid_format_devices": [f"/dev/disk/by-id/nvme-Model_{number}" for number in (1, 2)],
    }
    made = consent(text, *disks, level=level)
    assert [step.disks for step in made.steps if step.kind == "create"] == [("nvme0n1", "nvme1n1", "nvme2n1")]
    # Another disk that comes later is not taken by it.
    with pytest.raises(ClusterError, match="4 could be used"):
        consent(text, *disks, disk(4), level=level)
    # Nothing holds anything, and an array is not made of whatever is empty either.
    assert consent(block(disk(0), disk(1), level=level), disk(0), disk(1), level=level).steps


@pytest.mark.parametrize(
    "wanted",
    [{"models": ["Model"]}, {"by_id": ["/dev/disk/by-id/nvme-Model_*"]}, {"expected_disks": 2}, {"level": "single"}],
)
def test_what_the_play_says_itself_is_not_said_again(wanted: dict[str, t.Any]) -> None:
    disks = (disk(0, EXT4),) if "level" in wanted else (disk(0, EXT4), disk(1))
    text = block(*disks, **wanted)
    assert "nvme_raid_expected_disks" not in yaml.safe_load(text)
    assert consent(text, *disks, **wanted).steps


def test_a_disk_that_does_not_tell_what_it_is_makes_no_count() -> None:
    text = block(disk(0, EXT4), disk(1, unread=("transport",)))
    assert "nvme_raid_expected_disks" not in yaml.safe_load(text)
    assert "# /dev/nvme1n1 cannot be judged: its transport cannot be read: run this again" in text


@pytest.mark.parametrize("signatures", [(Signature("linux_raid_member", "any:scratch"),), ()])
def test_what_is_left_of_an_array_of_ours_that_cannot_run_needs_consent(signatures: tuple[Signature, ...]) -> None:
    """One of its two disks is gone, and an empty one has come in its place."""
    member = Member("1" * 32, "scratch", "raid0", 2)
    there, name = (disk(0, *signatures, blank=False, member=member), disk(1)), "/dev/disk/by-id/nvme-Model_0"
    text = block(*there)
    assert yaml.safe_load(text) == {
        "nvme_raid_expected_disks": 2,
        "nvme_raid_allow_format": True,
        "nvme_raid_format_devices": [name],
    }
    with pytest.raises(ClusterError, match="only 1 of them"):
        plan(wanted_from({"mount_point": "/mnt/scratch", "expected_disks": 2}), Node(there))
    made = consent(text, *there)
    assert [step.kind for step in made.steps] == ["erase", "create", "mkfs", "mount"]
    # All of it is there: it is used, and nothing is to be given up.
    whole = tuple(disk(number, *signatures, blank=False, member=member) for number in range(2))
    assert yaml.safe_load(block(*whole)) == {"nvme_raid_allow_format": False, "nvme_raid_format_devices": []}


def test_where_nothing_holds_anything_nothing_is_consented_to() -> None:
    expected = {"nvme_raid_allow_format": False, "nvme_raid_format_devices": []}
    assert yaml.safe_load(block(disk(0), disk(1))) == {"nvme_raid_expected_disks": 2, **expected}
    assert yaml.safe_load(block(disk(0), disk(1), expected_disks=2)) == expected
    assert yaml.safe_load(block()) == expected
    assert yaml.safe_load(block(disk(0, EXT4), models=["Other"])) == expected


def test_a_disk_without_a_lasting_name_is_told_and_not_listed() -> None:
    text = block(disk(0, EXT4, links=()), disk(1, EXT4))
    assert yaml.safe_load(text)["nvme_raid_format_devices"] == ["/dev/disk/by-id/nvme-Model_1"]
    assert "# /dev/nvme0n1 cannot be listed, because no name of it lasts: holds ext4" in text


@pytest.mark.parametrize(
    "label", ["a\n  - /dev/disk/by-id/other", "a\rnvme_raid_allow_data_loss: true", "{{ 1 }}", "ä: #"]
)
def test_what_a_label_says_consents_to_nothing(label: str) -> None:
    shown = yaml.safe_load(block(disk(0, Signature("ext4", label)), expected_disks=1))
    assert shown == {
        "nvme_raid_allow_format": True,
        "nvme_raid_format_devices": ["/dev/disk/by-id/nvme-Model_0"],
    }
