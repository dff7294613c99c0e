# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the steps of a copy hand to each other: what is wanted, what is at the source, what was copied."""

from __future__ import annotations

import dataclasses
import math
import os
import stat
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import inflated_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file at the source; ``name`` is relative to it, ``md5`` base64 or ''."""

    name: str
    size: int
    md5: str


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the module was asked for besides the request itself."""

    decompress: bool = False
    decompress_engine: str = "collection"
    landing_dir: str = ""
    overwrite: bool = True
    timeout_s: float = 0
    stall_timeout_s: float = 45
    expected_files: int | None = None
    expected_bytes: int | None = None
    processes: int = 0
    force: bool = False
    should_stop: t.Callable[[], bool] | None = None

    @property
    def inflates_here(self) -> bool:
        """Whether the collection unpacks what AzCopy brings."""
        return self.decompress and self.decompress_engine == "collection"

    @property
    def inflated_by_azcopy(self) -> bool:
        return self.decompress and self.decompress_engine == "azcopy"


def check_settings(settings: Settings) -> None:
    """Refuse numbers that cannot be meant: a negative time would end every copy at once."""
    numbers = {
        "timeout_s": settings.timeout_s,
        "stall_timeout_s": settings.stall_timeout_s,
        "processes": settings.processes,
        "expected_files": settings.expected_files or 0,
        "expected_bytes": settings.expected_bytes or 0,
    }
    wrong = [f"{name} is {number}" for name, number in numbers.items() if not 0 <= number < math.inf]
    if wrong:
        raise ClusterError(
            "bad_input",
            f"{', '.join(wrong)}: it has to be a number, and not negative.",
            "Correct it; 0 seconds are no limit, and 0 processes leave the choice to the module.",
        )


@dataclasses.dataclass
class Plan:
    """What is at the source, and the part of it that has to be copied."""

    files: list[SourceFile]
    needed: list[SourceFile]
    warnings: list[str]

    @property
    def needed_bytes(self) -> int:
        return sum(file.size for file in self.needed)


@dataclasses.dataclass
class Report:
    """What was copied."""

    copied: int
    bytes: int
    seconds: float
    gbps: float
    job_ids: list[str]
    warnings: list[str]


def target_names(files: t.Iterable[SourceFile], settings: Settings) -> dict[str, str]:
    """Final name of every file: the collection's decompressor takes `.gz` away, AzCopy's (10.31 and later) does not."""
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for file in files:
        final = inflated_name(file.name) if settings.inflates_here else file.name
        if final in taken:
            raise ClusterError(
                "bad_input",
                f"`{file.name}` and `{taken[final]}` would both become `{final}`.",
                "Rename one of the blobs, or copy them to different destinations.",
            )
        taken[final] = file.name
        names[file.name] = final
    return names


def status_of(path: str) -> os.stat_result | None:
    """Of a regular file, without following a link; None where there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


__all__ = ["Plan", "Report", "Settings", "SourceFile", "check_settings", "status_of", "target_names"]
