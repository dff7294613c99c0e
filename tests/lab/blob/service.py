# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Blob service on loopback for tests: Azurite as a context manager, and where its tools are.

``with azurite() as blobs: blobs.create_container("c"); blobs.put("c", "a/b", b"...")``
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import typing as t
import urllib.parse

from lab.blob.sas import EMULATOR_ACCOUNT, EMULATOR_KEY, account_sas

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOLS = ROOT / ".cache" / "blob" / "node_modules"


class ToolMissingError(RuntimeError):
    """A program of the blob lab is not installed."""


def azcopy_path() -> str:
    """Path of AzCopy: ``$LAB_AZCOPY``, or the one that bin/test installs under .cache/blob."""
    bundled = TOOLS / "@azure-tools" / "azcopy-linux" / "dist" / "bin" / "azcopy_linux_amd64"
    return _tool("LAB_AZCOPY", bundled)


def azurite_path() -> str:
    """Path of Azurite's blob service: ``$LAB_AZURITE``, or the one that bin/test installs under .cache/blob."""
    return _tool("LAB_AZURITE", TOOLS / ".bin" / "azurite-blob")


def _tool(variable: str, bundled: pathlib.Path) -> str:
    path = pathlib.Path(os.environ.get(variable) or bundled)
    if not path.is_file():
        raise ToolMissingError(
            f"{path} is missing. Run bin/test once, which installs it, or set {variable} to your own copy."
        )
    if not os.access(path, os.X_OK):
        path.chmod(0o755)
    return str(path)


def free_port() -> int:
    """A TCP port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class BlobService:
    """A Blob endpoint with path-style URLs and the few calls that tests need to fill it."""

    def __init__(
        self, port: int, account: str = EMULATOR_ACCOUNT, key: str = EMULATOR_KEY, address: str = "127.0.0.1"
    ) -> None:
        self.address = address
        self.port = port
        self.account = account
        self.key = key

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}:{self.port}{self.root}"

    @property
    def root(self) -> str:
        """What the path of every request begins with."""
        return f"/{self.account}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, self.port, timeout=60)

    def url(self, container: str, path: str = "") -> str:
        """URL of a container or of something in it, without a SAS."""
        return "/".join([self.endpoint, container, *([urllib.parse.quote(path)] if path else [])])

    def sas(self, permissions: str = "rwdlac", expires_in_s: int = 86400) -> str:
        return account_sas(self.account, self.key, permissions, expires_in_s)

    def _call(
        self, method: str, path: str, query: str = "", headers: dict[str, str] | None = None, body: bytes = b""
    ) -> bytes:
        connection = self.connect()
        try:
            target = f"{self.root}/{path}?" + "&".join(part for part in (query, self.sas()) if part)
            connection.request(method, target, body=body, headers={"x-ms-version": "2021-12-02", **(headers or {})})
            response = connection.getresponse()
            data = response.read()
            if response.status >= 300:
                raise RuntimeError(f"{method} {path}: HTTP {response.status} {data[:300]!r}")
            return data
        finally:
            connection.close()

    def create_container(self, name: str) -> None:
        self._call("PUT", name, "restype=container")

    def put(self, container: str, name: str, data: bytes, *, encoding: str = "", md5: bool | str = True) -> None:
        """Store a block blob; ``md5`` may be False (none) or the base64 text to claim, true or not."""
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
        if md5 is True:
            md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        if md5:
            headers["x-ms-blob-content-md5"] = str(md5)
        if encoding:
            headers["x-ms-blob-content-encoding"] = encoding
        self._call("PUT", f"{container}/{urllib.parse.quote(name)}", headers=headers, body=data)

    def put_in_blocks(self, container: str, name: str, data: bytes) -> None:
        """Store a block blob as large ones are uploaded: the service makes no MD5 of it."""
        path, block = f"{container}/{urllib.parse.quote(name)}", base64.b64encode(b"0").decode()
        self._call("PUT", path, f"comp=block&blockid={urllib.parse.quote(block)}", body=data)
        listed = f'<?xml version="1.0" encoding="utf-8"?><BlockList><Latest>{block}</Latest></BlockList>'
        self._call("PUT", path, "comp=blocklist", body=listed.encode())

    def get(self, container: str, name: str) -> bytes:
        return self._call("GET", f"{container}/{urllib.parse.quote(name)}")

    def headers(self, container: str, name: str) -> dict[str, str]:
        """Response headers of a HEAD on a blob, names in lower case."""
        connection = self.connect()
        try:
            path = f"{self.root}/{container}/{urllib.parse.quote(name)}?{self.sas()}"
            connection.request("HEAD", path, headers={"x-ms-version": "2021-12-02"})
            response = connection.getresponse()
            response.read()
            return {key.lower(): value for key, value in response.getheaders()}
        finally:
            connection.close()

    def delete(self, container: str, name: str) -> None:
        self._call("DELETE", f"{container}/{urllib.parse.quote(name)}")


class Azurite(BlobService):
    """Azurite in a process group of its own; its data stays over ``stop()`` and ``start()`` when ``location`` is given."""

    options: t.Sequence[str] = ()
    environment: t.Mapping[str, str] = {}

    def __init__(self, port: int = 0, location: str | None = None, **account: str) -> None:
        super().__init__(port or free_port(), **account)
        self._location = location
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 30) -> None:
        argv = [azurite_path(), "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        argv += ["--blobHost", self.address, "--blobPort", str(self.port)]
        argv += ["--location", self._location] if self._location else ["--inMemoryPersistence"]
        self._process = subprocess.Popen(
            [*argv, *self.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **self.environment},
        )
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"Azurite ended at once with exit code {self._process.returncode}: {argv}")
            with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), timeout=1):
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"Azurite did not listen on port {self.port} within {timeout_s} s.")

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=5)


@contextlib.contextmanager
def azurite(*, persistent: bool = False) -> t.Iterator[Azurite]:
    """Azurite on a free port for the length of a ``with`` block; ``persistent`` data survives ``stop()`` and ``start()``."""
    with contextlib.ExitStack() as stack:
        location = stack.enter_context(tempfile.TemporaryDirectory(prefix="azurite-")) if persistent else None
        server = Azurite(location=location)
        server.start()
        stack.callback(server.stop)
        yield server


__all__ = ["Azurite", "BlobService", "ToolMissingError", "azcopy_path", "azurite", "azurite_path", "free_port"]
