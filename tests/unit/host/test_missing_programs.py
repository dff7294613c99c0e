# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that a node lacks is named with the package that brings it. Ansible itself says "Error executing command." and no more."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.read import module_on_disk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import System
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.read import read_modules

MODULES = sorted((pathlib.Path(__file__).parents[3] / "plugins/modules").glob("*.py"))
SYSTEM = System("ubuntu24.04", "x86_64", "dpkg", "6.8.0-1")
KMOD = ("There is no modinfo on this node.", "Install the package kmod, and run again.")


def ended(capsys: pytest.CaptureFixture[str], work: t.Callable[[basic.AnsibleModule], t.Any]) -> dict[str, t.Any]:
    """What a module prints that ends while it works."""
    with patch_module_args({}):
        module = basic.AnsibleModule(argument_spec={})
        with pytest.raises(SystemExit), failing(module):
            work(module)
    return t.cast("dict[str, t.Any]", json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "look",
    [
        lambda module: read_modules(module, SYSTEM),
        lambda module: module_on_disk(module, "6.8.0-1"),
    ],
    ids=["rdma", "nvidia_driver"],
)
def test_a_node_without_kmod_is_told_what_to_install(
    look: t.Callable[[basic.AnsibleModule], t.Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = ended(capsys, look)
    assert (result["msg"], result["error_kind"], result["program"]) == (" ".join(KMOD), "program_missing", "modinfo")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("udevadm", "Install the package udev (EL: systemd-udev), and run again."),
        ("mkfs.xfs", "Install the package xfsprogs, and run again."),
        ("ours-alone", "Install what brings it, and run again."),
    ],
)
def test_the_package_is_named_as_the_distributions_call_it(
    program: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = ended(capsys, lambda module: module.run_command([program, "--help"]))
    assert result["msg"] == f"There is no {program} on this node. {says}"


def test_a_program_that_is_there_and_cannot_start_is_no_missing_one(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "tool"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    result = ended(capsys, lambda module: module.run_command([str(script)]))
    assert result["error_kind"] == "cannot_start"
    assert result["msg"].startswith(f"{script} cannot be started: No such file or directory.")


def test_who_asks_for_the_error_itself_gets_it(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with patch_module_args({}):
        module = basic.AnsibleModule(argument_spec={})
    with failing(module), pytest.raises(FileNotFoundError):
        module.run_command(["scontrol"], handle_exceptions=False)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_module_that_runs_programs_says_so(path: pathlib.Path) -> None:
    source = path.read_text(encoding="utf-8")
    if "run_command" in source:
        assert "failing(module)" in source or "names_programs(module)" in source
