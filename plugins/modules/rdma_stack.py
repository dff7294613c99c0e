#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the RDMA software of a node, and the settings that it needs, to a declared state."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rdma_stack
short_description: Bring the RDMA software of a node and its settings to a declared state
version_added: 0.1.0
description:
  - Installs NVIDIA DOCA-OFED, MLNX_OFED or the distribution's RDMA packages, in one task result with names of devices,
    limits, kernel
    settings and units.
  - MLNX_OFED is recognized by C(ofed_info -s), DOCA by the versions of its packages, and an installation that was
    interrupted is done again.
  - Everything that speaks against a change is found before the first change is made, namely jobs and file systems that
    use RDMA, kernels
    that the stack has no modules for, distribution packages in the way, and missing consent.
  - Firmware of adapters is never updated.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description: V(absent) uninstalls a vendor's stack and takes the settings away. The distribution's packages stay.
    type: str
    choices: [present, absent]
    default: present
  mirror:
    description: The vendor's site or a copy of it.
    type: str
    default: ""
  artifact:
    description: The file's whole URL or its path on the node. Empty to compute it from mirror, version and the node.
    type: str
    default: ""
  sha256:
    description:
      - sha256 of files by C(<version>-<os>-<architecture>), for example V(24.10-3.2.5.0-ubuntu22.04-x86_64).
      - From DOCA 3.2 on, one file fits all minor releases of RHEL, as in V(3.2.1-044000-25.10-rhel9-x86_64).
    type: dict
    default: {}
  packages:
    description: Packages to install besides a vendor's, or all of them for O(source=inbox). Names, or C(dpkg) and C(rpm).
    type: list
    elements: raw
    default: []
  kernel_support:
    description: Whether modules are built where the vendor has none for the kernel. Needs the kernel's headers.
    type: bool
    default: true
  kernel:
    description: The kernel to install modules for. Empty for the running one.
    type: str
    default: ""
  epel:
    description:
      - Whether to enable EPEL (C(epel-release)) on AlmaLinux, Rocky and Oracle Linux where DOCA needs C(dkms) and no package brings it.
      - With V(false) a node without it is refused before anything is changed.
    type: bool
    default: false
  installer_options:
    description: Further options of C(mlnxofedinstall). Those that change firmware are refused.
    type: list
    elements: str
    default: []
  without_openmpi:
    description:
      - Whether DOCA's Open MPI is left out on Debian and Ubuntu, by an empty package that stands for it. It collides
        with the distribution's
        PMIx, and is of no use beside another MPI.
    type: bool
    default: false
  initramfs:
    description: Whether the initial ram disk is made anew after modules were installed. V(auto) when the installer asks.
    type: str
    choices: [auto, always, never]
    default: auto
  timeout_s:
    description: How long fetching and each step of installing may take, in seconds.
    type: int
    default: 3600
  persistent_names:
    description:
      - Whether udev names RDMA devices by their PCI address. On Azure V(mlx5_ib0) and on, and V(mlx5_an0).
      - Rules of somebody else in C(/etc/udev/rules.d/60-rdma-persistent-naming.rules) are never replaced. With O(source=preinstalled)
        and without O(device_names) they name the devices, as on Azure's images for Ubuntu, and RV(not_applied) says so; otherwise the
        module fails with C(in_the_way).
    type: bool
    default: false
  device_names:
    description: Names by PCI address, which come before Azure's.
    type: dict
    default: {}
  ipoib:
    description: Whether IP over InfiniBand is loaded. V(keep) leaves that as it is.
    type: str
    choices: [keep, load, skip]
    default: keep
  rxe_netdev:
    description: The network interface to run RDMA over Ethernet in software on, at every boot.
    type: str
    default: ""
  rxe_device:
    description: The name of that RDMA device.
    type: str
    default: rxe0
  limits:
    description:
      - Limits of login sessions by name, V(memlock), V(nofile) or V(stack).
      - One that the machine does not let root set is left out and reported, because it would keep users from logging in.
    type: dict
    default: {}
  service_limits:
    description:
      - Limits of services that systemd starts, by the names and values of O(limits). Services that run keep theirs until they are
        restarted.
      - systemd hands out limits of its own; those of login sessions do not reach services.
    type: dict
    default: {}
  sysctl:
    description:
      - Kernel settings by name. They are written for the next boot, and set now where this kernel has them.
      - In a container they are written only.
    type: dict
    default: {}
  sunrpc_slots:
    description: Requests that NFS keeps in flight per connection at most. V(0) leaves that as it is.
    type: int
    default: 0
  nfs_read_ahead_kib:
    description: How far NFS reads ahead, in KiB. V(0) leaves that as it is.
    type: int
    default: 0
  waagent_rdma:
    description: Whether Azure's agent is told to set up RDMA (C(OS.EnableRDMA=y)), where there is one.
    type: bool
    default: false
  exclude_distribution:
    description:
      - Whether dnf's repositories, but for those of the vendor's stack and of the collection's other roles, exclude what that stack
        brings, and the tools that flash adapters (C(excludepkgs) in C(/etc/yum.repos.d)). Without it C(dnf upgrade) ends with a
        conflict once the distribution renews its RDMA packages.
      - For O(source=doca) and O(source=mlnx_ofed). With O(source=preinstalled) it stays as it is in the image. Otherwise, and with
        V(false), what was there is restored.
    type: bool
    default: false
  allow_restart:
    description: Whether openibd may be restarted to load new modules.
    type: bool
    default: false
  allow_reboot:
    description: Whether the node may be rebooted instead, also where a restart does not get the old modules out.
    type: bool
    default: false
  allow_replace:
    description: Whether packages and stacks that are in the way may be removed or replaced.
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.action
  - hpcai.gpu_cluster.rdma
  - hpcai.gpu_cluster.software.phases
  - hpcai.gpu_cluster.software.reboot
