# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""A transaction of packages after which all parts of the driver have one version."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, Installed, upstream
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    has_driver_version,
    in_stack,
    is_of_others,
)

# What follows may bring along what has to follow in its turn.
_ROUNDS = 3


def simulate_whole(
    manager: Apt | Dnf,
    words: t.Sequence[str],
    packages: t.Mapping[str, Installed],
    version: str,
    pin: str,
    *,
    fix: bool,
) -> tuple[list[str], list[Action]]:
    """What the package system would do, and the words that make it do that.

    A part of the driver that nothing wanted depends on would stay at its old version under apt. It follows to the new one,
    or leaves where the repositories have none. What leaves stands among the words: where all names of a branch make way for
    those of another, apt may weigh it up differently as soon as a pin has changed.
    """
    request, left = list(words), set[str]()
    for _round in range(_ROUNDS if isinstance(manager, Apt) else 1):
        request, actions = _simulate(manager, request, packages, version, pin, fix=fix)
        named = {re.split(r"=|-$", word)[0] for word in request}
        stragglers = [name for name in stragglers_of(actions, packages, version) if name not in named | left]
        if not isinstance(manager, Apt) or not stragglers:
            break
        versions = manager.versions(stragglers)
        for name in stragglers:
            word = _word_for(packages[name], versions.get(name, []), version)
            request += [word] if word else []
            left |= set() if word else {name}
    if isinstance(manager, Apt):
        gone = (f"{action.name}-" for action in actions if action.verb == "remove")
        request += [word for word in gone if word not in request]
    return request, actions


def _simulate(
    manager: Apt | Dnf,
    words: list[str],
    packages: t.Mapping[str, Installed],
    version: str,
    pin: str,
    *,
    fix: bool,
) -> tuple[list[str], list[Action]]:
    """What the package system would do, with the words of what must leave where it refuses without them."""
    try:
        return words, manager.simulate(words, pin, fix=fix)
    except ClusterError:
        leaving = _leaving(manager, packages, version) if isinstance(manager, Apt) else []
        more = [word for word in leaving if word not in words]
        if not more:
            raise
        return [*words, *more], manager.simulate([*words, *more], pin, fix=fix)


def _leaving(manager: Apt, packages: t.Mapping[str, Installed], version: str) -> list[str]:
    """Parts of another version that the repositories do not have at the wanted one, as words for apt."""
    others = [name for name in stragglers_of([], packages, version) if in_stack(name, packages[name].version)]
    versions = manager.versions(others)
    return [f"{name}-" for name in others if not any(upstream(one) == version for one in versions.get(name, []))]


def _word_for(one: Installed, versions: t.Sequence[str], wanted: str) -> str:
    """What to tell apt of a straggler; empty where it may stay."""
    fitting = [version for version in versions if upstream(version) == wanted]
    if fitting:
        return f"{one.name}={fitting[0]}"
    return f"{one.name}-" if in_stack(one.name, one.version) else ""


def stragglers_of(actions: t.Sequence[Action], packages: t.Mapping[str, Installed], version: str) -> list[str]:
    """Parts of the driver, and programs with a driver's version, that a plan would leave at another version."""
    touched = {action.name for action in actions}
    return [
        name
        for name, one in packages.items()
        if version
        and name not in touched
        and has_driver_version(name, one.version)
        and upstream(one.version) != version
    ]


def check_plan(
    actions: t.Sequence[Action], packages: t.Mapping[str, Installed], version: str, kept: t.Container[str] = ()
) -> None:
    """Refuse a transaction after which parts of the driver would have different versions, or others' packages be gone.

    ``kept``: names of packages that are wanted.
    """
    gone = [action.name for action in actions if action.verb == "remove" and action.name in kept]
    if gone:
        raise ClusterError(
            "package_failed",
            f"The package system would remove {', '.join(gone)}, which is wanted. Nothing was changed.",
            "See with which of the node's packages or repositories the wanted ones do not go together.",
        )
    gone = [action.name for action in actions if action.verb == "remove" and action.name in packages]
    others = sorted(name for name in gone if is_of_others(name, packages[name].version))
    if others:
        raise ClusterError(
            "in_use",
            f"With the old driver the package system would remove packages that are not the driver's: {', '.join(others[:8])}. "
            "Nothing was changed.",
            "Remove them first, or use a repository that has them for the new driver.",
        )
    after = {name: one.version for name, one in packages.items()}
    for action in actions:
        if action.verb == "remove":
            after.pop(action.name, None)
        else:
            after[action.name] = action.version
    mixed = [
        f"{name} {held}" for name, held in sorted(after.items()) if in_stack(name, held) and upstream(held) != version
    ]
    if mixed:
        raise ClusterError(
            "mixed_versions",
            f"The package system would leave parts of the driver at other versions than {version}: {', '.join(mixed)}.",
            "Nothing was changed. Remove these packages, or use a repository that has all of them at one version.",
        )


__all__ = ["check_plan", "simulate_whole", "stragglers_of"]
