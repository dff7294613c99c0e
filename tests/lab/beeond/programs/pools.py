# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage pools (-t): the file that names their targets, and the targets that a node has."""

from __future__ import annotations

import re
import subprocess
import typing as t

import remote

SHELL = "$FOUND"
LINE = re.compile(r"^\w+:([\w/.-]+,?)+\s*$", re.IGNORECASE)


def read(path: str, given: t.Mapping[str, str]) -> dict[str, list[str]]:
    """Pools by their names, each with the paths of its targets."""
    try:
        with open(path, encoding="utf-8") as stream:
            rows = [row for row in stream.read().split("\n") if row and not re.match(r"\s*#", row)]
    except OSError:
        rows = []
    if not rows or not all(LINE.match(row) for row in rows):
        raise remote.BeeondError(f"{path} contains invalid entries or is empty.")
    pairs = [row.strip().partition(":")[::2] for row in rows]
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise remote.BeeondError(f"{path} contains non-unique pool names.")
    found = {name: [one for one in targets.split(",") if one] for name, targets in pairs}
    every = [one.lower() for targets in found.values() for one in targets]
    if len(set(every)) < len(every):
        raise remote.BeeondError(f"{path} contains non-unique target paths.")
    if "F" not in given:
        raise remote.BeeondError("Using storage pools requires the -F option to make sure no old data is left.")
    if "k" in given:
        raise remote.BeeondError("Using storage pools doesn't support storage mirroring (-k).")
    return found


def search(pools: t.Mapping[str, t.Sequence[str]]) -> str:
    """Shell words that put the targets that a node has into the storage service's arguments."""
    every = " ".join(one for targets in pools.values() for one in targets)
    return f'FOUND=; for T in {every}; do if [ -d $T ]; then FOUND="$FOUND$T,"; fi; done; WORDS=$(eval echo $WORDS); '


def create(start: t.Any) -> None:
    """One pool after the other, of the targets on all nodes; the default pool only gets its name."""
    for name, targets in start.pools.items():
        numbers: list[str] = []
        for host in start.storage:
            names = " ".join(f"{one}/targetNumID" for one in targets)
            numbers += start.nodes.read(host, f"cat {names} 2>/dev/null").split()
        if name.lower() == "default":
            if start.major > 7:
                _run(start.control("pool", "set-alias", "storage:1", name))
        elif start.major == 7:
            _run(start.control("--addstoragepool", f"--desc={name}", f"--targets={','.join(numbers)}"))
        else:
            words = ",".join(f"storage:{number}" for number in numbers)
            _run(start.control("pool", "create", name, "--targets", words))


def assign(start: t.Any) -> None:
    """A directory for each pool at the file system's root."""
    for number, name in enumerate(start.pools, 1):
        if start.major == 7:
            _run(start.control("--createdir", "--unmounted", f"/{name}"))
            _run(start.control("--setpattern", "--unmounted", f"--storagepoolid={number}", f"/{name}"))
        else:
            _run(start.control("entry", "create", "dir", "--mount=none", f"/{name}"))
            _run(start.control("entry", "set", "--mount=none", "--pool", name, f"/{name}"))


def _run(argv: t.Sequence[str]) -> None:
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
