# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""AzCopy's JSON output, and the verdict on a run: pure functions on text and numbers.

AzCopy's exit code proves nothing (0 with no file copied, 0 with names that do not exist, 0 with skipped files), so the
last ``EndOfJob`` message and what the caller expected decide.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import is_url, redact, sas_expiry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

LOG_TAIL_LINES = 40
MAX_NAMED_FILES = 1000


@dataclasses.dataclass(frozen=True)
class Event:
    """One line of AzCopy's output. ``content`` is the inner JSON object, or {} where ``text`` is plain."""

    type: str
    text: str
    content: dict[str, t.Any]


def parse_line(line: str | bytes) -> Event | None:
    """Read one output line; None for an empty one, type ``Text`` for anything that is not AzCopy's JSON."""
    if isinstance(line, bytes):
        line = line.decode("utf-8", "replace")
    line = line.strip()
    if not line:
        return None
    try:
        outer = json.loads(line)
        kind, text = outer["MessageType"], outer["MessageContent"]
    except (ValueError, TypeError, KeyError):
        return Event("Text", line, {})
    if not isinstance(kind, str) or not isinstance(text, str):
        return Event("Text", line, {})
    content: dict[str, t.Any] = {}
    if text.startswith("{"):
        with contextlib.suppress(ValueError):
            content = json.loads(text)
    return Event(kind, text, content)


def number(value: t.Any) -> int:
    """AzCopy writes numbers as strings; anything else counts as 0."""
    try:
        return int(float(value))
    except (TypeError, ValueError):
        return 0


class PlannedFile(t.NamedTuple):
    """A transfer that a dry run announces; ``md5`` is base64, '' where the source has none."""

    source: str
    destination: str
    size: int
    md5: str


@dataclasses.dataclass
class JobState:
    """What is known of one AzCopy process from its output so far."""

    secrets: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    job_id: str = ""
    status: str = ""
    ended: bool = False
    scanning: bool = True  # until AzCopy has ordered every transfer; it prints nothing of it
    total: int = 0
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    bytes_done: int = 0
    bytes_expected: int = 0
    failed_files: dict[str, str] = dataclasses.field(default_factory=dict)  # source without query -> status code
    planned: list[PlannedFile] = dataclasses.field(default_factory=list)  # of a dry run
    complaints: list[str] = dataclasses.field(default_factory=list)  # errors and authentication failures
    stuck: list[str] = dataclasses.field(default_factory=list)  # names it was working on when the watchdog came
    asked: bool = False  # it waits for an answer to a prompt
    tail: collections.deque[str] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=LOG_TAIL_LINES))
    signature: tuple[t.Any, ...] = ()  # changes whenever AzCopy got on with its work

    def feed(self, line: str | bytes) -> None:
        event = parse_line(line)
        if event is None:
            return
        if event.type in ("Progress", "EndOfJob"):
            if event.content:
                self._totals(event.content)
            elif event.text:
                self.signature = ("scan", event.text)
            self.ended = self.ended or event.type == "EndOfJob"
        elif event.type == "Init":
            self.job_id = str(event.content.get("JobID", ""))
            self.signature = ("init",)
        elif event.type == "Dryrun":
            self._planned(event.content)
        else:
            self._remark(event)

    def _planned(self, content: dict[str, t.Any]) -> None:
        if content.get("EntityType", "File") != "File":
            return
        source, destination = (str(content.get(key, "")) for key in ("Source", "Destination"))
        if (
            "?" in source or "?" in destination
        ):  # AzCopy leaves the SAS out here; cleaning a million lines takes minutes
            source, destination = redact(source, *self.secrets), redact(destination, *self.secrets)
        size, md5 = number(content.get("SourceSize")), str(content.get("ContentMD5") or "")
        self.planned.append(PlannedFile(source, destination, size, md5))
        self.signature = ("planned", len(self.planned))

    def _remark(self, event: Event) -> None:
        text = redact(event.text, *self.secrets)
        self.tail.append(text[:2000])
        if event.type == "Prompt":
            self.asked = True
        telling = event.type in ("Error", "Text") or "RESPONSE " in text or "uthentication failed" in text
        if telling and len(self.complaints) < LOG_TAIL_LINES:
            self.complaints.append(text[:4000])

    def _totals(self, content: dict[str, t.Any]) -> None:
        self.job_id = str(content.get("JobID") or self.job_id)
        self.status = str(content.get("JobStatus") or self.status)
        self.scanning = not content.get("CompleteJobOrdered", True)
        self.total = number(content.get("TotalTransfers"))
        self.completed = number(content.get("TransfersCompleted"))
        self.failed = number(content.get("TransfersFailed"))
        self.skipped = number(content.get("TransfersSkipped"))
        self.bytes_done = number(content.get("TotalBytesTransferred"))
        self.bytes_expected = number(content.get("TotalBytesExpected"))
        # The list comes once, in a Progress message: EndOfJob repeats the counts with an empty list.
        for entry in content.get("FailedTransfers") or ():
            if isinstance(entry, dict) and len(self.failed_files) < MAX_NAMED_FILES:
                name = _without_query(redact(str(entry.get("Src", "")), *self.secrets))
                self.failed_files[name] = str(entry.get("ErrorCode") or entry.get("TransferStatus") or "")
        self.signature = (
            self.total,
            self.completed,
            self.failed,
            self.skipped,
            self.bytes_done,
            number(content.get("BytesOverWire")),
            number(content.get("TotalBytesEnumerated")),
        )


