# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules that launch programs of nccl-tests."""

from __future__ import annotations


class ModuleDocFragment:
    """How programs are started."""

    DOCUMENTATION = r"""
options:
  launcher:
    description:
      - V(mpirun) over ssh from the first node, or V(srun) where Slurm manages the nodes and this is a node that submits.
    type: str
    choices: [mpirun, srun]
    default: mpirun
  directory:
    description: Where the programs of nccl-tests lie on every node. Azure's HPC images have them here.
    type: path
    default: /opt/nccl-tests/build
  ranks_per_node:
    description: Ranks on every node, one for each GPU.
    type: int
    default: 8
  module:
    description: The environment module to load first. Empty to use the launcher that is found in the path.
    type: str
    default: mpi/current
  user:
    description: The user to run as. Empty for the one that Ansible logs in as.
    type: str
    default: ""
  mca:
    description: MCA parameters of C(mpirun), in addition to those of the environment module.
    type: dict
    default: {}
  environment:
    description:
      - Environment variables of the programs. C(NCCL_DEBUG=INFO) and C(CUDA_DEVICE_ORDER=PCI_BUS_ID) are set unless they are named here.
        Everything else that NCCL needs comes from O(module).
    type: dict
    default: {}
  srun_arguments:
    description: Further words for C(srun), such as C(--partition) or C(--mpi=pmix).
    type: list
    elements: str
    default: []
  parallel:
    description: How many launches there may be at once.
    type: int
    default: 64
"""
