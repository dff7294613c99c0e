# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The management service's knowledge, and how the others reach it.

The messages are the double's own (one JSON document a connection): only the ports and who waits for whom are the real ones.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import typing as t
import uuid
from pathlib import Path

import settings

Answer = dict[str, t.Any]
CHUNK_BYTES = 512 * 1024


def ask(host: str, port: int, question: t.Mapping[str, t.Any], timeout_s: float = 5.0) -> Answer | None:
    """The answer, or None where no management service answers or it does not accept the authentication."""
    try:
        with socket.create_connection((host, port), timeout_s) as link:
            link.sendall(json.dumps(question).encode() + b"\n")
            with link.makefile("r", encoding="utf-8") as answers:
                line = answers.readline()
    except OSError:
        return None
    return t.cast("Answer | None", json.loads(line)) if line else None


class Registry:
    """Nodes and targets, kept in the data directory; what was registered in an earlier run is still known."""

    def __init__(self, directory: Path, secret: str) -> None:
        self.path = directory / ("nodes.json" if settings.major() == 7 else "beegfs-mgmtd.sqlite3")
        self.secret = secret
        self.lock = threading.Lock()
        self.seen: dict[str, float] = {}
        self.space: dict[str, dict[str, int]] = {}
        try:
            self.kept: Answer = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self.kept = empty()
            self.save()

    def save(self) -> None:
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        draft.write_text(json.dumps(self.kept), encoding="utf-8")
        draft.replace(self.path)

    def answer(self, question: Answer) -> Answer | None:
        """None closes the connection without a word, as for a wrong authentication."""
        if question.get("secret", "") != self.secret:
            return None
        with self.lock:
            handler = getattr(self, f"_{question['do']}")
            return t.cast(Answer, handler(question))

    def _register(self, question: Answer) -> Answer:
        nodes = self.kept[question["type"]]
        known = {node["host"]: int(number) for number, node in nodes.items()}
        number = question.get("number") or known.get(question["host"]) or max(map(int, nodes), default=0) + 1
        nodes[str(number)] = {"host": question["host"], "targets": question["targets"]}
        self.save()
        return {"number": number, "filesystem": self.kept["filesystem"], "targets": self._targets(question, number)}

    def _targets(self, question: Answer, number: int) -> list[int]:
        """Storage targets are numbered over the whole system, a metadata node is one target with the node's number."""
        if question["type"] != "storage":
            return [number]
        for path in question["targets"]:
            key = f"{number}:{path}"
            self.kept["targets"].setdefault(key, len(self.kept["targets"]) + 1)
        self.save()
        return [self.kept["targets"][f"{number}:{path}"] for path in question["targets"]]

    def _online(self, question: Answer) -> Answer:
        self.seen[f"{question['type']}:{question['number']}"] = time.monotonic()
        self.space[f"{question['type']}:{question['number']}"] = question["space"]
        return {}

    def _pattern(self, question: Answer) -> Answer:
        self.kept["pattern"].update(question["pattern"])
        self.save()
        return {}

    def _pool(self, question: Answer) -> Answer:
        self.kept["pools"][question["name"]] = question["targets"]
        self.save()
        return {}

    def _list(self, question: Answer) -> Answer:
        """All nodes and targets with their states: probably offline after half of the time limit, then offline."""
        limit_s, now = float(settings.load()["offline_timeout_s"]), time.monotonic()
        found: Answer = {
            **{key: self.kept[key] for key in ("filesystem", "pattern", "pools")},
            "nodes": [],
            "states": [],
        }
        for kind in ("meta", "storage"):
            for number, node in sorted(self.kept[kind].items(), key=lambda item: int(item[0])):
                key = f"{kind}:{number}"
                silent_s = now - self.seen[key] if key in self.seen else limit_s * 0.75
                state = "Online" if silent_s < limit_s / 2 else "Probably-offline" if silent_s < limit_s else "Offline"
                targets = self._targets({"type": kind, "targets": node["targets"]}, int(number))
                common = {"type": kind, "node": int(number), "host": node["host"]}
                found["nodes"].append(common)
                space = self.space.get(key, {})
                for target in targets:
                    found["states"].append({**common, "target": target, "reachability": state, "space": space})
        return found


def empty() -> Answer:
    pattern = {"chunk_bytes": CHUNK_BYTES, "targets": 4, "type": "RAID0"}
    return {"filesystem": str(uuid.uuid4()), "meta": {}, "storage": {}, "targets": {}, "pattern": pattern, "pools": {}}


def serve(listener: socket.socket, registry: Registry | None) -> None:
    """Answer on LISTENER for ever; without a registry, only accept (as for those who test the port)."""
    while True:
        link, _ = listener.accept()
        threading.Thread(target=_one, args=(link, registry), daemon=True).start()


def _one(link: socket.socket, registry: Registry | None) -> None:
    with link:
        link.settimeout(10)
        try:
            with link.makefile("r", encoding="utf-8") as questions:
                line = questions.readline()
            answer = registry.answer(json.loads(line)) if registry and line else None
            if answer is not None:
                link.sendall(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):
            return
