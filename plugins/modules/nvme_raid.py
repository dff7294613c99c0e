#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make one mounted file system of a node's local NVMe disks, and never touch a disk that holds anything else."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvme_raid
short_description: Make one mounted file system of a node's local disks
version_added: 0.1.0
description:
  - Selects disks by what they are, makes an md array of them, a file system on it, mounts it, and sets its owner and mode.
  - Of the selected disks it excludes by itself each one that carries the operating system, is mounted, used as swap, or in
    use by LVM, md, dm, ZFS or anything else that the kernel knows of. Such a disk is never touched, whatever is consented to.
  - A disk that nothing uses but that holds a signature, partitions, or anything else than zeros is only
    formatted with O(allow_format), and then only if it is listed in O(format_devices).
  - What is there is found by the name of the array or O(uuid), or by the label of the file system. Device numbers, which
    change from boot to boot, mean nothing to it. A file system with the label on a disk that is excluded, such as network
    storage, is left alone, with a warning; an array that has such a disk is refused.
  - An array that is there is never changed into another one. What does not fit is refused, with the reason.
  - The same code runs at boot where the role of the same name installed its program.
notes:
  - Signatures are those that libblkid knows. The geometry of the stripes is left to C(mkfs), which reads it from the array,
    and is compared with the array's afterwards.
author:
  - The hpcai.gpu_cluster developers (@hpcai)
options:
  state:
    description:
      - V(present) makes what is missing. V(assembled) assembles and mounts what is there, and creates nothing.
      - V(verified) changes nothing, and fails where V(present) would, or where the array is degraded.
      - V(inspected) changes nothing, and tells in RV(disks) what may be done with each disk. What disks hold is no failure.
      - V(absent) unmounts and removes the array or file system. Files on it are lost only with O(allow_data_loss).
    type: str
    choices: [present, verified, assembled, inspected, absent]
    default: present
  name:
    description: Name of the array. It is written on its disks, so the array is found again under any device number.
    type: str
    default: scratch
  uuid:
    description: UUID of the array, where its name is not enough.
    type: str
    default: ""
  level:
    description:
      - Level of the array. V(raid0) gives all the space and loses everything with any disk.
      - V(raid0) of one disk is that disk itself, like V(single), which demands exactly one.
    type: str
    choices: [raid0, raid1, raid10, single]
    default: raid0
  chunk_kib:
    description: How much goes to one disk before the next one is used, in KiB. 512 is the default of C(mdadm).
    type: int
    default: 512
  transports:
    description:
      - How disks are attached. NVMe over fabrics and network disks that look like NVMe are no local disks, and are excluded.
    type: list
    elements: str
    choices: [nvme, scsi, virtio, loop]
    default: [nvme]
  models:
    description: Models of disks, as shell patterns. Empty takes every model. On Azure V(Microsoft NVMe Direct Disk*).
    type: list
    elements: str
    default: []
  by_id:
    description:
      - Names of disks below C(/dev/disk), as shell patterns. Empty takes every disk. A name in a folder of a folder, such as
        C(/dev/disk/azure/local/by-serial/A1), is matched by a pattern with as many slashes.
      - If no disk has such a name, there is a warning.
      - Kernel names such as C(/dev/nvme0n1) are refused, because they mean another disk after the next boot.
    type: list
    elements: str
    default: []
  min_mib:
    description: Smallest size of a disk, in MiB.
    type: int
    default: 0
  max_mib:
    description: Largest size of a disk, in MiB. V(0) is any.
    type: int
    default: 0
  expected_disks:
    description:
      - How many disks the array must have. Fewer or more usable ones are an error, and nothing is touched.
      - V(0) takes all that can be used; no disk at all is then not an error. The first creation then wants O(models) or O(by_id), or
        O(level=single), because not every empty disk of a machine is meant for this.
    type: int
    default: 0
  filesystem:
    description: Type of the file system.
    type: str
    choices: [xfs, ext4]
    default: xfs
  label:
    description: Label of the file system, by which it is known to be ours. The default is the first 12 characters of O(name).
    type: str
    default: ""
  mkfs_options:
    description: Further options of C(mkfs), one word each. What means a stripe geometry, or another device, label or type, is refused.
    type: list
    elements: str
    default: []
  mount_point:
    description:
      - Where to mount. The directory is made if it is missing, and must be empty, but see O(mount_over_files).
      - Where it was mounted before under the same O(name), the directory can be written to again once nothing is mounted there.
    type: path
    required: true
  mount_options:
    description: Options of the mount. Flags such as V(noatime) are also set on a mount that is there; others at the next mount.
    type: list
    elements: str
    default: [noatime]
  mount_over_files:
    description:
      - Whether to mount although there are files in the directory at O(mount_point). They stay where they are, and are seen again
        when nothing is mounted there.
      - An empty directory is kept from being written to while nothing is mounted (C(chattr +i)), where its file system can do that.
        One with files in it stays writable.
    type: bool
    default: false
  owner:
    description: Owner of the root of the file system, by name or number.
    type: str
    default: root
  group:
    description: Group of the root of the file system, by name or number.
    type: str
    default: root
  mode:
    description: Permissions of the root of the file system, in octal, quoted.
    type: str
    default: "01777"
  timer:
    description: A systemd timer that must be enabled and run, or O(state=verified) fails. Empty for none.
    type: str
    default: ""
  blank_check:
    description:
      - When a disk without signature counts as empty. V(zeros) also wants only zeros in its first 2 MiB, its last MiB, and at
        about 500 places between them, which finds users without a signature.
      - V(signatures) is for disks that return noise after a secure erase.
    type: str
    choices: [zeros, signatures]
    default: zeros
  allow_format:
    description: Whether the disks in O(format_devices) may be formatted although they hold something.
    type: bool
    default: false
  format_devices:
    description: The disks that may be formatted, by their names below C(/dev/disk). No patterns. With O(allow_format), a name
      that no disk has gives a warning.
    type: list
    elements: str
    default: []
  allow_data_loss:
    description: Whether O(state=absent) may remove a file system that holds files.
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
    details: Shows the plan. What an array holds that is not assembled cannot be known before.
  diff_mode:
    support: full
    details: Lists what is done.
  idempotent:
    support: full
    details: A second run changes nothing.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
