#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let containers use the GPUs and scratch: NVIDIA Container Toolkit, Docker, containerd, enroot, pyxis."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_runtime
short_description: Let containers use the GPUs and the scratch of a node
version_added: 0.1.0
description:
  - Installs the NVIDIA Container Toolkit, and makes its runtime the default one of Docker and containerd.
  - Settings of others in C(daemon.json) and C(config.toml) stay; ours are merged into them.
  - Docker reads another default runtime without a restart. What needs one is refused while containers run, unless
    O(allow_restart).
  - "Sources: NVIDIA Container Toolkit installation guide; Docker's reference of dockerd; the manuals of containerd,
    enroot, and pyxis."
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description:
      - V(present) installs and configures, V(verified) changes nothing and fails with what is wrong, V(absent)
        removes the toolkit and the settings.
    type: str
    choices: [present, verified, absent]
    default: present
  toolkit:
    description: Whether to install the NVIDIA Container Toolkit.
    type: bool
    default: true
  toolkit_version:
    description: The toolkit's exact version, without revision, for example V(1.18.0). Empty means any that is installed.
    type: str
    default: ""
  repository_url:
    description:
      - The repository of the toolkit. Empty means NVIDIA's. It is added where a package is missing. A node that has all of them at
        their versions needs none, and no key is fetched. A list that was added before follows its address.
      - A URL that holds a user or password is refused. For apt a password belongs into C(/etc/apt/auth.conf.d), for dnf into a C(.repo)
        file of your own with the same C(baseurl), C(username) and C(password), beside which no other is written; each of mode 0600.
    type: str
    default: ""
  docker:
    description: Whether to configure Docker. V(auto) means where it is installed.
    type: str
    choices: [auto, always, never]
    default: auto
  docker_packages:
    description: Packages that bring Docker, for example V(docker.io). Empty means that it is installed another way, or not at all.
    type: list
    elements: str
    default: []
  docker_default_runtime:
    description: Whether containers get the NVIDIA runtime without asking for it.
    type: bool
    default: true
  docker_data_root:
    description: Where Docker keeps images and containers, usually on scratch. Empty leaves it.
    type: str
    default: ""
  docker_settings:
    description: More settings of C(daemon.json). A C(data-root) that is not that of O(docker_data_root) is refused.
    type: dict
    default: {}
  containerd:
    description:
      - Whether to make the NVIDIA runtime the default one of containerd.
      - It counts for containers of Kubernetes. Where C(config.toml) disables the plugin C(cri), as Docker's package does, that stays.
    type: bool
    default: false
  enroot:
    description: Whether to install and configure enroot.
    type: bool
    default: false
  enroot_packages:
    description: Packages of enroot, from a repository that the node has.
    type: list
    elements: str
    default: [enroot, enroot+caps]
  enroot_directory:
    description: Where enroot keeps images and containers, on a local disk with room. Empty leaves its own places.
    type: str
    default: ""
  pyxis:
    description: Whether to install pyxis, enroot's plugin for Slurm.
    type: bool
    default: false
  pyxis_packages:
    description: Packages of pyxis.
    type: list
    elements: str
    default: [nvslurm-plugin-pyxis]
  pyxis_library:
    description: The plugin, as Slurm finds it.
    type: str
    default: spank_pyxis.so
  scratch:
    description: What enroot mounts into every container. Empty means nothing.
    type: str
    default: /mnt/scratch
  scratch_target:
    description: Where it is in the container.
    type: str
    default: /data
  allow_restart:
    description: Whether Docker may be restarted while containers run, which stops them.
    type: bool
    default: false
  verify_image:
    description:
      - With O(state=verified), an image of which Docker starts one container, with all GPUs and no network, that lists them with
        C(nvidia-smi -L). It has to be on the node, because nothing is fetched. Any image with GNU's C library will do.
      - Empty starts none. It counts where Docker is configured.
    type: str
    default: ""
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.software.phases
  - hpcai.gpu_cluster.software.repository_key
attributes:
  check_mode:
    support: full
    details: Simulates the transaction with what the node's package lists know.
  diff_mode:
    support: full
    details: One entry per package, file, and unit.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
"""

EXAMPLES = r"""
- name: Let Docker's containers use the GPUs, and keep images on scratch
  hpcai.gpu_cluster.container_runtime:
    docker: always
    docker_data_root: /mnt/resource_nvme/docker

- name: Prepare for containers of Slurm's jobs
  hpcai.gpu_cluster.container_runtime:
    enroot: true
    enroot_directory: /mnt/resource_nvme/enroot
    pyxis: true
"""

RETURN = r"""
changes:
  description: What was changed, or would be, in order.
  returned: success
  type: list
  elements: dict
  sample: [{kind: unit, name: docker.service, what: reload}]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.apply import Runtime
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import Dump
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.plan import (
    configures_docker,
    plan_absent,
    plan_present,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.read import (
    default_runtime,
    gpus_in_container,
    read_dump,
    read_facts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import ARGUMENT_SPEC, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.verify import check
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import manager_for


def run(request: Request, module: AnsibleModule) -> dict[str, t.Any]:
    """Do what the state asks for."""
    manager = manager_for(module)
    facts = read_facts(request, module, manager)
    if request.state == "verified":
        image = request.verify_image if configures_docker(request, facts) else ""
        check(
            request,
            facts,
            default_runtime(module),
            read_dump(module) if request.containerd else Dump(),
            gpus_in_container(module, image) if image else "",
        )
        return {"changed": False, "changes": [], "diff": []}
    runtime = Runtime(request, facts, manager, module, check=module.check_mode)
    if request.state == "absent":
        return runtime.absent(plan_absent(request, facts))
    return runtime.present(plan_present(request, facts))


def main() -> None:
    """Read, plan and, unless in check mode, apply."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}
    with failing(module):
        result = run(Request.of(module.params), module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
