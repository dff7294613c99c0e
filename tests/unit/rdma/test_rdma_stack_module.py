# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rdma_stack as a whole: the commands of a run in their order, with changes of files and units among them, and its result."""

from __future__ import annotations

import hashlib
import pathlib
import re
import shutil
import typing as t

import pytest
from ansible.module_utils import basic
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import files, read, signing, unfinished, users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import System
from ansible_collections.hpcai.gpu_cluster.plugins.modules import rdma_stack
from module_run import run_main

DOCA = "3.2.1-044000-25.10"
HOST = f"{DOCA}-ubuntu2204"
KERNEL = "5.15.0-25-generic"
WRITTEN = "/etc/apt/preferences.d/mofed"


class Machine:
    """A node with apt: the packages on it, its modules, and everything that was done to it."""

    def __init__(self, packages: dict[str, str], *, vendor: bool, loaded: bool, missing: tuple[str, ...] = ()) -> None:
        self.packages, self.vendor, self.loaded, self.missing = dict(packages), vendor, loaded, set(missing)
        self.done: list[str] = []
        self.written: set[str] = set()
        self.enrolled = False

    def command(self, args: t.Sequence[str]) -> tuple[int, str, str]:
        words = list(args[3:] if args[0] == "timeout" else args)
        if words[0] == "dpkg-query":
            return 0, self._query(words), ""
        if words[0] == "modinfo":
            place = "updates/dkms" if self.vendor else "kernel/drivers"
            return 0, f"filename: /lib/modules/{KERNEL}/{place}/mlx5_core.ko\nsrcversion: A\n", ""
        if words[0] == "mokutil":
            return (
                (1, f"{words[-1]} is already enrolled\n", "")
                if self.enrolled
                else (0, f"{words[-1]} is not enrolled\n", "")
            )
        line = " ".join(word if "/mofed." not in word else word.rpartition("/")[2] for word in words)
        self.done.append(re.sub(r" -o \S+", "", line))
        if "install doca-ofed" in line and "--simulate" not in words:
            self.packages["doca-ofed"], self.vendor = "3.2.1", True
        if words[:2] == ["dpkg", "--install"]:
            self.packages["doca-host"] = HOST
        if words[0] == "apt-get" and "purge" in words:
            self.packages = {name: one for name, one in self.packages.items() if name not in words}
        if words[0] == "apt-get" and "install" in words:
            self.missing -= set(words)
        return 0, "", ""

    def _query(self, words: list[str]) -> str:
        form = words[words.index("-f") + 1]
        found = {**self.packages, **{name: "1" for name in ("rdma-core", "perftest") if name not in self.missing}}
        if "Provides" in form:
            return "".join(f"ii |{name}|\n" for name in found)
        if "Want" in form:
            return "".join(f"{name}|{version}|install|installed|ok\n" for name, version in self.packages.items())
        return "".join(f"ii |{name}|{version}\n" for name, version in self.packages.items())

    def state(self, request: Request, *, check: bool) -> list[Change]:
        """What node_state does: a file is made once, and goes once."""
        new = [file.path for file in request.files if file.path not in self.written]
        gone = [absent.path for absent in request.absent if absent.path in self.written]
        if not check:
            self.written = (self.written | set(new)) - set(gone)
            self.done += [f"write {path}" for path in new] + [f"remove {path}" for path in gone]
        return [Change("file", path, "create") for path in new] + [Change("absent", path, "remove") for path in gone]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> t.Callable[..., tuple[list[str], dict[str, t.Any]]]:
    """Run the module on a machine; returns what was done and the result."""
    artifact = tmp_path / "doca-host.deb"
    artifact.write_text("package")
    digest = hashlib.sha256(b"package").hexdigest()
    modules = read.read_modules

    def on(machine: Machine, busy: t.Sequence[str] = (), **options: t.Any) -> tuple[list[str], dict[str, t.Any]]:
        system = System("ubuntu22.04", "x86_64", "dpkg", KERNEL)
        (tmp_path / f"lib/modules/{KERNEL}/build").mkdir(parents=True, exist_ok=True)
        if machine.loaded:
            (tmp_path / "sys/module/mlx5_core").mkdir(parents=True, exist_ok=True)
            (tmp_path / "sys/module/mlx5_core/srcversion").write_text("A")
        monkeypatch.setattr(read, "read_system", lambda *_args: system)
        monkeypatch.setattr(read, "read_modules", lambda host, what: modules(host, what, tmp_path))
        monkeypatch.setattr(users, "users", lambda: list(busy))
        monkeypatch.setattr(unfinished, "PATH", tmp_path / "lib/unfinished")
        monkeypatch.setattr(files, "WAAGENT", str(tmp_path / "waagent.conf"))
        monkeypatch.setattr(files, "OPENIB_CONF", str(tmp_path / "openib.conf"))
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "dpkg-query" else None)
        monkeypatch.setattr(basic.AnsibleModule, "run_command", lambda _module, args, **_rest: machine.command(args))
        monkeypatch.setattr(
            NodeState, "run", lambda state, check: state.changes.add(*machine.state(state.request, check=check))
        )
        monkeypatch.setattr(
            "ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.settings.NodeSettings._ours",
            lambda _settings, path: path in machine.written or not pathlib.Path(path).exists(),
        )
        result = run_main(
            rdma_stack.main, {"artifact": str(artifact), "sha256": {f"{DOCA}-ubuntu22.04-x86_64": digest}, **options}
        )
        return machine.done, result

    return on


