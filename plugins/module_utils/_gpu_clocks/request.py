# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of ``gpu_clocks``: its options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Wish
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import from_options

STATE_PATH = "/var/lib/gpu_clocks/state.json"
ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["applied", "verified", "restored"], "default": "applied"},
    "policy": {"type": "str", "choices": ["max", "locked", "values", "default"], "default": "max"},
    "graphics_mhz": {"type": "int"},
    "memory_mhz": {"type": "int"},
    "method": {"type": "str", "choices": ["auto", "lock", "applications"], "default": "auto"},
    "persistence": {"type": "bool", "default": True},
    "layer": {"type": "str", "choices": ["node", "job", "all"], "default": "node"},
    "job": {"type": "str", "default": "playbook"},
    "gpus": {"type": "list", "elements": "str", "default": []},
    "required": {"type": "bool", "default": True},
    "allow_unsupported": {"type": "bool", "default": False},
    "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
    "timeout_s": {"type": "int", "default": 30},
    "state_path": {"type": "path", "default": STATE_PATH},
    "prolog": {"type": "str", "default": ""},
    "epilog": {"type": "str", "default": ""},
    "scontrol": {"type": "str", "default": "scontrol"},
    "slurm_conf": {"type": "path", "default": "/etc/slurm/slurm.conf"},
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How to reach the GPUs. ``gpus`` empty means all; otherwise indices, UUIDs or bus ids."""

    nvidia_smi: str = "nvidia-smi"
    timeout_s: float = 30.0
    state_path: str = STATE_PATH
    required: bool = True
    allow_unsupported: bool = False
    gpus: tuple[str, ...] = ()
    root: Path = Path("/")


@dataclasses.dataclass(frozen=True)
class Scripts:
    """The scripts that Slurm must run before and after a job, and how its configuration is reached."""

    prolog: str
    epilog: str
    scontrol: str = "scontrol"
    slurm_conf: str = "/etc/slurm/slurm.conf"
    timeout_s: float = 30.0


@dataclasses.dataclass(frozen=True)
class Request:
    """What is to become of the clocks. ``layer``: ``node``, ``job`` or ``all``; ``holder``: who holds that layer.

    ``scripts``: what Slurm must run for jobs, None where they are not asked for.
    """

    state: str
    wish: Wish
    layer: str
    holder: str
    options: Options
    scripts: Scripts | None

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> Request:
        """The request behind the module's parameters, which Ansible has checked and filled up."""
        if options["layer"] == "all" and options["state"] != "restored":
            raise ClusterError(
                "bad_value", "`layer: all` can only be restored.", "Set `layer` to node or job, or `state: restored`."
            )
        return from_options(
            cls,
            options,
            wish=from_options(Wish, options),
            holder=options["job"] if options["layer"] == "job" else "node",
            options=from_options(Options, options, root=Path("/")),
            scripts=from_options(Scripts, options) if options["prolog"] and options["epilog"] else None,
        )


__all__ = ["ARGUMENT_SPEC", "STATE_PATH", "Options", "Request", "Scripts"]