def _without_query(source: str) -> str:
    """A local name may hold a ``?``; in a URL that is written ``%3F``."""
    return source.split("?")[0] if is_url(source) else source


class _Cause(t.NamedTuple):
    kind: str
    pattern: t.Pattern[str]
    message: str
    remedy: str


def _cause(kind: str, pattern: str, message: str, remedy: str) -> _Cause:
    return _Cause(kind, re.compile(pattern, re.IGNORECASE), message, remedy)


#: How Go begins what it says about a socket.
_SOCKET = r"(?:close|dial|read|readfrom|set|write) (?:tcp|udp)[46]?\b"


def _status(code: str) -> str:
    """An HTTP status as AzCopy gives it: of a transfer in its log (`DOWNLOADFAILED: ... : 503 : 503 ...`), of a request elsewhere."""
    return rf"(?:\bRESPONSE (?:Status: )?|FAILED: .* : ){code}\b"


# First match wins. Texts: Azure's error codes (learn.microsoft.com, "Status and error codes") and AzCopy 10.32.2.
_CAUSES = (
    _cause(
        "azcopy_unsuitable",
        # Not where it is there, and cannot be read or mapped now.
        r"error while loading shared libraries: (\S+?):(?! cannot open shared object file: (?!No such)| failed to map)",
        "AzCopy cannot start: the library {1} is missing.",
        "Install libsecret (package libsecret-1-0 on Debian and Ubuntu, libsecret on RHEL and SUSE).",
    ),
    _cause(
        "azcopy_unsuitable",
        r"unknown (?:shorthand )?flag: ?(\S+)",
        "This AzCopy does not know the option {1}.",
        "Install AzCopy 10.32.2, the version that the collection was tested with.",
    ),
    _cause(
        "container_missing",
        r"ContainerNotFound|ContainerBeingDeleted|specified container does not exist",
        "The container does not exist.",
        "Check account and container in the URL; create the container first if this is an upload.",
    ),
    _cause(
        "sas_expired",
        r"Signature not valid in the specified time frame|signature.{0,40}expired|SAS.{0,40}expired",
        "The SAS has expired, or is not valid yet.",
        "Make a new SAS that outlives the copy, and check the clock of this node.",
    ),
    _cause(
        "auth_failed",
        r"AuthorizationPermissionMismatch|AuthorizationResourceTypeMismatch|AuthorizationServiceMismatch",
        "The SAS or identity is valid but may not do this.",
        "A SAS needs read and list for a download, create, write and list for an upload; an identity needs the role "
        "'Storage Blob Data Reader', to upload 'Storage Blob Data Contributor'.",
    ),
    _cause(
        "auth_failed",
        r"AuthenticationFailed|AuthorizationFailure|NoAuthenticationInformation|InvalidAuthenticationInfo"
        r"|AuthorizationSourceIPMismatch|AuthorizationProtocolMismatch|PublicAccessNotPermitted"
        r"|KeyBasedAuthenticationNotPermitted|InsufficientAccountPermissions|Authentication failed, it is either"
        rf"|failed to perform auto-login|no SAS token or OAuth token|{_status('40[13]')}",
        "The server refused the SAS or identity.",
        "Check that the SAS belongs to this account, is complete (its signature too) and not URL-encoded twice; "
        "without a SAS set `identity`, or check the identity's role ('Storage Blob Data Reader', to upload 'Storage Blob "
        "Data Contributor') and the account's network rules.",
    ),
    _cause(
        "disk_full",
        r"no space left on device|disk quota exceeded|not enough space|file too large",
        "The destination is full.",
        "Free space or choose another destination, then run again: only what is missing will be copied.",
    ),
    _cause(
        "io",
        # Sockets fail in the same words, but Go names the network on that line: `write tcp 10.0.0.4:51234->...: write: ...`.
        # What Go's own runtime lacks is no trouble of a file system either.
        rf"(?m:^)(?!.*\b(?:{_SOCKET}|runtime\b)).*?(?:transport endpoint is not connected|stale (?:NFS )?file handle"
        r"|input/output error|no such device|cannot send after transport endpoint shutdown|connection timed out|host is down"
        r"|remote I/O error|communication error on send|interrupted system call|resource temporarily unavailable"
        r"|device or resource busy|cannot allocate memory|no locks available|link has been severed|structure needs cleaning)",
        "The local file system fails, or is not there any more.",
        "Check that it is still mounted and its servers and disks are well, then run again: only what is missing will be "
        "copied.",
    ),
    _cause(
        "throttled",
        rf"{_status('(?:429|503)')}|ServerBusy|TooManyRequests|is over the account limit",
        "The storage account throttles: it is asked for more than its limit of requests or bytes per second.",
        "Run again with a lower cap_mbps, or on fewer nodes at a time: only what is missing will be copied.",
    ),
    _cause(
        "bad_input",
        r"request size greater than pacer target",
        "The bandwidth cap is lower than one block per second, and AzCopy cannot send blocks larger than that.",
        "Raise cap_mbps or lower block_size_mib.",
    ),
    _cause(
        "changed_at_source",
        rf"ConditionNotMet|the source.{{0,40}}(?:changed|modified)|{_status('412')}",
        "A blob was replaced while it was being copied.",
        "Run again when no program writes to the source any more.",
    ),
    _cause(
        "corrupt",
        r"MD5 hash of the data, as we received it, did not match|gzip: invalid|flate: corrupt|invalid checksum",
        "The data of a blob does not fit its checksum.",
        "Upload the blob again from a good copy.",
    ),
    _cause(
        "truncated",
        # Of the worker only: a connection that breaks off ends in the same words.
        r"decompression worker.{0,20}: unexpected EOF",
        "A blob ends in the middle of its compressed data.",
        "Upload the blob again from a good copy.",
    ),
    _cause(
        "archived",
        r"BlobArchived|BlobBeingRehydrated|not permitted on an archived blob|blob is (?:currently )?being rehydrated",
        "A blob is in the archive tier, which cannot be read.",
        "Set its tier to hot or cool, which takes hours (`az storage blob set-tier`), then run again.",
    ),
    _cause(
        "not_found",
        r"specified file was not found|BlobNotFound|specified blob does not exist|cannot find the (?:file|path)"
        rf"|no such file or directory|ResourceNotFound|{_status('404')}",
        "The source does not exist.",
        "Check the prefix or file names (they are case-sensitive), and list the container to see what is there.",
    ),
    _cause(
        "bad_input",
        r"permission denied|read-only file system|not a directory|is a directory",
        "The local path cannot be written or read.",
        "Check owner, mode and type of the local path.",
    ),
    _cause(
        "bad_input",
        r"file name too long",
        "A name is too long for the file system: AzCopy writes `.azDownload-`, an id and `-` before it, 49 bytes.",
        "Rename it, or choose another destination.",
    ),
    _cause(
        "tls_untrusted",
        r"x509: (?:certificate (?:signed by|has expired|is not|is valid)|cannot verify)|failed to verify certificate",
        "AzCopy does not trust the TLS certificate of the server.",
        "Install the certificate of the authority that signed it (update-ca-certificates, update-ca-trust), or name it in "
        "SSL_CERT_FILE; check the clock of this node.",
    ),
    _cause(
        "unreachable",
        r"no such host|connection refused|network is unreachable|no route to host|i/o timeout|TLS handshake"
        rf"|connection reset|\b{_SOCKET}|context deadline exceeded|\bEOF\b|net/http: |http2: |{_status('(?:408|5[0-9][0-9])')}",
        "The storage endpoint cannot be reached, or breaks off.",
        "Check URL, name resolution, proxy and firewall from this node, then run again.",
    ),
)

