# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi says when it is told to change clocks, and what is made of it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Gpu, Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiRun

REPLIES = Path(__file__).parent / "fixtures/replies"
CASES = sorted(path.stem for path in REPLIES.glob("*.out"))


def recorded(case: str) -> SmiRun:
    code = REPLIES / f"{case}.rc"
    return SmiRun(
        rc=int(code.read_text(encoding="utf-8")) if code.exists() else 0,
        stdout=(REPLIES / f"{case}.out").read_text(encoding="utf-8"),
    )


def gpu(bus_id: str, index: int = 0) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{bus_id}", name="NVIDIA A100-SXM4-40GB", bus_id=bus_id, driver="550.163.01")


# case -> per bus id: the kind of refusal ("" for done, None for not told), and the pair that was acknowledged
EXPECTED: dict[str, dict[str, tuple[str | None, tuple[int, int] | None]]] = {
    "lgc": {"0005:09:00.0": ("", (2100, 2100))},
    "lmc": {"0005:09:00.0": ("", (8001, 8001))},
    "lgc_without_quotes": {"000f:01:00.0": ("", (300, 2000))},
    "ac": {"0001:00:00.0": ("", (1215, 1410))},
    "ac_four": {"0002:01:00.0": ("", (715, 1480)), "000b:01:00.0": ("", (715, 1480))},
    "reset": {"0001:00:00.0": ("", None), "0002:00:00.0": ("", None)},
    "pm": {"0001:00:00.0": ("", None)},
    "pm_already": {"0000:12:00.0": ("", None), "0000:13:00.0": ("", None)},
    "ac_unsupported": {"0000:01:00.0": ("unsupported", None), "0000:02:00.0": ("unsupported", None)},
    "rac_unsupported": {"0000:06:00.0": ("unsupported", None)},
    "lmc_unsupported": {"0000:21:00.0": ("unsupported", None)},
    "lmc_unsupported_bare": {"0000:01:00.0": ("unsupported", None)},
    "ac_combination": {"0002:01:00.0": ("bad_combination", None), "0003:01:00.0": ("bad_combination", None)},
    "permission": {"0000:c1:00.0": ("no_permission", None), "0000:c2:00.0": (None, None)},
    "permission_bare": {"0000:00:03.0": ("no_permission", None)},
    "half_way": {"0001:00:00.0": ("", (1410, 1410)), "0002:00:00.0": ("lost", None), "0003:00:00.0": (None, None)},
    "unknown_error": {"0001:00:00.0": ("failed", None)},
}


def test_every_recording_is_judged() -> None:
    assert sorted(EXPECTED) == CASES


@pytest.mark.parametrize("case", CASES)
def test_recorded_replies(case: str) -> None:
    gpus = [gpu(bus_id) for bus_id in EXPECTED[case]]
    found = smi.judge(recorded(case), gpus)
    told = {
        member.bus_id: (outcome.kind, outcome.acknowledged) if outcome else (None, None)
        for member, outcome in ((member, found[member.uuid]) for member in gpus)
    }
    assert told == EXPECTED[case]


class Answers:
    """A table of expected calls, in order."""

    def __init__(self, table: list[tuple[list[str], SmiRun]]) -> None:
        self._table = table

    def __call__(self, arguments: t.Sequence[str]) -> SmiRun:
        expected, answer = self._table.pop(0)
        assert list(arguments) == expected
        return answer

    def done(self) -> None:
        assert self._table == []


LOCK = Step("graphics_lock", ("-lgc", "1410,1410"), (1410, 1410))
MEMORY = Step("memory_lock", ("-lmc", "1215,1215"), (1215, 1215))
A, B, C = (gpu(f"000{number}:00:00.0", number - 1) for number in (1, 2, 3))


def test_a_call_that_ended_early_is_repeated_for_those_it_did_not_reach() -> None:
    done = 'GPU clocks set to "(gpuClkMin 1410, gpuClkMax 1410)" for GPU 00000003:00:00.0\nAll done.\n'
    answers = Answers(
        [
            (["-i", f"{A.uuid},{B.uuid},{C.uuid}", "-lgc", "1410,1410"], recorded("half_way")),
            (["-i", C.uuid, "-lgc", "1410,1410"], SmiRun(rc=0, stdout=done)),
            # The lost one is not asked again.
            (["-i", f"{A.uuid},{C.uuid}", "-lmc", "1215,1215"], SmiRun(rc=0, stdout="All done.\n")),
        ]
    )
    found = smi.perform(answers, [(member, [LOCK, MEMORY]) for member in (A, B, C)])
    answers.done()
    assert [[outcome.kind for _step, outcome in found[member.uuid]] for member in (A, B, C)] == [
        ["", ""],
        ["lost"],
        ["", ""],
    ]


