# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of the ``cluster_ssh_*`` modules: their options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.model import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import from_options

_HOME: dict[str, t.Any] = {
    "cluster": {"type": "str", "default": "gpu_cluster"},
    "user": {"type": "str", "default": "root"},
}
_LINES: dict[str, t.Any] = {
    "key_options": {"type": "list", "elements": "str", "default": ["restrict", "pty"], "no_log": False},
    "forget_unseen": {"type": "bool", "default": False},
    "port": {"type": "int", "default": 22},
}
IDENTITY_SPEC: dict[str, t.Any] = {
    **_HOME,
    "name": {"type": "str", "required": True},
    "extra_names": {"type": "list", "elements": "str", "default": []},
    "make_key": {"type": "bool", "default": False},
    "renew_key": {"type": "bool", "default": False},
    "export_key": {"type": "bool", "default": False},
    "host_key_directory": {"type": "path", "default": "/etc/ssh"},
}
TRUST_SPEC: dict[str, t.Any] = {
    **_HOME,
    **_LINES,
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "nodes": {"type": "list", "elements": "dict", "default": []},
    "private_key": {"type": "str", "no_log": True},
    "drop_key": {"type": "bool", "default": False, "no_log": False},
}
CHECK_SPEC: dict[str, t.Any] = {
    **_HOME,
    **_LINES,
    "hosts": {"type": "list", "elements": "str", "required": True},
    "nodes": {"type": "list", "elements": "dict"},
    "others": {"type": "list", "elements": "dict", "default": []},
    "key_on_all": {"type": "bool", "default": False},
    "timeout_s": {"type": "int", "default": 15},
    "parallel": {"type": "int", "default": 64},
}


@dataclasses.dataclass(frozen=True)
class Lines:
    """What our lines say beside names and keys. ``port``: where sshd listens on all nodes."""

    cluster: str
    key_options: tuple[str, ...] = ()
    port: int = 22
    forget_unseen: bool = False

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> Lines:
        """The part of a module's parameters that becomes lines."""
        return from_options(cls, options)


@dataclasses.dataclass(frozen=True)
class IdentityRequest:
    """What ``cluster_ssh_identity`` is to find out and make. ``renew_key``: also where there is one."""

    cluster: str
    user: str
    name: str
    extra_names: tuple[str, ...]
    make_key: bool
    renew_key: bool
    export_key: bool
    host_key_directory: str

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> IdentityRequest:
        """The request behind the module's parameters, which Ansible has checked and filled up."""
        return from_options(cls, options)


@dataclasses.dataclass(frozen=True)
class TrustRequest:
    """What ``cluster_ssh_trust`` is to bring about. ``private_key`` is empty where none was handed over."""

    user: str
    present: bool
    nodes: tuple[Node, ...]
    lines: Lines
    private_key: str = dataclasses.field(default="", repr=False)
    drop_key: bool = False

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> TrustRequest:
        """The request behind the module's parameters; what nodes report is checked."""
        return from_options(
            cls,
            options,
            present=options["state"] == "present",
            nodes=nodes_of(options["nodes"]),
            lines=Lines.of(options),
            private_key=options["private_key"] or "",
        )


@dataclasses.dataclass(frozen=True)
class CheckRequest:
    """What ``cluster_ssh_check`` is to try: logins to ``hosts``. ``nodes`` is None where no node is looked at before.

    ``others`` trust the cluster and are none of it. ``parallel``: how many logins at a time.
    """

    user: str
    hosts: tuple[str, ...]
    lines: Lines
    nodes: tuple[Node, ...] | None = None
    others: tuple[Node, ...] = ()
    key_on_all: bool = False
    timeout_s: int = 15
    parallel: int = 64

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> CheckRequest:
        """The request behind the module's parameters; what nodes report is checked."""
        return from_options(
            cls,
            options,
            hosts=tuple(dict.fromkeys(options["hosts"])),
            lines=Lines.of(options),
            nodes=None if options["nodes"] is None else nodes_of(options["nodes"]),
            others=nodes_of(options["others"]),
        )


def nodes_of(reported: t.Iterable[t.Mapping[str, t.Any]]) -> tuple[Node, ...]:
    """Nodes as ``cluster_ssh_identity`` reported them."""
    return tuple(Node.from_result(data) for data in reported)


__all__ = [
    "CHECK_SPEC",
    "IDENTITY_SPEC",
    "TRUST_SPEC",
    "CheckRequest",
    "IdentityRequest",
    "Lines",
    "TrustRequest",
]
