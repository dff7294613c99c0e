# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What package systems say: the packages of a node, the versions that can be had, and what a transaction would do.

Plain text in, plain data out.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t


@dataclasses.dataclass(frozen=True)
class Installed:
    """A package as the package system knows it. ``state`` is dpkg's: ``installed``, ``half-configured``, ...

    ``instances``: ``<version>-<release>.<arch>`` of each that is installed, of which rpm allows several for kernels.
    """

    name: str
    version: str
    state: str = "installed"
    held: bool = False
    instances: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether an interrupted run left it between two states."""
        return self.state not in ("installed", "config-files", "not-installed")

    @property
    def present(self) -> bool:
        """Whether its files are there and it is configured."""
        return self.state == "installed"


@dataclasses.dataclass(frozen=True)
class Root:
    """A package that is wanted by name; what it depends on follows. ``upstream`` is empty when any version will do.

    ``instance`` is the ``<version>-<release>.<arch>`` that has to be there, whatever others are.
    """

    name: str
    upstream: str = ""
    prefix: bool = False  # the version only has to begin like this
    instance: str = ""

    @property
    def label(self) -> str:
        """The package as people and dnf write it."""
        return f"{self.name}-{self.instance}" if self.instance else self.name

    def is_missing(self, packages: t.Mapping[str, Installed]) -> bool:
        """Whether none of these packages is it, at whatever version."""
        one = packages.get(self.name)
        return one is None or bool(self.instance and self.instance not in one.instances)

    def is_satisfied(self, packages: t.Mapping[str, Installed]) -> bool:
        """Whether one of these packages is it, whole and at a version that is wanted."""
        one = packages.get(self.name)
        return one is not None and one.present and not self.is_missing(packages) and matches(self, one.version)


@dataclasses.dataclass(frozen=True)
class Action:
    """One package in what a package system says it would do."""

    verb: str  # install | upgrade | downgrade | remove | reinstall
    name: str
    version: str = ""
    old: str = ""

    def text(self) -> str:
        """The action as a line for people."""
        if self.verb == "remove":
            return f"remove {self.name} {self.old}".rstrip()
        change = f"{self.old} to {self.version}" if self.old and self.old != self.version else self.version
        return f"{self.verb} {self.name} {change}".rstrip()


#: Whether a package of this name and version is one that the caller holds.
Ours = t.Callable[[str, str], bool]


def upstream(version: str) -> str:
    """A version without epoch and revision: ``3:580.95.05-1.el9`` is ``580.95.05``."""
    return version.partition(":")[2].partition("-")[0] if ":" in version else version.partition("-")[0]


def matches(root: Root, version: str) -> bool:
    """Whether a package of this version is what is wanted."""
    if not root.upstream:
        return True
    have = upstream(version)
    return have.startswith(root.upstream) if root.prefix else have == root.upstream


# -- what is there ---------------------------------------------------------------------------------------------------

DPKG_FORMAT = "${Package}|${Version}|${db:Status-Want}|${db:Status-Status}|${db:Status-Eflag}\\n"
PROVIDES_FORMAT = "${db:Status-Abbrev}|${Package}|${Provides}\\n"
RPM_FORMAT = "%{NAME}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}|%{ARCH}\\n"


def parse_dpkg(text: str) -> dict[str, Installed]:
    """Read ``dpkg-query -W -f DPKG_FORMAT``; packages that are gone but for their settings are left out."""
    found = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != 5:
            continue
        name, version, want, state, flag = parts
        if flag == "reinstreq":
            state = "half-installed"
        if state in ("config-files", "not-installed"):
            continue
        found[name] = Installed(name, version, state, held=want == "hold")
    return found


def installed_debs(output: str) -> set[str]:
    """Names that are installed or provided by what is, of ``dpkg-query -W -f PROVIDES_FORMAT``."""
    names: set[str] = set()
    for line in output.splitlines():
        status, _sep, rest = line.partition("|")
        package, _sep, provides = rest.partition("|")
        # The second letter is the state now; the first is only what was once wanted.
        if len(status) > 1 and status[1] == "i":
            names.add(package)
            names.update(part.strip().split(" ")[0].split(":")[0] for part in provides.split(",") if part.strip())
    return names


# What rpm installs beside another version of it.
_SEVERAL = re.compile(r"^(kernel|gpg-pubkey)\b")


def parse_rpm(text: str, locked: t.Collection[str] = ()) -> dict[str, Installed]:
    """Read ``rpm -qa --queryformat RPM_FORMAT``; ``locked`` are names in dnf's versionlock list.

    Of several instances of a package the version is that of the one which rpm lists last; ``instances`` has them all. Two
    versions for one architecture are what an interrupted transaction leaves, but for kernels and keys.
    """
    found: dict[str, Installed] = {}
    for line in text.splitlines():
        name, separator, rest = line.partition("|")
        if not separator:
            continue
        version, _separator, arch = rest.partition("|")
        others = found[name].instances if name in found else ()
        instance = (f"{version.partition(':')[2]}.{arch}",) if arch else ()
        twice = any(one.endswith(f".{arch}") for one in others) and not _SEVERAL.match(name)
        state = "half-installed" if twice or (name in found and found[name].broken) else "installed"
        found[name] = Installed(name, version, state, held=name in locked, instances=(*others, *instance))
    return found


def parse_madison(text: str) -> dict[str, list[str]]:
    """Read ``apt-cache madison NAME...``: the versions that can be had, newest first, by name."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and parts[1] not in versions.setdefault(parts[0], []):
            versions[parts[0]].append(parts[1])
    return versions


