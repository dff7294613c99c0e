# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module against simulated GPUs: what it sets, what it says, what it gives back."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi
from unit.gpu_clocks.simulated import Node

pytestmark = pytest.mark.oldest

A100_MAX = {"graphics": [1410, 1410], "memory": [1215, 1215], "applications": [1215, 1095], "persistence": True}
A100_DEFAULT = {"graphics": None, "memory": None, "applications": [1215, 1095], "persistence": False}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path, monkeypatch)
    node.install()
    return node


def problems(result: dict[str, Any]) -> dict[int, list[str]]:
    found = {gpu["index"]: [problem["kind"] for problem in gpu["problems"]] for gpu in result["gpus"]}
    return {index: kinds for index, kinds in found.items() if kinds}


def test_all_gpus_reach_the_maxima_that_they_name_in_one_call_each(node: Node) -> None:
    result = node.module()
    assert (result["failed"], result["changed"]) == (False, True)
    assert node.settings() == [A100_MAX] * 8
    assert [command[3:] for command in result["commands"]] == [
        ["-pm", "1"],
        ["-lgc", "1410,1410"],
        ["-lmc", "1215,1215"],
    ]
    assert {gpu["status"] for gpu in result["gpus"]} == {"changed"}
    assert node.query("clocks.gr") == [["1410"]] * 8


@pytest.mark.newest
def test_check_mode_tells_what_a_real_run_then_does(node: Node) -> None:
    before = node.simulated.read_text(encoding="utf-8")
    planned = node.module(check=True)
    assert planned["changed"]
    assert node.simulated.read_text(encoding="utf-8") == before
    assert not node.saved.parent.exists()
    done = node.module()
    assert done["commands"] == planned["commands"]
    assert done["diff"] == planned["diff"]
    assert done["diff"]["after"]["GPU 0 (0001:00:00.0)"]["graphics_lock"] == "1410-1410 MHz"
    again = node.module(check=True)
    assert (again["changed"], again["commands"]) == (False, [])


def test_a_second_run_changes_nothing(node: Node) -> None:
    node.module()
    result = node.module()
    assert (result["failed"], result["changed"], result["commands"]) == (False, False, [])
    assert {gpu["status"] for gpu in result["gpus"]} == {"ok"}


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "max"},
        {"policy": "default"},
        {"policy": "locked", "graphics_mhz": 1200},
        {"policy": "values", "memory_mhz": 877},
        {"policy": "max", "method": "applications"},
    ],
)
@pytest.mark.parametrize("machine", ["Standard_ND96asr_v4", "Standard_ND40rs_v2", "Standard_ND96isr_H200_v5"])
def test_every_policy_is_idempotent_and_restored_exactly(node: Node, machine: str, options: dict[str, Any]) -> None:
    node.install(machine, "--driver", "580.159.03" if "H200" in machine else "550.163.01")
    before = node.settings()
    first = node.module(allow_unsupported=True, **options)
    assert not first["failed"], first
    second = node.module(allow_unsupported=True, **options)
    assert (second["failed"], second["changed"], second["commands"]) == (False, False, [])
    back = node.module(state="restored")
    assert not back["failed"]
    assert node.settings() == before
    assert node.module(state="restored")["changed"] is False
    assert "gpus" not in node.saved.read_text(encoding="utf-8") or json.loads(node.saved.read_text())["gpus"] == {}


def test_what_somebody_set_before_comes_back(node: Node) -> None:
    node.by_hand("-i", "0,1", "-pm", "1")
    node.by_hand("-i", "1", "-ac", "1215,900")
    before = node.settings()
    node.module(method="applications")
    assert [gpu["applications"] for gpu in node.settings()] == [[1215, 1410]] * 8
    node.module(policy="locked", graphics_mhz=1005)
    node.module(state="restored")
    assert node.settings() == before


