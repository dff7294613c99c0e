# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Reach all nodes at once: one ssh for each, which gets a program's text and one request through its standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

Answers = dict[str, dict[str, t.Any]]

# Ssh processes at once: each takes a few MB and, while it shakes hands, a core.
_PARALLEL = 64
# How long a node may take to accept a connection.
_CONNECT_S = 10
# What ssh prints (OpenSSH 8 to 10), and what it means for a person. The first match counts.
_FAILURES = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is not the one in known_hosts"),
    ("Host key verification failed", "its host key is not in known_hosts"),
    ("Permission denied", "it does not accept the key of the first node"),
    ("Could not resolve hostname", "the first node cannot resolve its name"),
    ("Connection refused", "nothing listens on its ssh port"),
    ("No route to host", "there is no route to it"),
    ("timed out", "it did not answer in time"),
    ("python3: not found", "it has no python3"),
    ("python3: command not found", "it has no python3"),
)
# Of these the ones that say nothing of the node: names, keys and packages are the site's.
_SETTINGS = ("host key", "does not accept the key", "cannot resolve", "no python3")


def is_setting(error: str) -> bool:
    """Whether an ``error`` is a matter of settings, and not of a node that is down."""
    return any(words in error for words in _SETTINGS)


def why(stderr: str, code: int) -> str:
    """Why a node gave no answer, in words."""
    for needle, meaning in _FAILURES:
        if needle in stderr:
            return f"does not answer: {meaning}"
    last = (stderr.strip().splitlines() or [f"ssh ended with {code}"])[-1]
    return f"does not answer: {last[:200]}"


def text_of(module: t.Any) -> str:
    """The text of a module that nodes get. Raises ClusterError where an installation lacks it."""
    # Its loader has it, in a directory as in the archive in which Ansible sends modules.
    text: str | None = module.__spec__.loader.get_source(module.__name__)
    if text is None:
        raise ClusterError(
            "internal", "The program that runs on every node has no text.", "Install the collection again."
        )
    return text


class Nodes:
    """All nodes of a cluster, reached from one of them with the key that the user has there.

    ``text`` defines ``_agent``, whose ``main`` takes one request as JSON and prints one answer as JSON. ``prefix``: words before
    ``ssh``, for another user. Read the text before there are threads: loaders of archives share one open file.
    """

    def __init__(
        self,
        names: t.Sequence[str],
        requests: t.Callable[[str], dict[str, t.Any]],
        timeout_s: float,
        text: str,
        prefix: t.Sequence[str] = (),
    ) -> None:
        self.names, self.requests, self.timeout_s = tuple(names), requests, timeout_s
        self._text, self._prefix = text, tuple(prefix)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def run(self, names: t.Sequence[str], *steps: str, limit_s: float = 0.0, **more: t.Any) -> Answers:
        """What every node answered to these steps; ``error`` is why one could not do them or did not answer.

        A node ends its work itself when the time is over: what ends here alone would go on there.
        """
        if not names:
            return {}
        more["limit_s"] = max(self.timeout_s, limit_s)
        pool = ThreadPoolExecutor(max_workers=min(_PARALLEL, len(names)))
        try:
            found = dict(zip(names, pool.map(lambda name: self._one(name, steps, more), names)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self._kill()
            raise
        finally:
            pool.shutdown(wait=True)
        return found

    def _kill(self) -> None:
        with self._lock:
            for process in self._running:
                process.kill()

    def _one(self, name: str, steps: t.Sequence[str], more: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        request = json.dumps({**self.requests(name), **more, "name": name, "steps": list(steps)})
        # What is left is for the connection.
        limit_s = more["limit_s"] + _CONNECT_S + 5.0
        program = f"{self._text}\n_agent.main({request!r})\n"
        argv = [
            *self._prefix,
            "ssh",
            "-o",
            "BatchMode=yes",
            "-o",
            f"ConnectTimeout={_CONNECT_S}",
            "-o",
            "LogLevel=ERROR",
            name,
            "python3 -I -",
        ]
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                env={**os.environ, "LC_ALL": "C", "SSH_AUTH_SOCK": ""}, start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            return {"error": f"does not answer: ssh cannot be started ({exc.strerror})"}
        with self._lock:
            self._running.add(process)
        try:
            stdout, stderr = process.communicate(program, timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"error": f"does not answer: not within {limit_s:g} s"}
        finally:
            with self._lock:
                self._running.discard(process)
        return answer(stdout, stderr, process.returncode)


def answer(stdout: str, stderr: str, code: int) -> dict[str, t.Any]:
    """The answer in what a node printed, of which only the last line is the agent's: a login may print more."""
    lines = stdout.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"error": why(stderr, code)}


__all__ = ["Answers", "Nodes", "answer", "is_setting", "text_of", "why"]
