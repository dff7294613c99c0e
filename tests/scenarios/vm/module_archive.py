# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All modules of this collection and what they import, for a node without Ansible.

bin/test --affected does not follow what is packed here: a test names the modules that it calls in full.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import pathlib
import tarfile

import ansible

ROOT = pathlib.Path(__file__).resolve().parents[3]


@functools.cache
def module_archive() -> tuple[str, bytes]:
    """What modules of this collection import, as a tar archive and its digest."""

    def source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        unused = ("/__pycache__", "/powershell", "/csharp")
        return None if member.name.endswith(unused) else member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        # As in the archives that Ansible makes of modules, ansible itself is nothing but a place.
        archive.addfile(tarfile.TarInfo("ansible/__init__.py"))
        archive.add(pathlib.Path(ansible.__file__).parent / "module_utils", "ansible/module_utils", filter=source)
        for name in ("module_utils", "modules"):
            place = f"ansible_collections/hpcai/gpu_cluster/plugins/{name}"
            archive.add(ROOT / "plugins" / name, place, filter=source)
    content = gzip.compress(buffer.getvalue(), mtime=0)
    return hashlib.sha256(content).hexdigest()[:16], content


__all__ = ["module_archive"]
