# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Run BeeOND with a limit, and tell what it said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import Request, Seen

_PATH = "/opt/beegfs/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAIL_CHARACTERS = 2000
# Nodes that pdsh works on at once; its own default is 32 (pdsh(1)).
_FANOUT = "128"
# How long BeeOND may take to end when it is told to.
_GRACE_S = 5.0


def modes(request: Request, cluster: t.Mapping[str, Seen]) -> tuple[str, ...]:
    """Options of 8 that read a file of ``config_dir``: authentication of connections, the license, which the management alone reads."""
    found = ("-C",) if all(seen.authentication for seen in cluster.values()) else ()
    return (*found, "-H") if cluster[request.nodes[0]].license else found


def start_argv(
    request: Request, node_file: str, config: str, *, modes: t.Sequence[str] = (), parallel: bool
) -> list[str]:
    """The words that start it. Never ``-F``, which removes data: this module does that itself, by the mark.

    Options and their order: ``beeond/source/beeond`` of BeeGFS 7.4.7 and 8.3.1. ``modes`` read what ``-f`` said.
    """
    argv = [
        *("beeond", "start", "-n", node_file, "-d", request.data_path, "-c", request.mount_point),
        *("-i", request.status_file, "-L", request.log_dir, "-p", str(request.port_shift)),
        *("-m", str(request.meta_servers), "-s", str(request.storage_servers)),
    ]
    if config:
        argv += ["-f", config]
    argv += modes
    return [*argv, "-P"] if parallel else argv


def stop_argv(request: Request, node_file: str, *, parallel: bool) -> list[str]:
    """The words that stop it. Never ``-d``: the data stays, or goes by the mark. ``-c``: a node without a status file is no error."""
    argv = ["beeond", "stop", "-n", node_file, "-i", request.status_file, "-c"]
    return [*argv, "-P"] if parallel else argv


@contextlib.contextmanager
def node_file(nodes: t.Sequence[str]) -> t.Iterator[str]:
    """A file with one node a line, for as long as it is needed."""
    with tempfile.NamedTemporaryFile("w", prefix="beeond-nodes-", encoding="utf-8") as stream:
        stream.write("".join(f"{node}\n" for node in nodes))
        stream.flush()
        yield stream.name


def _end(process: subprocess.Popen[str]) -> None:
    """End it with what it started here. What it started elsewhere is for the sweep."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def run(argv: t.Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Exit status, None where it did not end in time, and the last of what it printed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        # A file, not a pipe: services that BeeOND starts on this node may keep it open.
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True, cwd="/",
            env={**os.environ, "LC_ALL": "C", "PATH": _PATH, "SHELL": "/bin/bash", "FANOUT": _FANOUT}, start_new_session=True,
        )  # fmt: skip
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout_s)
        finally:
            if code is None:
                _end(process)
        output.seek(0)
        return code, output.read()[-_TAIL_CHARACTERS:].strip()


__all__ = ["modes", "node_file", "run", "start_argv", "stop_argv"]