#: How Go begins what it says when a program panics, a library of another language crashes, or its runtime can get no memory or thread.
#: A stack of many lines follows.
_PANIC = re.compile(r"(?:panic|fatal error|runtime(?:/cgo)?|SIG[A-Z]+): ")

# Causes that end the whole copy: every further file would fail the same way.
FATAL_KINDS = frozenset(
    (
        "auth_failed",
        "azcopy_unsuitable",
        "bad_input",
        "container_missing",
        "disk_full",
        "io",
        "sas_expired",
        "throttled",
        "tls_untrusted",
        "unreachable",
    )
)

# What carries names in AzCopy's words, and may be called like any error, beside local paths.
_NAMING = re.compile(r"https?://[^\s\"<>]+|^.*\bJob-Command\b.*$", re.MULTILINE)
#: What it puts before the name of a file that it writes.
_TEMPORARY = re.compile(r"\.azDownload-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}-")
#: The destination of a transfer, which its log gives on a line of its own; a name may go on on the next.
_DESTINATION = re.compile(r"^   Dst: (.+?)$(?=\n\d{4}/\d\d/\d\d |\s*\Z)", re.MULTILINE | re.DOTALL)


def _without_names(text: str, paths: t.Iterable[str]) -> str:
    """AzCopy's words without URLs, ``paths``, and the destinations that it names itself."""
    named = {*paths, *_DESTINATION.findall(text)} - {""}
    text = _TEMPORARY.sub("", text)
    for path in sorted(named, key=len, reverse=True):
        text = text.replace(path, "")
    return _NAMING.sub("", text)


