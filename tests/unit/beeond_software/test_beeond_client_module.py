# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's module: what keeps it from being built is said before anything is installed, and it is there for the next kernel, too."""

from __future__ import annotations

import pathlib
import platform
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import units
from beeond_node import DEB, Node, make_node, told

RUNS, NEXT = "6.8.0-50-generic", "6.8.0-60-generic"
OFED = "OFED_INCLUDE_PATH=/usr/src/ofa_kernel/default/include"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
AUTOBUILD = "etc/beegfs/beegfs-client-autobuild.conf"
#: Builds as BeeGFS' Makefile does, for the kernel that it is told; without one for that which runs.
BUILD = r"""#!/bin/sh
cd "$NODE" || exit 9
echo "${0##*/} $*" >>log
[ -f fails ] && { cat fails >&2; exit 2; }
kernel=6.8.0-50-generic; target=install
for one; do case $one in KRELEASE=*) kernel=${one#*=} ;; clean|module|install) target=$one ;; esac; done
[ $target = install ] || exit 0
mkdir -p lib/modules/$kernel/updates/fs/beegfs_autobuild; echo 8.3.1 >lib/modules/$kernel/updates/fs/beegfs_autobuild/beegfs.ko
"""
PROGRAMS = {
    "modinfo": r"""#!/bin/sh
file=$NODE/lib/modules/$2/updates/fs/beegfs_autobuild/beegfs.ko
[ -f "$NODE/lib/modules/$2/extra/beegfs.ko" ] && file=$NODE/lib/modules/$2/extra/beegfs.ko
[ -f "$file" ] || { echo "modinfo: ERROR: Module beegfs not found." >&2; exit 1; }
echo "filename:       $file"; echo "version:        $(cat "$file")"
""",
    "make": BUILD,
    "depmod": '#!/bin/sh\necho "depmod $*" >>"$NODE/log"\n',
    "dkms": r"""#!/bin/sh
cd "$NODE"; echo "dkms $*" >>log
mkdir -p "lib/modules/$3/extra"; echo 8.3.1 >"lib/modules/$3/extra/beegfs.ko"
""",
}


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node of Ubuntu with a kernel and its headers, on which systemd runs."""
    found = make_node(tmp_path, monkeypatch, "dpkg")
    for name, text in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "bin/mkdir").symlink_to("/bin/mkdir")
    monkeypatch.setattr(units, "SYSTEMD", str(found.root))
    monkeypatch.setattr(platform, "release", lambda: RUNS)
    (found.root / "lib/modules" / RUNS / "build").mkdir(parents=True)
    found.write("opt/beegfs/src/client/client_module_8/build/Version.mk", "BEEGFS_VERSION = 8.3.1\n")
    found.write("etc/init.d/beegfs-client", BUILD)
    (found.root / "etc/init.d/beegfs-client").chmod(0o755)
    found.write(AUTOBUILD, "buildEnabled=true\nbuildArgs=-j8\n")
    return found


def boots_next(node: Node, *, headers: bool = True) -> None:
    (node.root / "lib/modules" / NEXT / ("build" if headers else ".")).mkdir(parents=True)
    (node.root / "boot").mkdir()
    node.write(f"boot/vmlinuz-{NEXT}", "")
    (node.root / "boot/vmlinuz").symlink_to(f"vmlinuz-{NEXT}")


def with_ofed(node: Node, *kernels: str) -> None:
    """OFED's headers for these kernels; "default" leads to those of the first."""
    place = node.root / "usr/src/ofa_kernel"
    for kernel in kernels:
        node.write(f"usr/src/ofa_kernel/x86_64/{kernel}/include/rdma/rdma_cm.h", "")
    (place / "default").symlink_to(f"x86_64/{kernels[0]}")


def builds(node: Node) -> list[str]:
    return [line.replace(str(node.root), "") for line in node.log() if not line.startswith("apt-get")]


