# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is in the file of a package, without installing it. Packages that it carries itself, gigabytes with DOCA, are left out."""

from __future__ import annotations

import os
import subprocess
import tarfile
import typing as t

_PACKAGES = (".deb", ".rpm")
_PIECE = 1 << 20
# An entry of cpio's "new ASCII" format: a magic number and thirteen fields of eight hexadecimal digits (cpio(5)).
_HEADER, _FIELD, _MODE, _FILE_SIZE, _NAME_SIZE = 110, 8, 1, 6, 11
_REGULAR = 0o100000


def extract(file: str, manager: str, target: str) -> bool:
    """Write the regular files of a package below ``target``; False where it cannot be read. ``manager``: ``dpkg`` or ``rpm``.

    Whoever calls this has checked the package's sum: names are taken as they are.
    """
    argv, entries = (["dpkg-deb", "--fsys-tarfile", file], _tar) if manager == "dpkg" else (["rpm2cpio", file], _cpio)
    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            stream = t.cast("t.BinaryIO", process.stdout)
            for name, content in entries(stream):
                path = os.path.join(target, os.path.normpath(name).lstrip("/"))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as written:
                    written.write(content)
            # Else it would be ended for what follows the last entry.
            _skip(stream)
    except (OSError, ValueError, EOFError, tarfile.TarError):
        return False
    return process.returncode == 0


def _tar(stream: t.BinaryIO) -> t.Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and not member.name.endswith(_PACKAGES) else None
            if content:
                yield member.name, content.read()


def _cpio(stream: t.BinaryIO) -> t.Iterator[tuple[str, bytes]]:
    while True:
        fields = _exactly(stream, _HEADER)[6:]
        mode, size, length = (
            int(fields[_FIELD * number : _FIELD * (number + 1)], 16) for number in (_MODE, _FILE_SIZE, _NAME_SIZE)
        )
        name = _exactly(stream, length + -(_HEADER + length) % 4)[: length - 1].decode("utf-8", "surrogateescape")
        if name == "TRAILER!!!":
            return
        if mode & 0o170000 != _REGULAR or name.endswith(_PACKAGES):
            _skip(stream, size + -size % 4)
            continue
        content = _exactly(stream, size)
        _skip(stream, -size % 4)
        yield name, content


def _exactly(stream: t.BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _skip(stream: t.BinaryIO, size: int | None = None) -> None:
    """Read over so many bytes, or to the end."""
    while size is None or size > 0:
        found = stream.read(_PIECE if size is None else min(size, _PIECE))
        if not found:
            return
        size = None if size is None else size - len(found)


__all__ = ["extract"]
