# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine as it is in Azure, as far as storage access goes, in a network of its own.

In it are the instance metadata service at its real address, and a storage account under its real name
(``https://ACCOUNT.blob.core.windows.net``) that takes bearer tokens over TLS: Azurite with ``--oauth basic``. Nothing
outside is changed or reached. ``node.call(function, ...)`` and ``node.run(argv)`` work inside. Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import pathlib
import queue
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import typing as t
from concurrent.futures import Future

from lab.blob.imds import ADDRESS, Imds, ImdsServer
from lab.blob.service import Azurite

ACCOUNT = "gpulab"
HOST = f"{ACCOUNT}.blob.core.windows.net"
_KEY = "bm90IGEgc2VjcmV0"
# unshare(2) and mount(2)
_CLONE_FS, _CLONE_NEWNS, _CLONE_NEWNET = 0x200, 0x20000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
T = t.TypeVar("T")


class NoNamespaceError(RuntimeError):
    """This process may not have a network of its own."""


class AzureNode:
    """The machine. ``imds`` may be changed at any time, ``blobs`` fills the account, ``ca`` is what to trust."""

    def __init__(self) -> None:
        self.imds = Imds()
        self._stack = contextlib.ExitStack()
        self._work: queue.SimpleQueue[tuple[Future[t.Any], t.Callable[[], t.Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> AzureNode:
        missing = [program for program in ("ip", "openssl") if shutil.which(program) is None]
        if missing:
            raise NoNamespaceError(f"Needs {' and '.join(missing)}.")
        directory = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="azure-node-")))
        self._thread.start()
        self._stack.callback(self._thread.join, 10)
        self._stack.callback(self._work.put, None)
        try:
            self.call(_enter_namespace, directory)
            self.ca, certificate, key = make_certificates(directory)
            self._start_imds()
            self._stack.callback(lambda: self._imds_server.__exit__())
            self.blobs = AzureBlobs(self, certificate, key)
            self.call(self.blobs.start)
            self._stack.callback(self.blobs.stop)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self._stack.close()

    def call(self, function: t.Callable[..., T], *arguments: t.Any) -> T:
        """Call ``function`` inside; its threads and processes are inside as well."""
        future: Future[T] = Future()
        self._work.put((future, lambda: function(*arguments)))
        return future.result()

    def run(
        self, argv: t.Sequence[str], *, trusting: bool = True, **options: t.Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside; ``trusting`` makes the account's certificate authority one that is trusted."""
        environment = {**os.environ, **options.pop("env", {})}
        if trusting:
            environment["SSL_CERT_FILE"] = str(self.ca)
        return self.call(
            lambda: subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, **options)
        )

    @contextlib.contextmanager
    def without_imds(self) -> t.Iterator[None]:
        """Nothing that is sent to the metadata service is answered, as behind a firewall that drops packets.

        Its place is taken by somebody who listens and never accepts: once the queue is full, Linux drops what comes.
        """
        self._imds_server.__exit__()
        with contextlib.ExitStack() as stack:
            stack.callback(self._start_imds)
            deaf = stack.enter_context(self.call(socket.socket))
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            deaf.bind(ADDRESS)
            deaf.listen(0)
            for _place in range(4):
                caller = stack.enter_context(self.call(socket.socket))
                caller.setblocking(False)
                caller.connect_ex(ADDRESS)
            yield

    def _start_imds(self) -> None:
        self._imds_server = self.call(lambda: ImdsServer(self.imds, ADDRESS).__enter__())

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, function = item
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)


class AzureBlobs(Azurite):
    """Azurite under the name and the port of a storage account in Azure."""

    def __init__(self, node: AzureNode, certificate: pathlib.Path, key: pathlib.Path) -> None:
        super().__init__(port=443, account=ACCOUNT, key=_KEY)
        self._node = node
        self.options = ["--oauth", "basic", "--cert", str(certificate), "--key", str(key)]
        self.environment = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{_KEY}"}

    @property
    def endpoint(self) -> str:
        return f"https://{HOST}"

    @property
    def root(self) -> str:
        return ""

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPSConnection(HOST, timeout=60)
        plain = self._node.call(socket.create_connection, (self.address, self.port))
        trusted = ssl.create_default_context(cafile=str(self._node.ca))
        connection.sock = trusted.wrap_socket(plain, server_hostname=HOST)
        return connection


def make_certificates(directory: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """A certificate authority, and a certificate and key for every account, good for two days."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (directory / "names").write_text("subjectAltName=DNS:*.blob.core.windows.net\n")
    for argv in (
        ["req", "-x509", *new_key, "-days", "2", "-subj", "/CN=Lab authority", "-keyout", "ca.key", "-out", "ca.pem"],
        ["req", *new_key, "-subj", "/CN=Lab storage", "-keyout", "blob.key", "-out", "blob.csr"],
        ["x509", "-req", "-in", "blob.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
         "-extfile", "names", "-out", "blob.pem"],
    ):  # fmt: skip
        subprocess.run(["openssl", *argv], cwd=directory, check=True, capture_output=True)
    return directory / "ca.pem", directory / "blob.pem", directory / "blob.key"


def _enter_namespace(directory: pathlib.Path) -> None:
    """Give the calling thread a network of its own, and an /etc/hosts in which the account is this machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    hosts = directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {HOST}\n")

    def must(ended: int) -> None:
        if ended != 0:
            raise NoNamespaceError(f"A network of its own needs root: {os.strerror(ctypes.get_errno())}.")

    # One after the other: without the first the others would be done to this machine.
    must(libc.unshare(_CLONE_FS | _CLONE_NEWNS | _CLONE_NEWNET))
    must(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    must(libc.mount(str(hosts).encode(), b"/etc/hosts", None, _MS_BIND, None))
    _ip("link set lo up")
    _ip(f"address add {ADDRESS[0]}/32 dev lo")


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)


__all__ = ["ACCOUNT", "HOST", "AzureBlobs", "AzureNode", "NoNamespaceError", "make_certificates"]
