# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that the kernel would not load is not built: Secure Boot as the firmware, shim and the kernel tell it."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import secure_boot

EFI = "sys/firmware/efi/efivars"
ON = f"{EFI}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = f"{EFI}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
LOCKDOWN, FORCED = "sys/kernel/security/lockdown", "sys/module/module/parameters/sig_enforce"
YES, NO = b"\x06\x00\x00\x00\x01", b"\x06\x00\x00\x00\x00"


def lay(root: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


@pytest.mark.parametrize(
    ("files", "enforced"),
    [
        ({}, False),
        ({ON: NO}, False),
        ({ON: YES}, True),
        # Cut off, or of another size: nothing is known, and modprobe has the last word.
        ({ON: b"\x06\x00\x00\x00"}, False),
        ({ON: YES, SHIM: b"\x06\x00\x00\x00\x01"}, False),
        ({ON: YES, SHIM: NO}, True),
        ({ON: YES, LOCKDOWN: b"none [integrity] confidentiality\n", FORCED: b"N\n"}, True),
        ({ON: YES, LOCKDOWN: b"[none] integrity confidentiality\n", FORCED: b"Y\n"}, True),
        ({ON: YES, LOCKDOWN: b"[none] integrity confidentiality\n", FORCED: b"N\n"}, False),
    ],
)
def test_whether_modules_must_be_signed(tmp_path: pathlib.Path, files: dict[str, bytes], enforced: bool) -> None:
    assert secure_boot.enforced(lay(tmp_path, files)) is enforced


@pytest.mark.parametrize(
    ("files", "arguments", "path"),
    [
        ({}, (), ""),
        ({"var/lib/dkms/mok.pub": b""}, (), "/var/lib/dkms/mok.pub"),
        # Ubuntu's dkms signs with shim's key, whether or not it has one of its own.
        (
            {"var/lib/dkms/mok.pub": b"", "var/lib/shim-signed/mok/MOK.der": b""},
            (),
            "/var/lib/shim-signed/mok/MOK.der",
        ),
        (
            {
                "etc/dkms/framework.conf.d/site.conf": b'# mok_certificate=/no\nmok_certificate="/etc/keys/site.der"\n',
                "etc/keys/site.der": b"",
                "var/lib/dkms/mok.pub": b"",
            },
            (),
            "/etc/keys/site.der",
        ),
        (
            {"root/key.der": b"", "var/lib/dkms/mok.pub": b""},
            ("--module-signing-public-key=/root/key.der",),
            "/root/key.der",
        ),
    ],
)
def test_which_key_signs(
    tmp_path: pathlib.Path, files: dict[str, bytes], arguments: tuple[str, ...], path: str
) -> None:
    assert secure_boot.certificate(lay(tmp_path, files), arguments) == path


class Machine:
    """Has mokutil or not, which knows the key or not."""

    def __init__(self, said: str | None) -> None:
        self.said = said

    def get_bin_path(self, name: str) -> str | None:
        return None if self.said is None else f"/usr/bin/{name}"

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        # mokutil ends with 1 for a key that is enrolled and with 0 for one that is not, so only its words count.
        return (1 if "already" in str(self.said) else 0), f"{argv[-1]} {self.said}\n", ""


def test_a_key_that_is_not_enrolled_is_refused_with_what_to_do(tmp_path: pathlib.Path) -> None:
    root = lay(tmp_path, {ON: YES, "var/lib/dkms/mok.pub": b""})
    with pytest.raises(
        ClusterError, match=r"Secure Boot is on.*mok\.pub is not enrolled.*Nothing was changed"
    ) as caught:
        secure_boot.check(Machine("is not enrolled"), root, instead="do without")
    assert caught.value.kind == "secure_boot"
    assert "mokutil --import /var/lib/dkms/mok.pub" in caught.value.remedy
    assert caught.value.remedy.endswith(", or do without.")


def test_without_mokutil_nothing_is_said_of_the_key(tmp_path: pathlib.Path) -> None:
    root = lay(tmp_path, {ON: YES, "var/lib/dkms/mok.pub": b""})
    with pytest.raises(ClusterError, match=r"mokutil, which .*mok\.pub is enrolled, is not installed") as caught:
        secure_boot.check(Machine(None), root, instead="do without")
    assert caught.value.remedy == "Install mokutil and run again."


def test_a_key_that_is_enrolled_is_right(tmp_path: pathlib.Path) -> None:
    root = lay(tmp_path, {ON: YES, "var/lib/dkms/mok.pub": b""})
    secure_boot.check(Machine("is already enrolled"), root, instead="do without")


def test_no_key_yet_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ClusterError, match="no key for it yet"):
        secure_boot.check(Machine("is already enrolled"), lay(tmp_path, {ON: YES}), instead="do without")
