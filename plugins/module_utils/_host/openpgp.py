# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Just enough of OpenPGP (RFC 4880) to know whose key a file holds, on machines that have no gpg: apt brings only gpgv."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_BEGIN, _END = "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----END PGP PUBLIC KEY BLOCK-----"
_PUBLIC_KEY = 6


def dearmor(data: bytes) -> bytes:
    """The binary form of a key that may be armored."""
    text = data.decode("latin-1")
    if _BEGIN not in text:
        return data
    body = text.split(_BEGIN, 1)[1].split(_END, 1)[0].replace("\r", "")
    # Headers end with an empty line; a line that begins with "=" is the checksum.
    lines = body.split("\n\n", 1)[-1].split("\n")
    try:
        return base64.b64decode("".join(line for line in lines if not line.startswith("=")), validate=True)
    except binascii.Error as exc:
        raise ClusterError("bad_key", f"The key is damaged: {exc}.", "Fetch it again.") from exc


def armor(data: bytes) -> str:
    """The armored form, without the optional checksum."""
    text = base64.b64encode(data).decode("ascii")
    return "\n".join([_BEGIN, "", *re.findall(".{1,64}", text), _END, ""])


def _packets(data: bytes) -> t.Iterator[tuple[int, bytes]]:
    """The packets as (tag, body); stops at what is not a packet."""
    place = 0
    while place + 1 < len(data):
        head = data[place]
        if not head & 0x80:
            return
        place += 1
        if head & 0x40:
            tag, first = head & 0x3F, data[place]
            if first < 192:
                length, place = first, place + 1
            elif first < 224:
                length, place = ((first - 192) << 8) + data[place + 1] + 192, place + 2
            else:
                length, place = int.from_bytes(data[place + 1 : place + 5], "big"), place + 5
        else:
            tag, size = (head >> 2) & 0x0F, 1 << (head & 3)
            length, place = int.from_bytes(data[place : place + size], "big"), place + size
        yield tag, data[place : place + length]
        place += length


def fingerprints(data: bytes) -> list[str]:
    """The fingerprints of the primary keys of version 4 in a key file, armored or not, in capitals."""
    found = []
    for tag, body in _packets(dearmor(data)):
        if tag == _PUBLIC_KEY and body[:1] == b"\x04":
            packet = b"\x99" + len(body).to_bytes(2, "big") + body
            found.append(hashlib.sha1(packet, usedforsecurity=False).hexdigest().upper())  # RFC 4880, 12.2
    return found


def check_fingerprint(data: bytes, wanted: str, name: str) -> None:
    """Refuse a file that holds any other key than the one that is trusted."""
    have, want = fingerprints(data), re.sub(r"\s", "", wanted).upper()
    if have != [want]:
        said = ", ".join(have) if have else "no key"
        raise ClusterError(
            "wrong_key",
            f"{name} holds {said}, but the key {want} was expected. Nothing was changed.",
            "Check the address. If the vendor has a new key, confirm its fingerprint and set `repository_fingerprint`.",
        )


__all__ = ["armor", "check_fingerprint", "dearmor", "fingerprints"]
