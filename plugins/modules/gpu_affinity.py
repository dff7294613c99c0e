#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Documentation only: the work is done on the controller, in plugins/action/gpu_affinity.py.

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_affinity
short_description: Work out which CPUs, memory and HCA go with which GPU, in the words of every launcher
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Plans where the ranks of a node run, from the facts of the node (O(facts)), from the profile of its machine type
    (O(profile)), or from both, and writes the plan for Slurm, Open MPI, Intel MPI, NVIDIA's HPL container and NCCL.
  - Changes nothing and needs no connection, so that jobs can be planned before there is a node. With neither O(facts)
    nor O(profile) it takes the facts that M(hpcai.gpu_cluster.node_facts) left on the host.
  - Rank 0 takes the first GPU in the order of PCI addresses, rank 1 the second, and so on. Programs must see them in
    that order, too, so set C(CUDA_DEVICE_ORDER=PCI_BUS_ID).
  - A GPU whose NUMA node the kernel does not know (C(-1), common in virtual machines) is placed by the profile, if the
    profile's NUMA nodes have the CPUs of this node. What cannot be placed is refused with the reason.
options:
  profile:
    description:
      - Name of a profile of the role P(hpcai.gpu_cluster.node_profile#role).
    type: str
    default: ""
  profile_paths:
    description:
      - Directories on the controller with profiles of the site. A file there hides a shipped one of the same name.
    type: list
    elements: str
    default: []
  facts:
    description:
      - The facts of a node, C(ansible_facts.gpu_node).
    type: dict
    default: {}
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
      - The node in RV(rankfile). V(+n0) is the first of the allocation that a scheduler, C(--host) or a hostfile gives.
    type: str
    default: +n0
  pci_switches:
    description:
      - How RV(nccl_topology_xml) groups GPUs and HCAs below PCIe switches, which virtual machines hide.
      - V(numa) is one switch per NUMA node, V(pair) one for each GPU with its HCA. V(auto) is V(pair) where a NUMA node
        has more than two GPUs and as many HCAs, which gives the layout that Azure ships for NDv4 and NDv5.
    type: str
    choices: [auto, numa, pair]
    default: auto
attributes:
  action:
    description: Runs on the controller only.
    support: full
  check_mode:
    description: Runs the same in check mode, it changes nothing.
    support: full
  diff_mode:
    description: There is never a difference to show.
    support: none
  idempotence:
    description: The same input gives the same plan.
    support: full
notes:
  - Formats were taken from the manuals of the programs that read them. C(srun --cpu-bind) and C(gres.conf) from Slurm's,
    C(--map-by) and rankfiles from Open MPI's, C(I_MPI_PIN_DOMAIN) from Intel MPI's, the affinity options of C(hpl.sh) from
    NVIDIA's HPC benchmarks, the topology file from NCCL's source (src/graph/xml.cc).
seealso:
  - module: hpcai.gpu_cluster.gpu_binding
  - module: hpcai.gpu_cluster.node_facts
"""

EXAMPLES = r"""
- name: Plan for a machine type
  hpcai.gpu_cluster.gpu_affinity:
    profile: Standard_ND96asr_v4
  delegate_to: localhost
  register: plan

- name: Plan hybrid ranks of twelve threads for the node at hand, away from the first core of every NUMA node
  hpcai.gpu_cluster.gpu_affinity:
    facts: "{{ ansible_facts['gpu_node'] }}"
    threads_per_rank: 12
    reserve_cpus: "0,24,48,72"
"""

RETURN = r"""
source:
  description: Where the map came from, V(facts), V(profile) or V(facts+profile).
  returned: success
  type: str
binding:
  description: What ranks are bound to, V(numa) or V(cores).
  returned: success
  type: str
ranks:
  description: What each rank gets, as C({rank, gpus, numa, cpus, own_cpus, hca}).
  returned: success
  type: list
  elements: dict
cpu_masks:
  description: Hexadecimal masks of the ranks' CPUs, in the order of ranks.
  returned: success
  type: list
  elements: str
srun_cpu_bind:
  description: The value of C(srun --cpu-bind).
  returned: success
  type: str
  sample: mask_cpu:ffffff000000,ffffff000000,ffffff,ffffff
cuda_visible_devices:
  description:
    - The order of GPUs that goes with RV(mpirun_map_by), which fills NUMA nodes upwards. For everything else here GPUs
      stay in their own order.
  returned: success
  type: str
  sample: 2,3,0,1,6,7,4,5
mpirun_map_by:
  description: The value of Open MPI's C(--map-by); null where it has no words for the plan.
  returned: success
  type: str
  sample: ppr:2:numa
mpirun_bind_to:
  description: The value of Open MPI's C(--bind-to) that goes with it.
  returned: success
  type: str
rankfile:
  description:
    - For C(mpirun --rankfile FILE --mca rmaps_rank_file_physical 1), with CPUs that no other rank has; null where there
      are none.
  returned: success
  type: str
hpl:
  description: Options of C(hpl.sh), as C({cpu_affinity, mem_affinity, gpu_affinity, ucx_affinity}).
  returned: success
  type: dict
intel_mpi_pin_domain:
  description: The value of C(I_MPI_PIN_DOMAIN); null where ranks cannot have CPUs of their own.
  returned: success
  type: str
gres_conf:
  description: Lines for Slurm's C(gres.conf), with C(Cores=) in Slurm's own numbers; null where cores are not known.
  returned: success
  type: str
nccl_topology_xml:
  description:
    - A file for C(NCCL_TOPO_FILE); null where addresses or the PCIe generation are not known. Use it only where NCCL does
      not find the topology by itself.
  returned: success
  type: str
gpu_bind_map:
  description: The map that C(gpu-bind) reads.
  returned: success
  type: str
notes:
  description: What should be known about the plan, and why something is null.
  returned: success
  type: list
  elements: str
error_kind:
  description: Identifies the reason of a failure for programs.
  returned: on failure
  type: str
  sample: gpu_numa_unknown
remedy:
  description: What to do about a failure.
  returned: on failure
  type: str
"""
