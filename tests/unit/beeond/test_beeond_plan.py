# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request, the plan and what nodes answer, without a node."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond import agent, processes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.apply import FileSystem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import Plan, Request, Seen
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.plan import all_problems, plan_start, plan_stop
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.program import modes, start_argv, stop_argv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.remote import source
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.request import SPEC, request_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.settings import settings_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.nodes import answer
from hypothesis import given, settings
from hypothesis import strategies as st

NODES = ["gpu-1", "gpu-2", "gpu-3"]


def request(**options: t.Any) -> Request:
    filled = {name: option.get("default") for name, option in SPEC.items()}
    return request_of({**filled, "nodes": NODES, "storage_path": "/nvme", "mount_point": "/mnt/scratch", **options})


IDLE = Seen(program="/usr/bin/beeond", version=8, free_bytes=1 << 40)


def up(node: str, session: str = "s", **changes: t.Any) -> Seen:
    """A node on which everything runs."""
    services = request().services_of(node)
    mark = {"session": session, "layout": request().layout(8), "state": "used"}
    seen = dataclasses.replace(
        IDLE, mounted=True, status_there=True, services=dict.fromkeys(services, True), data_there=services, mark=mark
    )
    return dataclasses.replace(seen, **changes)


def kept(node: str, **changes: t.Any) -> Seen:
    """A node after a stop."""
    return up(node, mounted=False, status_there=False, services={}, **changes)


def cluster(make: t.Callable[[str], Seen], **others: Seen) -> dict[str, Seen]:
    return {node: others.get(node.replace("-", "_"), make(node)) for node in NODES}


def refusal(call: t.Callable[[], t.Any]) -> ClusterError:
    with pytest.raises(ClusterError) as found:
        call()
    return found.value


def test_what_runs_is_left_alone() -> None:
    assert plan_start(request(), cluster(up)) == Plan()


def test_what_is_not_there_is_started() -> None:
    plan = plan_start(request(), cluster(lambda _: IDLE))
    assert (plan.start, plan.sweep, plan.purge, plan.words) == (True, (), (), ["start the file system"])


def test_whole_data_of_the_same_layout_is_used_again() -> None:
    plan = plan_start(request(), cluster(kept))
    assert (plan.start, plan.purge) == (True, ())


@pytest.mark.parametrize(
    "changed",
    [
        {"gpu_2": IDLE},
        {"gpu_2": kept("gpu-2", data_there=("beegfs-storage", "beegfs-meta"))},
        {"gpu_2": up("gpu-2", "other", mounted=False, status_there=False, services={})},
    ],
)
def test_data_that_is_not_whole_goes_only_with_consent(changed: dict[str, Seen]) -> None:
    seen = cluster(kept, **changed)
    found = refusal(lambda: plan_start(request(), seen))
    assert found.kind == "data_would_be_lost"
    assert "allow_data_loss" in found.remedy
    plan = plan_start(request(allow_data_loss=True), seen)
    assert plan.purge == tuple(node for node in NODES if seen[node].data_there)


def test_data_of_a_start_that_never_came_up_needs_no_consent() -> None:
    starting = {"session": "s", "layout": request().layout(8), "state": "starting"}
    plan = plan_start(request(), cluster(lambda node: up(node, mark=starting, services={})))
    assert (plan.sweep, plan.purge, plan.start) == (tuple(NODES), tuple(NODES), True)


