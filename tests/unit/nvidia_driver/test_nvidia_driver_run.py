# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order things happen to a node, and that nothing happens to it when something was refused.

The package system and the node live in memory; molecule/nvidia_driver does the same with real ones.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, Installed, Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import (
    apply,
    files,
    kernel,
    record,
    remove,
    running,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.hardware import Gpu, Hardware
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import ARGUMENT_SPEC, Request

NEW, OLD = "580.95.05", "570.124.06"
NAMES = ("nvidia-open", "nvidia-kernel-open-dkms", "libcuda1")
AWAY = kernel.Away(
    ("gdrdrv", "nvidia_uvm", "nvidia_modeset", "nvidia"), ("nvidia-dcgm.service", "nvidia-persistenced.service")
)
BACK = ["modprobe nvidia_modeset", "modprobe gdrdrv"]


@dataclasses.dataclass
class World:
    """A node: its packages and module, and everything that was done to it."""

    version: str = ""
    loaded: str = ""
    broken: bool = False
    stubborn: bool = False
    failing: str = ""
    refused: tuple[str, ...] = ()
    away: kernel.Away = dataclasses.field(default_factory=lambda: kernel.Away(("nvidia_uvm", "nvidia")))
    units: tuple[str, ...] = ("nvidia-persistenced.service",)
    users: tuple[str, ...] = ()
    done: list[str] = dataclasses.field(default_factory=list)
    drained: bool = False
    node: str = "gpu-1"

    # What the manager of packages is asked.

    def installed(self) -> dict[str, Installed]:
        state = "half-configured" if self.broken else "installed"
        return {name: Installed(name, f"{self.version}-1", state, held=True) for name in NAMES} if self.version else {}

    def interrupted(self) -> bool:
        return False

    def known(self, roots: t.Sequence[Root]) -> bool:
        return True

    def resolve(self, roots: t.Sequence[Root]) -> list[str]:
        return [f"{root.name}={root.upstream}-1" for root in roots]

    def simulate(self, *_args: t.Any, **_options: t.Any) -> list[Action]:
        old = f"{self.version}-1" if self.version else ""
        return [Action("upgrade" if old else "install", name, f"{NEW}-1", old) for name in NAMES]

    def mend(self, names: t.Sequence[str], *, keep: str) -> None:
        assert keep == NEW
        self.done.append(f"mend {' '.join(names)}")

    def download(self, words: t.Sequence[str], pin: str, *, fix: bool) -> None:
        assert f"version {NEW}-" in pin
        if self.failing == "download":
            raise ClusterError("package_failed", "404.", "Mirror it.")
        self.done.append("download")

    def commit(self, words: t.Sequence[str], pin: str, *, fix: bool) -> None:
        assert f"version {NEW}-" in pin
        if self.failing == "disk":
            raise OSError(28, "No space left on device", "/tmp/pin")
        if self.failing in ("commit", "middle"):
            self.version = NEW if self.failing == "middle" else self.version
            raise ClusterError("package_failed", "Out of space.", "Make some.")
        self.done.append(f"commit {' '.join(words)}")
        self.version, self.broken = NEW, False

    def removal(self, names: t.Sequence[str]) -> list[Action]:
        return [Action("remove", name, "", f"{self.version}-1") for name in names]

    def remove(self, names: t.Sequence[str]) -> None:
        self.done.append(f"remove {' '.join(names)}")
        self.version = ""

    def hold(self, names: t.Sequence[str], _packages: t.Any, _ours: t.Any) -> None:
        self.done += ["hold"] if names else []

    # What the kernel and Slurm are asked.

    def get_bin_path(self, _name: str) -> None:
        return None

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        self.done.append(" ".join(argv))
        return (1, "", f"{argv[-1]} not\nfound.\n") if argv[-1] in self.refused else (0, "", "")

    def load(self, _host: t.Any) -> None:
        if "nvidia" in self.refused:
            raise ClusterError("module_failed", "No nvidia.", "See dmesg.")
        self.done.append("load")
        self.loaded = self.version

    def unload(self, _host: t.Any, _root: t.Any) -> kernel.Away:
        if self.stubborn:
            raise ClusterError("in_use", "The kernel module could not be unloaded: busy.", "Stop it.")
        self.done.append("unload")
        self.loaded = ""
        return self.away

    def drain(self, *, check: bool = False) -> bool:
        self.done += [] if check else ["drain"]
        before, self.drained = self.drained, self.drained or not check
        return not before

    def drained_by_us(self) -> bool:
        return self.drained

    def resume(self) -> None:
        self.done.append("resume")
        self.drained = False


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> t.Callable[..., dict[str, t.Any]]:
    def with_world(
        world: World, *, check: bool = False, chroot: bool = False, absent: bool = False, **parts: t.Any
    ) -> dict[str, t.Any]:
        params = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}
        request = Request.of({**params, "version": NEW, "kernel_headers": False, **parts})
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
        monkeypatch.setattr(node, "ROOT", tmp_path)
        monkeypatch.setattr(node, "read_hardware", lambda _root: Hardware((Gpu("0001:00:00.0", 0x20B0),)))
        monkeypatch.setattr(node, "read_loaded", lambda _root: Loaded(world.loaded, "open" if world.loaded else ""))
        monkeypatch.setattr(node, "in_chroot", lambda: chroot)
        monkeypatch.setattr(node, "gpu_users", lambda _root: list(world.users))
        monkeypatch.setattr(kernel, "load", world.load)
        monkeypatch.setattr(kernel, "unload", world.unload)
        for module in (apply, remove):
            monkeypatch.setattr(module, "manager_for", lambda *_parts: world)
        for name in world.units:
            (tmp_path / "usr/lib/systemd/system").mkdir(parents=True, exist_ok=True)
            (tmp_path / "usr/lib/systemd/system" / name).write_text("")

        def state(self: record.Record, _request: t.Any) -> list[str]:
            world.done += [] if self.check else ["files"]
            return []

        monkeypatch.setattr(record.Record, "state", state)
        monkeypatch.setattr(running, "Slurm", lambda *_parts: world)
        monkeypatch.setattr(files, "repository_files", lambda *_parts, **_options: [])
        facts = node.read_facts(request)
        if absent:
            return remove.absent(request, facts, world, check=check)
        driver = apply.Driver(request, facts, world, check=check)
        result = driver.present()
        return result if result["reboot_required"] else driver.give_back(result)

    return with_world


