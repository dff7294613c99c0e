# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What dnf may not take from the distribution's repositories beside a vendor's stack. Pure.

A refresh of rdma-core in EL's BaseOS makes ``dnf upgrade`` end with "cannot install both libibverbs-61 and libibverbs-2510"
(azhpc-images, install_doca.sh). NVIDIA's repository of CUDA has tools that flash adapters, mft, in versions of its own. Files that
other roles of the collection write whole exclude these themselves: they would take every edit back.
"""

from __future__ import annotations

import os.path
import re
import typing as t

DIRECTORY = "/etc/yum.repos.d"
PATTERNS = (
    *("rdma-core*", "libibverbs*", "libibumad*", "librdmacm*", "libibmad*", "libhns*", "perftest", "infiniband-diags*"),
    *("python3-pyverbs", "iwpmd", "srp_daemon", "mft", "mft-*"),
)
_OF_OTHER_ROLES = "# Managed by the role hpcai."
_VENDORS = ("doca", "mlnx", "mellanox")
_SECTION = re.compile(r"\[(?!main\])[^\]]+\]")
_KEY = re.compile(r"(exclude|excludepkgs)\s*[=:]")


def is_vendor_s(path: str) -> bool:
    """Whether a file has repositories of the stack itself."""
    return os.path.basename(path).startswith(_VENDORS)


def exclude(text: str, was: str, added: str) -> str:
    """A repository file whose sections all exclude ``PATTERNS``. What a line was stands in a comment above it.

    ``was`` and ``added`` begin these comments: of a line that is changed, and of one that is new. A file that another role of
    the collection writes comes back as it is.
    """
    if text.startswith(_OF_OTHER_ROLES):
        return text
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _SECTION.match(line.strip())]
    for start, end in reversed(list(zip(starts, [*starts[1:], len(lines)]))):
        lines[start + 1 : end] = _section(lines[start + 1 : end], was, added)
    return "".join(f"{line}\n" for line in lines)


def _section(lines: t.Sequence[str], was: str, added: str) -> list[str]:
    places = [number for number, line in enumerate(lines) if _KEY.match(line.strip())]
    if not places:
        return [f"{added} excludepkgs", f"excludepkgs={' '.join(PATTERNS)}", *lines]
    # Of several lines dnf takes the last.
    place = places[-1]
    there = re.split(r"[\s,=:]+", lines[place])
    missing = [pattern for pattern in PATTERNS if pattern not in there]
    if not missing:
        return list(lines)
    ours = place > 0 and lines[place - 1].startswith((was, added))
    kept = [] if ours else [f"{was}{lines[place]}"]
    return [*lines[:place], *kept, f"{lines[place].rstrip()} {' '.join(missing)}", *lines[place + 1 :]]


__all__ = ["DIRECTORY", "PATTERNS", "exclude", "is_vendor_s"]
