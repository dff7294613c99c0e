# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What several files of RDMA know: a node, the software and the modules on it, the stack that is wanted, and a step towards it."""

from __future__ import annotations

import dataclasses
import typing as t

# The distribution's packages that a vendor's stack brings itself, under names of both families.
DISTRIBUTION_PACKAGES = (
    "ibacm", "ibutils", "ibverbs-providers", "ibverbs-utils", "infiniband-diags", "iwpmd", "libibmad", "libibmad5", "libibnetdisc5",
    "libibumad", "libibumad3", "libibverbs", "libibverbs-dev", "libibverbs-utils", "libibverbs1", "librdmacm", "librdmacm-dev",
    "librdmacm-utils", "librdmacm1", "mstflint", "opensm", "perftest", "rdma-core", "rdma-core-devel", "rdmacm-utils", "srp_daemon",
    "srptools",
)  # fmt: skip
DOCA_PACKAGES = ("doca-ofed", "doca-ofed-userspace")
#: The options that say which stack is declared.
STACK_OPTIONS: dict[str, t.Any] = {
    "source": {"type": "str", "choices": ["inbox", "doca", "mlnx_ofed", "preinstalled"], "default": "inbox"},
    "version": {"type": "str", "default": ""},
    "user_space_only": {"type": "bool", "default": False},
}

SERVICE_LIMITS: dict[str, t.Any] = {"service_limits": {"type": "dict", "default": {}}}


@dataclasses.dataclass(frozen=True)
class System:
    """What decides which build fits a node. ``os`` is spelled as in the vendor's file names, for example ubuntu24.04."""

    os: str
    arch: str
    manager: str  # dpkg | rpm
    kernel: str
    container: bool = False


@dataclasses.dataclass(frozen=True)
class Software:
    """What is installed: the answer of ``ofed_info -s``, versions of packages, and an installation that did not end."""

    ofed: str = ""
    packages: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    unfinished: str = ""


@dataclasses.dataclass(frozen=True)
class Modules:
    """The kernel modules of RDMA: those on disk for the kernel, and those that are loaded.

    ``stale`` names loaded modules whose source differs from that on disk, ``vendor`` says whether the driver on disk is
    not the kernel's own, ``headers`` whether modules can be built for this kernel.
    """

    vendor: bool = False
    loaded: bool = False
    stale: tuple[str, ...] = ()
    headers: bool = False


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The request: see the options of the module."""

    source: str
    version: str = ""
    user_space_only: bool = False
    kernel_support: bool = True
    kernel: str = ""
    phases: tuple[str, ...] = ("install", "configure")
    allow_restart: bool = False
    allow_reboot: bool = False
    allow_replace: bool = False

    @property
    def configures(self) -> bool:
        """Whether what runs is to be changed as well, and not only what is installed."""
        return "configure" in self.phases

    @property
    def kernel_parts(self) -> bool:
        """Whether this stack brings kernel modules of its own."""
        return self.source != "inbox" and not self.user_space_only

    @property
    def installs(self) -> bool:
        """Whether software is put on the node or taken away; without it, what the image brought stays as it is."""
        return self.source != "preinstalled"


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing to do to the stack, with what was and what will be."""

    kind: str  # uninstall | install | rebuild | restart | reboot
    name: str
    before: str = ""
    after: str = ""

    def summary(self) -> dict[str, str]:
        """What a person wants to read of it."""
        return {"kind": "stack", "name": self.name, "what": self.kind}

    def diff(self) -> dict[str, str]:
        """The step in the form that Ansible prints."""
        header = f"RDMA stack ({self.kind} {self.name})"
        before, after = (f"{text}\n" if text else "" for text in (self.before, self.after))
        return {"before_header": header, "after_header": header, "before": before, "after": after}


__all__ = [
    "DISTRIBUTION_PACKAGES",
    "DOCA_PACKAGES",
    "SERVICE_LIMITS",
    "STACK_OPTIONS",
    "Modules",
    "Software",
    "Step",
    "System",
    "Wanted",
]