def test_a_running_file_system_with_a_dead_service_is_repaired_only_with_consent() -> None:
    seen = cluster(up, gpu_3=up("gpu-3", services={"beegfs-storage": False}))
    found = refusal(lambda: plan_start(request(), seen))
    assert found.kind == "half_there"
    assert "gpu-3: beegfs-storage does not run" in found.message
    plan = plan_start(request(allow_data_loss=True), seen)
    # What the users wrote before is whole, and stays.
    assert (plan.sweep, plan.purge, plan.start) == (tuple(NODES), (), True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"on_os_disk": True}, "/nvme is on the disk of the operating system"),
        ({"mount_entries": ("mine",)}, "/mnt/scratch is not empty (mine)"),
        ({"foreign_mount": "/dev/sda1"}, "/dev/sda1 is mounted at /mnt/scratch"),
        ({"free_bytes": 1 << 20}, "/nvme has 1 MiB left, and 1024 are needed"),
        ({"free_inodes": 9}, "/nvme has 9 inodes left, and 100000 are needed"),
        ({"unresolved": ("gpu-3",)}, "cannot resolve gpu-3"),
        ({"ports_busy": (9003,)}, "port 9003 is in use"),
        ({"data_is_link": True}, "/nvme/beeond or a directory above it is a link"),
        ({"data_entries": ("x",)}, "/nvme/beeond holds x, which is not this module's"),
        ({"shell_is_bash": False}, "root's login shell is not /bin/bash, which BeeOND requires"),
        ({"mounted": True}, "a file system of another session is mounted at /mnt/scratch"),
        ({"point_is_link": True}, "/mnt/scratch or a directory above it is a link"),
        ({"point_is_no_directory": True}, "/mnt/scratch is no directory"),
        ({"data_mounts": ("/nvme/beeond",)}, "/nvme/beeond is a mount point"),
        ({"inside_data": "/nvme"}, "/nvme lies in /nvme, the data of another file system"),
        ({"mounted_elsewhere": ("/mnt/a",)}, "the file system of /nvme/beeond is mounted at /mnt/a"),
        (
            {"strays": {"beegfs-storage": 7}, "mark": {"port_shift": 2000}},
            "services with port shift 2000 use /nvme/beeond",
        ),
        ({"config_there": False}, "there is no directory "),
        ({"unreachable": "does not answer: it did not answer in time"}, "does not answer: it did not answer in time"),
    ],
)
def test_what_stands_in_the_way(changes: dict[str, t.Any], text: str) -> None:
    seen = cluster(lambda _: IDLE, gpu_2=dataclasses.replace(IDLE, **changes))
    found = refusal(lambda: plan_start(request(allow_data_loss=True), seen))
    assert found.kind == "cannot_start_here"
    assert found.details["problems"] == {"gpu-2": (text,)}


def test_a_port_that_another_node_needs_is_free_to_use() -> None:
    seen = cluster(lambda _: IDLE, gpu_2=dataclasses.replace(IDLE, ports_busy=(9008, 9010)))
    assert plan_start(request(), seen).start


def test_versions() -> None:
    old = dataclasses.replace(IDLE, version=7)
    assert refusal(lambda: plan_start(request(), cluster(lambda _: IDLE, gpu_1=old))).kind == "versions_differ"
    assert refusal(lambda: plan_start(request(version=7), cluster(lambda _: IDLE))).kind == "wrong_version"
    none = dataclasses.replace(IDLE, program="")
    assert refusal(lambda: plan_start(request(), cluster(lambda _: IDLE, gpu_1=none))).kind == "not_installed"


def test_a_stop_works_on_the_survivors() -> None:
    seen = cluster(up, gpu_2=Seen(unreachable="does not answer: there is no route to it"))
    plan = plan_stop(request(state="stopped"), seen)
    assert (plan.stop, plan.sweep, plan.purge) == (("gpu-1", "gpu-3"), ("gpu-1", "gpu-3"), ())
    assert list(plan.problems) == ["gpu-2"]


def test_a_stop_while_programs_use_it_needs_consent() -> None:
    seen = cluster(up, gpu_2=up("gpu-2", users=(77,)))
    assert "gpu-2: process 77" in refusal(lambda: plan_stop(request(state="stopped"), seen)).message
    assert plan_stop(request(state="stopped", allow_data_loss=True), seen).stop == tuple(NODES)


def test_cleaning_needs_consent_where_users_wrote() -> None:
    assert refusal(lambda: plan_stop(request(state="cleaned"), cluster(kept))).kind == "data_would_be_lost"
    assert plan_stop(request(state="cleaned", allow_data_loss=True), cluster(kept)).purge == tuple(NODES)
    assert plan_stop(request(state="cleaned"), cluster(lambda _: IDLE)) == Plan()


def test_what_others_mounted_is_not_stopped() -> None:
    seen = cluster(lambda _: IDLE, gpu_2=dataclasses.replace(IDLE, mounted=True))
    assert refusal(lambda: plan_stop(request(state="cleaned", allow_data_loss=True), seen)).kind == "not_ours"


