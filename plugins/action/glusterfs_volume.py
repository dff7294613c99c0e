# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of glusterfs_volume: installs packages that the module finds missing, then calls it again."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.request import VOLUME_SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_state_action import NodeStateAction


class ActionModule(NodeStateAction):
    """See plugins/modules/glusterfs_volume.py for the documentation."""

    MODULE = "hpcai.gpu_cluster.glusterfs_volume"
    OPTIONS: t.ClassVar[dict[str, t.Any]] = VOLUME_SPEC
