# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talking to a running QEMU over its QMP socket."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import typing as t


class QmpError(Exception):
    """QEMU does not answer, or refuses."""


def execute(path: pathlib.Path, command: str, timeout_s: float = 30, **arguments: t.Any) -> t.Any:
    """Run one command and return its answer. ``quit`` may end the connection instead of answering."""
    # A socket's address has room for 107 bytes, a path has not: the directory's descriptor stands for it.
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
            with connection.makefile("rw") as stream:
                _receive(stream)
                for name, options in (("qmp_capabilities", {}), (command, arguments)):
                    stream.write(json.dumps({"execute": name, "arguments": options}) + "\n")
                    stream.flush()
                    answer = _receive(stream)
                    while "event" in answer:
                        answer = _receive(stream)
                    if "error" in answer:
                        raise QmpError(f"QEMU refuses {name}: {answer['error']['desc']}")
                return answer.get("return")
    except (OSError, ValueError) as exc:
        raise QmpError(f"QEMU does not answer on {path}: {exc}") from exc
    finally:
        os.close(directory)


def _receive(stream: t.TextIO) -> dict[str, t.Any]:
    line = stream.readline()
    if not line:
        raise QmpError("QEMU closed the connection")
    return t.cast("dict[str, t.Any]", json.loads(line))


__all__ = ["QmpError", "execute"]
