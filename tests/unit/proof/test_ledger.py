# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger of proofs."""

from __future__ import annotations

import json
import pathlib

import pytest
from proof import ledger
from proof.ledger import LedgerError, Proof

PROOFS = {"vm/test_slurm": Proof("d2", 361.25, "2026-11-22"), "cluster": Proof("d1", 300.0, "2026-11-21")}


def test_what_was_written_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "proven.json"
    ledger.write(path, PROOFS)
    assert ledger.read(path) == PROOFS
    assert [found.name for found in tmp_path.iterdir()] == ["proven.json"]


def test_no_file_is_no_proof(tmp_path: pathlib.Path) -> None:
    assert ledger.read(tmp_path / "proven.json") == {}


@pytest.mark.parametrize("proofs", [{}, PROOFS])
def test_the_text_is_json_with_a_sorted_line_for_each_scenario(proofs: dict[str, Proof]) -> None:
    text = ledger.dumps(proofs)
    assert json.loads(text)["version"] == 1
    lines = [line.strip() for line in text.splitlines() if '"digest"' in line]
    assert [line.split('"')[1] for line in lines] == sorted(proofs)
    assert text.endswith("}\n")


def test_the_line_has_the_documented_form() -> None:
    assert json.loads(ledger.dumps(PROOFS))["scenarios"]["cluster"] == {
        "digest": "d1",
        "seconds": 300.0,
        "proven": "2026-11-21",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"version": 2, "scenarios": {}}', "has version 2, this program reads and writes 1"),
        ("[]", "has version None"),
        ("<<<<<<< HEAD\n{}", "is not JSON .line 1"),
        ('{"version": 1, "scenarios": {"a": {"digest": "x"}}}', "is not a proof .KeyError"),
        ('{"version": 1, "scenarios": {"a": 7}}', "is not a proof"),
        ('{"version": 1}', "is not a proof"),
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path: pathlib.Path, text: str, told: str) -> None:
    path = tmp_path / "proven.json"
    path.write_text(text)
    with pytest.raises(LedgerError, match=told):
        ledger.read(path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "proven.json"
    ledger.write(path, PROOFS)
    with pytest.raises(TypeError):
        ledger.write(path, {"a": Proof(b"bytes", 1.0, "x")})  # type: ignore[arg-type]
    assert ledger.read(path) == PROOFS
    assert [found.name for found in tmp_path.iterdir()] == ["proven.json"]


def test_affected_is_what_changed_and_what_is_new() -> None:
    assert ledger.affected({"cluster": "d1", "vm/test_slurm": "other", "vm": "d3"}, PROOFS) == ["vm", "vm/test_slurm"]


def test_a_proof_replaces_the_scenarios_own_line_only() -> None:
    proven = ledger.prove(PROOFS, "cluster", "d9", "d9", 301.26, "2026-11-23")
    assert proven == {**PROOFS, "cluster": Proof("d9", 301.3, "2026-11-23")}
    assert PROOFS["cluster"].digest == "d1"


def test_a_run_whose_files_changed_proves_nothing() -> None:
    with pytest.raises(LedgerError, match="The files of cluster changed while it ran"):
        ledger.prove(PROOFS, "cluster", "d8", "d9", 301.0, "2026-11-23")


def test_scenarios_that_are_gone_are_forgotten() -> None:
    assert set(ledger.known(PROOFS, ["cluster", "new"])) == {"cluster"}
