# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Labels of SELinux. Things get those of their place before they are put there: a later run does not look at what is there."""

from __future__ import annotations

import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host


def label(path: str, place: str, host: Host) -> None:
    """Label what lies at ``path`` as the policy wants it at ``place``; does nothing without SELinux."""
    host.set_context_if_different(path, host.selinux_default_context(place), False)


def label_tree(path: str, place: str, host: Host) -> None:
    """Label a directory and all in it as the policy wants it at ``place``."""
    label(path, place, host)
    for directory, folders, files in os.walk(path):
        there = os.path.normpath(os.path.join(place, os.path.relpath(directory, path)))
        for name in (*folders, *files):
            label(os.path.join(directory, name), os.path.join(there, name), host)


__all__ = ["label", "label_tree"]
