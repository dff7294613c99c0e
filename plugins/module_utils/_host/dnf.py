# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""rpm and dnf: what is there, what they would do, one transaction, and the list of the versionlock plugin."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import (
    RPM_FORMAT,
    Action,
    Installed,
    Ours,
    Root,
    parse_dnf_simulation,
    parse_rpm,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import (
    DEFAULT_REMEDIES,
    Remedies,
    last_lines,
)

VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"
_MODULES = "/etc/dnf/modules.d"
_DNF = ("dnf", "--setopt=install_weak_deps=False", "--disableplugin=versionlock")
# What came along with a package stays, as with apt: dnf would also take dkms away, and say so in the same words.
_REMOVE = ("remove", "--noautoremove")
# What dnf says of a package that it does not find, and of one that it must not see.
_UNKNOWN = re.compile(r"^(?:Error: Unable to find a match: |No match for argument: )(.+)$", re.M)
_HIDDEN = re.compile(r"^All matches were filtered out by (\w+) filtering for argument: (.+)$", re.M)
# What a package provides that dnf never upgrades (dnf.conf(5), "installonlypkgs").
_SEVERAL = ("installonlypkg(kernel)", "installonlypkg(kernel-module)", "installonlypkg(vm)", "multiversion(kernel)")
_WHY_HIDDEN = {
    "exclude": "Look for `exclude` in /etc/dnf/dnf.conf and /etc/yum.repos.d, and for locks (`dnf versionlock list`).",
    "modular": "It belongs to another stream of a module than the enabled one (`dnf module list --enabled`).",
}


