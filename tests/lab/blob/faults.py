# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong when blobs are copied, as data: each row is set up once for raw AzCopy and once for the collection.

The rows are those in which AzCopy 10.32.2 was seen to fail, to lie, or to hang. ``Stage`` plays one row with either side
and says how it ended; the benchmark s9_faults prints the table, the tests assert our side of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import itertools
import os
import pathlib
import random
import signal
import subprocess
import threading
import time
import typing as t
import urllib.parse

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.compare import make_plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.copy import copy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.model import Settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import CopyRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.share import private_directory, share_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.blob.fault_proxy import FaultProxy, Rule, wait_until
from lab.blob.service import Azurite, azcopy_path, free_port

_NUMBERS = itertools.count(1)
MIB = 1 << 20


@functools.lru_cache(maxsize=64)
def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that do not compress, the same in every run."""
    return random.Random(seed).randbytes(size)


class Blob(t.NamedTuple):
    """What is stored at the source, and what has to stand at the destination afterwards (None: nothing may)."""

    data: bytes
    wanted: bytes | None
    encoding: str = ""


def plain(data: bytes) -> Blob:
    return Blob(data, data)


def packed(data: bytes, raw: bytes | None = None) -> Blob:
    """A gzip blob; with ``raw`` it holds those bytes instead and cannot become a file."""
    return Blob(gzip.compress(data, mtime=0) if raw is None else raw, data if raw is None else None, "gzip")


_EIGHT = {f"f{number}.bin": plain(noise(300_000, number)) for number in range(8)}
_ZIP = gzip.compress(noise(50_000), mtime=0)
_FLIPPED = _ZIP[:2000] + bytes([_ZIP[2000] ^ 0x10]) + _ZIP[2001:]
_GOOD_ZIP = {f"good{number}.gz": packed(noise(20_000, number)) for number in range(4)}


@dataclasses.dataclass(frozen=True)
class Fault:
    """One row: what is there, what is done to it, and how our side has to end (``kind`` '' is success)."""

    key: str
    row: int
    title: str
    kind: str
    blobs: t.Mapping[str, Blob] = dataclasses.field(default_factory=lambda: _EIGHT)
    rules: tuple[Rule, ...] = ()
    sas: str = "good"
    url: str = ""  # "missing_container", "missing_prefix", "down"
    flags: tuple[str, ...] = ()  # for raw AzCopy
    options: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # of CopyRequest and Settings
    present: t.Mapping[str, bytes] = dataclasses.field(default_factory=dict)  # at the destination before
    tmpfs_mib: int = 0
    disturb: str = ""  # "stop_scan", "stop", "kill", "resume_without_sas", "resume"
    fetched: tuple[str, ...] | None = None  # names that make a success; None: all that can be had
    endless: bool = False  # raw AzCopy was seen not to end

    @property
    def wanted(self) -> dict[str, bytes]:
        names = self.blobs if self.fetched is None else self.fetched
        return {name: self.blobs[name].wanted or b"" for name in names if self.blobs[name].wanted is not None}


_UNPACK: dict[str, t.Any] = {"decompress": True}
_UNPACK_AZCOPY: dict[str, t.Any] = {"decompress": True, "decompress_engine": "azcopy"}
_SLOW: dict[str, t.Any] = {"cap_mbps": 8}  # 2.4 MB take 2.4 s and more: time to interfere
_LISTED = ("f1.bin", "none.bin", "f2.bin")

FAULTS: tuple[Fault, ...] = (
    Fault("wrong_sas", 1, "wrong signature", "auth_failed", sas="wrong"),
    Fault("expired_sas", 1, "expired SAS", "sas_expired", sas="expired"),
    Fault("no_sas", 1, "no SAS", "auth_failed", sas="none"),
    Fault("container", 2, "missing container", "container_missing", url="missing_container"),
    Fault("prefix", 3, "missing prefix", "not_found", url="missing_prefix"),
    Fault("down", 4, "endpoint down", "unreachable", url="down", endless=True),
    Fault(
        "stop_scan",
        5,
        "stopped while it scans",
        "cancelled",
        rules=(Rule("GET .*comp=list", delay_s=300),),
        disturb="stop_scan",
        endless=True,
    ),
    Fault("stop", 6, "stopped while it copies", "cancelled", flags=("--cap-mbps", "8", "--block-size-mb", "0.5"),
          options=_SLOW, disturb="stop"),
    Fault("kill", 7, "AzCopy killed while it copies", "azcopy_crashed", flags=("--cap-mbps", "8", "--block-size-mb", "0.5"),
          options=_SLOW, disturb="kill"),
    Fault("resume_without_sas", 8, "resumed without a SAS", "auth_failed",
          flags=("--cap-mbps", "8", "--block-size-mb", "0.5"), options=_SLOW, disturb="resume_without_sas"),
    Fault("resume", 9, "resumed with a SAS", "", flags=("--cap-mbps", "8", "--block-size-mb", "0.5"),
          options=_SLOW, disturb="resume"),
    Fault("blob_404", 10, "one blob answers 404", "partial",
          rules=(Rule(r"GET .*/f3\.bin\?(?!.*comp=)", status=404, code="BlobNotFound"),)),
    Fault("busy", 11, "503 twice on a blob", "",
          rules=(Rule(r"GET .*/f3\.bin\?", status=503, code="ServerBusy", times=2),)),
    Fault("drop", 11, "connection dropped once", "", rules=(Rule(r"GET .*/f3\.bin\?", drop=True, times=1),)),
    Fault("cut", 11, "body cut off once", "", rules=(Rule(r"GET .*/f3\.bin\?", truncate=1000, times=1),)),
    Fault("list_busy", 11, "503 twice on the listing", "",
          rules=(Rule("GET .*comp=list", status=503, code="ServerBusy", times=2),)),
    Fault("full", 12, "destination full (4 MiB for 12 MB)", "disk_full", tmpfs_mib=4,
          blobs={f"f{number}.bin": plain(noise(1_500_000, number)) for number in range(8)}),
    Fault("list_entry", 13, "listed file does not exist", "not_found", flags=("--list-of-files", "{list}"),
          options={"file_list": list(_LISTED)}, fetched=("f1.bin", "f2.bin")),
    Fault("no_match", 14, "pattern matches nothing", "no_match", flags=("--include-pattern", "zzz*"),
          options={"include_pattern": "zzz*"}, fetched=()),
    Fault("comma", 14, "patterns joined by commas", "bad_input", flags=("--include-pattern", "*1.bin,*2.bin"),
          options={"include_pattern": "*1.bin,*2.bin"}, fetched=("f1.bin", "f2.bin")),
    Fault("gzip_truncated", 15, "gzip truncated", "truncated",
          blobs={**_GOOD_ZIP, "bad.gz": packed(b"", _ZIP[:3000])}, flags=("--decompress",), options=_UNPACK),
    Fault("gzip_flipped", 15, "gzip with a flipped bit", "corrupt",
          blobs={**_GOOD_ZIP, "bad.gz": packed(b"", _FLIPPED)}, flags=("--decompress",), options=_UNPACK),
    Fault("not_gzip", 16, "marked gzip, is not", "not_gzip",
          blobs={**_GOOD_ZIP, "bad.gz": packed(b"", noise(50_000, 9))}, flags=("--decompress",), options=_UNPACK,
          endless=True),
    Fault("zero_gzip", 16, "marked gzip, 0 bytes", "not_gzip",
          blobs={**_GOOD_ZIP, "bad.gz": packed(b"", b"")}, flags=("--decompress",), options=_UNPACK, endless=True),
    Fault("zero_gzip_azcopy", 16, "the same, AzCopy decompresses", "stalled",
          blobs={**_GOOD_ZIP, "bad.gz": packed(b"", b"")}, flags=("--decompress",), options=_UNPACK_AZCOPY,
          endless=True),
    Fault("multi_member", 17, "gzip of several members", "",
          blobs={"m.gz": Blob(_ZIP + _ZIP, noise(50_000) * 2, "gzip"), **_GOOD_ZIP}, flags=("--decompress",),
          options=_UNPACK),
    Fault("cap_20", 18, "cap below one block per second", "",
          blobs={f"f{number}.bin": plain(noise(3 * MIB, number)) for number in range(3)}, flags=("--cap-mbps", "20"),
          options={"cap_mbps": 20}),
    Fault("cap_100", 19, "cap of 100 Mb/s", "",
          blobs={f"f{number}.bin": plain(noise(9 * MIB, number)) for number in range(4)}, flags=("--cap-mbps", "100"),
          options={"cap_mbps": 100}),
    Fault("stale", 20, "truncated file there, --overwrite=false", "bad_input", flags=("--overwrite", "false"),
          options={"overwrite": False}, present={"f3.bin": noise(10)}),
    Fault("newer", 20, "truncated file there, ifSourceNewer", "", flags=("--overwrite", "ifSourceNewer"),
          present={"f3.bin": noise(10)}),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Ending:
    """How one side ended. ``verdict`` is ``rc N`` or our error kind; ``whole`` is what stands at the destination."""

    verdict: str
    claims_success: bool
    seconds: float  # from the fault (or the start, where the fault was there before) to the end
    ended: bool
    whole: bool
    wrong_names: tuple[str, ...]  # final names with wrong content
    leftovers: int
    message: str = ""

    @property
    def silent(self) -> bool:
        """Success claimed, but the data is not what it should be."""
        return self.claims_success and not self.whole


class Stage:
    """A container, a proxy and a destination for one row; use as a context manager."""

    def __init__(self, fault: Fault, server: Azurite, root: pathlib.Path) -> None:
        self.fault = fault
        self._server = server
        self._root = root
        self._container = f"fault-{fault.key.replace('_', '-')}-{os.getpid()}-{next(_NUMBERS)}"
        self.destination = root / "out"
        self._proxy = FaultProxy(server.port)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Stage:
        self._server.create_container(self._container)
        for name, blob in self.fault.blobs.items():
            self._server.put(self._container, name, blob.data, encoding=blob.encoding)
        self._stack.enter_context(self._proxy)
        for rule in self.fault.rules:
            self._proxy.add(dataclasses.replace(rule))
        self.destination.mkdir(parents=True)
        if self.fault.tmpfs_mib:
            self._mount()
        for name, data in self.fault.present.items():
            (self.destination / name).write_bytes(data)
        return self

    def __exit__(self, *unused: object) -> None:
        self._stack.close()

    def _mount(self) -> None:
        argv = ["mount", "-t", "tmpfs", "-o", f"size={self.fault.tmpfs_mib}m", "tmpfs", str(self.destination)]
        if subprocess.run(argv, check=False).returncode:
            raise RuntimeError("A full disk needs a small tmpfs: run this row as root, in a place that may mount.")
        self._stack.callback(subprocess.run, ["umount", "-l", str(self.destination)], check=True)

    @property
    def url(self) -> str:
        if self.fault.url == "down":
            return f"http://127.0.0.1:{free_port()}/{self._server.account}/{self._container}"
        port = self._proxy.port if self.fault.rules else self._server.port
        container = "no-such-container" if self.fault.url == "missing_container" else self._container
        prefix = "/nowhere" if self.fault.url == "missing_prefix" else ""
        return f"http://127.0.0.1:{port}/{self._server.account}/{container}{prefix}"

    @property
    def sas(self) -> str:
        good = self._server.sas("rl")
        if self.fault.sas == "wrong":
            return good.split("sig=")[0] + "sig=" + urllib.parse.quote("A" * 43 + "=", safe="")
        if self.fault.sas == "expired":
            return self._server.sas("rl", -60)
        return good if self.fault.sas == "good" else ""

    def ending(self, verdict: str, success: bool, seconds: float, ended: bool, message: str = "") -> Ending:
        """Look at the destination and put the result together. Names may have kept or lost ``.gz``."""
        found = {
            str(path.relative_to(self.destination)): path.read_bytes()
            for path in self.destination.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }
        leftovers = [path for path in self.destination.rglob(".az*") if not path.name.endswith(".json")]
        leftovers += list(self.destination.rglob("*.part"))
        wanted = self.fault.wanted
        wrong = []
        for name, data in found.items():
            source = name if name in self.fault.blobs else f"{name}.gz"
            blob = self.fault.blobs.get(source)
            # In check mode of "stale" the user's own file stays: it is not ours to call wrong.
            if (blob is None or data != blob.wanted) and data != self.fault.present.get(name):
                wrong.append(name)
        have = {name if name in wanted else f"{name}.gz": data for name, data in found.items()}
        expected_failure = any(blob.wanted is None for blob in self.fault.blobs.values())
        must_match = self.fault.url == "" and not expected_failure and bool(wanted)
        whole = must_match and have == wanted and "none.bin" not in self.fault.options.get("file_list", ())
        return Ending(verdict, success, seconds, ended, whole, tuple(wrong), len(leftovers), message)


def play_raw(stage: Stage, cap_s: float) -> Ending:
    """Raw AzCopy on this row, with a stdin that stays open (its own habit of spinning is another matter)."""
    runner = _Raw(stage)
    disturb = stage.fault.disturb
    process = runner.start(["copy", f"{stage.url}?{stage.sas}".rstrip("?"), str(stage.destination), "--recursive",
                            "--as-subdir=false", "--from-to", "BlobLocal", *runner.flags()])  # fmt: skip
    started = time.monotonic()
    if disturb:
        time.sleep(2.0)
        started = time.monotonic()
        process.send_signal(signal.SIGKILL if disturb == "kill" else signal.SIGTERM)
    try:
        process.wait(cap_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return stage.ending("no end", False, time.monotonic() - started, False)
    if disturb.startswith("resume"):
        started = time.monotonic()
        token = [] if disturb == "resume_without_sas" else ["--source-sas", stage.sas]
        process = runner.start(["jobs", "resume", runner.job_id(), *token])
        process.wait(cap_s)
    return stage.ending(f"rc {process.returncode}", process.returncode == 0, time.monotonic() - started, True)


class _Raw:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._scratch = stage.destination.parent / "raw"
        self._scratch.mkdir(exist_ok=True)

    def flags(self) -> list[str]:
        listing = self._scratch / "list.txt"
        listing.write_text("\n".join(self._stage.fault.options.get("file_list", ())) + "\n", encoding="utf-8")
        return [flag.replace("{list}", str(listing)) for flag in self._stage.fault.flags]

    def start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "AZCOPY_DISABLE_SYSLOG": "true",
            "AZCOPY_LOG_LOCATION": str(self._scratch / "log"),
            "AZCOPY_JOB_PLAN_LOCATION": str(self._scratch / "plan"),
        }
        return subprocess.Popen(
            [azcopy_path(), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def job_id(self) -> str:
        return next(path.name.split("--")[0] for path in (self._scratch / "plan").iterdir() if "steV" in path.name)


def play_ours(stage: Stage, *, stall_timeout_s: float = 45) -> Ending:
    """The module's own functions on this row; interrupted rows are played again without the fault where they say so."""
    fault = stage.fault
    started = time.monotonic()
    verdict, message = "ok", ""
    disturbing = _Disturbance(stage)
    try:
        disturbing.run(stall_timeout_s)
        if fault.disturb.startswith("resume"):
            started = time.monotonic()
            run_ours(stage, stage.sas if fault.disturb == "resume" else "", stall_timeout_s)
    except ClusterError as exc:
        verdict, message = exc.kind, str(exc)
    seconds = time.monotonic() - (disturbing.at or started)
    return stage.ending(verdict, verdict == "ok", seconds, True, message)


