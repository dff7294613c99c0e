# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options as bash's builtin getopts reads them, which the real program uses."""

from __future__ import annotations

import sys
import typing as t


def read(arguments: t.Sequence[str], known: str, program: str) -> t.Iterator[tuple[str, str]]:
    """Pairs of an option and its argument; reading ends at the first word that is none.

    As in bash, a leading colon in KNOWN makes it silent: ("?", letter) for an unknown option, (":", letter) for one without
    its argument. Without the colon both are ("?", "") and a line on standard error.
    """
    silent, wanted = known.startswith(":"), known.lstrip(":")
    rest = list(arguments)
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word = rest.pop(0)
        if word == "--":
            return
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            place = wanted.find(letter)
            if place < 0 or letter == ":":
                yield _complain(silent, "?", letter, f"{program}: illegal option -- {letter}")
            elif wanted[place + 1 : place + 2] != ":":
                yield letter, ""
            elif letters:
                yield letter, letters
                letters = ""
            elif rest:
                yield letter, rest.pop(0)
            else:
                yield _complain(silent, ":", letter, f"{program}: option requires an argument -- {letter}")


def _complain(silent: bool, kind: str, letter: str, message: str) -> tuple[str, str]:
    if silent:
        return kind, letter
    print(message, file=sys.stderr)
    return "?", ""
