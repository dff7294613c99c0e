# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of benchmarks/converge that are not there answer as modules do."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
BENCHMARK = ROOT / "benchmarks/converge"
# What Ansible or its modules add to what they document.
COMMON = {"changed", "diff", "msg", "ansible_facts", "changes"}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("stand_in") / "answers"
    code = "import pathlib, sys, _report, _answers; _answers.store(_answers.answers(3), pathlib.Path(sys.argv[1]))"
    paths = [str(BENCHMARK), str(BENCHMARK.parent / "staging")]
    subprocess.run(
        [sys.executable, "-c", code, str(directory)],
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
        check=True,
        timeout=120,
    )
    return directory


def test_answers_have_what_the_modules_document(answered: pathlib.Path) -> None:
    own = list(answered.glob("hpcai.*"))
    assert len(own) >= 15
    for path in own:
        name, given = path.name.removeprefix("hpcai.gpu_cluster."), json.loads(path.read_text(encoding="utf-8"))
        source = (ROOT / f"plugins/modules/{name}.py").read_text(encoding="utf-8")
        documented = yaml.safe_load(source.partition('\nRETURN = r"""')[2].partition('"""')[0])
        assert {key for one in given for key in one["result"]} <= COMMON | set(documented), name


@pytest.mark.slow
@pytest.mark.newest
def test_a_module_call_is_answered_with_what_was_asked(answered: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / "ansible",
            *("-i", "gpu-1,", "-c", "stand_in", "-m", "hpcai.gpu_cluster.cluster_ssh_identity", "all"),
            *("-a", '{"cluster": "a\'\\"\\nzip_data=b", "user": "root", "name": "x"}'),
        ],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"),
            "ANSIBLE_CONNECTION_PLUGINS": str(BENCHMARK / "connections"),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_VERBOSITY": "3",
            "CONVERGE_ANSWERS": str(answered),
            "CONVERGE_MEMORY": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout[done.stdout.index("gpu-1 | SUCCESS => ") :].partition(" => ")[2])
    assert result["node"]["name"] == "gpu-1"
    assert result["invocation"]["module_args"] == {"cluster": "a'\"\nzip_data=b", "user": "root", "name": "x"}
