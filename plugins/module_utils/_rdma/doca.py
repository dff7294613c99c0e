# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""DOCA-OFED: a package that adds a repository, and one that brings the stack."""

from __future__ import annotations

import glob
import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import parse_os_release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.epel import how_to_enable, lacking_epel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import (
    parse_dnf_simulation,
    parse_madison,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import last_lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import preview, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.commands import Commands
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.files import KEPT_AWAY
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import DOCA_PACKAGES, Step, System
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.plan import (
    UNTOUCHED,
    parse_removals,
    refuse_conflicts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.read import MARKER
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.unfinished import marked

# Where several repositories have a package, DOCA's counts, however old it is: a mirror may have DOCA's next release, and CUDA's
# repository has tools of the same names. Of priorities the lowest number wins, 99 is what a repository has by itself.
_FROM_DOCA = "--setopt=doca*.priority=1"
# What apt says of a dependency that is in no repository.
_IN_NO_REPOSITORY = "but it is not installable"
_KERNEL_SUPPORT = "/opt/mellanox/doca/tools/doca-kernel-support"


class Doca:
    """Installs and removes DOCA-OFED."""

    def __init__(self, commands: Commands, request: Request, system: System) -> None:
        self.commands, self.request, self.system = commands, request, system
        self.wanted = request.wanted
        self._untouched = UNTOUCHED
        self._dist = parse_os_release(read_text(Path("/etc/os-release")))
        self.package = DOCA_PACKAGES[1] if self.wanted.user_space_only else DOCA_PACKAGES[0]

    def check(self, file: str, *, replaces: bool) -> None:
        """Refuse, before anything is begun, what could not be ended, as far as ``file`` tells what it would bring.

        ``replaces``: another stack goes first. What is in the way only because of that is no reason to refuse.
        """
        self._refuse_held_of(self._had())
        with preview.of(file, self.commands) as view:
            if view and self.system.manager == "dpkg":
                files = self._openmpi(file, view) if self.request.without_openmpi else []
                self._check(view, files, UNTOUCHED, replaces=replaces)
            elif view:
                self._check_dnf(view, replaces=replaces)

    def lacking_epel(self) -> str:
        """The package that is to be installed first, so that dkms is found; empty for none."""
        if not (self.request.epel and self.wanted.kernel_parts) or self.system.manager == "dpkg":
            return ""
        return lacking_epel(self._dist, Dnf(self.commands.host).installed())

    def enable_epel(self, name: str) -> None:
        """Install this package. What is refused after it says so."""
        self.commands.add([name])
        self._untouched = f"Nothing but {name} was installed."

    def install(self, file: str, step: Step) -> str:
        """Add the repository that ``file`` brings, and install the stack from it; returns what was said."""
        return self._with_apt(file, step) if self.system.manager == "dpkg" else self._with_dnf(file, step)

    def _with_apt(self, file: str, step: Step) -> str:
        had = self._had()
        # From here to the end the node has a repository of one version, and perhaps the stack of another.
        with marked(step.name) as unmark:
            try:
                self._offer(file, self._left(had))
            except ClusterError:
                if not had:
                    self._take_back()
                    unmark()
                raise
            words = self._words(preview.installed())
            said = self.commands.apt(["install", *words], f"installing {self.package}")
            self.commands.add(self.commands.missing(self.request.packages))
        return said

    def _had(self) -> str:
        """The version of the repository that is there; empty for none."""
        return read.read_software(self.commands.host, self.system).packages.get("doca-host", "")

    def _refuse_held_of(self, had: str) -> None:
        """Refuse another version while apt holds what came of the one that is there: its repository still tells what that is."""
        if self.system.manager == "dpkg" and had and not f"{had}-".startswith(f"{self.wanted.version}-"):
            held = [name for name, one in Apt(self.commands.host).installed().items() if one.held]
            offered = self._offered(sorted({*held} - {*KEPT_AWAY}), preview.installed()) if held else {}
            self._refuse_held(offered, UNTOUCHED)

    def _refuse_held(self, names: t.Iterable[str], left: str) -> None:
        held = sorted(names)
        if held:
            raise ClusterError(
                "held",
                f"apt holds packages of which DOCA {self.wanted.version} has its own versions: {', '.join(held)}.",
                f"Release them with `apt-mark unhold {' '.join(held)}`, then run again. {left}",
                packages=held,
            )

    def _left(self, had: str) -> str:
        """How a refusal leaves the node once the repository was added: what a former one was made of is gone."""
        now = self._now(had)
        if had in ("", now):
            return UNTOUCHED
        return (
            f"doca-host is {now} now, and was {had}: what came from it has not been exchanged. "
            f"To go back, set `version` to {had.rpartition('-')[0]} again."
        )

    def _now(self, had: str) -> str:
        """The version that doca-host will have, by the one that it has."""
        return f"{self.wanted.version}-{had.rpartition('-')[2]}"

    def _offer(self, file: str, left: str) -> None:
        """Add the repository, and refuse what its packages would push out and what apt would not end; ``left``: see ``_left``."""
        self.commands.run(["dpkg", "--install", file], "installing doca-host")
        self.commands.apt(["update"], "reading DOCA's package list")
        view = preview.installed()
        if self.request.without_openmpi:
            for package in self._openmpi(file, view):
                self.commands.run(["dpkg", "--install", package], f"installing {MARKER}")
        self._check(view, [], left)

    def _check(self, view: preview.View, files: t.Sequence[str], left: str, *, replaces: bool = False) -> None:
        """Refuse what DOCA's packages would push out and what apt would not end. ``files``: packages that are to come with them.

        With ``replaces`` a conflict with what is there is the other stack's, which goes first; what no repository has stays away.
        """
        words, there = self._words(view), Apt(self.commands.host).installed()
        versions = dict(word.split("=", 1) for word in words if "=" in word)
        self._refuse_held(
            [name for name in versions if name in there and there[name].held and there[name].version != versions[name]],
            left,
        )
        simulate = ["apt-get", *view.options, "--simulate", "--yes", "install", *words, *files]
        rc, out, err = self.commands.host.run_command(simulate)
        refuse_conflicts(parse_removals(out), "DOCA", self.wanted, left)
        if rc != 0 and not (replaces and _IN_NO_REPOSITORY not in out):
            said = (err.strip() or out.strip() or f"exit status {rc}").splitlines()[-1]
            raise ClusterError(
                "command_failed",
                f"apt cannot install {self.package}: {said}",
                f"Read its output in this result, correct the cause, and run again. {left}",
                output=out + err,
            )

    def _words(self, view: preview.View) -> list[str]:
        """What to tell apt: the stack, and what is there of another version of DOCA, each as the repository has it now.

        apt leaves what satisfies the new packages, and goes back to an older version only where it is named.
        """
        there = Apt(self.commands.host).installed()
        offered = self._offered(sorted({self.package, *there} - {*KEPT_AWAY}), view)
        if self.package not in offered:
            return [self.package]
        behind = [name for name, one in there.items() if offered.get(name, one.version) != one.version]
        return ["--allow-downgrades", *(f"{name}={offered[name]}" for name in dict.fromkeys([self.package, *behind]))]

    def _offered(self, names: t.Sequence[str], view: preview.View) -> dict[str, str]:
        """The versions of these packages in DOCA's repository alone."""
        if not view.sources:
            return {}
        only = [*view.options, "-o", f"Dir::Etc::sourcelist={view.sources}", "-o", "Dir::Etc::sourceparts=/dev/null"]
        # The next call of apt must not find this view of the lists.
        only += ["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
        _rc, out, _err = self.commands.host.run_command(["apt-cache", *only, "madison", *names])
        return {name: versions[0] for name, versions in parse_madison(out).items() if versions}

    def _take_back(self) -> None:
        """Remove the repository again; the error that this follows is the one to tell."""
        self.commands.host.run_command(["dpkg", "--purge", "doca-host", MARKER])
        self.commands.host.run_command(["apt-get", "--yes", "-o", "DPkg::Lock::Timeout=300", "update"])

    def _with_dnf(self, file: str, step: Step) -> str:
        run = self.commands.run
        with marked(step.name):
            run(["rpm", "--upgrade", "--oldpackage", "--replacepkgs", file], "installing doca-host")
            run(["dnf", "--assumeyes", "makecache"], "reading DOCA's package list")
            if self.wanted.kernel_parts and self.wanted.kernel_support:
                self._build_modules()
            replace = ["--allowerasing"] if self.wanted.allow_replace else []
            install = ["dnf", "--assumeyes", _FROM_DOCA, *replace, "install", self.package]
            said = run(install, f"installing {self.package}")
            self._bring_along(replace)
            self.commands.add(self.commands.missing(self.request.packages))
        return said

    def _check_dnf(self, view: preview.View, *, replaces: bool) -> None:
        """Refuse what DOCA's packages would push out, and what dnf would not begin. ``replaces``: see ``check``."""
        run, query = self.commands.run_command, ["--quiet", "repoquery", "--repo=doca"]
        # What comes from DOCA is DOCA's to take away.
        _rc, former, _err = run(["dnf", *query, "--queryformat=%{name}"])
        form = "--queryformat=%{name} %{name}-%{epoch}:%{version}-%{release}"
        _rc, offered, _err = run(["dnf", *view.options, *query, "--latest-limit=1", form])
        full = dict(line.split(" ", 1) for line in offered.splitlines() if " " in line)
        there = Dnf(self.commands.host).installed()
        words = [full.get(name, name) for name in dict.fromkeys([self.package, *sorted(set(full) & set(there))])]
        simulate = ["dnf", *view.options, _FROM_DOCA, "--assumeno", "--allowerasing", "install", *words]
        rc, out, err = run(simulate, environ_update={"COLUMNS": "250"})
        gone = {action.name for action in parse_dnf_simulation(out) if action.verb == "remove"}
        refuse_conflicts(sorted(gone - {*former.split(), *full}), "DOCA", self.wanted, self._untouched)
        if "nothing provides dkms" in out + err:
            raise ClusterError(
                "no_dkms",
                f"No repository of this node has the dkms that {self.package} needs. EL has it in EPEL only.",
                f"{how_to_enable(self._dist)} Its newest dkms is needed. {self._untouched}",
                output=out + err,
            )
        # Modules that are built here, and what needs them, are in no repository yet.
        builds = self.wanted.kernel_parts and self.wanted.kernel_support
        if rc != 0 and "Transaction Summary" not in out and not (builds or replaces):
            raise ClusterError(
                "command_failed",
                f"dnf cannot install {self.package}: {last_lines(err or out)}",
                f"Read its output in this result, correct the cause, and run again. {self._untouched}",
                output=out + err,
            )

    def _openmpi(self, file: str, view: preview.View) -> list[str]:
        """The file of a package that says that the Open MPI which doca-ofed wants is there; none where DOCA has none."""
        show = ["apt-cache", *view.options, "show", "--no-all-versions", "openmpi"]
        _rc, out, _err = self.commands.host.run_command(show)
        version = next((line.split(": ", 1)[1] for line in out.splitlines() if line.startswith("Version: ")), "")
        if not version:
            return []
        tree = os.path.join(os.path.dirname(file), MARKER)
        os.makedirs(os.path.join(tree, "DEBIAN"), mode=0o755, exist_ok=True)
        control = (
            f"Package: {MARKER}\nVersion: {version}\nProvides: openmpi (= {version})\nConflicts: openmpi\n"
            "Replaces: openmpi\nArchitecture: all\nMaintainer: hpcai.gpu_cluster\n"
            "Description: stands for DOCA's Open MPI, which another MPI takes the place of\n"
        )
        Path(tree, "DEBIAN", "control").write_text(control, encoding="utf-8")
        self.commands.run(["dpkg-deb", "--build", "--root-owner-group", tree], f"building {MARKER}")
        return [f"{tree}.deb"]

    def _build_modules(self) -> None:
        self.commands.run(["dnf", "--assumeyes", _FROM_DOCA, "install", "doca-extra"], "installing doca-extra")
        self.commands.run([_KERNEL_SUPPORT, "-k", self.system.kernel], f"building modules for {self.system.kernel}")
        # The tool leaves a repository in /tmp, in a directory with a random name.
        built = glob.glob("/tmp/DOCA.*/**/doca-kernel-repo-*.rpm", recursive=True)  # noqa: S108 - the vendor's choice
        if not built:
            raise ClusterError(
                "build_failed", "doca-kernel-support left no repository.", "Read its log below /tmp/DOCA.*."
            )
        newest = max(built, key=os.path.getmtime)
        self.commands.run(
            ["rpm", "--upgrade", "--oldpackage", "--replacepkgs", newest], "installing the modules' repository"
        )

    def _bring_along(self, options: t.Sequence[str]) -> None:
        """Bring what another version of DOCA left to this one: dnf leaves whatever is installed and satisfies the new packages."""
        query = ["dnf", "--quiet", "repoquery", "--repo=doca", "--queryformat=%{name}"]
        offered = self.commands.run(query, "asking DOCA's repository for its packages")
        there = Dnf(self.commands.host).installed()
        names = sorted(set(offered.split()) & set(there))
        if names:
            self.commands.run(
                ["dnf", "--assumeyes", _FROM_DOCA, *options, "distro-sync", *names],
                "bringing all of DOCA to one version",
            )

    def purge(self, *, autoremove: bool) -> None:
        """Remove the packages of the stack; with ``autoremove`` also what they brought, where no script removes that."""
        self._purge(DOCA_PACKAGES, ["--autoremove"] if autoremove else [])

    def purge_repository(self) -> None:
        """Remove the package that added the repository."""
        self._purge(["doca-host", MARKER], [])

    def _purge(self, names: t.Sequence[str], options: t.Sequence[str]) -> None:
        there = read.read_software(self.commands.host, self.system).packages
        present = [name for name in names if name in there]
        if not present:
            return
        what = f"removing {', '.join(present)}"
        if self.system.manager == "rpm":
            self.commands.run(["dnf", "--assumeyes", "remove", *present], what)
            return
        self.commands.apt(["purge", *options, *present], what)
        if "doca-host" in present:
            self.commands.apt(["update"], "reading the package lists")


__all__ = ["Doca"]