def test_it_is_built_ahead_for_the_kernel_that_runs_and_once(node: Node) -> None:
    assert told(node.run(check=True))[-1] == f"module beegfs build for kernel {RUNS}"
    assert node.log() == []
    assert told(node.run())[-1] == f"module beegfs build for kernel {RUNS}"
    assert builds(node) == ["beegfs-client rebuild"]
    node.add("installed", f"beegfs-client|{DEB}\n")
    for check in (True, False):
        assert (told(node.run(check=check)), builds(node)) == ([], [])


def test_it_is_built_for_the_kernel_that_boots_next_too(node: Node) -> None:
    boots_next(node)
    assert told(node.run())[-2:] == [f"module beegfs build for kernel {kernel}" for kernel in (RUNS, NEXT)]
    make = (
        f"make -C /opt/beegfs/src/client/client_module_8/build KRELEASE={NEXT} "
        f"KMOD_INST_DIR=/lib/modules/{NEXT}/updates/fs/beegfs_autobuild"
    )
    assert builds(node) == [
        "beegfs-client rebuild",
        *(f"{make} {words}" for words in ("clean", "-j8 module", "-j8 install", "clean")),
        f"depmod -a {NEXT}",
    ]
    assert told(node.run()) == []


def test_what_the_next_kernel_lacks_is_a_warning(node: Node) -> None:
    boots_next(node, headers=False)
    result = node.run()
    assert told(result)[-1] == f"module beegfs build for kernel {RUNS}"
    # Text, or a summary of an event, by the version of Ansible.
    [warning] = map(str, result["warnings"])
    assert f"Kernel {NEXT}, which boots next, will have no BeeGFS client" in warning
    assert f"Install linux-headers-{NEXT}." in warning


@pytest.mark.parametrize("check", [True, False])
def test_missing_headers_are_said_before_anything_is_installed(node: Node, check: bool) -> None:
    (node.root / "lib/modules" / RUNS / "build").rmdir()
    refused = node.run(**node.repository(), check=check)
    assert refused["error_kind"] == "headers_missing"
    assert f"Install linux-headers-{RUNS}." in refused["msg"]
    assert (node.log(), node.read("etc/sources")) == ([], "")


def test_headers_that_come_with_the_packages_are_waited_for(node: Node) -> None:
    (node.root / "lib/modules" / RUNS / "build").rmdir()
    node.add("available", f"linux-headers-{RUNS}|6.8\n")
    refused = node.run(packages=["beeond", f"linux-headers-{RUNS}"])
    # They were installed, and this double brings no directory with them.
    assert refused["error_kind"] == "headers_missing"
    assert f"linux-headers-{RUNS}" in node.log()[0]


def test_el_is_told_the_name_of_its_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(tmp_path, monkeypatch, "rpm")
    monkeypatch.setattr(units, "SYSTEMD", str(node.root))
    monkeypatch.setattr(platform, "release", lambda: "5.14.0-503.el9.x86_64")
    (node.root / "lib/modules/5.14.0-503.el9.x86_64").mkdir(parents=True)
    assert "Install kernel-devel-5.14.0-503.el9.x86_64." in node.run()["msg"]


def test_ofed_is_used_where_it_is_for_this_kernel_and_found_for_the_next(node: Node) -> None:
    boots_next(node)
    with_ofed(node, RUNS, NEXT)
    assert told(node.run(client_build_args=f"-j20 {OFED}"))[-1] == f"module beegfs build for kernel {NEXT}"
    assert node.read(AUTOBUILD).endswith(f"buildEnabled=true\nbuildArgs=-j20 {OFED}\n")
    assert any(
        f" -j20 OFED_INCLUDE_PATH=/usr/src/ofa_kernel/x86_64/{NEXT}/include install" in line for line in builds(node)
    )
    assert told(node.run(client_build_args=f"-j20 {OFED}")) == []
    # Another OFED for the same kernel: the module would not load with it.
    node.write(f"usr/src/ofa_kernel/x86_64/{RUNS}/Module.symvers", "0x1 ib_register_client\n")
    assert told(node.run(client_build_args=f"-j20 {OFED}")) == [f"module beegfs build for kernel {RUNS}"]


