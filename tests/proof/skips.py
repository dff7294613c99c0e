# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Skips that are known, each with its reason. Any other skip fails the run: a test that does not run proves nothing."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import yaml
from proof.records import Test

PATH = pathlib.Path(__file__).with_name("known_skips.yml")


@dataclasses.dataclass(frozen=True)
class KnownSkip:
    """A skip that is meant."""

    #: How the test's name begins.
    test: str
    #: A part of what the skip says.
    says: str
    #: Why it is no gap in the proof.
    because: str


def load(path: pathlib.Path = PATH) -> list[KnownSkip]:
    """The list. An entry without a reason is an error."""
    entries = yaml.safe_load(path.read_text()) or []
    known = [KnownSkip(**entry) for entry in entries]
    for one in known:
        if not (one.test and one.says and one.because):
            raise ValueError(f"{path.name}: {one.test or one} lacks test, says or because.")
    return known


def unknown(tests: t.Iterable[Test], known: t.Sequence[KnownSkip]) -> list[Test]:
    """The skipped tests that no entry of the list is about."""
    return [
        test
        for test in tests
        if test.outcome == "skipped"
        and not any(test.name.startswith(one.test) and one.says in test.reason for one in known)
    ]


__all__ = ["KnownSkip", "load", "unknown"]
