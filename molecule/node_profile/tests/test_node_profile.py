# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_profile says of a node: that it is of its machine type, and which GPU is missing when one is lost."""

from __future__ import annotations

import json
import typing as t

import pytest

MODULE = "hpcai.gpu_cluster.node_profile"
FAULT = "python3 -B /opt/gpu_simulator/fault.py"


def ask(host: t.Any, **options: t.Any) -> dict[str, t.Any]:
    """The module's result, failed or not."""
    arguments = {"name": "Standard_ND96asr_v4", "checks": ["gpus"], **options}
    try:
        return t.cast("dict[str, t.Any]", host.ansible(MODULE, json.dumps(arguments), check=False))
    except host.ansible.AnsibleException as failed:
        return t.cast("dict[str, t.Any]", failed.result)


@pytest.fixture
def lost_gpu(host: t.Any) -> t.Iterator[None]:
    host.run_expect([0], f"{FAULT} --lost 3")
    yield
    host.run_expect([0], FAULT)


def test_the_node_is_what_its_profile_says(host: t.Any) -> None:
    found = ask(host)
    assert (found["verdict"], found["findings"]) == ("ok", [])
    assert len(found["ansible_facts"]["gpu_node"]["gpus"]) == 8
    assert found["ansible_facts"]["node_profile"]["name"] == "Standard_ND96asr_v4"


def test_another_machine_type_is_refused(host: t.Any) -> None:
    refused = ask(host, name="Standard_ND96isr_H100_v5")
    assert refused["error_kind"] == "profile_mismatch"
    assert "H100" in refused["msg"]


@pytest.mark.usefixtures("lost_gpu")
def test_a_lost_gpu_is_refused_or_told(host: t.Any) -> None:
    refused = ask(host)
    assert refused["error_kind"] == "profile_mismatch"
    told = ask(host, on_mismatch="warn")
    assert (told["verdict"], told["findings"]) == ("fail", refused["findings"])