def steps(world: World) -> list[str]:
    """What was done, without what only looks, and without files."""
    return [step for step in world.done if step != "files" and not step.startswith("modinfo")]


def test_a_fresh_node(drive: t.Any) -> None:
    world = World()
    result = drive(world)
    assert steps(world) == [f"commit nvidia-open={NEW}-1", "load"]
    assert result["changed"]
    assert (result["kernel_module"], result["loaded"]) == ("open", NEW)


def test_a_node_that_is_right_is_left_alone(drive: t.Any) -> None:
    world = World(NEW, NEW)
    assert not drive(world)["changed"]
    assert steps(world) == []


@pytest.mark.parametrize("consent", [{}, {"allow_upgrade": True}, {"allow_unload": True}, {"allow_reboot": True}])
def test_without_full_consent_nothing_is_touched(drive: t.Any, consent: dict[str, bool]) -> None:
    world = World(OLD, OLD)
    with pytest.raises(ClusterError) as caught:
        drive(world, **consent)
    assert caught.value.kind == "consent_missing"
    assert world.done == []


def test_the_old_module_is_gone_before_its_libraries_change(drive: t.Any) -> None:
    world = World(OLD, OLD)
    drive(world, allow_upgrade=True, allow_unload=True)
    assert steps(world) == ["download", "unload", f"commit nvidia-open={NEW}-1", "load"]


def test_a_module_that_cannot_be_unloaded_leaves_the_old_driver_whole(drive: t.Any) -> None:
    world = World(OLD, OLD, stubborn=True)
    with pytest.raises(ClusterError, match="busy"):
        drive(world, allow_upgrade=True, allow_unload=True)
    assert steps(world) == ["download"]
    assert world.version == world.loaded == OLD