def brief(result: t.Mapping[str, t.Any]) -> list[str]:
    return [f"{one['what']} {one['name']}" for one in result["changes"]]


WANTED = {"source": "doca", "version": DOCA, "packages": ["perftest"], "allow_restart": True}


def test_a_new_stack_comes_with_its_pins_first_and_the_restart_last(run: t.Any) -> None:
    machine = Machine({}, vendor=False, loaded=True, missing=("perftest",))
    done, result = run(machine, **WANTED)
    assert [line for line in done if "openibd.service.d" not in line] == [
        f"write {WRITTEN}",
        "dpkg --install doca-host.deb",
        "apt-get --yes update",
        "apt-get --simulate --yes install doca-ofed",
        "apt-get --yes install doca-ofed",
        "apt-get install -y -qq --no-install-recommends -- perftest",
        "systemctl restart openibd.service",
    ]
    assert brief(result)[:2] == [f"install doca {DOCA}", "restart openibd"]
    assert result["stack"] == {"source": "doca", "version": HOST}
    assert not result["reboot_required"]


def test_a_second_run_changes_nothing(run: t.Any) -> None:
    machine = Machine({}, vendor=False, loaded=True)
    run(machine, **WANTED)
    machine.done = []
    done, result = run(machine, **WANTED)
    assert (done, result["changed"]) == ([], False)


def test_check_mode_tells_the_plan_and_does_nothing(run: t.Any) -> None:
    machine = Machine({}, vendor=False, loaded=True, missing=("perftest",))
    done, result = run(machine, _ansible_check_mode=True, **WANTED)
    assert done == []
    assert brief(result)[:2] == [f"install doca {DOCA}", "restart openibd"]
    assert f"create {WRITTEN}" in brief(result)


def test_the_distribution_s_packages_are_told_one_by_one(run: t.Any) -> None:
    options = {"packages": ["rdma-core", "perftest"]}
    machine = Machine({}, vendor=False, loaded=False, missing=("rdma-core", "perftest"))
    told = run(machine, _ansible_check_mode=True, **options)[1]
    assert machine.done == []
    done, result = run(machine, **options)
    assert done == ["apt-get install -y -qq --no-install-recommends -- rdma-core perftest"]
    assert brief(result) == brief(told) == ["install rdma-core", "install perftest"]
    assert run(machine, **options)[1]["changed"] is False


def test_an_image_keeps_its_stack_and_gets_the_settings(run: t.Any) -> None:
    options = {"source": "preinstalled", "packages": ["perftest"], "sysctl": {"vm.a": "1"}}
    machine = Machine({"doca-host": HOST, "doca-ofed": "3.2.1-044000"}, vendor=True, loaded=True, missing=("perftest",))
    done, result = run(machine, **options)
    assert done == [f"write {files.SYSCTL}"]
    assert result["stack"] == {"source": "doca", "version": HOST}
    done, result = run(machine, **options, state="absent")
    assert done[1:] == [f"remove {files.SYSCTL}"]
    assert result["stack"] == {"source": "doca", "version": HOST}