"""

EXAMPLES = r"""
- name: Configure | Make scratch of the eight local disks of an Azure NDv4 node
  hpcai.gpu_cluster.nvme_raid:
    models: ["Microsoft NVMe Direct Disk*"]
    expected_disks: 8
    mount_point: /mnt/resource_nvme

- name: Configure | Format one disk that holds an old file system
  hpcai.gpu_cluster.nvme_raid:
    expected_disks: 8
    mount_point: /mnt/resource_nvme
    allow_format: true
    format_devices: [/dev/disk/by-id/nvme-Microsoft_NVMe_Direct_Disk_3]

- name: Configure | Use Azure's local SSD as scratch
  hpcai.gpu_cluster.nvme_raid:
    name: local
    level: single
    transports: [scsi]
    by_id: [/dev/disk/azure/resource]
    mount_point: /mnt/local
"""

RETURN = r"""
steps:
  description: What was done, or would be, in words.
  returned: success
  type: list
  elements: str
  sample: ["create scratch, a raid0 of 8 disks: nvme0n1, nvme1n1, …", make xfs on scratch, mount scratch at /mnt/resource_nvme]
disks:
  description: Every disk of the node, what may be done with it, and why.
  returned: success
  type: list
  elements: dict
  contains:
    path: {description: The kernel's name., type: str, returned: always}
    by_id: {description: A name that lasts., type: str, returned: always}
    model: {description: The model., type: str, returned: always}
    bytes: {description: The size., type: int, returned: always}
    use:
      description: V(ours), V(free), V(data) (holds something that consent may give up), V(excluded), V(unselected), or V(unread)
        (does not tell what it is, and counts as missing).
      type: str
      returned: always
    reason: {description: Why., type: str, returned: always}
disks_to_expect:
  description:
    - With O(state=inspected), what O(expected_disks) has to be for the first creation, with consent for all disks in RV(disks) that hold
      something; 0 where nothing has to be said, and where a disk does not tell yet what it is. Otherwise 0.
  returned: success
  type: int
  sample: 8
array:
  description: The array or disk that was found at the end; empty where there is none.
  returned: success
  type: dict
  sample: {device: /dev/md127, level: raid0, disks: 8, uuid: 1b2c0a4e5f6d7c8b9a0b1c2d3e4f5a6b, degraded: ""}
geometry:
  description: Stripe unit, stripe width and size of the mounted file system in bytes, as C(xfs_info) or C(dumpe2fs) shows them.
  returned: when it is mounted
  type: dict
  sample: {unit_bytes: 524288, width_bytes: 4194304, size_bytes: 7681501126656}
notes:
  description: What is worth knowing.
  returned: success
  type: list
  elements: str
error_kind:
  description: Identifies the reason of a failure for programs.
  returned: on failure
  type: str
  sample: foreign_data
remedy:
  description: What to do about a failure.
  returned: on failure
  type: str
"""

import dataclasses
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, names_programs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_running, read_units
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.apply import Keeper, Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.here import wanted_here
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import FILESYSTEMS, LEVELS

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {
        "type": "str",
        "choices": ["present", "verified", "assembled", "inspected", "absent"],
        "default": "present",
    },
    "name": {"type": "str", "default": "scratch"},
    "uuid": {"type": "str", "default": ""},
    "level": {"type": "str", "choices": list(LEVELS), "default": "raid0"},
    "chunk_kib": {"type": "int", "default": 512},
    "transports": {
        "type": "list",
        "elements": "str",
        "choices": ["nvme", "scsi", "virtio", "loop"],
        "default": ["nvme"],
    },
    "models": {"type": "list", "elements": "str", "default": []},
    "by_id": {"type": "list", "elements": "str", "default": []},
    "min_mib": {"type": "int", "default": 0},
    "max_mib": {"type": "int", "default": 0},
    "expected_disks": {"type": "int", "default": 0},
    "filesystem": {"type": "str", "choices": list(FILESYSTEMS), "default": "xfs"},
    "label": {"type": "str", "default": ""},
    "mkfs_options": {"type": "list", "elements": "str", "default": []},
    "mount_point": {"type": "path", "required": True},
    "mount_options": {"type": "list", "elements": "str", "default": ["noatime"]},
    "mount_over_files": {"type": "bool", "default": False},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "mode": {"type": "str", "default": "01777"},
    "timer": {"type": "str", "default": ""},
    "blank_check": {"type": "str", "choices": ["zeros", "signatures"], "default": "zeros"},
    "allow_format": {"type": "bool", "default": False},
    "format_devices": {"type": "list", "elements": "str", "default": []},
    "allow_data_loss": {"type": "bool", "default": False},
}


def describe(outcome: Outcome) -> dict[str, t.Any]:
    """What the module returns besides changed and diff."""
    disks = [
        {
            "path": verdict.disk.path,
            "by_id": verdict.disk.stable,
            "model": verdict.disk.model,
            "bytes": verdict.disk.bytes,
            "use": verdict.use,
            "reason": verdict.reason,
        }
        for verdict in outcome.plan.verdicts
    ]
    found = outcome.plan.found
    array = {}
    if found:
        array = {
            "device": f"/dev/{found.device}" if found.device else "",
            "level": found.level,
            "disks": found.disks,
            "uuid": found.uuid,
            "degraded": outcome.plan.degraded,
        }
    geometry = dataclasses.asdict(outcome.geometry) if outcome.geometry else {}
    steps = [step.what for step in outcome.steps]
    notes = [*outcome.plan.notes, *outcome.plan.warnings]
    return {
        "steps": steps,
        "disks": disks,
        "disks_to_expect": outcome.plan.disks_to_expect,
        "array": array,
        "geometry": geometry,
        "notes": notes,
    }


def check_verified(outcome: Outcome, name: str) -> None:
    """Turn what would have to be changed into a failure."""
    if outcome.steps:
        raise ClusterError(
            "not_as_wanted",
            f"To be done for {name}: {'; '.join(step.what for step in outcome.steps)}.",
            "Run the role nvme_raid (entry point configure), or the module with `state: present`.",
        )
    if outcome.plan.degraded:
        raise ClusterError(
            "degraded",
            f"{outcome.plan.degraded}.",
            "Replace the missing disk by an empty one and run the role nvme_raid (entry point configure), or the module with "
            "`state: present`: it is added. See `cat /proc/mdstat`.",
        )


def check_timer(module: AnsibleModule, timer: str) -> None:
    """Fail where the timer would not start with the machine, or does not run."""
    if not timer or not is_running():
        return
    state = read_units(module, [timer])[timer]
    if (state.file_state, state.active) != ("enabled", "active"):
        raise ClusterError(
            "not_as_wanted",
            f"{timer} is {state.file_state or 'not installed'} and {state.active}.",
            f"Run the role nvme_raid (entry point install), or `systemctl enable --now {timer}`.",
        )


def main() -> None:
    """Read, plan and, unless in check mode, apply."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"LC_ALL": "C", "LANGUAGE": "C"}
    names_programs(module)
    verify = module.params["state"] == "verified"
    try:
        wanted = wanted_here({**module.params, **({"state": "present"} if verify else {})})
        outcome = Keeper(module, wanted).run(check=module.check_mode or verify)
        if verify:
            check_verified(outcome, wanted.name)
            check_timer(module, module.params["timer"])
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    except OSError as exc:
        module.fail_json(
            msg=f"{exc.filename or 'A device'}: {exc.strerror}. See `journalctl -k`, and run again.",
            error_kind="os_error",
        )
    result = describe(outcome)
    if outcome.plan.degraded:
        module.warn(f"{outcome.plan.degraded}.")
    for text in outcome.plan.warnings:
        module.warn(text)
    after = "".join(f"{line}\n" for line in result["steps"])
    module.exit_json(changed=bool(outcome.steps), diff={"before": "", "after": after}, **result)


if __name__ == "__main__":
    main()
