# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The repository that another ``doca-host`` would bring, for apt and dnf to plan with while the one that is there stays.

NVIDIA's ``doca-host`` carries its repository in itself, below /usr/share, and the sources that name it (DOCA installation guide).
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import re
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.commands import Commands
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.payload import extract

APT_SOURCES, APT_LISTS = "/etc/apt/sources.list.d", "/var/lib/apt/lists"
# Where dnf looks for repositories (dnf.conf(5), "reposdir").
_YUM_SOURCES = ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d")
_DNF_CACHE = "/var/cache/dnf"
# A path in a list of sources, as a value by itself or in a URL.
_PATH = re.compile(r"(?:(?<=file:)|(?<=file://)|(?<==)|(?<=\s))/[^/\s\]][^\s\]]*")
# The sum of the package that has brought the repository is known, its key may not be.
_UNSIGNED = ("-o", "Acquire::AllowInsecureRepositories=true", "-o", "APT::Get::AllowUnauthenticated=true")


@dataclasses.dataclass(frozen=True)
class View:
    """How DOCA's repository is seen: the options with which apt or dnf sees it beside all others, and its list of sources."""

    options: tuple[str, ...] = ()
    sources: str = ""


def installed() -> View:
    """The repository that is there, if there is one."""
    return View(sources=next(iter(sorted(glob.glob(f"{APT_SOURCES}/doca*"))), ""))


@contextlib.contextmanager
def of(file: str, commands: Commands) -> t.Iterator[View | None]:
    """The repository that this ``doca-host`` would bring; None where it does not tell."""
    manager = commands.manager
    with tempfile.TemporaryDirectory(prefix="preview.", dir=os.path.dirname(file)) as work:
        tree = os.path.join(work, "tree")
        os.mkdir(tree)
        place = APT_SOURCES if manager == "dpkg" else _YUM_SOURCES[0]
        ours = sorted(glob.glob(f"{tree}{place}/doca*")) if extract(file, manager, tree) else []
        if not ours:
            yield None
            return
        alone, together = (_directory(work, name) for name in ("alone", "together"))
        for there in (place,) if manager == "dpkg" else _YUM_SOURCES:
            for source in glob.glob(f"{there}/*"):
                if os.path.isfile(source) and not os.path.basename(source).startswith("doca"):
                    shutil.copy(source, together)
        for source in ours:
            text = _moved(Path(source).read_text(encoding="utf-8"), tree)
            for target in (alone, together):
                Path(target, os.path.basename(source)).write_text(text, encoding="utf-8")
        if manager == "dpkg":
            yield _for_apt(commands, work, alone, together, os.path.basename(ours[0]))
            return
        before = set(glob.glob(f"{_DNF_CACHE}/doca*"))
        try:
            yield View((f"--setopt=reposdir={together}",))
        finally:
            for path in set(glob.glob(f"{_DNF_CACHE}/doca*")) - before:
                _remove(path)


def _directory(work: str, name: str) -> str:
    path = os.path.join(work, name)
    os.mkdir(path)
    return path


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)


def _moved(text: str, tree: str) -> str:
    """Sources of which those that came with the package lie below ``tree``."""
    return _PATH.sub(lambda found: f"{tree}{found[0]}" if os.path.exists(f"{tree}{found[0]}") else found[0], text)


def _for_apt(commands: Commands, work: str, alone: str, together: str, name: str) -> View:
    """Lists of packages of their own: those that are there, and that of the new repository."""
    lists = _directory(work, "lists")
    _directory(lists, "partial")
    for path in glob.glob(f"{APT_LISTS}/*_*"):
        os.symlink(path, os.path.join(lists, os.path.basename(path)))
    # What others see of the lists is not to be that.
    cache = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
    seen = ("-o", f"Dir::State::lists={lists}", *cache, *_UNSIGNED)
    only = ("-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={alone}")
    # The directories are root's alone, and the lists of others stay.
    update = (*seen, *only, "-o", "APT::Sandbox::User=root", "-o", "APT::Get::List-Cleanup=false", "update")
    commands.apt(update, "reading the package list of the new DOCA")
    return View((*seen, "-o", f"Dir::Etc::sourceparts={together}"), os.path.join(alone, name))


__all__ = ["View", "installed", "of"]