def test_what_another_file_system_has_there_is_not_stopped() -> None:
    for changes in (
        {"mounted_elsewhere": ("/mnt/a",)},
        {"strays": {"beegfs-storage": 7}, "mark": {"port_shift": 2000}},
    ):
        seen = cluster(lambda _: IDLE, gpu_2=dataclasses.replace(IDLE, **t.cast(t.Any, changes)))
        for state in ("stopped", "cleaned"):
            found = refusal(lambda: plan_stop(request(state=state, allow_data_loss=True), seen))  # noqa: B023
            assert (found.kind, list(found.details["problems"])) == ("not_ours", ["gpu-2"])


def test_a_mount_that_is_not_from_here_is_not_ours_because_old_data_is() -> None:
    seen = cluster(lambda node: kept(node, run_dir_there=False), gpu_2=kept("gpu-2"))
    seen["gpu-2"] = dataclasses.replace(seen["gpu-2"], mounted=True)
    assert refusal(lambda: plan_stop(request(state="stopped"), seen)).kind == "not_ours"
    seen["gpu-2"] = dataclasses.replace(seen["gpu-2"], run_dir_there=True)
    assert plan_stop(request(state="stopped"), seen).sweep == ("gpu-2",)


def test_beeond_is_not_asked_to_unmount_what_is_not_its_own() -> None:
    seen = cluster(up, gpu_2=up("gpu-2", mounted=False, foreign_mount="/dev/md0"))
    plan = plan_stop(request(state="stopped"), seen)
    assert (plan.stop, plan.sweep) == (("gpu-1", "gpu-3"), tuple(NODES))


def test_a_part_of_the_nodes_is_neither_a_whole_file_system_nor_stopped_alone() -> None:
    some = {node: up(node) for node in NODES[:2]}
    asked = {"nodes": NODES[:2]}
    assert refusal(lambda: plan_start(request(**asked, allow_data_loss=True), some)).kind == "other_nodes"
    found = refusal(lambda: plan_stop(request(**asked, state="stopped"), some))
    assert (found.kind, "gpu-3" in found.message) == ("other_nodes", True)
    assert plan_stop(request(**asked, state="stopped", allow_data_loss=True), some).stop == tuple(NODES[:2])


def starting(node: str, **changes: t.Any) -> Seen:
    """A node on which a run was killed before it had noted that the file system is in use."""
    mark = {"session": "s", "layout": request().layout(8), "state": "starting"}
    return up(node, **{"mark": mark, **changes})


def test_a_start_that_was_cut_off_after_the_mount_is_finished() -> None:
    plan = plan_start(request(), cluster(starting))
    assert (plan.keep, plan.start, plan.purge, plan.words) == (True, False, (), ["finish a start that was cut off"])


def test_files_count_even_where_a_start_was_cut_off() -> None:
    seen = cluster(starting, gpu_3=starting("gpu-3", files=True, services={}))
    assert refusal(lambda: plan_start(request(), seen)).kind == "half_there"
    stopped = {"mounted": False, "status_there": False, "services": {}}
    seen = cluster(lambda node: starting(node, **stopped), gpu_3=starting("gpu-3", files=True, **stopped))
    assert refusal(lambda: plan_stop(request(state="cleaned"), seen)).kind == "data_would_be_lost"
    # Nothing is wrong with the data: it is used again.
    assert plan_start(request(), seen).purge == ()


def test_data_fills_its_disk_and_can_still_be_started() -> None:
    assert plan_start(request(), cluster(lambda node: kept(node, free_bytes=0, free_inodes=0))).start


def test_two_names_of_one_machine() -> None:
    seen = cluster(lambda _: dataclasses.replace(IDLE, machine="x"))
    for make in (plan_start, plan_stop):
        assert refusal(lambda: make(request(allow_data_loss=True), seen)).kind == "same_machine"  # noqa: B023


def test_a_run_from_another_first_node() -> None:
    seen = cluster(lambda _: IDLE, gpu_2=dataclasses.replace(IDLE, other_run=True))
    for make in (plan_start, plan_stop):
        assert refusal(lambda: make(request(allow_data_loss=True), seen)).kind == "busy"  # noqa: B023


