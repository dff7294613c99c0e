#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_facts
short_description: Gather what a GPU node is made of
version_added: 0.1.0
author:
  - The hpcai.gpu_cluster developers (@hpcai)
description:
  - Reads NUMA nodes, CPUs, memory, GPUs, RDMA adapters, NVMe disks and the machine type of a node in one call.
  - Everything comes from C(/sys), C(/proc), C(/dev/disk/by-id) and the firmware names, besides two calls of
    C(nvidia-smi), of which one runs at the same time, both under a time limit, and the cloud's instance metadata.
  - Nothing that is missing, hangs or fails stops the module. The lists are then empty or shorter, and
    RV(ansible_facts.gpu_node.unknown) says what is not known, why, and what to do.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.gpu_facts
  - hpcai.gpu_cluster.gpu_facts.nvidia_smi
attributes:
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.gpu_facts
notes:
  - In a container the mounts of the host are not visible, so that a disk which the host has mounted whole can look
    unused. Partitions and array members are seen in any case.
"""

EXAMPLES = r"""
- name: Learn what the node is made of
  hpcai.gpu_cluster.node_facts:

- name: Show which CPUs are next to which GPUs
  ansible.builtin.debug:
    msg: "{{ ansible_facts['gpu_node']['numa'] | items2dict(key_name='gpus', value_name='cpus') }}"

- name: Gather with a slow driver and without asking the cloud
  hpcai.gpu_cluster.node_facts:
    nvidia_smi_timeout_s: 60
    metadata: never
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    gpu_node:
      description: What the node is made of.
      returned: always
      type: dict
      contains:
        numa:
          description:
            - NUMA nodes as C({id, cpus, memory_mib, gpus, hcas, nvme}); C(cpus) is a kernel list such as C(0-23), the
              last three name the devices by index, device and path.
          type: list
          elements: dict
          returned: always
        gpus:
          description:
            - GPUs that answered, as C({index, uuid, name, bus_id, numa, pci_path, minor, memory_mib, driver, persistence,
              clocks, ecc, mig, remapped_rows}).
            - C(pci_path) is the chain of PCI bridges above the device, from the host bridge down, in the names of C(/sys/devices).
              Devices with the same beginning of it share a switch. Hypervisors may hide switches, so that it has the host bridge only,
              and it is empty where the kernel tells nothing.
            - C(index) is the number that C(nvidia-smi) gives a GPU, C(minor) the one in the name of its device file
              (C(/dev/nvidia2)). They need not be the same. C(minor) is null where the driver does not tell it.
            - C(clocks) has C(sm_mhz), C(mem_mhz), C(max_sm_mhz), C(max_mem_mhz), C(applications_sm_mhz) and
              C(applications_mem_mhz). C(ecc) has C(enabled), C(pending), C(corrected) and C(uncorrected) (since the
              driver was loaded). C(mig) has C(enabled) and C(pending). C(remapped_rows) has C(pending), C(failure) and
              C(uncorrectable), the number of rows. A value that the GPU does not offer is null.
          type: list
          elements: dict
          returned: always
        pci_gpus:
          description:
            - GPUs on the PCI bus as C({bus_id, numa, device_id}), with or without a driver.
            - Null when the bus cannot be listed.
          type: list
          elements: dict
          returned: always
        nvidia_smi:
          description:
            - How the call ended as C({state, rc}). C(state) is V(answered), V(missing), V(timeout) or V(failed).
          type: dict
          returned: always
        hcas:
          description:
            - Ports of RDMA adapters as C({device, port, netdev, link_layer, rate_gbps, state, numa, bus_id, pci_path}), with
              C(pci_path) as for GPUs.
          type: list
          elements: dict
          returned: always
        nvme:
          description:
            - Directly attached NVMe disks as C({path, by_id, model, serial, bytes, numa, bus_id, in_use, used_by}).
            - Network disks that present themselves as NVMe are left out. C(used_by) lists partitions, holders, mounts
              and swap.
          type: list
          elements: dict
          returned: always
        cpus:
          description:
            - Online CPUs as C({sockets, cores, threads}). Where cores have several threads, C(siblings) lists the CPUs
              of every core.
          type: dict
          returned: always
        memory_mib:
          description: Memory of the node in MiB.
          type: int
          returned: always
        swap_mib:
          description: Swap of the node in MiB.
          type: int
          returned: always
        platform:
          description: C({sku, cloud, product, vendor}); C(sku) is the cloud's name of the machine type.
          type: dict
          returned: always
        unknown:
          description: What is not known, as C({what, reason, remedy}).
          type: list
          elements: dict
          returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.facts import collect
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.options import FACT_OPTIONS


def main() -> None:
    module = AnsibleModule(argument_spec=FACT_OPTIONS, supports_check_mode=True)
    module.exit_json(changed=False, ansible_facts={"gpu_node": collect(**module.params)})


if __name__ == "__main__":
    main()
