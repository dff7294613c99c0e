# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run makes of its steps' records. The steps are real commands."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys

import pytest
from proof import __main__ as program
from proof import ledger, records, steps
from proof.execute import Clock, Runner
from proof.ledger import Proof
from proof.plan import Plan
from proof.run import Run, shares
from proof.step import Outcome, Renewal, Step

BEFORE = {"a": "d1", "b": "d2"}


def command(record: str, text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"open('.cache/proof/{record}', 'w').write({text!r})")


def run(root: pathlib.Path, *given: Step) -> tuple[int, dict[str, Outcome]]:
    """The exit status of a run of these steps, and the steps as run.json tells them."""
    (root / "tests").mkdir(exist_ok=True)
    runner = Runner(root, Clock())
    seconds = {one.name: 1.0 for one in given}
    one_run = Run("affected", Plan(list(given), seconds, frozenset(), frozenset()), BEFORE, lambda: BEFORE, runner)
    status = one_run.report(runner.run(given, seconds, 1, one_run.ended))
    told = json.loads((root / ".cache/proof/run.json").read_text())["steps"]
    return status, {one["name"]: one["result"] for one in told}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ("a-0.xml", "<testsuites><testcase name='x'"),
        ("a-0.tasks", '{"task_files": {"x.y'),
        ("a-0.tasks", '{"seconds": 1}'),
        ("a-0.tasks", "[]"),
    ],
)
def test_a_record_that_was_not_written_to_its_end_fails_its_step_only(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], record: str, text: str
) -> None:
    good = Step("b", (command("b-0.xml", "<testsuite><testcase name='t' time='1'/></testsuite>"),), proves=("b",))
    status, results = run(tmp_path, Step("a", (command(record, text),), proves=("a",)), good)
    assert (status, results) == (1, {"a": "failed", "b": "ok"})
    assert set(ledger.read(tmp_path / ledger.PATH)) == {"b"}
    said = capsys.readouterr().out
    assert f"a: failed, see .cache/proof/{record}" in said
    assert "1 passed, 1 failed, 0 skipped" in said


@pytest.fixture
def without_newer_python(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that bin/_env.sh needs, and no Python."""
    for name in ("bash", "dirname", "mkdir", "git"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("without_newer_python")
def test_a_machine_without_the_newest_python_knows_the_files_of_what_it_cannot_run() -> None:
    """Otherwise it would take the proof for one of a scenario that is gone."""
    known, digests = program.look()
    assert steps.NEWEST_CORE not in [one.name for one in known]
    assert len(known) > 20
    assert set(digests()) == {*(one.name for one in known), steps.NEWEST_CORE}


def test_proofs_of_what_was_not_run_stay_and_those_of_what_is_gone_do_not(tmp_path: pathlib.Path) -> None:
    old = Proof("d0", 1.0, "2026-11-01")
    (tmp_path / "tests").mkdir()
    ledger.write(tmp_path / ledger.PATH, {"a": old, "gone": old})
    assert run(tmp_path, Step("b", (command("b", ""),), proves=("b",))) == (0, {"b": "ok"})
    assert {name: proof.digest for name, proof in ledger.read(tmp_path / ledger.PATH).items()} == {"a": "d0", "b": "d2"}


def lab_scenario(times: int) -> Step:
    """It fails so many times: also by pytest's record, of which only the last one counts."""
    failed = "<testsuite><testcase name='t' time='1'><failure/></testcase></testsuite>"
    code = f"import os; n = len(os.listdir('tries')); open(f'tries/{{n}}', 'w'); bad = n < {times}"
    code += f"; bad and open('.cache/proof/a-0.xml', 'w').write({failed!r}); raise SystemExit(bad)"
    return Step("a", ((sys.executable, "-c", code),), proves=("a",), renewal=Renewal())


@pytest.mark.parametrize(
    ("times", "status", "result", "proven", "said"),
    [
        (0, 0, "ok", {"a"}, "0 passed, 0 failed, 0 skipped"),
        (1, 0, "flaky", set(), "  a: .cache/log/a-0-first.log, then .cache/log/a-0.log"),
        (2, 1, "failed", set(), "a: failed, see .cache/log/a-0.log, and .cache/log/a-0-first.log of the first time"),
    ],
)
def test_a_lab_s_scenario_that_passes_the_second_time_is_flaky_and_one_that_does_not_fails_the_run(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    times: int,
    status: int,
    result: str,
    proven: set[str],
    said: str,
) -> None:
    (tmp_path / "tries").mkdir()
    assert run(tmp_path, lab_scenario(times)) == (status, {"a": result})
    assert set(ledger.read(tmp_path / ledger.PATH)) == proven
    told = json.loads((tmp_path / ".cache/proof/run.json").read_text())
    assert told["flaky"] == (["a"] if result == "flaky" else [])
    output = capsys.readouterr().out
    assert said in output
    assert output.splitlines()[-1] == f"0 passed, {status} failed, 0 skipped"


def case(name: str, seconds: float) -> records.Test:
    return records.Test(name, seconds, "passed")


def test_scenarios_that_share_a_step_share_its_seconds_as_their_tests_do() -> None:
    tests = [case("tests.unit.a.test_x::one", 2.0), case("tests.unit.a.test_y.Some::two", 4.0)]
    tests += [case("tests.unit.ab.test_z::three[1.5]", 2.0), case("tests.unit.other.test_o::four", 50.0)]
    found = shares(["unit/a", "unit/ab", "unit/quick"], 40.0, tests)
    assert found == {"unit/a": 30.0, "unit/ab": 10.0, "unit/quick": 0.0}
    assert sum(found.values()) == 40.0


def test_the_seconds_of_a_step_without_tests_belong_to_what_it_proves() -> None:
    assert shares(["cluster"], 40.0, []) == {"cluster": 40.0}
    assert shares(["sanity"], 40.0, [case("sanity::pep8", 1.0)]) == {"sanity": 40.0}
    assert shares(["unit/a", "unit/b"], 40.0, []) == {"unit/a": 20.0, "unit/b": 20.0}