def test_consent_is_not_for_the_data_of_a_machine_that_has_another_name_there() -> None:
    layout = {**request().layout(8), "nodes": ["db-1", "db-2"]}
    other = kept("gpu-2", mark={"session": "x", "layout": layout, "state": "used"})
    seen = cluster(lambda _: IDLE, gpu_2=other)
    for state, make in (("started", plan_start), ("cleaned", plan_stop)):
        found = refusal(lambda: make(request(state=state, allow_data_loss=True), seen))  # noqa: B023
        assert (found.kind, "db-1, db-2" in found.message) == ("data_of_others", True)


def test_mounts_below_the_mount_are_use() -> None:
    seen = cluster(up, gpu_2=up("gpu-2", mounts_below=("/mnt/scratch/image",)))
    found = refusal(lambda: plan_stop(request(state="stopped"), seen))
    assert (found.kind, "the mount at /mnt/scratch/image" in found.message) == ("in_use", True)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["up", "kept", "idle", "lost", "dead", "alone"]), min_size=3, max_size=3))
def test_without_consent_no_data_of_users_goes(kinds: list[str]) -> None:
    made = {
        "up": up, "kept": kept, "idle": lambda _: IDLE, "lost": lambda _: Seen(unreachable="gone"),
        "dead": lambda node: up(node, services={}), "alone": lambda node: up(node, "other"),
    }  # fmt: skip
    seen = {node: made[kind](node) for node, kind in zip(NODES, kinds)}
    for state, make in (("started", plan_start), ("stopped", plan_stop), ("cleaned", plan_stop)):
        try:
            plan = make(request(state=state), seen)
        except ClusterError:
            continue
        assert not [node for node in plan.purge if seen[node].used]
        assert not plan.start or not [node for node in NODES if seen[node].unreachable]
        assert not plan.start or all_problems(request(), seen)


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": []}, {"nodes": ["a", "b", "a"]}, {"nodes": ["# a"]}, {"nodes": ["a", ""]}, {"nodes": ["-oProxyCommand=x"]},
        {"nodes": ["root@a"]}, {"storage_path": "/"}, {"storage_path": "nvme"}, {"storage_path": "/a b"},
        {"storage_path": "/a/../b"}, {"mount_point": "/nvme/x"}, {"storage_path": "/mnt/scratch/x"},
        {"meta_servers": 4}, {"storage_servers": -1}, {"port_shift": 60000}, {"timeout_s": 0}, {"root_mode": "rwx"},
        {"interfaces": ["ib0;x"]}, {"interfaces": ["ib0"], "config_dir": "/etc/x"},
    ],
)  # fmt: skip
def test_bad_input(options: dict[str, t.Any]) -> None:
    assert refusal(lambda: request(**options)).kind == "bad_input"


def test_the_words_of_a_start() -> None:
    argv = start_argv(request(config_dir="/etc/x"), "/n", "/etc/x", modes=("-C",), parallel=True)
    assert argv == [
        "beeond", "start", "-n", "/n", "-d", "/nvme/beeond", "-c", "/mnt/scratch", "-i", "/run/hpcai_beeond/1000.status",
        "-L", "/var/log/hpcai_beeond/1000", "-p", "1000", "-m", "1", "-s", "0", "-f", "/etc/x", "-C", "-P",
    ]  # fmt: skip
    assert "-F" not in start_argv(request(allow_data_loss=True), "/n", "", parallel=False)
    assert "-d" not in stop_argv(request(allow_data_loss=True, state="cleaned"), "/n", parallel=True)


def test_authentication_and_the_license_follow_from_the_files_of_config_dir() -> None:
    asked = request(config_dir="/etc/x")
    first = asked.nodes[0]
    everywhere = {node: Seen(authentication=True, license=True) for node in asked.nodes}
    assert modes(asked, everywhere) == ("-C", "-H")
    assert modes(asked, {**everywhere, first: Seen(authentication=True)}) == ("-C",)
    assert modes(asked, {node: Seen() for node in asked.nodes}) == ()


