"""teardown.yml undoes site.yml with consent, and site.yml builds everything anew."""

from __future__ import annotations

import collections
import pathlib
import typing as t

if t.TYPE_CHECKING:
    from conftest import Lab

CONSENT = {"dataset_staging_allow_data_loss": True, "glusterfs_allow_data_loss": True}
#: Traces of the roles. None may be left; the second half is what other packages own or what an image brings.
TRACES = (
    "ls -d /mnt/scratch/cosmoflow /opt/azcopy /var/log/azcopy /usr/share/modules/modulefiles/mpi/current 2>/dev/null; "
)
TRACES += (
    "grep -h gpu_cluster /root/.ssh/* /etc/openmpi/openmpi-mca-params.conf 2>/dev/null; mount -t fuse.glusterfs; true"
)


#: Goals of the collection: what a run that changes nothing may cost a node, the first one too, in task results.
RESULTS_PER_NODE, RESULTS_PER_ROLE = 45, 3


def test_teardown_asks_for_consent_and_leaves_nothing(lab: Lab, tmp_path: pathlib.Path) -> None:
    refused = lab.playbook("teardown", {})
    assert refused.rc == 2
    assert "dataset_staging_allow_data_loss" in refused.output
    assert "cosmoflow" in lab.run("gpu-1", "ls", "/mnt/scratch")

    gone = lab.playbook("teardown", CONSENT)
    assert gone.rc == 0, gone.output[-3000:]
    assert {node: lab.run(node, "sh", "-c", TRACES) for node in lab.nodes} == dict.fromkeys(lab.nodes, "")
    again = lab.playbook("teardown", CONSENT)
    assert again.rc == 0, again.output[-3000:]
    assert all(again.recap(node)["changed"] == 0 for node in lab.nodes)

    would = lab.playbook("site", {}, "--check", "--diff")
    assert would.rc == 0, would.output[-3000:]
    assert {node: lab.run(node, "sh", "-c", TRACES) for node in lab.nodes} == dict.fromkeys(lab.nodes, "")

    back = lab.playbook("site", {})
    assert back.rc == 0, back.output[-3000:]
    again_site = lab.task_results("site", tmp_path)
    per_node = collections.Counter(one.host for one in again_site)
    assert max(per_node.values()) <= RESULTS_PER_NODE, per_node
    per_role = collections.Counter((one.play, one.role, one.host) for one in again_site if one.role)
    assert max(per_role.values()) <= RESULTS_PER_ROLE, per_role.most_common(3)
