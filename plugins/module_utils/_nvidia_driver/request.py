# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of ``nvidia_driver``: its options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import (
    PHASES,
    REBOOT_TIMEOUT,
    REPOSITORY_KEY,
    from_options,
)

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "verified", "absent"], "default": "present"},
    **PHASES,
    "source": {
        "type": "str",
        "choices": ["cuda_repo", "distro", "runfile", "preinstalled"],
        "default": "cuda_repo",
    },
    "version": {"type": "str", "default": ""},
    "kernel_module": {"type": "str", "choices": ["auto", "open", "proprietary"], "default": "auto"},
    "fabric_manager": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "nscq": {"type": "bool", "default": False},
    "packages": {"type": "list", "elements": "str", "default": []},
    "kernel": {"type": "str", "default": ""},
    "kernel_headers": {"type": "bool", "default": True},
    "kernel_hold": {"type": "bool", "default": False},
    "repository_url": {"type": "str", "default": ""},
    "repository_suite": {"type": "str", "default": ""},
    "repository_components": {"type": "list", "elements": "str", "default": []},
    **REPOSITORY_KEY,
    "epel": {"type": "bool", "default": False},
    "runfile": {"type": "str", "default": ""},
    "runfile_sha256": {"type": "str", "default": ""},
    "runfile_arguments": {"type": "list", "elements": "str", "default": []},
    "cuda_version": {"type": "str", "default": ""},
    "dcgm": {"type": "bool", "default": False},
    "dcgm_version": {"type": "str", "default": ""},
    "gdrcopy": {"type": "bool", "default": False},
    "gdrcopy_version": {"type": "str", "default": ""},
    "module_options": {"type": "dict", "default": {}},
    "restrict_profiling": {"type": "bool", "default": True},
    "peermem": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "hold": {"type": "bool", "default": True},
    "ecc": {"type": "str", "choices": ["keep", "enabled", "disabled"], "default": "keep"},
    "mig": {"type": "str", "choices": ["keep", "enabled", "disabled"], "default": "keep"},
    "expect_gpus": {"type": "int", "default": 0},
    "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
    "nvidia_smi_timeout_s": {"type": "float", "default": 20.0},
    "cuda_library": {"type": "str", "default": "libcuda.so.1"},
    "drain": {"type": "bool", "default": False},
    "drain_timeout_s": {"type": "int", "default": 3600},
    "slurm_node": {"type": "str", "default": ""},
    "timeout_s": {"type": "int", "default": 1800},
    "allow_upgrade": {"type": "bool", "default": False},
    "allow_unload": {"type": "bool", "default": False},
    "allow_reboot": {"type": "bool", "default": False},
    **REBOOT_TIMEOUT,
}


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of one call, by their names. They are told in the module's documentation."""

    state: str
    phases: tuple[str, ...]
    source: str
    version: str
    kernel_module: str
    fabric_manager: str
    nscq: bool
    packages: tuple[str, ...]
    kernel: str
    kernel_headers: bool
    kernel_hold: bool
    repository_url: str
    repository_suite: str
    repository_components: tuple[str, ...]
    repository_key: str
    repository_fingerprint: str
    epel: bool
    runfile: str
    runfile_sha256: str
    runfile_arguments: tuple[str, ...]
    cuda_version: str
    dcgm: bool
    dcgm_version: str
    gdrcopy: bool
    gdrcopy_version: str
    module_options: t.Mapping[str, t.Any]
    restrict_profiling: bool
    peermem: str
    hold: bool
    ecc: str
    mig: str
    expect_gpus: int
    nvidia_smi: str
    nvidia_smi_timeout_s: float
    cuda_library: str
    drain: bool
    drain_timeout_s: int
    slurm_node: str
    timeout_s: int
    allow_upgrade: bool
    allow_unload: bool
    allow_reboot: bool
    reboot_timeout_s: int

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> Request:
        """The request behind a module's parameters, which Ansible has checked and filled up."""
        return from_options(cls, options)

    @property
    def packaged(self) -> bool:
        """Whether the driver is to come from packages, which can be held."""
        return self.source in ("cuda_repo", "distro")

    @property
    def configures(self) -> bool:
        """Whether what runs is to be changed as well, and not only what is installed."""
        return "configure" in self.phases


__all__ = ["ARGUMENT_SPEC", "Request"]
