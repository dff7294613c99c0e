# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The request as this node understands it: users by their numbers, the mount point without links."""

from __future__ import annotations

import dataclasses
import grp
import os
import pwd
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.request import Wanted, bad_input, wanted_from

# The number after it means: leave it as it is (chown(2)).
_LAST = 2**32 - 2


def wanted_here(settings: t.Mapping[str, t.Any]) -> Wanted:
    """The request with users as numbers and the mount point without links, which is how the kernel tells them."""
    values = dict(settings)
    values["owner"] = _identity(settings.get("owner") or "root", "user")
    values["group"] = _identity(settings.get("group") or "root", "group")
    wanted = wanted_from(values)
    parent, name = os.path.split(wanted.mount_point.rstrip("/"))
    return dataclasses.replace(wanted, mount_point=os.path.join(os.path.realpath(parent), name))


def _identity(name: str, kind: str) -> int:
    if str(name).isdecimal() and int(name) <= _LAST:
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        raise bad_input(
            f"There is no {kind} {name} on this node.", f"Create the {kind} first, or name another."
        ) from None


__all__ = ["wanted_here"]
