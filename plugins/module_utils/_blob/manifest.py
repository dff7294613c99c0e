# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The manifest of a dataset: every blob with its size, checksum and ETag, listed once and true for the whole cluster.

On disk it is JSON lines: one header object, then one array per blob in the order of the names. The header names the
format's version, the number of blobs and the digest of all lines that follow, so a cut or edited file is noticed.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import re
import typing as t
from json.encoder import encode_basestring_ascii as _quote

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.own import regular

FORMAT = "hpcai.gpu_cluster/manifest"
VERSION = 1

# Blobs encoded or hashed at a time: large enough for C speed, small enough to be no memory worth mentioning.
_CHUNK = 10_000
_MAX_COMPONENT_BYTES = 255  # NAME_MAX of the Linux filesystems
# AzCopy downloads a file as ".azDownload-<36 characters>-<name>" first (10.32.2).
_MAX_NAME_BYTES = _MAX_COMPONENT_BYTES - 49
_NAMED = 5
_GZIP_ENCODINGS = ("gzip", "x-gzip")


class Blob(t.NamedTuple):
    """One blob. A named tuple, not a dataclass: a million of them are built and read in about a second."""

    name: str  # relative to the directory of its source's prefix, decoded, "/" between components
    size: int
    md5: str = ""  # base64, as the service gives it; "" where the service has none
    etag: str = ""
    encoding: str = ""  # Content-Encoding: "", "gzip", ...
    source: int = 0  # index in Manifest.sources


class Manifest:
    """What there is to stage: ``sources`` (``url``, ``prefix``, never a SAS) and ``blobs`` in the order of names."""

    def __init__(self, sources: t.Iterable[t.Mapping[str, t.Any]], blobs: t.Iterable[Blob]) -> None:
        self.sources = [{"url": str(source["url"]), "prefix": str(source.get("prefix") or "")} for source in sources]
        for source in self.sources:
            if "?" in source["url"]:
                # The message must not repeat the URL: what follows the question mark is usually the secret.
                raise ClusterError(
                    "bad_input", "A source URL of a manifest carries a query part.", "Give the SAS in its own option."
                )
        self.blobs = sorted(blobs)
        self.total_bytes = sum(blob.size for blob in self.blobs)
        self._digest = ""
        #: Of a fresh listing only: by source and name, why a blob cannot be copied as it is now. In no file.
        self.unreadable: dict[tuple[int, str], str] = {}

    @property
    def digest(self) -> str:
        """SHA-256 over sources and blobs: equal digests mean the same names, sizes, checksums and ETags."""
        if not self._digest:
            checksum = hashlib.sha256(_canonical_sources(self.sources))
            for chunk in self._lines():
                checksum.update(chunk)
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
                stream.writelines(self._lines())
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
            blobs: list[Blob] = []
            with collector_paused():
                for lines in iter(lambda: stream.readlines(1 << 20), []):
                    checksum.update(b"".join(lines))
                    try:
                        blobs.extend(map(Blob._make, json.loads(b"[" + b",".join(lines) + b"]")))
                    except (ValueError, TypeError) as exc:
                        raise _damaged(path, f"line {len(blobs) + 2} or one shortly after it is not a blob") from exc
        if len(blobs) != header["blobs"]:
            raise _damaged(path, f"{len(blobs)} blobs were found, {header['blobs']} are announced")
        if checksum.hexdigest() != header["digest"]:
            raise _damaged(path, "its content does not match its digest")
        manifest = cls(header["sources"], blobs)
        manifest._digest = header["digest"]
        return manifest

    @staticmethod
    def read_header(path: str) -> dict[str, t.Any]:
        """``blobs``, ``bytes``, ``digest`` and ``sources`` without reading the rest of the file."""
        with open(path, "rb", opener=regular) as stream:
            return _parse_header(stream.readline(), path)

    def _lines(self) -> t.Iterator[bytes]:
        for start in range(0, len(self.blobs), _CHUNK):
            yield "".join(
                [
                    f"[{_quote(name)},{size},{_quote(md5)},{_quote(etag)},{_quote(encoding)},{source}]\n"
                    for name, size, md5, etag, encoding, source in self.blobs[start : start + _CHUNK]
                ]
            ).encode("ascii")


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


def is_gzip(encoding: str) -> bool:
    """Whether a blob's Content-Encoding says that its bytes are gzip."""
    return encoding.lower() in _GZIP_ENCODINGS


def final_name(blob: Blob, decompress: bool) -> str:
    """The name at the destination: a gzip blob that is decompressed loses a trailing ``.gz``, others keep theirs."""
    name = blob.name
    # A component that is nothing but ".gz" stays: without it the path would end in a slash.
    if decompress and is_gzip(blob.encoding) and name.endswith(".gz") and not name.endswith("/.gz") and name != ".gz":
        return name[:-3]
    return name


