# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What tools print, as plain data."""

from __future__ import annotations

import json
import re

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvme_raid.model import (
    Member,
    Signature,
    array_name,
    plain_uuid,
)


def parse_wipefs(text: str) -> dict[str, tuple[Signature, ...]]:
    """Signatures by device from ``wipefs --no-act --json``; a device without any is not in it."""
    if not text.strip():
        return {}
    found: dict[str, list[Signature]] = {}
    for entry in json.loads(text)["signatures"]:
        signature = Signature(entry["type"] or "unknown", entry.get("label") or "", entry.get("uuid") or "")
        known = found.setdefault(entry["device"], [])
        # A GPT and its backup, ext4's and a RAID's copies: once is enough.
        if signature not in known:
            known.append(signature)
    return {device: tuple(signatures) for device, signatures in found.items()}


def parse_blkid(text: str, offset: int) -> Signature:
    """What ``blkid --probe --offset N --output export`` found there; it prints nothing of several that contradict each other."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    label = re.sub(r"\\(.)", r"\1", values.get("LABEL", ""))
    return Signature(values.get("TYPE") or values.get("PTTYPE") or "unknown", label, values.get("UUID", ""), offset)


def parse_examine(text: str) -> Member | None:
    """What ``mdadm --examine --export`` says of one disk; None for a disk that belongs to no array."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "MD_UUID" not in values:
        return None
    return Member(
        plain_uuid(values["MD_UUID"]),
        array_name(values.get("MD_NAME", "")),
        values.get("MD_LEVEL", ""),
        int(values.get("MD_DEVICES", "0")),
        int(values.get("MD_EVENTS", "0")),
    )


def parse_mdstat(text: str) -> dict[str, tuple[bool, frozenset[str]]]:
    """Every array of ``/proc/mdstat``: whether it is active, and its members that did not fail."""
    arrays = {}
    for line in text.splitlines():
        match = re.match(r"^(md\S*) : (active|inactive)\b(.*)$", line)
        if match:
            members = re.findall(r"(\S+?)\[\d+\](?!\(F\))", match.group(3))
            arrays[match.group(1)] = (match.group(2) == "active", frozenset(members))
    return arrays


__all__ = ["parse_blkid", "parse_examine", "parse_mdstat", "parse_wipefs"]
