# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that the role installs: the module's own files, without Ansible."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.program import main
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import build
from unit.gpu_clocks.simulated import Node

pytestmark = pytest.mark.oldest

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/gpu_clocks"


class Installed(Node):
    """A node that has the program and its configuration below a directory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.install()
        self.config = root / "config.json"
        self.configure({"policy": "locked", "graphics_mhz": 1200}, {"policy": "max"})
        self.program = root / "gpu-clocks"
        self.program.write_bytes(build("gpu-clocks", sys.executable))
        self.program.chmod(0o755)

    def configure(self, node: dict[str, Any], job: dict[str, Any]) -> None:
        options = {"nvidia_smi": self.smi, "timeout_s": 10, "state_path": str(self.saved), "required": True}
        self.config.write_text(json.dumps({"options": options, "node": node, "job": job}), encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The program as it is installed."""
        command = [str(self.program), *arguments, "--config", str(self.config)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the program calls, in this process: starting it would cost more than what it does."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*arguments, "--config", str(self.config)])
        return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())

    def graphics(self) -> list[int | None]:
        return [gpu["graphics"][0] if gpu["graphics"] else None for gpu in self.settings()]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


@pytest.mark.slow
def test_from_boot_over_jobs_to_the_end(node: Installed) -> None:
    before = node.settings()
    applied = node.start("apply")
    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.splitlines()[0] == (
        "GPU 0 0001:00:00.0 NVIDIA A100-SXM4-40GB: changed; graphics lock 1200-1200 MHz, memory lock 1215-1215 MHz, "
        "application clocks default"
    )
    assert node.start("begin", "--job", "7", "--gpus", "0-2").returncode == 0
    assert node.graphics() == [1410] * 3 + [1200] * 5
    assert "held by node, 7" in node.start("status").stdout.splitlines()[0]
    assert node.start("end", "--job", "7").returncode == 0
    assert node.graphics() == [1200] * 8
    assert node.start("restore").returncode == 0
    assert node.settings() == before


def held(node: Installed) -> dict[str, list[str]]:
    """Who holds GPUs, as the saved state has it."""
    saved = json.loads(node.saved.read_text(encoding="utf-8"))["gpus"]
    return {
        uuid: [name for layer in record["layers"].values() for name in layer["holders"]]
        for uuid, record in saved.items()
    }


@pytest.mark.parametrize("fault", ["--lost", "--no-handle", "--missing"])
def test_a_lost_gpu_keeps_no_other_in_the_clocks_of_a_job_that_ended(node: Installed, fault: str) -> None:
    """The epilog runs once."""
    node.run("apply")
    assert node.run("begin", "--job", "77", "--gpus", "0,1").returncode == 0
    node.fault(fault, "1")
    ended = node.run("end", "--job", "77", "--gpus", "0,1")
    assert ended.returncode == 1
    assert "GPU 1 does not answer" in ended.stderr
    assert node.graphics()[0] == 1200
    assert set(map(tuple, held(node).values())) == {("node",)}
    # Asked again, it has nothing more to do on what answers.
    assert node.run("end", "--job", "77", "--gpus", "0").returncode == 0
    assert node.run("begin", "--job", "78", "--gpus", "0").returncode == 0
    assert node.graphics()[0] == 1410
    assert node.run("end", "--job", "78", "--gpus", "0").returncode == 0
    assert node.graphics()[0] == 1200


@pytest.mark.slow
def test_what_a_job_left_on_a_lost_gpu_is_given_back_when_it_answers_again(node: Installed) -> None:
    before = node.settings()

    def left_behind() -> None:
        node.run("begin", "--job", "77", "--gpus", "1")
        node.fault("--lost", "1")
        assert node.run("end", "--job", "77", "--gpus", "1").returncode == 1
        node.fault()
        assert node.graphics()[1] == 1410

    # By the node's policy,
    node.run("apply")
    left_behind()
    assert node.run("apply", "--check").returncode == 0
    assert node.graphics()[1] == 1410
    assert node.run("apply").returncode == 0
    assert node.graphics() == [1200] * 8
    # by the next job on it, whoever that is,
    left_behind()
    assert node.run("begin", "--job", "78", "--gpus", "1").returncode == 0
    assert node.run("end", "--job", "78", "--gpus", "1").returncode == 0
    assert node.graphics() == [1200] * 8
    # by the epilog once more,
    left_behind()
    assert node.run("end", "--job", "77", "--gpus", "1").returncode == 0
    assert node.graphics() == [1200] * 8
    # and at the end.
    left_behind()
    assert node.run("restore").returncode == 0
    assert node.settings() == before


