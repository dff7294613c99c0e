# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Options of the modules, as Ansible checks them, and what becomes of them."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.launch import Settings

#: How programs are started: for every round alike.
LAUNCH_OPTIONS: dict[str, t.Any] = {
    "launcher": {"type": "str", "choices": ["mpirun", "srun"], "default": "mpirun"},
    "directory": {"type": "path", "default": "/opt/nccl-tests/build"},
    "ranks_per_node": {"type": "int", "default": 8},
    "module": {"type": "str", "default": "mpi/current"},
    "user": {"type": "str", "default": ""},
    "mca": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}},
    "srun_arguments": {"type": "list", "elements": "str", "default": []},
    "parallel": {"type": "int", "default": 64},
}

ROUND_OPTIONS: dict[str, t.Any] = {
    "tag": {"type": "str", "required": True},
    "sweep": {"type": "list", "elements": "str", "default": []},
    "launches": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "id": {"type": "str", "required": True},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "program": {"type": "str", "required": True},
            "arguments": {"type": "list", "elements": "str", "required": True},
            "samples": {"type": "int", "required": True},
            "timeout_s": {"type": "float", "required": True},
        },
    },
}

#: What NCCL needs to be told for the transport to be known, and GPUs in the order of the machine's profile (R001-33).
_ENVIRONMENT = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def settings_of(options: t.Mapping[str, t.Any]) -> Settings:
    """How the programs of a run are started."""
    return Settings(
        tag=options["tag"],
        launcher=options["launcher"],
        directory=options["directory"],
        ranks_per_node=options["ranks_per_node"],
        module=options["module"],
        user=options["user"],
        mca={key: str(value) for key, value in options["mca"].items()},
        environment={**_ENVIRONMENT, **{key: str(value) for key, value in options["environment"].items()}},
        srun_arguments=tuple(options["srun_arguments"]),
        parallel=options["parallel"],
    )


__all__ = ["LAUNCH_OPTIONS", "ROUND_OPTIONS", "settings_of"]
