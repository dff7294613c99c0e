# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that have not joined the fabric of their NVSwitches are found, whatever Fabric Manager's service says."""

from __future__ import annotations

import pathlib
import stat

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import fabric

# Composed of the extracts in NVIDIA's Fabric Manager User Guide; the values around them follow nvidia-smi's layout.
GPU = """
GPU {bus_id}
    Product Name                          : NVIDIA H100 80GB HBM3
    GSP Firmware Version                  : 580.95.05
    Fabric
        State                             : {state}
        Status                            : {status}
        CliqueId                          : 0
        ClusterUUID                       : 00000000-0000-0000-0000-000000000000
        Health
            Bandwidth                     : N/A
            State                         : of something deeper
    Clocks
        State                             : of another section
        Graphics                          : 345 MHz
"""
HEAD = "\n==============NVSMI LOG==============\n\nDriver Version : 580.95.05\nAttached GPUs : 2\n"
A, B = "0001:00:00.0", "000a:00:00.0"


def said(first: tuple[str, str], second: tuple[str, str]) -> str:
    parts = zip(("00000001:00:00.0", "0000000A:00:00.0"), (first, second))
    return HEAD + "".join(GPU.format(bus_id=bus_id, state=state, status=status) for bus_id, (state, status) in parts)


DONE = ("Completed", "Success")


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        (DONE, []),
        (("N/A", "N/A"), []),
        (("In Progress", "N/A"), [f"The NVLink fabric of {B} is 'In Progress' (status 'N/A'): CUDA returns 802."]),
        (("Not Started", "N/A"), [f"The NVLink fabric of {B} is 'Not Started' (status 'N/A'): CUDA returns 802."]),
        (
            ("Completed", "Insufficient Resources"),
            [f"The NVLink fabric of {B} is 'Completed' (status 'Insufficient Resources'): CUDA returns 802."],
        ),
    ],
)
def test_state_and_status_of_each_gpu(second: tuple[str, str], wrong: list[str]) -> None:
    found = fabric.parse(said(DONE, second))
    assert found == {A: DONE, B: second}
    assert [one["message"] for one in fabric.findings(found)] == wrong
    assert fabric.pending(found) is (second[0] in ("In Progress", "Not Started"))


def test_gpus_that_say_the_same_are_one_finding() -> None:
    (found,) = fabric.findings(fabric.parse(said(("In Progress", "N/A"), ("In Progress", "N/A"))))
    assert f"{A}, {B}" in found["message"]


def test_a_fabric_that_was_not_told_is_not_taken_for_whole() -> None:
    (found,) = fabric.findings(None)
    assert (found["verdict"], found["what"]) == ("incomplete", "fabric")
    assert "nvidia-smi -q" in found["message"]


def test_a_driver_that_knows_no_fabric_says_nothing() -> None:
    assert fabric.parse(HEAD + "GPU 00000001:00:00.0\n    Product Name : NVIDIA A100\n") == {}


def test_it_is_asked_again_while_the_fabric_comes_up(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in nvidia-smi's place whose second answer is the complete one."""
    for name, state in (("first", ("In Progress", "N/A")), ("second", DONE)):
        (tmp_path / name).write_text(said(DONE, state))
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncd {tmp_path}\ncat first 2>/dev/null || cat second\nrm -f first\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(fabric, "_PAUSE_S", 0.01)
    assert fabric.ask(str(program), 20.0, 60.0) == {A: DONE, B: DONE}
    (tmp_path / "first").write_text(said(DONE, ("In Progress", "N/A")))
    assert fabric.ask(str(program), 20.0, 0.0) == {A: DONE, B: ("In Progress", "N/A")}
    program.write_text("#!/bin/sh\nexit 9\n")
    assert fabric.ask(str(program), 20.0, 0.0) is None
