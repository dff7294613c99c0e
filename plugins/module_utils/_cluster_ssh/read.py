# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a node says of itself, and what is in a user's ``~/.ssh``. Changes nothing."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import socket
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import FILE_MODES, SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.model import Home, Identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import (
    bare_key,
    blocks_digest,
    is_loopback,
    trusted_key,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.request import (
    IdentityRequest,
    TrustRequest,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host


def host_keys(directory: str) -> list[str]:
    """sshd's public keys. DSA is left out: no ssh of today accepts it."""
    keys = []
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "ssh_host_*_key.pub"))):
        with open(path, encoding="utf-8") as handle:
            key = bare_key(handle.readline())
        if key and not key.startswith("ssh-dss "):
            keys.append(key)
    if not keys:
        raise ClusterError(
            "no_host_keys", f"There is no ssh_host_*_key.pub in {directory}.", "Install sshd, or run `ssh-keygen -A`."
        )
    return keys


def is_bridge(interface: str) -> bool:
    """Whether an interface is a software bridge: those of container engines have the same address on every node."""
    return os.path.isdir(f"/sys/class/net/{interface}/bridge")


def parse_addresses(output: str) -> list[tuple[str, str]]:
    """Interfaces and addresses in what `ip -o addr show scope global` prints."""
    found = re.findall(r"^\d+: (\S+)\s+inet6? ([0-9a-f.:]+)/", output, re.MULTILINE)
    return [(interface.split("@")[0], address) for interface, address in found]


def names_of(host: Host, extra_names: t.Iterable[str]) -> list[str]:
    """Everything that this node is called."""
    hostname = socket.gethostname()
    names = {hostname, hostname.split(".")[0], *extra_names}
    ip = host.get_bin_path("ip")
    if ip:
        _rc, out, _err = host.run_command([ip, "-o", "addr", "show", "scope", "global"])
        names.update(address for interface, address in parse_addresses(out) if not is_bridge(interface))
    else:
        with contextlib.suppress(OSError):
            names.update(socket.gethostbyname_ex(hostname)[2])
    return sorted(name for name in names if name and not is_loopback(name))


def public_key_of(key_path: str, host: Host) -> str:
    """The public half of a private key, or an empty string where there is no key."""
    if not os.path.exists(key_path):
        return ""
    rc, out, err = host.run_command(["ssh-keygen", "-y", "-P", "", "-f", key_path])
    if rc != 0:
        raise ClusterError(
            "key_damaged",
            f"{key_path} cannot be read: {err.strip()[:300]}",
            "Run the role's remove entry point on this node, then the role again.",
        )
    return " ".join(out.split()[:2])


def public_half(private_key: str, host: Host) -> str:
    """The public half of a private key that lies nowhere yet, or "" where it is none."""
    if not private_key:
        return ""
    argv = ["ssh-keygen", "-y", "-P", "", "-f", "/dev/stdin"]
    rc, out, _err = host.run_command(argv, data=private_key.rstrip("\n") + "\n")
    return bare_key(out) if rc == 0 else ""


def made_in_part(home: SshHome, host: Host) -> bool:
    """Whether a run died while it put a new key in place: the public half lies there, the private one still beside it."""
    fresh = home.read(home.key_path + ".new")
    made = public_half(fresh, host) if fresh else ""
    return bool(made) and made == bare_key(home.read(home.key_path + ".pub") or "")


def read_identity(request: IdentityRequest, home: SshHome, host: Host) -> Identity:
    """What this node has to tell the others. Its host keys and names are what they will write down."""
    blocks = {name: home.lines(name) for name in FILE_MODES}
    public_key = public_key_of(home.key_path, host)
    return Identity(
        names=tuple(names_of(host, request.extra_names)),
        host_keys=tuple(host_keys(request.host_key_directory)),
        public_key=public_key,
        trusted_key=trusted_key(blocks["authorized_keys"]),
        blocks=blocks_digest(blocks),
        made_key=home.made_key(public_key),
    )


def read_home(request: TrustRequest, home: SshHome, host: Host) -> Home:
    """The user's ``~/.ssh``. A damaged key does not keep the trust from being taken away: it is not read for that."""
    public_key = ""
    if request.present and (request.private_key or request.drop_key):
        public_key = public_key_of(home.key_path, host)
    return Home(
        texts={name: home.read(home.file(name)) for name in FILE_MODES},
        known=tuple(home.lines("known_hosts")),
        pair=tuple(path for path in (home.key_path, home.key_path + ".pub") if os.path.lexists(path)),
        holds_key=os.path.exists(home.key_path),
        public_key=public_key,
        made_key=home.made_key(public_key),
        handed_key=public_half(request.private_key, host) if request.present else "",
    )


__all__ = ["host_keys", "made_in_part", "names_of", "parse_addresses", "public_key_of", "read_home", "read_identity"]
