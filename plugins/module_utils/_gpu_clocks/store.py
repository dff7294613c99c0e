# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Keep the records of the GPUs in a file that is whole at any moment, and let one writer at a time near it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Layer, Pair, Record, Settings

VERSION = 1
_POLL_S = 0.1


def _pair(value: t.Any) -> Pair | None:
    return (int(value[0]), int(value[1])) if value else None


def _settings(raw: dict[str, t.Any]) -> Settings:
    return Settings(
        persistence=raw["persistence"],
        applications=_pair(raw["applications"]),
        graphics_lock=_pair(raw["graphics_lock"]),
        memory_lock=_pair(raw["memory_lock"]),
        unknown=frozenset(raw["unknown"]),
    )


def _layer(raw: dict[str, t.Any]) -> Layer:
    return Layer(
        prior=_settings(raw["prior"]),
        session=str(raw["session"]),
        holders=tuple(raw["holders"]),
        touched=frozenset(raw["touched"]),
    )


def _record(raw: dict[str, t.Any]) -> Record:
    return Record(
        sessions=dict(raw["sessions"]),
        graphics_lock=_pair(raw["graphics_lock"]),
        memory_lock=_pair(raw["memory_lock"]),
        seen_mhz=raw["seen_mhz"],
        refused=dict(raw["refused"]),
        layers={name: _layer(layer) for name, layer in raw["layers"].items()},
    )


def _plain(value: t.Any) -> t.Any:
    """JSON has no sets."""
    return sorted(value)


def dump(records: dict[str, Record]) -> str:
    raw = {"version": VERSION, "gpus": {uuid: dataclasses.asdict(record) for uuid, record in records.items()}}
    return json.dumps(raw, indent=1, sort_keys=True, default=_plain) + "\n"


def parse(text: str, path: Path) -> dict[str, Record]:
    try:
        raw = json.loads(text)
        if raw["version"] != VERSION:
            raise ValueError(f"it has version {raw['version']}, not {VERSION}")
        return {uuid: _record(record) for uuid, record in raw["gpus"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ClusterError(
            "state_unreadable",
            f"{path}, where the GPUs' earlier clocks are saved, cannot be understood: {exc!r}.",
            "Put a good copy back, or delete it: clocks are then restored to the driver's defaults.",
        ) from exc


class Store:
    """The file. In check mode nothing is written, not even a lock file."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @contextlib.contextmanager
    def locked(self, *, check: bool, timeout_s: float) -> t.Iterator[None]:
        """Keep other writers out; a job's prolog may come while the role runs."""
        if check:
            yield
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.path.with_name("lock"), "w", encoding="utf-8") as file:
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as exc:
                    if time.monotonic() >= deadline:
                        raise ClusterError(
                            "busy",
                            f"Something else has been setting clocks for {timeout_s:.0f} s: {file.name} is locked.",
                            f"See who it is (fuser {file.name}) and run again.",
                        ) from exc
                time.sleep(_POLL_S)
            yield

    def load(self) -> dict[str, Record]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        return parse(text, self.path)

    def save(self, records: dict[str, Record]) -> None:
        """Renamed into place after it reached the disk: a crash leaves the old file or the new one."""
        part = self.path.with_name(self.path.name + ".part")
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(dump(records))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)


__all__ = ["VERSION", "Store", "dump", "parse"]