def run_ours(stage: Stage, sas: str, stall_timeout_s: float, should_stop: t.Callable[[], bool] | None = None) -> None:
    """Plan and copy like the module does."""
    options = dict(stage.fault.options)
    known = {field.name for field in dataclasses.fields(Settings)} - {"expected_files", "expected_bytes", "processes"}
    settings = Settings(
        **{name: value for name, value in options.items() if name in known},
        stall_timeout_s=stall_timeout_s,
        should_stop=should_stop,
    )
    request = CopyRequest(
        azcopy=azcopy_path(),
        source=stage.url,
        destination=str(stage.destination),
        sas=sas,
        **{name: value for name, value in options.items() if name not in known},
    )
    with private_directory(str(stage.destination.parent / "private"), share_id(request)) as private:
        request = dataclasses.replace(request, log_dir=f"{private}/log", plan_dir=f"{private}/plan")
        plan = make_plan(request, settings)
        if plan.needed:
            copy(request, settings, plan)


class _Disturbance:
    """The first run of our side, interfered with two seconds after its start where the row says so."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stop = threading.Event()
        self.at = 0.0

    def run(self, stall_timeout_s: float) -> None:
        disturb = self._stage.fault.disturb
        helper = threading.Thread(target=self._interfere) if disturb else None
        if helper is not None:
            helper.start()
        try:
            run_ours(self._stage, self._stage.sas, stall_timeout_s, self._stop.is_set)
        except ClusterError:
            if not disturb.startswith("resume"):
                raise
            self.at = 0.0
        finally:
            if helper is not None:
                helper.join()

    def _interfere(self) -> None:
        if self._stage.fault.disturb == "kill":
            wait_until(lambda: bool(_copying(str(self._stage.destination))), 10)
            time.sleep(1.0)
            self.at = time.monotonic()
            for pid in _copying(str(self._stage.destination)):
                os.kill(pid, signal.SIGKILL)
        else:
            time.sleep(2.0)
            self.at = time.monotonic()
            self._stop.set()


def _copying(destination: str) -> list[int]:
    """Our own AzCopy processes that copy (not list) into this directory."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                there = any(f"{word}/".startswith(f"{destination}/") for word in words)
                if "copy" in words[1:2] and there and "--dry-run" not in words:
                    found.append(int(entry.name))
    return found


__all__ = ["FAULTS", "Blob", "Ending", "Fault", "Stage", "noise", "play_ours", "play_raw", "run_ours"]
