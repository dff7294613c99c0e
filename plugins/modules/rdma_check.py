#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a node's RDMA stack and ports, and measure the bandwidth between two nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rdma_check
short_description: Prove that the RDMA ports of a node are what they should be, and that data goes through them
version_added: 0.1.0
description:
  - Reads ports, states, link layers and rates from sysfs and compares them with what is expected.
  - Compares the installed stack and the loaded modules with the declared ones, and looks whether the kernel that boots by default
    has modules of the stack, too.
  - Measures with C(ib_write_bw) between two nodes when both run this module at the same time, one as server and one as
    client. The text is
    read, because the JSON of perftest cannot be.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  fabric:
    description:
      - What is expected, as in a profile. Other keys are refused, because one that is never read would switch the check off.
      - A rate or a link layer alone expects one such port. Empty expects nothing in particular.
      - Where nothing is expected, there is a warning if the node has RDMA ports and none is active, or InfiniBand ports and none of
        these, and if it has none beside RDMA adapters or at least eight data-center GPUs on its PCI bus. O(fabric.count=0) says that
        none is expected.
    type: dict
    default: {}
    suboptions:
      hcas:
        description: Ports by name.
        type: list
        elements: dict
        suboptions:
          name:
            description: The device's name.
            type: str
            required: true
          bus_id:
            description: Its PCI address, which is looked for before the name.
            type: str
          rate_gbps:
            description: The least rate, in Gb/s.
            type: float
          link_layer:
            description: V(InfiniBand) or V(Ethernet).
            type: str
      count:
        description:
          - The number of active ports of at least O(fabric.rate_gbps) with O(fabric.link_layer). V(0) expects none and accepts any.
        type: int
      rate_gbps:
        description: The least rate of ports that are counted, in Gb/s.
        type: float
      link_layer:
        description: The link layer of ports that are counted. Empty counts all.
        type: str
      source:
        description: Where these values come from, for messages.
        type: str
      date:
        description: When they were taken from there.
        type: str
      verified:
        description: Whether they were seen on a machine. Those that were not give warnings only.
        type: bool
  bandwidth:
    description: This node's part in a measurement.
    type: str
    choices: [none, server, client]
    default: none
  peer:
    description: The address of the server, for the client; for the server only a name in messages.
    type: str
    default: ""
  size_bytes:
    description: Bytes per write. 8388608 is what large collectives use.
    type: int
    default: 65536
  iterations:
    description: How many writes per port.
    type: int
    default: 5000
  tcp_port:
    description: The TCP port of the first RDMA port's handshake. Further ones use the numbers after it.
    type: int
    default: 18515
  arguments:
    description: Further arguments of C(ib_write_bw), the same on both sides.
    type: list
    elements: str
    default: []
  least_gbps:
    description: The least average bandwidth that is accepted, in Gb/s. V(0) accepts every result.
    type: float
    default: 0
  service_limits:
    description:
      - Limits that a service has to have, as in M(hpcai.gpu_cluster.rdma_stack). systemd starts one that tells its own.
      - One that the machine does not let root set gives a warning.
    type: dict
    default: {}
  timeout_s:
    description: How long to wait for the other side and the measurement, in seconds.
    type: int
    default: 60
  settle_s:
    description: How long ports that are not right may take until they are, in seconds. A link needs a while after its driver was loaded.
    type: int
    default: 0
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.read_only
  - hpcai.gpu_cluster.rdma
attributes:
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.rdma
"""

EXAMPLES = r"""
- name: Verify | Eight ports of 200 Gb/s InfiniBand
  hpcai.gpu_cluster.rdma_check:
    fabric: {count: 8, rate_gbps: 200, link_layer: InfiniBand}

- name: Verify | Measure between two nodes
  hpcai.gpu_cluster.rdma_check:
    bandwidth: "{{ 'server' if inventory_hostname == 'gpu-1' else 'client' }}"
    peer: "{{ 'gpu-2' if inventory_hostname == 'gpu-1' else 'gpu-1' }}"
"""

RETURN = r"""
verdicts:
  description:
    - What was judged, as C({check, verdict, what, expected, found, source, remedy}). Those that are V(warn) are shown as warnings.
  returned: always
  type: list
  elements: dict
ports:
  description: The RDMA ports of the node, as in the facts of M(hpcai.gpu_cluster.node_facts).
  returned: always
  type: list
  elements: dict
bandwidth:
  description:
    - What was measured, as C({device, peer, size_bytes, iterations, peak_gbps, average_gbps, tries, first_error}).
    - A connection that broke off is tried once more. Then C(tries) is 2, C(first_error) is what C(ib_write_bw) said, and there is
      a warning.
  returned: when O(bandwidth) is not V(none)
  type: list
  elements: dict
error_kind:
  description: Identifies the reason of a failure for programs.
  returned: on failure
  type: str
  sample: rdma_mismatch
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, names_programs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.compare import describe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.check import check
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.check_request import ARGUMENT_SPEC, CheckRequest


def main() -> None:
    """Check, and fail with all that is wrong."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}
    names_programs(module)
    try:
        result = check(CheckRequest.of(module.params), module)
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    for line in describe(result["verdicts"], "warn").splitlines():
        module.warn(line)
    module.fail_json(**result) if result.pop("failed", False) else module.exit_json(**result)


if __name__ == "__main__":
    main()
