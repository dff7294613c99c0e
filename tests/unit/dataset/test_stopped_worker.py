# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own copy on two nodes, one of whose workers somebody stops: the other brings everything, and the play ends well.

Both nodes are this machine. The warning is about what Ansible, the workers, and who follows them make of each other, which no part
of them shows alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing as t

import pytest
from lab.blob.service import azcopy_path
from meanwhile import meanwhile

PATIENCE_S = 240
WORDS = {
    signal.SIGTERM: "The worker on {host} stopped before its end: The worker was told to stop (SIGTERM).",
    signal.SIGSTOP: "The worker on {host} does not go on: its process",
}


class Worker(t.NamedTuple):
    host: str
    process: int


def first_worker(data: pathlib.Path) -> Worker | None:
    """Whoever copies before all others, as its signed claim says: it has all batches before it, and cannot be over too soon."""
    for claim in data.glob(".staging/runs/*/claims/r*"):
        host, _colon, process = claim.read_text().partition(" ")[0].partition(":")
        if process.isdigit():
            return Worker(host, int(process))
    return None


@pytest.mark.blob
@pytest.mark.slow
@pytest.mark.parametrize("number", WORDS)
def test_a_worker_that_somebody_stops_is_a_warning_where_the_data_is_whole(
    staging, tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    staging.fill(12)
    data = tmp_path / "data"
    options = {
        "destination": str(data),
        "sources": staging.params()["sources"],
        "decompress": True,
        "azcopy_source": "preinstalled",
        "azcopy_path": azcopy_path(),
        "log_path": str(tmp_path / "log"),
        "batch_s": 0.05,
        "claim_expiry_s": 4,
    }
    hosts = {"gpu-1": {}, "gpu-2": {}}
    role = {"name": "hpcai.gpu_cluster.dataset_staging", "rolespec_validate": False}
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {f"dataset_staging_{name}": value for name, value in options.items()},
        "tasks": [{"ansible.builtin.import_role": role}],
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    found: list[Worker] = []

    def stop(over: threading.Event) -> None:
        while not over.wait(0.02):
            if (worker := first_worker(data)) and not found:
                found.append(worker)
                os.kill(worker.process, number)

    try:
        with meanwhile(stop):
            done = run(tmp_path)
    finally:
        for worker in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.process, signal.SIGKILL)
    said = " ".join((done.stdout + done.stderr).split())
    assert found, "nobody copied"
    assert done.returncode == 0, said
    assert WORDS[number].format(host=found[0].host) in said
    assert "fatal:" not in said
    assert staging.files() == staging.content


def run(root: pathlib.Path) -> subprocess.CompletedProcess[str]:
    settings = {"ANSIBLE_ASYNC_DIR": str(root / "jobs"), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    began = time.monotonic()
    done = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / "ansible-playbook",
            "--inventory", root / "hosts.json", root / "play.yml",
            "--tags", "dataset_staging_configure,dataset_staging_verify",
        ],
        env={**os.environ, **settings}, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert time.monotonic() - began < PATIENCE_S / 2
    return done
