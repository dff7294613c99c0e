# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the real AzCopy what it would do: a dry run, and a listing."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

BINARY = (
    Path(__file__).resolve().parents[3]
    / ".cache/blob/node_modules/@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64"
)
# The list server takes any signature unless told otherwise; AzCopy insists on one.
SAS = "sv=2021-12-02&sig=any"


class Run(t.NamedTuple):
    names: list[str]  # relative to the container
    seconds: float
    cpu_s: float


def available() -> bool:
    return os.access(BINARY, os.X_OK) and subprocess.run([BINARY, "--version"], capture_output=True).returncode == 0


def dry_run(url: str, path: str, *arguments: str) -> Run:
    """The names AzCopy would download from ``path`` of the container ``url`` with these arguments."""
    output, seconds, cpu_s = _run("copy", f"{url}/{path}?{SAS}", "out", "--dry-run", "--from-to=BlobLocal", *arguments)
    transfers = [json.loads(line["MessageContent"]) for line in output if line["MessageType"] == "Dryrun"]
    return Run([transfer["Source"][len(url) + 1 :] for transfer in transfers], seconds, cpu_s)


def list_container(url: str) -> Run:
    """What ``azcopy list`` tells about a container, one name per line of its output."""
    output, seconds, cpu_s = _run("list", f"{url}?{SAS}", "--location=Blob", "--machine-readable")
    items = [json.loads(line["MessageContent"]) for line in output if line["MessageType"] == "ListObject"]
    return Run([item["Path"] for item in items], seconds, cpu_s)


def _run(*arguments: str) -> tuple[list[dict[str, str]], float, float]:
    with tempfile.TemporaryDirectory() as scratch:
        places = {"AZCOPY_LOG_LOCATION": scratch, "AZCOPY_JOB_PLAN_LOCATION": scratch, "AZCOPY_DISABLE_SYSLOG": "true"}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        with tempfile.TemporaryFile() as output:
            # Its stdin must stay open: at end of file AzCopy reads it again and again and burns a core.
            process = subprocess.Popen(
                [BINARY, *arguments, "--output-type=json"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=scratch,
                env={**os.environ, **places},
            )
            status = process.wait(timeout=500)
            seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            assert process.stdin is not None
            process.stdin.close()
            output.seek(0)
            text = output.read().decode()
    if status != 0:
        raise RuntimeError(f"azcopy ended with {status}: {text[-2000:]}")
    messages = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return messages, seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


__all__ = ["BINARY", "SAS", "Run", "available", "dry_run", "list_container"]
