# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every way in which nvidia-smi answers or fails."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import FIELDS, SmiReport, SmiRun

FIXTURES = Path(__file__).parent / "fixtures/nvidia_smi"
CASES = sorted(path.stem for path in FIXTURES.glob("*.out"))


def recorded(case: str) -> SmiRun:
    def read(suffix: str) -> str:
        path = FIXTURES / f"{case}.{suffix}"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    return SmiRun(rc=int(read("rc") or 0), stdout=read("out"), stderr=read("err"))


def parsed(case: str) -> SmiReport:
    return nvidia_smi.parse(recorded(case))


def said(report: SmiReport) -> str:
    return "\n".join(f"{item['what']}: {item['reason']}" for item in report.unknown)


# case -> (state, number of GPUs, words that the reasons must hold)
EXPECTED: dict[str, tuple[str, int, list[str]]] = {
    "dgx_a100": ("answered", 8, []),
    "ndv4": ("answered", 8, []),
    "h200_deprecated": ("answered", 8, []),
    "v100_no_mig": ("answered", 8, []),
    "mig_on": ("answered", 8, []),
    "not_supported": ("answered", 1, []),
    "unknown_error": ("answered", 2, []),
    "gpu_lost": ("answered", 7, ["gpu 3: the driver answers 'GPU is lost'"]),
    "requires_reset": ("answered", 1, ["gpu 1 (0002:00:00.0): the driver answers 'GPU requires reset'"]),
    "no_handle": ("answered", 7, ["gpu 3 (0004:00:00.0)", "Unable to determine the device handle"]),
    "fell_off_bus": ("answered", 0, ["exited with 15: a GPU fell off the bus", "gpu (0000:0b:00.0)"]),
    "inforom": ("answered", 8, ["exited with 14: an infoROM is corrupted", "0001:00:00.0"]),
    "driver_not_loaded": ("failed", 0, ["exited with 9: the NVIDIA driver is not loaded"]),
    "nvml_missing": ("failed", 0, ["exited with 12: libnvidia-ml.so"]),
    "version_mismatch": ("failed", 0, ["driver and library versions differ"]),
    "no_permission": ("failed", 0, ["exited with 4: no permission"]),
    "no_devices": ("answered", 0, ["exited with 6: no GPU was found"]),
    "no_devices_exit_0": ("answered", 0, ["No devices were found"]),
    "no_power": ("failed", 0, ["exited with 8: a GPU's external power"]),
    "interrupt": ("failed", 0, ["exited with 10"]),
    "bad_argument": ("failed", 0, ["exited with 2"]),
    "unknown_field": ("failed", 0, ["exited with 2"]),
    "cut_short": ("failed", 2, ["exited with 255", "gpu 2", "incomplete row"]),
    "empty": ("answered", 0, ["lists none"]),
    "unheard_of": ("failed", 0, ["exited with 77: an unknown failure", "Segmentation fault"]),
}


def test_every_fixture_has_its_expectation() -> None:
    assert sorted(EXPECTED) == CASES


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_understood(case: str) -> None:
    report = parsed(case)
    state, number, words = EXPECTED[case]
    assert (report.state, len(report.gpus)) == (state, number)
    for word in words:
        assert word in said(report)
    assert bool(report.unknown) == bool(words)
    assert all(item["remedy"] for item in report.unknown)


def test_one_gpu_in_full() -> None:
    assert parsed("ndv4").gpus[4] == {
        "index": 4,
        "uuid": "GPU-5a1c0004-0b7e-4c55-9d10-2f6f3c0e0004",
        "name": "NVIDIA A100-SXM4-40GB",
        "bus_id": "000b:00:00.0",
        "numa": None,
        "minor": None,
        "memory_mib": 40960,
        "driver": "550.163.01",
        "persistence": True,
        "clocks": {
            "sm_mhz": 210,
            "mem_mhz": 1215,
            "max_sm_mhz": 1410,
            "max_mem_mhz": 1215,
            "applications_sm_mhz": 1410,
            "applications_mem_mhz": 1215,
        },
        "ecc": {"enabled": True, "pending": True, "corrected": 0, "uncorrected": 0},
        "mig": {"enabled": False, "pending": False},
    }


