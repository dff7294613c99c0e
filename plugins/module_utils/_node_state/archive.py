# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Directories that are unpacked from an archive, at once or not at all, and what is built in them."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
import time

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.sources import open_source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.label import label_tree
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import Archive

#: Left in a directory that was unpacked from an archive: says which one, and what was built in it, so that the next run need
#: not look further.
_MARKER = ".node_state.json"
_CHUNK = 1 << 20
#: Longer than any archive takes to be fetched and unpacked.
_ABANDONED_S = 86_400


def read_marker(path: str) -> tuple[str, tuple[str, ...]]:
    """The digest of the archive that was unpacked into ``path``, and the words of the command that was run in it."""
    try:
        with open(os.path.join(path, _MARKER), encoding="utf-8") as handle:
            marker = json.load(handle)
        return str(marker["sha256"]), tuple(marker.get("build", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "", ()


def _mark(path: str, archive: Archive, *, built: bool) -> None:
    marker = {"sha256": archive.sha256, **({"build": archive.build} if built else {})}
    with open(os.path.join(path, _MARKER), "w", encoding="utf-8") as stream:
        json.dump(marker, stream)


def unpack(archive: Archive, host: Host) -> None:
    """Make the directory of an archive. It appears when it is whole."""
    parent, prefix = os.path.dirname(archive.path), f".{os.path.basename(archive.path)}.node_state-"
    own = f"{prefix}{node_digest(digits=8)}-"
    _sweep(os.path.join(parent, prefix), os.path.join(parent, own))
    work = tempfile.mkdtemp(prefix=own, dir=parent)
    try:
        packed, tree = os.path.join(work, "archive"), os.path.join(work, "tree")
        fetch_archive(archive.staged_src or archive.src, packed, archive.sha256, archive.timeout_s)
        _extract(archive, packed, tree, host)
        _mark(tree, archive, built=False)
        os.chmod(tree, 0o755)  # noqa: S103 - programs for everybody
        label_tree(tree, archive.path, host)
        _give_name(tree, archive)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sweep(prefix: str, own: str) -> None:
    """Remove what killed runs left behind: this node's at once, that of nodes which share the directory when no process can be at it."""
    for leftover in glob.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(FileNotFoundError):  # another node sweeps, or has ended
            if leftover.startswith(own) or time.time() - os.stat(leftover).st_mtime > _ABANDONED_S:
                shutil.rmtree(leftover)


def _give_name(tree: str, archive: Archive) -> None:
    try:
        os.rename(tree, archive.path)
    except OSError as exc:
        quicker = exc.errno in (errno.EEXIST, errno.ENOTEMPTY) and read_marker(archive.path)[0] == archive.sha256
        if not quicker:  # else another node that shares the directory has unpacked the same
            raise


def _extract(archive: Archive, packed: str, tree: str, host: Host) -> None:
    os.mkdir(tree, 0o755)
    strip = f"--strip-components={archive.strip_components}"
    rc, _out, err = host.run_command(["tar", "-x", "-f", packed, "-C", tree, "--no-same-owner", strip])
    if rc != 0:
        raise ClusterError("unpack_failed", f"tar could not unpack it: {err.strip()[:2000]}", "See the message.")
    if not os.listdir(tree):
        raise ClusterError(
            "unpack_failed",
            f"Nothing was left to put at {archive.path}.",
            "Lower strip_components of the archive.",
        )


def build(archive: Archive, host: Host) -> None:
    """Run the command of an archive in its directory."""
    words, path = archive.build, archive.path
    rc, out, err = host.run_command(["timeout", str(archive.build_timeout_s), *words], cwd=path)
    if rc == 124:
        raise ClusterError(
            "timeout",
            f"{words[0]} in {path} took longer than {archive.build_timeout_s} s and was stopped.",
            "Raise build_timeout_s.",
        )
    if rc != 0:
        said = "\n".join((out + err).strip().splitlines()[-20:])
        raise ClusterError(
            "build_failed", f"{words[0]} in {path} failed with {rc}: {said}", "See what it said, run again."
        )
    label_tree(path, path, host)
    # Last, so that a build that was interrupted is done again.
    _mark(path, archive, built=True)


def fetch_archive(source: str, target: str, sha256: str, timeout_s: int) -> None:
    """Copy or download ``source`` to ``target``; it is checked before anything reads it."""
    digest, deadline = hashlib.sha256(), time.monotonic() + timeout_s
    # A mirror's address may carry a password: errors show only what follows the last slash.
    name = source.rsplit("/", 1)[-1].split("?", 1)[0]
    try:
        with open_source(source) as stream, open(target, "wb") as out:
            for chunk in iter(lambda: stream.read(_CHUNK), b""):
                digest.update(chunk)
                out.write(chunk)
                if time.monotonic() > deadline:
                    raise ClusterError(
                        "timeout",
                        f"Fetching {name} took longer than {timeout_s} s.",
                        "Use a nearer mirror or give the archive more time.",
                    )
    except OSError as exc:
        code = getattr(exc, "code", None)
        if code:
            raise ClusterError("download_failed", f"{name}: the server said {code}.", "Check its address.") from exc
        reason = getattr(exc, "reason", None) or exc.strerror or type(exc).__name__
        raise ClusterError("download_failed", f"{name} could not be read: {reason}.", "Check its address.") from exc
    if digest.hexdigest() != sha256:
        raise ClusterError(
            "checksum",
            f"{name} has the sha256 {digest.hexdigest()}, but {sha256} was expected. Nothing was unpacked.",
            "Fetch it again, or correct the sha256 after checking it with its vendor.",
        )


__all__ = ["build", "fetch_archive", "read_marker", "unpack"]
