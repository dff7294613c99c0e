# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The record of what was copied, beside the data: it lives and dies with it."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import (
    Plan,
    Settings,
    SourceFile,
    status_of,
    target_names,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.share import share_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import DurableTree
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import regular

RECORD_PREFIX = ".azcopy_copy-"


def _record_path(request: CopyRequest) -> str:
    return os.path.join(request.destination, f"{RECORD_PREFIX}{share_id(request)}.json")


def entry(file: SourceFile, status: os.stat_result, settings: Settings) -> list[t.Any]:
    """What the record says of a file that is there: its size and MD5 at the source, size and time here, and who unpacked it."""
    how = settings.decompress_engine if settings.decompress else ""
    return [file.size, file.md5, status.st_size, status.st_mtime_ns, how]


def read_record(request: CopyRequest) -> dict[str, list[t.Any]]:
    """Entries by name; none where there is no record that can be read."""
    try:
        with open(_record_path(request), encoding="utf-8", opener=regular) as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remember(request: CopyRequest, settings: Settings, plan: Plan) -> None:
    """Write the record of a plan that needs nothing, unless an equal one is there: its MD5 sums need not be taken again."""
    if request.is_download and set(read_record(request)) != {file.name for file in plan.files}:
        write_record(request, settings, plan.files)


def write_record(request: CopyRequest, settings: Settings, files: list[SourceFile]) -> None:
    """Record those of the files that are there, once they are on disk: the next run trusts their sizes and times."""
    names = target_names(files, settings)
    record = {}
    for file in files:
        status = status_of(os.path.join(request.destination, names[file.name]))
        if status is not None:
            record[file.name] = entry(file, status, settings)
    path = _record_path(request)
    part = f"{path}.{node_digest(digits=8)}.part"  # two nodes may copy to one destination
    with disk_errors(path):
        DurableTree(request.destination).sync([os.path.normpath(names[name]) for name in record])
        with contextlib.suppress(FileNotFoundError):  # of a run that was killed, or somebody's link
            os.unlink(part)
        with open(part, "x", encoding="utf-8", opener=regular) as stream:
            json.dump(record, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)


@contextlib.contextmanager
def recorded_if_it_fails(request: CopyRequest, settings: Settings, plan: Plan) -> t.Iterator[set[str]]:
    """Give a set for the names that are finished, and record them when others fail: the next run copies only the rest.

    Nothing else can tell an unpacked file from a foreign one, as the MD5 at the source is that of the packed one.
    """
    finished: set[str] = set()
    try:
        yield finished
    except BaseException:
        left = {file.name for file in plan.needed} - finished
        with contextlib.suppress(ClusterError):  # a full disk is what made it fail
            write_record(request, settings, [file for file in plan.files if file.name not in left])
        raise


__all__ = ["RECORD_PREFIX", "entry", "read_record", "recorded_if_it_fails", "remember", "write_record"]