def test_values_that_a_gpu_lacks_are_null() -> None:
    quadro = parsed("not_supported").gpus[0]
    assert quadro["ecc"] == {"enabled": None, "pending": None, "corrected": None, "uncorrected": None}
    assert quadro["mig"] == {"enabled": None, "pending": None}
    assert quadro["clocks"]["applications_sm_mhz"] is None
    assert parsed("h200_deprecated").gpus[0]["clocks"]["applications_mem_mhz"] is None
    assert parsed("v100_no_mig").gpus[0]["mig"]["enabled"] is None
    broken = parsed("unknown_error").gpus[1]
    assert (broken["clocks"]["sm_mhz"], broken["ecc"]["uncorrected"], broken["clocks"]["mem_mhz"]) == (None, None, 1215)


def test_mig_is_told_per_gpu() -> None:
    modes = [(gpu["mig"]["enabled"], gpu["mig"]["pending"]) for gpu in parsed("mig_on").gpus[:3]]
    assert modes == [(True, True), (False, True), (False, False)]


def test_units_do_no_harm() -> None:
    line = recorded("ndv4").stdout.splitlines()[0].replace("40960", "40960 MiB").replace("1410", "1410 MHz")
    gpu = nvidia_smi.parse(SmiRun(rc=0, stdout=line)).gpus[0]
    assert (gpu["memory_mib"], gpu["clocks"]["max_sm_mhz"]) == (40960, 1410)


# From here on a real process is started.


def script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def ask(program: str, timeout_s: float = 120) -> SmiReport:
    return nvidia_smi.parse(nvidia_smi.Query(program, timeout_s).result())


def test_a_program_that_works(tmp_path: Path) -> None:
    program = script(tmp_path, f'echo "$*" > {tmp_path}/argv\ncat {FIXTURES}/dgx_a100.out')
    report = ask(program)
    assert len(report.gpus) == 8
    argv = (tmp_path / "argv").read_text(encoding="utf-8").split()
    assert argv == [f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]


def test_it_speaks_c_and_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    program = script(tmp_path, f'echo "$LC_ALL" > {tmp_path}/locale; cat > {tmp_path}/input; cat {FIXTURES}/ndv4.out')
    reader, writer = os.pipe()
    os.write(writer, b"input of the play\n")
    os.close(writer)
    own = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert len(ask(program).gpus) == 8
    finally:
        os.dup2(own, 0)
        for descriptor in (own, reader):
            os.close(descriptor)
    assert (tmp_path / "locale").read_text(encoding="utf-8") == "C\n"
    assert (tmp_path / "input").read_text(encoding="utf-8") == ""


def test_a_missing_program(tmp_path: Path) -> None:
    report = ask(str(tmp_path / "nvidia-smi"))
    assert (report.state, report.gpus) == ("missing", [])
    assert "not installed" in said(report)


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_bytes(b"\x7fELF of another architecture")
    path.chmod(0o755)
    assert ask(str(path)).state == "missing"


@pytest.mark.slow
def test_a_hanging_program_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = script(tmp_path, f"head -3 {FIXTURES}/ndv4.out\nsleep 600 & echo $! > {pid_file}\nwait")
    started = time.monotonic()
    # Long enough for what it prints first.
    report = ask(program, timeout_s=3)
    assert time.monotonic() - started < 120
    assert report.state == "timeout"
    assert "did not answer in time" in said(report)
    # What it printed before counts.
    assert [gpu["index"] for gpu in report.gpus] == [0, 1, 2]
    child = int(pid_file.read_text(encoding="utf-8"))
    deadline = time.monotonic() + 120
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        # A zombie waits for its parent and does nothing any more.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_field_that_the_driver_does_not_know_is_left_out(tmp_path: Path) -> None:
    body = f"""
echo call >> {tmp_path}/calls
case "$1" in
  *mig.mode.current*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;;
  *mig.mode.pending*) echo 'Field "mig.mode.pending" is not a valid field to query.' >&2; exit 2 ;;
esac
cut -d, -f1-17 {FIXTURES}/dgx_a100.out
"""
    report = ask(script(tmp_path, body))
    assert (report.state, len(report.gpus), report.unknown) == ("answered", 8, [])
    assert report.gpus[0]["mig"] == {"enabled": None, "pending": None}
    assert (tmp_path / "calls").read_text(encoding="utf-8").count("call") == 3


def test_an_unknown_field_that_is_needed_ends_the_attempt(tmp_path: Path) -> None:
    body = f"echo call >> {tmp_path}/calls; echo 'Field \"uuid\" is not a valid field to query.'; exit 2"
    assert ask(script(tmp_path, body)).state == "failed"
    assert (tmp_path / "calls").read_text(encoding="utf-8").count("call") == 1


def test_a_name_is_searched_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert nvidia_smi.find("nvidia-smi") == program
