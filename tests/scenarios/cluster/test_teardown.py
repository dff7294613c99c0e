# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""teardown.yml undoes what the roles did, with consent.

That site.yml builds everything anew on such nodes is what the lab's converge proves: it comes after this test.
"""

from __future__ import annotations

import typing as t

import pytest

if t.TYPE_CHECKING:
    from conftest import Lab

pytestmark = pytest.mark.teardown

CONSENT = {"dataset_staging_allow_data_loss": True, "glusterfs_allow_data_loss": True}
#: By the playbook that makes them: traces on a node, in a line each. What other packages own or an image brings is no trace.
TRACES = {
    "mpi": (
        "ls -d /usr/share/modules/modulefiles/mpi/current; cat /root/.ssh/* | grep -q gpu_cluster && echo trust",
        2,
    ),
    "tuning": ("ls -d /usr/local/sbin/gpu-clocks /usr/local/bin/gpu-bind", 2),
    "scratch": ("grep -o '^[^ ]* [^ ]* fuse.glusterfs' /proc/mounts", 1),
    "staging": ("ls -d /mnt/scratch/cosmoflow /opt/azcopy /var/log/azcopy", 3),
}


def traces(lab: Lab, playbook: str) -> list[str]:
    """On all nodes, with the nodes' names."""
    script = f"{{ {TRACES[playbook][0]}; }} 2>/dev/null; true"
    return [f"{node}: {line}" for node in lab.nodes for line in lab.run(node, "sh", "-c", script).splitlines()]


def all_traces(lab: Lab) -> list[str]:
    return [line for playbook in TRACES for line in traces(lab, playbook)]


@pytest.fixture
def nodes_with_everything(lab: Lab) -> None:
    """The scenarios of the roles leave most of it behind; the rest is made here."""
    for playbook, (_script, lines) in TRACES.items():
        if len(traces(lab, playbook)) < lines * len(lab.nodes):
            made = lab.playbook(playbook, {})
            assert made.rc == 0, made.output[-3000:]
        assert len(traces(lab, playbook)) == lines * len(lab.nodes), traces(lab, playbook)


@pytest.mark.usefixtures("nodes_with_everything")
def test_teardown_asks_for_consent_and_leaves_nothing(lab: Lab) -> None:
    refused = lab.playbook("teardown", {})
    assert refused.rc == 2
    assert "dataset_staging_allow_data_loss" in refused.output
    assert "cosmoflow" in lab.run("gpu-1", "ls", "/mnt/scratch")

    gone = lab.playbook("teardown", CONSENT)
    assert gone.rc == 0, gone.output[-3000:]
    assert all_traces(lab) == []
    again = lab.playbook("teardown", CONSENT)
    assert again.rc == 0, again.output[-3000:]
    assert all(again.recap(node)["changed"] == 0 for node in lab.nodes)

    would = lab.playbook("site", {}, "--check", "--diff")
    assert would.rc == 0, would.output[-3000:]
    assert all_traces(lab) == []
