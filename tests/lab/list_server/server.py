# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The listing side of Blob storage for tests and benchmarks: List Blobs and HEAD, real XML, no data.

It answers for containers of any name below one account, path-style as the storage emulator does, takes a delay per LIST
and per HEAD, counts requests (GET /__stats), and can be told to fail. By hand:

    python tests/lab/list_server/server.py --blobs 1000000 --directories 100 --list-delay 0.1
"""

from __future__ import annotations

import argparse
import base64
import bisect
import contextlib
import hashlib
import html
import json
import subprocess
import sys
import threading
import time
import typing as t
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACCOUNT = "devstoreaccount1"
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
# The elements and their order are those of the service (x-ms-version 2021-12-02 and later).
_BLOB = (
    "<Blob><Name{encoded}>{name}</Name><Properties><Creation-Time>" + _DATE + "</Creation-Time><Last-Modified>" + _DATE
    + "</Last-Modified><Etag>{etag}</Etag>{resource}<Content-Length>{size}</Content-Length>"
    "<Content-Type>application/octet-stream</Content-Type>{encoding}<Content-Language /><Content-CRC64 />"
    "<Content-MD5>{md5}</Content-MD5><Cache-Control /><Content-Disposition /><BlobType>BlockBlob</BlobType>"
    "<AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred><LeaseStatus>unlocked</LeaseStatus>"
    "<LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted></Properties>"
    "{metadata}<OrMetadata /></Blob>"
)  # fmt: skip
_HEAD = (
    '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://localhost/{account}/"'
    ' ContainerName="{container}"><Prefix>{prefix}</Prefix><MaxResults>{limit}</MaxResults><Blobs>'
)


class Entry(t.NamedTuple):
    """A blob that is described by hand instead of derived from its name."""

    name: str
    size: int = 1
    md5: str = ""
    etag: str = "0x8DE0000000000AA"
    encoding: str = ""
    metadata: str = ""  # XML below <Metadata>
    resource: str = ""  # ResourceType of accounts with a hierarchical namespace
    encoded: bool = False  # send the name percent-encoded


class Fault(t.NamedTuple):
    """What to do with the next ``times`` LIST requests instead of answering them."""

    kind: str  # "status", "truncate" (short body), "cut" (whole HTTP answer, XML cut), "drop", "hang"
    times: int = 1
    status: int = 503
    code: str = "ServerBusy"
    text: str = ""
    retry_after: str = ""  # the header of a "status"
    seconds: float = 5.0
    after: int = 0  # LIST requests to answer first


def dataset(blobs: int, directories: int = 0, groups: int = 64) -> list[str]:
    """Sorted names like those of the CosmoFlow dataset, below train/, spread over ``directories`` where asked for."""
    digits = len(str(max(blobs // groups, 99999)))
    per_directory = -(-blobs // directories) if directories else 0
    width = len(str(max(directories - 1, 0)))
    names = []
    for index in range(blobs):
        below = f"{index // per_directory:0{width}d}/" if directories else ""
        names.append(f"train/{below}univ_ics_2019-03_a{index // groups:0{digits}d}_{index % groups:03d}.tfrecord.gz")
    return names


class ListServer(ThreadingHTTPServer):
    """Serves ``names`` (sorted) in every container; see the module's text."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self,
        names: t.Sequence[str | Entry],
        *,
        list_delay_s: float = 0.0,
        head_delay_s: float = 0.0,
        page_limit: int = 5000,
        most_bytes: int = 2 << 20,
        signature: str = "",
        missing_containers: t.Collection[str] = (),
        port: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.entries = {entry.name: entry for entry in names if isinstance(entry, Entry)}
        self.names = sorted(name if isinstance(name, str) else name.name for name in names)
        self.list_delay_s, self.head_delay_s, self.page_limit = list_delay_s, head_delay_s, page_limit
        self.most_bytes = most_bytes
        self.signature = signature
        self.missing_containers = missing_containers
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self.stats = {"LIST": 0, "HEAD": 0, "GET": 0, "other": 0}
        self.queries: list[dict[str, str]] = []

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        """A client that hangs up is none of our business; anything else is a bug of this server."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{ACCOUNT}/data"

    def count(self, what: str) -> None:
        with self.lock:
            self.stats[what] += 1

    def take_fault(self) -> Fault | None:
        with self.lock:
            for index, fault in enumerate(self.faults):
                if fault.after:
                    self.faults[index] = fault._replace(after=fault.after - 1)
                    continue
                if fault.times > 1:
                    self.faults[index] = fault._replace(times=fault.times - 1)
                else:
                    del self.faults[index]
                return fault
        return None

    def entry(self, name: str) -> Entry:
        described = self.entries.get(name)
        if described:
            return described
        digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
        size = 1 + (int.from_bytes(digest[:3], "big") * self.most_bytes >> 24)
        encoding = "gzip" if name.endswith(".gz") else ""
        return Entry(name, size, base64.b64encode(digest).decode(), f"0x8DE{digest[:6].hex().upper()}", encoding)

    def page(self, container: str, query: t.Mapping[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = min(int(query.get("maxresults") or self.page_limit), self.page_limit)
        position = bisect.bisect_left(self.names, max(query.get("marker", ""), prefix))
        parts = [_HEAD.format(account=ACCOUNT, container=container, prefix=html.escape(prefix), limit=limit)]
        shown, total = 0, len(self.names)
        while position < total and self.names[position].startswith(prefix) and shown < limit:
            name = self.names[position]
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                directory = name[: cut + len(delimiter)]
                parts.append(f"<BlobPrefix><Name>{html.escape(directory)}</Name></BlobPrefix>")
                position = bisect.bisect_left(self.names, directory[:-1] + chr(ord(directory[-1]) + 1))
            else:
                parts.append(_render(self.entry(name)))
                position += 1
            shown += 1
        more = position < total and self.names[position].startswith(prefix)
        marker = f"<NextMarker>{html.escape(self.names[position])}</NextMarker>" if more else "<NextMarker />"
        parts.append(f"</Blobs>{marker}</EnumerationResults>")
        return "".join(parts).encode()


def _render(entry: Entry) -> str:
    name = urllib.parse.quote(entry.name) if entry.encoded else html.escape(entry.name, quote=False)
    return _BLOB.format(
        encoded=' Encoded="true"' if entry.encoded else "",
        name=name,
        etag=entry.etag,
        resource=f"<ResourceType>{entry.resource}</ResourceType>" if entry.resource else "",
        size=entry.size,
        encoding=f"<Content-Encoding>{entry.encoding}</Content-Encoding>" if entry.encoding else "<Content-Encoding />",
        md5=entry.md5,
        metadata=f"<Metadata>{entry.metadata}</Metadata>" if entry.metadata else "<Metadata />",
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ListServer
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: t.Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        if parts.path == "/__stats":
            self._answer(200, json.dumps(self.server.stats).encode(), {"Content-Type": "application/json"})
            return
        query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        if query.get("comp") == "list":
            self._list(parts.path, query)
        elif query.get("restype") == "container":
            self.server.count("other")
            self._answer(200, b"", {"ETag": '"0x8DE"', "Last-Modified": _DATE})
        else:
            self.server.count("GET")
            self._blob(parts.path, with_body=True)

    def do_HEAD(self) -> None:
        if "restype=container" in self.path:
            self.do_GET()
            return
        self.server.count("HEAD")
        time.sleep(self.server.head_delay_s)
        self._blob(urllib.parse.urlsplit(self.path).path, with_body=False)

    def do_POST(self) -> None:
        """Forget what was counted."""
        with self.server.lock:
            self.server.stats.update(dict.fromkeys(self.server.stats, 0))
        self._answer(200, b"", {})

    def _list(self, path: str, query: dict[str, str]) -> None:
        self.server.count("LIST")
        self.server.queries.append(query)
        container = path.rstrip("/").rpartition("/")[2]
        time.sleep(self.server.list_delay_s)
        fault = self.server.take_fault()
        if fault and fault.kind == "hang":
            time.sleep(fault.seconds)
        if fault and fault.kind in ("hang", "drop"):
            self.close_connection = True
            return
        if fault and fault.kind == "status":
            self._refuse(fault.status, fault.code, fault.text, fault.retry_after)
        elif self.server.signature and query.get("sig") != self.server.signature:
            self._refuse(403, "AuthenticationFailed", "Signature did not match.")
        elif container in self.server.missing_containers:
            self._refuse(404, "ContainerNotFound", "The specified container does not exist.")
        else:
            body = self.server.page(container, query)
            if fault and fault.kind == "cut":
                body = body[: len(body) // 2]
            self._answer(200, body, {"Content-Type": "application/xml"}, short=bool(fault and fault.kind == "truncate"))

    def _blob(self, path: str, with_body: bool) -> None:
        name = urllib.parse.unquote(path).partition(f"/{ACCOUNT}/")[2].partition("/")[2]
        position = bisect.bisect_left(self.server.names, name)
        if position >= len(self.server.names) or self.server.names[position] != name:
            self._refuse(404, "BlobNotFound", "The specified blob does not exist.")
            return
        entry = self.server.entry(name)
        headers = {
            "ETag": f'"{entry.etag}"',
            "Last-Modified": _DATE,
            "Content-MD5": entry.md5,
            "x-ms-blob-type": "BlockBlob",
            "Content-Type": "application/octet-stream",
            "Accept-Ranges": "bytes",
        }
        headers.update({"Content-Encoding": entry.encoding} if entry.encoding else {})
        self._answer(200, bytes(entry.size) if with_body else b"", headers, length=entry.size)

    def _refuse(self, status: int, code: str, text: str, retry_after: str = "") -> None:
        body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{text}</Message></Error>'
        headers = {"x-ms-error-code": code, "Content-Type": "application/xml"}
        self._answer(status, body.encode(), {**headers, "Retry-After": retry_after} if retry_after else headers)

    def _answer(
        self, status: int, body: bytes, headers: t.Mapping[str, str], *, short: bool = False, length: int | None = None
    ) -> None:
        self.send_response(status)
        for key, text in headers.items():
            self.send_header(key, text)
        self.send_header("x-ms-version", self.headers.get("x-ms-version", "2021-12-02"))
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if short else body)
        if short:
            self.close_connection = True


@contextlib.contextmanager
def in_process(names: t.Sequence[str | Entry], **options: t.Any) -> t.Iterator[ListServer]:
    """A server in a thread of this process."""
    with ListServer(names, **options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Spawned(t.NamedTuple):
    """A server in a process of its own, so that its CPU time is not the client's."""

    url: str

    def stats(self) -> dict[str, int]:
        with urllib.request.urlopen(urllib.parse.urljoin(self.url, "/__stats"), timeout=10) as answer:
            return json.load(answer)

    def reset(self) -> None:
        urllib.request.urlopen(urllib.parse.urljoin(self.url, "/__stats"), data=b"", timeout=10).close()


@contextlib.contextmanager
def spawned(
    blobs: int,
    *,
    directories: int = 0,
    list_delay_s: float = 0.0,
    head_delay_s: float = 0.0,
    most_bytes: int = 2 << 20,
) -> t.Iterator[Spawned]:
    argv = [sys.executable, __file__, f"--blobs={blobs}", f"--directories={directories}"]
    argv += [f"--list-delay={list_delay_s}", f"--head-delay={head_delay_s}", f"--most-bytes={most_bytes}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            if not url:
                raise RuntimeError("the list server did not start")
            yield Spawned(url)
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blobs", type=int, default=1_000_000)
    parser.add_argument("--directories", type=int, default=0)
    parser.add_argument("--list-delay", type=float, default=0.0, help="seconds per LIST")
    parser.add_argument("--head-delay", type=float, default=0.0, help="seconds per HEAD")
    parser.add_argument("--most-bytes", type=int, default=2 << 20, help="of a blob")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    names = dataset(options.blobs, options.directories)
    with ListServer(
        names,
        list_delay_s=options.list_delay,
        head_delay_s=options.head_delay,
        most_bytes=options.most_bytes,
        port=options.port,
    ) as server:
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
