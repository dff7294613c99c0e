# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A read-only Blob server that answers from memory with ``sendfile``, so that it is never what a benchmark measures.

Many names may share one body. It serves LIST (prefix, delimiter, marker, maxresults), HEAD and ranged GET, which is
all that a download needs; a SAS is neither asked for nor checked. ``with FastServer(blobs) as server:`` runs it in a
process of its own, so that it does not share an interpreter with what is measured.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import html
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
import typing as t
import urllib.parse

ACCOUNT = "devstoreaccount1"
CONTAINER = "data"
_DATE = "Fri, 20 Nov 2026 00:00:00 GMT"
_MAX_RESULTS = 5000
_COUNTED = ("LIST", "HEAD", "GET")


class Body(t.NamedTuple):
    """Bytes that one or many blobs have, and their content encoding."""

    data: bytes
    encoding: str = ""


class _Stored(t.NamedTuple):
    handle: int  # memfd
    size: int
    md5: str
    etag: str
    encoding: str


class FastServer:
    """Serves ``blobs`` (name -> Body) as container ``data``; ``list_delay_s`` is added to each LIST page."""

    def __init__(
        self,
        blobs: t.Mapping[str, Body],
        *,
        list_delay_s: float = 0.0,
        head_delay_s: float = 0.0,
        address: str = "127.0.0.1",
    ) -> None:
        self._address = address
        self._counts = multiprocessing.Array("l", len(_COUNTED))
        self._blobs = blobs
        self._list_delay_s = list_delay_s
        self._head_delay_s = head_delay_s
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((address, 0))
        self._listener.listen(1024)
        self.port: int = self._listener.getsockname()[1]
        self._process: multiprocessing.process.BaseProcess | None = None

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self.port}/{ACCOUNT}/{CONTAINER}"

    def counts(self) -> dict[str, int]:
        """Requests served so far: ``LIST``, ``HEAD`` and ``GET``."""
        return dict(zip(_COUNTED, self._counts))

    def _count(self, what: str) -> None:
        with self._counts.get_lock():
            self._counts[_COUNTED.index(what)] += 1

    def __enter__(self) -> FastServer:
        self._process = multiprocessing.get_context("fork").Process(target=self._serve, daemon=True)
        self._process.start()
        self._listener.close()
        return self

    def __exit__(self, *unused: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def _serve(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stored = {id(body): _store(body) for body in {id(body): body for body in self._blobs.values()}.values()}
        self._stored = {name: stored[id(body)] for name, body in self._blobs.items()}
        self._names = sorted(self._stored)
        while True:
            client, _address = self._listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, client: socket.socket) -> None:
        received = b""
        try:
            while True:
                while b"\r\n\r\n" not in received:
                    more = client.recv(65536)
                    if not more:
                        return
                    received += more
                head, _end, received = received.partition(b"\r\n\r\n")
                self._answer(client, head.decode("latin-1"))
        except OSError:
            return  # the client went away
        finally:
            client.close()

    def _answer(self, client: socket.socket, head: str) -> None:
        method, target, _version = head.split("\r\n", 1)[0].split(" ", 2)
        path, _question, query = target.partition("?")
        fields = dict(urllib.parse.parse_qsl(query))
        name = urllib.parse.unquote(path).removeprefix(f"/{ACCOUNT}/{CONTAINER}").strip("/")
        self._count("LIST" if fields.get("comp") == "list" else method)
        if fields.get("comp") == "list":
            time.sleep(self._list_delay_s)
            page = self._list(fields).encode()
            client.sendall(
                _head("200 OK", {"Content-Type": "application/xml", "Content-Length": str(len(page))}) + page
            )
            return
        if method == "HEAD":
            time.sleep(self._head_delay_s)
        blob = self._stored.get(name)
        if blob is None:
            client.sendall(_head("404 Not Found", {"x-ms-error-code": "BlobNotFound", "Content-Length": "0"}))
            return
        first, last = 0, blob.size - 1
        wanted = re.search(r"(?im)^(?:x-ms-)?range: bytes=(\d+)-(\d*)", head)
        if wanted and method == "GET":
            first, last = int(wanted.group(1)), min(int(wanted.group(2) or last), last)
        length = last - first + 1
        headers = _blob_headers(blob, length)
        if wanted and method == "GET":
            headers["Content-Range"] = f"bytes {first}-{last}/{blob.size}"
        client.sendall(_head("206 Partial Content" if wanted else "200 OK", headers))
        if method == "GET":
            while length:
                sent = os.sendfile(client.fileno(), blob.handle, first, length)
                first, length = first + sent, length - sent

    def _list(self, fields: dict[str, str]) -> str:
        prefix, delimiter = fields.get("prefix", ""), fields.get("delimiter", "")
        limit = min(int(fields.get("maxresults", _MAX_RESULTS)), _MAX_RESULTS)
        position = bisect.bisect_left(self._names, max(fields.get("marker", ""), prefix))
        entries: list[str] = []
        while position < len(self._names) and len(entries) < limit:
            name = self._names[position]
            if not name.startswith(prefix):
                position = len(self._names)
                break
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                folder = name[: cut + 1]
                entries.append(f"<BlobPrefix><Name>{html.escape(folder)}</Name></BlobPrefix>")
                position = bisect.bisect_left(self._names, folder[:-1] + chr(ord(delimiter) + 1))
            else:
                entries.append(_entry(name, self._stored[name]))
                position += 1
        more = position < len(self._names) and self._names[position].startswith(prefix)
        marker = html.escape(self._names[position]) if more else ""
        return (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{CONTAINER}"><Blobs>'
            f"{''.join(entries)}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
        )


def _store(body: Body) -> _Stored:
    handle = os.memfd_create("blob")
    view = memoryview(body.data)
    while view:
        view = view[os.write(handle, view) :]
    md5 = base64.b64encode(hashlib.md5(body.data).digest()).decode()
    return _Stored(handle, len(body.data), md5, f'"0x{md5[:12].encode().hex().upper()}"', body.encoding)


def _head(status: str, headers: dict[str, str]) -> bytes:
    fixed = {"x-ms-version": "2025-07-05", "x-ms-request-id": "0", "Date": _DATE}
    lines = [f"{name}: {value}" for name, value in {**fixed, **headers}.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")


def _blob_headers(blob: _Stored, length: int) -> dict[str, str]:
    headers = {
        "Content-Length": str(length),
        "Content-Type": "application/octet-stream",
        "Content-MD5": blob.md5,
        "x-ms-blob-content-md5": blob.md5,
        "x-ms-blob-type": "BlockBlob",
        "ETag": blob.etag,
        "Last-Modified": _DATE,
        "x-ms-creation-time": _DATE,
        "Accept-Ranges": "bytes",
    }
    if blob.encoding:
        headers["Content-Encoding"] = blob.encoding
    return headers


def _entry(name: str, blob: _Stored) -> str:
    encoding = f"<Content-Encoding>{blob.encoding}</Content-Encoding>" if blob.encoding else ""
    return (
        f"<Blob><Name>{html.escape(name)}</Name><Properties><Creation-Time>{_DATE}</Creation-Time>"
        f"<Last-Modified>{_DATE}</Last-Modified><Etag>{blob.etag.strip(chr(34))}</Etag>"
        f"<Content-Length>{blob.size}</Content-Length><Content-Type>application/octet-stream</Content-Type>{encoding}"
        f"<Content-MD5>{blob.md5}</Content-MD5><BlobType>BlockBlob</BlobType><AccessTier>Hot</AccessTier>"
        "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState></Properties></Blob>"
    )


__all__ = ["ACCOUNT", "CONTAINER", "Body", "FastServer"]
