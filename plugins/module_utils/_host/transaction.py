# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Ask apt or dnf, and let them make one transaction: the half that runs commands for the driver's packages."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    DPKG_FORMAT,
    RPM_FORMAT,
    Action,
    Installed,
    Root,
    in_stack,
    matches,
    parse_apt_simulation,
    parse_dnf_simulation,
    parse_dpkg,
    parse_madison,
    parse_rpm,
    stragglers_of,
    upstream,
)

_PREFERENCES = "/etc/apt/preferences"
VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"
_MODULE_FILE = "/etc/dnf/modules.d/nvidia-driver.module"
_APT_OPTIONS = (
    *("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3"),
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)
# Held packages are ours to change; a pin may ask for an older version; recommended desktop parts are not wanted.
_APT_INSTALL = (
    *("--ignore-hold", "--allow-change-held-packages", "--allow-downgrades", "--no-install-recommends"),
    *("-o", "APT::Get::Show-Versions=false"),
)


def _last_lines(text: str, count: int = 12) -> str:
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])


def _not_available(name: str, wanted: str, versions: t.Sequence[str]) -> ClusterError:
    if versions:
        listed = ", ".join(versions[:8]) + (", ..." if len(versions) > 8 else "")
        return ClusterError(
            "not_available",
            f"{name} {wanted} is in no repository of this node. There is {listed}.",
            "Set nvidia_driver_version to one of these, or use a repository that keeps the wanted one.",
            available=sorted({upstream(version) for version in versions}),
        )
    return ClusterError(
        "not_available",
        f"No repository of this node has {name}.",
        "Check nvidia_driver_source and the repository, or name the packages in nvidia_driver_packages.",
    )


