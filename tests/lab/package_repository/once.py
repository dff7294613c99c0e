# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories that are made once by a recipe, and kept until it changes."""

from __future__ import annotations

import fcntl
import hashlib
import pathlib
import shutil
import types
import typing as t


def made_once(
    directory: pathlib.Path,
    name: str,
    recipe: t.Iterable[types.ModuleType],
    make: t.Callable[[pathlib.Path], None],
    *words: str,
) -> pathlib.Path:
    """Where ``make`` has made ``name`` by the files of ``recipe`` and for these ``words``; what another recipe made goes."""
    content = b"".join(pathlib.Path(str(module.__file__)).read_bytes() for module in recipe)
    digest = hashlib.sha256(content + "".join(words).encode()).hexdigest()[:12]
    directory.mkdir(parents=True, exist_ok=True)
    # Two processes of one test run begin at the same time.
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place = directory / f"{name}-{digest}"
        if not place.exists():
            for old in directory.glob(f"{name}-*"):
                shutil.rmtree(old)
            work = directory / f".{place.name}"
            shutil.rmtree(work, ignore_errors=True)  # a run that was killed left it
            work.mkdir()
            make(work)
            work.rename(place)
    return place


__all__ = ["made_once"]
