# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which commands a node gets, word by word and in order, and what the module returns: a table of nodes and requests.

``fixtures/sequences.json`` has for each case the commands (with changes of files and units among them) and the result.
A case ends with a second run, as the action plugin makes it after a reboot, where it says so.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import typing as t

import pytest
from ansible.module_utils import basic
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import apt, dnf, transaction
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import (
    cuda,
    fabric,
    modes,
    settings,
    verify,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.modules import nvidia_driver
from driver_machine import EL_KERNEL, KERNEL, NEW, OLD, UNITS, Machine
from module_run import run_main

TABLE: dict[str, dict[str, t.Any]] = json.loads(
    (pathlib.Path(__file__).parent / "fixtures/sequences.json").read_text(encoding="utf-8")
)
INSTALLER = "the installer"
NEXT = "6.8.0-1032-azure"
AGREED = {"allow_upgrade": True, "allow_unload": True}
REBOOT = {"allow_upgrade": True, "allow_reboot": True}
DRAIN = {**AGREED, "drain": True}
RUNFILE = {"source": "runfile", "runfile_sha256": hashlib.sha256(INSTALLER.encode()).hexdigest()}
OLD_DRIVER = {"installed": OLD, "loaded": OLD}
FABRIC = {
    "installed": NEW,
    "loaded": NEW,
    "switches": 1,
    "fabric": OLD,
    "running": [*UNITS, "nvidia-fabricmanager.service"],
}
MANY = ("nvidia_fs", "nvidia_uvm", "nvidia_modeset")
COMMIT, DOWNLOAD = "apt-get -o ... install -y -qq -o", "apt-get -o ... install -y -qq --download-only"

#: The name of a case: the node, and what is asked for.
CASES: dict[str, tuple[dict[str, t.Any], dict[str, t.Any]]] = {
    "install": ({}, {}),
    "install in check mode": ({}, {"check": True}),
    "install without lists": ({"stale": True}, {}),
    "install without lists in check mode": ({"stale": True}, {"check": True}),
    "install without a GPU": ({"gpus": 0}, {}),
    "install in an image": (
        {"gpus": 0, "loaded": OLD},
        {"chroot": True, "kernel_module": "open", "phases": ["install"]},
    ),
    "install, units in an image": ({"gpus": 0}, {"chroot": True, "kernel_module": "open"}),
    "install with everything": (
        {"switches": 1},
        {"dcgm": True, "cuda_version": "12.9", "kernel_headers": True, "peermem": "always"},
    ),
    "install with GDRCopy and NSCQ": ({"switches": 1}, {"gdrcopy": True, "nscq": True}),
    "install with GDRCopy and NSCQ in check mode": ({"switches": 1}, {"gdrcopy": True, "nscq": True, "check": True}),
    "install with GDRCopy, whose module does not load": ({"fails": ("modprobe gdrdrv",)}, {"gdrcopy": True}),
    "nothing to do but GDRCopy, with Secure Boot": (
        {"installed": NEW, "loaded": NEW, "secure_boot": True},
        {"gdrcopy": True},
    ),
    "install with NVSwitches behind ConnectX": ({"bridges": 2}, {}),
    "install with NVSwitches behind ConnectX, kernel lacks a module": (
        {"bridges": 2, "fails": ("modprobe ib_umad",)},
        {},
    ),
    "install, nvidia_peermem does not load": ({"fails": ("modprobe nvidia_peermem",)}, {"peermem": "always"}),
    "nothing to do but nvidia_peermem": ({"installed": NEW, "loaded": NEW}, {"peermem": "always"}),
    "nothing to do, another kernel boots next": (
        {"installed": NEW, "loaded": NEW, "next_kernel": NEXT, "built_for": (KERNEL, NEXT)},
        {"kernel": "", "kernel_headers": True},
    ),
    "headers for kernels to come": (
        {"installed": NEW, "loaded": NEW, "others": (f"linux-image-{KERNEL}", "linux-image-azure")},
        {"kernel_headers": True, "kernel_hold": True},
    ),
    "verified, no driver for the next boot": (
        {"installed": NEW, "loaded": NEW, "next_kernel": NEXT},
        {"state": "verified", "kernel": ""},
    ),
    "install, initramfs fails": ({"fails": ("/usr/sbin/update-initramfs",)}, {}),
    "install, commit fails": ({"fails": (COMMIT,)}, {}),
    "install, hold fails": ({"fails": ("apt-mark",)}, {}),
    "install, module does not load": ({"fails": ("modprobe nvidia",)}, {}),
    "install, nouveau refused": ({"nouveau": True}, {}),
    "install, nouveau unloaded": ({"nouveau": True}, AGREED),
    "install, nouveau by reboot": ({"nouveau": True}, {**REBOOT, "again": True}),
    "install without holding": ({}, {"hold": False}),
    "install from dnf": ({"system": "rpm"}, {}),
    "install from dnf with EPEL": ({"system": "rpm"}, {"epel": True}),
    "install from dnf in check mode": ({"system": "rpm"}, {"check": True}),
    "install from dnf with EPEL in check mode": ({"system": "rpm"}, {"epel": True, "check": True}),
    "no version": ({}, {"version": ""}),
    "half a version": ({}, {"version": "580"}),
    "distro on EL": ({"system": "rpm"}, {"source": "distro"}),
    "nothing to do": ({"installed": NEW, "loaded": NEW, "configured": True}, {}),
    "drained before, nothing to do": ({"installed": NEW, "loaded": NEW, "drained": True}, {"drain": True}),
    "drained before, in check mode": (
        {"installed": NEW, "loaded": NEW, "drained": True, "configured": True},
        {"drain": True, "check": True},
    ),
    "a copy of Fabric Manager's unit hides the vendor's": (
        {**FABRIC, "fabric": NEW, "fabric_unit": f"{settings.MANAGED}\n[Service]\nExecStart=/bin/fm --old\n"},
        {},
    ),
    "a site's own unit of Fabric Manager": (
        {**FABRIC, "fabric": NEW, "fabric_unit": "[Service]\nExecStart=/bin/fm --site\n"},
        {},
    ),
    "not held": ({"installed": NEW, "loaded": NEW, "held": False}, {}),
    "broken": ({"installed": NEW, "broken": True}, {}),
    "installed but not loaded": ({"installed": NEW}, {}),
    "option differs": ({"installed": NEW, "loaded": NEW, "parameter": True}, {"module_options": {"NVreg_X": "1"}}),
    "option differs, unloaded": (
        {"installed": NEW, "loaded": NEW, "parameter": True},
        {"module_options": {"NVreg_X": "1"}, **AGREED},
    ),
    "other version refused": (OLD_DRIVER, {}),
    "other version, no unload": (OLD_DRIVER, {"allow_upgrade": True}),
    "other version, in use": ({**OLD_DRIVER, "users": ("python (42)",)}, AGREED),
    "upgrade": (OLD_DRIVER, AGREED),
    "upgrade with Secure Boot, key not enrolled": ({**OLD_DRIVER, "secure_boot": True}, DRAIN),
    "upgrade with Secure Boot, key enrolled": ({**OLD_DRIVER, "secure_boot": True, "enrolled": True}, DRAIN),
    "nothing to do with Secure Boot": ({"installed": NEW, "loaded": NEW, "secure_boot": True, "configured": False}, {}),
    "upgrade with GDRCopy": (
        {**OLD_DRIVER, "extras": ("gdrdrv", "nvidia_uvm"), "others": ("gdrdrv-dkms", "libgdrapi")},
        {**AGREED, "gdrcopy": True},
    ),
    "upgrade in check mode": (OLD_DRIVER, {**DRAIN, "check": True}),
    "upgrade, install only": (OLD_DRIVER, {**AGREED, "phases": ["install"]}),
    "upgrade with NVSwitches": ({**OLD_DRIVER, "switches": 1}, AGREED),
    "upgrade of Fabric Manager": (FABRIC, AGREED),
    "upgrade of Fabric Manager in check mode": (FABRIC, {**AGREED, "check": True}),
    "upgrade of Fabric Manager, which does not restart": ({**FABRIC, "fails": ("systemctl restart",)}, AGREED),
    "upgrade, Fabric Manager without NVSwitches": (
        {**OLD_DRIVER, "fabric": OLD, "fails": ("systemctl restart",)},
        DRAIN,
    ),
    "upgrade without lists": ({**OLD_DRIVER, "stale": True}, AGREED),
    "upgrade, many modules": ({**OLD_DRIVER, "extras": MANY}, DRAIN),
    "upgrade, extras lost": ({**OLD_DRIVER, "extras": MANY, "fails": ("modprobe nvidia_fs",)}, DRAIN),
    "upgrade, services lost": (
        {**OLD_DRIVER, "fails": ("systemctl start",), "running": ["nvidia-dcgm.service"]},
        DRAIN,
    ),
    "upgrade drained": (OLD_DRIVER, DRAIN),
    "upgrade, drain fails": ({**OLD_DRIVER, "fails": ("scontrol update",)}, DRAIN),
    "upgrade, download fails": ({**OLD_DRIVER, "fails": (DOWNLOAD,)}, DRAIN),
    "upgrade, stubborn": ({**OLD_DRIVER, "fails": ("modprobe -r",)}, DRAIN),
    "upgrade, stubborn, by reboot": ({**OLD_DRIVER, "fails": ("modprobe -r",)}, {**DRAIN, **REBOOT, "again": True}),
    "upgrade, commit fails": ({**OLD_DRIVER, "extras": MANY, "fails": (COMMIT,)}, DRAIN),
    "upgrade by reboot, commit fails": ({**OLD_DRIVER, "fails": (COMMIT,)}, {**REBOOT, "drain": True}),
    "upgrade, commit fails, extras lost": (
        {**OLD_DRIVER, "extras": MANY, "fails": (COMMIT, "modprobe nvidia_fs")},
        DRAIN,
    ),
    "upgrade, commit and load fail": ({**OLD_DRIVER, "fails": (COMMIT, "modprobe nvidia")}, DRAIN),
    "upgrade, hold fails": ({**OLD_DRIVER, "extras": MANY, "fails": ("apt-mark",)}, DRAIN),
    "upgrade, load fails": ({**OLD_DRIVER, "extras": MANY, "fails": ("modprobe nvidia",)}, DRAIN),
    "upgrade by reboot": (OLD_DRIVER, {**REBOOT, "drain": True, "again": True}),
    "upgrade with dnf": ({**OLD_DRIVER, "system": "rpm"}, AGREED),
    "upgrade with dnf, headers missing": (
        {**OLD_DRIVER, "system": "rpm"},
        {**DRAIN, "kernel_headers": True, "kernel": EL_KERNEL},
    ),
    "upgrade with a mode": (OLD_DRIVER, {**DRAIN, "ecc": "disabled"}),
    "upgrade with a mode by reboot": (OLD_DRIVER, {**REBOOT, "drain": True, "ecc": "disabled", "again": True}),
    "mode without consent": ({"installed": NEW, "loaded": NEW}, {"ecc": "disabled"}),
    "mode": ({"installed": NEW, "loaded": NEW}, {**DRAIN, "ecc": "disabled"}),
    "runfile": ({}, RUNFILE),
    "runfile in check mode": ({}, {**RUNFILE, "check": True}),
    "runfile with Fabric Manager": ({"switches": 1}, RUNFILE),
    "runfile fails": ({"fails": ("sh",)}, RUNFILE),
    "runfile replaces another": ({"runfile": OLD, "loaded": OLD}, {**RUNFILE, **DRAIN}),
    "runfile replaces another, fails": ({"runfile": OLD, "loaded": OLD, "fails": ("sh",)}, {**RUNFILE, **DRAIN}),
    "runfile refused": ({"runfile": OLD, "loaded": OLD}, RUNFILE),
    "runfile over packages": (OLD_DRIVER, {**RUNFILE, **AGREED}),
    "runfile, nothing to do": ({"runfile": NEW, "loaded": NEW}, RUNFILE),
    "packages over a runfile": ({"runfile": OLD}, AGREED),
    "preinstalled": ({"runfile": OLD, "loaded": OLD}, {"source": "preinstalled", "version": ""}),
    "preinstalled without a GPU": ({"gpus": 0}, {"source": "preinstalled", "version": ""}),
    "preinstalled without a GPU that is expected": (
        {"gpus": 0},
        {"source": "preinstalled", "version": "", "expect_gpus": 8},
    ),
    "preinstalled without a driver": ({}, {"source": "preinstalled", "version": ""}),
    "preinstalled, nvidia-smi does not come back": (
        {"loaded": OLD, "hangs": True},
        {"source": "preinstalled", "version": ""},
    ),
    "preinstalled, mode": ({"loaded": OLD}, {"source": "preinstalled", "version": "", "ecc": "disabled", **DRAIN}),
    "verified": ({"installed": NEW, "loaded": NEW}, {"state": "verified", "dcgm": True}),
    "verified, NVSwitches behind ConnectX without their subnet": (
        {
            "installed": NEW,
            "loaded": NEW,
            "bridges": 2,
            "fabric": NEW,
            "running": [*UNITS, "nvidia-fabricmanager.service"],
        },
        {"state": "verified"},
    ),
    "verified, CUDA waits for its fabric": (
        {
            "installed": NEW,
            "loaded": NEW,
            "switches": 1,
            "running": [*UNITS, "nvidia-fabricmanager.service"],
            "cuda_code": 802,
        },
        {"state": "verified"},
    ),
    "verified, nvidia-smi does not tell of the fabric": (
        {
            "installed": NEW,
            "loaded": NEW,
            "switches": 1,
            "running": [*UNITS, "nvidia-fabricmanager.service"],
            "silent": True,
        },
        {"state": "verified"},
    ),
    "verified, without persistence mode": (
        {"installed": NEW, "loaded": NEW, "persistence": False},
        {"state": "verified"},
    ),
    "verified, GDRCopy and NSCQ missing": (
        {"installed": NEW, "loaded": NEW, "switches": 1, "running": [*UNITS, "nvidia-fabricmanager.service"]},
        {"state": "verified", "gdrcopy": True, "nscq": True},
    ),
    "verified, nvidia-smi does not come back": (
        {"installed": NEW, "loaded": NEW, "hangs": True},
        {"state": "verified"},
    ),
    "verified, no GPU": ({"gpus": 0}, {"state": "verified"}),
    "verified, all wrong": (
        {"installed": NEW, "loaded": OLD, "switches": 1, "held": False, "broken": True, "nouveau": True, "running": []},
        {"state": "verified", "ecc": "disabled", "expect_gpus": 2},
    ),
    "verified, preinstalled": ({"loaded": OLD}, {"state": "verified", "source": "preinstalled", "version": ""}),
    "verified, preinstalled, of no use to jobs": (
        {"runfile": OLD, "loaded": OLD, "persistence": False, "next_kernel": NEXT},
        {"state": "verified", "source": "preinstalled", "version": "", "kernel": "", "peermem": "always"},
    ),
    "removed": ({"installed": NEW, "loaded": NEW, "configured": True}, {"state": "absent", **DRAIN}),
    "removed in check mode": (
        {"installed": NEW, "loaded": NEW, "configured": True},
        {"state": "absent", **DRAIN, "check": True},
    ),
    "removed with GDRCopy": (
        {"installed": NEW, "others": ("gdrdrv-dkms", "libgdrapi")},
        {"state": "absent", "gdrcopy": True, **AGREED},
    ),
    "removed without consent": ({"installed": NEW, "loaded": NEW}, {"state": "absent"}),
    "removed with dnf": ({"installed": NEW, "loaded": NEW, "system": "rpm"}, {"state": "absent", **AGREED}),
    "removed by reboot": ({"installed": NEW, "loaded": NEW, "broken": True}, {"state": "absent", "allow_reboot": True}),
    "removed, stubborn": ({"installed": NEW, "loaded": NEW, "fails": ("modprobe -r",)}, {"state": "absent", **DRAIN}),
    "removed in an image": ({"installed": NEW, "loaded": NEW}, {"state": "absent", "chroot": True}),
    "removed, runfile": ({"runfile": OLD, "loaded": OLD}, {"state": "absent", "source": "runfile", **AGREED}),
    "removed, runfile fails": (
        {"runfile": OLD, "fails": ("/usr/bin/nvidia-uninstall",)},
        {"state": "absent", "source": "runfile", **AGREED},
    ),
    "removed, nothing there": ({}, {"state": "absent"}),
    "removed, preinstalled": ({"loaded": OLD}, {"state": "absent", "source": "preinstalled"}),
}


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> t.Callable[[str], dict[str, t.Any]]:
    """Let a case happen, and return what is in the table for it."""

    def happen(name: str) -> dict[str, t.Any]:
        described, asked = dict(CASES[name][0]), dict(CASES[name][1])
        configured, drained = described.pop("configured", False), described.pop("drained", False)
        parameter = described.pop("parameter", False)
        again, chroot, check = asked.pop("again", False), asked.pop("chroot", False), asked.pop("check", False)
        machine = Machine(tmp_path, **described)
        if parameter:
            (tmp_path / "proc/driver/nvidia/params").write_text("X: 0\n")
        machine.drained_by = "hpcai.gpu_cluster.nvidia_driver" if drained else ""
        stand_in(monkeypatch, machine, chroot=chroot)
        arguments = {"version": NEW, "kernel": KERNEL, "kernel_headers": False, "slurm_node": "gpu-1", **asked}
        if asked.get("source") == "runfile":
            (tmp_path / "driver.run").write_text(INSTALLER)
            arguments.update(runfile=str(tmp_path / "driver.run"))
        if configured:
            monkeypatch.setattr(vendor, "is_added", lambda *_parts: True)
            run_main(nvidia_driver.main, {**arguments, "state": "present", "phases": ["install"]})
            machine.done.clear()
            machine.held = True
        results = [run_main(nvidia_driver.main, {**arguments, "_ansible_check_mode": check})]
        if again:
            machine.done.append("-- reboot --")
            machine.reboot()
            results.append(run_main(nvidia_driver.main, arguments))
        text = json.dumps({"commands": machine.done, "results": [in_lines(result) for result in results]})
        # Names of temporary files differ, and the node's root is another one in every run.
        text = re.sub(r"/[\w/]*/(nvidia-driver|transaction)-\w+(\.pref)?", "TMP", text).replace(str(tmp_path), "")
        return t.cast("dict[str, t.Any]", json.loads(text))

    return happen


def stand_in(monkeypatch: pytest.MonkeyPatch, machine: Machine, *, chroot: bool) -> None:
    """Let the module's programs, files and GPUs be the machine's."""
    program = "dpkg-query" if machine.system == "dpkg" else "dnf rpm"
    monkeypatch.setattr(node, "ROOT", machine.root)
    monkeypatch.setattr(node.platform, "release", lambda: KERNEL)
    monkeypatch.setattr(node, "in_chroot", lambda: chroot)
    monkeypatch.setattr(node, "gpu_users", lambda _root: list(machine.users))
    monkeypatch.setattr(apt, "read_text", lambda _path: "")
    monkeypatch.setattr(dnf, "VERSIONLOCK", str(machine.root / "versionlock/list"))
    monkeypatch.setattr(transaction.shutil, "which", lambda name, **_rest: name if name in program.split() else None)
    monkeypatch.setattr(transaction.Apt, "interrupted", lambda _apt: False)
    monkeypatch.setattr(vendor, "listed_elsewhere", lambda _repository: False)
    monkeypatch.setattr(vendor, "key_text", lambda *_parts, check: "KEY")
    monkeypatch.setattr(basic.AnsibleModule, "run_command", lambda _module, argv, **_rest: machine.command(argv))
    path = {"update-initramfs": "/usr/sbin/update-initramfs", "mokutil": "/usr/bin/mokutil"}
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda _module, name, *_rest: path.get(name))
    monkeypatch.setattr(
        NodeState, "run", lambda state, check: state.changes.add(*machine.state(state.request, check=check))
    )
    monkeypatch.setattr(nvidia_smi.Query, "result", lambda query: asked_smi(machine, query._fields))
    monkeypatch.setattr(nvidia_smi.Query, "_ask", lambda _query, _fields: None)
    monkeypatch.setattr(cuda, "call", lambda _program, words, _timeout_s: machine.cuda(words[-1]))
    monkeypatch.setattr(fabric, "call", lambda _program, words, _timeout_s: machine.fabric_of(words))
    monkeypatch.setattr(verify, "_PERSISTENCE_SETTLE_S", 0.0)
    monkeypatch.setattr(modes, "call", lambda _program, words, _timeout_s: machine.smi(words) or nvidia_smi.SmiRun(0))


