# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs modules on nodes of the VM lab, here on this machine: each module finds what a fresh Python would have."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest
from lab.vm.module_runner import NODE_SIDE, Answer, ModuleRunner, RunnerEnded

# As those of Ansible, they do something only where they are the program.
COUNTS = """
import atexit, sys, helper
if __name__ == "__main__":
    helper.runs += 1
    atexit.register(print, "cleaned up")
    print(f"{helper.runs} {sys.stdin.buffer.read().decode()}")
    sys.exit(0)
"""
MODULES = {
    "helper": "runs = 0",
    "counts": COUNTS,
    "fails": "import sys\nif __name__ == '__main__': sys.stderr.write('told'); sys.exit(3)",
    "raises": "if __name__ == '__main__': raise ValueError('wrong')",
    "says": "import sys\nif __name__ == '__main__': sys.exit('why')",
    "leaves": "import os\nif __name__ == '__main__': os.system('sleep 5 &'); print('done')",
    "hangs": "import time\nif __name__ == '__main__': time.sleep(5)",
    "broken": "import nothing_of_this_name",
}


@pytest.fixture
def runner(tmp_path: Path) -> t.Iterator[ModuleRunner]:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    made = ModuleRunner([sys.executable, "-c", NODE_SIDE, str(tmp_path)])
    yield made
    made.close()


def test_each_module_is_run_as_for_the_first_time(runner: ModuleRunner) -> None:
    for given in ("one", "two\nlines"):
        assert runner.run("counts", given, 30) == Answer(0, f"1 {given}\ncleaned up\n", "")


def test_how_a_module_ends_is_told(runner: ModuleRunner) -> None:
    assert runner.run("fails", "", 30) == Answer(3, "", "told")
    for name, told in (("raises", "ValueError: wrong"), ("broken", "No module named 'nothing_of_this_name'")):
        answer = runner.run(name, "", 30)
        assert (answer.rc, told in answer.stderr) == (1, True)
    assert runner.run("says", "", 30) == Answer(1, "", "why\n")
    # A process that the module leaves behind keeps nobody waiting.
    assert runner.run("leaves", "", 30) == Answer(0, "done\n", "")


def test_who_does_not_answer_is_given_up(runner: ModuleRunner) -> None:
    with pytest.raises(RunnerEnded, match="no answer came") as caught:
        runner.run("hangs", "", 0.5)
    assert (caught.value.rc, runner.lost()) == (None, True)
    with pytest.raises(RunnerEnded):
        runner.run("counts", "", 30)


def test_what_cannot_be_started_says_why() -> None:
    with pytest.raises(RunnerEnded, match="not here") as caught:
        ModuleRunner(["sh", "-c", "echo not here >&2; exit 90"])
    assert caught.value.rc == 90