def test_a_reboot_is_asked_for_where_unloading_is_not_allowed_or_not_possible(drive: t.Any) -> None:
    for world, consent in ((World(OLD, OLD), {}), (World(OLD, OLD, stubborn=True), {"allow_unload": True})):
        result = drive(world, allow_upgrade=True, allow_reboot=True, **consent)
        assert steps(world) == ["download", f"commit nvidia-open={NEW}-1"]
        assert result["reboot_required"] == [f"the kernel runs driver {OLD}, and {NEW} is wanted"]
        # After the reboot the new module runs, and nothing is left to do.
        world.loaded = NEW
        assert drive(world, allow_reboot=True)["reboot_required"] == []


def test_a_node_is_drained_before_and_resumed_after(drive: t.Any) -> None:
    world = World(OLD, OLD, users=("python (42)",))
    drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert steps(world) == ["download", "drain", "unload", f"commit nvidia-open={NEW}-1", "load", "resume"]


def test_a_drained_node_is_resumed_by_the_run_after_the_reboot(drive: t.Any) -> None:
    world = World(OLD, OLD)
    drive(world, allow_upgrade=True, allow_reboot=True, drain=True)
    assert world.drained
    world.loaded = NEW
    drive(world, allow_reboot=True, drain=True)
    assert not world.drained


def test_draining_is_told_and_in_check_mode_only_told(drive: t.Any) -> None:
    world = World(OLD, OLD)
    told = drive(world, check=True, allow_upgrade=True, allow_unload=True, drain=True)["changes"]
    assert [change["what"] for change in told if change["kind"] == "slurm"] == ["drain"]
    assert world.done == []
    told = drive(world, allow_upgrade=True, allow_unload=True, drain=True)["changes"]
    assert [change["what"] for change in told if change["kind"] == "slurm"] == ["drain", "resume"]


def test_a_node_of_which_nothing_was_changed_is_given_back(drive: t.Any) -> None:
    world = World(OLD, OLD, stubborn=True)
    with pytest.raises(ClusterError, match=r"busy\. Stop"):
        drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert steps(world) == ["download", "drain", "resume"]


def test_a_node_that_was_left_in_the_middle_stays_drained(drive: t.Any) -> None:
    world = World(OLD, OLD, failing="middle", away=AWAY)
    with pytest.raises(ClusterError, match=r"Out of space\. The node stays drained in Slurm\.") as caught:
        drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert caught.value.kind == "package_failed"
    assert steps(world) == ["download", "drain", "unload"]
    assert world.drained
    # The run that finishes it starts what is the role's.
    assert caught.value.remedy.endswith(
        "the node is without what had to make way: gdrdrv, nvidia_modeset, nvidia-dcgm.service."
    )


def test_a_new_driver_that_does_not_load_leaves_the_node_in_the_middle(drive: t.Any) -> None:
    world = World(OLD, OLD, refused=("nvidia",), away=AWAY)
    with pytest.raises(ClusterError, match=r"No nvidia\. The node stays drained.*make way: gdrdrv") as caught:
        drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert caught.value.kind == "module_failed"


@pytest.mark.parametrize("failing", ["commit", "disk"])
def test_a_change_that_fails_before_it_begins_brings_the_old_driver_back(drive: t.Any, failing: str) -> None:
    world = World(OLD, OLD, failing=failing, away=AWAY)
    with pytest.raises(ClusterError, match=r"[Ss]pace.*Nothing was installed, and what .* runs again\. [MC]") as caught:
        drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert caught.value.kind == {"commit": "package_failed", "disk": "os_error"}[failing]
    started = [f"systemctl start {unit}" for unit in ("nvidia-persistenced.service", "nvidia-dcgm.service")]
    assert steps(world) == ["download", "drain", "unload", "load", *BACK, *started, "resume"]
    assert (world.version, world.loaded, world.drained) == (OLD, OLD, False)


