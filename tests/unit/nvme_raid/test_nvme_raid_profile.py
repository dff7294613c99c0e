# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many disks the role expects, by its own variables and the facts of a node."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[3] / "roles/nvme_raid"
PROFILE = {"node_profile": {"nvme": {"count": 8}}}


def expected(facts: dict[str, t.Any], **variables: t.Any) -> int:
    """What the module is told."""
    names = ("__nvme_raid_profile_disks", "__nvme_raid_expected_disks")
    own = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    known = {"ansible_facts": facts, "nvme_raid_level": "raid0", **variables}
    known.update({name: trust_as_template(own[name]) for name in names})
    return int(Templar(loader=DataLoader(), variables=known).template(known["__nvme_raid_expected_disks"]))


@pytest.mark.parametrize(
    ("facts", "variables", "disks"),
    [
        # Without a name of its own for the fact (inject_facts_as_vars=false): the number was ignored.
        (PROFILE, {}, 8),
        (PROFILE, {"nvme_raid_level": "single"}, 0),
        (PROFILE, {"nvme_raid_expected_disks": 2}, 2),
        (PROFILE, {"nvme_raid_expected_disks": 0}, 0),
        ({"node_profile": {}}, {}, 0),
        ({}, {}, 0),
    ],
)
def test_the_profile_says_how_many_where_the_variables_do_not(
    facts: dict[str, t.Any], variables: dict[str, t.Any], disks: int
) -> None:
    assert expected(facts, **variables) == disks
