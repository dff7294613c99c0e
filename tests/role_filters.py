# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the collection for templates of roles that a test evaluates by itself."""

from __future__ import annotations

from ansible.plugins.loader import filter_loader
from ansible_collections.hpcai.gpu_cluster.plugins.filter.as_dict import as_dict
from ansible_collections.hpcai.gpu_cluster.plugins.filter.as_list import as_list
from ansible_collections.hpcai.gpu_cluster.plugins.filter.mca_variables import mca_variables


def add_role_filters() -> None:
    """Ansible finds them by a loader for imports, which pytest's own takes the place of."""
    filter_loader.get("b64decode")  # fills what is added to here
    for function in (as_dict, as_list, mca_variables):
        name = f"hpcai.gpu_cluster.{function.__name__}"
        filter_loader._cached_non_collection_wrappers[name] = filter_loader._wrap_func(name, name, function)
