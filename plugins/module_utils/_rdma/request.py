# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of ``rdma_stack``: its options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import (
    PHASES,
    REBOOT_TIMEOUT,
    from_options,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import (
    SERVICE_LIMITS,
    STACK_OPTIONS,
    System,
    Wanted,
)

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **PHASES,
    **STACK_OPTIONS,
    "mirror": {"type": "str", "default": ""},
    "artifact": {"type": "str", "default": ""},
    "sha256": {"type": "dict", "default": {}},
    "packages": {"type": "list", "elements": "raw", "default": []},
    "kernel_support": {"type": "bool", "default": True},
    "kernel": {"type": "str", "default": ""},
    "installer_options": {"type": "list", "elements": "str", "default": []},
    "without_openmpi": {"type": "bool", "default": False},
    "epel": {"type": "bool", "default": False},
    "initramfs": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "timeout_s": {"type": "int", "default": 3600},
    "persistent_names": {"type": "bool", "default": False},
    "device_names": {"type": "dict", "default": {}},
    "ipoib": {"type": "str", "choices": ["keep", "load", "skip"], "default": "keep"},
    "rxe_netdev": {"type": "str", "default": ""},
    "rxe_device": {"type": "str", "default": "rxe0"},
    "limits": {"type": "dict", "default": {}},
    **SERVICE_LIMITS,
    "sysctl": {"type": "dict", "default": {}},
    "sunrpc_slots": {"type": "int", "default": 0},
    "nfs_read_ahead_kib": {"type": "int", "default": 0},
    "waagent_rdma": {"type": "bool", "default": False},
    "exclude_distribution": {"type": "bool", "default": False},
    "allow_restart": {"type": "bool", "default": False},
    "allow_reboot": {"type": "bool", "default": False},
    **REBOOT_TIMEOUT,
    "allow_replace": {"type": "bool", "default": False},
}
_IPOIB = {"keep": None, "load": True, "skip": False}


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of one call, by their names. They are told in the module's documentation.

    ``packages`` are names, or mappings with a name for ``dpkg`` and one for ``rpm``. ``sha256`` is a sum by the name of a file's
    version and node. ``ipoib`` is None where that stays as it is.
    """

    state: str
    wanted: Wanted
    mirror: str
    artifact: str
    sha256: t.Mapping[str, t.Any]
    packages: tuple[t.Any, ...]
    installer_options: tuple[str, ...]
    without_openmpi: bool
    epel: bool
    initramfs: str
    timeout_s: int
    persistent_names: bool
    device_names: t.Mapping[str, str]
    ipoib: bool | None
    rxe_netdev: str
    rxe_device: str
    limits: t.Mapping[str, str]
    service_limits: t.Mapping[str, str]
    sysctl: t.Mapping[str, str]
    sunrpc_slots: int
    nfs_read_ahead_kib: int
    waagent_rdma: bool
    exclude_distribution: bool

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> Request:
        """The request behind a module's parameters, which Ansible has checked and filled up."""
        wanted = from_options(Wanted, options)
        if wanted.source in ("doca", "mlnx_ofed") and not wanted.version:
            raise ClusterError("bad_input", "`version` is empty.", "Pin the version of the vendor's stack.")
        texts = {name: _texts(options[name]) for name in ("device_names", "limits", "service_limits", "sysctl")}
        return from_options(cls, options, wanted=wanted, ipoib=_IPOIB[options["ipoib"]], **texts)

    def settings(self, system: System) -> files.Settings:
        """What the files on this node are made of, without limits, which are tried first."""
        return files.Settings(
            source=self.wanted.source,
            user_space_only=self.wanted.user_space_only,
            container=system.container,
            manager=system.manager,
            persistent_names=self.persistent_names,
            device_names=self.device_names,
            ipoib=self.ipoib,
            rxe_netdev=self.rxe_netdev,
            rxe_device=self.rxe_device,
            sysctl=self.sysctl,
            sunrpc_slots=self.sunrpc_slots,
            nfs_read_ahead_kib=self.nfs_read_ahead_kib,
        )

    @property
    def excludes(self) -> bool | None:
        """Whether the distribution's repositories may not offer what the vendor's stack brings; None where they stay as they are.

        An earlier run may have put the stack into the image, and its excludes with it.
        """
        if self.exclude_distribution and not self.wanted.installs:
            return None
        return self.exclude_distribution and self.wanted.source in ("doca", "mlnx_ofed")

    def edits(self) -> dict[str, dict[str, str] | None]:
        """The keys to set in files of others, by their paths; None for those to restore."""
        waagent = {"OS.EnableRDMA": "y"} if self.waagent_rdma else None
        openib = None if self.ipoib is None else {"IPOIB_LOAD": "yes" if self.ipoib else "no"}
        return {files.WAAGENT: waagent, files.OPENIB_CONF: openib}


def _texts(values: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Values as they are written into a file."""
    return {str(key): str(value) for key, value in values.items()}


__all__ = ["ARGUMENT_SPEC", "Request"]
