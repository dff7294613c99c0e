# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the module azcopy_copy does: find out what is missing, copy only that, prove it, remember it.

Nothing is believed because it is there: a present file counts as copied when the record of an earlier run still fits it
(size and modification time here, size and MD5 at the source), or when its MD5 equals the one at the source.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import stat
import threading
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import suggest_processes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import FATAL_KINDS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyOutcome, CopyRequest, run_copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.drain import LandingItem, drain
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import disk_errors, sweep_parts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.room import available_cpus, free_bytes

RECORD_PREFIX = ".azcopy_copy-"
_BLOCK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file at the source; ``name`` is relative to it, ``md5`` base64 or ''."""

    name: str
    size: int
    md5: str


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the module was asked for besides the request itself."""

    decompress: bool = False
    decompress_engine: str = "collection"
    landing_dir: str = ""
    overwrite: bool = True
    timeout_s: float = 0
    stall_timeout_s: float = 45
    expected_files: int | None = None
    expected_bytes: int | None = None
    processes: int = 0
    force: bool = False
    should_stop: t.Callable[[], bool] | None = None


@dataclasses.dataclass
class Plan:
    """What is at the source, and the part of it that has to be copied."""

    files: list[SourceFile]
    needed: list[SourceFile]
    warnings: list[str]

    @property
    def needed_bytes(self) -> int:
        return sum(file.size for file in self.needed)


@dataclasses.dataclass
class Report:
    """What was copied."""

    copied: int
    bytes: int
    seconds: float
    gbps: float
    job_ids: list[str]
    warnings: list[str]


def share_id(request: CopyRequest) -> str:
    """A stable name for one share of one copy, so that several shares can use one destination."""
    what = json.dumps([request.source, request.destination, request.include_pattern, request.file_list])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


@contextlib.contextmanager
def private_directory(base: str, share: str) -> t.Iterator[str]:
    """A directory that only this user and this run use, below ``base`` ('' is one per user under /var/tmp)."""
    base = base or f"/var/tmp/azcopy-{os.getuid()}"  # noqa: S108 - made with mode 0700, its owner is checked
    path = os.path.join(base, share)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.lstat(base)
    except OSError as exc:
        raise ClusterError("bad_input", f"`{path}` cannot be made: {exc.strerror}.", "Set log_dir.") from exc
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ClusterError(
            "bad_input", f"`{base}` belongs to somebody else.", "Set log_dir to a directory of your own."
        )
    with open(os.path.join(path, "lock"), "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise ClusterError(
                "bad_input", "The same copy is already running on this node.", "Wait for it, or stop it first."
            ) from exc
        yield path


def make_plan(request: CopyRequest, settings: Settings) -> Plan:
    """List the source (AzCopy's dry run: its own view of patterns and lists) and compare with the destination."""
    listing = _dry_run(request, settings)
    files = _source_files(request, listing)
    _check_expected(files, settings)
    if request.is_download:
        target_names(files, settings)  # raises when two files would get one name
        needed, warnings = _needed_downloads(request, settings, files), _unsure(files)
    else:
        needed, warnings = _needed_uploads(request, settings, files)
    return Plan(files, files if settings.force else needed, listing.warnings + warnings)


def _dry_run(request: CopyRequest, settings: Settings) -> CopyOutcome:
    outcome = run_copy(
        dataclasses.replace(request, dry_run=True, decompress=False, processes=_processes(request, settings)),
        timeout_s=settings.timeout_s,
        stall_timeout_s=settings.stall_timeout_s,
        should_stop=settings.should_stop,
    )
    if outcome.error is not None:
        raise outcome.error
    return outcome


def _processes(request: CopyRequest, settings: Settings) -> int:
    return settings.processes or suggest_processes(len(request.file_list or ()), available_cpus())


def _source_files(request: CopyRequest, listing: CopyOutcome) -> list[SourceFile]:
    side = request.destination if request.is_download else request.source
    files = []
    for planned in listing.planned:
        path = planned.destination if request.is_download else planned.source
        name = os.path.relpath(path, side)
        if name == ".":  # a single file
            name = os.path.basename(planned.source)
        if name.startswith("../"):
            raise ClusterError("bad_input", f"`{name}` would leave the destination.", "Rename the blob.")
        files.append(SourceFile(name, planned.size, planned.md5))
    if not files and request.file_list is None:
        raise ClusterError(
            "no_match",
            "No file matched: nothing was copied, although AzCopy calls that a success.",
            "Check the prefix, and include_pattern (it matches file names only and is separated by `;`).",
        )
    if request.file_list is not None:
        missing = sorted(set(request.file_list) - {file.name for file in files})
        if missing:
            raise ClusterError(
                "not_found",
                f"{len(missing)} of {len(request.file_list)} listed files do not exist at the source: "
                f"{', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}.",
                "Correct the list; AzCopy itself passes over such names without a word.",
                missing_files=missing[:1000],
            )
    return sorted(files, key=lambda file: file.name)


