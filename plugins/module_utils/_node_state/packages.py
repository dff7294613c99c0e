# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which packages a node lacks. dpkg and rpm have different names for some of them."""

from __future__ import annotations

import re
import shutil
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import PROVIDES_FORMAT, installed_debs


def package_names(items: t.Sequence[t.Any], manager: str) -> list[str]:
    """The names for one package system, without doubles.

    An item is a name, or a mapping with ``name``, or with ``dpkg`` and ``rpm`` where the systems differ. Each of these is
    an item or a list of items in turn. A mapping of the outermost list may say ``first``.
    """
    return list(dict.fromkeys(name for item in items for name in _names(_split(item)[0], manager)))


def needed_packages(items: t.Sequence[t.Any], missing: t.Sequence[str], manager: str) -> list[str]:
    """The missing packages without those that say ``first``, where nothing is missing that these could be there for.

    A node that has all other packages may reach no repository.
    """
    others = package_names([item for item in items if not _split(item)[1]], manager)
    return [] if others and not set(others) & set(missing) else list(missing)


def next_packages(items: t.Sequence[t.Any], missing: t.Sequence[str], manager: str) -> list[str]:
    """Which of the missing packages are installed next: those of the items that say ``first``, then all others."""
    first = package_names([item for item in items if _split(item)[1]], manager)
    return [name for name in missing if name in first] or list(missing)


def _split(item: t.Any) -> tuple[t.Any, bool]:
    """An item without its ``first``, and whether that is true."""
    if not isinstance(item, t.Mapping) or "first" not in item:
        return item, False
    try:
        first = bool(boolean(item["first"]))
    except TypeError:
        raise _bad(
            f"`first` of an item of packages is {item['first']!r}, which is not a boolean.", "Write true or false."
        ) from None
    return {key: value for key, value in item.items() if key != "first"}, first


def _names(item: t.Any, manager: str) -> list[str]:
    if isinstance(item, str):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9+._()-]*", item):
            raise _bad(f"{item!r} is not the name of a package.", "Give its bare name, without a version.")
        return [item]
    known = isinstance(item, t.Mapping) and item and (set(item) == {"name"} or set(item) <= {"dpkg", "rpm"})
    if not known:
        raise _bad(
            f"An item of packages is {item!r}.", "Give a name, or a mapping with name, or with the keys dpkg and rpm."
        )
    # The names for other systems are checked, too.
    named = {key: package_names(one if isinstance(one, (list, tuple)) else [one], manager) for key, one in item.items()}
    return named.get("name") or named.get(manager) or []


def _bad(message: str, remedy: str) -> ClusterError:
    return ClusterError("bad_input", message, remedy)


def missing_packages(items: t.Sequence[t.Any], host: Host) -> tuple[list[str], str]:
    """Which packages are needed and not installed, and which package system said so (``dpkg``, ``rpm`` or an empty string)."""
    if not any(package_names(items, manager) for manager in ("dpkg", "rpm")):
        return [], ""
    if shutil.which("dpkg-query"):
        names = package_names(items, "dpkg")
        _rc, out, _err = host.run_command(["dpkg-query", "-W", "-f", PROVIDES_FORMAT, "--", *names])
        have = installed_debs(out)
        if names and set(names) - have:
            # A virtual package has no entry of its own: look for one that provides it.
            _rc, out, _err = host.run_command(["dpkg-query", "-W", "-f", PROVIDES_FORMAT])
            have = installed_debs(out)
        return needed_packages(items, [name for name in names if name not in have], "dpkg"), "dpkg"
    if shutil.which("rpm"):
        names = package_names(items, "rpm")
        missing = [n for n in names if host.run_command(["rpm", "-q", "--whatprovides", "--", n])[0] != 0]
        return needed_packages(items, missing, "rpm"), "rpm"
    raise ClusterError(
        "no_package_manager",
        "This node has neither dpkg nor rpm, so its packages cannot be looked up.",
        "Install them another way and leave packages empty.",
    )


__all__ = ["missing_packages", "needed_packages", "next_packages", "package_names"]