def test_authentication_that_one_node_lacks_is_not_silently_left_out() -> None:
    asked = request(config_dir="/etc/x")
    secured = {node: dataclasses.replace(IDLE, authentication=True) for node in asked.nodes}
    assert plan_start(asked, secured).start
    last = asked.nodes[-1]
    refused = refusal(lambda: plan_start(asked, {**secured, last: IDLE}))
    assert refused.kind == "cannot_start_here"
    assert f"{last}: there is no /etc/x/conn.auth, which other nodes have" in refused.message


def test_the_settings() -> None:
    assert settings_of(request(), 8) == {}
    assert settings_of(request(config_dir="/etc/x"), 7) == {}
    seven = settings_of(request(), 7)
    assert all("connDisableAuthentication = true" in text for text in seven.values())
    eight = settings_of(request(interfaces=["ib0", "ib1"]), 8)
    assert eight["interfaces"] == "ib0\nib1\n"
    assert 'interfaces = ["ib0", "ib1"]' in eight["beegfs-mgmtd.toml"]
    assert "connTCPFallbackEnabled = false" in eight["beegfs-client.conf"]
    assert "connTCPFallbackEnabled" not in settings_of(request(interfaces=["eth0"]), 8)["beegfs-client.conf"]


def test_what_a_node_says() -> None:
    assert answer('Welcome!\n{"mounted": true}\n', "", 0) == {"mounted": True}
    assert answer("", "ssh: connect to host a port 22: No route to host", 255) == {
        "error": "does not answer: there is no route to it"
    }
    assert answer("[]", "", 3) == {"error": "does not answer: ssh ended with 3"}
    compile(source(), "agent", "exec")


def purge_of(data: pathlib.Path, **changes: t.Any) -> dict[str, t.Any]:
    wanted = {"data_path": str(data), "log_dir": f"{data}.logs", "name": "a", "sessions": {"a": "s"}, "consent": False}
    return agent.purge({**wanted, **changes})


def test_what_came_after_the_look_is_not_removed(tmp_path: pathlib.Path) -> None:
    data = tmp_path / "beeond"
    (data / "beegfs-storage/chunks/u0").mkdir(parents=True)
    agent.write_mark(str(data), {"session": "other", "state": "starting"})
    with pytest.raises(OSError, match="another session"):
        purge_of(data, consent=True)
    agent.write_mark(str(data), {"session": "s", "state": "used"})
    with pytest.raises(OSError, match="files of users"):
        purge_of(data)
    agent.write_mark(str(data), {"session": "s", "state": "starting"})
    (data / "beegfs-storage/chunks/u0/0-5A-1").write_text("x")
    with pytest.raises(OSError, match="files of users"):
        purge_of(data)
    (data / "beegfs-storage/chunks/u0/0-5A-1").unlink()
    purge_of(data)
    assert not data.exists()


def test_a_number_that_another_process_has_by_now_is_not_killed(tmp_path: pathlib.Path) -> None:
    """The same service, of another file system: another start's pid file is among its words."""
    script = tmp_path / "beegfs-storage"
    script.write_text("import time; time.sleep(60)")
    mine, theirs = tmp_path / "beegfs-storage-20260101-000000.pid", tmp_path / "beegfs-storage-20260202-000000.pid"
    process = subprocess.Popen([sys.executable, script, f"pidFile={theirs}"])
    try:
        for path in (mine, theirs):
            path.write_text(f"{process.pid}\n")
        assert processes.alive(str(theirs), "beegfs-storage") == process.pid
        assert processes.alive(str(mine), "beegfs-storage") == 0
        assert processes.claimed(str(theirs))
        assert not processes.claimed(str(mine))
    finally:
        process.kill()
        process.wait()


