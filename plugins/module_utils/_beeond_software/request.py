# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of an installation: options of ``beeond_software``, and what is wrong in them."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import REPOSITORY_KEY, from_options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository, is_url

SPEC: dict[str, t.Any] = {
    "version": {"type": "int", "choices": [7, 8]},
    "packages": {"type": "list", "elements": "raw", "default": ["beeond", "libbeegfs-ib", {"dpkg": "pdsh"}]},
    "pin": {"type": "str", "default": ""},
    "repository_url": {"type": "str", "default": ""},
    "repository_suite": {"type": "str", "default": ""},
    "repository_el": {"type": "str", "default": ""},
    **REPOSITORY_KEY,
    "client_build": {"type": "bool", "default": True},
    "client_build_args": {"type": "str", "default": ""},
    "kernel": {"type": "str", "default": ""},
    # Where the action puts a key of the controller.
    "repository_key_text": {"type": "str", "default": "", "no_log": False},
}
NAME = "beegfs"
HEAD = "# Written by hpcai.gpu_cluster.beeond_software"
#: A version with or without epoch and release, as dpkg and rpm write them, and ``*`` as in a file's name.
PIN = re.compile(r"(\d+:)?(\d+)[0-9A-Za-z.~+_*-]*")
_KERNEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._+~-]*)?")
_WORD = re.compile(r"[A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class Software:
    """What a node is to have. ``version`` is the major one, 0 for any."""

    packages: tuple[t.Any, ...]
    pin: str
    repository_url: str
    repository_suite: str
    repository_el: str
    repository_key: str
    repository_fingerprint: str
    repository_key_text: str
    client_build: bool
    client_build_args: str
    kernel: str
    version: int

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> Software:
        """The request behind a module's parameters, which Ansible has checked and filled up."""
        software: Software = from_options(
            cls,
            options,
            version=options["version"] or 0,
            repository_url=options["repository_url"].rstrip("/"),
            repository_key=options["repository_key"] or default_key(options["repository_url"]),
        )
        software.check()
        return software

    def check(self) -> None:
        """Raise ClusterError for a version that is none, or of another BeeGFS, and for a repository without a key to trust."""
        found = PIN.fullmatch(self.pin)
        if self.pin and not found:
            _refuse(f"`pin` is {self.pin!r}.", "Write BeeGFS' version, such as 8.3.1, or 20:8.3.1* with its epoch.")
        if found and self.version and int(found[2]) != self.version:
            _refuse(
                f"`pin` asks for BeeGFS {self.pin}, and `version` for {self.version}.",
                f"Write a version of BeeGFS {self.version}, or the other number.",
            )
        for name in ("repository_suite", "repository_el"):
            if not _WORD.fullmatch(getattr(self, name)):
                _refuse(f"`{name}` is {getattr(self, name)!r}.", "Write a name such as noble or rhel9.")
        if len(self.client_build_args.splitlines()) > 1:
            _refuse(
                "`client_build_args` has several lines, of which the build would read one.", "Write it in one line."
            )
        if not _KERNEL.fullmatch(self.kernel):
            _refuse(f"`kernel` is {self.kernel!r}.", "Write the release of a kernel as `uname -r` prints it.")
        if not (self.repository_suite or self.repository_el):
            return
        if not is_url(self.repository_url):
            _refuse("`repository_url` is no URL.", "Write it with its protocol, such as https:// or file:/.")
        if not self.repository_fingerprint.strip():
            _refuse(
                f"Nothing says which key the repository {self.repository_url} must have.",
                "Set `repository_fingerprint` to the fingerprint of the vendor's key.",
            )

    def repository(self, manager: str) -> Repository:
        """The repository for a package system; without a URL where the node is said to have one already."""
        if manager == "rpm":
            url = f"{self.repository_url}/dists/{self.repository_el}" if self.repository_el else ""
            return Repository(url=url, key=self.repository_key, fingerprint=self.repository_fingerprint, name=NAME)
        return Repository(
            url=self.repository_url if self.repository_suite else "",
            suite=self.repository_suite,
            components=("non-free",),
            key=self.repository_key,
            fingerprint=self.repository_fingerprint,
            name=NAME,
        )


def default_key(url: str) -> str:
    """Where a release of the vendor has its key."""
    return f"{url.rstrip('/')}/gpg/GPG-KEY-beegfs" if url else ""


def _refuse(message: str, remedy: str) -> t.NoReturn:
    raise ClusterError("bad_input", f"{message} Nothing was changed.", remedy)


__all__ = ["HEAD", "NAME", "PIN", "SPEC", "Software", "default_key"]
