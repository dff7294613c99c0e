# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_peermem is looked at, and built anew where the InfiniBand stack came after it."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import peermem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Loaded

KERNEL = "6.8.0-1031-azure"
OPEN, CLOSED = Loaded("580.95.05", "open"), Loaded("580.95.05", "proprietary")
FILE = f"/lib/modules/{KERNEL}/updates/dkms/nvidia-peermem.ko"


class Host:
    """Answers what the programs of a node would, and remembers what it was asked."""

    def __init__(self, **answers: tuple[int, str]) -> None:
        self.answers, self.asked = answers, [""]

    def get_bin_path(self, name: str) -> str | None:
        return f"/usr/sbin/{name}" if name in self.answers else None

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(" ".join(argv))
        rc, out = self.answers.get(argv[0], (0, ""))
        return rc, out, "" if rc == 0 else "could not insert"


@pytest.mark.parametrize(
    ("loaded", "kernel", "demanded", "verdicts"),
    [
        (OPEN, KERNEL, False, ["warn"]),
        (OPEN, KERNEL, True, ["fail"]),
        (OPEN, "5.11.0-1-generic", False, ["fail"]),
        (OPEN, "4.18.0-553.el8_10.x86_64", False, ["fail"]),
        (OPEN, "5.14.0-503.14.1.el9_5.x86_64", False, ["warn"]),
        (CLOSED, KERNEL, False, ["fail"]),
        # Nothing runs: that is another finding.
        (Loaded(), KERNEL, True, []),
    ],
)
def test_gpudirect_is_not_lost_without_a_word(
    tmp_path: pathlib.Path, loaded: Loaded, kernel: str, demanded: bool, verdicts: list[str]
) -> None:
    found = list(peermem.findings(tmp_path, loaded, kernel, demanded=demanded))
    assert [one["verdict"] for one in found] == verdicts
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert list(peermem.findings(tmp_path, loaded, kernel, demanded=demanded)) == []


@pytest.mark.parametrize(("stack", "older"), [(None, False), (50, False), (200, True)])
def test_a_stack_that_came_later_is_seen(tmp_path: pathlib.Path, stack: int | None, older: bool) -> None:
    module, symbols = tmp_path / FILE[1:], tmp_path / "usr/src/ofa_kernel/default/Module.symvers"
    for path, time in ((module, 100), (symbols, stack)):
        if time is not None:
            path.parent.mkdir(parents=True)
            path.write_text("")
            os.utime(path, (time, time))
    assert peermem.is_older_than_stack(Host(modinfo=(0, f"{FILE}\n")), tmp_path, KERNEL) is older
    assert peermem.is_older_than_stack(Host(modinfo=(1, "")), tmp_path, KERNEL) is False


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ("nvidia/580.95.05, 6.8.0-1031-azure, x86_64: installed\n", "nvidia"),
        ("mlnx-ofed-kernel/24.10, 6.8.0, x86_64: installed\nnvidia-open/580.95.05: added\n", "nvidia-open"),
        ("nvidia-current, 580.95.05, 6.1.0-40-amd64, x86_64: installed\n", "nvidia-current"),
        ("nvidia/580.95.0, 6.8.0, x86_64: installed\nnvidia/570.1, 6.8.0, x86_64: installed\n", ""),
    ],
)
def test_dkms_builds_it_anew_by_the_name_it_has(status: str, name: str) -> None:
    host = Host(dkms=(0, status))
    failure = peermem.rebuild(host, "580.95.05", KERNEL)
    asked = [f"dkms {verb} -m {name} -v 580.95.05 -k {KERNEL} --force" for verb in ("build", "install")]
    assert host.asked[2:] == (asked if name else [])
    assert bool(failure) is not bool(name)


def test_without_dkms_nothing_is_built() -> None:
    """NVIDIA's .run file, and packages with modules that are built already, come without it."""
    host = Host()
    assert peermem.rebuild(host, "580.95.05", KERNEL) == "dkms is not installed"
    assert host.asked == [""]


def test_why_it_does_not_load_is_told() -> None:
    assert peermem.load(Host(modprobe=(1, ""))) == "could not insert"
    assert peermem.load(Host()) == ""
