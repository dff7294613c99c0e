#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a pod as kubelet does and tell of its process: ``cri.py RUNC_ROOT``, on a node with containerd.

The pod has the node's network, so that no CNI plugin is needed. Prints as JSON the environment of the process that keeps it, and
whether runc keeps it below RUNC_ROOT; then removes it. Needs nothing but Python: CRI is gRPC, of which one unary call is a few
frames of HTTP/2 (RFC 9113) with messages of protobuf (cri-api, pkg/apis/runtime/v1/api.proto).
"""

from __future__ import annotations

import json
import pathlib
import socket
import struct
import subprocess
import sys
import time

SOCKET = "/run/containerd/containerd.sock"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_NODE = 2  # NamespaceMode: the node's own


def field(number: int, value: str | bytes | int) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """A number, seven bits a byte, the lowest first."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _header(name: str, value: str) -> bytes:
    """A header that is not compressed; its parts are shorter than 127 bytes (RFC 7541, 6.2.2)."""
    return bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(method: str, message: bytes) -> bytes:
    """One call of the runtime service; returns the message of the answer."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/runtime.v1.RuntimeService/{method}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(_header(*pair) for pair in headers.items())
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(SOCKET)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b""))
        connection.sendall(_frame(_HEADERS, _END_HEADERS, 1, block))
        connection.sendall(_frame(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
        answer = _answer(connection)
    if not answer:
        raise SystemExit(f"containerd refused {method}: see journalctl -u containerd")
    return answer[5:]


def _answer(connection: socket.socket) -> bytes:
    """The data of the stream until it ends; none where the call failed, whose reason stands in compressed headers."""
    stream = connection.makefile("rb")
    data = b""
    while True:
        head = stream.read(9)
        kind, flags, number = struct.unpack(">BBI", head[3:])
        payload = stream.read(int.from_bytes(head[:3], "big"))
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind in (_RESET, _GOAWAY):
            raise SystemExit(f"containerd ended the connection: {payload!r}")
        elif kind == _DATA:
            data += payload
        if kind in (_DATA, _HEADERS) and number == 1 and flags & _END_STREAM:
            return data


def pod() -> bytes:
    """The configuration of a pod with the node's network."""
    metadata = field(1, "lab") + field(2, "lab") + field(3, "default")
    linux = field(2, field(1, field(1, _NODE)))
    return field(1, metadata) + field(8, linux)


def process(identity: str) -> int:
    """The process that keeps a pod."""
    argv = ["ctr", "--namespace", "k8s.io", "tasks", "ls"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return next(int(line.split()[1]) for line in said.splitlines() if line.startswith(identity))


def environment(number: int) -> list[str]:
    """The environment of a process, once runc has made it the container's program."""
    for _second in range(30):
        found = (pathlib.Path("/proc") / str(number) / "environ").read_text().split("\0")
        if found != [""] and not any(one.startswith("_LIBCONTAINER_") for one in found):
            return found
        time.sleep(1)
    raise SystemExit(f"process {number} does not get to be the container's program: {found}")


def main(argv: list[str]) -> int:
    """Start, look, remove."""
    answer = call("RunPodSandbox", field(1, pod()))
    # Its only field, and shorter than 128 bytes: a byte of number and type, a byte of length.
    identity = answer[2 : 2 + answer[1]].decode()
    try:
        seen = {
            "environment": environment(process(identity)),
            "runc_knows": (pathlib.Path(argv[0]) / "k8s.io" / identity).is_dir(),
        }
    finally:
        call("StopPodSandbox", field(1, identity))
        call("RemovePodSandbox", field(1, identity))
    print(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