def test_a_call_that_hangs_is_repeated_for_each_gpu_alone() -> None:
    hung = SmiRun(rc=None, timed_out=True)
    answers = Answers(
        [
            (["-i", f"{A.uuid},{B.uuid}", "-lgc", "1410,1410"], hung),
            (["-i", A.uuid, "-lgc", "1410,1410"], SmiRun(rc=0, stdout="All done.\n")),
            (["-i", B.uuid, "-lgc", "1410,1410"], hung),
        ]
    )
    found = smi.perform(answers, [(A, [LOCK]), (B, [LOCK])])
    answers.done()
    assert [found[member.uuid][0][1].kind for member in (A, B)] == ["", "timeout"]


def test_gpus_that_want_something_else_get_their_own_call_in_their_own_order() -> None:
    other = Step("graphics_lock", ("-lgc", "1980,1980"), (1980, 1980))
    calls: list[list[str]] = []

    def call(arguments: t.Sequence[str]) -> SmiRun:
        calls.append(list(arguments))
        return SmiRun(rc=0)

    smi.perform(call, [(A, [LOCK, MEMORY]), (B, [other, MEMORY]), (C, [])])
    assert calls == [
        ["-i", A.uuid, "-lgc", "1410,1410"],
        ["-i", A.uuid, "-lmc", "1215,1215"],
        ["-i", B.uuid, "-lgc", "1980,1980"],
        ["-i", B.uuid, "-lmc", "1215,1215"],
    ]


@pytest.mark.parametrize(
    ("code", "kind"), [(4, "no_permission"), (15, "lost"), (255, "failed"), (2, "failed")], ids=str
)
def test_an_exit_code_without_a_sentence(code: int, kind: str) -> None:
    found = smi.perform(lambda _arguments: SmiRun(rc=code), [(A, [LOCK])])
    outcome = found[A.uuid][0][1]
    assert (outcome.kind, f"exited with {code}" in outcome.said) == (kind, True)


ROW = {
    "index": "0",
    "uuid": "GPU-1",
    "name": "NVIDIA H200",
    "pci.bus_id": "00000001:00:00.0",
    "driver_version": "580.159.03",
    "persistence_mode": "Enabled",
    "mig.mode.current": "Disabled",
    "clocks.gr": "345",
    "clocks.mem": "3201",
    "clocks.max.graphics": "1980",
    "clocks.max.mem": "3201",
    "clocks.applications.graphics": "[Requested functionality has been deprecated]",
    "clocks.applications.memory": "[Requested functionality has been deprecated]",
    "clocks.default_applications.graphics": "[Requested functionality has been deprecated]",
    "clocks.default_applications.memory": "[Requested functionality has been deprecated]",
    "clocks_event_reasons.active": "0x0000000000000001",
    "clocks_throttle_reasons.active": "0x0000000000000001",
    "compute_cap": "9.0",
}


def reading(**cells: str) -> Gpu:
    row = {**ROW, **cells}
    run = SmiRun(rc=0, stdout=", ".join(row[field] for field in smi.FIELDS) + "\n", fields=smi.FIELDS)
    return smi.read(nvidia_smi.parse(run))[0]


def test_a_gpu_of_today() -> None:
    found = reading()
    assert (found.graphics_mhz, found.max_graphics_mhz, found.max_memory_mhz) == (345, 1980, 3201)
    assert (found.applications, found.default_applications, found.applications_deprecated) == (None, None, True)
    assert (found.compute_capability, found.reasons, found.persistence, found.mig) == (9.0, 1, True, False)


def test_what_a_gpu_does_not_tell_is_none() -> None:
    nothing = dict.fromkeys([field for field in smi.FIELDS if "clocks" in field or field == "compute_cap"], "[N/A]")
    found = reading(**nothing, **{"mig.mode.current": "[N/A]", "persistence_mode": "[Not Supported]"})
    assert (found.graphics_mhz, found.max_graphics_mhz, found.applications, found.reasons) == (None,) * 4
    assert (found.compute_capability, found.persistence, found.mig) == (None, None, None)
    assert not found.applications_deprecated


def test_an_old_spelling_of_the_reasons_does() -> None:
    found = reading(**{"clocks_event_reasons.active": "[N/A]", "clocks_throttle_reasons.active": "0x0000000000000004"})
    assert found.reasons == 4


def test_the_session_changes_with_boot_and_with_every_load_of_the_driver(tmp_path: Path) -> None:
    boot, module = tmp_path / "proc/sys/kernel/random/boot_id", tmp_path / "sys/module/nvidia"
    boot.parent.mkdir(parents=True)
    module.mkdir(parents=True)
    seen = set()
    for text in ("one", "two"):
        boot.write_text(text, encoding="utf-8")
        seen.add(smi.session(tmp_path, "550.163.01"))
    assert smi.session(tmp_path, "550.163.01") in seen
    module.rename(tmp_path / "unloaded")
    seen.add(smi.session(tmp_path, "550.163.01"))
    module.mkdir()
    seen.add(smi.session(tmp_path, "550.163.01"))
    seen.add(smi.session(tmp_path, "580.95.05"))
    assert len(seen) == 5