def _check_expected(files: list[SourceFile], settings: Settings) -> None:
    size = sum(file.size for file in files)
    for expected, found, what in (
        (settings.expected_files, len(files), "files"),
        (settings.expected_bytes, size, "bytes"),
    ):
        if expected is not None and expected != found:
            raise ClusterError(
                "changed_at_source",
                f"{expected} {what} were expected at the source, {found} are there. Nothing was copied.",
                f"Check pattern or list, or plan again from a fresh listing and set expected_{what} to its result.",
            )


def _unsure(files: list[SourceFile]) -> list[str]:
    bare = sum(not file.md5 for file in files)
    if not bare:
        return []
    return [
        f"{bare} of {len(files)} blobs have no MD5: only their length can be checked, and a blob replaced by one of the "
        "same size is not noticed. Upload with put_md5, or set force to copy them again."
    ]


def target_names(files: t.Iterable[SourceFile], settings: Settings) -> dict[str, str]:
    """Final name of every file: the collection's decompressor takes `.gz` away, AzCopy's (10.31 and later) does not."""
    strip = settings.decompress and settings.decompress_engine == "collection"
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for file in files:
        final = file.name[:-3] if strip and file.name.endswith(".gz") else file.name
        if final in taken:
            raise ClusterError(
                "bad_input",
                f"`{file.name}` and `{taken[final]}` would both become `{final}`.",
                "Rename one of the blobs, or copy them to different destinations.",
            )
        taken[final] = file.name
        names[file.name] = final
    return names


# What has to be copied


def _needed_downloads(request: CopyRequest, settings: Settings, files: list[SourceFile]) -> list[SourceFile]:
    record = _read_record(request)
    names = target_names(files, settings)
    unknown: list[SourceFile] = []
    needed: list[SourceFile] = []
    for file in files:
        status = _status(os.path.join(request.destination, names[file.name]))
        if status is None:
            needed.append(file)
        elif record.get(file.name) == _entry(file, status, settings):
            continue
        elif settings.decompress or not file.md5 or status.st_size != file.size:
            needed.append(file)
        else:
            unknown.append(file)
    sums = _md5_of_all([os.path.join(request.destination, names[file.name]) for file in unknown])
    needed += [file for file, md5 in zip(unknown, sums) if md5 != file.md5]
    present = [file for file in needed if _status(os.path.join(request.destination, names[file.name])) is not None]
    if present and not settings.overwrite:
        raise ClusterError(
            "bad_input",
            f"{len(present)} files exist at the destination and differ from the source: "
            f"{', '.join(file.name for file in present[:5])}.",
            "Set overwrite to true to replace them, or choose another destination.",
            differing_files=[file.name for file in present[:1000]],
        )
    return sorted(needed, key=lambda file: file.name)


def _needed_uploads(
    request: CopyRequest, settings: Settings, files: list[SourceFile]
) -> tuple[list[SourceFile], list[str]]:
    """Compare with what the container holds; without permission to list it, everything has to be uploaded."""
    download = dataclasses.replace(
        request,
        source=request.destination,
        destination="/azcopy-dry-run",
        include_pattern=None,
        content_encoding="",
        put_md5=False,
        file_list=None,
        expected_files=None,
        expected_bytes=None,
    )
    single = os.path.isfile(request.source)
    try:
        there = {file.name: file for file in _source_files(download, _dry_run(download, settings))}
    except ClusterError as exc:
        if exc.kind in ("no_match", "not_found"):
            there = {}
        elif exc.kind == "auth_failed":
            return files, ["The destination may not be listed with this SAS or identity: every file is uploaded again."]
        else:
            raise
    if single:  # a container holds it under its own name, a blob URL is the file itself
        found = [file for name, file in there.items() if name in (files[0].name, _blob_name(request))]
        there = {files[0].name: found[0]} if found else {}
    same = [
        file for file in files if file.name in there and there[file.name].size == file.size and there[file.name].md5
    ]
    paths = [request.source if single else os.path.join(request.source, file.name) for file in same]
    done = {file.name for file, md5 in zip(same, _md5_of_all(paths)) if md5 == there[file.name].md5}
    needed = [file for file in files if file.name not in done]
    present = [file.name for file in needed if file.name in there]
    if present and not settings.overwrite:
        raise ClusterError(
            "bad_input",
            f"{len(present)} blobs exist and differ: {', '.join(present[:5])}.",
            "Set overwrite to true to replace them, or choose another destination.",
        )
    return needed, []


