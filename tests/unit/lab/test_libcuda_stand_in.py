# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's libcuda answers as NVIDIA's documents say, and tells of a machine what the simulated nvidia-smi tells.

It is called as CUDA is: by its C interface, in a process of its own, because a process starts CUDA once.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t

import pytest

SIMULATOR = pathlib.Path(__file__).resolve().parents[3] / "tests/lab/gpu_simulator"
MAKE = SIMULATOR / "libcuda/make_libcuda.py"
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

# Results of the driver API, by the numbers of its reference.
SUCCESS, INVALID_VALUE, NOT_INITIALIZED, NO_DEVICE, INVALID_DEVICE = 0, 1, 3, 100, 101
SYSTEM_NOT_READY, SYSTEM_DRIVER_MISMATCH, UNKNOWN = 802, 803, 999
ECC_ENABLED, MAJOR, MINOR = 32, 75, 76

# What a test may ask, each a result and an answer.
CALLER = """
import ctypes, json, sys, uuid as ids
cuda = ctypes.CDLL(sys.argv[1])
def init(flags=0): return cuda.cuInit(ctypes.c_uint(flags))
def number(function, *words, kind=ctypes.c_int):
    answer = kind(-1)
    return [getattr(cuda, function)(ctypes.byref(answer), *words), answer.value]
def version(): return number("cuDriverGetVersion")
def count(): return number("cuDeviceGetCount")
def get(ordinal): return number("cuDeviceGet", ordinal)
def memory(device): return number("cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t)
def attribute(which, device): return number("cuDeviceGetAttribute", which, device)
def text(function, length, device):
    room = ctypes.create_string_buffer(b"#" * 256)
    result = getattr(cuda, function)(room, length, device)
    return [result, room.value.decode() if result == 0 else None]
def name(device, length=128): return text("cuDeviceGetName", length, device)
def bus_id(device, length=13): return text("cuDeviceGetPCIBusId", length, device)
def uuid(device, function="cuDeviceGetUuid_v2"):
    room = ctypes.create_string_buffer(16)
    result = getattr(cuda, function)(room, device)
    return [result, "GPU-%s" % ids.UUID(bytes=room.raw)]
def error(function, code):
    answer = ctypes.c_char_p(b"untouched")
    result = getattr(cuda, function)(code, ctypes.byref(answer))
    return [result, answer.value and answer.value.decode()]
def nothing(function, *words): return getattr(cuda, function)(None, *words)
print(json.dumps(eval(sys.argv[2])))
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, str(SIMULATOR / program), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("libcuda") / "libcuda.so.1"
    assert run("libcuda/make_libcuda.py", str(path)) == "changed\n"
    return path


class Node(t.NamedTuple):
    """A directory that stands for a node with simulated GPUs."""

    root: pathlib.Path
    library: pathlib.Path
    monkeypatch: pytest.MonkeyPatch

    def become(self, machine_type: str, *more: str) -> None:
        run("install.py", "--root", str(self.root), "--machine-type", machine_type, "--seed", "gpu-1", *more)

    def fault(self, *words: str) -> None:
        run("fault.py", "--root", str(self.root), *words)

    def smi(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.root / "usr/bin/nvidia-smi", *words], capture_output=True, text=True, check=False)

    def query(self, fields: str) -> list[list[str]]:
        told = self.smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits").stdout
        return [line.split(", ") for line in told.splitlines()]

    def cuda(self, calls: str, visible: str | None = None) -> t.Any:
        """What the calls (Python, with the names of CALLER) give in a new process."""
        with self.monkeypatch.context() as patch:
            patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            if visible is not None:
                patch.setenv("CUDA_VISIBLE_DEVICES", visible)
            command = [sys.executable, "-c", CALLER, str(self.library), calls]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def devices(self, visible: str | None = None) -> list[str]:
        """The UUIDs of CUDA's devices, in its order."""
        asked = self.cuda("[init(), [uuid(device) for device in range(count()[1])]]", visible)
        assert asked[0] == (SUCCESS if asked[1] else NO_DEVICE)
        return [uuid for _result, uuid in asked[1]]


