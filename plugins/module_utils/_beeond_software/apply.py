# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Put BeeOND on a node: its repository with a key that is known, its packages in one version, and what keeps them there."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.client_phase import ClientPhase
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.key import checked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.packages import (
    LOCKS,
    check_actions,
    fitting,
    is_beegfs,
    ours_of,
    preferences,
    refuse_other_versions,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software.request import HEAD, Software
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Changes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import Remedies
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf, manager_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.packages import (
    missing_packages,
    package_names,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.read import missing_parents
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import NOTHING, file_request

PREFERENCES = "/etc/apt/preferences.d/beegfs"
REMEDIES = Remedies(
    no_version="Set `pin` to one of these, or `repository_url` to a release that has the wanted one.",
    no_package="Name the repository: `repository_url`, with `repository_suite` on Debian and Ubuntu, `repository_el` on EL. Or check the "
    "names in `packages`.",
)


class Installation:
    """One run on one node. With ``check`` what would be done is only told."""

    def __init__(self, software: Software, host: Host, *, check: bool) -> None:
        self.software, self.host, self.check = software, host, check
        self.manager: Apt | Dnf = manager_for(host, REMEDIES)
        self.system = "dpkg" if isinstance(self.manager, Apt) else "rpm"
        self.packages = self.manager.installed()
        self.changes = Changes()

    def run(self) -> dict[str, t.Any]:
        """Refuse what stands in the way, then repository, packages, locks, and the client's module."""
        refuse_other_versions(self.packages, self.software.pin)
        missing = self._missing()
        wanted = package_names(self.software.packages, self.system)
        client = ClientPhase(self.software, self.host, self.system, self.packages, wanted, missing)
        client.require()
        self._files([*self._repository_files(), *self._preferences(), *client.files(before=True)])
        if missing:
            self._install(missing)
        self._lock_dnf()
        self._files(client.files(before=False))
        client.build(self.changes, check=self.check)
        return {**self.changes.result(), "warnings": client.warnings}

    def _missing(self) -> list[str]:
        wanted: list[t.Any] = [*self.software.packages]
        if self.software.pin:
            wanted.append({"rpm": LOCKS})
        # Of both systems, so that a name that is wrong for the other one is told here, too.
        package_names(wanted, "dpkg")
        return missing_packages(wanted, self.host)[0]

    def _files(self, files: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
        """Let node_state write files; returns the paths of those that changed."""
        missing = missing_parents([entry["path"] for entry in files], [])
        wanted = {**NOTHING, "files": [file_request(**entry) for entry in files], "directories": missing}
        state = NodeState(wanted, self.host)
        state.run(check=self.check)
        self.changes.add(*state.changes)
        return state.changes.names("file")

    # -- where packages come from ---------------------------------------------------------------------------------------

    def _repository_files(self) -> list[dict[str, t.Any]]:
        repository = self.software.repository(self.system)
        if not repository.url or vendor.listed_elsewhere(repository):
            return []
        return vendor.repository_files(repository, self.system, self._key(repository), HEAD)

    def _key(self, repository: vendor.Repository) -> str:
        """The key, once it is known to be the right one."""
        text = self.software.repository_key_text
        if not text:
            return vendor.key_text(repository, self.system, check=self.check)
        return checked(text.encode("latin-1", "replace"), repository.fingerprint, repository.key)

    def _preferences(self) -> list[dict[str, t.Any]]:
        if self.system == "rpm" or not self.software.pin:
            return []
        return [{"path": PREFERENCES, "content": f"{HEAD}\n{preferences(self.software.pin)}"}]

    # -- packages -------------------------------------------------------------------------------------------------------

    def _install(self, missing: t.Sequence[str]) -> None:
        roots = [Root(name) for name in missing]
        if not self.check:
            if any(name in self.packages for name in missing) or self.manager.interrupted():
                self.manager.mend(list(missing))
            if not self._known(missing):
                self.manager.update()
        # What a repository has that is only to be added nobody knows yet.
        if self.check and (self.changes.names("file") or not self._known(missing)):
            for root in roots:
                self.changes.note("package", root.name, f"install {root.name}", "", f"{root.name}\n")
            return
        words = self._words(missing)
        actions = self.manager.simulate(words, self._pin())
        check_actions(actions, self.packages)
        for action in actions:
            before = f"{action.name} {action.old}\n" if action.old else ""
            after = f"{action.name} {action.version}\n" if action.verb != "remove" else ""
            self.changes.note("package", action.name, action.text(), before, after)
        if not self.check:
            self.manager.commit(words, self._pin())
            self.packages = self.manager.installed()
            refuse_other_versions(self.packages, self.software.pin)

    def _pin(self) -> str:
        return preferences(self.software.pin) if self.system == "dpkg" else ""

    def _known(self, missing: t.Sequence[str]) -> bool:
        """Whether the lists have every package, at a version that is wanted."""
        pin = self.software.pin
        if not isinstance(self.manager, Apt):
            return True
        versions = self.manager.versions(missing)
        return all(
            versions.get(name) and (not self._is_pinned(name) or fitting(name, pin, versions[name])) for name in missing
        )

    def _is_pinned(self, name: str) -> bool:
        return bool(self.software.pin) and is_beegfs(name)

    def _words(self, missing: t.Sequence[str]) -> list[str]:
        """What to tell the package system, with exact versions for what is pinned."""
        pinned = [name for name in missing if self._is_pinned(name)]
        words = self.manager.resolve([Root(name) for name in missing if name not in pinned])
        pin = self.software.pin
        if not isinstance(self.manager, Apt):
            return [*words, *(f"{name}-{pin}" for name in pinned)]
        versions = self.manager.versions(pinned)
        for name in pinned:
            version = fitting(name, pin, versions.get(name, []))
            if not version:
                raise REMEDIES.not_available(name, pin, versions.get(name, []))
            words.append(f"{name}={version}")
        return words

    def _lock_dnf(self) -> None:
        """Keep upgrades of the system away. apt reads its preferences for that."""
        if isinstance(self.manager, Apt) or not self.software.pin:
            return
        names = ours_of(self.packages)
        loose = [name for name in names if not self.packages[name].held]
        if loose:
            self.changes.note("hold", ", ".join(loose), "hold", "", "".join(f"{name}\n" for name in loose))
            if not self.check:
                self.manager.hold(names, self.packages, lambda name, _version: is_beegfs(name))


def installed(options: t.Mapping[str, t.Any], host: Host, *, check: bool) -> dict[str, t.Any]:
    """Bring BeeOND on the node that this runs on; returns what was changed, or would be."""
    return Installation(Software.of(options), host, check=check).run()


__all__ = ["PREFERENCES", "Installation", "installed"]
