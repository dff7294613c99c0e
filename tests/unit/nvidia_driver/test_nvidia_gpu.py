# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs are on the bus, and which kernel module, driver and CUDA they can use."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import hardware as gpu
from hypothesis import given
from hypothesis import strategies as st

V100, T4, A100, A10, H100, L40, GH200, B200, P100, M60, K80 = (
    *(0x1DB5, 0x1EB8, 0x20B0, 0x2236, 0x2330, 0x26B5, 0x2342, 0x2901, 0x15F8, 0x13F2, 0x102D),
)


def hardware(*devices: int, switches: int = 0) -> gpu.Hardware:
    return gpu.Hardware(tuple(gpu.Gpu(f"{n:04x}:00:00.0", device) for n, device in enumerate(devices)), switches)


def bus(root: pathlib.Path, **devices: tuple[str, str, str]) -> pathlib.Path:
    for name, (vendor, device, kind) in devices.items():
        place = root / "sys/bus/pci/devices" / f"0000:{name[1:]}:00.0"
        place.mkdir(parents=True)
        for attribute, value in (("vendor", vendor), ("device", device), ("class", kind)):
            (place / attribute).write_text(f"{value}\n")
    return root


@pytest.mark.parametrize(
    ("device", "generation"),
    [
        *((K80, "kepler"), (M60, "maxwell"), (0x1725, "pascal"), (P100, "pascal"), (0x1B38, "pascal")),
        *((0x1DB1, "volta"), (V100, "volta"), (0x1DF6, "volta"), (T4, "turing"), (0x2182, "turing")),
        *((A100, "ampere"), (0x20F3, "ampere"), (A10, "ampere"), (H100, "hopper"), (0x2335, "hopper")),
        *((GH200, "grace-hopper"), (L40, "ada"), (B200, "blackwell"), (0x2B85, "blackwell"), (0x3182, "blackwell")),
    ],
)
def test_generation_by_device_id(device: int, generation: str) -> None:
    assert gpu.Gpu("", device).generation == generation


@given(st.integers(min_value=0, max_value=0xFFFF))
def test_every_id_has_a_generation_and_the_ranges_do_not_overlap(device: int) -> None:
    ranges = gpu._GENERATIONS
    assert all(ranges[n][1] + 1 == ranges[n + 1][0] for n in range(len(ranges) - 1))
    assert gpu.Gpu("", device).generation


@pytest.mark.parametrize(
    ("devices", "wanted", "branch", "module"),
    [
        ((A100,) * 8, "auto", 580, "open"),
        ((V100,), "auto", 580, "proprietary"),
        ((V100,), "proprietary", 570, "proprietary"),
        ((V100, A100), "auto", 570, "proprietary"),
        ((H100,), "proprietary", 590, "proprietary"),
        ((T4,), "open", 590, "open"),
        ((B200,), "auto", 590, "open"),
        ((), "auto", 580, ""),
        ((), "open", 580, "open"),
    ],
)
def test_module_by_generation(devices: tuple[int, ...], wanted: str, branch: int, module: str) -> None:
    assert gpu.choose_module(hardware(*devices), wanted, branch) == module


@pytest.mark.parametrize(
    ("devices", "wanted", "branch", "says"),
    [
        ((V100,), "open", 580, "cannot be driven by the open"),
        ((V100,), "auto", 590, "the last branch for it is 580"),
        ((B200,), "auto", 560, "the first branch for it is 570"),
        ((V100, B200), "auto", 580, "No driver serves both"),
        ((GH200,), "proprietary", 580, "cannot be driven by the proprietary"),
        ((K80,), "auto", 580, "older than every driver"),
        ((P100, M60), "auto", 610, "pascal"),
    ],
)
def test_what_no_driver_serves_is_refused(devices: tuple[int, ...], wanted: str, branch: int, says: str) -> None:
    with pytest.raises(ClusterError, match=says) as caught:
        gpu.choose_module(hardware(*devices), wanted, branch)
    assert caught.value.kind == "unsupported_gpu"


