# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator answers in the shape of the real program."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi, remapped_rows
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import fabric

SIMULATOR = Path(__file__).resolve().parents[3] / "tests/lab/gpu_simulator"
MACHINES = json.loads((SIMULATOR / "machines.json").read_text(encoding="utf-8"))


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, str(SIMULATOR / program), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    run("install.py", "--root", str(tmp_path), "--machine-type", "Standard_ND40rs_v2", "--seed", "gpu-1")
    monkeypatch.setenv("GPU_SIMULATOR_STATE", str(tmp_path / "var/lib/gpu-simulator/state.json"))
    return tmp_path


def smi(node: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([node / "usr/bin/nvidia-smi", *arguments], capture_output=True, text=True, check=False)


def report(node: Path, timeout_s: float = 120) -> nvidia_smi.SmiReport:
    return nvidia_smi.parse(nvidia_smi.Query(str(node / "usr/bin/nvidia-smi"), timeout_s).result())


def test_machine_types_follow_the_profiles() -> None:
    spec = importlib.util.spec_from_file_location("make_machines", SIMULATOR / "make_machines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    current = (SIMULATOR / "machines.json").read_text(encoding="utf-8")
    assert current == module.text(), "run tests/lab/gpu_simulator/make_machines.py"


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_every_machine_type_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    run("install.py", "--root", str(tmp_path), "--machine-type", machine)
    monkeypatch.setenv("GPU_SIMULATOR_STATE", str(tmp_path / "var/lib/gpu-simulator/state.json"))
    answer = report(tmp_path)
    assert answer.unknown == []
    assert [gpu["bus_id"] for gpu in answer.gpus] == MACHINES[machine]["bus_ids"]
    assert {gpu["name"] for gpu in answer.gpus} == {MACHINES[machine]["name"]}
    assert answer.gpus[0]["clocks"]["max_sm_mhz"] == MACHINES[machine]["max_sm_mhz"]
    assert answer.gpus[0]["mig"]["enabled"] is (False if MACHINES[machine]["mig"] else None)
    assert len({gpu["uuid"] for gpu in answer.gpus}) == len(answer.gpus)


def test_rows_of_memory_are_told_of_gpus_that_remap_them(node: Path) -> None:
    program = str(node / "usr/bin/nvidia-smi")
    assert remapped_rows.ask(program, 120) == {}
    run("install.py", "--root", str(node), "--machine-type", "dgx_a100")
    path = node / "var/lib/gpu-simulator/state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    state["gpus"][1]["remapped_rows"] = {"pending": 1, "failure": 0, "uncorrectable": 1}
    path.write_text(json.dumps(state), encoding="utf-8")
    told = list(remapped_rows.ask(program, 120).values())
    assert [rows["pending"] for rows in told] == [False, True, *[False] * 6]


def test_installing_twice_changes_nothing(node: Path) -> None:
    again = ("--root", str(node), "--machine-type", "Standard_ND40rs_v2", "--seed", "gpu-1")
    assert run("install.py", *again) == "unchanged\n"
    before = (node / "var/lib/gpu-simulator/state.json").read_text(encoding="utf-8")
    assert run("install.py", "--root", str(node), "--machine-type", "dgx_a100") == "installed\n"
    assert (node / "var/lib/gpu-simulator/state.json").read_text(encoding="utf-8") != before
    assert run("install.py", "--root", str(node), "--remove") == "removed\n"
    assert not [path for path in node.rglob("*") if path.is_file()]
    assert run("install.py", "--root", str(node), "--remove") == "nothing to remove\n"


def test_a_real_program_is_not_overwritten(tmp_path: Path) -> None:
    real = tmp_path / "usr/bin/nvidia-smi"
    real.parent.mkdir(parents=True)
    real.write_bytes(b"\x7fELF")
    with pytest.raises(subprocess.CalledProcessError):
        run("install.py", "--root", str(tmp_path), "--machine-type", "dgx_a100")
    run("install.py", "--root", str(tmp_path), "--remove")
    assert real.read_bytes() == b"\x7fELF"


def test_nodes_have_identifiers_of_their_own(node: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    run("install.py", "--root", str(other), "--machine-type", "Standard_ND40rs_v2", "--seed", "gpu-2")
    states = [
        json.loads((root / "var/lib/gpu-simulator/state.json").read_text(encoding="utf-8")) for root in (node, other)
    ]
    assert not {gpu["uuid"] for gpu in states[0]["gpus"]} & {gpu["uuid"] for gpu in states[1]["gpus"]}


@pytest.mark.parametrize(
    ("machine_type", "said"),
    [("Standard_ND96asr_v4", ("N/A", "N/A")), ("Standard_ND96isr_H100_v5", ("Completed", "Success"))],
)
def test_the_fabric_is_known_since_hopper(node: Path, machine_type: str, said: tuple[str, str]) -> None:
    run("install.py", "--root", str(node), "--remove")
    run("install.py", "--root", str(node), "--machine-type", machine_type)
    found = fabric.parse(smi(node, "-q").stdout)
    assert [(one.state, one.status) for one in found.values()] == [said] * 8


def test_formats(node: Path) -> None:
    fields = "--query-gpu=index,pci.bus_id,memory.total,clocks.max.sm,mig.mode.current"
    assert smi(node, fields, "--format=csv").stdout.splitlines()[:2] == [
        "index, pci.bus_id, memory.total [MiB], clocks.max.sm [MHz], mig.mode.current",
        "0, 00000001:00:00.0, 32768 MiB, 1530 MHz, [N/A]",
    ]
    bare = smi(node, fields, "--format=csv,noheader,nounits", "-i", "7").stdout
    assert bare == "7, 00000008:00:00.0, 32768, 1530, [N/A]\n"
    assert smi(node, "-L").stdout.splitlines()[0].startswith("GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-")
    refused = smi(node, "--query-gpu=nonsense", "--format=csv")
    assert (refused.returncode, refused.stdout) == (2, 'Field "nonsense" is not a valid field to query.\n\n')
    assert smi(node, "-i", "9", "-L").returncode == 6


@pytest.mark.parametrize(
    ("fault", "state", "number", "words"),
    [
        (["--missing", "2"], "answered", 7, ""),
        (["--lost", "2"], "answered", 7, "GPU is lost"),
        (["--requires-reset", "2", "4"], "answered", 6, "GPU requires reset"),
        (["--no-handle", "2"], "answered", 7, "Unable to determine the device handle for GPU2: 0003:00:00.0"),
        (["--no-handle", "2", "--exit", "15"], "answered", 7, "exited with 15"),
        (["--exit", "9"], "failed", 0, "exited with 9: the NVIDIA driver is not loaded"),
        (["--exit", "14", "--after-rows"], "answered", 8, "exited with 14"),
        (
            ["--exit", "4", "--message", "Failed to initialize NVML: Insufficient Permissions"],
            "failed",
            0,
            "Insufficient",
        ),
        (["--hang", "600"], "timeout", 0, "did not answer in time"),
        (["--missing", "0", "1", "2", "3", "4", "5", "6", "7"], "answered", 0, "no GPU was found"),
    ],
)
def test_faults(node: Path, fault: list[str], state: str, number: int, words: str) -> None:
    run("fault.py", "--root", str(node), *fault)
    answer = report(node, timeout_s=0.5 if state == "timeout" else 120)
    assert (answer.state, len(answer.gpus)) == (state, number)
    assert words in "\n".join(item["reason"] for item in answer.unknown)
    run("fault.py", "--root", str(node))
    assert (len(report(node).gpus), report(node).unknown) == (8, [])


def test_no_state_is_no_driver(node: Path) -> None:
    (node / "var/lib/gpu-simulator/state.json").unlink()
    assert smi(node).returncode == 9


def test_nothing_outside_the_lab_knows_the_simulator() -> None:
    root = SIMULATOR.parents[2]
    for folder in ("roles", "plugins"):
        for path in (root / folder).rglob("*"):
            if path.suffix in (".py", ".yml", ".j2", ".md"):
                assert "simulator" not in path.read_text(encoding="utf-8"), path


def processes(node: Path, fields: str = "gpu_uuid,pid,process_name,used_memory") -> list[list[str]]:
    answer = smi(node, f"--query-compute-apps={fields}", "--format=csv,noheader")
    assert (answer.returncode, answer.stderr) == (0, "")
    return [line.split(", ") for line in answer.stdout.splitlines()]


def uuids(node: Path) -> list[str]:
    return smi(node, "--query-gpu=uuid", "--format=csv,noheader").stdout.splitlines()


@pytest.mark.slow
def test_processes_are_listed_while_they_live(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes(node) == []
    assert smi(node, "--query-compute-apps=gpu_uuid,pid,name,used_memory", "--format=csv").stdout == (
        "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuids(node)[5])
    command = [sys.executable, str(SIMULATOR / "process.py"), "--root", str(node), "--", "sleep", "30"]
    with subprocess.Popen(command) as child:
        while not processes(node):
            pass
        [row] = processes(node)
        assert (row[0], row[1], row[3]) == (uuids(node)[5], str(child.pid), "512 MiB")
        while processes(node)[0][2].endswith("python3"):  # until it has become what it was asked to run
            pass
        run("process.py", "--root", str(node), "--pid", str(child.pid), "--gpu", "0", "--gpu", "1")
        assert [row[0] for row in processes(node)] == uuids(node)[:2]
        run("fault.py", "--root", str(node), "--lost", "0")
        assert [row[0] for row in processes(node)] == uuids(node)[1:2]
        run("fault.py", "--root", str(node))
        run("process.py", "--root", str(node), "--pid", str(child.pid), "--forget")
        assert processes(node) == []
        run("process.py", "--root", str(node), "--pid", str(child.pid), "--gpu", "7")
        assert len(processes(node)) == 1
        child.kill()
    assert processes(node) == []


def test_gpus_sit_where_the_node_has_pci_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install = ("install.py", "--root", str(tmp_path), "--machine-type", "Standard_ND96asr_v4", "--seed", "vm-1")
    assert run(*install, "--bus-ids", "0000:02:00.0", "0001:0a:1f.7") == "installed\n"
    monkeypatch.setenv("GPU_SIMULATOR_STATE", str(tmp_path / "var/lib/gpu-simulator/state.json"))
    assert [gpu["bus_id"] for gpu in report(tmp_path).gpus] == ["0000:02:00.0", "0001:0a:1f.7"]
    assert run(*install, "--bus-ids", "0000:02:00.0,0001:0a:1f.7") == "unchanged\n"
    assert run(*install) == "installed\n"
    assert len(report(tmp_path).gpus) == 8


def change(node: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return smi(node, "-i", "0,1", *arguments)


def test_settings_are_changed_with_the_words_of_the_program(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "0")
    fields = "--query-gpu=clocks.gr,clocks.applications.graphics,persistence_mode"

    def now() -> str:
        return smi(node, "-i", "1", fields, "--format=csv,noheader,nounits").stdout.strip()

    assert now() == "210, 1530, Disabled"
    assert change(node, "-pm", "1").stdout.splitlines()[1:] == [
        "Enabled persistence mode for GPU 00000002:00:00.0.",
        "All done.",
    ]
    assert "is already Enabled" in change(node, "--persistence-mode=ENABLED").stdout
    assert (
        'GPU clocks set to "(gpuClkMin 900, gpuClkMax 1200)" for GPU 00000002:00:00.0'
        in change(node, "-lgc", "900,1200").stdout
    )
    assert now() == "900, 1530, Enabled"
    unsupported = change(node, "-lmc", "877")
    assert (unsupported.returncode, "Treating as warning" in unsupported.stdout) == (0, True)
    assert change(node, "-ac", "877,1380").returncode == 0
    assert "is not supported for GPU" in change(node, "-ac", "877,1381").stdout
    assert now() == "900, 1380, Enabled"
    assert change(node, "-rgc").stdout == "All done.\n"
    assert change(node, "-rac").stdout == "All done.\n"
    assert now() == "210, 1530, Enabled"
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "1000")
    refused = change(node, "-rgc")
    assert (refused.returncode, "does not have permission" in refused.stdout) == (4, True)


def test_a_driver_without_application_clocks(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "0")
    run("install.py", "--root", str(node), "--machine-type", "Standard_ND96isr_H200_v5", "--driver", "580.159.03")
    answer = report(node)
    assert answer.gpus[0]["clocks"]["applications_sm_mhz"] is None
    assert "is not supported" in change(node, "-ac", "3201,1980").stdout


def test_settings_do_not_outlive_a_boot(node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "0")
    boot_id = tmp_path / "boot_id"
    monkeypatch.setenv("GPU_SIMULATOR_BOOT_ID", str(boot_id))
    for boot, clock in (("first", "900"), ("second", "210")):
        boot_id.write_text(boot, encoding="utf-8")
        if boot == "first":
            change(node, "-lgc", "900")
        assert smi(node, "-i", "0", "--query-gpu=clocks.gr", "--format=csv,noheader,nounits").stdout == f"{clock}\n"


def modes(node: Path, fields: str = "ecc.mode.current,ecc.mode.pending,mig.mode.current,mig.mode.pending") -> list[str]:
    return smi(node, f"--query-gpu={fields}", "--format=csv,noheader").stdout.splitlines()


def machine(node: Path, monkeypatch: pytest.MonkeyPatch, machine_type: str) -> Path:
    """Make it another machine, on which root may change settings; returns where its boot id lies."""
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "0")
    boot_id = node / "boot_id"
    boot_id.write_text("first", encoding="utf-8")
    monkeypatch.setenv("GPU_SIMULATOR_BOOT_ID", str(boot_id))
    run("install.py", "--root", str(node), "--machine-type", machine_type, "--seed", "node")
    return boot_id


@pytest.mark.slow
def test_ecc_waits_for_a_reset_or_a_boot(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_id = machine(node, monkeypatch, "Standard_NC24rs_v3")
    assert change(node, "-e", "0").stdout.splitlines() == [
        "Disabled ECC support for GPU 00000001:00:00.0.",
        "Disabled ECC support for GPU 00000002:00:00.0.",
        "All done.",
        "Reboot required.",
    ]
    assert "already Disabled" in change(node, "--ecc-config=DISABLED").stdout
    assert modes(node)[:3] == ["Enabled, Disabled, [N/A], [N/A]"] * 2 + ["Enabled, Enabled, [N/A], [N/A]"]
    assert smi(node, "-i", "0", "--gpu-reset").stdout == ("GPU 00000001:00:00.0 was successfully reset.\nAll done.\n")
    assert modes(node)[:2] == ["Disabled, Disabled, [N/A], [N/A]", "Enabled, Disabled, [N/A], [N/A]"]
    boot_id.write_text("second", encoding="utf-8")
    assert modes(node)[1] == "Disabled, Disabled, [N/A], [N/A]"
    refused = change(node, "-mig", "1")
    assert (refused.returncode, refused.stdout.splitlines()[:2]) == (
        0,
        ["Unable to enable MIG Mode for GPU 00000001:00:00.0: Not Supported", "Treating as warning and moving on."],
    )


@pytest.mark.slow
def test_mig_of_ampere_is_pending_while_somebody_uses_the_gpu(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_id = machine(node, monkeypatch, "Standard_ND96asr_v4")
    fields = "mig.mode.current,mig.mode.pending"
    smi(node, "-i", "0", "-pm", "1")
    told = change(node, "-mig", "1")
    assert told.returncode == 0
    assert (
        "Warning: MIG mode is in pending enable state for GPU 00000001:00:00.0:In use by another client" in told.stdout
    )
    assert told.stdout.splitlines()[-2:] == ["Enabled MIG Mode for GPU 00000002:00:00.0", "All done."]
    assert modes(node, fields)[:3] == ["Disabled, Enabled", "Enabled, Enabled", "Disabled, Disabled"]
    refused = smi(node, "-r")
    assert (refused.returncode, refused.stdout.splitlines()[:3]) == (
        255,
        ["The following GPUs could not be reset:", "  GPU 00000001:00:00.0: In use by another client", ""],
    )
    boot_id.write_text("second", encoding="utf-8")
    assert modes(node, fields)[:2] == ["Enabled, Enabled"] * 2
    run("fault.py", "--root", str(node), "--no-reset", "0")
    assert (
        "pending disable state for GPU 00000001:00:00.0:Not Supported\nReboot the system"
        in change(node, "-mig", "0").stdout
    )
    refused = smi(node, "-i", "0", "--gpu-reset")
    assert (refused.returncode, refused.stdout) == (3, "Resetting GPU 00000001:00:00.0 is not supported.\n")


@pytest.mark.slow
def test_mig_of_hopper_changes_at_once_and_goes_with_the_driver(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_id = machine(node, monkeypatch, "Standard_ND96isr_H100_v5")
    fields = "mig.mode.current,mig.mode.pending"
    for way in ("boot", "reload"):
        smi(node, "-pm", "1")
        assert change(node, "-mig", "1").returncode == 0
        assert modes(node, fields)[:3] == ["Enabled, Enabled"] * 2 + ["Disabled, Disabled"]
        if way == "boot":
            boot_id.write_text("second", encoding="utf-8")
        else:
            run("fault.py", "--root", str(node), "--reload-driver")
        assert modes(node, fields) == ["Disabled, Disabled"] * 8


def test_a_reset_heals_a_gpu_that_requires_it_and_no_lost_one(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(node, monkeypatch, "Standard_ND96asr_v4")
    run("fault.py", "--root", str(node), "--requires-reset", "2", "--lost", "3")
    assert smi(node, "-i", "2", "-r").returncode == 0
    assert "GPU is lost" in smi(node, "-i", "3", "-r").stdout
    assert [item["what"] for item in report(node).unknown] == ["gpu 3"]


def test_modes_need_root(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(node, monkeypatch, "Standard_ND96asr_v4")
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "1000")
    for words in (["-e", "0"], ["-mig", "1"], ["-r"]):
        assert smi(node, *words).returncode == 4
    assert modes(node) == ["Enabled, Enabled, Disabled, Disabled"] * 8
