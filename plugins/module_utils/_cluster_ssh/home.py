# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The files of a user's ``~/.ssh``: read, written at once, and given back as they were."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import stat
import tempfile

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.blocks import split_block
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: The files that hold a block of ours, with the mode of one that we have to make.
FILE_MODES = {"authorized_keys": 0o600, "known_hosts": 0o644, "config": 0o600}

# In a ~/.ssh that we made: it says that the directory may go when nothing else is left in it.
_MADE = ".made_by_cluster_ssh"


@dataclasses.dataclass(frozen=True)
class SshHome:
    """A user's ``~/.ssh``."""

    path: str
    uid: int
    gid: int
    cluster: str

    @classmethod
    def of(cls, user: str, cluster: str) -> SshHome:
        """Find the directory of ``user``; refuses one that is a link, because we write there as root."""
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            raise ClusterError("user_missing", f"There is no user {user} on this node.", "Create it first.") from None
        path = os.path.join(entry.pw_dir, ".ssh")
        if os.path.islink(path):
            raise ClusterError("in_the_way", f"{path} is a link.", "Replace it by a directory.")
        return cls(path, entry.pw_uid, entry.pw_gid, cluster)

    @property
    def key_path(self) -> str:
        """Where the cluster's private key lies."""
        return self.file(f"id_ed25519_{self.cluster}")

    @property
    def key_comment(self) -> str:
        """The comment of a key that we made."""
        return f"{self.cluster} cluster key"

    def made_key(self, public_key: str) -> bool:
        """Whether we made the key that lies here, or handed it over: only then does its .pub say so."""
        if not public_key:
            return False
        return (self.read(self.key_path + ".pub") or "").strip() == f"{public_key} {self.key_comment}"

    def file(self, name: str) -> str:
        """The path of a file of this directory."""
        return os.path.join(self.path, name)

    def make(self) -> None:
        """Make the directory, if it is missing, and remember that."""
        if os.path.isdir(self.path):
            return
        os.mkdir(self.path, 0o700)
        os.chown(self.path, self.uid, self.gid)
        self.write(self.file(_MADE), "This directory was made by the role cluster_ssh.\n", 0o600)

    def read(self, path: str) -> str | None:
        """The content of a file, every byte of it kept, or None."""
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode):
            raise ClusterError("in_the_way", f"{path} is not a regular file.", "Replace it by one.")
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as handle:
            return handle.read()

    def lines(self, name: str) -> tuple[str, ...]:
        """Our lines of one of the files."""
        block, _before, _after = split_block(self.read(self.file(name)) or "", self.cluster)
        return block.lines if block else ()

    def write(self, path: str, content: str | None, mode: int) -> None:
        """Replace a file at once, keeping the mode and owner of one that exists; None removes it."""
        if content is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        uid, gid = self.uid, self.gid
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(path)
            mode, uid, gid = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
        handle, temporary = tempfile.mkstemp(prefix=".cluster_ssh-", dir=self.path)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                stream.write(content)
            os.chown(temporary, uid, gid)
            os.chmod(temporary, mode)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    def leave(self) -> None:
        """Remove the directory again if we made it and nothing else is in it."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if os.listdir(self.path) == [_MADE]:
                os.unlink(self.file(_MADE))
                os.rmdir(self.path)


__all__ = ["FILE_MODES", "SshHome"]
