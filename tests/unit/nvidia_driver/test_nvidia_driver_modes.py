# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ECC and MIG as declared, by the whole module against simulated GPUs, on a node whose driver came with its image."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
import uuid
from pathlib import Path

import pytest
import simulated_gpus
from ansible.module_utils import basic
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import modes as driver_modes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as driver_read
from ansible_collections.hpcai.gpu_cluster.plugins.modules import nvidia_driver
from module_run import run_main

pytestmark = pytest.mark.oldest

A100, H100, V100 = "Standard_ND96asr_v4", "Standard_ND96isr_H100_v5", "Standard_NC24rs_v3"
#: Services that keep GPUs open, and run on the node.
OPEN = ["nvidia-dcgm.service", "nvidia-persistenced.service"]


class Node:
    """A node with simulated GPUs, Slurm, and services that hold the GPUs open."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.smi = root, str(root / "usr/bin/nvidia-smi")
        self.state = root / "var/lib/gpu-simulator/state.json"
        self.running: list[str] = []
        self.done: list[str] = []
        self.needed: list[str] = []
        self._boot_id = root / "boot_id"
        self._boot_id.write_text("first\n", encoding="utf-8")
        monkeypatch.setenv("GPU_SIMULATOR_STATE", str(self.state))
        monkeypatch.setenv("GPU_SIMULATOR_BOOT_ID", str(self._boot_id))
        monkeypatch.setenv("GPU_SIMULATOR_EUID", "0")
        monkeypatch.setattr(driver_read, "ROOT", root)
        monkeypatch.setattr(driver_read, "in_chroot", lambda: False)
        monkeypatch.setattr(basic.AnsibleModule, "run_command", self._command)

    def _command(self, argv: list[str], **_options: t.Any) -> tuple[int, str, str]:
        if argv[0] == "systemctl":
            unit = argv[-1]
            if argv[1] == "is-active":
                return (0 if unit in self.running else 3), "", ""
            self.done.append(f"{argv[1]} {unit}")
            (self.running.remove if argv[1] == "stop" else self.running.append)(unit)
            self._hold("nvidia-persistenced.service" in self.running)
            return 0, "", ""
        if argv[0] == "modprobe":
            self.done.append(" ".join(argv))
            return (1 if argv[-1] in self.needed else 0), "", ""
        if argv[0] == "scontrol":
            if argv[1] == "update":
                self.done.append(argv[-2] if argv[-1].startswith("Reason") else argv[-1])
                return 0, "", ""
            state = "IDLE+DRAIN Reason=hpcai.gpu_cluster.nvidia_driver" if "State=DRAIN" in self.done else "IDLE"
            return 0, f"NodeName=gpu-1 State={state}\n", ""
        raise AssertionError(argv)

    def _hold(self, on: bool) -> None:
        subprocess.run([self.smi, "-pm", str(int(on))], check=False, capture_output=True)

    def install(self, machine_type: str) -> None:
        simulated_gpus.install(self.root, machine_type)

    def serve(self) -> None:
        """Let the usual services run."""
        self.running = list(OPEN)
        self._hold(True)

    def fault(self, *arguments: str) -> None:
        simulated_gpus.simulate(self.root, "fault.py", *arguments)

    def use(self, index: int) -> None:
        """Let a program use a GPU: this one, which lives long enough."""
        simulated_gpus.simulate(self.root, "process.py", "--gpu", str(index), "--pid", str(os.getpid()))

    def reboot(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n", encoding="utf-8")

    def modes(self, name: str, when: str = "current") -> list[bool | None]:
        """What the GPUs have, as nvidia-smi tells it."""
        argv = [self.smi, f"--query-gpu={name}.mode.{when}", "--format=csv,noheader"]
        words = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
        return [{"Enabled": True, "Disabled": False}.get(word) for word in words]

    def module(self, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        """Run the module; ``failed`` tells how it ended."""
        arguments = {
            "source": "preinstalled",
            "nvidia_smi": self.smi,
            "cuda_library": "",
            "_ansible_check_mode": check,
            **options,
        }
        return run_main(nvidia_driver.main, arguments)

    def settles(self, **options: t.Any) -> None:
        """What was asked for is there: nothing is left to change, and verify agrees."""
        again = self.module(**options)
        assert (again["failed"], again["changed"], again["reboot_required"]) == (False, False, []), again
        assert not self.module(state="verified", **options)["failed"]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path, monkeypatch)
    made.install(A100)
    return made


def words(result: dict[str, t.Any]) -> list[str]:
    return [f"{change['name']}: {change['what']}" for change in result["changes"]]


@pytest.mark.newest
def test_nothing_is_asked_or_changed_when_the_modes_are_as_declared(node: Node) -> None:
    node.settles(ecc="enabled", mig="disabled")
    node.settles()


@pytest.mark.newest
@pytest.mark.parametrize("declared", [{"ecc": "disabled"}, {"mig": "enabled"}])
def test_without_consent_nothing_is_set_and_both_ways_are_named(node: Node, declared: dict[str, str]) -> None:
    before = node.state.read_text(encoding="utf-8")
    for check in (True, False):
        refused = node.module(check=check, **declared)
        assert (refused["failed"], refused["error_kind"]) == (True, "consent_missing")
        assert "`allow_unload: true`" in refused["remedy"]
        assert "`allow_reboot: true`" in refused["remedy"]
        assert f"GPU 7: {next(iter(declared)).upper()} {'off' if 'ecc' in declared else 'on'}" in refused["msg"]
    assert json.loads(node.state.read_text(encoding="utf-8"))["gpus"] == json.loads(before)["gpus"]


def test_a_pending_mode_without_consent_is_told_as_pending(node: Node) -> None:
    subprocess.run([node.smi, "-i", "2", "-e", "0"], check=True, capture_output=True)
    refused = node.module(ecc="disabled")
    assert "GPU 2: ECC off, which is pending" in refused["msg"]
    assert "GPU 1: ECC off;" in refused["msg"]
    told = node.module(state="verified", ecc="disabled")
    assert "GPU 2 has ECC on until a reset or a reboot" in told["msg"]
    # Somebody's pending mode that would undo what is declared is as wrong as a wrong mode.
    told = node.module(state="verified", ecc="enabled")
    assert "GPU 2 will have ECC off after a reset or a reboot" in told["msg"]


def test_a_pending_mode_that_is_not_wanted_is_taken_back_without_consent(node: Node) -> None:
    subprocess.run([node.smi, "-i", "2", "-e", "0"], check=True, capture_output=True)
    result = node.module(ecc="enabled")
    assert words(result) == ["2 ecc: keep on"]
    assert node.modes("ecc", "pending") == [True] * 8
    node.settles(ecc="enabled")


def test_ecc_takes_effect_with_a_reset_and_needs_no_reboot(node: Node) -> None:
    node.serve()
    result = node.module(ecc="disabled", allow_unload=True, allow_reboot=True)
    assert (result["failed"], result["reboot_required"]) == (False, [])
    assert node.modes("ecc") == [False] * 8
    # Who held the GPUs open was stopped for it, and runs again.
    assert node.done[:2] == [f"stop {unit}" for unit in OPEN]
    assert sorted(node.running) == OPEN
    node.settles(ecc="disabled")


def test_persistence_mode_without_the_daemon_gives_way_to_the_reset_and_comes_back(node: Node) -> None:
    subprocess.run([node.smi, "-i", "1,2", "-pm", "1"], check=True, capture_output=True)
    result = node.module(ecc="disabled", allow_unload=True)
    assert (result["failed"], node.modes("ecc"), node.done) == (False, [False] * 8, [])
    argv = [node.smi, "--query-gpu=persistence_mode", "--format=csv,noheader"]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    assert [index for index, word in enumerate(told) if word == "Enabled"] == [1, 2]


def test_modules_that_hold_gpus_open_make_way_and_come_back(node: Node) -> None:
    for name in ("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"):
        (node.root / "sys/module" / name).mkdir(parents=True)
    node.needed = ["nvidia_uvm"]
    assert not node.module(ecc="disabled", allow_unload=True)["failed"]
    # One that something else needs stays, and is not loaded again.
    assert node.done == [
        *(f"modprobe -r -i {name}" for name in ("nvidia_uvm", "nvidia_drm", "nvidia_modeset")),
        *(f"modprobe {name}" for name in ("nvidia_modeset", "nvidia_drm")),
    ]


def test_mig_takes_effect_at_once_where_the_gpu_lets_itself_be_reset(node: Node) -> None:
    node.serve()
    result = node.module(mig="enabled", allow_unload=True)
    assert words(result) == [f"{index} mig: on" for index in range(8)]
    assert node.modes("mig") == [True] * 8
    node.settles(mig="enabled")


@pytest.mark.slow
@pytest.mark.newest
def test_with_consent_to_a_reboot_only_no_service_is_touched(node: Node) -> None:
    node.serve()
    result = node.module(ecc="disabled", mig="enabled", allow_reboot=True)
    assert not result["failed"]
    assert "GPU 0: ECC off" in result["reboot_required"][0]
    assert "GPU 0: MIG on" in result["reboot_required"][0]
    assert (node.done, node.modes("ecc"), node.modes("ecc", "pending")) == ([], [True] * 8, [False] * 8)
    # Run again before the reboot: nothing is set twice, and it is still pending.
    again = node.module(ecc="disabled", mig="enabled", allow_reboot=True)
    assert again["reboot_required"] == result["reboot_required"]
    assert words(again) == words(result)
    node.reboot()
    node.settles(ecc="disabled", mig="enabled", allow_reboot=True)


@pytest.mark.slow
@pytest.mark.parametrize("reboot", [False, True])
def test_behind_a_hypervisor_only_a_reboot_helps(node: Node, reboot: bool) -> None:
    node.fault("--no-reset", *map(str, range(8)))
    result = node.module(ecc="disabled", mig="enabled", allow_unload=True, allow_reboot=reboot)
    assert node.modes("ecc", "pending") == [False] * 8
    if reboot:
        assert not result["failed"]
        assert result["reboot_required"]
    else:
        assert (result["failed"], result["error_kind"], result["changed"]) == (True, "mode_pending", True)
        assert "`allow_reboot: true`" in result["remedy"]
        assert "is not supported" in result["msg"]
    # Asked again, nothing more can be done, and nothing was changed.
    again = node.module(ecc="disabled", mig="enabled", allow_unload=True)
    assert (again["failed"], again["changed"], again["changes"]) == (True, False, [])
    node.reboot()
    node.settles(ecc="disabled", mig="enabled")


@pytest.mark.slow
@pytest.mark.newest
def test_a_gpu_in_use_is_named_and_the_others_are_set(node: Node) -> None:
    node.use(3)
    result = node.module(ecc="disabled", allow_unload=True)
    assert (result["failed"], result["error_kind"]) == (True, "mode_pending")
    assert [finding["what"] for finding in result["findings"]] == ["gpu 3"]
    assert "In use by another client" in result["msg"]
    assert node.modes("ecc") == [index == 3 for index in range(8)]
    # With consent to a reboot, that is what is left.
    rest = node.module(ecc="disabled", allow_unload=True, allow_reboot=True)
    assert rest["reboot_required"] == ["GPU 3: ECC off, which is pending"]


@pytest.mark.slow
@pytest.mark.newest
def test_newer_gpus_change_mig_at_once_and_need_no_consent(node: Node) -> None:
    node.install(H100)
    node.serve()
    result = node.module(mig="enabled")
    assert (result["failed"], node.modes("mig"), node.done) == (False, [True] * 8, [])
    node.settles(mig="enabled")
    # They forget it when they boot: the role sets it again.
    node.reboot()
    assert "GPU 0 has MIG off" in node.module(state="verified", mig="enabled")["msg"]
    assert node.module(mig="enabled")["changed"]


def test_newer_gpus_change_mig_after_the_reboot_that_ecc_needs(node: Node) -> None:
    node.install(H100)
    wanted = {"ecc": "disabled", "mig": "enabled", "allow_reboot": True}
    result = node.module(**wanted)
    assert result["reboot_required"]
    assert words(result) == [f"{index} ecc: off" for index in range(8)] + [f"reboot: {result['reboot_required'][0]}"]
    node.reboot()
    result = node.module(**wanted)
    assert (result["failed"], result["reboot_required"]) == (False, [])
    assert words(result) == [f"{index} mig: on" for index in range(8)]
    node.settles(**wanted)


def test_a_newer_gpu_in_use_keeps_its_mode_and_is_named(node: Node) -> None:
    node.install(H100)
    node.use(5)
    result = node.module(mig="enabled", allow_reboot=True)
    assert (result["failed"], result["reboot_required"]) == (True, [])
    assert [finding["what"] for finding in result["findings"]] == ["gpu 5"]
    assert "In use by another client" in result["msg"]
    assert node.modes("mig") == [index != 5 for index in range(8)]


@pytest.mark.slow
@pytest.mark.newest
def test_gpus_without_the_mode_are_named_and_the_others_are_set(node: Node) -> None:
    node.fault("--no-mig", "2", "--no-ecc", "6")
    result = node.module(mig="enabled", ecc="enabled", allow_unload=True)
    assert (result["failed"], result["error_kind"], result["changed"]) == (True, "unsupported_mode", True)
    assert [finding["what"] for finding in result["findings"]] == ["gpu 6", "gpu 2"]
    assert "GPU 2 (NVIDIA A100-SXM4-40GB) has no MIG mode" in result["msg"]
    assert node.modes("mig") == [None if index == 2 else True for index in range(8)]
    told = node.module(state="verified", mig="enabled")
    assert "GPU 2 (NVIDIA A100-SXM4-40GB) has no MIG mode" in told["msg"]
    # Off is what a GPU without the mode has.
    assert not node.module(mig="disabled", allow_unload=True)["failed"]


def test_a_lost_gpu_is_named_and_the_others_are_set(node: Node) -> None:
    node.fault("--lost", "4")
    result = node.module(ecc="disabled", allow_unload=True)
    assert result["failed"]
    assert "gpu 4: the driver answers 'GPU is lost' for it" in result["msg"]
    node.fault()
    assert node.modes("ecc") == [index == 4 for index in range(8)]


def test_a_gpu_that_accepts_a_mode_and_does_not_take_it_is_no_reason_to_reboot(node: Node) -> None:
    node.fault("--deaf", "1")
    result = node.module(mig="enabled", allow_reboot=True)
    assert (result["failed"], result["error_kind"], result["reboot_required"]) == (True, "mode_failed", [])
    assert [finding["what"] for finding in result["findings"]] == ["gpu 1"]
    assert node.modes("mig") == [index != 1 for index in range(8)]


def test_without_permission_the_reason_is_told(node: Node) -> None:
    node.fault("--no-permission")
    result = node.module(mig="enabled", allow_reboot=True)
    assert (result["failed"], result["changed"]) == (True, False)
    assert "Insufficient Permissions" in result["msg"]
    assert node.modes("mig") == [False] * 8


def test_a_setting_that_hangs_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_modes, "SETTING_TIMEOUT_S", 0.5)
    node.fault("--stuck", "0")
    result = node.module(mig="enabled", allow_reboot=True)
    assert result["failed"]
    assert [finding["what"] for finding in result["findings"]] == ["gpu 0"]
    assert "did not come back" in result["msg"]
    assert node.modes("mig") == [index != 0 for index in range(8)]


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("machine", [A100, H100])
def test_check_mode_tells_what_comes_and_changes_nothing(node: Node, machine: str) -> None:
    node.install(machine)
    node.serve()
    before = json.loads(node.state.read_text(encoding="utf-8"))
    wanted = {"ecc": "disabled", "mig": "enabled", "allow_unload": True}
    told = node.module(check=True, **wanted)
    assert json.loads(node.state.read_text(encoding="utf-8")) == before
    assert node.done == []
    done = node.module(**wanted)
    assert (told["failed"], words(told), told["diff"]) == (False, words(done), done["diff"])
    assert {"before": "1\n", "after": "0\n"}.items() <= told["diff"][0].items()
    assert words(node.module(check=True, **wanted)) == []


@pytest.mark.newest
def test_check_mode_refuses_what_would_be_refused(node: Node) -> None:
    node.fault("--no-mig", "2")
    told = node.module(check=True, mig="enabled", allow_reboot=True)
    assert (told["failed"], told["error_kind"]) == (True, "unsupported_mode")
    assert node.modes("mig") == [None if index == 2 else False for index in range(8)]


def test_the_node_is_drained_for_it_and_given_back(node: Node) -> None:
    result = node.module(ecc="disabled", allow_unload=True, drain=True, slurm_node="gpu-1")
    assert not result["failed"]
    assert node.done == ["State=DRAIN", "State=RESUME"]


def test_a_node_that_has_to_boot_stays_drained_until_it_has(node: Node) -> None:
    wanted = {"ecc": "disabled", "allow_reboot": True, "drain": True, "slurm_node": "gpu-1"}
    assert node.module(**wanted)["reboot_required"]
    assert node.done == ["State=DRAIN"]
    node.reboot()
    assert not node.module(**wanted)["failed"]
    assert node.done == ["State=DRAIN", "State=RESUME"]


def test_ecc_of_an_older_generation(node: Node) -> None:
    node.install(V100)
    assert not node.module(ecc="disabled", mig="disabled", allow_unload=True)["failed"]
    assert node.modes("ecc") == [False] * 4


def test_modes_belong_to_configure(node: Node) -> None:
    result = node.module(ecc="disabled", allow_unload=True, phases=["install"])
    assert (result["changed"], node.modes("ecc")) == (False, [True] * 8)