@pytest.mark.parametrize(
    ("devices", "cuda", "branch", "kind"),
    [
        ((V100,), "13.0", 580, "unsupported_gpu"),
        ((A100,), "13.0", 570, "bad_input"),
        ((A100,), "12.4", 470, "bad_input"),
    ],
)
def test_cuda_that_cannot_run_is_refused(devices: tuple[int, ...], cuda: str, branch: int, kind: str) -> None:
    with pytest.raises(ClusterError) as caught:
        gpu.check_cuda(hardware(*devices), cuda, branch)
    assert caught.value.kind == kind


def test_cuda_that_can_run_is_accepted() -> None:
    gpu.check_cuda(hardware(V100), "12.9", 580)
    gpu.check_cuda(hardware(A100), "13.0", 580)
    gpu.check_cuda(hardware(V100), "", 580)


@pytest.mark.parametrize(
    ("devices", "branch", "cudas"),
    [((A100,), 580, (13,)), ((A100,), 570, (12,)), ((V100,), 570, (12,)), ((V100,), 580, (12, 13))],
)
def test_dcgm_is_built_for_the_cuda_of_the_driver_and_of_the_gpus(
    devices: tuple[int, ...], branch: int, cudas: tuple[int, ...]
) -> None:
    assert gpu.cudas_of_dcgm(hardware(*devices), branch) == cudas


def test_the_bus_is_read_without_a_driver(tmp_path: pathlib.Path) -> None:
    root = bus(
        tmp_path,
        a01=("0x10de", "0x20b0", "0x030200"),
        a02=("0x10de", "0x1af1", "0x068000"),
        a03=("0x10de", "0x1aef", "0x040300"),
        a04=("0x8086", "0x1572", "0x020000"),
    )
    found = gpu.read_hardware(root)
    assert [(one.bus_id, one.device_id) for one in found.gpus] == [("0000:01:00.0", 0x20B0)]
    assert (found.nvswitches, found.nouveau) == (1, False)


def test_no_bus_is_no_gpu(tmp_path: pathlib.Path) -> None:
    assert gpu.read_hardware(tmp_path) == gpu.Hardware()


def test_switches_behind_connectx_are_found_by_vital_product_data(tmp_path: pathlib.Path) -> None:
    root = bus(tmp_path, a01=("0x10de", "0x2901", "0x030200"), a02=("0x15b3", "0x1021", "0x020700"))
    found = gpu.read_hardware(root)
    assert (found.nvswitches, found.nvlink5) == (0, False)
    (root / "sys/bus/pci/devices/0000:02:00.0/vpd").write_bytes(b"\x82\x10\x00ConnectX-7 ... SW_MNG ...")
    found = gpu.read_hardware(root)
    assert (found.nvswitches, found.nvlink5) == (1, True)


def test_vital_product_data_is_not_read_where_switches_are_devices(tmp_path: pathlib.Path) -> None:
    root = bus(tmp_path, a01=("0x10de", "0x2330", "0x030200"), a02=("0x15b3", "0x1021", "0x020700"))
    (root / "sys/bus/pci/devices/0000:02:00.0/vpd").write_bytes(b"SW_MNG")
    found = gpu.read_hardware(root)
    assert (found.nvswitches, found.nvlink5) == (0, False)


def test_nouveau_is_seen(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sys/module/nouveau").mkdir(parents=True)
    assert gpu.read_hardware(tmp_path).nouveau


@pytest.mark.parametrize("cuda", ["latest", "13.x", "13.", "v13.0"])
def test_a_toolkit_without_a_version_is_refused_in_a_sentence(cuda: str) -> None:
    with pytest.raises(ClusterError, match=r"`cuda_version` \('.+'\) is no version"):
        gpu.check_cuda(hardware(A100), cuda, 580)