def test_a_change_that_fails_on_the_way_to_a_reboot_leaves_the_node_in_service(drive: t.Any) -> None:
    world = World(OLD, OLD, failing="commit")
    with pytest.raises(ClusterError, match=r"Out of space\. Make some\."):
        drive(world, allow_upgrade=True, allow_reboot=True, drain=True)
    assert steps(world) == ["download", "drain", "resume"]


def test_a_driver_that_somebody_put_on_the_disk_meanwhile_gets_no_jobs(drive: t.Any) -> None:
    world = World("575.57.08", OLD, failing="commit")
    with pytest.raises(ClusterError, match=r"runs again\. The node stays drained"):
        drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert (world.loaded, world.drained) == ("575.57.08", True)


def test_an_old_driver_that_does_not_load_again_gets_no_jobs(drive: t.Any) -> None:
    world = World(OLD, OLD, failing="commit", refused=("nvidia",), away=AWAY)
    with pytest.raises(ClusterError, match=r"is not loaded again: No nvidia\. The node stays drained"):
        drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert steps(world) == ["download", "drain", "unload"]


def test_packages_that_cannot_be_downloaded_cost_nothing(drive: t.Any) -> None:
    world = World(OLD, OLD, failing="download")
    with pytest.raises(ClusterError, match="404"):
        drive(world, allow_upgrade=True, allow_unload=True, drain=True)
    assert steps(world) == []


def test_what_went_with_the_old_driver_comes_back_with_the_new_one(drive: t.Any, tmp_path: pathlib.Path) -> None:
    world = World(OLD, OLD, away=AWAY)
    result = drive(world, allow_upgrade=True, allow_unload=True)
    assert steps(world)[-4:] == ["load", *BACK, "systemctl start nvidia-dcgm.service"]
    assert result["changes"][-1] == {"kind": "kernel module", "name": "nvidia", "what": "load"}
    # The role starts its own, if their units are the vendor's.
    (tmp_path / "usr/lib/systemd/system/nvidia-persistenced.service").unlink()
    world = World(OLD, OLD, away=AWAY, units=())
    drive(world, allow_upgrade=True, allow_unload=True)
    assert steps(world)[-2:] == [f"systemctl start nvidia-{name}.service" for name in ("persistenced", "dcgm")]


def test_what_does_not_come_back_is_told(drive: t.Any) -> None:
    world = World(OLD, OLD, away=AWAY, refused=("gdrdrv", "nvidia-dcgm.service"))
    told = drive(world, allow_upgrade=True, allow_unload=True)["changes"][-2:]
    assert [f"{one['kind']} {one['name']} {one['what']}" for one in told] == [
        "kernel module gdrdrv not loaded: gdrdrv not found.",
        "unit nvidia-dcgm.service not started: nvidia-dcgm.service not found.",
    ]


def test_peermem_is_loaded_with_the_driver_and_not_only_at_the_next_boot(drive: t.Any, tmp_path: pathlib.Path) -> None:
    world = World()
    drive(world, peermem="always")
    assert steps(world)[-2:] == ["load", "modprobe nvidia_peermem"]
    world.done.clear()
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert not drive(world, peermem="always")["changed"]
    assert steps(world) == []


def test_a_service_of_gdrcopy_that_does_not_start_keeps_no_other_down(drive: t.Any, tmp_path: pathlib.Path) -> None:
    service = tmp_path / "usr/lib/systemd/system/gdrdrv.service"
    service.parent.mkdir(parents=True)
    service.touch()

    class WithPackages(World):
        def installed(self) -> dict[str, Installed]:
            return {**super().installed(), **{name: Installed(name, "2.5-1") for name in ("gdrdrv-dkms", "libgdrapi")}}

    world = WithPackages(OLD, OLD, away=AWAY, refused=("gdrdrv.service",))
    result = drive(world, allow_upgrade=True, allow_unload=True, gdrcopy=True)
    done = steps(world)
    assert done.index("systemctl start nvidia-dcgm.service") < done.index("systemctl restart gdrdrv.service")
    assert "not started: " in result["changes"][-1]["what"]


