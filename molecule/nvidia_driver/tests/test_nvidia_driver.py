# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_driver leaves on a node of A100 with NVSwitches."""

from __future__ import annotations

import re
import typing as t

import pytest

VERSION = "580.95.05"
NO_PREFERENCES = "-o Dir::Etc::preferencesparts=/nonexistent"


def versions(host: t.Any) -> dict[str, str]:
    """Of all packages of the driver, whatever they are called."""
    out = host.check_output("dpkg-query -W -f '${Package} ${db:Status-Status} ${Version}\\n'")
    rows = [line.split() for line in out.splitlines()]
    return {
        name: version
        for name, status, version in rows
        if status == "installed" and re.match("nvidia|libnvidia|libcuda", name)
    }


@pytest.mark.parametrize(
    "name", ["nvidia-open", "nvidia-kernel-open-dkms", "libcuda1", "libnvidia-ml1", "nvidia-fabricmanager"]
)
def test_every_part_has_the_version(host: t.Any, name: str) -> None:
    assert host.package(name).version == f"{VERSION}-1"


def test_no_part_has_another_version(host: t.Any) -> None:
    assert set(versions(host).values()) == {f"{VERSION}-1"}
    assert not host.package("nvidia-kernel-dkms").is_installed


def test_the_kernel_runs_it_and_the_services_run(host: t.Any) -> None:
    assert f" {VERSION} " in host.file("/proc/driver/nvidia/version").content_string
    for unit in ("nvidia-persistenced", "nvidia-fabricmanager"):
        assert host.service(unit).is_running, host.check_output(f"journalctl --no-pager -u {unit} | tail -n 20")
        assert host.service(unit).is_enabled


def test_persistence_mode_is_on_although_the_package_starts_without_it(host: t.Any) -> None:
    package = host.file("/lib/systemd/system/nvidia-persistenced.service").content_string
    assert "--no-persistence-mode" in package
    unit = host.service("nvidia-persistenced").systemd_properties
    # What the program was really given, and not only what the unit says.
    words = host.file(f"/proc/{unit['MainPID']}/cmdline").content_string.split("\0")
    assert "--persistence-mode" in words
    assert "--no-persistence-mode" not in words
    # The package's unit lets systemd stop it, because no other unit needs it.
    assert (unit["StopWhenUnneeded"], unit["Restart"]) == ("no", "always")
    answer = host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader")
    assert set(answer.split()) == {"Enabled"}


def test_fabric_manager_is_not_ordered_after_the_target_that_wants_it(host: t.Any) -> None:
    unit = host.service("nvidia-fabricmanager").systemd_properties
    assert unit["FragmentPath"] == "/etc/systemd/system/nvidia-fabricmanager.service"
    assert "multi-user.target" not in unit["After"].split()
    # So the target waits for it, and what starts jobs behind the target finds the fabric.
    assert "nvidia-fabricmanager.service" in host.service("multi-user.target").systemd_properties["After"].split()


def test_an_upgrade_of_the_system_leaves_it_alone(host: t.Any) -> None:
    # Without our pin the newest version is the candidate, so it is the hold that keeps the packages back.
    policy = host.check_output(f"apt-cache policy {NO_PREFERENCES} nvidia-open")
    assert "Candidate: 580.126.16-1" in policy
    for verb in ("upgrade", "dist-upgrade"):
        planned = host.check_output(f"apt-get -s {verb} {NO_PREFERENCES}")
        assert "kept back" in planned
        assert not re.search(r"^(Inst|Remv) (nvidia|libnvidia|libcuda)", planned, re.M), planned


def test_without_the_hold_the_pin_keeps_it(host: t.Any) -> None:
    planned = host.check_output("apt-get -s --ignore-hold upgrade")
    assert not re.search(r"^(Inst|Remv) (nvidia|libnvidia|libcuda)", planned, re.M), planned


def test_unattended_upgrades_would_skip_it(host: t.Any) -> None:
    listed = host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    patterns = re.findall(r'::Package-Blacklist:: "([^"]+)"', listed)
    assert all(any(re.match(pattern, name) for pattern in patterns) for name in versions(host))
    assert not any(re.match(pattern, "linux-image-amd64") for pattern in patterns)


def test_the_repository_is_trusted_by_its_key_alone(host: t.Any) -> None:
    assert (
        "Signed-By: /etc/apt/keyrings/nvidia-driver.asc"
        in host.file("/etc/apt/sources.list.d/nvidia-driver.sources").content_string
    )
    assert host.file("/etc/apt/keyrings/nvidia-driver.asc").mode == 0o644


def test_nouveau_is_off(host: t.Any) -> None:
    assert "blacklist nouveau" in host.file("/etc/modprobe.d/nvidia-driver.conf").content_string
