# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of ``mpi_check``: its options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import from_options

ARGUMENT_SPEC: dict[str, t.Any] = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "ranks_per_node": {"type": "int", "default": 1},
    "module": {"type": "str", "default": "mpi/current"},
    "user": {"type": "str", "default": ""},
    "mca": {"type": "dict", "default": {}},
    "collective": {"type": "bool", "default": True},
    "timeout_s": {"type": "int", "default": 60},
}


@dataclasses.dataclass(frozen=True)
class Request:
    """One launch: ``ranks_per_node`` ranks on each of ``hosts``, of which none is named twice.

    ``module``: the environment module to load first, "" for none. ``user``: who runs it, "" for whoever asks. ``mca``: Open
    MPI's parameters of this launch. ``collective``: whether the ranks compute a sum together.
    """

    hosts: tuple[str, ...]
    ranks_per_node: int = 1
    module: str = ""
    user: str = ""
    mca: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    collective: bool = True
    timeout_s: int = 60

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> Request:
        """The request behind a module's parameters, which Ansible has checked and filled up."""
        request = from_options(
            cls,
            options,
            hosts=tuple(dict.fromkeys(options["hosts"])),
            mca={key: str(value) for key, value in options["mca"].items()},
        )
        request.check()
        return request

    @property
    def ranks(self) -> int:
        """How many ranks there are to be."""
        return len(self.hosts) * self.ranks_per_node

    def check(self) -> None:
        """Refuse what mpirun would understand otherwise, and what would prove nothing."""
        if not self.hosts:
            raise ClusterError("bad_input", "No node is named, so nothing would be proven.", "Name nodes in `hosts`.")
        if self.ranks_per_node < 1:
            message = f"{self.ranks_per_node} ranks per node prove nothing."
            raise ClusterError("bad_input", message, "Set `ranks_per_node` to 1 or more.")
        for host in self.hosts:
            # A name that starts with a dash would be an option, and one with a comma or colon two hosts or slots.
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", host):
                raise ClusterError(
                    "bad_input",
                    f"{host!r} in `hosts` is not a host name that mpirun understands.",
                    "Use names or IPv4.",
                )


__all__ = ["ARGUMENT_SPEC", "Request"]