def test_an_old_module_that_a_package_s_script_loaded_makes_way(drive: t.Any) -> None:
    class Script(World):
        def commit(self, words: t.Sequence[str], pin: str, *, fix: bool) -> None:
            super().commit(words, pin, fix=fix)
            self.loaded = OLD

    world = Script(OLD, OLD, away=AWAY)
    drive(world, allow_upgrade=True, allow_unload=True)
    assert steps(world).count("unload") == 2
    assert world.loaded == NEW


def test_check_mode_names_what_is_replaced_where_the_lists_do_not_know_the_new_version(drive: t.Any) -> None:
    class Stale(World):
        def known(self, roots: t.Sequence[Root]) -> bool:
            return False

    changes = drive(Stale(OLD, OLD), check=True, allow_upgrade=True, allow_unload=True)["changes"]
    assert {"kind": "package", "name": NAMES[0], "what": "replace"} in changes


class Modinfo(World):
    """Has a module that the kernel refuses."""

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        return (0, "", "") if argv[0] == "modinfo" else super().run_command(argv)


def test_a_rebuild_that_did_not_happen_is_not_told_as_a_change(drive: t.Any, tmp_path: pathlib.Path) -> None:
    """The InfiniBand stack is newer than the module, and there is no dkms to build it anew."""
    symbols = tmp_path / "usr/src/ofa_kernel/default/Module.symvers"
    symbols.parent.mkdir(parents=True)
    symbols.write_text("")
    os.utime(symbols, (2**32, 2**32))
    world = Modinfo(NEW, NEW, refused=("nvidia_peermem",))
    assert not drive(world, peermem="always")["changed"]
    assert not [step for step in steps(world) if "dkms" in step]


@pytest.mark.parametrize("world", [World(NEW, NEW), World()])
def test_check_mode_tells_a_load_of_peermem(drive: t.Any, world: World) -> None:
    changes = drive(world, check=True, peermem="always")["changes"]
    assert {"kind": "kernel module", "name": "nvidia_peermem", "what": "load"} in changes


def test_check_mode_tells_no_load_of_a_peermem_that_is_not_there(drive: t.Any) -> None:
    world = World(NEW, NEW, refused=("nvidia_peermem",))
    assert not drive(world, check=True, peermem="always")["changed"]
    assert not drive(world, peermem="always")["changed"]


@pytest.mark.parametrize(
    ("words", "restarts"), [(["--no-persistence-mode", "--verbose"], True), (["--verbose"], False)]
)
def test_a_daemon_that_runs_without_persistence_mode_is_started_again(
    drive: t.Any, tmp_path: pathlib.Path, words: list[str], *, restarts: bool
) -> None:
    """The run that wrote its settings has failed before it came to this."""
    (tmp_path / "proc/42").mkdir(parents=True)
    command = "\0".join(["/usr/bin/nvidia-persistenced", "--user", "nvidia-persistenced", *words, ""])
    (tmp_path / "proc/42/cmdline").write_text(command)
    world = World(NEW, NEW)
    assert drive(world)["changed"] is restarts
    assert ("systemctl restart nvidia-persistenced.service" in steps(world)) is restarts


NEXT = "5.14.0-503.14.1.el9_5.x86_64"


@dataclasses.dataclass
class Dkms(World):
    """Has dkms, and a kernel that boots next, for which nothing is built yet."""

    built: bool = False

    def get_bin_path(self, name: str) -> str | None:
        return "/usr/sbin/dkms" if name == "dkms" else None

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[0] == "modinfo":
            there = argv[2] != NEXT or self.built
            return (0, f"version: {self.version}\nlicense: Dual MIT/GPL\n", "") if there else (1, "", "not found")
        answer = super().run_command(argv)
        self.built |= argv[0] == "dkms" and answer[0] == 0
        return answer


