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
    and the state in C(.staging). Other files stay.
  - Workers that still copy are told to stop, and waited for, up to a minute.
  - Logs and raw bytes that had landed need no consent.
version_added: 0.1.0
author: The hpcai.gpu_cluster developers (@hpcai)
options:
  destination:
    description: Directory of the dataset. Leave it out to delete logs only.
    type: path
  keep_data:
    description:
      - Leave O(destination) alone, and delete only what is on this node. For all but one of the nodes that share the destination.
    type: bool
    default: false
  only_former:
    description:
      - Delete only what was staged for an earlier choice of sources, prefix or decompression and is not of the dataset any more.
        The dataset and its state stay, as does a former file that was changed since.
      - Node by node where every node keeps a share of its own.
    type: bool
    default: false
  landing_path:
    description:
      - The O(hpcai.gpu_cluster.dataset_stage#module:landing_path) of this node. The directories that hold raw bytes for O(destination)
        are deleted, and nothing else in it.
    type: path
  log_path:
    description: Directory of AzCopy's logs on this node. What the staging left there is deleted, then the directory if it is empty.
    type: path
  allow_data_loss:
    description: Consent. Without it the module fails when there is something to delete.
    type: bool
    default: false
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
    details: Counts what would be deleted. Consent is asked for all the same.
  diff_mode:
    support: full
    details: Shows how many staged files there are before and after.
  idempotent:
    support: full
    details: A destination without state is left alone.
  action_group:
    membership:
      - hpcai.gpu_cluster.all
      - hpcai.gpu_cluster.dataset
"""

EXAMPLES = r"""
- name: Delete the staged dataset
  hpcai.gpu_cluster.dataset_remove:
    destination: /mnt/scratch/cosmoflow
    allow_data_loss: true
  run_once: true

- name: Delete what the dataset does not name any more
  hpcai.gpu_cluster.dataset_remove:
    destination: /mnt/scratch/cosmoflow
    only_former: true
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
import re
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.beside import look_beside
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.landing import landing_directories
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import read_receipts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import withdraw_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths, check_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError, failing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import look, parent_of, unlink


def staged_files(destination: str) -> list[str]:
    """Names of the files with a receipt that are there, but for those of an earlier choice that were written since."""
    names = sorted(read_receipts(StatePaths(destination).receipts))
    theirs: set[str] = set()
    with contextlib.suppress(ClusterError):  # never planned to its end: then there is no earlier choice
        theirs = Dataset.open(destination).taken_over()
    return [name for name in names if name not in theirs and look(destination, name) is not None]


def delete(destination: str, names: t.Iterable[str]) -> None:
    """Delete files, the state, then directories that became empty, the destination itself included."""
    delete_files(destination, names)
    shutil.rmtree(StatePaths(destination).root, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(destination)


def delete_files(destination: str, names: t.Iterable[str]) -> None:
    """Delete files, then directories below the destination that became empty."""
    directories: set[str] = set()
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            unlink(destination, name)
        directory = os.path.dirname(name)
        while directory:
            directories.add(directory)
            directory = os.path.dirname(directory)
    for directory in sorted(directories, key=len, reverse=True):
        with contextlib.suppress(OSError), parent_of(destination, directory) as (parent, last):
            os.rmdir(last, dir_fd=parent)  # an error: other files are in it


#: Names of runs, of shares of azcopy_copy and dataset_upload, and of locks, as the staging makes them.
_OUR_LOG = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}|[0-9a-f]{16}|rank-[0-9a-f]{16}\.lock")


def our_logs(log_path: str) -> list[str]:
    """Paths below the log directory that the staging made."""
    with contextlib.suppress(FileNotFoundError):
        return [os.path.join(log_path, name) for name in sorted(os.listdir(log_path)) if _OUR_LOG.fullmatch(name)]
    return []


def delete_logs(log_path: str, paths: t.Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another node that shares the directory was quicker
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    with contextlib.suppress(OSError):  # other logs are there
        os.rmdir(log_path)


def ask_consent(module: AnsibleModule, destination: str, paths: list[str]) -> None:
    if paths and not module.params["allow_data_loss"]:
        module.fail_json(
            msg=f"{len(paths)} staged files at {destination} would be deleted. "
            "Set `allow_data_loss: true` if that is what you want.",
            files=len(paths),
        )


def remove_former(module: AnsibleModule) -> None:
    destination = os.path.normpath(module.params["destination"])
    paths = Dataset.open(destination).former() if os.path.isdir(StatePaths(destination).root) else []
    ask_consent(module, destination, paths)
    if not module.check_mode:
        delete_files(destination, paths)
    before = f"{len(paths)} files at {destination} that are not of the dataset any more\n" if paths else ""
    module.exit_json(changed=bool(paths), files=len(paths), diff={"before": before, "after": ""})


def remove(module: AnsibleModule) -> None:
    destination = os.path.normpath(module.params["destination"]) if module.params["destination"] else ""
    log_path: str = module.params["log_path"] or ""
    landing_path: str = module.params["landing_path"] or ""
    has_data = bool(destination) and not module.params["keep_data"] and os.path.isdir(StatePaths(destination).root)
    landed = landing_directories(landing_path, destination) if destination and landing_path else []
    has_logs = bool(log_path) and os.path.isdir(log_path) and (our_logs(log_path) or not os.listdir(log_path))
    if has_data:
        check_state(destination)
    paths = staged_files(destination) if has_data else []
    ask_consent(module, destination, paths)
    if has_data and not module.check_mode:
        withdraw_run(destination)
        paths = staged_files(destination)  # workers have just finished some
        ask_consent(module, destination, paths)
        parts = [os.path.relpath(path, destination) for path in look_beside(destination, ()).unfinished]
        delete(destination, [*paths, *parts])
    if not module.check_mode:
        for directory in landed:
            shutil.rmtree(directory, ignore_errors=True)
    if has_logs and not module.check_mode:
        delete_logs(log_path, our_logs(log_path))
    before = [f"{len(paths)} staged files at {destination}\n"] * has_data
    before += [f"{directory}\n" for directory in landed] + [f"logs in {log_path}\n"] * bool(has_logs)
    module.exit_json(changed=bool(before), files=len(paths), diff={"before": "".join(before), "after": ""})


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "destination": {"type": "path"},
            "keep_data": {"type": "bool", "default": False},
            "only_former": {"type": "bool", "default": False},
            "landing_path": {"type": "path"},
            "log_path": {"type": "path"},
            "allow_data_loss": {"type": "bool", "default": False},
        },
        required_if=[("only_former", True, ["destination"])],
        mutually_exclusive=[("only_former", "landing_path"), ("only_former", "log_path")],
        supports_check_mode=True,
    )
    with failing(module):
        remove_former(module) if module.params["only_former"] else remove(module)


if __name__ == "__main__":
    main()
