#!/usr/bin/python
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dataset_remove
short_description: Delete the files that were staged to a destination
description:
  - Deletes exactly the files that have a receipt of M(hpcai.gpu_cluster.dataset_stage), the directories that this leaves empty,
    and the state in C(.staging). Files that somebody else put there stay.
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  destination:
    description: Directory of the dataset.
    type: path
    required: true
  allow_data_loss:
    description: Consent. Without it the module fails when there is something to delete.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Counts what would be deleted. Consent is asked for all the same.
  diff_mode:
    support: full
    description: Shows how many staged files there are before and after.
  idempotent:
    support: full
    description: A destination without state is left alone.
"""

EXAMPLES = r"""
- name: Delete the staged dataset
  hpcai.gpu_cluster.dataset_remove:
    destination: /mnt/scratch/cosmoflow
    allow_data_loss: true
  run_once: true
"""

RETURN = r"""
files:
  description: Staged files that were (or would be) deleted.
  type: int
  returned: always
"""

import contextlib
import os
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._staging_state import StatePaths, read_receipts


def staged_files(destination: str) -> list[str]:
    """Absolute paths of the files with a receipt that are there."""
    names = read_receipts(StatePaths(destination).receipts)
    return [path for path in (os.path.join(destination, name) for name in sorted(names)) if os.path.lexists(path)]


def delete(destination: str, paths: t.Iterable[str]) -> None:
    """Delete files, then directories that became empty, the destination itself included."""
    directories = {destination}
    for path in paths:
        os.unlink(path)
        directory = os.path.dirname(path)
        while len(directory) > len(destination):
            directories.add(directory)
            directory = os.path.dirname(directory)
    shutil.rmtree(StatePaths(destination).root, ignore_errors=True)
    for directory in sorted(directories, key=len, reverse=True):
        with contextlib.suppress(OSError):  # not empty: somebody else's files
            os.rmdir(directory)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "destination": {"type": "path", "required": True},
            "allow_data_loss": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    destination: str = os.path.normpath(module.params["destination"])
    if not os.path.isdir(StatePaths(destination).root):
        module.exit_json(changed=False, files=0)
    paths = staged_files(destination)
    if paths and not module.params["allow_data_loss"]:
        module.fail_json(
            msg=f"{len(paths)} staged files at {destination} would be deleted. "
            "Set dataset_staging_allow_data_loss: true if that is what you want.",
            files=len(paths),
        )
    if not module.check_mode:
        delete(destination, paths)
    module.exit_json(
        changed=True,
        files=len(paths),
        diff={
            "before": f"{len(paths)} staged files at {destination}\n",
            "after": f"no staged files at {destination}\n",
        },
    )


if __name__ == "__main__":
    main()
