#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a node's NVIDIA driver to one exact version in one transaction, and its kernel module with it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_driver
short_description: Bring the NVIDIA driver of a node to one exact version, in one transaction
version_added: 0.1.0
description:
  - Reads what is installed and what runs, plans, lets the package system simulate the plan, asks for consent where a
    driver would be
    replaced, unloaded or a node rebooted, and then makes one transaction with exact versions. Kernel module,
    libraries and Fabric
    Manager have one version afterwards, or nothing was changed.
  - The kernel module is the open or the proprietary one, by the generation of the GPUs, which is read from the PCI
    bus without a
    driver. Fabric Manager is installed where there are NVSwitches, and only there.
  - Interrupted runs of dpkg are finished as a part of the plan.
  - A module that runs is unloaded before its libraries change, so that the two never differ while nothing reboots.
    Packages are downloaded before that. Modules and services that had to make way come back with the new module, and
    with the old one where the transaction fails before it changed a package.
  - "Sources of the rules: NVIDIA Driver Installation Guide (kernel modules, version locking), CUDA release notes,
    Fabric Manager User
    Guide, and Azure's azhpc-images, which installs these drivers on the machine types that this collection is for."
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description:
      - V(present) installs, configures, and proves it, which a reboot or check mode may put off. V(verified) changes
        nothing and fails with everything that is wrong. V(absent) removes the driver and what was set for it.
    type: str
    choices: [present, verified, absent]
    default: present
  source:
    description:
      - V(cuda_repo) is NVIDIA's repository, V(distro) the distribution's packages, V(runfile) NVIDIA's C(.run) file.
        With V(preinstalled) nothing is installed or removed, only modes are set.
    type: str
    choices: [cuda_repo, distro, runfile, preinstalled]
    default: cuda_repo
  version:
    description: >-
      The driver's whole version as NVIDIA writes it, for example V(580.95.05); one with a single dot in quotes, because it is a
      number without them. Required unless preinstalled.
    type: str
    default: ""
  kernel_module:
    description:
      - Which kernel module to install. V(auto) decides by the GPUs on the PCI bus, and does nothing on a node without
        any. Name it for images.
    type: str
    choices: [auto, open, proprietary]
    default: auto
  fabric_manager:
    description: Whether to install Fabric Manager. V(auto) means where there are NVSwitches on the PCI bus.
    type: str
    choices: [auto, always, never]
    default: auto
  nscq:
    description:
      - Whether to install C(libnvidia-nscq), through which DCGM asks NVSwitches, at O(version) beside Fabric Manager. Nodes that
        get no Fabric Manager get none.
    type: bool
    default: false
  packages:
    description:
      - Packages to install instead of the driver's usual ones. All at O(version), but for Canonical's signed modules
        (C(linux-modules-nvidia-...)), which come in the build for that driver.
    type: list
    elements: str
    default: []
  kernel:
    description: The kernel to build for. Empty means the one that runs, which in an image is not the image's.
    type: str
    default: ""
  kernel_headers:
    description: Whether to install the headers of that kernel.
    type: bool
    default: true
  kernel_hold:
    description:
      - Whether to hold the kernel's packages as well, so that no upgrade of the system brings a kernel for which no
        driver was built. Taking the hold back is left to the site.
    type: bool
    default: false
  repository_url:
    description:
      - A repository to add. Empty means NVIDIA's with O(source=cuda_repo), and none with O(source=distro).
      - It is added where a package is missing or has another version; a node that has all of them needs none, and no key is fetched.
        A list that was added before follows its address.
      - A URL that holds a user or password is refused. For apt a password belongs into C(/etc/apt/auth.conf.d), for dnf into a C(.repo)
        file of your own with the same C(baseurl), C(username) and C(password), beside which no other is written; each of mode 0600.
    type: str
    default: ""
  repository_suite:
    description: The suite of a repository in Debian's layout. Empty means a flat repository, as NVIDIA's is.
    type: str
    default: ""
  repository_components:
    description: The components of a repository in Debian's layout.
    type: list
    elements: str
    default: []
  epel:
    description:
      - Whether to enable EPEL (C(epel-release)) on AlmaLinux, Rocky and Oracle Linux where no package brings C(dkms).
        With V(false) a node without it is refused before the driver is touched.
    type: bool
    default: false
  runfile:
    description: NVIDIA's C(.run) file, as a URL or a path on the node.
    type: str
    default: ""
  runfile_sha256:
    description: Its sha256.
    type: str
    default: ""
  runfile_arguments:
    description: More arguments for it.
    type: list
    elements: str
    default: []
  cuda_version:
    description: The CUDA toolkit to install, numbers with dots between them, for example V(12.9). Empty means none.
    type: str
    default: ""
  dcgm:
    description: Whether to install DCGM, in the build for the CUDA that GPUs and driver allow.
    type: bool
    default: false
  dcgm_version:
    description: How DCGM's version must begin. Empty means any.
    type: str
    default: ""
  gdrcopy:
    description:
      - Whether to install GDRCopy (C(gdrdrv-dkms) and C(libgdrapi), on EL C(gdrcopy-kmod) and C(gdrcopy)), load its kernel module
        C(gdrdrv), and build that anew for a driver that takes another one's place. NVIDIA has these packages in no repository, so one
        of the site's has to have them. With O(source=preinstalled) nothing is installed, and O(state=verified) demands that the
        module is loaded.
    type: bool
    default: false
  gdrcopy_version:
    description: How GDRCopy's version must begin. Empty means any.
    type: str
    default: ""
  module_options:
    description: Options of the kernel module.
    type: dict
    default: {}
  restrict_profiling:
    description: Whether only root may profile (C(NVreg_RestrictProfilingToAdminUsers)).
    type: bool
    default: true
  peermem:
    description: Whether to load C(nvidia_peermem), also after openibd restarted. V(auto) means where openibd is installed.
    type: str
    choices: [auto, always, never]
    default: auto
  hold:
    description: Whether to hold the driver's packages, and keep unattended-upgrades away from them.
    type: bool
    default: true
  ecc:
    description: The ECC mode of all GPUs. Another one takes effect with a reset of the GPUs or a reboot, for which consent is needed.
    type: str
    choices: [keep, enabled, disabled]
    default: keep
  mig:
    description: The MIG mode of all GPUs. Another one takes effect with a reset or a reboot as well, and at once from Hopper on.
    type: str
    choices: [keep, enabled, disabled]
    default: keep
  expect_gpus:
    description: How many GPUs C(nvidia-smi) must list. The number on the PCI bus counts where it is larger.
    type: int
    default: 0
  nvidia_smi_timeout_s:
    description: How long a query of C(nvidia-smi) may take, in seconds.
    type: float
    default: 20.0
  cuda_library:
    description:
      - The library with which O(state=verified) starts CUDA once (C(cuInit), in a process of its own), by its name or
        path. Empty leaves CUDA unasked.
    type: str
    default: libcuda.so.1
  drain:
    description:
      - Whether to drain the node in Slurm before the driver is unloaded, GPUs reset, or the node rebooted, and to
        resume it when all is verified. A node that was drained by other means stays so.
    type: bool
    default: false
  drain_timeout_s:
    description: How long to wait for jobs to end, in seconds.
    type: int
    default: 3600
  slurm_node:
    description: The node's name in Slurm. Empty means its host name.
    type: str
    default: ""
  timeout_s:
    description: How long fetching the C(.run) file may take, in seconds.
    type: int
    default: 1800
  allow_upgrade:
    description: Whether an installed driver may be replaced by another version, newer or older, or the other module.
    type: bool
    default: false
  allow_unload:
    description: Whether the kernel module may be unloaded, and GPUs be reset, when nothing uses the GPUs.
    type: bool
    default: false
  allow_reboot:
    description: Whether the node may be rebooted.
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.action
  - hpcai.gpu_cluster.gpu_facts.nvidia_smi
  - hpcai.gpu_cluster.software.phases
  - hpcai.gpu_cluster.software.reboot
  - hpcai.gpu_cluster.software.repository_key
