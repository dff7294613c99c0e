# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which further options of mkfs may be given: none that means another device, or keeps the file system from being found again. Pure."""

from __future__ import annotations

import re
import typing as t

# Options that take a value, by mke2fs(8) and mkfs.xfs(8); what follows any other one is the name of a device.
_WITH_VALUE = {"ext4": "bCdeEgGiIJlLmMNoOrRstTUz", "xfs": "bcdilLmnpPrs"}
# Label and type are how the file system is known to be ours; -n, -N and -V make none, and -S only its superblocks.
_REFUSED = {"ext4": "LnStV", "xfs": "LNV"}
# A journal, a log, or data on another device: mkfs would write to it without anybody's consent. At an offset nobody looks for it.
_ELSEWHERE = re.compile(
    r"/dev/|(?:^|,)(?:device|logdev|rtdev|name|file|offset)(?:=|,|$)|journal_dev|(?:^|,)test_fs(?:,|$)"
)


def refused_word(options: t.Iterable[str], filesystem: str) -> str:
    """The first word that is refused, empty where all are fine. ``filesystem``: ext4 or xfs."""
    waits = ""
    for word in options:
        if waits:
            value, waits = word, ""
        elif word[:1] != "-" or len(word) == 1 or not word.isprintable():
            return word or "''"
        else:
            # Letters without a value may stand together; with "--" only names follow.
            at = next((at for at, letter in enumerate(word) if at and letter in _WITH_VALUE[filesystem]), len(word))
            if set(word[1 : at + 1]) & {*_REFUSED[filesystem], "-"}:
                return word
            value, waits = word[at + 1 :], word if at == len(word) - 1 else ""
        if _ELSEWHERE.search(value):
            return word
    return f"{waits} without a value" if waits else ""


__all__ = ["refused_word"]
