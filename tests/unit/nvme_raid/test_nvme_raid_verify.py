# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file system must lie on the stripes of its array, by what xfs_info and dumpe2fs have printed."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import units
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.apply import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.find import Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.geometry import Geometry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import Array
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import wanted_from
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.steps import Plan, Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.verify import prove_geometry
from ansible_collections.hpcai.gpu_cluster.plugins.modules import nvme_raid
from ansible_collections.hpcai.gpu_cluster.plugins.modules.nvme_raid import check_verified

FIXTURES = Path(__file__).parent / "fixtures"
EIGHT = Array("md127", "scratch", "1" * 32, "raid0", 8, (), chunk_kib=512)
FOUND = Found("array", "md127", "1" * 32, "raid0", 8, (), True, EIGHT)


def prove(found: Found | None, steps: tuple[Step, ...] = (), **wanted: t.Any) -> tuple[Geometry | None, list[str]]:
    """What is read, and the commands that it takes. They print what they have printed on a node of the VM lab."""
    ran: list[str] = []

    def run(*argv: str, what: str) -> str:
        assert what
        ran.append(" ".join(argv))
        return (FIXTURES / f"{argv[0]}.txt").read_text(encoding="utf-8")

    request = wanted_from({"mount_point": "/mnt/scratch", **wanted})
    return prove_geometry(run, request, Plan((), found, steps)), ran


@pytest.mark.parametrize(
    ("shown", "fails"),
    [
        ("LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n", False),
        ("LoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nNeedDaemonReload=no\n", True),
        ("LoadState=loaded\nActiveState=active\nUnitFileState=disabled\nNeedDaemonReload=no\n", True),
        ("LoadState=not-found\nActiveState=inactive\nUnitFileState=\nNeedDaemonReload=no\n", True),
    ],
)
def test_a_timer_that_does_not_run_is_told(monkeypatch: pytest.MonkeyPatch, shown: str, fails: bool) -> None:
    class Systemd:
        def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
            assert args[:2] == ["systemctl", "show"]
            return 0, shown, ""

    for module in (nvme_raid, units):
        monkeypatch.setattr(module, "is_running", lambda: True)
    nvme_raid.check_timer(Systemd(), "")
    if not fails:
        nvme_raid.check_timer(Systemd(), "nvme-raid-scratch-trim.timer")
        return
    with pytest.raises(ClusterError, match=r"nvme-raid-scratch-trim\.timer is") as caught:
        nvme_raid.check_timer(Systemd(), "nvme-raid-scratch-trim.timer")
    assert caught.value.kind == "not_as_wanted"


def test_the_geometry_is_read_where_it_is_mounted() -> None:
    assert prove(FOUND) == (Geometry(512 << 10, 4 << 20), ["xfs_info /mnt/scratch"])
    ten = dataclasses.replace(FOUND, level="raid10", disks=4)
    assert prove(ten, filesystem="ext4") == (Geometry(512 << 10, 1 << 20), ["dumpe2fs -h /dev/md127"])
    # A single disk has no stripes that could be wrong.
    single = Found("single", "nvme0n1", "", "single", 1, ("nvme0n1",), True)
    assert prove(single)[1] == ["xfs_info /mnt/scratch"]


@pytest.mark.parametrize("change", [{"disks": 4}, {"array": dataclasses.replace(EIGHT, chunk_kib=64)}])
def test_a_file_system_that_does_not_lie_on_the_stripes_is_told(change: dict[str, t.Any]) -> None:
    with pytest.raises(
        ClusterError, match="has stripes of 4194304 bytes in units of 524288, but the array has"
    ) as caught:
        prove(dataclasses.replace(FOUND, **change))
    assert caught.value.kind == "wrong_geometry"


def test_what_is_not_mounted_yet_or_any_more_is_not_looked_at() -> None:
    for found, steps in (
        (None, ()),
        (dataclasses.replace(FOUND, active=False), ()),
        (FOUND, (Step("mount", "mount"),)),
    ):
        assert prove(found, steps) == (None, [])
    assert prove(FOUND, state="absent") == (None, [])


MOUNT = Step("mount", "mount scratch at /mnt/scratch", "/dev/md127")


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome(Plan((), FOUND, (MOUNT,)), [MOUNT]), "not_as_wanted"),
        (Outcome(Plan((), FOUND, degraded="scratch is degraded")), "degraded"),
    ],
)
def test_what_verify_asks_for_can_be_done_with_the_role_and_with_the_module(outcome: Outcome, kind: str) -> None:
    """A user of the role has no variable for `state`."""
    with pytest.raises(ClusterError) as caught:
        check_verified(outcome, "scratch")
    assert caught.value.kind == kind
    assert "the role nvme_raid (entry point configure), or the module with `state: present`" in caught.value.remedy