def boots_next(root: pathlib.Path) -> None:
    (root / f"vmlinuz-{NEXT}").write_text("")
    (root / "vmlinuz").symlink_to(f"vmlinuz-{NEXT}")


@pytest.mark.parametrize("by_reboot", [False, True])
def test_the_kernel_that_boots_next_gets_its_module(drive: t.Any, tmp_path: pathlib.Path, *, by_reboot: bool) -> None:
    """Its headers were there before the driver, or came after it: either way the packages of EL build nothing for it."""
    boots_next(tmp_path)
    world = Dkms(OLD, OLD) if by_reboot else Dkms(NEW, NEW)
    told = {"kind": "kernel module", "name": "nvidia", "what": f"build for {NEXT}"}
    consent = {"allow_upgrade": True, "allow_reboot": True}
    assert told in drive(world, check=True, **consent)["changes"]
    assert world.done == []
    result = drive(world, **consent)
    assert told in result["changes"]
    assert bool(result["reboot_required"]) is by_reboot
    assert steps(world)[-1] == f"dkms autoinstall -k {NEXT}"
    world.loaded = NEW
    assert not drive(world, **consent)["changed"]


def test_a_build_that_fails_for_the_next_kernel_is_for_the_verification_to_tell(
    drive: t.Any, tmp_path: pathlib.Path
) -> None:
    boots_next(tmp_path)
    world = Dkms(NEW, NEW, refused=(NEXT,))
    assert not drive(world)["changed"]
    assert steps(world) == [f"dkms autoinstall -k {NEXT}"]


def test_a_removal_that_waits_for_a_reboot_says_so(drive: t.Any) -> None:
    world = World(OLD, OLD)
    result = drive(world, absent=True, allow_reboot=True)
    assert result["reboot_required"] == [f"the kernel runs driver {OLD}"]
    (reboot,) = (entry for entry in result["diff"] if entry["before_header"] == "node reboot")
    assert (reboot["before"], reboot["after"]) == (f"{OLD}\n", "")
    assert steps(world) == [f"remove {' '.join(sorted(NAMES))}"]


def test_an_interrupted_run_is_mended_without_another_consent(drive: t.Any) -> None:
    world = World(NEW, "", broken=True)
    result = drive(world)
    assert steps(world) == [
        "mend libcuda1 nvidia-kernel-open-dkms nvidia-open dkms",
        f"commit nvidia-open={NEW}-1",
        "load",
    ]
    assert {"kind": "package", "name": "libcuda1", "what": "repair"} in result["changes"]


def test_an_image_is_not_asked_about_the_machine_that_builds_it(drive: t.Any) -> None:
    world = World(loaded=OLD)
    drive(world, chroot=True, phases=["install"], kernel_module="open")
    assert steps(world) == [f"commit nvidia-open={NEW}-1"]


@pytest.mark.parametrize("world", [World(), World(OLD, OLD), World(NEW, "", broken=True)])
def test_check_mode_does_nothing_and_says_what_it_would_do(drive: t.Any, world: World) -> None:
    result = drive(world, check=True, allow_upgrade=True, allow_unload=True)
    assert world.done == []
    assert result["changed"]
    assert any("libcuda1" in change["what"] or change["name"] == "libcuda1" for change in result["changes"])


def test_a_driver_is_never_chosen_by_chance(drive: t.Any) -> None:
    with pytest.raises(ClusterError, match="`version` is not set"):
        drive(World(), version="")


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_a_wrong_runfile_is_noticed_before_anything_is_changed(
    drive: t.Any, tmp_path: pathlib.Path, *, there: bool, check: bool
) -> None:
    installer = tmp_path / "driver.run"
    if there:
        installer.write_text("another one")
    world = World(loaded=OLD)
    runfile = {"source": "runfile", "runfile": str(installer), "runfile_sha256": "0" * 64}
    with pytest.raises(ClusterError) as caught:
        drive(world, check=check, allow_unload=True, drain=True, kernel_headers=True, **runfile)
    assert caught.value.kind == ("checksum" if there else "download_failed")
    assert steps(world) == []
