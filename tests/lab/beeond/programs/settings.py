# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's double is set to: its version, what stands in for the file system, and its faults.

Standard library only, Python 3.9 or newer. See README.md beside this directory.
"""

from __future__ import annotations

import json
import os
import socket
import time
import typing as t
from pathlib import Path

PLACE = Path("/var/lib/beegfs-double")
SETTINGS = PLACE / "settings.json"
DEFAULTS: dict[str, t.Any] = {
    "version": "7.4.7",
    # What is mounted: "tmpfs", empty and of this node alone, or "directory", a part of shared_directory.
    "backing": "tmpfs",
    "shared_directory": "",
    # The address that daemons listen at; empty: all of the node's.
    "address": "",
    # The kernel module: "loadable", "buildable" (modprobe fails until it was built), or "missing".
    "module": "loadable",
    "offline_timeout_s": 180,
    # Faults, each a list of programs or steps; fault.py writes them.
    "hang": [],
    "refuse": [],
    "dead": [],
    "dies_after_s": {},
    "stuck": [],
    "not_good": [],
    "unmount_fails": False,
    "partial_stop": False,
}


def load() -> dict[str, t.Any]:
    """The settings, with defaults for those that are not in the file."""
    try:
        found = json.loads(SETTINGS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = {}
    return {**DEFAULTS, **found}


def store(values: t.Mapping[str, t.Any]) -> None:
    """Replace the settings in one step: programs read them at any time."""
    PLACE.mkdir(parents=True, exist_ok=True)
    draft = SETTINGS.with_name(f"settings.{os.getpid()}")
    draft.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(SETTINGS)


def major() -> int:
    """The option set: 7 or 8."""
    return int(str(load()["version"]).split(".", 1)[0])


def hang_if_asked(step: str) -> None:
    """A step with the fault "hang" does not come back, even if the fault is taken away; it can be killed."""
    if step in load()["hang"]:
        while True:
            time.sleep(3600)


def host() -> str:
    """The node's name as the services have it: the host name up to the first dot."""
    name = load().get("host") or socket.gethostname()
    return str(name)
