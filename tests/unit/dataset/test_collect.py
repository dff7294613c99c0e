# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy in the background fails in the words of the role that started it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import typing as t

import yaml


def test_a_failed_copy_names_the_variable_of_the_role(tmp_path: pathlib.Path) -> None:
    stage: dict[str, t.Any] = {
        "destination": str(tmp_path / "data"),
        "sources": [{"url": "https://account.blob.core.windows.net/c"}],
        "run": "never-planned",
        "rank": "{{ hall_rank }}",
        "host": "gpu-1",
    }
    tasks = [
        {
            "name": "Copy in the background",
            "hpcai.gpu_cluster.dataset_stage": stage,
            "async": 600,
            "poll": 0,
            "register": "job",
        },
        {
            "name": "Collect it",
            "hpcai.gpu_cluster.dataset_collect": {"jid": "{{ job.ansible_job_id }}"},
            "register": "done",
            "until": "done is finished",
            "retries": 600,
            "delay": 1,
            "ignore_errors": True,
        },
        {
            "name": "Read what it says",
            "ansible.builtin.assert": {
                "that": [
                    "done is failed",
                    "done.error_kind == 'not_shared'",
                    "'`hall_rank` of dataset_plan' in done.msg",
                    "'`hall_rank` of dataset_plan' in done.remedy",
                ]
            },
        },
    ]
    role = tmp_path / "roles/hall"
    for folder, content in (("tasks", tasks), ("defaults", {"hall_rank": 0})):
        (role / folder).mkdir(parents=True)
        (role / folder / "main.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["hall"]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    environment = {
        **os.environ,
        "ANSIBLE_ASYNC_DIR": str(tmp_path / "jobs"),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }
    done = subprocess.run(
        [program, "--inventory", "localhost,", tmp_path / "play.yml"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