def find_cause(text: str, *, paths: t.Iterable[str] = (), sas: str = "", now: float = 0.0) -> ClusterError | None:
    """The first known cause in AzCopy's own words, as an error; an authentication failure with an expired SAS says so.

    It is not looked for in names: those of blobs, and ``paths``, local ones that AzCopy may have named.
    """
    text = _without_names(text, paths)
    for cause in _CAUSES:
        match = cause.pattern.search(text)
        if not match:
            continue
        expiry = sas_expiry(sas) if sas else None
        if cause.kind == "auth_failed" and expiry is not None and expiry <= now:
            return find_cause("Signature not valid in the specified time frame")
        found = [match.group(0), *match.groups()]
        return ClusterError(cause.kind, cause.message.format(*found), cause.remedy)
    return None


def classify(
    state: JobState,
    rc: int,
    *,
    stopped: str = "",
    log_text: str = "",
    local: str = "",
    sas: str = "",
    now: float = 0.0,
) -> ClusterError | None:
    """The verdict on one ended process, except for the counts (see ``check_counts``); None when it did its work.

    ``stopped`` says why the supervisor ended it (``cancelled``, ``timeout``, ``stalled``, or ''), ``log_text`` is the end
    of the job's log, ``local`` the local side of the copy, ``now`` the time to judge the SAS by.
    """
    names = sorted(state.failed_files)
    details: dict[str, t.Any] = {"failed_files": names} if names else {}
    # First what AzCopy says, then what it has logged, then the status of each transfer, which says least.
    texts = (
        "\n".join(state.complaints),
        redact(log_text, sas),
        "\n".join(f"RESPONSE {code}" for code in sorted(set(state.failed_files.values()))),
    )
    causes = (find_cause(text, paths=(local, *names), sas=sas, now=now) for text in texts)
    cause = next(filter(None, causes), None)
    if stopped == "cancelled":
        return ClusterError("cancelled", "The copy was cancelled.", "Run again: only what is missing will be copied.")
    if stopped:
        return _stopped_error(state, stopped, cause)
    if state.failed or state.status in ("Failed", "Cancelled", "CompletedWithErrors", "CompletedWithErrorsAndSkipped"):
        copied = f"{state.completed} of {state.total} files were copied."
        if cause and (cause.kind in FATAL_KINDS or state.total <= 1):
            return ClusterError(cause.kind, f"{cause.message} {copied}", cause.remedy, **details)
        reason = f" ({cause.kind}: {cause.message})" if cause else ""
        return ClusterError(
            "partial",
            f"{state.failed or state.total - state.completed} of {state.total} transfers failed{_some(names)}{reason}.",
            "Run again: only what is missing will be copied." + (f" {cause.remedy}" if cause else ""),
            **details,
        )
    if state.ended and rc == 0:
        return None
    if cause:
        return cause
    how = f"was killed by signal {-rc}" if rc < 0 else f"ended with exit code {rc}"
    last = find_panic(state.complaints) or (state.tail[-1] if state.tail else "it printed nothing")
    return ClusterError(
        "azcopy_crashed",
        f"AzCopy {how} before the copy was done; its last words: {last[:300]}",
        "Run again; if it happens again, look at the memory of the node and at AzCopy's log.",
    )