# -- what would be done ----------------------------------------------------------------------------------------------

_APT_INST = re.compile(r"^Inst (\S+?)(?::\S+)? (?:\[([^\]]+)\] )?\((\S+)")
_APT_REMV = re.compile(r"^(?:Remv|Purg) (\S+?)(?::\S+)? \[([^\]]+)\]")


def parse_apt_simulation(text: str, newer: t.Callable[[str, str], bool]) -> list[Action]:
    """Read ``apt-get -s``. ``newer`` says whether its first version is newer than its second."""
    actions = []
    for line in text.splitlines():
        found = _APT_INST.match(line)
        if found:
            name, old, version = found.group(1), found.group(2) or "", found.group(3)
            verb = "install"
            if old:
                verb = "reinstall" if old == version else "upgrade" if newer(version, old) else "downgrade"
            actions.append(Action(verb, name, version, old))
            continue
        found = _APT_REMV.match(line)
        if found:
            actions.append(Action("remove", found.group(1), "", found.group(2)))
    return actions


_DNF_SECTIONS = {
    "Installing": "install",
    "Installing dependencies": "install",
    "Installing weak dependencies": "install",
    "Upgrading": "upgrade",
    "Downgrading": "downgrade",
    "Reinstalling": "reinstall",
    "Removing": "remove",
    "Removing dependent packages": "remove",
    "Removing unused dependencies": "remove",
}


def parse_dnf_simulation(text: str) -> list[Action]:
    """Read the table of ``dnf --assumeno``; long rows are folded after the name, as dnf does on a narrow terminal.

    What a package takes the place of under another name stands in a line of its own below it, and leaves.
    """
    actions, verb, name = list[Action](), "", ""
    for line in text.splitlines():
        head = line.rstrip()
        if head.endswith(":") and head[:-1] in _DNF_SECTIONS:
            verb, name = _DNF_SECTIONS[head[:-1]], ""
            continue
        if not line.startswith(" ") or not verb:
            verb = "" if line and not line.startswith(" ") else verb
            continue
        words = line.split()
        if not words:
            continue
        if line.startswith("     replacing") and len(words) == 3:
            actions.append(Action("remove", words[1].rpartition(".")[0], "", words[2]))
        elif len(words) == 1:
            name = words[0]
        elif name:
            actions.append(_dnf_action(verb, [name, *words]))
            name = ""
        else:
            actions.append(_dnf_action(verb, words))
    return list(dict.fromkeys(actions))


def _dnf_action(verb: str, words: list[str]) -> Action:
    version = words[2] if len(words) > 2 else ""
    return Action(verb, words[0], "" if verb == "remove" else version, version if verb == "remove" else "")


__all__ = [
    "DPKG_FORMAT",
    "PROVIDES_FORMAT",
    "RPM_FORMAT",
    "Action",
    "Installed",
    "Ours",
    "Root",
    "installed_debs",
    "matches",
    "parse_apt_simulation",
    "parse_dnf_simulation",
    "parse_dpkg",
    "parse_madison",
    "parse_rpm",
    "upstream",
]
