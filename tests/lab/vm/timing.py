#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a molecule run on the VM lab took: ``timing.py LOG...`` prints a line per log and its slowest tasks.

Reads what the callback ansible.posix.profile_tasks writes.
"""

from __future__ import annotations

import pathlib
import re
import sys
import typing as t

_TASK = re.compile(r"^(\S.*?) -{2,} ?(\d+(?:\.\d+)?)s$")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
# Molecule draws a frame around what Ansible prints and breaks long lines; what was broken off is indented.
_FRAMED = re.compile(r"^ *\u2502 ?(.*)$")


class Timing(t.NamedTuple):
    """Tasks in the order of the log, each with its seconds."""

    tasks: list[tuple[str, float]]

    @property
    def seconds(self) -> float:
        return sum(seconds for _name, seconds in self.tasks)


def parse(text: str) -> Timing:
    """The tasks of a log; an empty list where the callback wrote nothing."""
    found = (_TASK.match(line) for line in _unframe(_COLOR.sub("", text)))
    return Timing([(match[1].strip(), float(match[2])) for match in found if match])


def _unframe(text: str) -> list[str]:
    """The lines as Ansible printed them."""
    whole: list[str] = []
    for line in text.splitlines():
        framed = _FRAMED.match(line)
        content = framed[1] if framed else line
        if framed and content.startswith("  ") and whole:
            whole[-1] += " " + content.strip()
        else:
            whole.append(content.rstrip())
    return whole


def lines(name: str, timing: Timing, slowest: int = 3) -> list[str]:
    """What to print about a log."""
    if not timing.tasks:
        return [f"{name}: no task"]
    count = len(timing.tasks)
    head = f"{name}: {count} tasks in {timing.seconds:.0f} s, {timing.seconds / count:.1f} s per task"
    worst = sorted(timing.tasks, key=lambda task: -task[1])[:slowest]
    return [head, *(f"  {seconds:6.1f} s  {task}" for task, seconds in worst)]


def main(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    for path in map(pathlib.Path, argv):
        print(*lines(path.stem, parse(path.read_text(errors="replace"))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = ["Timing", "lines", "parse"]