attributes:
  check_mode:
    support: full
    details: Reports what would be done, as far as it can be known before an archive is fetched.
  diff_mode:
    support: full
    details: One entry per change.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.rdma
"""

EXAMPLES = r"""
- name: Install | The distribution's RDMA packages, RoCE in software for a lab
  hpcai.gpu_cluster.rdma_stack:
    packages: [rdma-core, ibverbs-utils, perftest]
    rxe_netdev: ens4

- name: Install | MLNX_OFED, with modules built for the running kernel
  hpcai.gpu_cluster.rdma_stack:
    source: mlnx_ofed
    version: 24.10-3.2.5.0
    mirror: https://content.mellanox.com/ofed
    sha256:
      24.10-3.2.5.0-ubuntu22.04-x86_64: "{{ mlnx_ofed_sha256 }}"
    allow_restart: true
"""

RETURN = r"""
changes:
  description: What was changed, or would be, in order.
  returned: success
  type: list
  elements: dict
  sample: [{kind: stack, name: mlnx_ofed 24.10-3.2.5.0, what: install}]
stack:
  description: The vendor's stack on the node, as C({source, version}). Empty strings for the distribution's.
  returned: success
  type: dict
  sample: {source: mlnx_ofed, version: 24.10-3.2.5.0}
not_applied:
  description: What does not count now, as C({what, reason}).
  returned: success
  type: list
  elements: dict
reboot_required:
  description:
    - Whether new modules wait for a reboot, as in check mode. With O(allow_reboot) the action plugin makes it, and runs the
      module again. Where the old modules are loaded after it, the module fails with C(reboot_in_vain).
  returned: success
  type: bool
rebooted:
  description: That the node was rebooted.
  returned: when it was
  type: bool
error_kind:
  description: Identifies the reason of a failure for programs.
  returned: on failure
  type: str
  sample: in_use
remedy:
  description: What to do about a failure.
  returned: on failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import ARGUMENT_SPEC, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.run import Run


def main() -> None:
    """Read, plan and, unless in check mode, apply."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C", "DEBIAN_FRONTEND": "noninteractive"}
    with failing(module):
        request = Request.of(module.params)
        run = Run(request, module, check=module.check_mode)
        run.present() if request.state == "present" else run.absent()
        result = run.result()
    module.exit_json(**result)


if __name__ == "__main__":
    main()
