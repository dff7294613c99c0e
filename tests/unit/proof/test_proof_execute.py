# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps are run for real: small commands in a directory of their own."""

from __future__ import annotations

import pathlib
import sys
import threading
import time

import pytest
from proof import records
from proof.execute import Clock, Runner
from proof.step import Outcome, Renewal, Step


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def run(root: pathlib.Path, *steps: Step, budget_s: float = 0.0, estimate_s: float = 0.1) -> dict[str, Outcome]:
    seen: list[str] = []
    runner = Runner(root, Clock(), budget_s)
    seconds = {one.name: estimate_s for one in steps}
    outcomes = runner.run(steps, seconds, 2, lambda step, outcome: seen.append(outcome.name))
    assert sorted(seen) == sorted(one.name for one in outcomes) == sorted(seconds)
    return {one.name: one for one in outcomes}


def test_a_step_ends_with_the_first_command_that_fails(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Step(
        "unit/a", (python("print('one')"), python("print('two'); raise SystemExit(3)"), python("open('three', 'w')"))
    )
    outcome = run(tmp_path, step)["unit/a"]
    assert (outcome.result, outcome.log) == ("failed", ".cache/log/unit-a-1.log")
    assert not (tmp_path / "three").exists()
    said = capsys.readouterr().out
    assert "exit status 3" in said
    assert "    two" in said


def test_what_needs_a_failed_step_is_left_and_the_others_go_on(tmp_path: pathlib.Path) -> None:
    outcomes = run(
        tmp_path,
        Step("up", (python("raise SystemExit(1)"),)),
        Step("test", (python("open('ran', 'w')"),), needs=("up",)),
        Step("other", (python("pass"),), after=("up",)),
    )
    assert {name: one.result for name, one in outcomes.items()} == {"up": "failed", "test": "left", "other": "ok"}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("no-such-program",), "cannot be started: [Errno 2]"),
        (("sh", "-c", "\0"), "embedded null byte"),
    ],
)
def test_a_step_that_cannot_be_run_has_failed_and_the_others_go_on(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], told: str
) -> None:
    outcomes = run(tmp_path, Step("a", (command,)), Step("b", (python("pass"),), after=("a",)))
    assert {name: one.result for name, one in outcomes.items()} == {"a": "failed", "b": "ok"}
    assert told in capsys.readouterr().out


def test_two_steps_run_at_the_same_time(tmp_path: pathlib.Path) -> None:
    meet = "import os, time\nopen('{0}', 'w')\nwhile not os.path.exists('{1}'): time.sleep(0.01)"
    outcomes = run(
        tmp_path,
        Step("a", (python(meet.format("a", "b")),), limit_s=300),
        Step("b", (python(meet.format("b", "a")),), limit_s=300),
    )
    assert {one.result for one in outcomes.values()} == {"ok"}


def test_a_member_of_the_pool_is_named_in_the_environment(tmp_path: pathlib.Path) -> None:
    code = "import os; open('node', 'w').write(os.environ['LAB_NODE'] + os.environ['LAB_DIR'])"
    step = Step("role/a", (python(code),), pool=("gpu-1",), pool_variable="LAB_NODE", environment={"LAB_DIR": "/x"})
    assert run(tmp_path, step)["role/a"].member == "gpu-1"
    assert (tmp_path / "node").read_text() == "gpu-1/x"


@pytest.mark.slow
def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: pathlib.Path) -> None:
    script = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done"
    outcome = run(
        tmp_path, Step("a", (python(f"import subprocess; subprocess.run(['sh', '-c', {script!r}])"),), limit_s=5)
    )
    assert outcome["a"].result == "failed"
    status = pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/status")
    deadline = time.monotonic() + 120
    while status.exists() and "Z (zombie)" not in status.read_text():
        assert time.monotonic() < deadline, "what the command started outlived it"
        time.sleep(0.1)


