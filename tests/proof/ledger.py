# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger ``tests/proven.json``: which scenario was proven last, with which files, when, and in how many seconds.

Only a green run of that very scenario writes its line, and only when its files were the same before and after the run.
A scenario has a line of its own, so that git merges two runs well.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing as t

VERSION = 1
#: Relative to the root of the repository.
PATH = "tests/proven.json"


class LedgerError(Exception):
    """The ledger cannot be read, or a proof does not count. The message says what to do."""


@dataclasses.dataclass(frozen=True)
class Proof:
    """``digest``: of the scenario's files. ``seconds``: what the run took. ``proven``: the day, as 2026-11-22."""

    digest: str
    seconds: float
    proven: str


Ledger = t.Mapping[str, Proof]


def read(path: pathlib.Path) -> dict[str, Proof]:
    """The proofs by the names of their scenarios; none where there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        content = json.loads(text)
    except json.JSONDecodeError as exc:
        raise LedgerError(
            f"{path} is not JSON (line {exc.lineno}: {exc.msg}). Resolve the merge, or delete the lines in question: "
            "their scenarios then run again."
        ) from exc
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise LedgerError(
            f"{path} has version {version!r}, this program reads and writes {VERSION}. "
            "Use the bin/test of the commit that wrote it, or delete the file: every scenario then runs again."
        )
    try:
        return {
            name: Proof(str(line["digest"]), float(line["seconds"]), str(line["proven"]))
            for name, line in content["scenarios"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise LedgerError(
            f"{path} holds a line that is not a proof ({exc!r}). Delete it: its scenario then runs again."
        ) from exc


def dumps(ledger: Ledger) -> str:
    """The text of a ledger: sorted, a line for each scenario."""
    lines = [
        f"    {json.dumps(name)}: {json.dumps(dataclasses.asdict(ledger[name]), sort_keys=True)}"
        for name in sorted(ledger)
    ]
    scenarios = "{\n" + ",\n".join(lines) + "\n  }" if lines else "{}"
    return f'{{\n  "version": {VERSION},\n  "scenarios": {scenarios}\n}}\n'


def write(path: pathlib.Path, ledger: Ledger) -> None:
    """Replace the file at once: a run that is killed leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(dumps(ledger))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def affected(digests: t.Mapping[str, str], ledger: Ledger) -> list[str]:
    """The scenarios that were not proven with these files, sorted. ``digests``: name to digest, of all that there are."""
    return sorted(name for name, digest in digests.items() if name not in ledger or ledger[name].digest != digest)


def prove(
    ledger: Ledger, name: str, digest_before: str, digest_after: str, seconds: float, date: str
) -> dict[str, Proof]:
    """The ledger with a green run of a scenario. Whoever calls this has seen the run end well."""
    if digest_before != digest_after:
        raise LedgerError(
            f"The files of {name} changed while it ran: its result holds neither for the old ones nor the new. Run it again."
        )
    return {**ledger, name: Proof(digest_after, round(seconds, 1), date)}


def known(ledger: Ledger, names: t.Iterable[str]) -> dict[str, Proof]:
    """The ledger without scenarios that there are no more."""
    kept = set(names)
    return {name: proof for name, proof in ledger.items() if name in kept}


__all__ = ["PATH", "VERSION", "Ledger", "LedgerError", "Proof", "affected", "dumps", "known", "prove", "read", "write"]
