# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Put the driver on the node's disk: one transaction of packages, or NVIDIA's installer."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.epel import lacking_epel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.archive import fetch_archive
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.kernels import kernel_packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.lacking import explained
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.one_version import (
    check_plan,
    simulate_whole,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    NEEDED,
    Difference,
    has_driver_version,
    is_fabric_manager,
    is_gdrcopy,
    to_hold,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.plan import (
    Plan,
    difference_of,
    installer_pending,
    stream_to_enable,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.read import STREAMS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.settings import pin_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.signed import is_signed, signed_words


class Installation:
    """One change of what is installed. ``work`` is a directory of its own; ``facts`` follow what is done."""

    def __init__(
        self, request: Request, facts: Facts, plan: Plan, manager: Apt | Dnf, record: Record, work: str
    ) -> None:
        self.request, self.facts, self.wanted, self.manager = request, facts, plan.wanted, manager
        self.difference: Difference = plan.difference
        self.record, self.work = record, work
        self.words: list[str] = []
        self.actions: list[Action] = []
        self.new_fabric = False

    # -- packages ------------------------------------------------------------------------------------------------------

    def foresee(self) -> None:
        """Ask what would be done, as far as the lists on the node tell before a repository is added."""
        if not self.difference or self._stream() or not self.manager.known(self._roots()):
            return
        # The lists may be old; the plan that counts is made after they were read again.
        with contextlib.suppress(ClusterError):
            self._simulate(fresh=False)

    def _roots(self) -> list[Root]:
        """The packages to ask for by name.

        What is there as wanted is not named: the package system would upgrade what has no version, and to apt the archive of a
        distribution may have only what came after an exact one.
        """
        packages = self.facts.packages
        if not isinstance(self.manager, Apt):
            return [root for root in self.wanted.roots if root.upstream or not root.is_satisfied(packages)]
        return [root for root in self.wanted.roots if is_signed(root) or not root.is_satisfied(packages)]

    def would(self) -> list[str]:
        """What would be done, for people."""
        return [action.text() for action in self.actions] or self.difference.text(self.facts.packages)

    def simulate(self) -> None:
        """Ask for the transaction that is carried out: after mending, and with fresh lists where they lack something."""
        stream = self._stream()
        if stream and isinstance(self.manager, Dnf):
            self.record.note("module stream", STREAMS, stream, f"{self.manager.stream(STREAMS)}\n", f"{stream}\n")
            self.manager.enable(STREAMS, stream)
        if self.difference.broken or self.manager.interrupted():
            keep = self.wanted.version if self.request.packaged else ""
            self.manager.mend([*self.difference.broken, *NEEDED], keep=keep)
            self.facts = node.with_packages(self.facts, self.manager)
        self._enable_epel()
        if not self.manager.known(self._roots()):
            self.manager.update()
        self._simulate(fresh=True)

    def _stream(self) -> str:
        return stream_to_enable(self.request, self.facts, self.wanted)

    def _enable_epel(self) -> None:
        """dkms, which builds the kernel module, is in no repository of EL's own."""
        packages, manager = self.facts.packages, self.manager
        if not (self.request.epel and isinstance(manager, Dnf)):
            return
        name = lacking_epel(self.wanted.dist, packages)
        if name:
            self.record.note("package", name, f"install {name}", "", f"{name}\n")
            if not self.record.check:
                manager.add([name])

    def _simulate(self, *, fresh: bool) -> None:
        try:
            self._plan_transaction(fresh=fresh)
        except ClusterError as exc:
            raise explained(exc, self.wanted.roots, self.wanted.dist) from exc

    def _plan_transaction(self, *, fresh: bool) -> None:
        roots, manager = self._roots(), self.manager
        version, packages = self.wanted.version if self.request.packaged else "", self.facts.packages
        words = manager.resolve([root for root in roots if not is_signed(root)])
        signed = [root.name for root in roots if is_signed(root)]
        if signed and isinstance(manager, Apt):
            words += signed_words(manager, signed, packages, version, fresh=fresh)
        # What depends on them, such as the metapackage of a driver with dkms, apt takes along.
        words += [f"{name}-" for name in self.difference.superseded]
        words, actions = simulate_whole(manager, words, packages, version, self._pin(), fix=self._fix())
        if version:
            check_plan(actions, packages, version, {root.name for root in self.wanted.roots})
        self.words, self.actions = words, actions

    def _pin(self) -> str:
        # Before the one that an earlier run may have left for another version.
        return pin_text(self.wanted.version, 1002)

    def _fix(self) -> bool:
        return bool(self.difference.broken)

    def download(self) -> None:
        """Have the packages on the node."""
        self.manager.download(self.words, self._pin(), fix=self._fix())

    def commit(self) -> None:
        """Make the transaction, and see that all is as wanted after it."""
        self._tell()
        self.new_fabric = any(is_fabric_manager(action.name) and action.old for action in self.actions)
        if self.record.check:
            return
        self.manager.commit(self.words, self._pin(), fix=self._fix())
        self.facts = node.with_packages(self.facts, self.manager)
        left = difference_of(self.request, self.facts, self.wanted)
        if left:
            raise ClusterError(
                "not_converged",
                f"The packages are not as wanted after the transaction: {'; '.join(left.text(self.facts.packages))}.",
                "See the log of the package system.",
            )

    def _tell(self) -> None:
        note = self.record.note
        if self.record.check:
            # The step that does it is not taken.
            self._enable_epel()
        for name in self.difference.broken:
            note("package", name, "repair")
        for action in self.actions:
            before = f"{action.name} {action.old}\n" if action.old else ""
            after = f"{action.name} {action.version}\n" if action.verb != "remove" else ""
            note("package", action.name, action.text(), before, after)
        if self.record.check and not self.actions:
            for root in self.wanted.roots:
                if root.label in self.difference.missing:
                    note("package", root.label, "install", "", f"{root.label} {root.upstream}".rstrip() + "\n")
            for name in self.difference.other_version:
                note("package", name, "replace", f"{name} {self.facts.packages[name].version}\n", "")

    def hold(self) -> None:
        """Keep upgrades of the system away from the driver."""
        packages = self.facts.packages
        names = to_hold(packages, self.wanted.version, gdrcopy=self.request.gdrcopy)
        names += kernel_packages(packages, self.wanted.dist) if self.request.kernel_hold else []
        loose = [name for name in names if not packages[name].held]
        if not loose:
            return
        self.record.note("hold", ", ".join(loose), "hold", "", "".join(f"{name}\n" for name in loose))
        if not self.record.check:
            self.manager.hold(loose if self.wanted.dist.manager == "dpkg" else names, packages, self._is_ours)

    def _is_ours(self, name: str, version: str) -> bool:
        """Whether a lock is this role's. Those of a GDRCopy that was not asked for are the site's."""
        return has_driver_version(name, version) or (self.request.gdrcopy and is_gdrcopy(name))

    def parts(self) -> tuple[t.Any, ...]:
        """What is installed now, whatever it came from."""
        packages, libraries = self.manager.installed(), node.read_libraries(self.facts.root)
        return packages, libraries, node.module_on_disk(self.record.host, self.facts.kernel)

    # -- NVIDIA's installer --------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Have the installer, and know that it is the right one, before anything is changed for it."""
        # Check mode reads what lies on the node, and downloads nothing.
        if not (self.record.check and "://" in self.request.runfile):
            sha256 = self.request.runfile_sha256.lower()
            fetch_archive(self.request.runfile, self._installer(), sha256, self.request.timeout_s)

    def _installer(self) -> str:
        return os.path.join(self.work, "driver.run")

    def run_installer(self) -> None:
        """Run it, and see that it left what was wanted."""
        version, libraries = self.wanted.version, self.facts.libraries
        have = self.facts.on_disk[0] or (libraries[0] if libraries else "")
        name = f"{version} ({self.wanted.flavor})"
        self.record.note("driver", name, "run the installer", f"{have}\n", f"{version}\n")
        if self.record.check:
            return
        rc, out, err = self.record.host.run_command(self._argv())
        self.facts = node.with_driver_files(self.facts, self.record.host)
        libraries, on_disk = self.facts.libraries, self.facts.on_disk
        if rc != 0 or installer_pending(self.request, self.wanted, libraries, on_disk):
            raise ClusterError(
                "installer_failed",
                f"NVIDIA's installer ended with {rc} and left libraries {list(libraries)} and module {on_disk[0] or 'none'}: "
                f"{(err or out).strip()[-600:]}",
                "Read /var/log/nvidia-installer.log on the node.",
            )

    def _argv(self) -> list[str]:
        return [
            *("sh", self._installer(), "--silent", "--dkms"),
            f"--kernel-module-type={self.wanted.flavor}",
            f"--kernel-name={self.facts.kernel}",
            f"--tmpdir={self.work}",
            *self.request.runfile_arguments,
        ]


__all__ = ["Installation"]