def test_application_clocks_are_set_and_reset_with_their_own_pair(node: Node) -> None:
    result = node.module(method="applications")
    assert [command[3:] for command in result["commands"]][-1] == ["-ac", "1215,1410"]
    assert all(gpu["graphics"] is None for gpu in node.settings())
    back = node.module(state="restored")
    assert ["-rac"] in [command[3:] for command in back["commands"]]
    assert not {"-rgc", "-rmc"} & {word for command in back["commands"] for word in command}
    assert node.settings() == [A100_DEFAULT] * 8


def test_a_gpu_that_cannot_lock_its_memory_clock_is_left_to_the_driver(node: Node) -> None:
    node.install("Standard_ND40rs_v2")
    result = node.module()
    assert not result["failed"]
    assert not any("-lmc" in command for command in result["commands"])
    assert "runs at the wanted 877 MHz already" in result["gpus"][0]["notes"][0]
    assert node.settings()[0]["graphics"] == [1530, 1530]


def test_deprecated_application_clocks_are_never_used(node: Node) -> None:
    node.install("Standard_ND96isr_H200_v5", "--driver", "580.159.03")
    assert not node.module()["failed"]
    assert node.module(method="applications", check=True)["error_kind"] == "unsupported"
    node.fault("--no-graphics-lock", "3")
    node.reboot()
    result = node.module()
    assert problems(result) == {3: ["unsupported"]}
    assert "no application clocks any more" in result["msg"]
    assert not any("-ac" in command for command in result["commands"])


def test_where_a_lock_is_refused_application_clocks_take_its_place(node: Node) -> None:
    """The refusal comes with exit code 0 and shows only when it is tried."""
    node.fault("--no-graphics-lock", "2", "5", "--no-memory-lock", "2", "5")
    result = node.module()
    assert not result["failed"]
    settings = node.settings()
    assert [index for index, gpu in enumerate(settings) if gpu["applications"] == [1215, 1410]] == [2, 5]
    assert [index for index, gpu in enumerate(settings) if gpu["graphics"] == [1410, 1410]] == [0, 1, 3, 4, 6, 7]
    again = node.module()
    assert (again["failed"], again["changed"], again["commands"]) == (False, False, [])
    node.module(state="restored")
    assert node.settings() == [A100_DEFAULT] * 8


def test_locked_means_a_lock(node: Node) -> None:
    node.fault("--no-graphics-lock", "2")
    result = node.module(policy="locked")
    assert problems(result) == {2: ["unsupported"]}
    assert node.settings()[2]["applications"] == [1215, 1095]
    assert node.settings()[3]["graphics"] == [1410, 1410]
    tolerated = node.module(policy="locked", allow_unsupported=True)
    assert (tolerated["failed"], tolerated["changed"]) == (False, False)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    ("fault", "kind", "index", "words"),
    [
        (["--lost", "3"], "lost", 3, "GPU is lost"),
        (["--no-handle", "3"], "lost", 3, "Unable to determine the device handle"),
        (["--requires-reset", "3"], "lost", 3, "GPU requires reset"),
        (["--deaf", "3", "--busy", "3"], "not_applied", 3, "was accepted, but"),
    ],
)
def test_one_bad_gpu_does_not_keep_the_others_from_theirs(
    node: Node, fault: list[str], kind: str, index: int, words: str
) -> None:
    node.fault(*fault)
    result = node.module()
    assert (result["failed"], result["error_kind"], result["changed"]) == (True, kind, True)
    assert words in result["msg"]
    assert result["remedy"]
    assert "7 of" in result["msg"]
    settings = node.settings()
    assert [number for number, gpu in enumerate(settings) if gpu["graphics"] == [1410, 1410]] == [
        number for number in range(8) if number != index
    ]
    node.fault()
    healed = node.module()
    assert (healed["failed"], healed["changed"]) == (False, True)
    assert node.settings() == [A100_MAX] * 8


@pytest.mark.slow
def test_an_idle_gpu_that_does_not_follow_its_lock_is_no_failure_and_set_once(node: Node) -> None:
    node.by_hand("-pm", "1")
    node.fault("--deaf", "3")
    result = node.module()
    assert (result["failed"], result["changed"]) == (False, True)
    assert "shows under load" in result["gpus"][3]["notes"][0]
    assert node.module()["changed"] is False
    node.fault("--deaf", "3", "--busy", "3")
    assert node.module()["changed"] is False


