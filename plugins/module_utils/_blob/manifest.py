# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The manifest of a dataset: every blob with its size, checksum and ETag, listed once and true for the whole cluster.

On disk it is JSON lines: one header object, then one array per blob in the order of the names. The header names the
format's version, the number of blobs and the digest of all lines that follow, so a cut or edited file is noticed. In memory
the blobs are these lines, too: see ``blobs``.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import json
import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import (
    Blob,
    Blobs,
    Block,
    decode,
    in_order,
    pack_all,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.encoding import inflated_name, is_gzip
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import regular

FORMAT = "hpcai.gpu_cluster/manifest"
VERSION = 1

_MAX_COMPONENT_BYTES = 255  # NAME_MAX of the Linux filesystems
# AzCopy downloads a file as ".azDownload-<36 characters>-<name>" first (10.32.2).
_AZCOPY_BYTES = 49
_NAMED = 5
_LISTED = 100  # names that an error carries


class NameRoom(t.NamedTuple):
    """How many bytes a name may have as a whole, below the directories that its file will be in, and each component of it."""

    name_bytes: int = 4095
    component_bytes: int = _MAX_COMPONENT_BYTES

    @property
    def file_bytes(self) -> int:
        """The last component, which AzCopy makes longer for a while."""
        return max(self.component_bytes - _AZCOPY_BYTES, 0)


_ROOM = NameRoom()


class Manifest:
    """What there is to stage: ``sources`` (``url``, ``prefix``, never a SAS) and ``blobs`` in the order of names.

    What comes as ``Blobs`` is in this order already.
    """

    def __init__(self, sources: t.Iterable[t.Mapping[str, t.Any]], blobs: t.Iterable[Blob]) -> None:
        self.sources = [{"url": str(source["url"]), "prefix": str(source.get("prefix") or "")} for source in sources]
        for source in self.sources:
            if "?" in source["url"]:
                # The message must not repeat the URL: what follows the question mark is usually the secret.
                raise ClusterError(
                    "bad_input", "A source URL of a manifest carries a query part.", "Give the SAS in its own option."
                )
        self.blobs = blobs if isinstance(blobs, Blobs) else Blobs.of(blobs)
        self.total_bytes = sum(self.blobs.sizes)
        self._digest = ""
        #: Of a fresh listing only: by source and name, why a blob cannot be copied as it is now. In no file.
        self.unreadable: dict[tuple[int, str], str] = {}

    @property
    def digest(self) -> str:
        """SHA-256 over sources and blobs: equal digests mean the same names, sizes, checksums and ETags."""
        if not self._digest:
            checksum = hashlib.sha256(_canonical_sources(self.sources))
            for lines in self.blobs.texts():
                checksum.update(lines)
            self._digest = checksum.hexdigest()
        return self._digest

    def write(self, path: str) -> None:
        """Write atomically: readers see the old file or the whole new one."""
        header = {
            "format": FORMAT,
            "version": VERSION,
            "blobs": len(self.blobs),
            "bytes": self.total_bytes,
            "digest": self.digest,
            "sources": self.sources,
        }
        part = f"{path}.{os.getpid()}.part"
        try:
            with open(part, "wb", opener=regular) as stream:
                stream.write(json.dumps(header, separators=(",", ":"), sort_keys=True).encode() + b"\n")
                stream.writelines(self.blobs.texts())
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(part, path)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise

    @classmethod
    def read(cls, path: str) -> Manifest:
        """Read a manifest and check it against the count and the digest in its header."""
        with open(path, "rb", opener=regular) as stream:
            header = _parse_header(stream.readline(), path)
            checksum = hashlib.sha256(_canonical_sources(header["sources"]))
            blocks: list[Block] = []
            count = 0
            with collector_paused():
                for lines in iter(lambda: b"".join(stream.readlines(1 << 20)), b""):
                    checksum.update(lines)
                    try:
                        blobs = decode(lines)
                        blocks += pack_all(blobs)
                    except (ValueError, TypeError, OverflowError) as exc:
                        raise _damaged(path, f"line {count + 2} or one shortly after it is not a blob") from exc
                    count += len(blobs)
        if count != header["blobs"]:
            raise _damaged(path, f"{count} blobs were found, {header['blobs']} are announced")
        if checksum.hexdigest() != header["digest"]:
            raise _damaged(path, "its content does not match its digest")
        manifest = cls(header["sources"], Blobs(in_order(blocks)))
        manifest._digest = header["digest"]
        return manifest

    @staticmethod
    def read_header(path: str) -> dict[str, t.Any]:
        """``blobs``, ``bytes``, ``digest`` and ``sources`` without reading the rest of the file."""
        with open(path, "rb", opener=regular) as stream:
            return _parse_header(stream.readline(), path)


@contextlib.contextmanager
def collector_paused() -> t.Iterator[None]:
    """Keep the cycle collector away while a million tuples are made: it would walk all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def final_name(blob: Blob, decompress: bool) -> str:
    """The name at the destination: a gzip blob that is decompressed loses a trailing ``.gz``, others keep theirs."""
    return inflated_name(blob.name) if decompress and is_gzip(blob.name, blob.encoding) else blob.name


# What no file below a destination can be called, and why: the file system would take it for another name, or another place.
_NO_PATH = (
    (re.compile(r"^$"), "is that of its source's prefix, a directory"),
    (re.compile(r"^/"), "is an absolute path"),
    (re.compile(r"(^|/)\.\.?(/|$)"), "holds a '.' or '..' component"),
    (re.compile(r"//|/$"), "holds an empty component"),
)
# A path that must not exist below a destination, and why. The order is the order of the explanations.
_UNSAFE = (
    (re.compile(r"[\0\n\r]"), "holds a NUL or a line break"),
    *_NO_PATH,
    (re.compile(r"(^|/)\.staging(/|$)"), "uses the component '.staging', which this collection keeps for itself"),
    (re.compile(r"(^|/)\.azDownload-"), "begins with '.azDownload-', which AzCopy keeps for unfinished downloads"),
    # What ``_gzip.part_file`` names its files, and sweeps. Any other ``.part`` is a name like all.
    (
        re.compile(r"(^|/)\.[0-9a-f]{12}\.[^/]*-\d+-\d+\.part(/|$)"),
        "has the form of the names that this collection keeps for unfinished files",
    ),
)
# Substrings without which none of the above can match, in a text of names that begins, separates and ends with "\n".
_SUSPICIOUS = ("\0", "\r", "\n\n", "\n/", "//", "/\n", "/.", "\n.")


def check_names(blobs: Blobs, decompress: bool, room: NameRoom = _ROOM) -> None:
    """Refuse names that could leave the destination, have no room there, clash with each other, or clash with our own files.

    Everything else that a blob may be called is legal: spaces, ``;``, ``[``, quotes, unicode.
    """
    refused: dict[str, str] = {}
    count = 0
    clashes = _Clashes(decompress)
    for portion in blobs.portions():
        names = [final_name(blob, decompress) for blob in portion]
        for name, reason in _unsafe_names(portion, names, decompress, room):
            count += 1
            if len(refused) < _LISTED:
                refused[name] = reason
        clashes.look_for(portion, names)
    if refused:
        raise _unsafe(refused, count, "Rename the blob, or leave it out (`exclude` of the source).")
    if clashes.error is not None:
        raise clashes.error


def check_paths(names: t.Iterable[str]) -> None:
    """Refuse names that no file below a destination can have, or that AzCopy has no room for: those of one copy, not of a dataset."""
    found = ((name, _reason_against(name, _ROOM, _NO_PATH)) for name in names)
    refused = {name: reason for name, reason in found if reason}
    if refused:
        first = dict(itertools.islice(refused.items(), _LISTED))
        raise _unsafe(
            first, len(refused), "Rename the blob, or choose what to copy by a source, pattern or list without it."
        )


def _unsafe_names(
    blobs: t.Sequence[Blob], names: list[str], decompress: bool, room: NameRoom
) -> t.Iterator[tuple[str, str]]:
    """Names that are no path below a destination, and why: as they will be there, or as they land where that is another name."""
    known = [*names, *(blob.name for blob in blobs)] if decompress else names
    text = "\n".join(["", *known, ""])
    harmless = (
        text.count("\n") == len(known) + 1
        and text.isascii()
        and max(map(len, known)) <= min(room.file_bytes, room.name_bytes)
    )
    if harmless and not any(mark in text for mark in _SUSPICIOUS):
        return
    for blob, name in zip(blobs, names):
        for one in (name, blob.name):
            reason = _reason_against(one, room, _UNSAFE)
            if reason:
                yield one, reason
                break


def _reason_against(name: str, room: NameRoom, unsafe: t.Iterable[tuple[re.Pattern[str], str]]) -> str:
    return next((reason for pattern, reason in unsafe if pattern.search(name)), "") or _too_long(name, room)


def _unsafe(refused: t.Mapping[str, str], count: int, remedy: str) -> ClusterError:
    """One error for all names that are refused: how many, and the first of them with why."""
    (name, reason), *_others = refused.items()
    message = f"The blob name {name!r} cannot be staged: it {reason}."
    if count > 1:
        named = "; ".join(f"{name!r} {reason}" for name, reason in list(refused.items())[:_NAMED])
        message = f"{count} blob names cannot be staged: {named}{'; …' if count > _NAMED else '.'}"
    return ClusterError(
        "bad_input",
        message,
        remedy,
        name=name,
        names=list(refused),
    )


def _too_long(name: str, room: NameRoom) -> str:
    try:
        *directories, file = (len(component.encode("utf-8")) for component in name.split("/"))
    except UnicodeEncodeError:
        return "is not valid unicode"
    if max(directories, default=0) > room.component_bytes:
        return f"holds a component of more than {room.component_bytes} bytes"
    if file > room.file_bytes:
        return f"ends in a component of {file} bytes, and AzCopy leaves room for {room.file_bytes}"
    whole = sum(directories) + len(directories) + file
    if whole > room.name_bytes:
        return (
            f"has {whole} bytes, and the paths of the destination and of its landing directory leave {room.name_bytes} of the "
            "4,095 that a path may have"
        )
    return ""


class _Clashes:
    """Names that cannot stand side by side, found in one look at all names in their order.

    What a name is the beginning of comes right after it. So of the files before a name only those have to be known that it
    begins with: they are what it could clash with, and few.
    """

    def __init__(self, decompress: bool) -> None:
        self._decompress = decompress
        self._before = Blob("", 0)  # a name that none has
        self._files: list[tuple[str, Blob]] = []  # at the destination, by their names there
        self._packed: list[Blob] = []  # which land under names that they lose
        self.error: ClusterError | None = None

    def look_for(self, blobs: t.Sequence[Blob], names: t.Sequence[str]) -> None:
        """Look at the next blobs, which have these names at the destination. The first clash becomes ``error``."""
        for blob, name in zip(blobs, names):
            if self.error is None:
                self.error = self._clash(blob, name)

    def _clash(self, blob: Blob, name: str) -> ClusterError | None:
        raw, before = blob.name, self._before
        self._before = blob
        if raw == before.name:
            return _twice(raw, before, blob, "listed twice" if self._decompress else "the target of two blobs")
        self._files = [(file, other) for file, other in self._files if raw.startswith(file)]
        for file, other in self._files:
            if file == name:
                return _twice(name, other, blob, "the target of two blobs")
            if raw[len(file)] == "/":
                return _file_and_directory(file)
        self._files.append((name, blob))
        if self._packed:
            self._packed = [other for other in self._packed if raw.startswith(other.name)]
            # It would land in a directory that is a file meanwhile; sources land apart.
            for other in self._packed:
                if raw[len(other.name)] == "/" and other.source == blob.source:
                    return _file_and_directory(other.name)
        if name != raw:
            self._packed.append(blob)
        return None


def _twice(name: str, one: Blob, other: Blob, fault: str) -> ClusterError:
    both = f"{one.name!r} of source {one.source + 1} and {other.name!r} of source {other.source + 1}"
    return ClusterError(
        "bad_input",
        f"The name {name!r} is {fault} in this dataset: {both}.",
        "Give the sources prefixes or globs that do not overlap, rename one, or stage them to different destinations.",
        name=name,
    )


def _file_and_directory(name: str) -> ClusterError:
    return ClusterError(
        "bad_input",
        f"The blob {name!r} is a file and, for other blobs, a directory.",
        "A filesystem cannot hold both: rename the blob, or leave it out (`exclude` of the source).",
        name=name,
    )


def _canonical_sources(sources: t.Any) -> bytes:
    return json.dumps(sources, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def _parse_header(line: bytes, path: str) -> dict[str, t.Any]:
    try:
        header = json.loads(line)
    except ValueError as exc:
        raise _damaged(path, "its first line is not a header") from exc
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _damaged(path, "its first line is not a header")
    if header.get("version") != VERSION:
        raise ClusterError(
            "bad_input",
            f"The manifest {path} has version {header.get('version')!r}, this release reads version {VERSION}.",
            "List the dataset again, or read it with the release that wrote it.",
        )
    if not all(key in header for key in ("blobs", "bytes", "digest", "sources")):
        raise _damaged(path, "its header is incomplete")
    return header


def _damaged(path: str, why: str) -> ClusterError:
    return ClusterError(
        "corrupt", f"The manifest {path} is damaged: {why}.", "Delete the file and list the dataset again.", path=path
    )


__all__ = [
    "FORMAT",
    "VERSION",
    "Blob",
    "Manifest",
    "NameRoom",
    "check_names",
    "check_paths",
    "collector_paused",
    "final_name",
]
