# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What brings kernels and their headers."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import kernels

UBUNTU, ROCKY = Distribution("ubuntu", "24.04"), Distribution("rocky", "9.5")


def test_headers_follow_what_brings_the_next_kernel() -> None:
    installed = (
        *("linux-image-azure", "linux-image-6.8.0-1031-azure", "linux-image-unsigned-6.8.0-31-generic"),
        *(
            "linux-image-generic-hwe-24.04",
            "linux-image-cloud-amd64",
            "linux-image-amd64-dbg",
            "linux-image-extra-virtual",
        ),
    )
    assert kernels.metapackage_headers(installed) == [
        "linux-headers-azure",
        "linux-headers-cloud-amd64",
        "linux-headers-generic-hwe-24.04",
    ]


def test_packages_of_kernels() -> None:
    names = (
        *("linux-image-azure", "linux-azure", "linux-modules-6.8.0-1031-azure", "linux-headers-6.8.0-1031-azure"),
        *("linux-libc-dev", "linux-base", "linux-firmware", "linux-tools-common"),
        *(
            "kernel",
            "kernel-core",
            "kernel-devel",
            "kernel-64k-core",
            "kernel-modules-extra",
            "kernel-tools",
            "kernel-srpm-macros",
        ),
    )
    packages = {name: Installed(name, "1") for name in names}
    assert kernels.kernel_packages(packages, UBUNTU) == sorted(names[:4])
    assert kernels.kernel_packages(packages, ROCKY) == sorted(names[8:13])
