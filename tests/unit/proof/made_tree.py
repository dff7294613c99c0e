# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees that a test makes up."""

from __future__ import annotations

import hashlib
import typing as t


class MadeTree:
    """Files by their paths."""

    def __init__(self, files: t.Mapping[str, str]) -> None:
        self.files = {path: content.encode() for path, content in files.items()}

    def paths(self) -> frozenset[str]:
        return frozenset(self.files)

    def read(self, path: str) -> bytes:
        return self.files[path]

    def identity(self, path: str) -> str:
        return hashlib.sha256(self.files[path]).hexdigest()

    def with_files(self, files: t.Mapping[str, str]) -> MadeTree:
        made = MadeTree({})
        made.files = {**self.files, **MadeTree(files).files}
        return made
