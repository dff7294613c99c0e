# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA is started in a process of its own, with a library that was built for this, and what it returns is named."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import time

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import cuda

SOURCE = pathlib.Path(__file__).parent / "fixtures/libcuda.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in, compiled."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    built = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, SOURCE], check=True)
    return str(built)


def wrong(started: cuda.Started, *, mig: bool = False) -> list[tuple[str, str]]:
    return [(one["verdict"], f"{one['message']} {one['remedy']}") for one in cuda.findings(started, 2, mig=mig)]


def test_a_start_that_works(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DEVICES", "2")
    # Somebody's choice of GPUs must not hide the others.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    started = cuda.start(library)
    assert (started.code, started.name, started.devices) == (0, "CUDA_SUCCESS", 2)
    assert wrong(started) == []


@pytest.mark.parametrize(
    ("code", "mig", "verdict", "says"),
    [
        (802, False, "fail", r"cuInit returns 802 \(CUDA_ERROR_SYSTEM_NOT_READY\)\. .*Fabric"),
        (100, False, "fail", r"cuInit returns 100 \(CUDA_ERROR_NO_DEVICE\)\. .*nvidia_uvm"),
        (100, True, "incomplete", "before they have instances"),
        (803, False, "fail", "returns 803. Driver and libraries"),
        (4242, False, "fail", "returns 4242. Look the code up"),
    ],
)
def test_codes_are_named(
    library: str, monkeypatch: pytest.MonkeyPatch, code: int, mig: bool, verdict: str, says: str
) -> None:
    monkeypatch.setenv("STAND_IN_CODE", str(code))
    ((found, text),) = wrong(cuda.start(library), mig=mig)
    assert found == verdict
    assert re.search(says, text), text


def test_gpus_that_cuda_does_not_see(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DEVICES", "1")
    started = cuda.start(library)
    assert wrong(started) == [("fail", "CUDA has 1 of 2 GPUs. See dmesg for XIDs.")]
    # With MIG a GPU has as many devices as instances.
    assert wrong(started, mig=True) == []


def test_a_library_that_is_missing_or_another(library: str) -> None:
    ((verdict, text),) = wrong(cuda.start("libcuda-of-nobody.so.1"))
    assert verdict == "fail"
    assert "libcuda-of-nobody.so.1 cannot be used" in text
    ((verdict, text),) = wrong(cuda.start("libc.so.6"))
    assert verdict == "fail"
    assert "cuInit" in text


def test_a_crash_is_the_childs(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_CRASH", "1")
    ((verdict, text),) = wrong(cuda.start(library))
    assert (verdict, "ended with -6" in text) == ("fail", True)


@pytest.mark.slow
def test_a_start_that_hangs_is_ended_and_proves_nothing(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_HANG", "1")
    begun = time.monotonic()
    ((verdict, text),) = wrong(cuda.start(library, timeout_s=3))
    assert verdict == "incomplete"
    assert "did not start in time" in text
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("said", "code"), [('{"code": 802, "name": "", "devices": 0}', 802), ('{"code": 0, "name": "x", "devices": 2}', 0)]
)
def test_an_answer_is_read(said: str, code: int) -> None:
    started = cuda.read(SmiRun(0, said), "libcuda.so.1")
    assert started.code == code
    assert bool(wrong(started)) is bool(code)


def test_what_is_no_answer_is_shown() -> None:
    started = cuda.read(SmiRun(1, "", "Fatal Python error"), "libcuda.so.1")
    assert "Fatal Python error" in started.reason
