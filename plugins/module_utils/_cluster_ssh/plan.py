# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The pure half of the ``cluster_ssh_*`` modules: names, lines and blocks of ssh's files, as plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_MARK = "hpcai.gpu_cluster cluster_ssh"
_MADE = " (made this file)"

# Names that every machine answers to: a line for one of them would vouch for whatever machine it is read on.
_OWN_NAMES = frozenset(["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"])

# What ssh prints (OpenSSH 8 to 10), and what it means for a person. The first match counts.
_FAILURES = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is not the one in known_hosts"),
    ("Host key verification failed", "its host key is not in known_hosts"),
    ("Permission denied", "it does not accept the cluster's key"),
    ("Could not resolve hostname", "its name cannot be resolved"),
    ("Connection refused", "nothing listens on its ssh port"),
    ("No route to host", "there is no route to it"),
    ("timed out", "it did not answer in time"),
    ("Connection closed", "it closed the connection"),
    ("Connection reset", "it reset the connection"),
)


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


@dataclasses.dataclass(frozen=True)
class Block:
    """Our lines in a file that belongs to somebody else. ``made``: the file did not exist before them."""

    lines: tuple[str, ...]
    made: bool = False


def is_key(text: str) -> bool:
    """Whether ``text`` is a public key without comment: type and base64."""
    return bool(re.fullmatch(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,3}", text))


def bare_key(line: str) -> str:
    """Type and base64 of a line of a ``.pub`` file, or an empty string."""
    candidate = " ".join(line.split()[:2])
    return candidate if is_key(candidate) else ""


def split_block(text: str, cluster: str) -> tuple[Block | None, str, str]:
    """Our block of a file, and what stands before and after it."""
    begin = f"# BEGIN {_MARK} {cluster}"
    end = f"# END {_MARK} {cluster}\n"
    match = re.search(rf"^{re.escape(begin)}({re.escape(_MADE)})?\n", text, re.MULTILINE)
    if match is None:
        return None, text, ""
    stop = text.find(end, match.end())
    if stop < 0:
        raise ClusterError(
            "damaged", f"The block {begin!r} has no end.", f"Remove the block's lines by hand, or add the line {end!r}."
        )
    body = text[match.end() : stop]
    return Block(tuple(body.splitlines()), bool(match.group(1))), text[: match.start()], text[stop + len(end) :]


def join_block(block: Block | None, before: str, after: str, cluster: str) -> str:
    """The file with our block. A new one goes to the top: so taking it away again leaves every other byte as it was."""
    if block is None or not block.lines:
        return before + after
    begin = f"# BEGIN {_MARK} {cluster}{_MADE if block.made else ''}\n"
    return before + begin + "".join(line + "\n" for line in block.lines) + f"# END {_MARK} {cluster}\n" + after


def set_block(text: str | None, cluster: str, lines: t.Sequence[str]) -> str | None:
    """The content of a file with exactly these lines of ours. None stands for a file that does not exist."""
    have, before, after = split_block(text or "", cluster)
    if have is None:
        # A new block stands first, not last.
        before, after = "", before
    made = have.made if have else text is None
    content = join_block(Block(tuple(lines), made), before, after, cluster)
    if not content and (text is None or (made and have is not None)):
        return None
    return content


def own_names(nodes: t.Sequence[Node]) -> dict[str, list[str]]:
    """The names that point at one node only: a bridge address that every node has must not vouch for any of them."""
    claims: dict[str, set[str]] = {}
    for node in nodes:
        for name in {node.name, *node.names}:
            claims.setdefault(name, set()).add(node.name)
    inventory = {node.name for node in nodes}
    result = {}
    for node in nodes:
        rest = sorted(
            name
            for name in set(node.names) - {node.name}
            if len(claims[name]) == 1 and name not in inventory and name not in _OWN_NAMES and not is_loopback(name)
        )
        result[node.name] = [node.name, *rest]
    return result


def is_loopback(name: str) -> bool:
    """Whether an address stays on its machine."""
    return name == "::1" or name.startswith(("127.", "fe80:"))


def _patterns(names: t.Sequence[str], port: int) -> list[str]:
    return list(names) if port == 22 else [f"[{name}]:{port}" for name in names]


def known_hosts_lines(
    nodes: t.Sequence[Node], existing: t.Sequence[str], port: int, *, forget_unseen: bool = False
) -> list[str]:
    """Our lines of ``known_hosts``, sorted. Lines of nodes not seen in this run stay, unless they are to go."""
    names = own_names(nodes)
    lines: set[str] = set()
    taken: set[str] = set()
    for node in nodes:
        patterns = _patterns(names[node.name], port)
        taken.update(patterns)
        lines.update(f"{','.join(patterns)} {key}" for key in node.host_keys)
    for line in () if forget_unseen else existing:
        old, _space, key = line.partition(" ")
        # The first name is the inventory's. An address that moved to a node of this run is no longer the old one's.
        first, *rest = old.split(",")
        if first not in taken:
            lines.add(f"{','.join([first, *(name for name in rest if name not in taken)])} {key}")
    return sorted(lines)


def config_lines(known_hosts: t.Iterable[str], key_path: str, port: int) -> list[str]:
    """The stanza of ``~/.ssh/config`` that offers the cluster's key to its nodes and to nobody else."""
    names: set[str] = set()
    for line in known_hosts:
        for pattern in line.split(" ", 1)[0].split(","):
            bracketed = re.fullmatch(r"\[(.+)\]:\d+", pattern)
            names.add(bracketed.group(1) if bracketed else pattern)
    if not names:
        return []
    lines = [f"Host {' '.join(sorted(names))}", f"    IdentityFile {key_path}"]
    if port != 22:
        lines.append(f"    Port {port}")
    # What follows in the file belongs to no Host yet, and must not come to belong to ours.
    return [*lines, "Match all"]


def authorized_line(public_key: str, options: t.Sequence[str], cluster: str) -> str:
    """The one line that lets the cluster's key in."""
    prefix = ",".join(options)
    return f"{prefix} {public_key} {cluster}".strip()


def trusted_key(lines: t.Iterable[str]) -> str:
    """The public key in our block of ``authorized_keys``."""
    for line in lines:
        match = re.search(r"(?:^| )((?:ssh|ecdsa|sk)-\S+ [A-Za-z0-9+/]{16,}={0,3})(?: |$)", line)
        if match:
            return match.group(1)
    return ""


def first_key(nodes: t.Sequence[Node]) -> str | None:
    """The first node's public key, or an empty string where check mode would make it; None if it is absent or holds none."""
    for node in nodes:
        if node.first and (node.public_key or node.made_key):
            return node.public_key
    return None


def cluster_key(nodes: t.Sequence[Node]) -> str:
    """The cluster's public key: the first node's, else the one that all others agree on.

    The private key that another node holds counts for nothing where it trusts another one: then its own is a revoked one.
    """
    key = first_key(nodes)
    if key is not None:
        return key
    known = {node.trusted_key or node.public_key for node in nodes} - {""}
    if len(known) > 1:
        raise ClusterError(
            "two_keys",
            "The nodes of this run know different keys, and the first node of the cluster is not among them or holds none: "
            "nobody can tell which one was revoked.",
            "Run again with the first node in the limit; if it holds no key, also with `renew_key: true`.",
        )
    return next(iter(known), "")


def is_revoked(public_key: str, nodes: t.Sequence[Node]) -> bool:
    """Whether a node's private key is not the one that the first node holds.

    One that is may be the first node's own file, in a home that nodes share.
    """
    key = first_key(nodes)
    return bool(public_key) and key is not None and public_key != key


def surplus_keys(nodes: t.Sequence[Node], others: t.Sequence[Node]) -> tuple[list[str], list[str]]:
    """Who else than the first node holds the cluster's private key, and who a key that is neither that one nor ours."""
    holders = [node for node in (*nodes, *others) if node.public_key and not node.first]
    copies = [node.name for node in holders if node.public_key == first_key(nodes)]
    theirs = [node.name for node in holders if is_revoked(node.public_key, nodes) and not node.made_key]
    return copies, theirs


def wanted_blocks(
    nodes: t.Sequence[Node],
    key: str,
    existing: t.Sequence[str],
    key_path: str,
    params: t.Mapping[str, t.Any],
    *,
    holds_key: bool,
) -> dict[str, list[str]]:
    """Our lines of each file; ``existing`` are those that ``known_hosts`` has now, ``params`` what a module was asked for."""
    known = known_hosts_lines(nodes, existing, params["port"], forget_unseen=params["forget_unseen"])
    return {
        "authorized_keys": [authorized_line(key, params["key_options"], params["cluster"])],
        "known_hosts": known,
        "config": config_lines(known, key_path, params["port"]) if holds_key else [],
    }


def blocks_digest(blocks: t.Mapping[str, t.Sequence[str]]) -> str:
    """One short word for our lines of all files: two nodes with the same word hold the same."""
    text = json.dumps({name: list(lines) for name, lines in blocks.items()}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def outdated(
    nodes: t.Sequence[Node],
    others: t.Sequence[Node],
    existing: t.Sequence[str],
    key_path: str,
    params: t.Mapping[str, t.Any],
    *,
    key_on_all: bool,
) -> list[str]:
    """The nodes that may lack something, as far as one of them can know that.

    ``others`` trust the cluster and are none of it. ``existing`` is what this node's own ``known_hosts`` holds: a node that
    remembers other lost nodes than this one is named, too, and turns out to lack nothing. Without ``key_on_all``, nodes that
    hold a revoked key of ours are named as well: they are to lose it.
    """
    key = cluster_key(nodes)
    right = {
        holds_key: blocks_digest(wanted_blocks(nodes, key, existing, key_path, params, holds_key=holds_key))
        for holds_key in (False, True)
    }
    return [
        node.name
        for node in (*nodes, *others)
        if not key
        or (not key_on_all and node.made_key and is_revoked(node.public_key, nodes))
        or node.blocks != right[bool(node.public_key)]
        or (key_on_all and node.public_key != key)
    ]


def parse_addresses(output: str) -> list[tuple[str, str]]:
    """Interfaces and addresses in what `ip -o addr show scope global` prints."""
    found = re.findall(r"^\d+: (\S+)\s+inet6? ([0-9a-f.:]+)/", output, re.MULTILINE)
    return [(interface.split("@")[0], address) for interface, address in found]


def why(stderr: str, rc: int) -> str:
    """Why a login failed, in words."""
    for needle, meaning in _FAILURES:
        if needle in stderr:
            return meaning
    last = stderr.strip().splitlines()[-1:] or [f"ssh exited with {rc}"]
    return last[0][:200]


__all__ = [
    "Block",
    "Node",
    "authorized_line",
    "bare_key",
    "blocks_digest",
    "cluster_key",
    "config_lines",
    "first_key",
    "is_key",
    "is_loopback",
    "is_revoked",
    "join_block",
    "known_hosts_lines",
    "outdated",
    "own_names",
    "parse_addresses",
    "set_block",
    "split_block",
    "surplus_keys",
    "trusted_key",
    "wanted_blocks",
    "why",
]
