# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernel boots next: by grubby on EL, by the links of Debian and Ubuntu, or not known."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.kernels import next_kernel


class Grubby:
    """Says where the default kernel lies."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        assert args == ["/usr/sbin/grubby", "--default-kernel"]
        return (0, f"{self.answer}\n", "") if self.answer else (1, "", "The default boot entry is not known.")


@pytest.mark.parametrize(
    ("answer", "kernel"),
    [
        ("/boot/vmlinuz-5.14.0-503.14.1.el9_5.x86_64", "5.14.0-503.14.1.el9_5.x86_64"),
        ("/boot/vmlinuz-0-rescue-7f", "0-rescue-7f"),
        ("", ""),
    ],
)
def test_el_asks_grubby(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, answer: str, kernel: str) -> None:
    monkeypatch.setattr(
        shutil, "which", lambda name, path: f"/usr/sbin/{name}" if "/usr/sbin" in path.split(":") else None
    )
    monkeypatch.setenv("PATH", "/usr/bin")
    assert next_kernel(Grubby(answer), tmp_path) == kernel


@pytest.mark.parametrize(
    ("link", "target", "kernel"),
    [
        ("vmlinuz", "boot/vmlinuz-6.1.0-56-amd64", "6.1.0-56-amd64"),
        ("vmlinuz", "boot/vmlinuz-6.1.0-40-cloud-amd64", "6.1.0-40-cloud-amd64"),
        ("boot/vmlinuz", "vmlinuz-6.8.0-1031-azure", "6.8.0-1031-azure"),
        ("boot/vmlinuz", "bzImage", ""),
        ("vmlinuz", "elsewhere-1", ""),
        ("elsewhere", "vmlinuz-1", ""),
    ],
)
def test_debian_and_ubuntu_link_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, link: str, target: str, kernel: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name, **_rest: None)
    (tmp_path / "boot").mkdir()
    (tmp_path / link).symlink_to(target)
    (tmp_path / link).write_text("")
    assert next_kernel(Grubby(""), tmp_path) == kernel


def test_a_link_to_a_kernel_that_is_gone_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name, **_rest: None)
    (tmp_path / "boot").mkdir()
    (tmp_path / "vmlinuz").symlink_to("boot/vmlinuz-6.8.0-1031-azure")
    assert next_kernel(Grubby(""), tmp_path) == ""
    (tmp_path / "boot/vmlinuz").symlink_to("vmlinuz-6.8.0-1032-azure")
    (tmp_path / "boot/vmlinuz-6.8.0-1032-azure").write_text("")
    assert next_kernel(Grubby(""), tmp_path) == "6.8.0-1032-azure"