@pytest.mark.slow
def test_a_busy_gpu_that_stays_where_it_was_is_tried_again(node: Node) -> None:
    node.by_hand("-pm", "1")
    node.fault("--deaf", "3", "--busy", "3")
    for _attempt in range(2):
        result = node.module()
        assert problems(result) == {3: ["not_applied"]}
        assert "the clock stays at 210 MHz" in result["msg"]


@pytest.mark.slow
def test_a_setting_that_hangs_is_ended_and_the_others_are_set(node: Node) -> None:
    node.fault("--stuck", "6")
    result = node.module(timeout_s=1)
    assert problems(result) == {6: ["timeout"]}
    assert [gpu["graphics"] for gpu in node.settings()].count([1410, 1410]) == 7


def test_without_permission_nothing_is_changed_and_the_reason_is_named(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "1000")
    result = node.module()
    assert (result["failed"], result["error_kind"]) == (True, "no_permission")
    assert set(problems(result)) == set(range(8))
    assert "become" in result["remedy"]
    assert node.settings() == [A100_DEFAULT] * 8


def test_a_clock_above_the_maximum_is_refused_before_anything_is_set(node: Node) -> None:
    """Azure's health checks lock the graphics clock of an H100 to 2619 MHz, which is its memory clock."""
    node.install("Standard_ND96isr_H100_v5")
    result = node.module(policy="locked", graphics_mhz=2619)
    assert (result["failed"], result["changed"], result["error_kind"]) == (True, False, "out_of_range")
    assert "above what the GPU says it can do, 1980 MHz" in result["msg"]
    assert result["commands"] == []


def test_different_gpus_get_their_own_maxima(node: Node) -> None:
    state = json.loads(node.simulated.read_text(encoding="utf-8"))
    state["gpus"][4]["clocks"].update(max_sm=1980, max_mem=2619, mem=2619)
    state["gpus"][4]["mig"]["current"] = True
    node.simulated.write_text(json.dumps(state), encoding="utf-8")
    result = node.module()
    assert not result["failed"]
    assert node.settings()[4]["graphics"] == [1980, 1980]
    assert node.settings()[3]["graphics"] == [1410, 1410]
    assert [gpu["mig"] for gpu in result["gpus"]].index(True) == 4
    assert len(result["commands"]) == 5


def test_a_reboot_undoes_locks_and_the_next_run_sees_it(node: Node) -> None:
    node.module()
    node.reboot()
    assert node.settings() == [A100_DEFAULT] * 8
    planned = node.module(check=True)
    assert planned["changed"]
    assert node.module()["commands"] == planned["commands"]
    assert node.settings() == [A100_MAX] * 8
    assert node.module()["changed"] is False
    node.module(state="restored")
    assert node.settings() == [A100_DEFAULT] * 8


def test_a_reloaded_driver_undoes_locks_and_the_next_run_sees_it(node: Node) -> None:
    node.module()
    node.fault("--reload-driver")
    assert node.module()["changed"] is True
    assert node.settings() == [A100_MAX] * 8


def test_a_lock_that_somebody_changed_is_set_again(node: Node) -> None:
    node.module()
    node.by_hand("-i", "5", "-lgc", "600,600")
    result = node.module()
    assert [gpu["index"] for gpu in result["gpus"] if gpu["status"] == "changed"] == [5]
    assert node.settings() == [A100_MAX] * 8


def test_a_power_cap_is_no_reason_to_set_a_lock_again(node: Node) -> None:
    node.module()
    node.fault("--power-cap", "1", "2")
    assert node.query("clocks.gr")[1] == ["1005"]
    assert node.module()["changed"] is False


