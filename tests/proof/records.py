# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the seconds of a run went: per step, per task file and per test. And what the tests skipped."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t
import xml.etree.ElementTree as ET


class RecordError(Exception):
    """A record is not whole, because what wrote it was killed. ``path``: of the record."""

    def __init__(self, path: pathlib.Path, why: object) -> None:
        super().__init__(f"{path} was not written to its end ({why})")
        self.path = path


@dataclasses.dataclass(frozen=True)
class Test:
    """One test, as pytest's JUnit file tells it."""

    __test__ = False  # no test for pytest

    #: "tests.unit.gpu_clocks.test_gpu_clocks_plan::test_name[parameters]"
    name: str
    seconds: float
    #: "passed", "failed" or "skipped"
    outcome: str
    #: Why it was skipped.
    reason: str = ""


def read_tests(path: pathlib.Path) -> list[Test]:
    """The tests of one run of pytest; none where it did not get as far as writing its file. Raises ``RecordError``."""
    if not path.exists():
        return []
    try:
        return [_test(case) for case in ET.parse(path).iter("testcase")]
    except (ET.ParseError, ValueError) as exc:
        raise RecordError(path, exc) from exc


def _test(case: ET.Element) -> Test:
    outcome, reason = "passed", ""
    if case.find("failure") is not None or case.find("error") is not None:
        outcome = "failed"
    else:
        skipped = case.find("skipped")
        if skipped is not None:
            outcome, reason = "skipped", skipped.get("message", "")
    name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
    return Test(name, float(case.get("time", "0")), outcome, reason)


def read_task_files(path: pathlib.Path) -> dict[str, float]:
    """Seconds per task file, from what ``callbacks/task_seconds.py`` wrote: one line of JSON per playbook.

    Raises ``RecordError``.
    """
    seconds: dict[str, float] = {}
    if path.exists():
        try:
            for line in path.read_text().splitlines():
                for name, value in json.loads(line)["task_files"].items():
                    seconds[name] = seconds.get(name, 0.0) + value
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise RecordError(path, exc) from exc
    return seconds


def longest(seconds: t.Mapping[str, float], count: int = 10) -> list[tuple[str, float]]:
    """The names with the most seconds."""
    return sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:count]


def table(title: str, seconds: t.Mapping[str, float], count: int = 10) -> list[str]:
    """Lines that show the names with the most seconds; none where there are no names."""
    rows = longest(seconds, count)
    return [title, *(f"  {value:7.1f} s  {name}" for name, value in rows)] if rows else []


__all__ = ["RecordError", "Test", "longest", "read_task_files", "read_tests", "table"]
