# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether the kernel would load a module that is built on this node, known before one that works is taken away.

With Secure Boot the kernel loads only modules that are signed with a key it trusts. dkms signs with a key of its own, which
has to be enrolled at the machine's console.
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text

_VARIABLES = "sys/firmware/efi/efivars"
# UEFI's own, and the one with which shim says that its owner turned validation off (shim, MokVars.txt).
_SECURE_BOOT = f"{_VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_NO_VALIDATION = f"{_VARIABLES}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
# Where dkms has its certificate: by its settings, as Ubuntu's package has it, and as it is by itself (dkms(8), "SIGNING").
_SETTINGS = ("etc/dkms/framework.conf", "etc/dkms/framework.conf.d")
_CERTIFICATES = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
_RUNFILE_KEY = "--module-signing-public-key="


def _is_one(path: Path) -> bool:
    """Whether an EFI variable holds a 1: four bytes of attributes come first."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return len(content) >= 5 and content[4] == 1


def enforced(root: Path) -> bool:
    """Whether the kernel refuses unsigned modules."""
    if not _is_one(root / _SECURE_BOOT) or _is_one(root / _NO_VALIDATION):
        return False
    # A kernel of one's own may be built without it.
    lockdown = read_text(root / "sys/kernel/security/lockdown")
    return "[none]" not in lockdown or read_text(root / "sys/module/module/parameters/sig_enforce") == "Y"


def certificate(root: Path, arguments: t.Sequence[str]) -> str:
    """The certificate of the key that signs what is built here, "" for none. ``arguments``: those of the .run file."""
    named = [word[len(_RUNFILE_KEY) :] for word in arguments if word.startswith(_RUNFILE_KEY)]
    for place in _SETTINGS:
        files = sorted((root / place).glob("*.conf")) if (root / place).is_dir() else [root / place]
        for file in files:
            found = re.findall(r"^\s*mok_certificate\s*=\s*[\"']?([^\"'\s]+)", read_text(file), re.M)
            named += [path for path in found if "$" not in path]
    return next((path for path in (*named, *_CERTIFICATES) if (root / path.lstrip("/")).is_file()), "")


def check(host: Host, root: Path, arguments: t.Sequence[str] = (), *, instead: str) -> None:
    """Refuse to build a module that the kernel would not load.

    ``arguments``: those of NVIDIA's .run file. ``instead``: what else helps, the end of a sentence that offers ways out.
    """
    if not enforced(root):
        return
    path = certificate(root, arguments)
    if path and not host.get_bin_path("mokutil"):
        raise ClusterError(
            "secure_boot",
            f"Secure Boot is on, and mokutil, which tells whether the key of {path} is enrolled, is not installed. Nothing was "
            "changed.",
            "Install mokutil and run again.",
        )
    if path:
        _rc, out, err = host.run_command(["mokutil", "--test-key", path])
        if "already enrolled" in out + err:
            return
    what = f"the key of {path} is not enrolled" if path else "there is no key for it yet"
    raise ClusterError(
        "secure_boot",
        f"Secure Boot is on, and the kernel would not load a module that is built here: {what}. Nothing was changed.",
        f"Enroll it (`mokutil --import {path or _CERTIFICATES[1]}`, after `dkms generate_mok` where there is none, then confirm it "
        f"at the console while the node boots), turn Secure Boot off in the firmware, or {instead}.",
    )


__all__ = ["certificate", "check", "enforced"]