@pytest.mark.parametrize(
    ("kernels", "says"),
    [
        ((), "has no rdma/rdma_cm.h"),
        (("5.15.0-1",), "has the headers of OFED for kernel 5.15.0-1"),
        (("5.15.0-1", RUNS), f"write OFED_INCLUDE_PATH=/usr/src/ofa_kernel/x86_64/{RUNS}/include"),
    ],
)
def test_ofed_that_is_not_for_this_kernel_is_said_first(node: Node, kernels: tuple[str, ...], says: str) -> None:
    if kernels:
        with_ofed(node, *kernels)
    refused = node.run(client_build_args=OFED)
    assert refused["error_kind"] == "ofed_headers"
    assert says in refused["msg"]
    assert node.log() == []


def test_secure_boot_is_said_first_with_what_helps(node: Node) -> None:
    place = node.root / SECURE_BOOT
    place.parent.mkdir(parents=True)
    place.write_bytes(b"\x06\x00\x00\x00\x01")
    refused = node.run()
    assert refused["error_kind"] == "secure_boot"
    for said in ("beegfs-client signs nothing", "beegfs-client-dkms", "mokutil --import", "`client_build: false`"):
        assert said in refused["msg"]
    with_key = node.run(packages=["beegfs-client-dkms", "beeond"])
    assert "there is no key for it yet" in with_key["msg"]
    assert node.log() == []
    # A module of the site's own, signed, is taken as it is, and so is one of whose signature nobody asks.
    assert not node.run(client_build=False)["failed"]
    assert builds(node) == []


def test_a_module_that_lies_elsewhere_is_left_alone(node: Node) -> None:
    node.add("installed", f"beegfs-client|{DEB}\n")
    node.write(f"lib/modules/{RUNS}/extra/beegfs.ko", "8.3.1\n")
    node.run()
    assert builds(node) == []
    # One of another version would not go with the services.
    node.write(f"lib/modules/{RUNS}/extra/beegfs.ko", "8.2.0\n")
    assert told(node.run(check=True)) == [f"module beegfs build for kernel {RUNS}"]


def test_dkms_builds_with_settings_of_its_own(node: Node) -> None:
    with_ofed(node, RUNS)
    node.add("available", f"beegfs-client-dkms|{DEB}\n")
    wish: dict[str, t.Any] = {"packages": ["beegfs-client-dkms"], "client_build_args": f"-j8 {OFED}"}
    # Its package builds, so that its settings come before.
    assert [line.split()[0] for line in told(node.run(**wish))][-3:] == ["file", "package", "module"]
    assert node.read("etc/beegfs/beegfs-client-build.mk").splitlines()[1:] == [OFED]
    assert builds(node) == [f"dkms autoinstall -k {RUNS}"]
    assert (told(node.run(**wish)), builds(node)) == ([], [])


def test_a_build_that_fails_is_told_and_tried_again(node: Node) -> None:
    node.write("fails", "ib_core.h: error: too few arguments\n")
    failed = node.run()
    assert failed["error_kind"] == "build_failed"
    assert "ib_core.h: error: too few arguments" in failed["msg"]
    (node.root / "fails").unlink()
    assert told(node.run()) == [f"module beegfs build for kernel {RUNS}"]


def test_an_image_is_not_asked_about_the_machine_that_builds_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "SYSTEMD", str(node.root / "none"))
    (node.root / "lib/modules" / RUNS / "build").rmdir()
    node.run()
    assert builds(node) == []
    (node.root / SECURE_BOOT).parent.mkdir(parents=True)
    (node.root / SECURE_BOOT).write_bytes(b"\x06\x00\x00\x00\x01")
    (node.root / "lib/modules" / NEXT / "build").mkdir(parents=True)
    assert told(node.run(kernel=NEXT)) == [f"module beegfs build for kernel {NEXT}"]


@pytest.mark.parametrize("options", [{"client_build_args": "-j8\nx"}, {"kernel": "../x"}])
def test_what_no_build_can_read_is_refused(node: Node, options: dict[str, t.Any]) -> None:
    assert node.run(**options)["error_kind"] == "bad_input"
