# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs in one checkout."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from proof.__main__ import only_run

TESTS = pathlib.Path(__file__).resolve().parents[2]
HOLD = """
import pathlib, sys, time
from proof.__main__ import only_run
with only_run(pathlib.Path(sys.argv[1])) as alone:
    print(alone, flush=True)
    time.sleep(600)
"""


def test_the_second_run_is_told_so_until_the_first_has_ended_or_died(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        with only_run(tmp_path) as alone:
            assert not alone
        first.send_signal(signal.SIGKILL)
    for _run in range(2):
        with only_run(tmp_path) as alone:
            assert alone