def test_without_persistence_mode_locks_are_not_believed_in(node: Node) -> None:
    node.module(persistence=False)
    assert [gpu["persistence"] for gpu in node.settings()] == [False] * 8
    assert node.module(persistence=False)["changed"] is True
    assert node.module(persistence=True)["changed"] is True
    assert node.module(persistence=True)["changed"] is False


@pytest.mark.newest
def test_verify_changes_nothing_and_names_what_differs(node: Node) -> None:
    result = node.module(state="verified")
    assert (result["failed"], result["changed"], result["error_kind"]) == (True, False, "not_applied")
    assert "8 of 8 GPUs" in result["msg"]
    assert "(entry point configure), or gpu-clocks apply on the node." in result["remedy"]
    assert node.settings() == [A100_DEFAULT] * 8
    node.module()
    result = node.module(state="verified")
    assert (result["failed"], result["changed"]) == (False, False)
    node.by_hand("-i", "2", "-lgc", "600,600")
    result = node.module(state="verified")
    assert "1 of 8 GPUs" in result["msg"]
    assert node.settings()[2]["graphics"] == [600, 600]


def test_a_job_lies_upon_the_node_and_leaves_it_as_it_was(node: Node) -> None:
    node.module(policy="locked", graphics_mhz=1200)
    before = node.settings()
    assert node.module(layer="job", job="1")["changed"] is True
    assert node.settings() == [A100_MAX] * 8
    assert node.module(layer="job", job="1")["changed"] is False
    # A second job on two of the GPUs.
    node.module(layer="job", job="2", gpus=["0", "1"])
    assert node.module(state="restored", layer="job", job="1")["changed"] is True
    assert [gpu["graphics"][0] for gpu in node.settings()] == [1410, 1410] + [1200] * 6
    node.module(state="restored", layer="job", job="2", gpus=["0", "1"])
    assert node.settings() == before
    assert node.module(state="restored", layer="job", job="2")["changed"] is False
    node.module(state="restored")
    assert node.settings() == [A100_DEFAULT] * 8


def test_a_policy_changed_during_a_job_takes_effect_when_it_ends(node: Node) -> None:
    node.module(policy="locked", graphics_mhz=1200)
    node.module(layer="job", job="1")
    result = node.module(policy="locked", graphics_mhz=900)
    assert (result["changed"], result["commands"]) == (True, [])
    assert "takes effect when it ends" in result["gpus"][0]["notes"][-1]
    assert node.settings() == [A100_MAX] * 8
    assert node.module(policy="locked", graphics_mhz=900)["changed"] is False
    assert node.module(policy="locked", graphics_mhz=900, state="verified")["failed"] is False
    node.module(state="restored", layer="job", job="1")
    assert [gpu["graphics"][0] for gpu in node.settings()] == [900] * 8
    node.module(state="restored")
    assert node.settings() == [A100_DEFAULT] * 8


def test_a_job_does_not_outlive_a_reboot(node: Node) -> None:
    node.module(policy="locked", graphics_mhz=1200)
    node.module(layer="job", job="1")
    node.reboot()
    node.module(policy="locked", graphics_mhz=1200)
    assert [gpu["graphics"][0] for gpu in node.settings()] == [1200] * 8
    node.module(state="restored", layer="job", job="1")
    assert [gpu["graphics"][0] for gpu in node.settings()] == [1200] * 8


def test_restoring_what_was_never_set_leaves_no_trace(node: Node) -> None:
    """A second teardown would find, and remove, what the first one's successor left."""
    node.install()
    assert node.module(state="restored")["changed"] is False
    assert not node.saved.parent.exists()


@pytest.mark.slow
@pytest.mark.newest
def test_what_could_not_be_restored_is_kept_for_the_next_try(node: Node) -> None:
    before = node.settings()
    node.module()
    node.fault("--no-permission")
    result = node.module(state="restored")
    assert (result["failed"], result["error_kind"]) == (True, "no_permission")
    node.fault("--lost", "4")
    result = node.module(state="restored")
    assert (result["failed"], result["error_kind"]) == (True, "lost")
    node.fault()
    assert node.module(state="restored")["failed"] is False
    assert node.settings() == before


