# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""MLNX_OFED: an archive with an installer of its own."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.commands import Commands
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import Modules, Step, System
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.plan import (
    check_kernel,
    conflicts,
    installer_arguments,
    parse_removals,
    refuse_conflicts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.signing import refuse_unsigned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.unfinished import marked


class MlnxOfed:
    """One installation of MLNX_OFED."""

    def __init__(self, commands: Commands, request: Request, system: System) -> None:
        self.commands, self.request, self.system = commands, request, system
        self.wanted = request.wanted
        self.installer: list[str] = []

    def unpack(self, file: str, *, rebuild: bool) -> None:
        """Unpack the archive beside it, and refuse what cannot work. ``rebuild``: modules are built whatever it has."""
        work = os.path.dirname(file)
        tree = os.path.join(work, "tree")
        os.mkdir(tree)
        unpack = ["tar", "-x", "-f", file, "-C", tree, "--no-same-owner", "--strip-components=1"]
        self.commands.run(unpack, "unpacking the installer")
        installer = os.path.join(tree, "mlnxofedinstall")
        if not os.access(installer, os.X_OK):
            raise ClusterError("bad_archive", "The archive has no mlnxofedinstall.", "Check `artifact`.")
        supported = [] if rebuild else read_text(Path(tree) / ".supported_kernels").split()
        self.installer = [installer, "--tmpdir", work, *self._arguments(supported)]

    def _arguments(self, supported: list[str]) -> list[str]:
        host = self.commands.host
        modules = read.read_modules(host, self.system) if self.wanted.kernel_parts else Modules()
        check_kernel(self.wanted, self.system, modules, supported)
        if self.system.kernel not in supported:
            refuse_unsigned(self.wanted, self.system, host)
        refuse_conflicts(self._replaced(), "MLNX_OFED", self.wanted)
        arguments = installer_arguments(self.wanted, self.system, supported, self.request.installer_options)
        if self.wanted.kernel_parts and self.wanted.kernel:
            arguments += ["--kernel", self.system.kernel]
        return arguments

    def _replaced(self) -> list[str]:
        """What the vendor's packages push out: the distribution's, and all that cannot be without them."""
        host = self.commands.host
        names = conflicts(read.read_software(host, self.system))
        if not names or self.system.manager != "dpkg":
            return names
        _rc, out, _err = host.run_command(["apt-get", "--simulate", "remove", *names])
        return sorted({*names, *parse_removals(out)})

    def install(self, step: Step) -> str:
        """Run the installer, which was unpacked before; returns what it said."""
        with marked(step.name):
            said = self.commands.run(self.installer, "mlnxofedinstall", cwd=os.path.dirname(self.installer[0]))
            self.commands.add(self.commands.missing(self.request.packages))
        return said


__all__ = ["MlnxOfed"]