def test_only_the_process_that_was_meant_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the question and the kill its number went to another."""
    when = iter(["10", "10", *["20"] * 5])
    sent: list[int] = []
    monkeypatch.setattr(processes, "begun", lambda _pid: next(when))
    monkeypatch.setattr(processes.os, "kill", lambda _pid, number: sent.append(number))
    processes.end([4711])
    assert sent == [signal.SIGTERM]


def test_a_service_of_a_path_that_begins_alike_is_not_ours(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "beegfs-storage"
    script.write_text("import time; time.sleep(60)")
    argv = [sys.executable, script, f"storeStorageDirectory={tmp_path}/d/beegfs-storage2/beeond/beegfs-storage"]
    process = subprocess.Popen(argv)
    try:
        assert processes.processes(f"{tmp_path}/d/beegfs-storage2/beeond", f"{tmp_path}/log") == {
            process.pid: "beegfs-storage"
        }
        assert processes.processes(f"{tmp_path}/d", f"{tmp_path}/log") == {}
    finally:
        process.kill()
        process.wait()


def test_a_subvolume_of_the_root_is_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [
        processes.Mount(source, point, device, "/")
        for source, point, device in (
            ("/dev/sda2", "/", "0:30"), ("/dev/sda2", "/home", "0:31"), ("/dev/md0", "/home/nvme", "9:0"), ("tmpfs", "/run", "0:5"),
        )
    ]  # fmt: skip
    monkeypatch.setattr(processes, "mounts", lambda *_: table)
    found = {path: agent.on_root(path) for path in ("/home/x", "/home/nvme/x", "/homes", "/run/x")}
    assert found == {"/home/x": True, "/home/nvme/x": False, "/homes": True, "/run/x": False}


def test_a_file_system_whose_servers_have_gone_is_not_waited_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent.capacity(str(tmp_path)) > 0
    hung = tmp_path / "python3"
    hung.write_text("#!/bin/sh\nexec sleep 20\n")
    hung.chmod(0o755)
    monkeypatch.setattr(agent.sys, "executable", str(hung))
    monkeypatch.setattr(agent, "_CAPACITY_S", 0.3)
    began = time.monotonic()
    assert agent.capacity(str(tmp_path)) == 0
    assert time.monotonic() - began < 10


def test_a_lock_of_another_run_is_seen(tmp_path: pathlib.Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("mine")
    assert not processes.held_by_another(str(lock), "yours")
    with lock.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert processes.held_by_another(str(lock), "yours")
        assert not processes.held_by_another(str(lock), "mine")


def test_a_step_ends_itself_when_its_time_is_over(tmp_path: pathlib.Path) -> None:
    wanted = {"steps": ["purge"], "limit_s": 0.5, "node_lock": str(tmp_path / "lock")}
    script = (
        f"{source()}\n_agent.purge = lambda request: __import__('time').sleep(30)\n_agent.main({json.dumps(wanted)!r})"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-", "x"], input=script, capture_output=True, text=True, timeout=20, check=False
    )
    assert json.loads(done.stdout) == {"error": "purge: not done within 0.5 s"}, done.stderr


def test_only_marked_data_is_removed_and_no_link_is_followed(tmp_path: pathlib.Path) -> None:
    data, other = tmp_path / "beeond", tmp_path / "other"
    wanted = {
        "data_path": str(data),
        "log_dir": str(tmp_path / "logs"),
        "name": "a",
        "sessions": {"a": "s"},
        "consent": True,
    }
    (data / "beegfs-storage").mkdir(parents=True)
    with pytest.raises(OSError, match="has no mark"):
        agent.purge(wanted)
    assert (data / "beegfs-storage").is_dir()
    (data / agent.MARK).write_text('{"session": "s"}')
    (data / "theirs").write_text("x")
    other.mkdir()
    (other / "file").write_text("x")
    os.symlink(other, data / "beegfs-meta")
    with pytest.raises(OSError):  # noqa: PT011
        agent.purge(wanted)
    assert (other / "file").exists()
    (data / "beegfs-meta").unlink()
    agent.purge(wanted)
    assert sorted(os.listdir(data)) == ["theirs"]


def test_what_a_start_made_has_as_much_time_to_go_as_data_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def run(_names: t.Sequence[str], *_steps: str, limit_s: float = 0.0, **_more: t.Any) -> dict[str, t.Any]:
        limits.append(limit_s)
        return {}

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    system = FileSystem(request(timeout_s=500))
    monkeypatch.setattr(system.nodes, "run", run)
    system._roll_back(kept=False)
    assert limits == [500.0]
