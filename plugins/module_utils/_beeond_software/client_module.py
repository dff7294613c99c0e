# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The client's module: for which kernels it is there, and how it is built for one.

``/etc/init.d/beegfs-client rebuild`` builds for the kernel that runs, by ``beegfs-client-autobuild.conf``. For another one the same
Makefile is told its release (``client_module/build/Makefile`` of BeeGFS 7.4 and 8: ``KRELEASE``, ``KMOD_INST_DIR``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.client_needs import args_for, ofed_path
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import last_lines

AUTOBUILD = "etc/beegfs/beegfs-client-autobuild.conf"
_SOURCES = "opt/beegfs/src/client"
_SERVICE = "etc/init.d/beegfs-client"
# What this collection has built, and of what.
_RECORD = "hpcai_beeond.built"


@dataclasses.dataclass(frozen=True)
class Client:
    """The client's sources on a node. ``wanted_args``: "" for those that are configured; ``dkms``: whether dkms builds them."""

    root: Path
    host: Host
    wanted_args: str
    dkms: bool

    @property
    def build_args(self) -> str:
        """The arguments of a build now: the package may have brought its own since."""
        return self.wanted_args or configured_args(read_text(self.root / AUTOBUILD))

    @property
    def source(self) -> Path | None:
        """Where the module is built, None where the package is not installed."""
        return next(iter(sorted((self.root / _SOURCES).glob("client_module_*/build"))), None)

    @property
    def version(self) -> str:
        """That of the sources."""
        found = (
            re.search(r"^BEEGFS_VERSION\s*:?=\s*(\S+)", read_text(self.source / "Version.mk"), re.M)
            if self.source
            else None
        )
        return found[1] if found else ""

    def is_due(self, kernel: str) -> bool:
        """Whether the module has to be built for this kernel: it is not there, or is of something else than would be built now."""
        _rc, out, _err = self.host.run_command(["modinfo", "-k", kernel, "beegfs"])
        fields = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
        have = fields.get("version", "").strip()
        if self.dkms:
            return "filename" not in fields
        if "filename" not in fields or (self.version and have and have != self.version):
            return True
        # One elsewhere, maybe signed, is the site's.
        if Path(fields["filename"].strip()).parent.name != "beegfs_autobuild":
            return False
        made_of = read_text(self._directory(kernel) / _RECORD)
        # Of one that BeeGFS' own service has built nobody noted the arguments.
        return made_of != self._made_of(kernel) if made_of else bool(self.wanted_args)

    def build(self, kernel: str, *, runs: bool) -> None:
        """Build it. Raises ClusterError (``build_failed``) with the end of what was said."""
        if self.dkms:
            self._run(["dkms", "autoinstall", "-k", kernel], kernel)
        elif runs:
            self._run([str(self.root / _SERVICE), "rebuild"], kernel)
        else:
            for argv in self._make(kernel):
                self._run(argv, kernel)
            self._run(["depmod", "-a", kernel], kernel)
        if not self.dkms and self._directory(kernel).is_dir():
            (self._directory(kernel) / _RECORD).write_text(f"{self._made_of(kernel)}\n", encoding="utf-8")
        if self.is_due(kernel):
            raise ClusterError(
                "build_failed",
                f"The build of the client's module for kernel {kernel} ended well, and the module is not there.",
                "See whether buildEnabled is true in /etc/beegfs/beegfs-client-autobuild.conf, and what the build says.",
            )

    def _make(self, kernel: str) -> list[list[str]]:
        make = ["make", "-C", str(self.source), f"KRELEASE={kernel}", f"KMOD_INST_DIR={self._directory(kernel)}"]
        words = args_for(self.root, self.build_args, kernel)
        return [[*make, "clean"], [*make, *words, "module"], [*make, *words, "install"], [*make, "clean"]]

    def _run(self, argv: list[str], kernel: str) -> None:
        rc, out, err = self.host.run_command(argv)
        if rc != 0:
            raise ClusterError(
                "build_failed",
                f"The client's module could not be built for kernel {kernel}: {last_lines(err or out)}",
                "Correct what it names. BeeGFS' release notes say which kernels and OFED a release builds with.",
                command=" ".join(argv),
            )

    def _directory(self, kernel: str) -> Path:
        return self.root / "lib/modules" / kernel / "updates/fs/beegfs_autobuild"

    def _made_of(self, kernel: str) -> str:
        """What a module is built of: it does not load with another OFED than that of its build."""
        words = " ".join(args_for(self.root, self.build_args, kernel))
        path = ofed_path(words)
        symbols = read_text(self.root / path.lstrip("/") / "../Module.symvers") if path else ""
        digest = hashlib.sha256(symbols.encode()).hexdigest() if symbols else "none"
        return f"BeeGFS {self.version}, arguments {words or 'none'}, symbols {digest}"


def configured_args(text: str) -> str:
    """The arguments that a file of settings for the build has."""
    found = re.findall(r"^\s*buildArgs\s*=(.*)$", text, re.M)
    return str(found[-1]).strip() if found else ""


def autobuild_text(head: str, build_args: str) -> str:
    """The file of settings for the build."""
    return f"{head}\nbuildEnabled=true\nbuildArgs={build_args}\n"


def dkms_text(head: str, build_args: str) -> str:
    """The same for dkms: lines of a Makefile, without what is for the program make."""
    return "".join(f"{line}\n" for line in (head, *(word for word in build_args.split() if "=" in word)))


def kernels_of(root: Path, running: str, following: str) -> list[str]:
    """The kernels that are on the disk, of these two. In an image the running one is not."""
    return [one for one in dict.fromkeys((running, following)) if one and (root / "lib/modules" / one).is_dir()]


__all__ = ["AUTOBUILD", "Client", "autobuild_text", "configured_args", "dkms_text", "kernels_of"]
