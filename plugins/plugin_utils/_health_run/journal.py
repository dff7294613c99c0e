# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The journal of a health check: a line of JSON per round, so that one that was interrupted goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.engine import HealthRun, Request

_VERSION = 1


class Journal:
    """A file of the controller. ``""`` keeps none."""

    def __init__(self, path: str, request: Request, run_id: str) -> None:
        self.path, self.run_id = path, run_id
        self._digest = digest(request)

    def restore(self, run: HealthRun) -> int:
        """Replay what an interrupted run of the same request has recorded, and take its name. How many rounds that were."""
        if not self.path:
            return 0
        try:
            with open(self.path, encoding="utf-8") as file:
                lines = [_line(text) for text in file]
        except FileNotFoundError:
            lines = []
        head, rounds = (lines[0], lines[1:]) if lines else (None, [])
        if (
            not head
            or head.get("digest") != self._digest
            or head.get("version") != _VERSION
            or any(one and "ended" in one for one in rounds)
        ):
            self._write("w", {"version": _VERSION, "digest": self._digest, "run": self.run_id})
            return 0
        self.run_id = str(head["run"])
        whole: list[dict[str, t.Any]] = [head]
        for one in rounds:
            # The last line may have been cut off.
            launches = run.next_round()
            if one is None or [item["id"] for item in one["outcomes"]] != [launch.id for launch in launches]:
                break
            run.record([Outcome.of(item) for item in one["outcomes"]], one["seconds"])
            whole.append(one)
        self._write("w", *whole)
        return len(whole) - 1

    def add(self, outcomes: t.Sequence[Outcome], seconds: float) -> None:
        """A round that has ended."""
        self._write("a", {"outcomes": [one.as_json() for one in outcomes], "seconds": seconds})

    def end(self) -> None:
        """The run is over: the next one begins anew."""
        self._write("a", {"ended": True})

    def _write(self, mode: str, *lines: t.Mapping[str, t.Any]) -> None:
        if not self.path:
            return
        with open(self.path, mode, encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())


def digest(request: Request) -> str:
    """What was asked for: only the same goes on."""
    return hashlib.sha256(json.dumps(dataclasses.asdict(request), sort_keys=True).encode()).hexdigest()


def _line(text: str) -> dict[str, t.Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


__all__ = ["Journal", "digest"]