@pytest.fixture
def node(tmp_path: pathlib.Path, library: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path, library, monkeypatch)
    made.become("Standard_ND96isr_H100_v5")
    monkeypatch.setenv("GPU_SIMULATOR_STATE", str(tmp_path / "var/lib/gpu-simulator/state.json"))
    monkeypatch.setenv("GPU_SIMULATOR_EUID", "0")
    return made


@pytest.mark.parametrize(
    "machine_type",
    [
        "Standard_NC24rs_v3",
        "Standard_ND40rs_v2",
        "Standard_NC96ads_A100_v4",
        "Standard_ND96asr_v4",
        "Standard_ND96isr_H100_v5",
        "dgx_b200",
    ],
)
def test_it_tells_what_nvidia_smi_tells(node: Node, machine_type: str) -> None:
    node.become(machine_type)
    told = node.query("uuid,name,pci.bus_id,memory.total,compute_cap,ecc.mode.current")
    questions = f"uuid(d), name(d), bus_id(d), memory(d), attribute({MAJOR}, d), attribute({MINOR}, d), attribute({ECC_ENABLED}, d)"
    result, *found = node.cuda(f"[init(), *([{questions}] for d in range(count()[1]))]")
    assert result == SUCCESS
    assert {code for answers in found for code, _answer in answers} == {SUCCESS}
    rows = [[answer for _code, answer in answers] for answers in found]
    assert [
        [uuid, name, f"0000{bus_id}", str(size // 2**20), f"{major}.{minor}", "Enabled" if ecc else "Disabled"]
        for uuid, name, bus_id, size, major, minor, ecc in rows
    ] == told


def test_nothing_is_answered_before_cuda_was_started(node: Node) -> None:
    questions = "count(), get(0), name(0), uuid(0), uuid(0, 'cuDeviceGetUuid'), memory(0), bus_id(0), attribute(75, 0)"
    assert {code for code, _answer in node.cuda(f"[{questions}]")} == {NOT_INITIALIZED}
    assert {code for code, _answer in node.cuda(f"[init(), {questions}][1:]")} == {SUCCESS}
    # A start that failed is none.
    node.fault("--cuda", "999")
    assert node.cuda("[init(), count()[0], init()]") == [UNKNOWN, NOT_INITIALIZED, UNKNOWN]


def test_starting_again_changes_nothing(node: Node) -> None:
    assert node.cuda("[init(), init(), count()]") == [SUCCESS, SUCCESS, [SUCCESS, 8]]


def test_only_flags_of_zero_are_allowed(node: Node) -> None:
    assert node.cuda("[init(1), count()[0], init(0)]") == [INVALID_VALUE, NOT_INITIALIZED, SUCCESS]


def test_arguments_are_checked(node: Node) -> None:
    functions = ("cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid_v2", "cuDeviceGetUuid", "cuDeviceTotalMem_v2")
    told = node.cuda(f"[init(), *(nothing(function, 0) for function in {functions})]")
    assert told == [SUCCESS] + [INVALID_VALUE] * len(functions)
    told = node.cuda(
        "[init(), *(nothing(f, 13, 0) for f in ('cuDeviceGetName', 'cuDeviceGetPCIBusId', 'cuDeviceGetAttribute'))]"
    )
    assert told == [SUCCESS, *[INVALID_VALUE] * 3]
    questions = "get(d), name(d), uuid(d), memory(d), bus_id(d), attribute(75, d)"
    told = node.cuda(f"[init(), *(code for d in (8, -1) for code, _answer in ({questions}))]")
    assert told == [SUCCESS, *[INVALID_DEVICE] * 12]
    assert node.cuda("[init(), get(7), attribute(9999, 0)[0]]") == [SUCCESS, [SUCCESS, 7], INVALID_VALUE]


def test_names_are_as_long_as_there_is_room(node: Node) -> None:
    told = node.cuda("[init(), name(0, 7), name(0, 1), name(0, 0)[0], bus_id(0), bus_id(0, 12)[0]]")
    assert told == [
        SUCCESS,
        [SUCCESS, "NVIDIA"],
        [SUCCESS, ""],
        INVALID_VALUE,
        [SUCCESS, "0001:00:00.0"],
        INVALID_VALUE,
    ]


@pytest.mark.parametrize(
    ("code", "name", "description"),
    [
        (0, "CUDA_SUCCESS", "no error"),
        (1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
        (3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
        (100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
        (101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"),
        (999, "CUDA_ERROR_UNKNOWN", "unknown error"),
    ],
)
def test_results_have_names(node: Node, code: int, name: str, description: str) -> None:
    told = node.cuda(f"[error('cuGetErrorName', {code}), error('cuGetErrorString', {code})]")
    assert told == [[SUCCESS, name], [SUCCESS, description]]


def test_an_unknown_result_has_no_name(node: Node) -> None:
    asked = "[error('cuGetErrorName', 12345), error('cuGetErrorString', 12345), cuda.cuGetErrorName(0, None)]"
    assert node.cuda(asked) == [[INVALID_VALUE, None], [INVALID_VALUE, None], INVALID_VALUE]


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("470.256.02", 11040), ("535.183.01", 12020), ("550.163.01", 12040), ("570.195.03", 12080), ("580.159.03", 13000)],
)
def test_the_version_of_cuda_is_that_of_the_driver(node: Node, driver: str, cuda: int) -> None:
    node.become("Standard_ND96isr_H100_v5", "--driver", driver)
    # Its reference names no result but success and a wrong argument: it needs no start.
    assert node.cuda("[version(), nothing('cuDriverGetVersion')]") == [[SUCCESS, cuda], INVALID_VALUE]


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("", []),
        ("2,1", [2, 1]),
        ("0,2,-1,1", [0, 2]),
        ("8,0", []),
        ("3,none,0", [3]),
        ("1,", [1]),
        ("1,2,1,0", [1, 2]),
    ],
)
def test_indices_choose_devices_and_their_order(node: Node, visible: str | None, devices: list[int]) -> None:
    uuids = [row[0] for row in node.query("uuid")]
    assert node.devices(visible) == [uuids[index] for index in devices]


def test_the_beginning_of_a_uuid_chooses_a_device(node: Node) -> None:
    uuids = [row[0] for row in node.query("uuid")]
    assert node.devices(f"{uuids[5]},{uuids[2][:12]},0") == [uuids[5], uuids[2], uuids[0]]
    # All GPUs share this one, and none has the other.
    assert node.devices(f"{uuids[5]},GPU-,0") == [uuids[5]]
    assert node.devices(f"GPU-nobody,{uuids[0]}") == []


def refused(node: Node, code: int) -> None:
    assert node.cuda("[init(), count()[0]]") == [code, NOT_INITIALIZED]


def test_a_stopped_fabric_manager_makes_the_system_unready(node: Node) -> None:
    node.fault("--fabric-manager-stopped")
    refused(node, SYSTEM_NOT_READY)
    told = re.findall(r"(State|Status) +: (.*)", node.smi("-q").stdout)
    assert told == [("State", "In Progress"), ("Status", "N/A")] * 8
    assert len(node.smi("-L").stdout.splitlines()) == 8
    node.fault()
    assert node.cuda("init()") == SUCCESS


def test_libraries_of_another_version_than_the_driver(node: Node) -> None:
    node.fault("--library-version", "570.86.15")
    refused(node, SYSTEM_DRIVER_MISMATCH)
    assert node.cuda("version()") == [SUCCESS, 12080]
    told = node.smi("-L")
    assert told.returncode == 18
    assert told.stdout == "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (["--exit", "9"], NO_DEVICE),
        (["--exit", "4"], UNKNOWN),
        (["--fabric-manager-stopped", "--message", 'what "is": {after it, counts'], SYSTEM_NOT_READY),
        (["--exit", "14", "--after-rows"], SUCCESS),
        (["--missing", "0", "1", "2", "3", "4", "5", "6", "7"], NO_DEVICE),
        (["--lost", "3"], INVALID_DEVICE),
        (["--no-handle", "3", "--exit", "15"], INVALID_DEVICE),
        (["--requires-reset", "3"], SUCCESS),
        (["--busy", "3"], SUCCESS),
    ],
)
def test_what_ails_nvidia_smi_ails_cuda(node: Node, fault: list[str], code: int) -> None:
    node.fault(*fault)
    assert node.cuda("init()") == code


