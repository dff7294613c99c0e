# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-ins of units that need the file system, by the role's own template. Started for real: the VM lab."""

from __future__ import annotations

import configparser
import fnmatch
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from role_filters import add_role_filters

ROLE = Path(__file__).resolve().parents[3] / "roles/nvme_raid"


def test_a_unit_that_needs_the_file_system_does_not_start_where_nothing_is_mounted() -> None:
    """Our unit succeeds without a mount where no disks are there and none are expected."""
    text = (ROLE / "templates/required-by.conf.j2").read_text(encoding="utf-8")
    unit, point = "nvme-raid-scratch.service", "/mnt/scratch"
    variables = {"ansible_managed": "x", "__nvme_raid_unit": unit, "nvme_raid_mount_point": point}
    made = configparser.ConfigParser(interpolation=None)
    made.optionxform = str  # type: ignore[assignment,method-assign]
    made.read_string(str(Templar(loader=DataLoader(), variables=variables).template(trust_as_template(text))))
    assert {name: dict(made[name]) for name in made.sections()} == {
        "Unit": {"Requires": unit, "After": unit, "AssertPathIsMountPoint": point}
    }


@pytest.mark.parametrize("tasks", ["install", "remove"])
def test_a_unit_that_is_taken_out_of_the_list_loses_its_drop_in(tasks: str) -> None:
    """It requires a unit that remove takes away, and would not start any more."""
    add_role_filters()
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    listed = {
        **variables,
        "nvme_raid_name": "scratch",
        "nvme_raid_required_by": ["docker.service"],
        "nvme_raid_trim": True,
    }
    made = yaml.safe_load((ROLE / f"tasks/{tasks}.yml").read_text(encoding="utf-8"))[-1]["hpcai.gpu_cluster.node_state"]
    trusted = {name: _trusted(value) for name, value in listed.items()}
    absent = Templar(loader=DataLoader(), variables=trusted).template(_trusted(made["absent"]))
    drop_ins = Templar(loader=DataLoader(), variables=trusted).template(_trusted("{{ __nvme_raid_drop_in_files }}"))
    patterns = [item["path"] for item in absent if isinstance(item, dict) and item.get("pattern")]
    assert len(patterns) == 1
    assert [fnmatch.fnmatch(item["path"], patterns[0]) for item in drop_ins] == [True]
    assert not fnmatch.fnmatch("/etc/systemd/system/docker.service.d/nvme-raid-scratch2.conf", patterns[0])


def _trusted(value: t.Any) -> t.Any:
    """As the role's own files are: their templates count."""
    if isinstance(value, dict):
        return {key: _trusted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_trusted(inner) for inner in value]
    return trust_as_template(value) if isinstance(value, str) else value
