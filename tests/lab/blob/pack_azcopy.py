# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack npm's AzCopy the way its makers pack a release, so that the role installs it in the lab as it does elsewhere.

Writes ``.cache/blob/azcopy.tar.gz`` and ``.cache/blob/azcopy.tar.gz.sha256``; the same input gives the same archive.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pathlib
import tarfile

from lab.blob.service import ROOT, azcopy_path

TARGET = ROOT / ".cache" / "blob" / "azcopy.tar.gz"
PINNED = json.loads((pathlib.Path(__file__).parent / "package.json").read_text())


def pack(program: bytes, version: str) -> bytes:
    """A release archive: one directory, one program in it."""
    entry = tarfile.TarInfo(f"azcopy_linux_amd64_{version}/azcopy")
    entry.size, entry.mode = len(program), 0o755
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=1) as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            archive.addfile(entry, io.BytesIO(program))
    return packed.getvalue()


def main() -> None:
    program = pathlib.Path(azcopy_path())
    if TARGET.exists() and TARGET.stat().st_mtime > program.stat().st_mtime:
        return
    data = pack(program.read_bytes(), PINNED["dependencies"]["@azure-tools/azcopy-linux"])
    TARGET.write_bytes(data)
    TARGET.with_suffix(".gz.sha256").write_text(hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    main()