def in_lines(result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The result, with a line for each change and each piece of the diff, and without what the module was told."""
    result = {key: value for key, value in result.items() if key != "invocation"}
    lines = {
        "changes": [f"{one['kind']} {one['name']}: {one['what']}" for one in result.get("changes", [])],
        "diff": [
            f"{one['before_header']} -> {one['after_header']}: {one['before']!r} -> {one['after']!r}"
            for one in result.get("diff", [])
        ],
    }
    return {**result, **{key: value for key, value in lines.items() if key in result}}


def asked_smi(machine: Machine, fields: tuple[str, ...]) -> nvidia_smi.SmiRun:
    """What nvidia-smi answers."""
    if machine.hangs:
        return nvidia_smi.SmiRun(None, timed_out=True, fields=fields)
    rows = machine.cells(fields)
    return nvidia_smi.SmiRun(0 if rows else 9, rows, "", fields=fields)


def test_a_removed_driver_leaves_no_lock_behind(
    answer: t.Callable[[str], dict[str, t.Any]], tmp_path: pathlib.Path
) -> None:
    """A lock that stays would keep the next installation at the old version."""
    locks = tmp_path / "versionlock/list"
    locks.parent.mkdir()
    locks.write_text(f"bash-0:5.1.8-9.el9.*\nnvidia-open-3:{NEW}-1.el9.*\nlibnvidia-ml-3:{OLD}-1.el9.*\n")
    answer("removed with dnf")
    assert locks.read_text() == "bash-0:5.1.8-9.el9.*\n"


def test_gpus_beside_nvswitches_that_say_nothing_of_a_fabric_are_outside_of_it(
    answer: t.Callable[[str], dict[str, t.Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "GPU 00000000:00:00.0\n    Fabric\n        State : N/A\n        Status : N/A\n"
    monkeypatch.setattr(Machine, "fabric_of", lambda _machine, _words: nvidia_smi.SmiRun(0, text))
    told = "The NVLink fabric of 0000:00:00.0 is 'N/A': they are outside of it"
    # B200, which register. Before Hopper none does.
    assert told in answer("verified, NVSwitches behind ConnectX without their subnet")["results"][0]["msg"]
    assert told not in answer("verified, CUDA waits for its fabric")["results"][0]["msg"]


def test_the_table_has_these_cases_and_no_others() -> None:
    assert list(TABLE) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_commands_and_results(answer: t.Callable[[str], dict[str, t.Any]], name: str) -> None:
    happened = answer(name)
    assert happened["commands"] == TABLE[name]["commands"]
    assert happened["results"] == TABLE[name]["results"]
