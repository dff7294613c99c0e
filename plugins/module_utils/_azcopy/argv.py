# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Turn a copy request into AzCopy's arguments and environment. Nothing is run here."""

from __future__ import annotations

import dataclasses
import math
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import (
    BlobUrl,
    clean_sas,
    is_url,
    join_sas,
    parse_blob_url,
    split_sas,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import is_utf8
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.metadata import METADATA_ADDRESS

# One argument may have MAX_ARG_STRLEN = 131072 bytes with its final NUL (execve(2)); longer ones fail with E2BIG.
MAX_ARGUMENT_BYTES = 131_071
# AzCopy's own block size. A block must fit into one second of the cap, or every transfer fails
# ("request size greater than pacer target", AzCopy 10.32.2).
DEFAULT_BLOCK_BYTES = 8 * 1024 * 1024
SMALLEST_BLOCK_BYTES = 4096
# What AzCopy forgives a block of a fraction of a byte (10.32.2).
_WHOLE = 1e-6
SMALLEST_CAP_MBPS = SMALLEST_BLOCK_BYTES / 125_000
# More processes of one copy do not bring more, see suggest_processes().
MOST_PROCESSES = 8

# `identity` -> AZCOPY_AUTO_LOGIN_TYPE
IDENTITIES = {"none": "", "msi": "MSI", "azcli": "AZCLI", "workload": "WORKLOAD", "spn": "SPN"}


@dataclasses.dataclass(frozen=True)
class CopyRequest:
    """One copy between a blob container and a local directory.

    The *contents* of ``source`` (container, prefix, or directory) land in ``destination``. ``include_pattern`` is None
    for everything; '' is a share without files and refused, because AzCopy would take it as "everything".
    ``file_list`` holds paths relative to ``source``; with ``processes`` > 1 it is split over that many AzCopy processes,
    each with its part of ``cap_mbps`` and ``concurrency``. Without ``follow_links`` an upload passes over symbolic links.
    """

    azcopy: str
    source: str
    destination: str
    sas: str = dataclasses.field(default="", repr=False)
    recursive: bool = True
    include_pattern: str | None = None
    file_list: list[str] | None = None
    decompress: bool = False
    check_md5: str = "FailIfDifferent"
    put_md5: bool = False
    content_encoding: str = ""
    overwrite: str = "true"
    cap_mbps: float = 0
    block_size_mib: float = 0
    concurrency: int = 0
    log_dir: str = ""
    plan_dir: str = ""
    processes: int = 1
    expected_files: int | None = None
    expected_bytes: int | None = None
    identity: str = "none"
    identity_client_id: str = ""
    dry_run: bool = False
    follow_links: bool = False

    @property
    def is_download(self) -> bool:
        return is_url(self.source)

    @property
    def logs_in_here(self) -> bool:
        """Whether AzCopy asks this machine for its managed identity."""
        return self.identity == "msi" and not self.token

    @property
    def remote(self) -> BlobUrl:
        """The side that is a Blob URL, without a SAS."""
        return parse_blob_url(split_sas(self.source if self.is_download else self.destination)[0])

    @property
    def local(self) -> str:
        """The side that is a local path."""
        return self.destination if self.is_download else self.source

    @property
    def token(self) -> str:
        """The SAS: ``sas``, or what came inside the URL."""
        return clean_sas(self.sas) or split_sas(self.source if self.is_download else self.destination)[1]


def check_request(request: CopyRequest) -> None:
    """Refuse what cannot work, or what AzCopy would silently do differently."""
    if is_url(request.source) == is_url(request.destination):
        raise ClusterError(
            "bad_input",
            "Exactly one of source and destination has to be a blob URL (https://…), the other one a local path.",
            "Copies between two accounts or two local directories are not offered here.",
        )
    _remote, _token = request.remote, request.token  # both raise when they are malformed
    if not os.path.isabs(request.local):
        raise ClusterError("bad_input", f"The local path `{request.local}` is relative.", "Give an absolute path.")
    if request.is_download and os.path.normpath(request.destination) in ("/", "//"):
        raise ClusterError(
            "bad_input",
            f"The destination is `{request.destination}`, the root of the node's file system.",
            "Name a directory below it for the data.",
        )
    if request.include_pattern is not None:
        _check_pattern(request.include_pattern)
    if request.file_list is not None:
        _check_file_list(request.file_list)
        if request.include_pattern is not None:
            raise ClusterError(
                "bad_input", "Both include_pattern and file_list are given.", "Choose one way to name the files."
            )
    if request.decompress and not request.is_download:
        raise ClusterError("bad_input", "decompress works for downloads only.", "Remove it for an upload.")
    if request.content_encoding and request.is_download:
        raise ClusterError("bad_input", "content_encoding is set at upload only.", "Remove it for a download.")
    if request.identity not in IDENTITIES:
        raise ClusterError(
            "bad_input", f"The identity `{request.identity}` is unknown.", f"Choose one of {', '.join(IDENTITIES)}."
        )
    numbers = (request.cap_mbps, request.block_size_mib, request.concurrency)
    if not all(0 <= number < math.inf for number in numbers) or request.processes < 1:  # "nan" is a number for YAML
        raise ClusterError(
            "bad_input",
            "cap_mbps, block_size_mib and concurrency must be numbers and not negative, and processes must be at least 1.",
            "Use 0 for AzCopy's own choice.",
        )
    size = request.block_size_mib * 1024 * 1024
    if abs(size - round(size)) > _WHOLE:
        raise ClusterError(
            "bad_input",
            f"block_size_mib is {request.block_size_mib:g}, which is {size:.1f} bytes. AzCopy takes whole bytes only.",
            "Use a multiple of 1/1024, such as 0.25 or 0.5, or 0 for AzCopy's own choice.",
        )
    block_size_mib(request)  # raises where cap and block do not fit


def _check_pattern(pattern: str) -> None:
    if not pattern.strip("; "):
        raise ClusterError(
            "bad_input",
            "include_pattern is empty, and AzCopy takes an empty pattern as no filter: it would copy everything.",
            "Skip the copy for a share without files, or leave the option out to copy all files on purpose.",
        )
    if len(os.fsencode(pattern)) > MAX_ARGUMENT_BYTES - len("--include-pattern="):
        raise ClusterError(
            "bad_input",
            f"include_pattern has {len(pattern)} characters, more than Linux accepts in one argument.",
            "Use file_list instead.",
        )
    if "," in pattern and ";" not in pattern:
        pieces = pattern.split(",")
        if len(pieces) > 1 and all("*" in piece or "?" in piece for piece in pieces):
            raise ClusterError(
                "bad_input",
                "include_pattern joins patterns with commas. AzCopy splits at `;` only: this would match nothing.",
                "Join the patterns with `;`.",
            )


def _check_file_list(names: t.Sequence[str]) -> None:
    if not names:
        raise ClusterError(
            "bad_input",
            "file_list is empty.",
            "Skip the copy for a share without files, or leave the option out to copy all files on purpose.",
        )
    for name in names:
        if not name or "\n" in name or "\r" in name or name.startswith("/") or ".." in name.split("/"):
            raise ClusterError(
                "bad_input",
                f"The entry {name!r} of file_list cannot be copied: it is empty, absolute, holds `..` or a line break.",
                "List paths relative to the source, one per entry.",
            )
        if not is_utf8(name):
            raise ClusterError(
                "bad_input", f"The entry {name!a} of file_list is not UTF-8.", "Rename it: blobs have no other names."
            )


def block_size_mib(request: CopyRequest) -> float:
    """The block size to ask for in MiB; 0 leaves AzCopy's own (8 MiB) alone.

    A cap of X Mb/s passes X * 125000 bytes each second, and a block may not be larger than that.
    """
    per_second = request.cap_mbps * 125_000
    if request.block_size_mib:
        if request.cap_mbps and request.block_size_mib * 1024 * 1024 > per_second:
            raise ClusterError(
                "bad_input",
                f"Blocks of {request.block_size_mib} MiB do not pass a cap of {request.cap_mbps} Mb/s: every transfer "
                "would fail.",
                f"Use blocks of at most {per_second / 1024 / 1024:.3f} MiB, or leave block_size_mib out.",
            )
        return request.block_size_mib
    if not request.cap_mbps or per_second >= DEFAULT_BLOCK_BYTES:
        return 0
    if request.cap_mbps < SMALLEST_CAP_MBPS:
        raise ClusterError(
            "bad_input",
            f"A cap of {request.cap_mbps} Mb/s is too low for AzCopy to send anything.",
            "Use 0.1 Mb/s or more, or 0 for no cap.",
        )
    return float(2 ** math.floor(math.log2(per_second)) / (1024 * 1024))


def build_argv(request: CopyRequest, *, list_file: str = "") -> list[str]:
    """The command line. It holds the SAS: never log it. ``list_file`` is the path that ``file_list`` was written to."""
    remote = str(request.remote)
    url = join_sas(remote if request.recursive or not request.is_download else f"{remote}/*", request.token)
    argv = [request.azcopy, "copy"]
    if request.is_download:
        argv += [url, request.destination, "--from-to", "BlobLocal", "--check-md5", request.check_md5]
    else:
        argv += [request.source, url, "--from-to", "LocalBlob"]
    argv += ["--output-type", "json", "--log-level", "ERROR", "--overwrite", request.overwrite]
    if request.recursive:
        # Without this AzCopy adds the last part of the source to the destination; with a trailing /* instead,
        # a prefix that does not exist would look like success.
        argv += ["--recursive", "--as-subdir=false"]
    if request.include_pattern is not None:
        argv += ["--include-pattern", request.include_pattern]
    if list_file:
        argv += ["--list-of-files", list_file]
    if request.decompress:
        argv += ["--decompress"]
    if request.put_md5 and not request.is_download:
        argv += ["--put-md5"]
    if request.follow_links and not request.is_download:
        argv += ["--follow-symlinks"]
    if request.content_encoding:
        argv += ["--content-encoding", request.content_encoding]
    if request.cap_mbps:
        argv += ["--cap-mbps", f"{request.cap_mbps:g}"]
    block = block_size_mib(request)
    if block:
        argv += ["--block-size-mb", f"{block:.10g}"]
    if request.dry_run:
        argv += ["--dry-run"]
    return argv


def build_environment(request: CopyRequest, base: t.Mapping[str, str]) -> dict[str, str]:
    """The environment: what the caller has, without settings of AzCopy that would change the copy behind our back."""
    environment = {name: value for name, value in base.items() if not name.startswith("AZCOPY_") or name in _KEPT}
    environment.update(LC_ALL="C", AZCOPY_DISABLE_SYSLOG="true", AZCOPY_DOWNLOAD_TO_TEMP_PATH="true")
    if request.log_dir:
        environment["AZCOPY_LOG_LOCATION"] = request.log_dir
    if request.plan_dir:
        environment["AZCOPY_JOB_PLAN_LOCATION"] = request.plan_dir
    if request.concurrency:
        environment["AZCOPY_CONCURRENCY_VALUE"] = str(request.concurrency)
    if request.logs_in_here and (base.get("http_proxy") or base.get("HTTP_PROXY")):
        # The metadata service answers the machine itself only, and AzCopy would ask a proxy for it.
        direct = base.get("NO_PROXY") or base.get("no_proxy") or ""
        environment["NO_PROXY"] = environment["no_proxy"] = f"{direct},{METADATA_ADDRESS}".lstrip(",")
    if IDENTITIES[request.identity] and not request.token:
        environment["AZCOPY_AUTO_LOGIN_TYPE"] = IDENTITIES[request.identity]
        if request.identity_client_id:
            name = "AZCOPY_MSI_CLIENT_ID" if request.identity == "msi" else "AZCOPY_SPA_APPLICATION_ID"
            environment[name] = request.identity_client_id
    return environment


# The node decides as whom AzCopy logs in. How it copies is decided here.
_KEPT = frozenset(
    (
        "AZCOPY_ACTIVE_DIRECTORY_ENDPOINT",
        "AZCOPY_BUFFER_GB",
        "AZCOPY_MSI_RESOURCE_STRING",
        "AZCOPY_SPA_APPLICATION_ID",
        "AZCOPY_SPA_CERT_PASSWORD",
        "AZCOPY_SPA_CERT_PATH",
        "AZCOPY_SPA_CLIENT_SECRET",
        "AZCOPY_TENANT_ID",
    )
)


def suggest_processes(files: int, cpus: int) -> int:
    """How many processes a file list is worth.

    AzCopy looks every listed file up twice, one after the other (about 8 ms each at 3 ms per request), so several
    processes are needed to keep a network busy; each costs a start and some memory. Below 250 files one will do.
    """
    return max(1, min(MOST_PROCESSES, 2 * cpus, files // 250))


def slowed(request: CopyRequest, times: int, cpus: int) -> CopyRequest:
    """The request to an account that has throttled so many times: with half as many requests in flight for each of them."""
    if not times:
        return request
    # AzCopy's own number, of each process (10.32.2).
    usual = request.concurrency or (32 if cpus <= 4 else min(16 * cpus, 300)) * request.processes
    concurrency = max(usual >> times, 1)
    return dataclasses.replace(request, concurrency=concurrency, processes=min(request.processes, concurrency))


def split_request(request: CopyRequest) -> list[CopyRequest]:
    """One request per process: the file list dealt out in turn, cap and concurrency shared."""
    names = request.file_list
    count = min(request.processes, len(names)) if names else 1
    if names is None or count == 1:
        return [dataclasses.replace(request, processes=1)]
    return [
        dataclasses.replace(
            request,
            processes=1,
            file_list=names[index::count],
            cap_mbps=request.cap_mbps / count,
            concurrency=max(1, request.concurrency // count) if request.concurrency else 0,
            expected_files=None,
            expected_bytes=None,
        )
        for index in range(count)
    ]


__all__ = [
    "IDENTITIES",
    "MAX_ARGUMENT_BYTES",
    "MOST_PROCESSES",
    "SMALLEST_CAP_MBPS",
    "CopyRequest",
    "block_size_mib",
    "build_argv",
    "build_environment",
    "check_request",
    "slowed",
    "split_request",
    "suggest_processes",
]