def test_a_gpu_that_was_replaced_is_forgotten(node: Node) -> None:
    node.module()
    state = json.loads(node.simulated.read_text(encoding="utf-8"))
    state["gpus"][0]["uuid"] = "GPU-00000000-0000-0000-0000-000000000001"
    node.simulated.write_text(json.dumps(state), encoding="utf-8")
    # A job that ends is no reason to forget; the node's own policy is.
    node.module(state="restored", layer="job")
    assert len(json.loads(node.saved.read_text(encoding="utf-8"))["gpus"]) == 8
    result = node.module(state="restored")
    assert not result["failed"]
    assert json.loads(node.saved.read_text(encoding="utf-8"))["gpus"] == {}


def test_a_kill_between_saving_and_setting_loses_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    before = node.settings()
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import apply as gpu_clocks_apply

    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    node.module(policy="locked", graphics_mhz=1200)
    for options in ({"policy": "max"}, {"state": "restored"}):
        with monkeypatch.context() as patch:
            patch.setattr(gpu_clocks_apply.smi, "perform", killed)
            with pytest.raises(KeyboardInterrupt):
                _run_directly(node, options)
    assert node.module()["changed"] is True
    node.module(state="restored")
    assert node.settings() == before


def test_an_epilog_that_is_killed_leaves_no_holder(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm runs it once, and ends it when it takes too long."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import apply as gpu_clocks_apply

    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    node.module(policy="locked", graphics_mhz=1200)
    before = node.settings()
    node.module(layer="job", job="1")
    with monkeypatch.context() as patch:
        patch.setattr(gpu_clocks_apply.smi, "perform", killed)
        with pytest.raises(KeyboardInterrupt):
            _run_directly(node, {"state": "restored", "layer": "job", "job": "1"})
    assert node.settings() == [A100_MAX] * 8
    assert node.module(policy="locked", graphics_mhz=1200)["changed"] is True
    assert node.settings() == before
    assert node.module(policy="locked", graphics_mhz=1200)["changed"] is False


def _run_directly(node: Node, options: dict[str, Any]) -> None:
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.request import ARGUMENT_SPEC, Request
    from ansible_collections.hpcai.gpu_cluster.plugins.modules import gpu_clocks

    defaults = {name: spec.get("default") for name, spec in ARGUMENT_SPEC.items()}
    request = Request.of({**defaults, "nvidia_smi": node.smi, "state_path": str(node.saved), **options})
    gpu_clocks.run(request, check=False)


def test_the_saved_state_is_private_and_whole(node: Node) -> None:
    node.module()
    assert stat.S_IMODE(node.saved.stat().st_mode) == 0o600
    assert stat.S_IMODE(node.saved.parent.stat().st_mode) == 0o700
    node.saved.write_text('{"version": 1, "gpus": {"GPU-1": {', encoding="utf-8")
    result = node.module()
    assert (result["failed"], result["error_kind"]) == (True, "state_unreadable")
    assert "delete it" in result["remedy"]


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (["--exit", "9"], "no_gpu"),
        (["--missing", *map(str, range(8))], "no_gpu"),
        (["--hang", "5"], "timeout"),
    ],
)
def test_when_no_gpu_answers(node: Node, fault: list[str], kind: str) -> None:
    node.fault(*fault)
    result = node.module(timeout_s=1)
    assert (result["failed"], result["error_kind"]) == (True, kind)
    result = node.module(timeout_s=1, required=False)
    if kind == "timeout":
        assert result["failed"]
    else:
        assert (result["failed"], result["changed"], result["gpus"]) == (False, False, [])
        assert "no GPU" in result["reason"]


