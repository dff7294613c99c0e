# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a dataset is, and how nodes get at it."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules dataset_*."""

    AZCOPY = r"""
options:
  azcopy:
    description: Path of AzCopy.
    type: path
    default: azcopy
  log_path:
    description: Directory for AzCopy's logs and plans, on a local disk.
    type: path
    default: /var/log/azcopy
"""

    DESTINATION = r"""
options:
  destination:
    description: Directory that the dataset is staged to.
    type: path
    required: true
"""

    IDENTITY = r"""
options:
  identity:
    description: How nodes log in where there is no SAS. V(none) is for public containers.
    type: str
    choices: [msi, workload, azcli, spn, none]
    default: msi
  identity_client_id:
    description: Client id of a user-assigned managed identity.
    type: str
    default: ""
"""

    SOURCES = r"""
options:
  sources:
    description: Where the dataset is. Several accounts and prefixes form one dataset.
    type: list
    elements: dict
    required: true
    suboptions:
      url:
        description: URL of the container, such as V(https://account.blob.core.windows.net/container).
        type: str
        required: true
      prefix:
        description: Directory in the container. Names at the destination are relative to it.
        type: str
        default: ""
      include:
        description:
          - Globs of the blobs that the dataset has; all when empty. They are compared with the path below O(sources[].prefix), in its case.
          - V(*) and V(?) stay within a directory and V(**) crosses directories. V([a-c]), V([!a-c]) and V({one,other}) are known, and a
            backslash before a character that stands for itself. A glob that begins with a slash is compared with the whole path, any
            other one with its last components, so that V(*.idx) is found in every directory. One that ends in a slash is a directory
            with all that is in it. These are the globs of rclone.
          - A glob that chooses nothing is an error.
          - A text, as surveys give it, is a list in JSON, or globs with commas or line breaks between them. A comma within brackets or
            braces belongs to its glob.
        type: list
        elements: str
        default: []
      exclude:
        description: Globs as in O(sources[].include) of blobs that it does not have after all. One that excludes nothing is a warning.
        type: list
        elements: str
        default: []
      sas:
        description:
          - Shared access signature with read and list permission. Leave it out to use the managed identity.
          - AzCopy takes it on its command line, where users of the node can see it while it runs.
        type: str
        default: ""
"""

    THREADS = r"""
options:
  threads:
    description: Files looked at in parallel.
    type: int
    default: 16
"""