def test_the_budget_cuts_what_would_not_end_in_time(tmp_path: pathlib.Path) -> None:
    outcomes = run(tmp_path, Step("a", (python("open('a', 'w')"),)), budget_s=50, estimate_s=45)
    assert outcomes["a"].result == "cut"
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_what_hangs_has_failed_though_there_is_a_budget(tmp_path: pathlib.Path) -> None:
    """Were it cut, it would be debt: green, and eat the next budget, too."""
    runner = Runner(tmp_path, Clock(), budget_s=200, measured=["a"], limit_s=lambda *_: 2.0)
    began = time.monotonic()
    hang = python("import time; time.sleep(600)")
    (outcome,) = runner.run([Step("a", (python("pass"), hang))], {"a": 0.1}, 1, lambda _step, _outcome: None)
    assert outcome.result == "failed"
    assert time.monotonic() - began < 120


@pytest.mark.parametrize(("budget_s", "expected"), [(200, "failed"), (0, "ok")])
def test_without_a_budget_a_machine_may_be_much_slower_than_the_one_that_was_measured(
    tmp_path: pathlib.Path, budget_s: float, expected: str
) -> None:
    """The ledger is another machine's, and the first step of a run has no pace to go by."""

    def limit_s(_estimate_s: float, measured: bool, _pace: float) -> float:
        return 1.0 if measured else 300.0

    runner = Runner(tmp_path, Clock(), budget_s, measured=["a"], limit_s=limit_s)
    step = Step("a", (python("import time; time.sleep(2)"),))
    (outcome,) = runner.run([step], {"a": 0.1}, 1, lambda _step, _outcome: None)
    assert outcome.result == expected


@pytest.mark.slow
def test_the_budget_cuts_what_takes_longer_than_it_should(tmp_path: pathlib.Path) -> None:
    began = time.monotonic()
    outcomes = run(tmp_path, Step("a", (python("import time; time.sleep(600)"),)), budget_s=2)
    assert outcomes["a"].result == "cut"
    assert time.monotonic() - began < 120


def test_what_must_run_is_not_cut_in_the_middle(tmp_path: pathlib.Path) -> None:
    runner = Runner(tmp_path, Clock(), budget_s=1, must=["a"])
    step = Step("a", (python("import time; time.sleep(3)"),))
    (outcome,) = runner.run([step], {"a": 0.1}, 1, lambda _step, _outcome: None)
    assert outcome.result == "ok"


def test_what_fails_while_there_is_time_has_failed(tmp_path: pathlib.Path) -> None:
    step = Step("a", (python("raise SystemExit(1)"),))
    assert run(tmp_path, step, budget_s=100)["a"].result == "failed"


def test_what_must_run_is_started_though_the_budget_is_over(tmp_path: pathlib.Path) -> None:
    steps = Step("up", (python("pass"),)), Step("must", (python("pass"),), needs=("up",)), Step("a", (python("pass"),))
    runner = Runner(tmp_path, Clock(elapsed_s=100), budget_s=50, must=["up", "must"])
    outcomes = runner.run(steps, dict.fromkeys(["up", "must", "a"], 30.0), 2, lambda _step, _outcome: None)
    assert {one.name: one.result for one in outcomes} == {"up": "ok", "must": "ok", "a": "cut"}


def test_set_up_is_not_begun_for_what_does_not_fit_behind_it(tmp_path: pathlib.Path) -> None:
    steps = (
        Step("up", (python("open('up', 'w')"),)),
        Step("one", (python("pass"),), needs=("up",), proves=("one",)),
        Step("two", (python("pass"),), proves=("two",)),
    )
    runner = Runner(tmp_path, Clock(), budget_s=100)
    outcomes = runner.run(steps, {"up": 40.0, "one": 60.0, "two": 60.0}, 2, lambda _step, _outcome: None)
    assert {one.name: one.result for one in outcomes} == {"up": "cut", "one": "cut", "two": "ok"}
    assert not (tmp_path / "up").exists()


ONCE = "import os, sys; sys.exit(os.path.exists('new') - 1)"


