# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container lab as the nodes of the benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

from _runs import ROOT, SITE, Bench, Run, stop, unchanged

_INVENTORY = ROOT / "inventories/lab"
_DOWN = "The lab is down. Bring it up with bin/demo --lab, then run this again; --stand-ins needs none."


def _nodes() -> dict[str, dict[str, t.Any]]:
    """The lab's GPU nodes and how to reach them, as its inventory says; ends the benchmark if there are none."""
    shown = subprocess.run([sys.executable, str(_INVENTORY / "machines.py")], check=True, capture_output=True)
    inventory = json.loads(shown.stdout)
    nodes = {name: inventory["_meta"]["hostvars"][name] for name in inventory["gpu_nodes"]["hosts"]}
    if not nodes:
        stop(_DOWN)
    return nodes


class LabBench(Bench):
    """On the container lab's nodes, and on many aliases of them, each with an ssh connection of its own."""

    def __init__(self, hosts: int, peer_hosts: int) -> None:
        self.nodes = _nodes()
        self._converged: Run | None = None
        super().__init__(hosts, peer_hosts)

    def converged(self) -> Run:
        """The second run if the first had something to do; only once."""
        if self._converged is None:
            first = self.play(SITE, _INVENTORY)
            self._converged = unchanged(self.play(SITE, _INVENTORY), SITE) if first.changed else first
        return self._converged

    def inventories(self, count: int) -> list[Path]:
        return [_INVENTORY, self._aliases(count)]

    def _aliases(self, count: int) -> Path:
        """The lab's nodes under ``count`` names, their own first, each with a connection of its own."""
        nodes = list(self.nodes)
        hosts = {}
        for number in range(count):
            node = nodes[number % len(nodes)]
            alias = node if number < len(nodes) else f"{node}-alias-{number:04d}"
            hosts[alias] = {
                **self.nodes[node],
                "ansible_control_path": str(self.folder / f"{number:04d}.sock"),
                "converge_name": alias,
                "converge_node": node,
                "converge_lead": number == 0,
            }
        path = self.folder / f"aliases-{count}.yml"
        path.write_text(json.dumps({"all": {"children": {"gpu_nodes": {"hosts": hosts}}}}), encoding="utf-8")
        return path

    def variables(self) -> dict[str, t.Any]:
        """What makes a run over aliases change nothing: wherever a role names nodes it names the real ones."""
        nodes = list(self.nodes)
        return {
            "inventory_hostname": "{{ converge_node }}",
            "lab_root": str(ROOT),
            "cluster_ssh_hosts": nodes,
            "hpcx_mpi_hosts": nodes,
            "glusterfs_nodes": nodes,
            # One alias leads. What nodes wrote to prove the volume is not compared: aliases of a node write the same file.
            "__glusterfs_lead": "{{ glusterfs_nodes[0] if converge_lead else '' }}",
            "__glusterfs_names": [],
        }


__all__ = ["LabBench"]
