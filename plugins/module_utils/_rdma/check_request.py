# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of ``rdma_check``: its options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import from_options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import SERVICE_LIMITS, STACK_OPTIONS, Wanted

# As in a profile, and the link layer of counted ports.
_FABRIC: dict[str, t.Any] = {
    "hcas": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "bus_id": {"type": "str"},
            "rate_gbps": {"type": "float"},
            "link_layer": {"type": "str"},
        },
    },
    "count": {"type": "int"},
    "rate_gbps": {"type": "float"},
    "link_layer": {"type": "str"},
    "source": {"type": "str"},
    "date": {"type": "str"},
    "verified": {"type": "bool"},
}
ARGUMENT_SPEC: dict[str, t.Any] = {
    **STACK_OPTIONS,
    "fabric": {"type": "dict", "default": {}, "options": _FABRIC},
    "bandwidth": {"type": "str", "choices": ["none", "server", "client"], "default": "none"},
    "peer": {"type": "str", "default": ""},
    "size_bytes": {"type": "int", "default": 65536},
    "iterations": {"type": "int", "default": 5000},
    "tcp_port": {"type": "int", "default": 18515},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "least_gbps": {"type": "float", "default": 0},
    **SERVICE_LIMITS,
    "timeout_s": {"type": "int", "default": 60},
    "settle_s": {"type": "int", "default": 0},
}


@dataclasses.dataclass(frozen=True)
class CheckRequest:
    """The options of one call, by their names. They are told in the module's documentation.

    ``fabric`` is a profile's section of that name. ``bandwidth`` is the end of a measurement that this node is, or ``none``.
    """

    wanted: Wanted
    fabric: t.Mapping[str, t.Any]
    bandwidth: str
    peer: str
    size_bytes: int
    iterations: int
    tcp_port: int
    arguments: tuple[str, ...]
    least_gbps: float
    service_limits: t.Mapping[str, t.Any]
    timeout_s: int
    settle_s: int

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> CheckRequest:
        """The request behind a module's parameters, which Ansible has checked and filled up."""
        wanted = Wanted(options["source"], options["version"], options["user_space_only"])
        return from_options(cls, options, wanted=wanted, fabric=_given(options["fabric"]))


def _given(value: t.Any) -> t.Any:
    """What was told, without the options that Ansible adds as null; whole numbers as people write them."""
    if isinstance(value, dict):
        return {key: _given(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_given(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


__all__ = ["ARGUMENT_SPEC", "CheckRequest"]
