# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The README's quick start on nodes with two traces of Azure's HPC images: names of RDMA devices, and an HPC-X below /opt.

Only whole playbooks on several nodes tell that no role of theirs stops at what such an image brings.
"""

from __future__ import annotations

import pathlib
import subprocess
import typing as t

import pytest
import yaml

if t.TYPE_CHECKING:
    from conftest import Lab

ROOT = pathlib.Path(__file__).resolve().parents[3]
RULES = "/etc/udev/rules.d/60-rdma-persistent-naming.rules"
# The one rule of Azure's file for Ubuntu (azhpc-images, components/add-udev-rules.sh).
RULE = 'ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="rdma_rename %k NAME_KERNEL"\n'
HPCX = "/opt/hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64"


def variables() -> dict[str, t.Any]:
    """The README's sources of drivers and MPI; the lab has no InfiniBand."""
    text = (ROOT / "README.md").read_text().partition("`inventory.yml`, shortest useful form")[2]
    shown = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])["gpu_nodes"]["vars"]
    sources = {name: value for name, value in shown.items() if name.endswith("_source")}
    assert len(sources) == 3
    return {**sources, "hpcx_mpi_fabric": "tcp"}


@pytest.fixture
def image(lab: Lab) -> t.Iterator[None]:
    """The traces, and the lab as it was after them."""
    tree = ROOT / "molecule/hpcx_mpi/files/release"
    for node in lab.nodes:
        lab.run(node, "sh", "-c", f"printf '%s' '{RULE}' >{RULES}")
        subprocess.run(["podman", "cp", f"{tree}/.", f"{lab.container(node)}:{HPCX}"], check=True, timeout=60)
    yield
    for node in lab.nodes:
        lab.run(node, "rm", "-r", RULES, HPCX)
    for playbook in ("drivers", "mpi"):
        assert lab.playbook(playbook, {}).rc == 0


def test_the_readme_s_sources_of_drivers_and_mpi_are_what_the_image_brought(lab: Lab, image: None) -> None:
    for playbook in ("drivers", "mpi"):
        first = lab.playbook(playbook, variables())
        assert first.rc == 0, first.output[-3000:]
    for node in lab.nodes:
        assert lab.run(node, "cat", RULES) == RULE
        assert (
            lab.run(node, "bash", "-lc", "module load mpi/current; which mpirun").strip() == f"{HPCX}/ompi/bin/mpirun"
        )
    for playbook in ("drivers", "mpi"):
        again = lab.playbook(playbook, variables())
        assert again.rc == 0, again.output[-3000:]
        assert [again.recap(node)["changed"] for node in lab.nodes] == [0] * len(lab.nodes)