def test_no_state_is_no_driver(node: Node) -> None:
    (node.root / "var/lib/gpu-simulator/state.json").unlink()
    refused(node, NO_DEVICE)


@pytest.mark.slow
def test_a_driver_that_hangs_hangs_for_both(node: Node) -> None:
    node.fault("--hang", "0.7")
    asked = "[__import__('time').monotonic(), init(), __import__('time').monotonic()]"
    before, result, after = node.cuda(asked)
    assert result == SUCCESS
    assert after - before >= 0.7


def test_a_gpu_that_is_gone_or_lost_can_be_left_out(node: Node) -> None:
    uuids = [row[0] for row in node.query("uuid")]
    node.fault("--missing", "2")
    assert node.devices() == uuids[:2] + uuids[3:]
    assert node.devices("1,2,3") == [uuids[1]]
    node.fault("--lost", "2")
    assert node.devices("1,3") == [uuids[1], uuids[3]]


@pytest.mark.slow
def test_a_gpu_in_mig_mode_without_instances_is_no_device(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_id = node.root / "boot_id"
    boot_id.write_text("first\n", encoding="utf-8")
    monkeypatch.setenv("GPU_SIMULATOR_BOOT_ID", str(boot_id))
    uuids = [row[0] for row in node.query("uuid")]
    assert node.smi("-i", "0", "-mig", "1").returncode == 0
    assert node.devices() == uuids[1:]
    # From Hopper on a boot forgets the mode, before any nvidia-smi runs.
    boot_id.write_text("second\n", encoding="utf-8")
    assert node.devices() == uuids
    # Ampere keeps it, and what is pending becomes effective.
    node.become("Standard_ND96asr_v4")
    uuids = [row[0] for row in node.query("uuid")]
    node.smi("-i", "0,1", "-pm", "1")
    node.smi("-i", "0", "-mig", "1")
    node.smi("-i", "1", "-e", "0")
    assert node.devices() == uuids
    assert node.cuda(f"[init(), attribute({ECC_ENABLED}, 1)]") == [SUCCESS, [SUCCESS, 1]]
    boot_id.write_text("third\n", encoding="utf-8")
    assert node.devices() == uuids[1:]
    assert node.cuda(f"[init(), attribute({ECC_ENABLED}, 0)]") == [SUCCESS, [SUCCESS, 0]]


def test_it_is_replaced_only_when_it_changed(library: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy = pathlib.Path(shutil.copy(library, tmp_path))
    assert run("libcuda/make_libcuda.py", str(copy)) == "ok\n"
    copy.write_bytes(b"another library")
    assert run("libcuda/make_libcuda.py", str(copy)) == "changed\n"
    assert copy.read_bytes() == library.read_bytes()


def test_it_needs_no_newer_c_library_than_the_nodes_have(library: pathlib.Path) -> None:
    needed = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())}
    assert max(needed) <= (2, 36)  # Debian 12


def test_it_is_installed_where_the_driver_has_it(library: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A copy of the simulator, as nodes have it, with the library that was made for them."""
    copy = tmp_path / "opt/gpu_simulator"
    (copy / "libcuda").mkdir(parents=True)
    for name in ("install.py", "nvidia-smi", "machines.json"):
        shutil.copy(SIMULATOR / name, copy)
    place = tmp_path / "root/usr/lib/x86_64-linux-gnu/libcuda.so.1"

    def install(*words: str) -> str:
        command = [sys.executable, str(copy / "install.py"), "--root", str(tmp_path / "root"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert install("--machine-type", "dgx_h100") == "installed\n"
    assert not place.exists()
    shutil.copy(library, copy / "libcuda")
    assert install("--machine-type", "dgx_h100") == "installed\n"
    assert place.read_bytes() == library.read_bytes()
    assert install("--machine-type", "dgx_h100") == "unchanged\n"
    assert install("--remove") == "removed\n"
    assert not place.exists()
    # Somebody else's stays as it is.
    place.write_bytes(b"\x7fELF")
    install("--machine-type", "dgx_h100")
    install("--remove")
    assert place.read_bytes() == b"\x7fELF"
