# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that have not joined the fabric of their NVSwitches are found, whatever Fabric Manager's service says."""

from __future__ import annotations

import pathlib
import stat

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import fabric
from hypothesis import given
from hypothesis import strategies as st

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
{health}    Clocks
        State                             : of another section
        Graphics                          : 345 MHz
"""
HEAD = "\n==============NVSMI LOG==============\n\nDriver Version : 580.95.05\nAttached GPUs : 2\n"
A, B = "0001:00:00.0", "000a:00:00.0"


# The rows of drivers 580, in their order, and what a GPU says of them that is whole in its fabric. Driver 550 has neither the
# first nor the last two: NVIDIA/gpu-operator, issue 2511 (580.159.04), NVIDIA/k8s-test-infra, issue 677 (580.173.02), and
# kubernetes-sigs/dra-driver-nvidia-gpu, issue 626, where Summary is Unhealthy beside Completed and Success.
HEALTHY = {
    "Summary": "Healthy",
    "Bandwidth": "Full",
    "Route Recovery in progress": "False",
    "Route Unhealthy": "False",
    "Access Timeout Recovery": "False",
    "Incorrect Configuration": "None",
    "Partition Assigned": "True",
}
SILENT = dict.fromkeys(HEALTHY, "N/A")


def said(first: tuple[str, str], second: tuple[str, str], health: dict[str, str] = SILENT) -> str:
    """``health``: the rows of the second GPU; the first has none that tell."""
    parts = (("00000001:00:00.0", first, SILENT), ("0000000A:00:00.0", second, health))
    return HEAD + "".join(
        GPU.format(
            bus_id=bus_id,
            state=state,
            status=status,
            health="".join(f"            {name:<30}: {value}\n" for name, value in rows.items()),
        )
        for bus_id, (state, status), rows in parts
    )


DONE = ("Completed", "Success")
OUTSIDE = "is 'N/A': they are outside of it, and are reached over PCIe alone."


def in_fabric(found: dict[str, fabric.Fabric] | None) -> dict[str, tuple[str, str]]:
    return {bus_id: (one.state, one.status) for bus_id, one in (found or {}).items()}


def told(health: dict[str, str]) -> list[tuple[str, str]]:
    return [(one["verdict"], one["message"]) for one in fabric.findings(fabric.parse(said(DONE, DONE, health)))]


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        (DONE, []),
        (("N/A", "N/A"), [f"The NVLink fabric of {B} {OUTSIDE}"]),
        (("In Progress", "N/A"), [f"The NVLink fabric of {B} is 'In Progress' (status 'N/A'): CUDA returns 802."]),
        (("Not Started", "N/A"), [f"The NVLink fabric of {B} is 'Not Started' (status 'N/A'): CUDA returns 802."]),
        (
            ("Completed", "Insufficient Resources"),
            [f"The NVLink fabric of {B} is 'Completed' (status 'Insufficient Resources'): CUDA returns 802."],
        ),
        (("Unrecognized", "N/A"), [f"The NVLink fabric of {B} is 'Unrecognized' (status 'N/A'): CUDA returns 802."]),
    ],
)
def test_state_and_status_of_each_gpu(second: tuple[str, str], wrong: list[str]) -> None:
    found = fabric.parse(said(DONE, second))
    assert in_fabric(found) == {A: DONE, B: second}
    assert [one["message"] for one in fabric.findings(found)] == wrong
    assert fabric.pending(found) is (second[0] in ("In Progress", "Not Started"))


def test_a_gpu_outside_of_a_fabric_is_right_only_where_none_has_to_join() -> None:
    """leptonai/gpud, pull requests 1108 and 1140, and Azure/azhpc-images, pull request 506: N/A is a fault beside NVSwitches."""
    none = fabric.parse(said(("N/A", "N/A"), ("N/A", "N/A")))
    assert list(fabric.findings(none)) == []
    (found,) = fabric.findings(none, all_join=True)
    assert (found["verdict"], found["message"]) == ("fail", f"The NVLink fabric of {A}, {B} {OUTSIDE}")
    # A card of another model beside those of the board has no NVLink.
    first, second = said(DONE, ("N/A", "N/A")).rsplit("NVIDIA H100 80GB HBM3", 1)
    assert list(fabric.findings(fabric.parse(f"{first}NVIDIA L4{second}"))) == []


def test_a_gpu_that_joined_with_fewer_links_is_found() -> None:
    broken = {
        **HEALTHY,
        "Summary": "Unhealthy",
        "Bandwidth": "Degraded",
        "Incorrect Configuration": "Insufficient NVLinks",
    }
    rows = "Summary 'Unhealthy', Bandwidth 'Degraded', Incorrect Configuration 'Insufficient NVLinks'"
    assert told(broken) == [("fail", f"The NVLink fabric of {B} is not healthy: {rows}.")]


@pytest.mark.parametrize("health", [HEALTHY, SILENT, {"Bandwidth": "N/A", "Route Unhealthy": "False"}, {}])
def test_a_gpu_that_is_whole_in_its_fabric_is_right(health: dict[str, str]) -> None:
    assert told(health) == []


@given(
    st.sampled_from([name for name in HEALTHY if name != "Partition Assigned"]),
    st.from_regex(r"[A-Z][a-z]+( [A-Z][a-z]+)?", fullmatch=True),
)
def test_only_the_good_value_of_a_row_is_good(name: str, value: str) -> None:
    wrong = value not in (HEALTHY[name], "N/A")
    assert told({**HEALTHY, name: value}) == (
        [("fail", f"The NVLink fabric of {B} is not healthy: {name} {value!r}.")] if wrong else []
    )


def test_a_row_that_nobody_knows_is_told() -> None:
    text = f"The NVLink fabric of {B} says what this release does not know: Sharpness 'Blunt'."
    assert told({**HEALTHY, "Sharpness": "Blunt"}) == [("warn", text)]
    assert told({**HEALTHY, "Sharpness": "N/A"}) == []


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
    assert in_fabric(fabric.ask(str(program), 20.0, 60.0)) == {A: DONE, B: DONE}
    (tmp_path / "first").write_text(said(DONE, ("In Progress", "N/A")))
    assert in_fabric(fabric.ask(str(program), 20.0, 0.0)) == {A: DONE, B: ("In Progress", "N/A")}
    program.write_text("#!/bin/sh\nexit 9\n")
    assert fabric.ask(str(program), 20.0, 0.0) is None