def test_a_policy_that_comes_after_a_lost_job_gives_back_what_was_before_both(node: Installed) -> None:
    before = node.settings()
    node.run("begin", "--job", "77", "--gpus", "1")
    node.fault("--lost", "1")
    assert node.run("end", "--job", "77", "--gpus", "1").returncode == 1
    node.fault()
    assert node.run("apply").returncode == 0
    assert node.graphics() == [1200] * 8
    assert node.run("restore").returncode == 0
    assert node.settings() == before


def test_when_no_gpu_answers_the_job_has_ended_all_the_same(node: Installed) -> None:
    node.run("apply")
    node.run("begin", "--job", "77", "--gpus", "0,1")
    node.run("begin", "--job", "78", "--gpus", "1,2")
    for fault in (["--exit", "15"], ["--lost", "0", "1"]):
        node.fault(*fault)
        assert node.run("end", "--job", "77", "--gpus", "0,1").returncode == 1
        assert sorted(map(tuple, held(node).values())) == [("78", "node")] * 2 + [("node",)] * 6
    node.fault()
    assert node.run("apply").returncode == 0
    assert node.graphics() == [1200, 1410, 1410] + [1200] * 5
    assert node.run("end", "--job", "78", "--gpus", "1,2").returncode == 0
    assert node.graphics() == [1200] * 8


def test_clocks_that_were_not_taken_back_are_given_back_later(node: Installed) -> None:
    node.run("apply")
    node.run("begin", "--job", "77", "--gpus", "0,1")
    node.fault("--no-permission")
    assert node.run("end", "--job", "77", "--gpus", "0,1").returncode == 1
    assert set(map(tuple, held(node).values())) == {("node",)}
    assert node.graphics()[:2] == [1410, 1410]
    node.fault()
    assert node.run("apply").returncode == 0
    assert node.graphics() == [1200] * 8


def test_only_gpus_that_a_call_is_about_lose_their_holder(node: Installed) -> None:
    node.run("apply")
    node.run("begin", "--job", "77", "--gpus", "0-2")
    node.fault("--lost", "2")
    assert node.run("end", "--job", "77", "--gpus", "0").returncode == 0
    assert sorted(map(tuple, held(node).values())) == [("77", "node")] * 2 + [("node",)] * 6
    node.run("end", "--job", "77", "--gpus", "1,2", "--check")
    assert sorted(map(tuple, held(node).values())) == [("77", "node")] * 2 + [("node",)] * 6


def test_check_changes_nothing(node: Installed) -> None:
    planned = json.loads(node.run("apply", "--check", "--json").stdout)
    assert planned["changed"]
    assert node.graphics() == [None] * 8
    assert not node.saved.exists()


@pytest.mark.slow
@pytest.mark.newest
def test_trouble_is_told_on_standard_error_and_by_the_exit_code(node: Installed) -> None:
    node.fault("--lost", "3")
    result = node.start("apply")
    assert result.returncode == 1
    assert "GPU is lost" in result.stderr
    assert node.graphics().count(1200) == 7
    assert node.start("begin").returncode == 2
    node.config.write_text("{", encoding="utf-8")
    assert node.start("apply").returncode == 2


def test_only_the_standard_library_and_its_own_files_are_loaded(node: Installed) -> None:
    code = f"import sys; sys.argv = ['gpu-clocks', 'status', '--config', {str(node.config)!r}]\n"
    code += f"import runpy\ntry:\n    runpy.run_path({str(node.program)!r}, run_name='__main__')\nexcept SystemExit:\n    pass\n"
    code += "import json; print(json.dumps([m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)]))"
    shown = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True).stdout
    files = json.loads(shown.splitlines()[-1])
    assert not [name for name in files if "site-packages" in name or "dist-packages" in name]
    assert [name for name in files if name.startswith(str(node.program))]


def test_the_role_and_the_module_know_the_same_options() -> None:
    from ansible_collections.hpcai.gpu_cluster.plugins.modules.gpu_clocks import ARGUMENT_SPEC

    for phase in ("configure", "verify", "job_begin", "job_end", "remove"):
        task = yaml.safe_load((ROLE / f"tasks/{phase}.yml").read_text(encoding="utf-8"))[0]
        given = set(task["hpcai.gpu_cluster.gpu_clocks"])
        assert given <= set(ARGUMENT_SPEC), phase
        assert {"required", "allow_unsupported", "nvidia_smi", "timeout_s"} <= given, phase
