# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-ins of units that need the file system, by the role's own template. Started for real: the VM lab."""

from __future__ import annotations

import configparser
from pathlib import Path

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

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
