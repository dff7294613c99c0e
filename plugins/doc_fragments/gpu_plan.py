# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan of ranks is made from."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of gpu_affinity and gpu_binding."""

    DOCUMENTATION = r"""
options:
  ranks_per_node:
    description:
      - Ranks of the job on each node. V(0) is one per GPU, or as many as O(gpus_per_rank) permits.
      - More ranks than GPUs share them, fewer use several each. What does not come out even is refused.
    type: int
    default: 0
  gpus_per_rank:
    description:
      - GPUs of a rank. V(0) spreads all GPUs evenly over the ranks.
    type: int
    default: 0
  threads_per_rank:
    description:
      - CPUs of a rank that no other rank has. V(0) does not limit them.
    type: int
    default: 0
  reserve_cpus:
    description:
      - CPUs that are kept for the operating system, for example V(0,24,48,72). No rank is bound to them, nor to the other
        threads of their cores.
    type: str
    default: ""
  smt:
    description:
      - Whether a rank gets all threads of its cores, or only the first of each.
    type: bool
    default: true
  binding:
    description:
      - V(numa) binds a rank to all CPUs of its GPUs' NUMA nodes, V(cores) to CPUs of its own.
      - V(auto) is V(cores) with O(threads_per_rank) and V(numa) without.
    type: str
    choices: [auto, numa, cores]
    default: auto
  unplaced:
    description:
      - What to do with GPUs of which neither the kernel nor the profile knows the NUMA node. V(refuse) them, or let their
        ranks run on V(any) CPU of the node.
    type: str
    choices: [refuse, any]
    default: refuse
  hca_names:
    description:
      - V(device) names HCAs as facts or profile do, V(pci) after their address, as udev does by default
        (C(ibP257p0s0) at C(0101:00:00.0)).
      - V(auto) is V(device) with facts and V(pci) for a profile alone.
    type: str
    choices: [auto, device, pci]
    default: auto
  gres_type:
    description:
      - What C(Type=) in C(gres.conf) says. Empty leaves it out.
    type: str
    default: ""
  rankfile_host:
    description:
      - The node in RV(hpcai.gpu_cluster.gpu_affinity#module:rankfile).
        V(+n0) is the first of the allocation that a scheduler, C(--host) or a hostfile gives.
    type: str
    default: +n0
  pci_switches:
    description:
      - How RV(hpcai.gpu_cluster.gpu_affinity#module:nccl_topology_xml)
        groups GPUs and HCAs below PCIe switches, which virtual machines hide.
      - V(numa) is one switch per NUMA node, V(pair) one for each HCA with the GPUs that it is nearest to, V(none) puts all
        of them below the processor.
      - V(auto) is what the facts say of switches (C(pci_path)). Where they say nothing it is V(pair) where a NUMA node has more than two
        GPUs and as many HCAs, V(numa) where it has one or two of both, else V(none), which gives the layouts that Azure ships for NDv4,
        NDv5, NDv2 and NCv4.
    type: str
    choices: [auto, numa, pair, none]
    default: auto
"""
