# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role in real plays over three nodes on this machine, each with a gluster command of its own that answers and notes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest

ROOT = pathlib.Path(__file__).parents[3]
NODES = ("gpu-1", "gpu-2", "gpu-3")
GLUSTER = """#!/bin/sh
case " $* " in
  *" volume list "*) body="" ;;
  *" pool list "*)
    [ -e "$NODE/knows" ] || [ -e "$NODE/anew" ] || { echo "Connection failed."; exit 1; }
    body="<peer><uuid>me</uuid><hostname>localhost</hostname><connected>1</connected></peer>" ;;
  *" volume info "*)
    [ -e "$NODE/knows" ] || {
      echo "<cliOutput><opRet>-1</opRet><opErrstr>Volume does not exist</opErrstr></cliOutput>"; exit 0
    }
    for node in gpu-1 gpu-2 gpu-3; do bricks="$bricks<brick><name>$node:/b/scratch-0a1b2c3d</name></brick>"; done
    body="<volume><name>scratch</name><statusStr>Started</statusStr><replicaCount>1</replicaCount>$bricks</volume>" ;;
  *" volume status "*)
    for node in gpu-1 gpu-2; do
      body="$body<node><hostname>$node</hostname><path>/b/scratch-0a1b2c3d</path><status>1</status></node>"
    done ;;
  *) echo "$(basename $NODE) ${*#--*}" >> "$NODE/../changes" ;;
esac
case " $* " in *" --xml "*) echo "<cliOutput><opRet>0</opRet>$body</cliOutput>" ;; *) echo UUID ;; esac
"""


class Cluster:
    """Three nodes; ``play`` runs an entry point of the role on them."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        for node in NODES:
            (root / node / "bin").mkdir(parents=True)
            gluster, python = root / node / "bin" / "gluster", root / node / "python"
            gluster.write_text(GLUSTER)
            python.write_text(
                f'#!/bin/sh\nNODE={root / node} PATH={root / node}/bin:$PATH exec {sys.executable} "$@"\n'
            )
            gluster.chmod(0o755)
            python.chmod(0o755)
            (root / node / "knows").touch()

    def play(self, tasks: list[dict[str, t.Any]], *arguments: str, **variables: t.Any) -> tuple[int, str]:
        hosts = {
            node: {"ansible_python_interpreter": str(self.root / node / "python"), "storage": str(self.root / node)}
            for node in NODES
        }
        common = {
            "ansible_connection": "local",
            "glusterfs_nodes": list(NODES),
            "glusterfs_storage_path": "{{ storage }}",
            "glusterfs_mount_point": "{{ storage }}/mnt",
        }
        (self.root / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
        (self.root / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [program, "-i", self.root / "hosts.json", self.root / "play.yml", "-e", json.dumps(variables), *arguments],
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def role(self, entry: str, *arguments: str, **variables: t.Any) -> tuple[int, str]:
        task = {"ansible.builtin.import_role": {"name": "hpcai.gpu_cluster.glusterfs", "tasks_from": entry}}
        return self.play([task], *arguments, **variables)

    def changes(self) -> list[str]:
        path = self.root / "changes"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.slow
@pytest.mark.newest
def test_what_brings_the_repository_is_installed_first_and_on_el_only(cluster: Cluster) -> None:
    """A word is taken for a list of one; which of them dnf finds is in tests/scenarios/dnf."""
    role = ROOT / "roles/glusterfs"
    packages = [
        {"rpm": ["centos-release-gluster10"], "first": True},
        "glusterfs-server",
        {"dpkg": "glusterfs-client", "rpm": "glusterfs-fuse"},
    ]
    read = [{"ansible.builtin.include_vars": {"file": f"{role}/{name}/main.yml"}} for name in ("defaults", "vars")]
    seen = {"ansible.builtin.assert": {"that": [f"__glusterfs_packages == {packages!r}"]}}
    code, output = cluster.play(
        [*read, seen], "--limit", "gpu-1", glusterfs_repository_packages="centos-release-gluster10"
    )
    assert code == 0, output


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("entry", ["stop", pytest.param("remove", marks=pytest.mark.oldest)])
def test_a_limited_run_takes_nothing_away(cluster: Cluster, entry: str) -> None:
    code, output = cluster.role(entry, "--limit", "gpu-3", glusterfs_allow_data_loss=True)
    assert code == 2
    assert "gpu-1, gpu-2 holds a brick of scratch but is not in this run" in output
    assert "partial_run" in output
    assert cluster.changes() == []


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.oldest
def test_a_node_that_is_lost_for_good_keeps_nobody(cluster: Cluster) -> None:
    lost = {"glusterfs_forget_nodes": ["gpu-3"], "glusterfs_allow_data_loss": True}
    code, output = cluster.role("remove", "--limit", "!gpu-3", **lost)
    assert code == 0, output
    assert [change.split()[-3:] for change in cluster.changes()] == [
        ["scratch", "gpu-3:/b/scratch-0a1b2c3d", "force"], ["detach", "gpu-3", "force"],
        ["stop", "scratch", "force"], ["volume", "delete", "scratch"],
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.newest
def test_a_first_node_that_was_made_anew_does_not_keep_the_volume_from_being_removed(cluster: Cluster) -> None:
    (cluster.root / "gpu-1" / "knows").rename(cluster.root / "gpu-1" / "anew")
    code, output = cluster.role("remove")
    assert code == 0, output
    assert [(change.split()[0], change.split()[-2:]) for change in cluster.changes()] == [
        ("gpu-2", ["scratch", "force"]), ("gpu-2", ["delete", "scratch"]),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.newest
def test_the_first_node_that_knows_the_volume_leads(cluster: Cluster) -> None:
    tasks: list[dict[str, t.Any]] = [
        {"ansible.builtin.include_vars": str(ROOT / "roles" / "glusterfs" / "vars" / "main.yml")},
        {"ansible.builtin.debug": {"msg": "at first: {{ __glusterfs_lead }}"}, "run_once": True},
    ]
    for knowing in (["gpu-2", "gpu-3"], ["gpu-1", "gpu-3"], []):
        said = {"known": f"{{{{ inventory_hostname in {knowing} }}}}"}
        tasks += [
            {"ansible.builtin.set_fact": {"__glusterfs_written": said}},
            {"ansible.builtin.debug": {"msg": f"of {len(knowing)}: {{{{ __glusterfs_lead }}}}"}, "run_once": True},
        ]
    code, output = cluster.play(tasks)
    assert code == 0, output
    assert re.findall(r"msg: ['\"]?(.+: gpu-\d)", output) == [
        "at first: gpu-1",
        "of 2: gpu-2",
        "of 2: gpu-1",
        "of 0: gpu-1",
    ]


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.oldest
def test_status_tells_where_nothing_answers(cluster: Cluster) -> None:
    (cluster.root / "gpu-1" / "knows").unlink()
    status = {"name": "hpcai.gpu_cluster.glusterfs", "tasks_from": "status"}
    tasks: list[dict[str, t.Any]] = [
        {"ansible.builtin.import_role": status},
        {"name": "Forget", "ansible.builtin.raw": f"rm -f {cluster.root}/*/knows", "run_once": True},
        {"ansible.builtin.import_role": status},
    ]
    code, output = cluster.play(tasks)
    assert code == 0, output
    first, _forget, second = output.partition("TASK [Forget]")
    assert "glusterd is not installed, or does not answer" in first
    assert "gpu-3:/b/scratch-0a1b2c3d" in first
    assert "gpu-3:/b/scratch-0a1b2c3d" not in second
