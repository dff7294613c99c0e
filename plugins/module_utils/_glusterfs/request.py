# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of the ``glusterfs_*`` modules: their options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import (
    from_options,
    require_absolute,
)

_VOLUME: dict[str, t.Any] = {
    "volume": {"type": "str", "required": True},
    "mount_point": {"type": "path", "required": True},
}
#: Of the module glusterfs_volume, whose action plugin needs it, too.
VOLUME_SPEC: dict[str, t.Any] = {
    **_VOLUME,
    "state": {
        "type": "str",
        "choices": ["prepared", "started", "unmounted", "stopped", "deleted", "cleaned"],
        "default": "started",
    },
    "packages": {"type": "list", "elements": "raw", "default": []},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "node": {"type": "str", "required": True},
    "lead": {"type": "bool", "default": False},
    "brick_directory": {"type": "path", "required": True},
    "mount_options": {"type": "str", "default": "_netdev"},
    "mode": {"type": "str", "default": "01777"},
    "replica": {"type": "int", "default": 1},
    "options": {"type": "dict", "default": {}},
    "forget_nodes": {"type": "list", "elements": "str", "default": []},
    "allow_data_loss": {"type": "bool", "default": False},
    "prove": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 120},
}
CHECK_SPEC: dict[str, t.Any] = {
    **_VOLUME,
    "step": {"type": "str", "choices": ["write", "collect", "data", "status"], "required": True},
    "node": {"type": "str", "default": ""},
    "brick_directory": {"type": "path"},
    "nonces": {"type": "dict", "default": {}},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "allow_data_loss": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 60},
}


@dataclasses.dataclass(frozen=True)
class VolumeRequest:
    """What ``glusterfs_volume`` is to do on this node, whose name among those of the volume is ``node``.

    ``hosts``: the nodes of this run. ``packages``: what node_state takes. ``mode``: of the volume's root, in octal.
    """

    state: str
    wanted: Wanted
    node: str
    lead: bool
    hosts: tuple[str, ...]
    packages: tuple[t.Any, ...]
    mount_point: str
    mount_options: str
    mode: str
    prove: bool
    timeout_s: int

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> VolumeRequest:
        """The request behind the module's parameters, which Ansible has checked and filled up."""
        require_absolute(options, "brick_directory", "mount_point")
        return from_options(
            cls,
            options,
            wanted=Wanted(
                name=options["volume"],
                nodes=tuple(options["nodes"]),
                bricks=options["brick_directory"].rstrip("/"),
                replica=options["replica"],
                options={key: str(value) for key, value in options["options"].items()},
                forget=tuple(options["forget_nodes"]),
                allow_data_loss=options["allow_data_loss"],
            ),
        )


@dataclasses.dataclass(frozen=True)
class CheckRequest:
    """Which step of the proof ``glusterfs_check`` is to take. ``nonces``: the number of each of ``nodes``, as it was written."""

    step: str
    volume: str
    node: str
    mount_point: str
    bricks: str
    nonces: t.Mapping[str, str]
    nodes: tuple[str, ...]
    allow_data_loss: bool
    timeout_s: int

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> CheckRequest:
        """The request behind the module's parameters, which Ansible has checked and filled up."""
        require_absolute(options, "brick_directory", "mount_point")
        if options["step"] == "collect" and not options["nodes"]:
            raise ClusterError(
                "bad_input",
                f"`nodes` is empty: nothing would show that {options['volume']} is shared.",
                "Name the nodes that wrote to the volume; at least one of them has to be in the run.",
            )
        return from_options(cls, options, bricks=options["brick_directory"] or "")


__all__ = ["CHECK_SPEC", "VOLUME_SPEC", "CheckRequest", "VolumeRequest"]
