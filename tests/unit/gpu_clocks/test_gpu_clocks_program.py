# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that the role installs: the module's own files, without Ansible."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.gpu_clocks.simulated import Node

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/gpu_clocks"


class Installed(Node):
    """A node on which the role has put its files, below a directory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.install()
        package = root / "lib/ansible_collections/hpcai/gpu_cluster/plugins/module_utils"
        package.mkdir(parents=True)
        variables = (ROLE / "vars/main.yml").read_text(encoding="utf-8")
        for name in re.findall(r"__gpu_clocks_sources ~ '/(\w+\.py)'", variables):
            shutil.copy(ROOT / "plugins/module_utils" / name, package / name)
        self.config = root / "config.json"
        self.configure({"policy": "locked", "graphics_mhz": 1200}, {"policy": "max"})
        self.program = root / "gpu-clocks"
        text = (ROLE / "files/gpu-clocks").read_text(encoding="utf-8")
        self.program.write_text(text.replace("/usr/local/lib/gpu_clocks", str(root / "lib")), encoding="utf-8")

    def configure(self, node: dict[str, Any], job: dict[str, Any]) -> None:
        options = {"nvidia_smi": self.smi, "timeout_s": 10, "state_path": str(self.saved), "required": True}
        self.config.write_text(json.dumps({"options": options, "node": node, "job": job}), encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # As the first line of the program says: no environment, no site-packages.
        command = [sys.executable, "-IS", str(self.program), *arguments, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def graphics(self) -> list[int | None]:
        return [gpu["graphics"][0] if gpu["graphics"] else None for gpu in self.settings()]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def test_from_boot_over_jobs_to_the_end(node: Installed) -> None:
    before = node.settings()
    applied = node.run("apply")
    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.splitlines()[0] == (
        "GPU 0 0001:00:00.0 NVIDIA A100-SXM4-40GB: changed; graphics lock 1200-1200 MHz, memory lock 1215-1215 MHz, "
        "application clocks default"
    )
    assert node.run("begin", "--job", "7", "--gpus", "0-2").returncode == 0
    assert node.graphics() == [1410] * 3 + [1200] * 5
    assert "held by node, 7" in node.run("status").stdout.splitlines()[0]
    assert node.run("end", "--job", "7").returncode == 0
    assert node.graphics() == [1200] * 8
    assert node.run("restore").returncode == 0
    assert node.settings() == before


def test_check_changes_nothing(node: Installed) -> None:
    planned = json.loads(node.run("apply", "--check", "--json").stdout)
    assert planned["changed"]
    assert node.graphics() == [None] * 8
    assert not node.saved.exists()


def test_trouble_is_told_on_standard_error_and_by_the_exit_code(node: Installed) -> None:
    node.fault("--lost", "3")
    result = node.run("apply")
    assert result.returncode == 1
    assert "GPU is lost" in result.stderr
    assert node.graphics().count(1200) == 7
    assert node.run("begin").returncode == 2
    node.config.write_text("{", encoding="utf-8")
    assert node.run("apply").returncode == 2


def test_only_the_standard_library_and_its_own_files_are_loaded(node: Installed) -> None:
    code = f"import sys; sys.argv = ['gpu-clocks', 'status', '--config', {str(node.config)!r}]\n"
    code += f"import runpy\ntry:\n    runpy.run_path({str(node.program)!r}, run_name='__main__')\nexcept SystemExit:\n    pass\n"
    code += "import json; print(json.dumps([m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)]))"
    shown = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True).stdout
    files = json.loads(shown.splitlines()[-1])
    assert not [name for name in files if "site-packages" in name or "dist-packages" in name]
    assert [name for name in files if name.startswith(str(node.root / "lib"))]


def test_the_role_and_the_module_know_the_same_options() -> None:
    from ansible_collections.hpcai.gpu_cluster.plugins.modules.gpu_clocks import ARGUMENT_SPEC

    for phase in ("configure", "verify", "job_begin", "job_end", "remove"):
        task = yaml.safe_load((ROLE / f"tasks/{phase}.yml").read_text(encoding="utf-8"))[0]
        given = set(task["hpcai.gpu_cluster.gpu_clocks"])
        assert given <= set(ARGUMENT_SPEC), phase
        assert {"required", "allow_unsupported", "nvidia_smi", "timeout_s"} <= given, phase
