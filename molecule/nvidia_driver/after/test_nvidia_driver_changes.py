# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After services that died, upgrades, downgrades, accidents, Volta, an installer, removals, and modes of the GPUs."""

from __future__ import annotations

import re
import typing as t

import pytest
from lab.seen import seen

# A GPU is its ECC mode and its MIG mode, each now and after the next reset or boot: as it is born, as it is wanted, while the
# way back waits for a reset, lost, with MIG alone, and without MIG.
BORN = ["Enabled, Enabled, Disabled, Disabled"]
CHANGED = ["Disabled, Disabled, Enabled, Enabled"]
WAITING = ["Disabled, Enabled, Enabled, Disabled"]
LOST = ["[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]"]
WITH_MIG = ["Enabled, Enabled, Enabled, Enabled"]
NO_MIG = ["Enabled, Enabled, [N/A], [N/A]"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("upgrade_without_consent", "consent_missing"),
        ("unload_without_consent", "consent_missing"),
        ("unknown_version", "not_available"),
        ("wrong_key", "wrong_key"),
        ("verify_broken_upgrade", "driver_wrong"),
        ("verify_fabric_manager", "driver_wrong"),
        ("volta_open_module", "unsupported_gpu"),
        ("volta_driver", "unsupported_gpu"),
        ("volta_cuda", "unsupported_gpu"),
        ("remove_without_consent", "consent_missing"),
    ],
)
def test_what_must_not_be_is_refused_without_changing_a_package(host: t.Any, name: str, kind: str) -> None:
    found = seen(host)[name]
    assert (found["kind"], found["same_packages"]) == (kind, True), found["msg"]


def test_persistenced_that_dies_comes_back_and_sets_persistence_mode_again(host: t.Any) -> None:
    assert seen(host)["persistenced_killed"] == ["active", "Enabled"]


def test_what_requires_fabric_manager_starts_after_it_and_not_without_it(host: t.Any) -> None:
    found = seen(host)
    assert found["without_fabric_manager"] == ["Requires: not started", "Wants: started"]
    assert found["with_fabric_manager"] == "active"


def test_a_fabric_manager_that_does_not_run_fails_the_verification(host: t.Any) -> None:
    found = seen(host)["verify_without_fabric_manager"]
    assert found["kind"] == "driver_wrong"
    assert "nvidia-fabricmanager.service does not run" in found["msg"]


def test_check_mode_tells_the_upgrade_and_changes_nothing(host: t.Any) -> None:
    found = seen(host)["check_mode"]
    assert (found["changed"], found["same_files"]) == (True, True)
    assert {"upgrade libcuda1 580.95.05-1 to 580.126.16-1", "unload"} <= set(found["changes"])


@pytest.mark.parametrize(
    ("name", "version", "package"),
    [
        ("downgraded", "570.124.06", "nvidia-open"),
        ("finished", "580.126.16", "nvidia-open"),
        ("corrected", "580.126.16", "nvidia-open"),
        ("volta", "580.126.16", "cuda-drivers"),
    ],
)
def test_every_part_is_held_at_the_version_and_the_kernel_runs_it(
    host: t.Any, name: str, version: str, package: str
) -> None:
    lines = seen(host)[name]
    rows = [line for line in lines if re.match("(hold|install|deinstall|purge|unknown) ", line)]
    assert [row for row in rows if not row.startswith(f"hold installed {version}-1 ")] == []
    assert [row.split()[-1] for row in rows].count(package) == 1, rows
    assert f" {version} " in lines[-1]
    assert ("Open Kernel" in lines[-1]) == (package == "nvidia-open")


def test_an_upgrade_that_breaks_off_says_so_and_leaves_dpkg_in_the_middle_of_it(host: t.Any) -> None:
    found = seen(host)
    assert found["broken_upgrade"]["kind"] == "package_failed", found["broken_upgrade"]["msg"]
    assert "libnvidia-ml1" in found["audit"]