def test_what_fails_on_a_lab_is_run_once_more_on_new_nodes(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Step(
        "role/a",
        (python("open('ran', 'a').write('x')"), python(ONCE)),
        pool=("gpu-1", "gpu-2"),
        pool_variable="NODE",
        renewal=Renewal((python("import os; open('new', 'w').write(os.environ['NODE'])"),), ("gpu-1", "gpu-2")),
    )
    after = Step("after", (python("pass"),), needs=("role/a",))
    outcomes = run(tmp_path, step, after)
    assert {name: one.result for name, one in outcomes.items()} == {"role/a": "flaky", "after": "ok"}
    assert outcomes["role/a"].first_log == ".cache/log/role-a-1-first.log"
    assert outcomes["role/a"].log == ".cache/log/role-a-2.log"
    assert all((tmp_path / name).exists() for name in (outcomes["role/a"].first_log, outcomes["role/a"].log))
    assert ((tmp_path / "new").read_text(), (tmp_path / "ran").read_text()) == ("gpu-1", "xx")
    # The name under which the failure was told is another command's by now.
    told = next(line for line in capsys.readouterr().out.splitlines() if "is run once more" in line)
    assert outcomes["role/a"].first_log in told


def test_what_fails_twice_has_failed(tmp_path: pathlib.Path) -> None:
    step = Step("role/a", (python("open('ran', 'a').write('x'); raise SystemExit(1)"),), renewal=Renewal())
    outcomes = run(tmp_path, step, Step("after", (python("pass"),), needs=("role/a",)))
    assert {name: one.result for name, one in outcomes.items()} == {"role/a": "failed", "after": "left"}
    assert (tmp_path / "ran").read_text() == "xx"


def test_what_needs_a_step_that_does_not_fit_is_not_started(tmp_path: pathlib.Path) -> None:
    steps = [Step("up", (python("pass"),)), Step("test", (python("open('ran', 'w')"),), needs=("up",))]
    runner = Runner(tmp_path, Clock(), budget_s=50)
    outcomes = runner.run(steps, {"up": 45.0, "test": 0.1}, 2, lambda _step, _outcome: None)
    assert {one.name: one.result for one in outcomes} == {"up": "cut", "test": "cut"}
    assert not (tmp_path / "ran").exists()


def test_an_interrupted_run_begins_no_other_command(tmp_path: pathlib.Path) -> None:
    """It would work in a lab that is being taken down, or bring up one that nobody takes down any more."""
    goes_on = "trap 'exit 0' TERM; touch began; while :; do sleep 0.05; done"
    wait = "import os, time\nwhile not os.path.exists('began'): time.sleep(0.05)"
    steps = Step("a", (("sh", "-c", goes_on), python("open('ran', 'w')"))), Step("b", (python(wait),))

    def interrupt(_step: Step, _outcome: Outcome) -> None:
        raise KeyboardInterrupt

    others = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        Runner(tmp_path, Clock()).run(steps, {"a": 0.1, "b": 0.1}, 2, interrupt)
    for thread in set(threading.enumerate()) - set(others):
        thread.join()
    assert not (tmp_path / "ran").exists()


def test_pytest_s_seconds_and_skips_are_recorded(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('no disk')\ndef test_c(): assert False\n"
    )
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", "test_it.py")
    assert run(tmp_path, Step("a", (command,)))["a"].result == "failed"
    tests = records.read_tests(tmp_path / ".cache/proof/a-0.xml")
    assert [(one.name, one.outcome, one.reason) for one in tests] == [
        ("test_it::test_a", "passed", ""),
        ("test_it::test_b", "skipped", "no disk"),
        ("test_it::test_c", "failed", ""),
    ]


@pytest.mark.slow
def test_seconds_per_task_file_are_recorded(tmp_path: pathlib.Path) -> None:
    (tmp_path / "play.yml").write_text(
        "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.pause:\n        seconds: 1\n    - ansible.builtin.import_tasks: more.yml\n"
    )
    (tmp_path / "more.yml").write_text("- ansible.builtin.debug:\n")
    command = (str(pathlib.Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "play.yml")
    assert run(tmp_path, Step("a", (command,)))["a"].result == "ok"
    seconds = records.read_task_files(tmp_path / ".cache/proof/a-0.tasks")
    assert list(seconds) == [str(tmp_path / "play.yml"), str(tmp_path / "more.yml")]
    assert seconds[str(tmp_path / "play.yml")] >= 1 > seconds[str(tmp_path / "more.yml")]
