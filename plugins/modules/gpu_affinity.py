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
  - A rank's HCA is the nearest to its first GPU, by the PCI bridges that the facts name (C(pci_path)), then by NUMA node. Of those
    equally near GPUs take one after the other. GPUs below a switch with a single HCA share it.
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
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.attributes.action
  - hpcai.gpu_cluster.gpu_plan
attributes:
  action:
    details: Runs on the controller only.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.gpu_plan
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
  description:
    - Lines for Slurm's C(gres.conf), with C(Cores=) in Slurm's own numbers and C(File=) by the driver's minor numbers, which
      need not be the indexes of the GPUs. They are in the order of indexes, because Slurm numbers GPUs by their lines.
    - Where neither facts nor profile tell minor numbers they are taken for the indexes, and RV(notes) says so. Null where
      cores are not known, or where some GPUs have other numbers than their indexes and the number of another is not known.
  returned: success
  type: str
nccl_topology_xml:
  description:
    - A file for C(NCCL_TOPO_FILE); null where addresses or the PCIe generation are not known. Use it only where NCCL does
      not find the topology by itself.
  returned: success
  type: str
nccl_graph_xml:
  description:
    - A file for C(NCCL_GRAPH_FILE), from the channels of the profile (C(nccl.channels)); null where the node has other GPUs. NCCL
      ends every job that does not use all of them.
  returned: when the profile has channels
  type: str
gpu_bind_map:
  description:
    - The map that C(gpu-bind) reads. It has a line C(# minors) where the numbers of device files are not the GPUs' indexes.
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