def test_dcgm_and_cuda_are_those_for_volta(host: t.Any) -> None:
    assert seen(host)["volta_parts"] == 0


def test_removal_with_consent_leaves_nothing(host: t.Any) -> None:
    assert seen(host)["left"] == []


def test_the_installer_runs_once_beside_the_repository_s_fabric_manager(host: t.Any) -> None:
    assert seen(host)["runfile"] == ["580.95.05 open", "a run", "580.95.05-1"]


def test_the_installer_s_driver_is_removed_by_its_uninstaller(host: t.Any) -> None:
    assert seen(host)["runfile_left"] == []


class Modes(t.NamedTuple):
    """What asking for modes has to come to. ``changes``: how many of GPUs. ``findings``: what is named."""

    gpus: list[str]
    kind: str = ""
    changes: int = 0
    findings: tuple[str, ...] = ()
    rebooted: bool = False


# GPUs with MIG are no devices of CUDA before somebody makes instances, which verify says and does not fail for.
NO_INSTANCE = ("cuda",)
MODES = {
    "modes_without_consent": Modes(BORN * 8, "consent_missing"),
    "modes_in_check_mode": Modes(BORN * 8, changes=16),
    "modes_set": Modes(CHANGED * 8, changes=16, findings=NO_INSTANCE),
    "modes_set_again": Modes(CHANGED * 8, findings=NO_INSTANCE),
    "modes_verified": Modes(CHANGED * 8, findings=NO_INSTANCE),
    "modes_with_gpus_in_the_way": Modes(
        BORN * 3 + WAITING + BORN + LOST + BORN * 2, "mode_failed", 14, ("gpu 3", "gpu 5")
    ),
    "pending_modes_without_consent": Modes(BORN * 3 + WAITING + BORN + CHANGED + BORN * 2, "consent_missing"),
    "modes_by_reboot": Modes(BORN * 8, changes=4, rebooted=True),
    "modes_that_two_gpus_refuse": Modes(
        WITH_MIG * 2 + NO_MIG + WITH_MIG * 3 + BORN + WITH_MIG, "mode_failed", 6, ("gpu 2", "gpu 6")
    ),
    "h100_mig": Modes(WITH_MIG * 8, changes=8, findings=NO_INSTANCE),
    "h100_ecc": Modes(CHANGED * 8, changes=16, findings=NO_INSTANCE, rebooted=True),
}


@pytest.mark.parametrize("name", sorted(MODES))
def test_modes_are_set_as_far_as_consent_and_gpus_let_them(host: t.Any, name: str) -> None:
    found, wanted = seen(host)[name], MODES[name]
    assert (found["kind"], tuple(found["findings"])) == (wanted.kind, wanted.findings), found["msg"]
    assert len([change for change in found["changes"] if change["kind"] == "gpu"]) == wanted.changes
    assert (found["rebooted"], found["gpus"]) == (wanted.rebooted, wanted.gpus)


def test_check_mode_tells_the_same_modes_as_the_run(host: t.Any) -> None:
    found = seen(host)
    for part in ("changes", "diff"):
        assert found["modes_in_check_mode"][part] == found["modes_set"][part]


def test_what_was_stopped_for_the_modes_runs_again(host: t.Any) -> None:
    assert seen(host)["units_after_modes"] == ["active", "active"]


@pytest.mark.parametrize("name", ["modes_set_again", "modes_verified"])
def test_modes_that_are_right_change_nothing(host: t.Any, name: str) -> None:
    assert seen(host)[name]["changed"] is False


def test_a_pending_mode_is_named_with_who_may_agree_to_it(host: t.Any) -> None:
    found = seen(host)["pending_modes_without_consent"]
    told = "GPU 3: ECC on, which is pending; GPU 5: ECC on; GPU 3: MIG off, which is pending; GPU 5: MIG off."
    assert told in found["msg"]
    assert "`allow_unload: true`" in found["remedy"]
    assert "`allow_reboot: true`" in found["remedy"]
