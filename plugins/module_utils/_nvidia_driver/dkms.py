# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Build a module anew with dkms, where what it was built for was replaced. What runs goes on running."""

from __future__ import annotations

import re

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host


def rebuild_commands(status: str, name: str, version: str, kernel: str) -> list[list[str]]:
    """What makes dkms build a module anew, by what ``dkms status`` says; nothing where dkms does not have it.

    ``name`` and ``version`` are patterns.
    """
    # dkms 3 writes nvidia/580.95.05, and dkms 2 nvidia, 580.95.05.
    found = re.search(rf"^({name})(?:/|, )({version})(?=[,:]|$)", status, re.M)
    if not found:
        return []
    module = ["-m", found.group(1), "-v", found.group(2), "-k", kernel, "--force"]
    return [["dkms", "build", *module], ["dkms", "install", *module]]


def rebuild(host: Host, name: str, version: str, kernel: str) -> str:
    """Build a module for the kernel and what is installed for it; returns why that does not work."""
    if not host.get_bin_path("dkms"):
        return "dkms is not installed"
    _rc, status, _err = host.run_command(["dkms", "status"])
    commands = rebuild_commands(status, name, version, kernel)
    for argv in commands:
        rc, out, err = host.run_command(argv)
        if rc != 0:
            return " ".join((err or out).split())[-200:]
    return "" if commands else "dkms does not have it"


__all__ = ["rebuild", "rebuild_commands"]
