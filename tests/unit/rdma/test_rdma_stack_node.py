# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that rdma_stack runs, against a table of expected ones, and its readers against directories."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import resource
import shutil
import tarfile
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import (
    apply,
    doca,
    files,
    limits,
    model,
    read,
    settings,
    signing,
    unfinished,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.request import ARGUMENT_SPEC, Request

OFED = "24.10-3.2.5.0"
DOCA = "3.2.1-044000-25.10"
UBUNTU = model.System("ubuntu22.04", "x86_64", "dpkg", "5.15.0-25-generic")
ROCKY = model.System("rhel9.4", "x86_64", "rpm", "5.14.0-427.el9.x86_64")
# As modinfo of kmod 29 prints it, cut to what is read.
MODINFO = """filename:       /lib/modules/5.15.0-25-generic/{place}/mlx5_core.ko
version:        24.10-3.2.5
srcversion:     AAAA
name:           mlx5_core
filename:       /lib/modules/5.15.0-25-generic/{place}/ib_core.ko
srcversion:     BBBB
"""


class Host:
    """Answers commands from a table; a command that is not in it fails the test. Remembers those that change something."""

    READS = ("dpkg-query", "rpm -q", "ofed_info", "modinfo", "apt-get --simulate")

    def __init__(self, answers: dict[str, tuple[int, str]]) -> None:
        self.answers = answers
        self.done: list[str] = []

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        words = args[3:] if args[0] == "timeout" else args
        line = " ".join(words)
        if not line.startswith(self.READS):
            self.done.append(line)
        for start, (rc, out) in self.answers.items():
            if start in line:
                return rc, out, out if rc else ""
        raise AssertionError(f"unexpected: {line}")

    def selinux_default_context(self, path: str) -> list[t.Any]:
        return []

    def set_context_if_different(self, path: str, context: list[t.Any], changed: bool) -> bool:
        return changed


@pytest.fixture(autouse=True)
def sandbox(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may leave the temporary directory."""
    monkeypatch.setattr(unfinished, "PATH", tmp_path / "lib" / "unfinished")
    for name in ("OWNED", "NAMES", "OPENIBD", "RXE"):
        value = getattr(files, name)
        moved = tuple(f"{tmp_path}{path}" for path in value) if isinstance(value, tuple) else f"{tmp_path}{value}"
        monkeypatch.setattr(files, name, moved)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def archive(
    directory: pathlib.Path, version: str = OFED, kernels: str = "5.4.0-1-generic\n"
) -> tuple[str, dict[str, str]]:
    """An archive in the vendor's layout, and its entry for mofed_sha256."""
    tree = directory / "tree"
    tree.mkdir()
    (tree / "mlnxofedinstall").write_text("#!/bin/sh\n")
    (tree / "mlnxofedinstall").chmod(0o755)
    (tree / ".supported_kernels").write_text(kernels)
    path = directory / "MLNX.tgz"
    with tarfile.open(path, "w:gz") as packed:
        packed.add(tree, "MLNX_OFED_LINUX")
    return str(path), {f"{version}-ubuntu22.04-x86_64": hashlib.sha256(path.read_bytes()).hexdigest()}


def make(host: Host, wanted: model.Wanted, system: model.System = UBUNTU, **options: t.Any) -> apply.Stack:
    defaults = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}
    given = {"mirror": "https://m", "timeout_s": 60, **options}
    return apply.Stack(host, Request.of({**defaults, **dataclasses.asdict(wanted), **given}), system)


def install(keeper: apply.Stack, *kinds: str) -> None:
    steps = [model.Step(kind, "it") for kind in kinds or ("install",)]
    with keeper.prepared(steps):
        for step in steps:
            keeper.apply(step)


class Unpacking(Host):
    """Really unpacks archives."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        if "tar" in args:
            with tarfile.open(args[args.index("-f") + 1]) as packed:
                for member in packed.getmembers()[1:]:
                    member.name = member.name.split("/", 1)[1]
                    packed.extract(member, args[args.index("-C") + 1])
            return 0, "", ""
        return super().run_command(args, **kwargs)


QUIET = {"dpkg-query": (1, ""), "ofed_info": (127, ""), "modinfo": (0, MODINFO.format(place="kernel/drivers"))}


def test_the_installer_builds_for_a_kernel_that_it_does_not_know(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sums = archive(tmp_path)
    monkeypatch.setattr(read, "read_modules", lambda *_args: model.Modules(headers=True))
    hint = "Note: please update your initramfs\n"
    host = Unpacking({**QUIET, "mlnxofedinstall": (0, hint), "update-initramfs": (0, "")})
    install(make(host, model.Wanted("mlnx_ofed", OFED), artifact=path, sha256=sums, installer_options=["--hpc"]))
    assert (
        host.done[0].split("--tmpdir ")[1].split(" ", 1)[1]
        == "--without-fw-update --force --add-kernel-support --skip-repo --hpc"
    )
    assert host.done[1:] == ["update-initramfs -u -k 5.15.0-25-generic"]
    assert not unfinished.PATH.exists()
    assert not list(pathlib.Path("/var/tmp").glob("mofed.*"))


def turn_secure_boot_on(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = root / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\x06\x00\x00\x00\x01")
    monkeypatch.setattr(signing, "ROOT", root)


def test_modules_that_the_vendor_has_built_ask_for_no_key_of_dkms(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_secure_boot_on(tmp_path, monkeypatch)
    path, sums = archive(tmp_path, kernels=UBUNTU.kernel)
    host = Unpacking({**QUIET, "mlnxofedinstall": (0, "")})
    install(make(host, model.Wanted("mlnx_ofed", OFED), artifact=path, sha256=sums))
    assert "--add-kernel-support" not in host.done[0]


@pytest.mark.parametrize("wanted", [model.Wanted("doca", DOCA), model.Wanted("mlnx_ofed", OFED)])
def test_what_the_vendor_s_tools_build_on_el_is_not_signed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, wanted: model.Wanted
) -> None:
    monkeypatch.setattr(signing, "ROOT", tmp_path)
    signing.refuse_unsigned(wanted, ROCKY, Host({}))
    turn_secure_boot_on(tmp_path, monkeypatch)
    with pytest.raises(ClusterError, match="it does not sign them") as caught:
        signing.refuse_unsigned(wanted, ROCKY, Host({}))
    assert (caught.value.kind, "`kernel_support: false`" in caught.value.remedy) == ("secure_boot", True)
    if wanted.source == "doca":
        # That leaves it to dkms, whose key is not there.
        with pytest.raises(ClusterError, match="there is no key for it yet"):
            signing.refuse_unsigned(dataclasses.replace(wanted, kernel_support=False), ROCKY, Host({}))
    signing.refuse_unsigned(dataclasses.replace(wanted, user_space_only=True), ROCKY, Host({}))


@pytest.mark.parametrize(
    ("wanted", "system", "kinds", "builds"),
    [
        (model.Wanted("doca", DOCA), UBUNTU, ["install"], True),
        (model.Wanted("doca", DOCA), UBUNTU, ["rebuild", "restart"], True),
        (model.Wanted("doca", DOCA), UBUNTU, ["restart"], False),
        (model.Wanted("doca", DOCA), ROCKY, ["install"], True),
        (model.Wanted("doca", DOCA, kernel_support=False), ROCKY, ["install"], True),
        # The last release with modules that NVIDIA built.
        (model.Wanted("doca", "3.1.0-091000-25.07", kernel_support=False), ROCKY, ["install"], False),
        # Known once its archive is unpacked.
        (model.Wanted("mlnx_ofed", OFED), UBUNTU, ["install"], False),
    ],
)
def test_where_doca_s_modules_are_built(
    wanted: model.Wanted, system: model.System, kinds: list[str], builds: bool
) -> None:
    assert signing.builds_doca(wanted, system, [model.Step(kind, "it") for kind in kinds]) is builds


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"sha256": {f"{OFED}-ubuntu22.04-x86_64": "f" * 64}}, "checksum"),
        ({"artifact": "/nowhere/MLNX.tgz"}, "download_failed"),
        ({"installer_options": ["--fw-update-only"]}, "bad_input"),
        ({"headers": False}, "headers_missing"),
        ({"secure_boot": True}, "secure_boot"),
        ({"packages_found": "perftest|4.5|install|installed|ok\n"}, "conflict"),
    ],
)
def test_nothing_is_run_when_something_speaks_against_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, t.Any], kind: str
) -> None:
    path, sums = archive(tmp_path)
    if changed.pop("secure_boot", False):
        turn_secure_boot_on(tmp_path, monkeypatch)
    modules = model.Modules(headers=changed.pop("headers", True))
    monkeypatch.setattr(read, "read_modules", lambda *_args: modules)
    found = changed.pop("packages_found", "")
    host = Unpacking({**QUIET, "dpkg-query": (0, found), "--simulate": (0, "Remv openmpi-bin [4]\n")})
    keeper = make(host, model.Wanted("mlnx_ofed", OFED), **{"artifact": path, "sha256": sums, **changed})
    with pytest.raises(ClusterError) as caught:
        install(keeper, "uninstall", "install")
    assert caught.value.kind == kind
    assert host.done == []
    assert not unfinished.PATH.exists()
    assert not list(pathlib.Path("/var/tmp").glob("mofed.*"))
    if kind == "conflict":
        assert "openmpi-bin, perftest" in caught.value.message


def test_a_broken_installation_leaves_its_mark(tmp_path: pathlib.Path) -> None:
    path, sums = archive(tmp_path)
    host = Unpacking({**QUIET, "mlnxofedinstall": (3, "building...\nout of luck\n")})
    wanted = model.Wanted("mlnx_ofed", OFED, user_space_only=True)
    with pytest.raises(ClusterError, match="out of luck"):
        install(make(host, wanted, artifact=path, sha256=sums))
    assert unfinished.PATH.read_text() == "it\n"
    assert read.read_software(host, UBUNTU).unfinished == "it"


def deb(tmp_path: pathlib.Path, system: model.System = UBUNTU) -> dict[str, t.Any]:
    path = tmp_path / "doca-host.pkg"
    path.write_text("package")
    key = f"{DOCA}-{system.os}-x86_64"
    return {"artifact": str(path), "sha256": {key: hashlib.sha256(b"package").hexdigest()}}


def test_doca_is_a_repository_and_a_package(tmp_path: pathlib.Path) -> None:
    host = Host({**QUIET, "dpkg --install": (0, ""), "apt-get": (0, "Inst doca-ofed (3.2.1)\n")})
    install(make(host, model.Wanted("doca", DOCA), **deb(tmp_path)))
    assert [line.split(" /var")[0] for line in host.done] == [
        "dpkg --install",
        "apt-get --yes -o DPkg::Lock::Timeout=300 update",
        "apt-get --yes -o DPkg::Lock::Timeout=300 install doca-ofed",
    ]


def test_a_refused_doca_takes_its_repository_back(tmp_path: pathlib.Path) -> None:
    answers = {"--simulate": (0, "Remv perftest [4.5]\n"), "dpkg --": (0, ""), "apt-get": (0, "")}
    host = Host({**QUIET, **answers})
    with pytest.raises(ClusterError, match="perftest"):
        install(make(host, model.Wanted("doca", DOCA), **deb(tmp_path)))
    assert "dpkg --purge doca-host mofed-provides-openmpi" in host.done
    assert not any("install doca-ofed" in line for line in host.done)
    assert not unfinished.PATH.exists()


def test_a_refused_doca_leaves_the_mark_of_what_was_interrupted_before(tmp_path: pathlib.Path) -> None:
    unfinished.PATH.parent.mkdir()
    unfinished.PATH.write_text("removal of doca 3.1\n")
    host = Host({"--simulate": (0, "Remv perftest [4.5]\n"), "dpkg --": (0, ""), "apt-get": (0, ""), **QUIET})
    with pytest.raises(ClusterError, match="perftest"):
        install(make(host, model.Wanted("doca", DOCA), **deb(tmp_path)))
    assert unfinished.PATH.read_text() == "removal of doca 3.1\n"


class PowerCutError(Exception):
    """The machine goes down."""


@pytest.mark.parametrize("at", ["dpkg --install", "update", "--simulate", "install doca-ofed"])
def test_an_upgrade_of_doca_that_is_interrupted_anywhere_leaves_its_mark(tmp_path: pathlib.Path, at: str) -> None:
    class Machine(Host):
        def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
            if at in " ".join(args):
                raise PowerCutError
            return super().run_command(args, **kwargs)

    old = "doca-host|3.1.0-091000-25.07-ubuntu2204|install|installed|ok\n"
    host = Machine({**QUIET, "dpkg-query": (0, old), "dpkg --install": (0, ""), "apt-get": (0, "")})
    with pytest.raises(PowerCutError):
        install(make(host, model.Wanted("doca", DOCA), **deb(tmp_path)))
    assert unfinished.PATH.read_text() == "it\n"


def test_an_upgrade_of_doca_that_is_refused_late_is_not_whole(tmp_path: pathlib.Path) -> None:
    old = "doca-host|3.1.0-091000-25.07-ubuntu2204|install|installed|ok\n"
    answers = {"dpkg-query": (0, old), "--simulate": (0, "Remv perftest [4.5]\n")}
    host = Host({**QUIET, **answers, "dpkg --": (0, ""), "apt-get": (0, "")})
    with pytest.raises(ClusterError, match="perftest") as caught:
        install(make(host, model.Wanted("doca", DOCA), **deb(tmp_path)))
    assert "Nothing has been changed" not in caught.value.remedy
    assert unfinished.PATH.read_text() == "it\n"


@pytest.mark.parametrize("former", ["", "doca-host|3.1.0-091000-25.07-ubuntu2204|install|installed|ok\n"])
def test_doca_is_not_begun_where_apt_could_not_end_it(tmp_path: pathlib.Path, former: str) -> None:
    said = (100, "E: Unable to correct problems, you have held broken packages.\n")
    host = Host({**QUIET, "dpkg-query": (0, former), "--simulate": said, "dpkg --": (0, ""), "apt-get": (0, "")})
    with pytest.raises(ClusterError, match="held broken packages") as caught:
        install(make(host, model.Wanted("doca", DOCA), **deb(tmp_path)))
    assert not any("install doca-ofed" in line for line in host.done)
    assert ("Nothing has been changed" in caught.value.remedy) == (not former)
    assert unfinished.PATH.exists() == bool(former)


def test_doca_on_el_builds_its_modules_first(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "doca-kernel-repo-1.rpm"
    built.write_text("")
    monkeypatch.setattr(doca.glob, "glob", lambda *_args, **_kwargs: [str(built)])
    host = Host({"rpm": (0, ""), "dnf": (0, ""), "doca-kernel-support": (0, ""), "ofed_info": (127, "")})
    install(make(host, model.Wanted("doca", DOCA, allow_replace=True), ROCKY, **deb(tmp_path, ROCKY)))
    assert [line.replace("/usr/bin/", "") for line in host.done[1:]] == [
        "dnf --assumeyes makecache",
        "dnf --assumeyes --setopt=doca*.priority=1 install doca-extra",
        f"/opt/mellanox/doca/tools/doca-kernel-support -k {ROCKY.kernel}",
        f"rpm --upgrade --oldpackage --replacepkgs {built}",
        "dnf --assumeyes --setopt=doca*.priority=1 --allowerasing install doca-ofed",
        "dnf --quiet repoquery --repo=doca --queryformat=%{name}",
    ]


def test_doca_on_el_is_not_whole_while_its_repository_does_not_tell_what_it_has(tmp_path: pathlib.Path) -> None:
    said = (1, "Cannot download repomd.xml")
    host = Host({"repoquery": said, "rpm": (0, ""), "dnf": (0, ""), "ofed_info": (127, "")})
    wanted = model.Wanted("doca", DOCA, kernel_support=False)
    with pytest.raises(ClusterError, match=r"asking DOCA's repository .* failed: Cannot download repomd.xml"):
        install(make(host, wanted, ROCKY, **deb(tmp_path, ROCKY)))
    assert unfinished.PATH.read_text() == "it\n"


def test_nothing_is_unloaded_without_modules_for_the_kernel() -> None:
    host = Host({**QUIET, "systemctl": (0, "")})
    with pytest.raises(ClusterError) as caught:
        make(host, model.Wanted("mlnx_ofed", OFED)).apply(model.Step("restart", "openibd"))
    assert caught.value.kind == "kernel_mismatch"
    assert host.done == []


def test_a_restart_that_changes_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        read, "read_modules", lambda *_args: model.Modules(vendor=True, loaded=True, stale=("ib_core",))
    )
    host = Host({"systemctl restart openibd": (0, "")})
    with pytest.raises(ClusterError, match="old ib_core is still loaded"):
        make(host, model.Wanted("mlnx_ofed", OFED)).apply(model.Step("restart", "openibd"))


@pytest.mark.parametrize("rc", [0, 1])
def test_a_restart_that_changes_nothing_becomes_a_reboot_where_it_may(monkeypatch: pytest.MonkeyPatch, rc: int) -> None:
    modules = model.Modules(vendor=True, loaded=True, stale=("ib_core",))
    monkeypatch.setattr(read, "read_modules", lambda *_args: modules)
    wanted = model.Wanted("mlnx_ofed", OFED, allow_restart=True, allow_reboot=True)
    keeper = make(Host({"systemctl restart openibd": (rc, "ib_core is in use")}), wanted)
    done = keeper.apply(model.Step("restart", "openibd", "ib_core loaded from another build"))
    assert (done.kind, done.name, done.before) == ("reboot", "the node", "ib_core loaded from another build")


def test_an_installer_that_takes_too_long_is_told() -> None:
    with pytest.raises(ClusterError) as caught:
        make(Host({"apt-get": (124, "")}), model.Wanted("inbox")).commands.run(["apt-get", "update"], "reading")
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize(
    ("place", "loaded", "vendor", "stale"),
    [
        ("updates/dkms", "AAAA", True, ()),
        ("extra/mlnx-ofa_kernel", "CCCC", True, ("mlx5_core",)),
        ("kernel/drivers/net", "AAAA", False, ()),
        ("kernel/drivers/net", "", False, ()),
        # A kernel whose modules carry no digest, under a vendor's modules that do.
        ("updates/dkms", "none", True, ("mlx5_core",)),
    ],
)
def test_modules_on_disk_and_in_the_kernel(
    tmp_path: pathlib.Path, place: str, loaded: str, vendor: bool, stale: tuple[str, ...]
) -> None:
    if loaded:
        (tmp_path / "sys/module/mlx5_core").mkdir(parents=True)
    if loaded not in ("", "none"):
        (tmp_path / "sys/module/mlx5_core/srcversion").write_text(f"{loaded}\n")
    (tmp_path / f"lib/modules/{UBUNTU.kernel}/build").mkdir(parents=True)
    found = read.read_modules(Host({"modinfo": (0, MODINFO.format(place=place))}), UBUNTU, tmp_path)
    assert found == model.Modules(vendor=vendor, loaded=bool(loaded), stale=stale, headers=True)


def test_a_kernel_that_tells_no_digests(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sys/module/ib_core").mkdir(parents=True)
    host = Host({"modinfo": (0, (pathlib.Path(__file__).parent / "fixtures/modinfo_debian.txt").read_text())})
    assert read.read_modules(host, UBUNTU, tmp_path) == model.Modules(loaded=True)


def test_a_kernel_without_rdma(tmp_path: pathlib.Path) -> None:
    host = Host({"modinfo": (1, "modinfo: ERROR: Module mlx5_core not found.\n")})
    assert read.read_modules(host, UBUNTU, tmp_path) == model.Modules()


def keeper(tmp_path: pathlib.Path, **values: t.Any) -> settings.NodeSettings:
    return settings.NodeSettings(
        Host({"udevadm": (0, ""), "modprobe": (1, "")}), files.Settings(**values), root=tmp_path
    )


def kernel(tmp_path: pathlib.Path, **values: str) -> None:
    for key, value in values.items():
        path = tmp_path / "proc/sys/vm" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


SYSCTL = {"vm.zone_reclaim_mode": "1", "vm.other": "4 5", "vm.missing": "1"}


def test_kernel_settings_are_set_where_they_differ(tmp_path: pathlib.Path) -> None:
    kernel(tmp_path, zone_reclaim_mode="0", other="4\t5")
    mine = keeper(tmp_path, sysctl=SYSCTL)
    mine.apply_sysctl(check=True)
    assert (tmp_path / "proc/sys/vm/zone_reclaim_mode").read_text() == "0\n"
    mine.changes = settings.Changes()
    mine.apply_sysctl(check=False)
    assert mine.changes.names() == ["vm.zone_reclaim_mode"]
    assert (tmp_path / "proc/sys/vm/zone_reclaim_mode").read_text() == "1"
    assert {item["what"] for item in mine.not_applied} == {"vm.missing"}


def test_a_container_leaves_its_host_s_kernel_alone(tmp_path: pathlib.Path) -> None:
    kernel(tmp_path, zone_reclaim_mode="0")
    mine = keeper(tmp_path, sysctl=SYSCTL, container=True)
    mine.apply_sysctl(check=False)
    assert not mine.changes
    assert len(mine.not_applied) == 3
    assert (tmp_path / "proc/sys/vm/zone_reclaim_mode").read_text() == "0\n"


def test_an_image_s_builder_keeps_its_kernel(tmp_path: pathlib.Path) -> None:
    kernel(tmp_path, zone_reclaim_mode="0")
    mine = settings.NodeSettings(Host({}), files.Settings(sysctl=SYSCTL), live=False, root=tmp_path)
    mine.apply_sysctl(check=False)
    assert not mine.changes


def test_limits_are_tried_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.limit_allowed("stack", str(resource.getrlimit(resource.RLIMIT_STACK)[1]).replace("-1", "unlimited"))
    # Above fs.nr_open nobody may go, and PAM would refuse every login.
    beyond = int(pathlib.Path("/proc/sys/fs/nr_open").read_text()) + 1
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert not limits.limit_allowed("nofile", str(beyond))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    with pytest.raises(ClusterError):
        limits.limit_allowed("rtprio", "1")


# azhpc-images, components/add-udev-rules.sh: the images for Ubuntu and Azure Linux leave the kernel's names, and a service of the image
# renames the devices (install_azure_persistent_rdma_naming.sh).
AZURE_RULES = """\
# SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB)
# Suppressing/overwriting the udev rule rdma_core package. NAME_KERNEL leaves the IB devices names as provided by the kernel.
ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="rdma_rename %k NAME_KERNEL"
"""


@pytest.mark.parametrize("text", ["", 'SUBSYSTEM=="infiniband", NAME="mine"\n', AZURE_RULES])
@pytest.mark.parametrize("source", ["inbox", "doca", "mlnx_ofed", "preinstalled"])
@pytest.mark.parametrize("device_names", [{}, {"0101:00:00.0": "rail0"}])
def test_rules_of_somebody_else_are_never_replaced(
    tmp_path: pathlib.Path, source: str, device_names: dict[str, str], text: str
) -> None:
    rules = pathlib.Path(files.NAMES)
    rules.parent.mkdir(parents=True)
    rules.write_text(text)
    mine = keeper(tmp_path, source=source, persistent_names=True, device_names=device_names)
    # What an image brought names its devices as well, unless names are asked for that it does not give.
    if source == "preinstalled" and not device_names:
        assert not mine.allowed_names()
        assert [item["what"] for item in mine.not_applied] == ["names of RDMA devices"]
    else:
        with pytest.raises(ClusterError, match="not ours") as caught:
            mine.allowed_names()
        assert caught.value.kind == "in_the_way"
    for wanted in ({"persistent_names": False}, {"persistent_names": True, "user_space_only": True}):
        kept = keeper(tmp_path, source=source, **wanted)
        kept.allowed_names()
        assert not kept.not_applied
        assert files.NAMES not in kept.request()["absent"]


def test_rules_of_our_own_are_renewed_and_removed(tmp_path: pathlib.Path) -> None:
    assert keeper(tmp_path, persistent_names=True).allowed_names()
    os.makedirs(os.path.dirname(files.NAMES))
    pathlib.Path(files.NAMES).write_text(files.naming_rules({}))
    assert keeper(tmp_path, source="preinstalled", persistent_names=True).allowed_names()
    assert keeper(tmp_path).request()["absent"] == [files.NAMES]


def test_what_rxe_needs_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ClusterError, match="no interface eth9"):
        keeper(tmp_path, rxe_netdev="eth9").check_rxe()
    (tmp_path / "sys/class/net/eth9").mkdir(parents=True)
    with pytest.raises(ClusterError, match="no module rdma_rxe"):
        keeper(tmp_path, rxe_netdev="eth9").check_rxe()
    (tmp_path / "sys/module/rdma_rxe").mkdir(parents=True)
    keeper(tmp_path, rxe_netdev="eth9").check_rxe()


def test_a_device_that_somebody_deleted_is_made_again(tmp_path: pathlib.Path) -> None:
    device = tmp_path / "sys/class/infiniband/rxe0"

    class Systemd(Host):
        def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
            device.mkdir(parents=True)
            return super().run_command(args, **kwargs)

    mine = settings.NodeSettings(Systemd({"systemctl": (0, "")}), files.Settings(rxe_netdev="eth9"), root=tmp_path)
    mine.revive_rxe(check=True)
    assert mine.changes.names() == ["mofed-rxe.service"]
    assert not device.exists()
    mine.changes = settings.Changes()
    mine.revive_rxe(check=False)
    assert t.cast(Host, mine.host).done == ["systemctl restart mofed-rxe.service"]
    mine.changes = settings.Changes()
    mine.revive_rxe(check=False)
    assert not mine.changes


@pytest.mark.parametrize(("rc", "kind"), [(0, "no_device"), (1, "systemctl_failed")])
def test_a_device_that_does_not_come_back_is_told(tmp_path: pathlib.Path, rc: int, kind: str) -> None:
    mine = settings.NodeSettings(Host({"systemctl": (rc, "no")}), files.Settings(rxe_netdev="eth9"), root=tmp_path)
    with pytest.raises(ClusterError) as caught:
        mine.revive_rxe(check=False)
    assert caught.value.kind == kind


@pytest.mark.parametrize(("busy", "commands"), [([], 3), (["hpl (pid 4)"], 1)])
def test_devices_in_use_keep_their_names(tmp_path: pathlib.Path, busy: list[str], commands: int) -> None:
    (tmp_path / "run/udev").mkdir(parents=True)
    (tmp_path / "run/udev/control").write_text("")
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    mine = keeper(tmp_path)
    mine.changes = settings.Changes(settings.Change("file", path, "create") for path in (files.NAMES, files.READ_AHEAD))
    mine.reload_udev(lambda: busy)
    host = t.cast(Host, mine.host)
    assert len(host.done) == commands
    assert bool(mine.not_applied) is bool(busy)


def test_files_of_others_keep_their_owner_and_mode(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "waagent.conf"
    path.write_text("OS.EnableRDMA=n\nLogs.Verbose=n\n")
    path.chmod(0o600)
    mine = keeper(tmp_path)
    mine.edit({str(path): {"OS.EnableRDMA": "y"}, str(tmp_path / "none"): {"A": "1"}}, check=True)
    assert path.read_text().startswith("OS.EnableRDMA=n\n")
    mine.edit({str(path): {"OS.EnableRDMA": "y"}}, check=False)
    assert "\nOS.EnableRDMA=y\n" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    mine.edit({str(path): None}, check=False)
    assert path.read_text() == "OS.EnableRDMA=n\nLogs.Verbose=n\n"