def test_what_a_job_holds_can_be_verified(node: Node) -> None:
    wish = {"policy": "locked", "graphics_mhz": 1200, "layer": "job"}
    missing = node.module(**wish, state="verified")
    assert missing["error_kind"] == "not_applied"
    # The node's own clocks would be the answer to another question.
    assert (
        missing["remedy"] == "Run the role gpu_clocks (entry point job_begin), or gpu-clocks begin --job on the node."
    )
    node.module(**wish)
    before = node.saved.read_text(encoding="utf-8")
    assert node.module(**wish, state="verified")["failed"] is False
    assert node.saved.read_text(encoding="utf-8") == before
    other = node.module(**wish, state="verified", job="17")
    assert (other["error_kind"], node.saved.read_text(encoding="utf-8")) == ("not_applied", before)


@pytest.mark.slow
@pytest.mark.newest
def test_everything_is_given_back_at_once_also_during_a_job(node: Node) -> None:
    node.module(policy="locked", graphics_mhz=1200)
    node.module(layer="job", job="1")
    node.module(layer="job", job="2")
    result = node.module(state="restored", layer="all")
    assert (result["failed"], result["changed"]) == (False, True)
    assert node.settings() == [A100_DEFAULT] * 8
    # A job alone, without a policy of the node.
    node.module(layer="job", job="1")
    node.module(state="restored", layer="all")
    assert node.settings() == [A100_DEFAULT] * 8
    assert node.module(layer="all")["error_kind"] == "bad_value"


def test_a_gpu_that_vanishes_while_it_is_set(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPU 2 refuses its lock; when it is asked again what it can do, it does not answer any more."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import smi

    node.by_hand("-pm", "1")
    node.fault("--no-graphics-lock", "2")
    observe, asked = smi.observe, []

    def losing(program: str, timeout_s: float) -> nvidia_smi.SmiReport:
        if asked:
            node.fault("--no-graphics-lock", "2", "--lost", "2")
        asked.append(program)
        return observe(program, timeout_s)

    monkeypatch.setattr(smi, "observe", losing)
    result = node.module()
    assert problems(result) == {2: ["lost", "lost"]} or problems(result) == {2: ["lost"]}
    assert [gpu["graphics"] for gpu in node.settings()].count([1410, 1410]) == 7


def test_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    result = node.module()
    assert (result["failed"], result["error_kind"]) == (True, "no_driver")
    assert node.module(required=False)["changed"] is False
    assert node.module(required=False, state="restored")["changed"] is False


@pytest.mark.newest
def test_selected_gpus(node: Node) -> None:
    uuid = node.query("uuid")[5][0]
    node.module(gpus=["0", uuid, "00000003:00:00.0"])
    assert [index for index, gpu in enumerate(node.settings()) if gpu["graphics"]] == [0, 2, 5]
    result = node.module(gpus=["9", "GPU-0"])
    assert (result["failed"], result["error_kind"]) == (True, "no_such_gpu")
    assert "GPU 9, GPU-0 does not answer" in result["msg"]


def test_of_the_selected_gpus_those_that_answer_are_set(node: Node) -> None:
    node.fault("--lost", "3")
    result = node.module(gpus=["2", "3", "9", "0000000C:00:00.0"])
    assert (result["failed"], result["error_kind"], result["changed"]) == (True, "lost", True)
    assert [index for index, gpu in enumerate(node.settings()) if gpu["graphics"]] == [2, 5]
    assert "GPU 3 does not answer: the driver answers 'GPU is lost' for it" in result["msg"]
    assert "GPU 9 does not answer: nvidia-smi does not list it" in result["msg"]
    assert "2 of 2 answering GPUs" in result["msg"]
    # A GPU that was not asked for is no reason to fail.
    assert node.module(gpus=["2"])["failed"] is False
    result = node.module(state="verified", gpus=["2", "3"])
    assert (result["failed"], result["error_kind"], result["changed"]) == (True, "lost", False)


@pytest.mark.newest
@pytest.mark.parametrize("options", [{"policy": "values"}, {"graphics_mhz": -5}, {"policy": "locked", "memory_mhz": 0}])
def test_values_that_make_no_sense(node: Node, options: dict[str, Any]) -> None:
    result = node.module(**options)
    assert (result["failed"], result["error_kind"]) == (True, "bad_value")
