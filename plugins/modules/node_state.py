#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring packages, directories, archives, files, links, absent paths and systemd units of a node to a declared
state."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_state
short_description: Bring packages, files and units of a node to a declared state in one task
version_added: 0.1.0
description:
  - Compares everything that a role puts on a node with what is there, and makes the difference go away, in one task
    result.
  - Every task costs 34 to 40 ms of controller CPU and about 200 ms of node CPU per node, C(copy) and C(template)
    twice that, a skipped
    task 13 to 15 ms. Twenty steps in one module took 12.8 times less wall time than twenty tasks, which is why this
    module exists.
  - The order is fixed. Packages first, then units are stopped and disabled, absent paths go, directories, archives,
    files and links are
    made, systemd reads its units again when one of them changed, and last units are enabled, started and restarted.
  - Everything is planned before the first change is made, so that a refused request changes nothing but packages.
  - Missing packages are installed by the action plugin of the same name through M(ansible.builtin.apt) or
    M(ansible.builtin.package), with the C(module_defaults) of the play for these and for M(ansible.builtin.dnf). Only
    C(name) and C(state) are this module's own. Package lists of apt are read again when a first try failed, unless
    C(update_cache) or C(cache_valid_time) is among the defaults.
    A node that lacks nothing costs exactly one module call.
  - More than 4 KiB of content in O(files) travels only to nodes that lack it, in a second call. Before that the node is
    asked with digests. Secrets always travel.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  packages:
    description:
      - Packages that must be installed, at any version. They are never upgraded or removed.
      - An item is a name, or a mapping with the key C(name), or with the keys C(dpkg) and C(rpm) where distributions name
        it differently. Each of them takes a list as well. A system whose key is missing needs nothing.
      - A mapping may have a C(when), as the items of the other lists.
      - "A mapping may have C(first: true), say for a package that brings a repository: what is missing of these is installed, by
        itself, before all others. Where none of the others is missing, these are not needed either: the node may reach no repository."
    type: list
    elements: raw
    default: []
  directories:
    description: Directories that must exist. Only the directory itself is given its mode and owner, never what it
      holds.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path. Missing parents are made with mode 0755.
        type: path
        required: true
      mode:
        description: Permissions in octal, quoted.
        type: str
        default: "0755"
      owner:
        description: Owner, by name or number.
        type: str
        default: root
      group:
        description: Group, by name or number.
        type: str
        default: root
      when:
        description: Whether the item counts. One that does not is as if it were not written.
        type: bool
        default: true
  archives:
    description:
      - Directories that are unpacked from an archive, at once or not at all.
      - The archive is checked before it is unpacked next to its destination and renamed into place.
      - A directory that exists and was not unpacked from this very archive is refused.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The directory to make.
        type: path
        required: true
      src:
        description: A URL, or a path on the node. Either this or O(archives[].controller_src).
        type: str
      controller_src:
        description: A path on the controller. The archive is transferred only when the directory is missing.
        type: path
      staged_src:
        description: Where the action plugin put an archive of the controller. Not for use in playbooks.
        type: path
      sha256:
        description: The digest of the archive, 64 hexadecimal digits.
        type: str
        required: true
      built_for:
        description:
          - The release for which the vendor built it, as the name of the archive has it, such as V(ubuntu24.04) or V(redhat9).
          - On another release of Ubuntu or of RHEL and its rebuilds nothing is fetched, and the module fails. Other distributions have no
            builds of their own, and are not compared.
        type: str
        default: ""
      strip_components:
        description: How many leading components the names in the archive lose.
        type: int
        default: 1
      timeout_s:
        description: How long fetching the archive may take, in seconds.
        type: int
        default: 900
      build:
        description:
          - A command to run once in the directory, as a list of words, for example to build what the archive holds.
          - It is run again when its words change, or when it did not end well. Files of the same task are written after it.
        type: list
        elements: str
        default: []
      build_timeout_s:
        description: How long the command may take, in seconds.
        type: int
        default: 3600
      when:
        description: Whether the item counts. One that does not is as if it were not written.
        type: bool
        default: true
  files:
    description: Files with their whole content. They are written beside their destination and renamed.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path. Its directory must exist or be listed. A link at this path is refused.
        type: path
        required: true
      content:
        description: The content. One of this, O(files[].src), O(files[].template) and O(files[].program) is
          needed.
        type: str
      src:
        description:
          - A file of the controller with the content, found as M(ansible.builtin.copy) finds it, in C(files/) of the role
            or of the playbook.
          - One that is encrypted with vault is decrypted. Set O(files[].sensitive) to keep it out of diffs.
        type: str
      template:
        description:
          - A template of the controller that makes the content, found as M(ansible.builtin.template) finds it, in
            C(templates/), and rendered with the variables of the task and C(ansible_managed).
          - One that is encrypted with vault is decrypted. Set O(files[].sensitive) to keep what it makes out of diffs.
        type: str
      template_vars:
        description: Variables that O(files[].template) has in addition, or with other values.
        type: dict
      program:
        description:
          - The name of a program of this collection that nodes run without Ansible, such as V(gpu-clocks). Give it mode
            V("0755").
          - It is built as one file for the Python that the play uses on the node, or that O(files[].interpreter) names.
        type: str
      interpreter:
        description: The path of the node's Python that runs O(files[].program), version 3.9 or newer. Empty is as if it
          were not written.
        type: str
      secret_content:
        description: Where the action plugin puts a content that is a secret. Not for use in playbooks.
        type: str
      content_base64:
        description: Where the action plugin puts a content that is not text. Not for use in playbooks.
        type: str
      sha256:
        description: Where the action plugin puts the digest of a content that it keeps until the node lacks it. Not for
          use in playbooks.
        type: str
      size:
        description: How many bytes a content has that comes as a digest, where a diff would not show them. Not for use in
          playbooks.
        type: int
      sensitive:
        description: Whether to keep the content out of diffs, logs and results.
        type: bool
        default: false
      unsafe_writes:
        description: Whether to write into the file where it cannot be replaced, as one that is mounted by itself. Whoever
          reads it meanwhile can see half of it.
        type: bool
        default: false
      ours:
        description:
          - A regular expression that matches somewhere in a file of yours (Python's C(re.search)). A file that is there, is not empty
            and that it does not match was written by somebody else, and is refused (C(foreign_files)) before anything is changed.
        type: str
        default: ""
      remedy:
        description: What that refusal says to do.
        type: str
        default: ""
      mode:
        description: Permissions in octal, quoted.
        type: str
        default: "0644"
      owner:
        description: Owner, by name or number.
        type: str
        default: root
      group:
        description: Group, by name or number.
        type: str
        default: root
      validate:
        description: A command that must accept the new file before it is put in place, as a list of words with V(%s)
          for its name.
        type: list
        elements: str
        default: []
      when:
        description: Whether the item counts. One that does not is as if it were not written.
        type: bool
        default: true
  links:
    description: Symbolic links. Only a link is ever replaced, and at once.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path of the link.
        type: path
        required: true
      target:
        description: What it points at, as written into the link.
        type: str
        required: true
      when:
        description: Whether the item counts. One that does not is as if it were not written.
        type: bool
        default: true
  absent:
    description:
      - Paths that must not exist, in this order. Each item is a path, or a mapping with C(path), C(recursive),
        C(unless_target_of), C(remedy), C(if_empty), C(if_unpacked), C(ours), C(pattern) and C(when).
      - Refused are V(/), anything mounted at or below the path, and a directory that is not empty unless its
        C(recursive) is true. With C(recursive) nothing below the path may be listed in other options.
      - With C(unless_target_of) the removal is refused while that link points at the path, and C(remedy) says what
        to do then. With C(if_empty) a directory that is not empty is left alone, with C(if_unpacked) one that
        O(archives) did not make, with C(ours) what is no file or one in which this regular expression matches nothing.
      - With C(pattern) the path is a shell pattern whose last part is a name. What matches it and is not listed under
        O(directories), O(files) or O(links) goes, and the directory that it leaves empty.
    type: list
    elements: raw
    default: []
  units:
    description:
      - systemd units. Where systemd is not running, as in an image under construction, they are only enabled or
        disabled.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name with its suffix, for example V(glusterd.service).
        type: str
        required: true
      state:
        description: Whether it must run. Not given, that is left as it is.
        type: str
        choices: [started, stopped]
      enabled:
        description: Whether it must start with the machine. Not given, that is left as it is.
        type: bool
      restart_on:
        description: Paths of this task. When one of them changed, a unit that was running already is restarted.
        type: list
        elements: path
        default: []
      when:
        description: Whether the item counts. One that does not is as if it were not written.
        type: bool
        default: true
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.attributes.action
attributes:
  check_mode:
    support: full
    details:
      - Reports every change and makes none. Units of packages that are still missing are reported as to be started.
  diff_mode:
    support: full
    details: One entry per change. The content of sensitive files is never shown.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
"""

EXAMPLES = r"""
- name: Install | Set up the time service
  hpcai.gpu_cluster.node_state:
    packages: [chrony]
    files:
      - path: /etc/chrony/conf.d/cluster.conf
        template: cluster.conf.j2
      - path: /etc/chrony/keys.d/cluster.keys
        src: cluster.keys
        mode: "0640"
        sensitive: true
        when: "{{ chrony_authenticated | bool }}"
    units:
      - name: chrony.service
        state: started
        enabled: true
        restart_on: [/etc/chrony/conf.d/cluster.conf]

- name: Remove | Take the old release away
  hpcai.gpu_cluster.node_state:
    absent:
      - /etc/profile.d/old.sh
      - path: /opt/tool/1.0
        recursive: true
        unless_target_of: /opt/tool/current
        remedy: Set tool_version to another version first.
"""

RETURN = r"""
changes:
  description: What was changed, or would be, in order.
  returned: always
  type: list
  elements: dict
  sample: [{kind: file, name: /etc/chrony/conf.d/cluster.conf, what: create}]
units_not_started:
  description: Units that should run but could not be started because systemd is not running here.
  returned: always
  type: list
  elements: str
needs:
  description: What the action plugin must bring before anything is changed. Absent from the result of a task.
  returned: between the two calls of the module
  type: dict
error_kind:
  description: Identifies the reason of a failure for programs.
  returned: on failure
  type: str
  sample: in_the_way
remedy:
  description: What to do about a failure.
  returned: on failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.options import ARGUMENT_SPEC


def main() -> None:
    """Read, plan and, unless in check mode, apply."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}
    with failing(module):
        result = NodeState(module.params, module, of_task=True).run(check=module.check_mode)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