def find_panic(lines: t.Iterable[str]) -> str:
    """What a Go program says of its own crash, without the stack that follows; "" where it says nothing of the kind."""
    return next((line for line in lines if _PANIC.match(line)), "")


def check_counts(
    *, completed: int, skipped: int, size: int, expected_files: int | None, expected_bytes: int | None
) -> ClusterError | None:
    """Compare what a whole copy (all its processes) did with what was expected."""
    found = completed + skipped
    if found == 0 and expected_files != 0:
        return ClusterError(
            "no_match",
            "No file matched: nothing was copied, although AzCopy calls that a success.",
            "Check the prefix, include_pattern (matches file names only, separated by `;`) or file_list.",
        )
    if expected_files is not None and found < expected_files:
        return ClusterError(
            "partial",
            f"{expected_files} files were expected, only {found} are at the source.",
            "Files were removed since the source was listed, or a name is wrong: list the source again.",
        )
    if expected_files is not None and found > expected_files:
        return ClusterError(
            "changed_at_source",
            f"{expected_files} files were expected, {found} were copied.",
            "Files were added since the source was listed, or the pattern matches too much: list the source again.",
        )
    if expected_bytes is not None and not skipped and size != expected_bytes:
        return ClusterError(
            "changed_at_source",
            f"{expected_bytes} bytes were expected, the source holds {size}.",
            "Blobs were replaced since the source was listed: list it again.",
        )
    return None


def _stopped_error(state: JobState, stopped: str, cause: ClusterError | None) -> ClusterError:
    done = f"{state.completed} of {state.total or 'an unknown number of'} files were copied."
    if cause and cause.kind in FATAL_KINDS:
        return ClusterError(cause.kind, f"{cause.message} {done}", cause.remedy)
    if stopped == "timeout":
        return ClusterError(
            "stalled",
            f"The copy was not done within timeout_s and was stopped. {done}",
            "Raise timeout_s, or run again: only what is missing will be copied.",
        )
    stuck = f" It hangs on {', '.join(state.stuck[:3])}{', …' if len(state.stuck) > 3 else ''}." if state.stuck else ""
    return ClusterError(
        "stalled",
        f"AzCopy made no progress for stall_timeout_s and was stopped. {done}{stuck}",
        "Look at the load of the storage account (503 answers), the network, and blobs that are marked gzip but are not; "
        "then run again.",
    )


def _some(names: t.Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(name.rpartition("/")[2] for name in names[:3])
    return f", for example {shown}" if len(names) > 3 else f": {shown}"


__all__ = [
    "FATAL_KINDS",
    "Event",
    "JobState",
    "PlannedFile",
    "check_counts",
    "classify",
    "find_cause",
    "find_panic",
    "number",
    "parse_line",
]
