# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role makes of its policies: what it tells the module, and what it writes for boot, prolog and epilog."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Wish
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.request import ARGUMENT_SPEC

ROLE = Path(__file__).parents[3] / "roles/gpu_clocks"


def trusted(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value


def render(template: t.Any, **chosen: t.Any) -> t.Any:
    """A value of the role as Ansible makes it, with these variables of the inventory."""
    variables = {"ansible_facts": {}}
    for path in ("defaults/main.yml", "vars/main.yml"):
        variables.update(trusted(yaml.safe_load((ROLE / path).read_text())))
    return Templar(loader=DataLoader(), variables={**variables, **chosen}).template(trusted(template))


def task(entry: str) -> dict[str, t.Any]:
    return yaml.safe_load((ROLE / f"tasks/{entry}.yml").read_text())[0]["hpcai.gpu_cluster.gpu_clocks"]


@pytest.mark.parametrize(
    ("policy", "idle"),
    [("max", "max"), ("locked", "locked"), ("values", "values"), ("default", "default"), ("job", "default")],
)
def test_idle_gpus_of_a_cluster_whose_jobs_set_clocks_have_their_own(policy: str, idle: str) -> None:
    told = [render(task(entry)["policy"], gpu_clocks_policy=policy) for entry in ("configure", "verify")]
    assert told == [idle, idle]
    assert idle in ARGUMENT_SPEC["policy"]["choices"]
    files = render("{{ __gpu_clocks_files }}", gpu_clocks_policy=policy)
    config = json.loads(next(file["content"] for file in files if file["path"].endswith("config.json")))
    # The program that boot and prolog run reads the same words.
    assert (Wish(**config["node"]).policy, Wish(**config["job"]).policy) == (idle, "max")


@pytest.mark.parametrize(
    ("policy", "asked", "asks"),
    [("job", True, True), ("job", "no", False), ("max", True, False), ("default", True, False)],
)
def test_verify_asks_slurm_for_the_scripts_where_jobs_set_clocks(policy: str, asked: t.Any, asks: bool) -> None:
    chosen = {"gpu_clocks_policy": policy, "gpu_clocks_verify_slurm": asked}
    files = {file["path"] for file in render("{{ __gpu_clocks_files }}", **chosen)}
    told = [render(task("verify")[name], **chosen) for name in ("prolog", "epilog")]
    assert told == (
        [f"/usr/local/lib/gpu_clocks/slurm-{name}.sh" for name in ("prolog", "epilog")] if asks else ["", ""]
    )
    assert set(told) <= {*files, ""}


def test_every_policy_of_the_role_is_one_that_the_documentation_offers() -> None:
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    known = ARGUMENT_SPEC["policy"]["choices"]
    assert options["gpu_clocks_policy"]["choices"] == [*known, "job"]
    assert options["gpu_clocks_job_policy"]["choices"] == known
