# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""BeeGFS' packages: which ones they are, which versions are wanted, and what a transaction may do to them. Pure.

Their versions are ``20:8.3.1`` with dpkg and ``20:8.3.1-el9`` with rpm (``debian/changelog``, ``beegfs.spec``). BeeOND depends on others of
exactly its own.
"""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, Installed

_OURS = re.compile(r"^(beeond|beegfs-|libbeegfs-)")
#: apt's patterns for the same.
PATTERNS = "beeond* beegfs-* libbeegfs-*"
#: Without it dnf does not read the list of locks.
LOCKS = "python3-dnf-plugin-versionlock"


def is_beegfs(name: str) -> bool:
    """Whether this is a package of BeeGFS."""
    return bool(_OURS.match(name))


def fits(pin: str, version: str) -> bool:
    """Whether a package's version is the one that is wanted, which may be written without epoch and without release."""
    epoch, _colon, rest = version.rpartition(":")
    upstream = rest.partition("-")[0]
    forms = {rest, upstream, *((f"{epoch}:{rest}", f"{epoch}:{upstream}") if epoch else ())}
    return any(fnmatch.fnmatchcase(form, pin) for form in forms)


def preferences(pin: str) -> str:
    """What keeps apt at a version. A pattern without an epoch is tried with any, too (apt_preferences(5))."""
    patterns = [pin] if ":" in pin or not pin else [pin, f"*:{pin}"]
    stanzas = (f"Package: {PATTERNS}\nPin: version {one}\nPin-Priority: 1001\n" for one in patterns)
    return "\n".join(stanzas) if pin else ""


def ours_of(packages: t.Mapping[str, Installed]) -> list[str]:
    """Those of BeeGFS among a node's packages."""
    return sorted(name for name in packages if is_beegfs(name))


def refuse_other_versions(packages: t.Mapping[str, Installed], pin: str) -> None:
    """Raise ClusterError where BeeGFS is installed in another version than the wanted one: it may serve a file system."""
    others = [f"{name} {packages[name].version}" for name in ours_of(packages) if not fits(pin, packages[name].version)]
    if pin and others:
        raise ClusterError(
            "other_version",
            f"Installed is {', '.join(others)}, and `pin` asks for {pin}. Nothing was changed.",
            "Set `pin` to the installed version. Or stop the file system on all nodes, remove these packages from each, and run again.",
        )


def fitting(name: str, pin: str, versions: t.Sequence[str]) -> str:
    """The newest of a package's versions that is wanted; "" for none."""
    return next((one for one in versions if fits(pin, one)), "")


def check_actions(actions: t.Iterable[Action], packages: t.Mapping[str, Installed]) -> None:
    """Raise ClusterError for a transaction that changes BeeGFS' packages that are there, or takes others away."""
    touched = [
        one
        for one in actions
        if one.name in packages and (one.verb == "remove" or (is_beegfs(one.name) and one.verb != "install"))
    ]
    if touched:
        raise ClusterError(
            "conflict",
            f"To install what is missing the package system would {', '.join(one.text() for one in touched)}. No package was changed.",
            "Set `pin` to the version that is installed. Or stop the file system and bring these packages where they should be yourself, "
            "then run again.",
        )


__all__ = [
    "LOCKS",
    "PATTERNS",
    "check_actions",
    "fits",
    "fitting",
    "is_beegfs",
    "ours_of",
    "preferences",
    "refuse_other_versions",
]
