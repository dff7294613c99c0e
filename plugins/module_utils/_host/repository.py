# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Vendors' package repositories: the files that add one, and its key, which is believed only with its fingerprint."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os.path
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import openpgp
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.sources import open_source

# Its protocol and where it begins, as apt's file:/ and dnf's variables allow them.
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/[^\s\x00-\x1f]+")
# Who fetches, and with which password, in a URL (RFC 3986, "userinfo").
_USER_IN_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#\s]*@")
# The same within a text, where quotes and brackets end a URL.
_USER_IN_TEXT = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#\s\"'<>]*@")
# How dnf is told a password in a .repo file (dnf.conf(5)).
_PASSWORD = re.compile(r"^\s*password\s*=", re.M)


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository to add; ``url`` empty means none. ``name`` is that of the files."""

    url: str = ""
    suite: str = ""
    components: tuple[str, ...] = ()
    key: str = ""
    fingerprint: str = ""
    name: str = "nvidia-driver"

    @property
    def sources(self) -> str:
        """apt's file."""
        return f"/etc/apt/sources.list.d/{self.name}.sources"

    @property
    def repo(self) -> str:
        """dnf's file."""
        return f"/etc/yum.repos.d/{self.name}.repo"

    def keyring(self, manager: str) -> str:
        """Where the key is kept."""
        return (
            f"/etc/apt/keyrings/{self.name}.asc" if manager == "dpkg" else f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{self.name}"
        )


def is_url(text: str) -> bool:
    """Whether a package manager can take it for a repository's URL."""
    return bool(_URL.fullmatch(text))


def refuse_repository(options: t.Mapping[str, t.Any]) -> None:
    """Raise ClusterError for a repository's URL that is none, or that holds a password. Neither is repeated."""
    refuse_passwords(options)
    url = options.get("repository_url")
    if url and not is_url(str(url)):
        raise ClusterError(
            "bad_input",
            "`repository_url` is no URL, so no package could come from there. Nothing was changed.",
            "Write it with its protocol, such as https:// or file:/.",
        )


def refuse_passwords(options: t.Mapping[str, t.Any]) -> None:
    """Raise ClusterError for a repository's URL, or its key's, with a user's name or password in it. They are not repeated.

    On the controller, before a module gets its options: those reach the node's log, and results at ``-vvv``.
    """
    if _USER_IN_URL.match(str(options.get("repository_url") or "")):
        raise ClusterError(
            "bad_input",
            "`repository_url` holds a user or password, which all users of the node could read in the list of repositories, and "
            "which would show in diffs. Nothing was changed.",
            "Take it out of the URL. apt finds it in a file in /etc/apt/auth.conf.d (mode 0600, apt_auth.conf(5)). For dnf write a "
            "file of your own to /etc/yum.repos.d, mode 0600, with the URL as baseurl, username and password: then no other is added.",
        )
    if _USER_IN_URL.match(str(options.get("repository_key") or "")):
        raise ClusterError(
            "bad_input",
            "`repository_key` is a URL that holds a user or password, which would show in diffs and errors. Nothing was changed.",
            "The key is no secret: put it where all nodes can fetch it, or on the nodes, and name its path.",
        )


def shows_password(text: str) -> bool:
    """Whether a text holds a password in a URL, or one for dnf, which a diff may not show."""
    return bool(_PASSWORD.search(text) or _USER_IN_TEXT.search(text))


def repository_files(repository: Repository, manager: str, key_text: str, head: str) -> list[dict[str, t.Any]]:
    """The files that add a repository. A suite is for repositories in Debian's layout; without one it is a flat one."""
    if not repository.url:
        return []
    key = [{"path": repository.keyring(manager), "content": key_text}] if key_text else []
    if manager == "rpm":
        lines = [
            head,
            f"[{repository.name}]",
            f"name={repository.name}",
            f"baseurl={repository.url}/",
            "enabled=1",
            # The tools that flash adapters belong to the RDMA stack, and NVIDIA's repository of CUDA has others.
            "excludepkgs=mft mft-*",
            f"gpgcheck={1 if key_text else 0}",
            *([f"gpgkey=file://{repository.keyring(manager)}"] if key_text else []),
        ]
        return [*key, _list(repository.repo, lines)]
    lines = [head, "Types: deb", f"URIs: {repository.url}/", f"Suites: {repository.suite or './'}"]
    if repository.suite:
        lines.append(f"Components: {' '.join(repository.components or ('main',))}")
    lines.append(f"Signed-By: {repository.keyring(manager) if key_text else repository.key}")
    return [*key, _list(repository.sources, lines)]


def _list(path: str, lines: t.Sequence[str]) -> dict[str, t.Any]:
    """A list of repositories. One of an earlier release may hold a password, which a diff would show once more."""
    return {"path": path, "content": "\n".join([*lines, ""]), "sensitive": shows_password(read_text(Path(path)))}


def is_added(repository: Repository, manager: str, head: str) -> bool:
    """Whether the node has our list of this repository, which begins with ``head``.

    Only what is missing needs a repository, and nodes whose packages are all there may reach none. A list that was added follows
    its address all the same.
    """
    return read_text(Path(repository.sources if manager == "dpkg" else repository.repo)).startswith(head)


def listed_elsewhere(repository: Repository) -> bool:
    """Whether another file of the node has this repository already. What is no file is none, as for apt.

    A second entry for the same address with another key makes apt refuse both (the package cuda-keyring brings one). dnf would
    ask a second one without the password that the first has.
    """
    paths = [*glob.glob("/etc/apt/sources.list"), *glob.glob("/etc/apt/sources.list.d/*")]
    if any(f"{repository.url}/" in read_text(Path(path)) for path in paths if path != repository.sources):
        return True
    base = re.compile(rf"^\s*baseurl\s*=\s*{re.escape(repository.url)}/*\s*$", re.M)
    texts = (read_text(Path(path)) for path in glob.glob("/etc/yum.repos.d/*.repo") if path != repository.repo)
    return any(base.search(text) and _PASSWORD.search(text) for text in texts)


def key_text(repository: Repository, manager: str, *, check: bool) -> str:
    """The repository's key as text, fetched once; empty when a key of the node is used as it is."""
    if not repository.url or not repository.fingerprint:
        if repository.url and repository.key.startswith(("http:", "https:")):
            raise ClusterError(
                "bad_input",
                f"The key of {repository.url} is fetched, but nothing says which one it must be.",
                "Set the fingerprint of the repository's key.",
            )
        return ""
    place = repository.keyring(manager)
    with contextlib.suppress(OSError, ClusterError):
        have = Path(place).read_bytes() if os.path.isfile(place) else b""
        openpgp.check_fingerprint(have, repository.fingerprint, place)
        return have.decode("ascii")
    if check and "://" in repository.key:
        return f"(the key {repository.fingerprint} from {repository.key})\n"
    try:
        with open_source(repository.key) as stream:
            data: bytes = stream.read(1 << 20)
    except OSError as exc:
        raise ClusterError(
            "download_failed",
            f"The repository's key {repository.key} could not be read: {exc}.",
            "Name an address or a path that this node can read.",
        ) from exc
    openpgp.check_fingerprint(data, repository.fingerprint, repository.key)
    return openpgp.armor(openpgp.dearmor(data))


__all__ = [
    "Repository",
    "is_added",
    "is_url",
    "key_text",
    "listed_elsewhere",
    "refuse_passwords",
    "refuse_repository",
    "repository_files",
    "shows_password",
]
