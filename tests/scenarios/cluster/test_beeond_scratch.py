# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml with BeeOND as the shared scratch: the demo's dataset is staged onto it, and a second run changes nothing.

Only the whole site tells that the phases before and after the file system fit it. BeeOND is the double of tests/lab/beeond.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import typing as t

import pytest

if t.TYPE_CHECKING:
    from conftest import Lab

ROOT = pathlib.Path(__file__).resolve().parents[3]
POINT = "/mnt/beeond"
OPTIONS = {
    "gpu_cluster_scratch": "beeond",
    "beeond_packages": [],
    "beeond_client_build": False,
    "beeond_mount_point": POINT,
    "dataset_staging_destination": f"{POINT}/cosmoflow",
    "dataset_staging_mount_point": POINT,
}


@pytest.fixture
def double(lab: Lab) -> t.Iterator[None]:
    """BeeOND's double on all nodes, and a file system that all of them see."""
    program = ("python3", "/opt/beeond/install.py")
    asked = ["podman", "inspect", "--format={{.State.Pid}}", *(lab.container(node) for node in lab.nodes)]
    processes = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    subprocess.run([sys.executable, ROOT / "tests/lab/beeond/share.py", *processes], check=True, timeout=60)
    for node in lab.nodes:
        lab.podman("cp", f"{ROOT}/tests/lab/beeond", f"{lab.container(node)}:/opt")
        lab.run(node, *program, "--version=8.3.1", "--shared-directory=/srv/beeond", "--pdsh")
    yield
    consent = {**OPTIONS, "beeond_allow_data_loss": True}
    gone = lab.playbook("teardown", consent, "--tags", "beeond_remove")
    assert gone.rc == 0, gone.output[-3000:]
    for node in lab.nodes:
        lab.run(node, *program, "--remove")
        lab.run(node, "umount", "/srv/beeond")
        lab.run(node, "rm", "-rf", "/opt/beeond", "/srv/beeond")


@pytest.mark.usefixtures("double")
def test_the_site_stages_its_dataset_onto_beeond_and_a_second_run_changes_nothing(lab: Lab) -> None:
    first = lab.playbook("site", OPTIONS)
    assert first.rc == 0, first.output[-3000:]
    for node in lab.nodes:
        lab.run(node, "grep", f" {POINT} ", "/proc/mounts")
        names = lab.run(node, "find", f"{POINT}/cosmoflow", "-name", "*.tfrecord").split()
        assert len(names) == lab.dataset_files
    second = lab.playbook("site", OPTIONS)
    assert second.rc == 0, second.output[-3000:]
    assert {node: second.recap(node)["changed"] for node in lab.nodes} == dict.fromkeys(lab.nodes, 0)
