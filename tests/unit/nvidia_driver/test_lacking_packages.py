# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What often lacks is named with what helps: dkms without EPEL, headers of a kernel that no repository keeps."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.dnf import Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.lacking import explained

ROCKY, RHEL = Distribution("rocky", "9.5", "Rocky 9.5"), Distribution("rhel", "8.10", "RHEL 8.10")
# As users posted it from EL 8 (driver 515), shortened to one of the two kernel modules and in long lines.
WITHOUT_EPEL = """Error:
 Problem 1: package nvidia-kmod-common-3:515.48.07-1.el8.noarch requires nvidia-kmod = 3:515.48.07
  - cannot install the best candidate for the job
  - package kmod-nvidia-latest-dkms-3:515.48.07-1.el8.x86_64 is filtered out by modular filtering
  - nothing provides dkms needed by kmod-nvidia-latest-dkms-3:515.48.07-1.el8.x86_64
(try to add '--skip-broken' to skip uninstallable packages or '--nobest' to use not only best candidate packages)
"""
KERNEL = "5.14.0-503.14.1.el9_5.x86_64"
ROOTS = [
    Root("nvidia-open", "580.95.05"),
    Root("kernel-devel", instance=KERNEL),
    Root("linux-headers-6.8.0-1031-azure"),
    Root("gdrcopy-kmod", "2.5", prefix=True),
]


class Host:
    """A dnf that ends with 1 and says this."""

    def __init__(self, said: str) -> None:
        self.said = said

    def run_command(self, _argv: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        return 1, "", self.said


def told(said: str, dist: Distribution) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        Dnf(Host(said)).simulate(["nvidia-open-580.95.05"])
    return explained(caught.value, ROOTS, dist)


@pytest.mark.parametrize(("dist", "remedy"), [(ROCKY, "set `epel: true`"), (RHEL, "epel-release-latest-8.noarch.rpm")])
def test_without_epel_there_is_no_dkms(dist: Distribution, remedy: str) -> None:
    error = told(WITHOUT_EPEL, dist)
    assert (error.kind, error.details["lacking"]) == ("no_dkms", ["dkms"])
    assert "EPEL" in error.message
    assert remedy in error.remedy


def test_headers_that_no_repository_keeps() -> None:
    error = told(f"Error: Unable to find a match: kernel-devel-{KERNEL}\n", ROCKY)
    assert error.kind == "not_available"
    assert "upgrade the kernel and reboot" in error.remedy


@pytest.mark.parametrize("word", ["gdrcopy-kmod", "gdrcopy-kmod-2.5*"])
def test_gdrcopy_that_nvidia_has_in_no_repository(word: str) -> None:
    error = told(f"Error: Unable to find a match: {word}\n", ROCKY)
    assert (error.kind, word in error.message) == ("not_available", True)
    assert "a repository of yours" in error.remedy


@pytest.mark.parametrize(
    "said",
    ["Error: Unable to find a match: nvidia-open-580.95.05\n", "Error: Failed to download metadata for repo 'x'\n"],
)
def test_other_errors_stay_what_they_are(said: str) -> None:
    error = told(said, ROCKY)
    assert error.kind in ("not_available", "package_failed")
    assert "kernel and reboot" not in error.remedy
    assert "EPEL" not in error.remedy
    assert "GDRCopy" not in error.remedy
