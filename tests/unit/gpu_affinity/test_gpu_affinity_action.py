# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module in a real play on the controller, and the filters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcai.gpu_cluster.plugins.filter.cpu_list import cpu_list
from ansible_collections.hpcai.gpu_cluster.plugins.filter.cpu_mask import cpu_mask

REPOSITORY = Path(__file__).parents[3]


def ask(*arguments: str) -> dict[str, t.Any]:
    """``ansible localhost -m gpu_affinity -a ...``"""
    program = str(Path(sys.executable).parent / "ansible")
    options = json.dumps(dict(argument.split("=", 1) for argument in arguments))
    done = subprocess.run(
        [program, "localhost", "-m", "hpcai.gpu_cluster.gpu_affinity", "-a", options],
        cwd=REPOSITORY,
        env={**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout[done.stdout.index("=> {") + 3 :])


@pytest.mark.slow
@pytest.mark.newest
def test_a_profile_is_found_by_its_name() -> None:
    made = ask("profile=standard_nd96asr_v4", "threads_per_rank=12")
    assert made["changed"] is False
    assert made["mpirun_map_by"] == "ppr:2:numa:pe=12"


@pytest.mark.slow
@pytest.mark.newest
def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    made = ask("profile=nonsense")
    assert made["error_kind"] == "profile_unknown"
    assert "Standard_ND96asr_v4" in made["remedy"]


def test_lists_and_masks() -> None:
    assert cpu_mask("24-47") == "ffffff000000"
    assert cpu_mask([0, 3]) == "9"
    assert cpu_list("ffffff000000") == "24-47"
    assert cpu_list("0xf,00000001") == "0,32-35"


@pytest.mark.parametrize("wrong", ["a", "3-1", None, 5, [-1], ["1"], [True]])
def test_what_is_no_list_is_refused(wrong: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="cpu_mask"):
        cpu_mask(wrong)


@pytest.mark.parametrize("wrong", ["xyz", "", 10, None, "-1", "-0x3"])
def test_what_is_no_mask_is_refused(wrong: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="cpu_list"):
        cpu_list(wrong)
