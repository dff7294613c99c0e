# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Who is trusted by which key, and what is to be written into ``~/.ssh`` for that, as plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.blocks import set_block
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import FILE_MODES, SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.model import Home, Identity, Node, is_key
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.request import (
    IdentityRequest,
    Lines,
    TrustRequest,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# Names that every machine answers to: a line for one of them would vouch for whatever machine it is read on.
_OWN_NAMES = frozenset(["localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"])


def bare_key(line: str) -> str:
    """Type and base64 of a line of a ``.pub`` file, or an empty string."""
    candidate = " ".join(line.split()[:2])
    return candidate if is_key(candidate) else ""


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
            "The nodes of this run know different keys, and the first node of the cluster is not among them or holds none. "
            "So it is not known which one was revoked.",
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
    wanted: Lines,
    *,
    holds_key: bool,
) -> dict[str, list[str]]:
    """Our lines of each file; ``existing`` are those that ``known_hosts`` has now."""
    known = known_hosts_lines(nodes, existing, wanted.port, forget_unseen=wanted.forget_unseen)
    return {
        "authorized_keys": [authorized_line(key, wanted.key_options, wanted.cluster)],
        "known_hosts": known,
        "config": config_lines(known, key_path, wanted.port) if holds_key else [],
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
    wanted: Lines,
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
        holds_key: blocks_digest(wanted_blocks(nodes, key, existing, key_path, wanted, holds_key=holds_key))
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


def makes_key(request: IdentityRequest, found: Identity) -> bool:
    """Whether this node is to make a new key: it is the first one, and has and trusts none, or is asked for another."""
    return request.make_key and (request.renew_key or not (found.public_key or found.trusted_key))


@dataclasses.dataclass(frozen=True)
class Write:
    """One file of ``~/.ssh``: its content from now on, None for none, and the mode of one that has to be made."""

    path: str
    content: str | None = dataclasses.field(repr=False)
    mode: int = 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be written, in order, and what to say of it. ``leaves``: the directory goes where nothing else is in it."""

    writes: tuple[Write, ...]
    diff: tuple[t.Mapping[str, str], ...]
    public_key: str = ""
    nodes_known: int = 0
    leaves: bool = False


def plan_trust(request: TrustRequest, found: Home, home: SshHome, *, check: bool) -> Plan:
    """How a node comes to trust the others, or no longer to. A key is written first and removed last."""
    if not request.present:
        texts = _texts(found, home, dict.fromkeys(FILE_MODES, ()))
        gone = tuple(Write(path, None) for path in found.pair)
        return Plan((*texts, *gone), (*_shown(texts, found, home), *_gone(gone)), leaves=True)
    key = cluster_key(request.nodes)
    if not key and not check:
        raise ClusterError(
            "no_key",
            "None of the nodes of this run has or knows the cluster's key.",
            "Run again with the first node of the cluster in the limit.",
        )
    drops = _drops_key(request, found)
    shown = key or "ssh-ed25519 (made by the real run)"
    holds_key = not drops and (bool(request.private_key) or found.holds_key)
    lines = wanted_blocks(request.nodes, shown, found.known, home.key_path, request.lines, holds_key=holds_key)
    pair = _pair(request, found, home, key) if request.private_key and found.public_key != key else ()
    told = [{"before": "", "after": f"{home.key_path}: the cluster's private key\n"}] if pair else []
    texts = _texts(found, home, lines)
    gone = tuple(Write(path, None) for path in found.pair) if drops else ()
    diff = (*told, *_shown(texts, found, home), *_gone(gone))
    return Plan((*pair, *texts, *gone), diff, key, len(lines["known_hosts"]))


def _drops_key(request: TrustRequest, found: Home) -> bool:
    """Whether the private key of this node goes: never the cluster's, and never one from elsewhere."""
    if request.private_key or not request.drop_key:
        return False
    return is_revoked(found.public_key, request.nodes) and found.made_key


def _pair(request: TrustRequest, found: Home, home: SshHome, key: str) -> tuple[Write, ...]:
    """The private key that was handed over, and its public half; one that opens no door is refused."""
    # Check mode does not know the key that the first node would make.
    if key and found.handed_key != key:
        raise ClusterError(
            "wrong_key",
            "`private_key` is not the private half of the key that the nodes trust. Nothing was changed.",
            "Hand over the `private_key` that cluster_ssh_identity exports on the first node in the same run.",
        )
    # The private key last: by it the next run sees whether both are there.
    private = Write(home.key_path, request.private_key.rstrip("\n") + "\n", 0o600)
    return Write(home.key_path + ".pub", f"{key} {home.key_comment}\n", 0o644), private


def _texts(found: Home, home: SshHome, lines: t.Mapping[str, t.Sequence[str]]) -> tuple[Write, ...]:
    """The files whose lines of ours are to be others."""
    wanted = {name: set_block(found.texts[name], home.cluster, lines[name]) for name in FILE_MODES}
    return tuple(
        Write(home.file(name), text, FILE_MODES[name]) for name, text in wanted.items() if text != found.texts[name]
    )


def _shown(texts: t.Iterable[Write], found: Home, home: SshHome) -> list[dict[str, str]]:
    before = {home.file(name): text or "" for name, text in found.texts.items()}
    return [
        {
            "before_header": file.path,
            "after_header": file.path,
            "before": before[file.path],
            "after": file.content or "",
        }
        for file in texts
    ]


def _gone(files: t.Iterable[Write]) -> list[dict[str, str]]:
    return [{"before": f"{file.path}\n", "after": ""} for file in files]


__all__ = [
    "Plan",
    "Write",
    "authorized_line",
    "bare_key",
    "blocks_digest",
    "cluster_key",
    "config_lines",
    "first_key",
    "is_loopback",
    "is_revoked",
    "known_hosts_lines",
    "makes_key",
    "outdated",
    "own_names",
    "plan_trust",
    "surplus_keys",
    "trusted_key",
    "wanted_blocks",
]