def _blob_name(request: CopyRequest) -> str:
    return request.remote.path.rsplit("/", 1)[-1]


def _status(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _md5_of_all(paths: list[str]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(available_cpus()) as pool:
        return list(pool.map(_md5_of, paths))


def _md5_of(path: str) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open(path, "rb", buffering=0) as stream:
            for block in iter(lambda: stream.read(_BLOCK_BYTES), b""):
                digest.update(block)
    except OSError:
        return ""
    return base64.b64encode(digest.digest()).decode()


# The record of what was copied, beside the data: it lives and dies with it


def _record_path(request: CopyRequest) -> str:
    return os.path.join(request.destination, f"{RECORD_PREFIX}{share_id(request)}.json")


def _entry(file: SourceFile, status: os.stat_result, settings: Settings) -> list[t.Any]:
    how = settings.decompress_engine if settings.decompress else ""
    return [file.size, file.md5, status.st_size, status.st_mtime_ns, how]


def _read_record(request: CopyRequest) -> dict[str, list[t.Any]]:
    try:
        with open(_record_path(request), encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remember(request: CopyRequest, settings: Settings, plan: Plan) -> None:
    """Write the record of a plan that needs nothing, unless an equal one is there: its MD5 sums need not be taken again."""
    if request.is_download and set(_read_record(request)) != {file.name for file in plan.files}:
        _write_record(request, settings, plan.files)


def _write_record(request: CopyRequest, settings: Settings, files: list[SourceFile]) -> None:
    names = target_names(files, settings)
    record = {}
    for file in files:
        status = _status(os.path.join(request.destination, names[file.name]))
        if status is not None:
            record[file.name] = _entry(file, status, settings)
    path = _record_path(request)
    part = f"{path}.part"
    with disk_errors(path):
        with open(part, "w", encoding="utf-8") as stream:
            json.dump(record, stream)
        os.replace(part, path)


# The copy


def copy(request: CopyRequest, settings: Settings, plan: Plan) -> Report:
    """Copy what the plan needs, check it, and write the record."""
    if request.is_download:
        _check_space(request.destination, plan.needed_bytes)
    everything = len(plan.needed) == len(plan.files)
    names = [file.name for file in plan.needed]
    # A single file as the source cannot be listed relative to itself, and needs no list.
    listed = request if everything else dataclasses.replace(request, file_list=names, include_pattern=None)
    listed = dataclasses.replace(listed, expected_files=len(names), expected_bytes=plan.needed_bytes)
    listed = dataclasses.replace(listed, processes=_processes(listed, settings), overwrite="true")
    if request.is_download and settings.decompress and settings.decompress_engine == "collection":
        with _recorded_if_it_fails(request, settings, plan) as finished:
            outcome = _copy_and_inflate(listed, settings, plan.needed, finished)
    else:
        outcome = run_copy(
            dataclasses.replace(listed, decompress=settings.decompress),
            timeout_s=settings.timeout_s,
            stall_timeout_s=settings.stall_timeout_s,
            should_stop=settings.should_stop,
        )
        if outcome.error is not None:
            if settings.decompress:
                _remove_empty(request.destination, names)
            outcome.error.details.setdefault("log_tail", outcome.log_tail[-10:])
            raise outcome.error
    if request.is_download:
        _check_arrived(request, settings, plan.needed)
        _write_record(request, settings, plan.files)
    return Report(len(names), plan.needed_bytes, outcome.seconds, outcome.gbps, outcome.job_ids, outcome.warnings)


def _remove_empty(destination: str, names: list[str]) -> None:
    """Remove empty files that AzCopy has left at final names while it hung on unpacking empty blobs."""
    for name in names:
        path = os.path.join(destination, name)
        status = _status(path)
        if status is not None and status.st_size == 0:
            os.unlink(path)


def _check_space(destination: str, needed: int) -> None:
    folder = destination
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    free = free_bytes(folder)
    if needed > free:
        raise ClusterError(
            "disk_full",
            f"{needed} bytes have to be copied, `{folder}` has {free} bytes free. Nothing was copied.",
            "Free space or choose another destination.",
        )


def _check_arrived(request: CopyRequest, settings: Settings, needed: list[SourceFile]) -> None:
    names = target_names(needed, settings)
    wrong = []
    for file in needed:
        status = _status(os.path.join(request.destination, names[file.name]))
        if status is None or (not settings.decompress and status.st_size != file.size):
            wrong.append(file.name)
    if wrong:
        raise ClusterError(
            "partial",
            f"{len(wrong)} files are missing or have the wrong size after the copy: {', '.join(wrong[:5])}.",
            "Does another program write to the destination? Run again.",
            failed_files=wrong[:1000],
        )


@contextlib.contextmanager
def _recorded_if_it_fails(request: CopyRequest, settings: Settings, plan: Plan) -> t.Iterator[set[str]]:
    """Give a set for the names that are finished, and record them when others fail: the next run copies only the rest.

    Nothing else can tell an unpacked file from a foreign one, as the MD5 at the source is that of the packed one.
    """
    finished: set[str] = set()
    try:
        yield finished
    except BaseException:
        left = {file.name for file in plan.needed} - finished
        with contextlib.suppress(ClusterError):  # a full disk is what made it fail
            _write_record(request, settings, [file for file in plan.files if file.name not in left])
        raise


def _copy_and_inflate(
    request: CopyRequest, settings: Settings, needed: list[SourceFile], done: set[str]
) -> CopyOutcome:
    """AzCopy brings the raw files to the landing place; each is decompressed as soon as it is there, its name put in ``done``."""
    base = settings.landing_dir or request.destination
    landing = os.path.join(base, f"{RECORD_PREFIX}{share_id(request)}.landing")
    shutil.rmtree(landing, ignore_errors=True)  # of a run that was killed
    sweep_parts(request.destination, older_than_s=3600)
    finals = target_names(needed, settings)
    items = [
        LandingItem(
            name=file.name,
            raw_path=os.path.join(landing, file.name),
            final_path=os.path.join(request.destination, finals[file.name]),
            raw_size=file.size,
            raw_md5=file.md5,
            decompress=True if file.name.endswith(".gz") else None,
        )
        for file in needed
    ]
    # The MD5 is checked while decompressing: once is enough.
    raw = dataclasses.replace(request, destination=landing, check_md5="NoCheck", decompress=False)
    outcomes: list[CopyOutcome] = []
    stop = threading.Event()

    def run() -> None:
        outcomes.append(
            run_copy(
                raw,
                timeout_s=settings.timeout_s,
                stall_timeout_s=settings.stall_timeout_s,
                should_stop=lambda: stop.is_set() or (settings.should_stop is not None and settings.should_stop()),
            )
        )

    copier = threading.Thread(target=run)
    copier.start()
    errors: dict[str, ClusterError] = {}
    try:
        for finished in drain(items, copier_done=lambda: not copier.is_alive()):
            if finished.error is None:
                done.add(finished.name)
            else:
                errors[finished.name] = finished.error
                if finished.error.kind in FATAL_KINDS:
                    stop.set()
    except BaseException:
        stop.set()
        raise
    finally:
        copier.join()
        shutil.rmtree(landing, ignore_errors=True)
    outcome = outcomes[0]
    error = merge_errors(outcome.error, errors, len(needed))
    if error is not None:
        raise error
    return outcome


def merge_errors(copying: ClusterError | None, files: t.Mapping[str, ClusterError], total: int) -> ClusterError | None:
    """One error for a copy and its files: what stopped everything, else the files' own."""
    own = {name: error for name, error in files.items() if error.kind != "partial"}
    fatal = [error for error in own.values() if error.kind in FATAL_KINDS]
    if fatal:
        return fatal[0]
    if copying is not None and (copying.kind in FATAL_KINDS or not own):
        return copying if copying.kind != "cancelled" or not files else next(iter(files.values()))
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


__all__ = [
    "Plan",
    "Report",
    "Settings",
    "SourceFile",
    "copy",
    "make_plan",
    "merge_errors",
    "private_directory",
    "remember",
    "share_id",
    "target_names",
]