attributes:
  check_mode:
    support: full
    details:
      - Simulates the transaction with what the node's package lists know, and refuses what would be refused.
  diff_mode:
    support: full
    details: One entry per package, file, unit, module and mode.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
"""

EXAMPLES = r"""
- name: Install the driver, and Fabric Manager where there are NVSwitches
  hpcai.gpu_cluster.nvidia_driver:
    version: 580.95.05

- name: Replace it, unloading the old one
  hpcai.gpu_cluster.nvidia_driver:
    version: 580.126.16
    allow_upgrade: true
    allow_unload: true

- name: Prepare an image for machines with V100
  hpcai.gpu_cluster.nvidia_driver:
    version: 580.95.05
    phases: [install]
    kernel_module: proprietary
    kernel: 6.8.0-1031-azure

- name: Check that it is right
  hpcai.gpu_cluster.nvidia_driver:
    state: verified
    version: 580.95.05
"""

RETURN = r"""
changes:
  description: What was changed, or would be, in order.
  returned: success
  type: list
  elements: dict
  sample: [{kind: package, name: nvidia-open, what: upgrade nvidia-open 570.124.06-0ubuntu1 to 580.95.05-0ubuntu1}]
gpus:
  description: GPUs on the PCI bus with their generation.
  returned: success
  type: list
  elements: str
  sample: ["0001:00:00.0 ampere"]
nvswitches:
  description: How many NVSwitches there are.
  returned: success
  type: int
kernel_module:
  description: Which kernel module was chosen.
  returned: success
  type: str
loaded:
  description: The version of the driver that the kernel runs.
  returned: success
  type: str
reboot_required:
  description: Why the node must be rebooted. The action plugin does it when O(allow_reboot) is true.
  returned: success
  type: list
  elements: str
findings:
  description: What is wrong, as C({verdict, what, message, remedy}).
  returned: when O(state=verified), and after O(phases) with V(configure)
  type: list
  elements: dict
would:
  description: What would be done if there was consent.
  returned: when consent is missing
  type: list
  elements: str
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.apply import Driver
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.read import read_facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.remove import absent
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import ARGUMENT_SPEC, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.verify import verified


def present(request: Request, module: AnsibleModule) -> dict[str, t.Any]:
    """Install and configure, and prove it unless something is still to come: a reboot, or all of it in check mode."""
    driver = Driver(request, read_facts(request), module, check=module.check_mode)
    result = driver.present()
    rebooting = bool(result["reboot_required"]) and request.allow_reboot
    if not request.configures or rebooting or (module.check_mode and result["changed"]):
        return result
    try:
        # The node is another one by now.
        findings = verified(request, read_facts(request), module).get("findings", [])
    except ClusterError as exc:
        module.fail_json(**{**result, **driver.running.told(exc).as_result()})
    return {**driver.give_back(result), "findings": findings}


def main() -> None:
    """Do what the state asks for."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        required_if=[("source", "runfile", ("runfile", "runfile_sha256"))],
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}
    request = Request.of(module.params)
    with failing(module):
        if request.state == "verified":
            result = verified(request, read_facts(request), module)
        elif request.state == "absent":
            result = absent(request, read_facts(request), module, check=module.check_mode)
        else:
            result = present(request, module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