def test_an_image_keeps_the_names_that_its_rules_give(
    run: t.Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    rules = tmp_path / "60-rdma-persistent-naming.rules"
    rules.write_text('ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="rdma_rename %k NAME_KERNEL"\n')
    monkeypatch.setattr(files, "NAMES", str(rules))
    options = {"source": "preinstalled", "persistent_names": True, "limits": {}, "sysctl": {"vm.a": "1"}}
    machine = Machine({"doca-host": HOST, "doca-ofed": "3.2.1-044000"}, vendor=True, loaded=True)
    result = run(machine, **options, _ansible_check_mode=True)[1]
    assert brief(result) == [f"create {files.SYSCTL}"]
    done, result = run(machine, **options)
    assert done == [f"write {files.SYSCTL}"]
    assert [item["what"] for item in result["not_applied"] if "names" in item["what"]] == ["names of RDMA devices"]
    assert not run(machine, **options)[1]["changed"]
    # Names that the image does not give are refused, and so is a stack that replaces the image's.
    for other in ({"device_names": {"0101:00:00.0": "rail0"}}, {"source": "inbox"}):
        assert run(machine, **{**options, **other})[1]["error_kind"] == "in_the_way"


def test_what_an_earlier_run_gave_the_image_s_stack_stays_with_it(run: t.Any) -> None:
    options = {"source": "preinstalled"}
    machine = Machine({"doca-host": HOST, "doca-ofed": "3.2.1-044000"}, vendor=True, loaded=True)
    machine.written = {files.PINS, files.OPENIBD, files.LIMITS}
    assert run(machine, **options)[0] == [f"remove {files.LIMITS}"]
    assert run(machine, **options, state="absent")[0][1:] == [
        f"remove {files.OPENIBD}",
        f"remove {files.PINS}",
    ]


def test_repositories_exclude_after_a_stack_came_and_offer_again_before_packages_do(
    run: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def order(**options: t.Any) -> list[str]:
        machine = Machine({}, vendor=False, loaded=False, missing=("perftest",))
        edit = (
            "ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.settings.NodeSettings.edit_repositories"
        )
        monkeypatch.setattr(edit, lambda _settings, exclude, check: machine.done.append(f"exclude {exclude} {check}"))
        run(machine, packages=["perftest"], exclude_distribution=True, **options)
        return [line for line in machine.done if line.startswith("exclude") or line.endswith(("perftest", "doca-ofed"))]

    package = "apt-get install -y -qq --no-install-recommends -- perftest"
    doca = ["apt-get --simulate --yes install doca-ofed", "apt-get --yes install doca-ofed"]
    assert order() == ["exclude False False", package, "exclude False False"]
    assert order(source="doca", version=DOCA) == [*doca, package, "exclude True False"]
    assert order(source="preinstalled") == []
    assert order(_ansible_check_mode=True) == ["exclude False True"]
    assert order(state="absent") == ["exclude False False"]


def test_nothing_is_written_while_somebody_works(run: t.Any) -> None:
    machine = Machine({}, vendor=False, loaded=True)
    done, result = run(machine, busy=["hpl (pid 7)"], **WANTED)
    assert (done, result["error_kind"]) == ([], "in_use")


def test_modules_that_the_kernel_would_not_load_take_no_stack_s_place(
    run: t.Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Secure Boot is on, and nobody has enrolled dkms' key: the old modules would be gone, and the new ones refused."""
    for path, content in {
        "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": b"\x06\x00\x00\x00\x01",
        "var/lib/dkms/mok.pub": b"",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(content)
    monkeypatch.setattr(signing, "ROOT", tmp_path)
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda _module, name: f"/usr/bin/{name}")
    machine = Machine({"perftest": "4.5"}, vendor=False, loaded=True)
    for check in (True, False):
        done, result = run(machine, _ansible_check_mode=check, **WANTED)
        assert (done, result["error_kind"]) == ([], "secure_boot")
        assert "mokutil --import /var/lib/dkms/mok.pub" in result["msg"]
        assert "`source: inbox`" in result["msg"]
    # Libraries alone, the distribution's own modules, what an image brought, and an image that is built ask nothing.
    for options in ({**WANTED, "user_space_only": True}, {}, {"source": "preinstalled"}, {**WANTED, "kernel": KERNEL}):
        assert not run(Machine({}, vendor=False, loaded=False), _ansible_check_mode=True, **options)[1]["failed"]
    machine.enrolled = True
    assert not run(machine, **WANTED)[1]["failed"]
    assert "apt-get --yes install doca-ofed" in machine.done


def test_a_version_that_is_not_pinned_is_refused(run: t.Any) -> None:
    result = run(Machine({}, vendor=False, loaded=False), source="doca")[1]
    assert (result["error_kind"], result["remedy"]) == ("bad_input", "Pin the version of the vendor's stack.")


def test_a_file_without_a_sum_is_refused_before_anything_is_done(run: t.Any) -> None:
    done, result = run(Machine({}, vendor=False, loaded=False), **{**WANTED, "sha256": {}})
    assert (done, result["error_kind"]) == ([], "checksum_missing")


@pytest.mark.parametrize("value", ["8G", "", "-5", "1_000", "9" * 30, "none"])
def test_a_limit_that_is_none_is_refused_before_anything_is_done(run: t.Any, value: str) -> None:
    machine = Machine({}, vendor=False, loaded=False)
    done, result = run(machine, **{**WANTED, "limits": {"memlock": value}})
    assert (done, result["error_kind"]) == ([], "bad_input")
    assert "`limits`" in result["msg"]
    assert repr(value) in result["msg"]


def test_services_get_limits_that_are_limits(run: t.Any) -> None:
    machine = Machine({}, vendor=False, loaded=False)
    done, result = run(machine, service_limits={"memlock": "8G"})
    assert (done, result["error_kind"]) == ([], "bad_input")
    assert "`service_limits`" in result["msg"]


def test_a_reboot_in_place_of_a_restart_is_asked_for(run: t.Any) -> None:
    machine = Machine({}, vendor=False, loaded=True)
    done, result = run(machine, **{**WANTED, "allow_restart": False, "allow_reboot": True})
    assert "systemctl restart openibd.service" not in done
    assert result["reboot_required"]


def test_a_stack_goes_with_what_it_brought_and_its_files(run: t.Any) -> None:
    machine = Machine({}, vendor=False, loaded=True)
    run(machine, **WANTED)
    machine.done = []
    done, result = run(machine, state="absent", source="doca", version=DOCA)
    assert [line for line in done if not line.startswith("remove /etc/systemd")] == [
        "apt-get --yes purge --autoremove doca-ofed",
        "apt-get --yes purge doca-host",
        "apt-get --yes update",
        f"remove {WRITTEN}",
    ]
    assert brief(result)[0] == f"uninstall doca {HOST}"
    assert result["not_applied"] == [
        {"what": "kernel modules", "reason": "the removed ones stay loaded until a reboot"}
    ]
    assert result["stack"] == {"source": "", "version": ""}


@pytest.mark.parametrize(
    "options", [{"state": "absent", "source": "doca", "version": DOCA}, {"source": "inbox", "allow_replace": True}]
)
def test_a_removal_that_was_interrupted_is_finished(
    run: t.Any, tmp_path: pathlib.Path, options: dict[str, t.Any]
) -> None:
    """apt has taken doca-ofed away and then died."""
    mark = tmp_path / "lib/unfinished"
    mark.parent.mkdir()
    mark.write_text(f"removal of doca {HOST}\n")
    machine = Machine({"doca-host": HOST, "mofed-provides-openmpi": "1"}, vendor=False, loaded=False)
    done, result = run(machine, **options)
    assert done == ["apt-get --yes purge doca-host mofed-provides-openmpi", "apt-get --yes update"]
    assert brief(result) == [f"uninstall doca {HOST}"]
    assert not mark.exists()
    assert run(machine, **options)[1]["changed"] is False