class Apt:
    """dpkg and apt."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._updated = False

    def installed(self) -> dict[str, Installed]:
        """Every package on the node."""
        _rc, out, _err = self.host.run_command(["dpkg-query", "-W", "-f", DPKG_FORMAT])
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
                "package_failed", f"{what}: {_last_lines(err or out)}", "See what apt says.", command=" ".join(argv)
            )
        return out

    def known(self, roots: t.Sequence[Root]) -> bool:
        """Whether the lists have every package at its version already."""
        versions = self._versions([root.name for root in roots])
        return all(any(matches(root, one) for one in versions.get(root.name, [])) for root in roots)

    def _versions(self, names: t.Sequence[str]) -> dict[str, list[str]]:
        if not names:
            return {}
        _rc, out, _err = self.host.run_command(["apt-cache", "madison", *names])
        return parse_madison(out)

    def resolve(self, roots: t.Sequence[Root]) -> list[str]:
        """What to give to apt for these packages, with exact versions."""
        versions = self._versions([root.name for root in roots])
        words = []
        for root in roots:
            fitting = [one for one in versions.get(root.name, []) if matches(root, one)]
            if not fitting:
                raise _not_available(root.name, root.upstream, versions.get(root.name, []))
            words.append(f"{root.name}={fitting[0]}" if root.upstream else root.name)
        return words

    def plan(
        self, words: t.Sequence[str], packages: t.Mapping[str, Installed], version: str, pin: str, *, fix: bool
    ) -> tuple[list[str], list[Action]]:
        """What apt would do, and the words that make it do that.

        A part of the driver that nothing wanted depends on would stay at its old version. It follows to the new one, or
        leaves where the repositories have none.
        """
        request = list(words)
        left: set[str] = set()
        with self._pinned(pin) as pinned:
            for _round in range(3):
                options = ["-s", *pinned, *(["-f"] if fix else []), *_APT_INSTALL]
                actions = parse_apt_simulation(
                    self._apt("install", [*options, "--", *request], "apt refuses this"), self.newer
                )
                named = {re.split(r"=|-$", word)[0] for word in request}
                stragglers = [name for name in stragglers_of(actions, packages, version) if name not in named | left]
                if not stragglers:
                    break
                versions = self._versions(stragglers)
                for name in stragglers:
                    fitting = [one for one in versions.get(name, []) if upstream(one) == version]
                    if fitting:
                        request.append(f"{name}={fitting[0]}")
                    elif in_stack(name, packages[name].version):
                        request.append(f"{name}-")
                    else:
                        left.add(name)
        return request, actions

    @staticmethod
    @contextlib.contextmanager
    def _pinned(pin: str) -> t.Iterator[list[str]]:
        """The options with which apt sees this pin, before what the site prefers, whether or not it is to stay."""
        with tempfile.NamedTemporaryFile("w", prefix="nvidia-driver-", suffix=".pref", encoding="utf-8") as preferences:
            # In the place of this file; the parts in preferences.d stay in effect.
            preferences.write("\n".join([pin, read_text(Path(_PREFERENCES)), ""]))
            preferences.flush()
            os.chmod(preferences.name, 0o644)
            yield ["-o", f"Dir::Etc::preferences={preferences.name}"]

    def mend(self) -> None:
        """Finish what an interrupted dpkg left; what needs apt for it is left to the transaction."""
        self.host.run_command(
            ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"],
            environ_update={"DEBIAN_FRONTEND": "noninteractive"},
        )

    def download(self, words: t.Sequence[str], pin: str, *, fix: bool) -> None:
        """Have the packages of the transaction on the node, so that it needs no network."""
        self._install(["--download-only"], words, pin, "The packages could not be downloaded", fix=fix)

    def commit(self, words: t.Sequence[str], pin: str = "", *, fix: bool) -> None:
        """The one transaction."""
        self._install([], words, pin, "The packages could not be installed", fix=fix)

    def _install(self, how: t.Sequence[str], words: t.Sequence[str], pin: str, what: str, *, fix: bool) -> None:
        with self._pinned(pin) as pinned:
            options = ["-y", "-qq", *how, *pinned, *(["-f"] if fix else []), *_APT_INSTALL]
            self._apt("install", [*options, "--", *words], what)

    def hold(self, names: t.Sequence[str], packages: t.Mapping[str, Installed]) -> None:
        """Hold these packages, and no other part of the driver."""
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
        self._apt(
            "purge", ["-y", "-qq", "--allow-change-held-packages", "--", *names], "The packages could not be removed"
        )


class Dnf:
    """rpm and dnf."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def installed(self) -> dict[str, Installed]:
        """Every package on the node."""
        _rc, out, _err = self.host.run_command(["rpm", "-qa", "--queryformat", RPM_FORMAT])
        found = parse_rpm(out)
        return parse_rpm(out, {name for name, one in found.items() if self.lock_line(one) in self._locks()})

    def interrupted(self) -> bool:
        """rpm has no half-installed state that stops it."""
        return False

    @staticmethod
    def _locks() -> list[str]:
        try:
            with open(VERSIONLOCK, encoding="utf-8") as handle:
                return handle.read().splitlines()
        except OSError:
            return []

    @staticmethod
    def lock_line(one: Installed) -> str:
        """A package's line in the list of the versionlock plugin."""
        return f"{one.name}-{one.version}.*"

    @staticmethod
    def stream() -> str:
        """Which stream of the module nvidia-driver is enabled; empty for none."""
        try:
            with open(_MODULE_FILE, encoding="utf-8") as handle:
                fields = dict(line.split("=", 1) for line in handle.read().splitlines() if "=" in line)
        except OSError:
            return ""
        return fields.get("stream", "") if fields.get("state") == "enabled" else ""

    def enable(self, stream: str) -> None:
        """Switch to a stream. Enabling the one that is enabled would be free, installing the module would upgrade it."""
        self._dnf(["module", "reset", "-y", "-q", "nvidia-driver"], "The module stream could not be reset")
        self._dnf(["module", "enable", "-y", "-q", f"nvidia-driver:{stream}"], "The module stream could not be enabled")

    def _dnf(self, words: t.Sequence[str], what: str) -> str:
        argv = ["dnf", "--setopt=install_weak_deps=False", "--disableplugin=versionlock", *words]
        rc, out, err = self.host.run_command(argv)
        if rc != 0:
            raise ClusterError(
                "package_failed", f"{what}: {_last_lines(err or out)}", "See what dnf says.", command=" ".join(argv)
            )
        return out

    def update(self) -> None:
        """Read the repositories again."""
        self._dnf(["makecache", "-q"], "The repositories could not be read")

    def known(self, roots: t.Sequence[Root]) -> bool:
        """dnf refreshes what is old by itself."""
        return True

    def resolve(self, roots: t.Sequence[Root]) -> list[str]:
        """What to give to dnf for these packages, with exact versions."""
        return [
            f"{root.name}-{root.upstream}{'*' if root.prefix else ''}" if root.upstream else root.name for root in roots
        ]

    def plan(
        self, words: t.Sequence[str], packages: t.Mapping[str, Installed], version: str, pin: str, *, fix: bool
    ) -> tuple[list[str], list[Action]]:
        """What dnf would do."""
        argv = [
            "dnf",
            "--setopt=install_weak_deps=False",
            "--disableplugin=versionlock",
            "--assumeno",
            "--allowerasing",
        ]
        rc, out, err = self.host.run_command([*argv, "install", *words], environ_update={"COLUMNS": "250"})
        missing = re.findall(
            r"^(?:Error: Unable to find a match: |No match for argument: )(.+)$", f"{out}\n{err}", re.M
        )
        if missing:
            raise _not_available(missing[0], "", [])
        # --assumeno ends with 1 after it printed the transaction, and with 0 when there is none.
        if rc != 0 and "Transaction Summary" not in out:
            raise ClusterError("package_failed", f"dnf refuses this: {_last_lines(err or out)}", "See what dnf says.")
        return list(words), parse_dnf_simulation(out)

    def mend(self) -> None:
        """Nothing to mend."""

    def download(self, words: t.Sequence[str], pin: str, *, fix: bool) -> None:
        """Have the packages of the transaction on the node, so that it needs no network."""
        options = ["-y", "-q", "--allowerasing", "--downloadonly"]
        self._dnf([*options, "install", *words], "The packages could not be downloaded")

    def commit(self, words: t.Sequence[str], pin: str = "", *, fix: bool) -> None:
        """The one transaction."""
        self._dnf(["-y", "-q", "--allowerasing", "install", *words], "The packages could not be installed")

    def hold(self, names: t.Sequence[str], packages: t.Mapping[str, Installed]) -> None:
        """Lock these packages; lines of others stay, older ones of the driver go."""
        wanted = [self.lock_line(packages[name]) for name in names]
        kept = [line for line in self._locks() if not in_stack(*_split_lock(line))]
        os.makedirs(os.path.dirname(VERSIONLOCK), mode=0o755, exist_ok=True)
        temporary = f"{VERSIONLOCK}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as handle:
            handle.write("\n".join([*kept, *wanted, ""]))
        os.replace(temporary, VERSIONLOCK)

    def removal(self, names: t.Sequence[str]) -> list[Action]:
        """What removing these packages would take along."""
        argv = ["dnf", "--assumeno", "--disableplugin=versionlock", "remove", *names]
        _rc, out, _err = self.host.run_command(argv, environ_update={"COLUMNS": "250"})
        return parse_dnf_simulation(out)

    def remove(self, names: t.Sequence[str]) -> None:
        """Remove packages."""
        self._dnf(["-y", "-q", "remove", *names], "The packages could not be removed")
        self.hold([], {})


def _split_lock(line: str) -> tuple[str, str]:
    """Name and version of a line of the versionlock list."""
    found = re.match(r"^(.+)-((?:\d+:)?[^-]+-[^-]+)$", line.strip())
    return (found.group(1), found.group(2)) if found else (line, "")


def manager_for(host: Host) -> Apt | Dnf:
    """The package system of this node."""
    if shutil.which("dpkg-query"):
        return Apt(host)
    if shutil.which("dnf") and shutil.which("rpm"):
        return Dnf(host)
    raise ClusterError(
        "no_package_manager", "This node has neither dpkg nor dnf.", "Set nvidia_driver_source: preinstalled."
    )


__all__ = ["VERSIONLOCK", "Apt", "Dnf", "manager_for"]