# A path that must not exist below a destination, and why. The order is the order of the explanations.
_UNSAFE = (
    (re.compile(r"[\0\n\r]"), "holds a NUL or a line break"),
    (re.compile(r"^/"), "is an absolute path"),
    (re.compile(r"(^|/)\.\.?(/|$)"), "holds a '.' or '..' component"),
    (re.compile(r"^$|//|/$"), "holds an empty component"),
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


def check_names(blobs: t.Sequence[Blob], decompress: bool) -> None:
    """Refuse names that could leave the destination, clash with each other, or clash with our own files.

    Everything else that a blob may be called is legal: spaces, ``;``, ``[``, quotes, unicode.
    """
    names = [final_name(blob, decompress) for blob in blobs]
    _check_paths(_chunks(names, blobs, decompress))
    if decompress:
        _check_unique([blob.name for blob in blobs], blobs, "listed twice")
        _check_no_packed_file_is_a_directory(blobs)
    _check_unique(names, blobs, "the target of two blobs")
    _check_no_file_is_a_directory(names)


def _chunks(names: list[str], blobs: t.Sequence[Blob], decompress: bool) -> t.Iterator[list[str]]:
    """The names at the destination, and where they differ those under which blobs land."""
    for start in range(0, len(names), _CHUNK):
        yield names[start : start + _CHUNK]
        if decompress:
            yield [blob.name for blob in blobs[start : start + _CHUNK]]


def _check_paths(chunks: t.Iterable[list[str]]) -> None:
    refused: dict[str, str] = {}
    for chunk in chunks:
        text = "\n".join(["", *chunk, ""])
        harmless = text.count("\n") == len(chunk) + 1 and text.isascii() and max(map(len, chunk)) <= _MAX_NAME_BYTES
        if not harmless or any(mark in text for mark in _SUSPICIOUS):
            refused.update((name, reason) for name in chunk if (reason := _reason_against(name)))
    if refused:
        raise _unsafe(refused)


def _reason_against(name: str) -> str:
    return next((reason for pattern, reason in _UNSAFE if pattern.search(name)), "") or _too_long(name)


def _unsafe(refused: t.Mapping[str, str]) -> ClusterError:
    """One error for all names that are refused, with why."""
    (name, reason), *_others = refused.items()
    message = f"The blob name {name!r} cannot be staged: it {reason}."
    if len(refused) > 1:
        named = "; ".join(f"{name!r} {reason}" for name, reason in list(refused.items())[:_NAMED])
        message = f"{len(refused)} blob names cannot be staged: {named}{'; …' if len(refused) > _NAMED else '.'}"
    return ClusterError(
        "bad_input",
        message,
        "Rename the blob, or leave it out (`exclude` of the source).",
        name=name,
        names=list(refused)[:100],
    )


def _too_long(name: str) -> str:
    try:
        *directories, file = (len(component.encode("utf-8")) for component in name.split("/"))
    except UnicodeEncodeError:
        return "is not valid unicode"
    if max(directories, default=0) > _MAX_COMPONENT_BYTES:
        return f"holds a component of more than {_MAX_COMPONENT_BYTES} bytes"
    if file > _MAX_NAME_BYTES:
        return f"ends in a component of {file} bytes, and AzCopy leaves room for {_MAX_NAME_BYTES}"
    return ""


def _check_unique(names: list[str], blobs: t.Sequence[Blob], fault: str) -> None:
    if len(set(names)) == len(names):
        return
    seen: dict[str, Blob] = {}
    for name, blob in zip(names, blobs):
        other = seen.setdefault(name, blob)
        if other is not blob:
            both = f"{other.name!r} of source {other.source + 1} and {blob.name!r} of source {blob.source + 1}"
            raise ClusterError(
                "bad_input",
                f"The name {name!r} is {fault} in this dataset: {both}.",
                "Give the sources prefixes or globs that do not overlap, rename one, or stage them to different destinations.",
                name=name,
            )


def _check_no_file_is_a_directory(names: list[str]) -> None:
    directories = {name.rpartition("/")[0] for name in names}
    for directory in list(directories):
        while directory:
            directory = directory.rpartition("/")[0]
            directories.add(directory)
    clash = min(directories.intersection(names), default="")
    if clash:
        raise _file_and_directory(clash)


def _check_no_packed_file_is_a_directory(blobs: t.Sequence[Blob]) -> None:
    """``x.gz`` lands under this name before it becomes ``x``, and so does ``x.gz/y``."""
    inside = [blob for blob in blobs if ".gz/" in blob.name]
    packed = {(blob.source, blob.name) for blob in blobs if blob.name.endswith(".gz")} if inside else set()
    for blob in inside:
        for end in re.finditer(r"\.gz(?=/)", blob.name):
            if (blob.source, blob.name[: end.end()]) in packed:
                raise _file_and_directory(blob.name[: end.end()])


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
    "check_names",
    "collector_paused",
    "final_name",
    "is_gzip",
]
