# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Have AzCopy bring files to a directory of our own, and give each its final name when it is whole and, if wanted, inflated.

AzCopy writes through any link below its destination (10.32.2), and directories there may belong to users: it never works in them
as root. Final names are given without following a link (``_host.beneath``).
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.judge import passed_over
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import FATAL_KINDS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import (
    Settings,
    SourceFile,
    status_of,
    target_names,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.record import RECORD_PREFIX
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyOutcome, run_copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.share import share_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import is_gzip
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.drain import LandingItem, drain
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors, sweep_parts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import make_own_directory


def land(request: CopyRequest, settings: Settings, needed: list[SourceFile], done: set[str]) -> CopyOutcome:
    """AzCopy brings the files to the landing place; each is finished as soon as it is there, its name put in ``done``."""
    # What is not inflated here is only renamed, and has to be on the file system of its destination for that.
    base = (settings.landing_dir if settings.inflates_here else "") or request.destination
    # A name of this node's own: others may copy the same to the same place.
    landing = os.path.join(base, f"{RECORD_PREFIX}{node_digest(share_id(request))}.landing")
    shutil.rmtree(landing, ignore_errors=True)  # of a run that was killed
    with disk_errors(landing):
        make_own_directory(landing)
    sweep_parts(request.destination, older_than_s=3600)
    raw = dataclasses.replace(request, destination=landing, decompress=settings.inflated_by_azcopy)
    if settings.inflates_here:  # the MD5 is checked while decompressing: once is enough
        raw = dataclasses.replace(raw, check_md5="NoCheck")
    copier = _Copier(raw, settings)
    try:
        if settings.inflated_by_azcopy:
            copier.wait()  # it makes empty files while it hangs on blobs that it cannot inflate
            if copier.outcome.error is not None:
                _remove_empty(landing, needed)
        errors = _finish(_items(request, settings, needed, landing), copier, done)
    except BaseException:
        copier.cancel()
        raise
    finally:
        copier.wait()
        shutil.rmtree(landing, ignore_errors=True)
    error = merge_errors(_corrected(copier.outcome.error, errors, len(needed)), errors, len(needed))
    if error is not None:
        if copier.outcome.log_tail:
            error.details.setdefault("log_tail", copier.outcome.log_tail[-10:])
        raise error
    return copier.outcome


def _remove_empty(landing: str, needed: list[SourceFile]) -> None:
    for file in needed:
        status = status_of(os.path.join(landing, file.name))
        if status is not None and status.st_size == 0:
            os.unlink(os.path.join(landing, file.name))


def _corrected(error: ClusterError | None, files: t.Mapping[str, ClusterError], listed: int) -> ClusterError | None:
    """Listed files that AzCopy seems to have passed over were looked for in the landing place, which whole ones have left."""
    if error is None or error.kind != "not_found" or "missing_files" not in error.details:
        return error
    missing = sorted(name for name, own in files.items() if own.kind == "partial")
    return passed_over(missing, listed) if missing else None


def _items(request: CopyRequest, settings: Settings, needed: list[SourceFile], landing: str) -> list[LandingItem]:
    finals = target_names(needed, settings)
    return [
        LandingItem(
            name=file.name,
            raw_path=os.path.join(landing, file.name),
            final_path=os.path.join(request.destination, finals[file.name]),
            raw_size=None if settings.inflated_by_azcopy else file.size,
            raw_md5=file.md5 if settings.inflates_here else "",
            # A dry run tells no Content-Encoding. The bytes tell where the name does not.
            decompress=(is_gzip(file.name) or None) if settings.inflates_here else False,
            root=request.destination,
            checked=not settings.inflates_here,
        )
        for file in needed
    ]


def _finish(items: list[LandingItem], copier: _Copier, done: set[str]) -> dict[str, ClusterError]:
    """Finish what lands, until the copier has ended; returns the errors of files. One that all files share ends the copy."""
    errors: dict[str, ClusterError] = {}
    for finished in drain(items, copier_done=copier.ended):
        if finished.error is None:
            done.add(finished.name)
            continue
        errors[finished.name] = finished.error
        if finished.error.kind in FATAL_KINDS:
            copier.cancel()
    return errors


class _Copier:
    """AzCopy in a thread of its own, while this one finishes what has landed."""

    outcome: CopyOutcome

    def __init__(self, request: CopyRequest, settings: Settings) -> None:
        self._request = request
        self._settings = settings
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.outcome = run_copy(
            self._request,
            timeout_s=self._settings.timeout_s,
            stall_timeout_s=self._settings.stall_timeout_s,
            should_stop=self._should_stop,
        )

    def _should_stop(self) -> bool:
        return self._cancelled.is_set() or (self._settings.should_stop is not None and self._settings.should_stop())

    def ended(self) -> bool:
        """Whether nothing more will land."""
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """End AzCopy soon."""
        self._cancelled.set()

    def wait(self) -> None:
        """Until AzCopy has ended. Then ``outcome`` is there."""
        self._thread.join()


def merge_errors(copying: ClusterError | None, files: t.Mapping[str, ClusterError], total: int) -> ClusterError | None:
    """One error for a copy and its files: what stopped everything, else the files' own."""
    own = {name: error for name, error in files.items() if error.kind != "partial"}
    fatal = [error for error in own.values() if error.kind in FATAL_KINDS]
    if fatal:
        return fatal[0]
    if copying is not None and (copying.kind in FATAL_KINDS or not own):
        return copying
    if not files:
        return None
    names = sorted(own or files)
    kinds = {error.kind for error in (own or files).values()}
    first = (own or files)[names[0]]
    more = f" ({len(names)} of {total} files failed)" if len(names) > 1 else ""
    return ClusterError(
        kinds.pop() if len(kinds) == 1 else "partial",
        f"{first.message}{more} The others were copied.",
        first.remedy,
        failed_files=names[:1000],
        file_errors={name: str(own[name]) for name in list(own)[:20]},
    )


__all__ = ["land", "merge_errors"]
