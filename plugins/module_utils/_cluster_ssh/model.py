# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What several files of the trust know: a node as it tells the others, and a user's ``~/.ssh`` as it was found."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


@dataclasses.dataclass(frozen=True)
class Node:
    """What one node says of itself: its names and host keys, what it knows of the cluster's key, and what our blocks hold.

    ``first``: it is the one that is to hold the key. ``made_key``: we made the key that it holds, or handed it over, or it is
    check mode and we would have.
    """

    name: str
    names: tuple[str, ...]
    host_keys: tuple[str, ...]
    public_key: str = ""
    trusted_key: str = ""
    blocks: str = ""
    first: bool = False
    made_key: bool = False

    @classmethod
    def from_result(cls, data: t.Mapping[str, t.Any]) -> Node:
        """Read the ``node`` of a ``cluster_ssh_identity`` result; its keys are checked, because they become lines."""
        names = [str(name) for name in data["names"]]
        for name in [str(data["name"]), *names]:
            if not re.fullmatch(r"[A-Za-z0-9._:%-]+", name):
                raise ClusterError("bad_input", f"{name!r} is not a host name or address.", "Correct the inventory.")
        for key in (*data["host_keys"], data["public_key"], data["trusted_key"]):
            if key and not is_key(key):
                raise ClusterError("bad_input", f"{data['name']} reported something that is not a key.", "Check it.")
        return cls(
            str(data["name"]),
            tuple(names),
            tuple(data["host_keys"]),
            str(data["public_key"]),
            str(data["trusted_key"]),
            str(data["blocks"]),
            bool(data["first"]),
            bool(data["made_key"]),
        )


def is_key(text: str) -> bool:
    """Whether ``text`` is a public key without comment: type and base64."""
    return bool(re.fullmatch(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,3}", text))


@dataclasses.dataclass(frozen=True)
class Identity:
    """What this node has to tell. ``trusted_key`` and ``blocks`` are of our lines, ``made_key``: we made the key that is here."""

    names: tuple[str, ...]
    host_keys: tuple[str, ...]
    public_key: str
    trusted_key: str
    blocks: str
    made_key: bool


@dataclasses.dataclass(frozen=True)
class Home:
    """A ``~/.ssh`` before it is changed.

    ``texts``: the content of each file that holds our lines, None where there is no such file. ``known``: our lines of
    known_hosts. ``pair``: those of the two files of the cluster's key that are there. ``holds_key``: the private one is.
    ``public_key`` and ``made_key`` are read only where the request needs them. ``handed_key``: the
    public half of the private key that was handed over, "" where that is none.
    """

    texts: t.Mapping[str, str | None]
    known: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    holds_key: bool = False
    public_key: str = ""
    made_key: bool = False
    handed_key: str = ""


__all__ = ["Home", "Identity", "Node", "is_key"]