class Dnf:
    """The package system of RHEL and its rebuilds."""

    def __init__(self, host: Runner, remedies: Remedies = DEFAULT_REMEDIES) -> None:
        self.host, self.remedies = host, remedies

    def installed(self, names: t.Sequence[str] = ()) -> dict[str, Installed]:
        """Every package on the node, or those of these names."""
        chosen = ["-q", "--queryformat", RPM_FORMAT, "--", *names] if names else ["-qa", "--queryformat", RPM_FORMAT]
        _rc, out, _err = self.host.run_command(["rpm", *chosen])
        found = parse_rpm(out)
        locks = set(self._locks())
        return parse_rpm(out, {name for name, one in found.items() if set(self.lock_lines(one)) <= locks})

    def interrupted(self) -> bool:
        """Whether something stops the next transaction. What was cut off does not: its packages are ``broken`` by themselves."""
        return False

    @staticmethod
    def _locks() -> list[str]:
        try:
            with open(VERSIONLOCK, encoding="utf-8") as handle:
                return handle.read().splitlines()
        except OSError:
            return []

    @staticmethod
    def lock_lines(one: Installed) -> list[str]:
        """A package's lines in the list of the versionlock plugin, one for each of its instances."""
        epoch = one.version.partition(":")[0]
        versions = [f"{epoch}:{instance.rpartition('.')[0]}" for instance in one.instances] or [one.version]
        return [f"{one.name}-{version}.*" for version in dict.fromkeys(versions)]

    @staticmethod
    def stream(module: str) -> str:
        """Which stream of a module is enabled; empty for none."""
        try:
            with open(f"{_MODULES}/{module}.module", encoding="utf-8") as handle:
                fields = dict(line.split("=", 1) for line in handle.read().splitlines() if "=" in line)
        except OSError:
            return ""
        return fields.get("stream", "") if fields.get("state") == "enabled" else ""

    def enable(self, module: str, stream: str) -> None:
        """Switch to a stream. Enabling the one that is enabled would be free, installing the module would upgrade it."""
        self._dnf(["module", "reset", "-y", "-q", module], "The module stream could not be reset")
        self._dnf(["module", "enable", "-y", "-q", f"{module}:{stream}"], "The module stream could not be enabled")

    def _dnf(self, words: t.Sequence[str], what: str, program: t.Sequence[str] = _DNF) -> str:
        argv = [*program, *words]
        rc, out, err = self.host.run_command(argv)
        if rc != 0:
            raise ClusterError(
                "package_failed", f"{what}: {last_lines(err or out)}", "See what dnf says.", command=" ".join(argv)
            )
        return out

    def update(self) -> None:
        """Read the repositories again."""
        self._dnf(["makecache", "-q", "--refresh"], "The repositories could not be read")

    def known(self, roots: t.Sequence[Root]) -> bool:
        """dnf refreshes what is old by itself."""
        return True

    def resolve(self, roots: t.Sequence[Root]) -> list[str]:
        """What to give to dnf for these packages, with exact versions."""
        return [
            f"{root.name}-{root.upstream}{'*' if root.prefix else ''}" if root.upstream else root.label
            for root in roots
        ]

    def simulate(self, words: t.Sequence[str], pin: str = "", *, fix: bool = False) -> list[Action]:
        """What dnf would do."""
        rc, out, err = self._asked(words)
        if _UNKNOWN.search(f"{out}\n{err}"):
            # What is known of the repositories may be two days old. One of them may be out of reach.
            with contextlib.suppress(ClusterError):
                self.update()
            rc, out, err = self._asked(words)
        # --assumeno ends with 1 after it printed the transaction, and with 0 when there is none.
        if rc != 0 and "Transaction Summary" not in out:
            raise self._refusal(f"{out}\n{err}")
        return self._with_old(parse_dnf_simulation(out))

    def _with_old(self, actions: t.Sequence[Action]) -> list[Action]:
        """The actions with the versions that go, which dnf does not tell where others come."""
        replaced = [action.name for action in actions if action.verb in ("upgrade", "downgrade")]
        have = self.installed(replaced) if replaced else {}
        return [
            dataclasses.replace(action, old=have[action.name].version)
            if action.name in replaced and action.name in have
            else action
            for action in actions
        ]

    def _asked(self, words: t.Sequence[str]) -> tuple[int, str, str]:
        argv = [*_DNF, "--assumeno", "--allowerasing", "install", *words]
        return self.host.run_command(argv, environ_update={"COLUMNS": "250"})

    def _refusal(self, said: str) -> ClusterError:
        """The error for what dnf said instead of a plan."""
        hidden, unknown = _HIDDEN.search(said), _UNKNOWN.search(said)
        if hidden:
            return ClusterError(
                "not_available",
                f"The repositories of this node have {hidden[2]}, but dnf hides it ({hidden[1]} filtering).",
                _WHY_HIDDEN.get(hidden[1], "See what hides it in /etc/dnf and /etc/yum.repos.d."),
            )
        if unknown:
            return self.remedies.not_available(unknown[1], "", [])
        lacking = sorted(set(re.findall(r"nothing provides (\S+)", said)))
        message = f"dnf refuses this: {last_lines(said)}"
        return ClusterError("package_failed", message, "See what dnf says.", lacking=lacking)

    def _kept_several(self) -> set[str]:
        """Names of packages that say themselves that they are installed beside other versions, such as kernel modules."""
        argv = ["rpm", "-q", "--whatprovides", "--queryformat", "%{NAME}\\n", *_SEVERAL]
        _rc, out, _err = self.host.run_command(argv)
        return {line for line in out.splitlines() if " " not in line}

    def mend(self, names: t.Sequence[str], *, keep: str = "") -> None:
        """Finish what was cut off: of two versions the one that came first goes, the other is installed again with what it needs.

        ``names``: the packages that the caller answers for. What is there twice of others is left to whoever knows why.
        ``keep``: the version, without epoch and release, that stays wherever it is there. Whoever goes back to it would
        otherwise have some packages at the version that was to come, which nothing brings back with the rest.
        """
        if not names:
            return
        several = self._kept_several()
        again: list[str] = []
        for name in (one.name for one in self.installed(names).values() if one.broken and one.name not in several):
            for instances in self._by_arch(name):
                stays = next((one for one in instances if keep and one.rsplit("-", 2)[1] == keep), instances[0])
                for nevra in instances:
                    if nevra != stays:
                        self._dnf(["--erase", "--nodeps", nevra], f"{nevra} could not be taken away", ("rpm",))
                again += [stays] if len(instances) > 1 else []
        # The repositories may not have them any more: then the transaction that follows has to do.
        with contextlib.suppress(ClusterError):
            if again:
                self._dnf(["-y", "-q", "--allowerasing", "reinstall", *again], "Nothing could be installed again")

    def _by_arch(self, name: str) -> list[list[str]]:
        """A package's instances for each architecture, the latest first by the time of their installation."""
        _rc, out, _err = self.host.run_command(["rpm", "-q", "--last", name])
        found: dict[str, list[str]] = {}
        for nevra in (line.split()[0] for line in out.splitlines() if line):
            found.setdefault(nevra.rpartition(".")[2], []).append(nevra)
        return list(found.values())

    def download(self, words: t.Sequence[str], pin: str = "", *, fix: bool = False) -> None:
        """Have the packages of the transaction on the node, so that it needs no network."""
        options = ["-y", "-q", "--allowerasing", "--downloadonly"]
        self._dnf([*options, "install", *words], "The packages could not be downloaded")

    def commit(self, words: t.Sequence[str], pin: str = "", *, fix: bool = False) -> None:
        """The one transaction."""
        self._dnf(["-y", "-q", "--allowerasing", "install", *words], "The packages could not be installed")

    def add(self, names: t.Sequence[str]) -> None:
        """Install packages by name, where what is locked stays."""
        self._dnf(["-y", "-q", "install", *names], f"{', '.join(names)} could not be installed", ("dnf",))

    def hold(self, names: t.Sequence[str], packages: t.Mapping[str, Installed], ours: Ours) -> None:
        """Lock these packages and no other of ours; lines of others stay."""
        wanted = [line for name in names for line in self.lock_lines(packages[name])]
        kept = [line for line in self._locks() if not ours(*_split_lock(line))]
        os.makedirs(os.path.dirname(VERSIONLOCK), mode=0o755, exist_ok=True)
        temporary = f"{VERSIONLOCK}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as handle:
            handle.write("\n".join([*dict.fromkeys([*kept, *wanted]), ""]))
        os.replace(temporary, VERSIONLOCK)

    def removal(self, names: t.Sequence[str]) -> list[Action]:
        """What removing these packages would take along."""
        argv = ["dnf", "--assumeno", "--disableplugin=versionlock", *_REMOVE, *names]
        _rc, out, _err = self.host.run_command(argv, environ_update={"COLUMNS": "250"})
        return parse_dnf_simulation(out)

    def remove(self, names: t.Sequence[str]) -> None:
        """Remove packages."""
        self._dnf(["-y", "-q", *_REMOVE, *names], "The packages could not be removed")


def _split_lock(line: str) -> tuple[str, str]:
    """Name and version of a line of the versionlock list."""
    found = re.match(r"^(.+)-((?:\d+:)?[^-]+-[^-]+)$", line.strip())
    return (found.group(1), found.group(2)) if found else (line, "")


__all__ = ["VERSIONLOCK", "Dnf"]
