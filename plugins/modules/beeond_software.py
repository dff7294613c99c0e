#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install BeeOND in one version, and build its client's kernel module ahead of the first start."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: beeond_software
short_description: Install BeeOND in one version, and build its client's module
version_added: 0.1.0
description:
  - Brings the packages of BeeGFS on demand in one version, from a repository whose key is known, and keeps them there.
  - Builds the client's kernel module for the kernel that runs and for the one that boots next. Nothing is started, which is for
    M(hpcai.gpu_cluster.beeond).
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  version:
    description: The major version of BeeGFS that O(pin) has to name. Without it, any.
    type: int
    choices: [7, 8]
  packages:
    description: What to install, by name or by C(dpkg) and C(rpm), as M(hpcai.gpu_cluster.node_state) takes it.
    type: list
    elements: raw
    default: [beeond, libbeegfs-ib, {dpkg: pdsh}]
  pin:
    description:
      - The version of BeeGFS' packages, such as V(8.3.1), V(20:8.3.1) or V(8.3.1-el9); V(*) stands for any characters. Upgrades of the
        system keep it, by a preference of apt and by dnf's list of locks.
      - BeeGFS that is installed in another version is refused (C(other_version)). Empty means none.
    type: str
    default: ""
  repository_url:
    description: The release whose repository is added, such as U(https://www.beegfs.io/release/beegfs_8.3).
    type: str
    default: ""
  repository_suite:
    description: Debian and Ubuntu. The suite of that repository, for example V(noble). Empty means that none is added.
    type: str
    default: ""
  repository_el:
    description: EL. The directory below C(dists) in that repository, for example V(rhel9). Empty means that none is added.
    type: str
    default: ""
  repository_key:
    description: The repository's key, as a file of the controller or a URL that the node fetches. Empty means C(gpg/GPG-KEY-beegfs)
      below O(repository_url).
    type: str
    default: ""
  repository_fingerprint:
    description: The fingerprint that the key must have. It is compared before anything trusts the key, and needed where a repository
      is added.
    type: str
    default: ""
  client_build:
    description:
      - Whether to build the client's kernel module for the kernel that runs, and for the one that boots next.
        Where it is built already, nothing is.
      - Missing headers of the running kernel (C(headers_missing)), OFED's headers that are missing or for another kernel
        (C(ofed_headers)), and Secure Boot that would not load it (C(secure_boot)) are refused before anything is installed. What
        the next kernel lacks is a warning.
    type: bool
    default: true
  client_build_args:
    description: Arguments of that build, written to C(/etc/beegfs/beegfs-client-autobuild.conf), or with C(beegfs-client-dkms) to
      C(/etc/beegfs/beegfs-client-build.mk). Empty means as packaged.
    type: str
    default: ""
  kernel:
    description: The release of the kernel to build for, for images. Empty means the one that runs and the one that boots next, and
      none where systemd does not run.
    type: str
    default: ""
  repository_key_text:
    description: Where the action plugin puts a key of the controller. Not for use in playbooks.
    type: str
    default: ""
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
    details: What a repository has that is only to be added is not known.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
"""

EXAMPLES = r"""
- name: Install BeeOND
  hpcai.gpu_cluster.beeond_software:
    pin: 8.3.1
    repository_url: https://www.beegfs.io/release/beegfs_8.3
    repository_suite: noble
    repository_fingerprint: 0683AF2B9AC5BC7D59B2D62340CE4E243CD50804
"""

RETURN = r"""
changes:
  description: What was changed, or would be, in order.
  returned: success
  type: list
  elements: dict
  sample: [{kind: package, name: beeond, what: install beeond 20:8.3.1}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.apply import installed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.request import SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing


def main() -> None:
    """Bring the software on this node."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}
    with failing(module):
        result = installed(module.params, module, check=module.check_mode)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
