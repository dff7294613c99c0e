"""docs/coverage.md is whole and true: every requirement once, known states, and proofs that exist."""

from __future__ import annotations

import collections
import pathlib
import re
import typing as t

import pytest

ROOT = pathlib.Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
#: How many requirements each reference has.
REQUIREMENTS = {"R000": 32, "R001": 35, "R002": 23, "R003": 15, "R004": 16}
STATES = ["works", "partly", "later", "context"]


class Row(t.NamedTuple):
    id: str
    state: str
    where: str


ROWS = [
    Row(*(cell.strip() for cell in found))
    for found in re.findall(r"^\| (R\d{3}-\d+) \|[^|]+\| `(\w+)` \|(.*)\|$", TEXT, flags=re.MULTILINE)
]


def test_every_requirement_stands_there_once_and_in_order() -> None:
    expected = [
        f"{reference}-{number:02d}" for reference, last in REQUIREMENTS.items() for number in range(1, last + 1)
    ]
    assert [row.id for row in ROWS] == expected


def test_states_are_known_and_counted_right() -> None:
    assert {row.state for row in ROWS} <= set(STATES)
    counted = dict(re.findall(r"^\| (R\d{3}) \| (.*) \|$", TEXT, flags=re.MULTILINE))
    for reference in REQUIREMENTS:
        states = collections.Counter(row.state for row in ROWS if row.id.startswith(reference))
        assert counted[reference] == " | ".join(str(states[state]) for state in STATES)


def named_tests(row: Row) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/.-]+\.py)::(\w+)`", row.where)


@pytest.mark.parametrize("row", [row for row in ROWS if row.state == "works"], ids=lambda row: row.id)
def test_what_works_names_a_test(row: Row) -> None:
    assert named_tests(row)


@pytest.mark.parametrize("row", [row for row in ROWS if "`" in row.where], ids=lambda row: row.id)
def test_what_a_row_names_exists(row: Row) -> None:
    for path, function in named_tests(row):
        assert re.search(rf"^ *def {function}\(", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE), (
            function
        )
    for path in re.findall(r"`([\w.-]+/[\w/.-]+)`", row.where):
        assert (ROOT / path).exists(), path


def test_every_test_that_is_named_exists() -> None:
    """Also those of the table of cases."""
    for path, function in re.findall(r"`([\w/.-]+\.py)::(\w+)`", TEXT):
        assert re.search(rf"^ *def {function}\(", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE), (
            function
        )
