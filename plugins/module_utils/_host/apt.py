# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""dpkg and apt: what is there, what they would do, and one transaction."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import (
    DPKG_FORMAT,
    Action,
    Installed,
    Ours,
    Root,
    matches,
    parse_apt_simulation,
    parse_dpkg,
    parse_madison,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import (
    DEFAULT_REMEDIES,
    Remedies,
    last_lines,
)

_PREFERENCES = "/etc/apt/preferences"
_APT_OPTIONS = (
    *("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3"),
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)
# Held packages are the caller's to change; a pin may ask for an older version; what is only recommended is not wanted.
_APT_INSTALL = (
    *("--ignore-hold", "--allow-change-held-packages", "--allow-downgrades", "--no-install-recommends"),
    *("-o", "APT::Get::Show-Versions=false"),
)


class Apt:
    """The package system of Debian and Ubuntu."""

    def __init__(self, host: Runner, remedies: Remedies = DEFAULT_REMEDIES) -> None:
        self.host, self.remedies = host, remedies
        self._updated = False

    def installed(self, names: t.Sequence[str] = ()) -> dict[str, Installed]:
        """Every package on the node, or those of these names."""
        chosen = ["--", *names] if names else []
        _rc, out, _err = self.host.run_command(["dpkg-query", "-W", "-f", DPKG_FORMAT, *chosen])
        return parse_dpkg(out)

    def interrupted(self) -> bool:
        """Whether dpkg was killed while it wrote its database; apt then refuses everything."""
        with contextlib.suppress(OSError):
            return any(re.match(r"^\d+$", name) for name in os.listdir("/var/lib/dpkg/updates"))
        return False

    def newer(self, one: str, two: str) -> bool:
        """Whether version ``one`` is newer than ``two``."""
        return self.host.run_command(["dpkg", "--compare-versions", one, "gt", two])[0] == 0

    def update(self) -> None:
        """Read the repositories' lists, at most once."""
        if not self._updated:
            self._apt("update", ["-qq"], "The package lists could not be read")
            self._updated = True

    def _apt(self, verb: str, words: t.Sequence[str], what: str) -> str:
        environment = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
        argv = ["apt-get", *_APT_OPTIONS, verb, *words]
        rc, out, err = self.host.run_command(argv, environ_update=environment)
        # A repository that cannot be reached is only a warning to apt.
        unreadable = verb == "update" and re.search(
            r"^[EW]: .*(Failed to fetch|not signed|NO_PUBKEY|Some index)", err, re.M
        )
        if rc != 0 or unreadable:
            raise ClusterError(
                "package_failed", f"{what}: {last_lines(err or out)}", "See what apt says.", command=" ".join(argv)
            )
        return out

    def known(self, roots: t.Sequence[Root]) -> bool:
        """Whether the lists have every package at its version already."""
        versions = self.versions([root.name for root in roots])
        return all(any(matches(root, one) for one in versions.get(root.name, [])) for root in roots)

    def versions(self, names: t.Sequence[str]) -> dict[str, list[str]]:
        """The versions that can be had, newest first, by name."""
        if not names:
            return {}
        _rc, out, _err = self.host.run_command(["apt-cache", "madison", *names])
        return parse_madison(out)

    def show(self, names: t.Sequence[str]) -> str:
        """What the lists say of each version of these packages, and dpkg of those that are installed."""
        _rc, out, _err = self.host.run_command(["apt-cache", "show", "--", *names])
        return out

    def resolve(self, roots: t.Sequence[Root]) -> list[str]:
        """What to give to apt for these packages, with exact versions.

        apt upgrades what it is given without a version: what is there in any version is not to be among them.
        """
        versions = self.versions([root.name for root in roots])
        words = []
        for root in roots:
            fitting = [one for one in versions.get(root.name, []) if matches(root, one)]
            if not fitting:
                raise self.remedies.not_available(root.name, root.upstream, versions.get(root.name, []))
            words.append(f"{root.name}={fitting[0]}" if root.upstream else root.name)
        return words

    def simulate(self, words: t.Sequence[str], pin: str = "", *, fix: bool = False) -> list[Action]:
        """What apt would do. ``pin``: preferences for this call; ``fix``: mend what is broken on the way."""
        with self._pinned(pin) as pinned:
            options = ["-s", *pinned, *(["-f"] if fix else []), *_APT_INSTALL]
            said = self._apt("install", [*options, "--", *words], "apt refuses this")
        return parse_apt_simulation(said, self.newer)

    @staticmethod
    @contextlib.contextmanager
    def _pinned(pin: str) -> t.Iterator[list[str]]:
        """The options with which apt sees this pin, before what the site prefers, whether or not it is to stay."""
        with tempfile.NamedTemporaryFile("w", prefix="transaction-", suffix=".pref", encoding="utf-8") as preferences:
            # In the place of this file; the parts in preferences.d stay in effect.
            preferences.write("\n".join([pin, read_text(Path(_PREFERENCES)), ""]))
            preferences.flush()
            os.chmod(preferences.name, 0o644)
            yield ["-o", f"Dir::Etc::preferences={preferences.name}"]

    def mend(self, names: t.Sequence[str], *, keep: str = "") -> None:
        """Finish what an interrupted dpkg left; what needs apt for it is left to the transaction.

        ``names`` and ``keep`` are for dnf: dpkg refuses every transaction until all packages are configured, and has one
        version of each.
        """
        self.host.run_command(
            ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"],
            environ_update={"DEBIAN_FRONTEND": "noninteractive"},
        )

    def download(self, words: t.Sequence[str], pin: str = "", *, fix: bool = False) -> None:
        """Have the packages of the transaction on the node, so that it needs no network."""
        self._install(["--download-only"], words, pin, "The packages could not be downloaded", fix=fix)

    def commit(self, words: t.Sequence[str], pin: str = "", *, fix: bool = False) -> None:
        """The one transaction."""
        self._install([], words, pin, "The packages could not be installed", fix=fix)

    def _install(self, how: t.Sequence[str], words: t.Sequence[str], pin: str, what: str, *, fix: bool) -> None:
        with self._pinned(pin) as pinned:
            options = ["-y", "-qq", *how, *pinned, *(["-f"] if fix else []), *_APT_INSTALL]
            self._apt("install", [*options, "--", *words], what)

    def add(self, names: t.Sequence[str]) -> None:
        """Install packages by name, where what is held stays. The lists are read again only where a first try fails."""
        words, what = (
            ["-y", "-qq", "--no-install-recommends", "--", *names],
            f"{', '.join(names)} could not be installed",
        )
        try:
            self._apt("install", words, what)
        except ClusterError as exc:
            if exc.kind != "package_failed":
                raise
            self._add_after_update(words, what)

    def _add_after_update(self, words: t.Sequence[str], what: str) -> None:
        unread = None
        try:
            self.update()
        except ClusterError as exc:
            if exc.kind != "package_failed":
                raise
            # A repository that has nothing to do with these packages may be unreachable.
            unread = exc
        try:
            self._apt("install", words, what)
        except ClusterError as exc:
            if unread is None:
                raise
            message = f"{exc.message}\n{unread.message}"
            raise ClusterError(exc.kind, message, exc.remedy, **exc.details) from exc

    def hold(self, names: t.Sequence[str], packages: t.Mapping[str, Installed], ours: Ours) -> None:
        """Hold these packages. A hold goes by the name, so that none of an older version can be left."""
        if names:
            self._mark("hold", names)

    def _mark(self, verb: str, names: t.Sequence[str]) -> None:
        rc, out, err = self.host.run_command(["apt-mark", verb, *names])
        if rc != 0:
            raise ClusterError("hold_failed", f"apt-mark {verb} failed: {(err or out).strip()}", "See what it says.")

    def removal(self, names: t.Sequence[str]) -> list[Action]:
        """What removing these packages would take along."""
        words = ["-s", "--allow-change-held-packages", "--", *names]
        return parse_apt_simulation(self._apt("remove", words, "apt refuses this"), self.newer)

    def remove(self, names: t.Sequence[str]) -> None:
        """Remove packages and their settings."""
        argv = ["-y", "-qq", "--allow-change-held-packages", "--", *names]
        try:
            self._apt("purge", argv, "The packages could not be removed")
        except ClusterError:
            # The apt of a killed run, whose lock this one has waited for, may have ended what was begun.
            if {*names} & {*self.installed(names)}:
                raise


__all__ = ["Apt"]
