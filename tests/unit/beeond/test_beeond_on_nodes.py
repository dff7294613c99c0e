# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module against the lab's double of BeeOND, on nodes made of namespaces: commands, mounts, ports and processes are real.

Only ssh is a stand-in, as a unit test has no sshd.
"""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from beeond_nodes import DATA, POINT, STATUS, Cluster, small

pytestmark = [
    pytest.mark.skipif(not small.possible(), reason="needs user namespaces with a network"),
    pytest.mark.slow,
]
#: What the module does of itself, whichever version it meets: a start takes seconds.
of_either_version = pytest.mark.parametrize("cluster", ["8.3.1"], indirect=True)


@pytest.fixture(scope="module", params=("7.4.7", "8.3.1"))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Cluster]:
    with small.Nodes(tmp_path_factory.mktemp("beeond") / "nodes", 2) as nodes:
        yield Cluster(nodes, request.param)


@pytest.fixture
def clean(cluster: Cluster) -> t.Iterator[Cluster]:
    """Afterwards no node has faults or anything of a session."""
    yield cluster
    for name in cluster.nodes.names:
        cluster.fault(name)
    done = cluster.module("cleaned", allow_data_loss=True)
    assert "failed" not in done, done
    assert [cluster.there(name) for name in cluster.nodes.names] == [set(), set()]


def test_a_life(clean: Cluster) -> None:
    planned = clean.module(_ansible_check_mode=True)
    assert (planned["changed"], planned["done"]) == (True, ["start the file system"])
    assert [clean.there(name) for name in clean.nodes.names] == [set(), set()]
    first = clean.module()
    assert first.get("failed") is None, first
    assert first["changed"] is True
    helper = ["beegfs-helperd"] if clean.major == 7 else []
    assert first["nodes"]["node-1"]["services"] == [*helper, "beegfs-meta", "beegfs-mgmtd", "beegfs-storage"]
    assert first["nodes"]["node-2"]["services"] == [*helper, "beegfs-storage"]
    assert all(
        node["mounted"] and node["target_bytes"] > 0 and node["problems"] == [] for node in first["nodes"].values()
    )
    assert first["capacity_bytes"] > 0
    assert clean.nodes.shell("node-1", f"stat -c %a {POINT}").strip() == "1777"
    second = clean.module()
    assert (second["changed"], second["done"]) == (False, [])
    assert clean.module("verified")["changed"] is False
    stopped = clean.module("stopped")
    assert stopped["changed"] is True
    assert [clean.there(name) for name in clean.nodes.names] == [{"data"}, {"data"}]
    assert clean.module("stopped")["changed"] is False
    refused = clean.module("cleaned")
    assert refused["error_kind"] == "data_would_be_lost"
    assert [clean.there(name) for name in clean.nodes.names] == [{"data"}, {"data"}]
    again = clean.module()
    assert again["changed"] is True
    cleaned = clean.module("cleaned", allow_data_loss=True)
    assert cleaned["changed"] is True
    assert [clean.there(name) for name in clean.nodes.names] == [set(), set()]
    assert clean.module("cleaned")["changed"] is False


def test_a_dead_service_is_named_and_repaired_with_consent(clean: Cluster) -> None:
    clean.module()
    clean.nodes.shell("node-2", "kill -9 $(cat /run/beegfs-storage-*.pid)")
    found = clean.module("verified")
    assert found["error_kind"] == "not_whole"
    assert "node-2: beegfs-storage does not run" in found["msg"]
    refused = clean.module()
    assert refused["error_kind"] == "half_there"
    assert "node-2: beegfs-storage does not run" in refused["msg"]
    repaired = clean.module(allow_data_loss=True)
    assert repaired.get("failed") is None, repaired
    assert clean.module()["changed"] is False


@of_either_version
def test_a_leftover_status_file_is_cleaned_up(clean: Cluster) -> None:
    clean.nodes.shell("node-2", "mkdir -p /run/hpcai_beeond")
    clean.fault("node-2", "--leftover", STATUS)
    done = clean.module()
    assert done.get("failed") is None, done
    assert done["done"] == ["clean up what a session left on node-2", "start the file system"]


@pytest.mark.parametrize(
    ("fault", "node", "said"),
    [
        ("--hang beegfs-storage", "node-2", "beegfs-storage does not run"),
        ("--hang mount", "node-2", f"nothing is mounted at {POINT}"),
        ("--module missing", "node-2", f"nothing is mounted at {POINT}"),
        ("--dead beegfs-meta", "node-1", "beegfs-meta does not run"),
        ("--refuse beegfs-mgmtd", "node-1", "beegfs-mgmtd does not run"),
    ],
)
def test_a_start_that_fails_is_taken_back_and_names_its_cause(clean: Cluster, fault: str, node: str, said: str) -> None:
    clean.fault(node, *fault.split())
    began = time.monotonic()
    failed = clean.module(timeout_s=15)
    # The rest is for looking at the nodes and for taking back.
    assert time.monotonic() - began < 15 + 60
    assert failed["error_kind"] == "start_failed", failed
    assert said in failed["problems"][node]
    assert said in failed["msg"]
    assert node in failed["log_tail"]
    assert [clean.there(name) for name in clean.nodes.names] == [set(), set()]
    clean.fault(node)
    assert clean.module().get("failed") is None


def test_a_stop_that_ends_in_the_middle_is_finished(clean: Cluster) -> None:
    clean.module()
    clean.fault("node-2", "--partial-stop")
    assert clean.module("stopped").get("failed") is None
    assert [clean.there(name) for name in clean.nodes.names] == [{"data"}, {"data"}]
    clean.fault("node-2")
    assert clean.module().get("failed") is None


def test_authentication_that_nobody_has_set_is_asked_for_before_anything_starts(clean: Cluster) -> None:
    """The control tool of 7 would wait for ever; 8's BeeOND turns authentication off by itself."""
    place = "/etc/beegfs/beegfs-client.conf"
    # As the package of 8 leaves it to that of 7.
    absent = "s,^connAuthFile.*,connAuthFile = /absent,"
    clean.nodes.shell("node-1", f"cp {place} {place}.away; sed -i '{absent}' {place}; grep -q absent {place}")
    clean.nodes.shell("node-2", f"cp {place} {place}.away; sed -i '/^connDisableAuthentication/d' {place}")
    try:
        found = clean.module()
    finally:
        for name in clean.nodes.names:
            clean.nodes.shell(name, f"mv {place}.away {place}")
    if clean.major == 7:
        assert all("has neither a connAuthFile" in found["problems"][name][0] for name in clean.nodes.names)
        assert [clean.there(name) for name in clean.nodes.names] == [set(), set()]
    else:
        assert found.get("failed") is None


@of_either_version
def test_what_stands_in_the_way_is_refused_before_anything_starts(clean: Cluster) -> None:
    holder = clean.fault("node-2", "--occupy", "9003").strip()
    try:
        clean.nodes.shell("node-2", f"mkdir -p {POINT}; touch {POINT}/mine")
        refused = clean.module()
    finally:
        clean.nodes.shell("node-2", f"kill -9 {holder}; rm {POINT}/mine")
    assert refused["error_kind"] == "cannot_start_here"
    # The nodes share one loopback, so that both see the port.
    assert "port 9003 is in use" in refused["problems"]["node-2"]
    assert f"{POINT} is not empty (mine)" in refused["problems"]["node-2"]
    refused = clean.module(storage_path="/root/disk")
    assert "/root/disk is on the disk of the operating system" in refused["problems"]["node-1"]
    refused = clean.module(nodes=["node-1", "node-9"])
    assert "cannot resolve node-9" in refused["problems"]["node-1"]
    assert [clean.there(name) for name in clean.nodes.names] == [set(), set()]


@of_either_version
def test_data_of_others_is_neither_used_nor_removed(clean: Cluster) -> None:
    clean.nodes.shell("node-2", f"mkdir -p {DATA}/beegfs-storage; echo mine > {DATA}/beegfs-storage/file")
    try:
        refused = clean.module(allow_data_loss=True)
        assert refused["error_kind"] == "cannot_start_here"
        assert clean.module("cleaned", allow_data_loss=True)["changed"] is False
        assert clean.nodes.shell("node-2", f"cat {DATA}/beegfs-storage/file") == "mine\n"
    finally:
        clean.nodes.shell("node-2", f"rm -r {DATA}")


@of_either_version
def test_a_mount_in_use_is_not_stopped_without_consent(clean: Cluster) -> None:
    clean.module()
    user = clean.nodes.shell("node-2", f"cd {POINT}; setsid sleep 600 > /dev/null 2>&1 & echo $!").strip()
    refused = clean.module("stopped")
    assert refused["error_kind"] == "in_use"
    assert f"node-2: process {user}" in refused["msg"]
    clean.nodes.run("node-2", "kill", "-9", user)
    assert clean.module("stopped")["changed"] is True


@of_either_version
def test_check_mode_before_it_is_installed(clean: Cluster) -> None:
    links = ("/usr/bin/beeond", "/opt/beegfs/sbin/beeond")
    for name in clean.nodes.names:
        clean.nodes.shell(name, "".join(f"mv {link} {link}.away; " for link in links))
    try:
        planned, refused = clean.module(_ansible_check_mode=True), clean.module()
    finally:
        for name in clean.nodes.names:
            clean.nodes.shell(name, "".join(f"mv {link}.away {link}; " for link in links))
    assert planned["done"] == ["start the file system"]
    assert refused["error_kind"] == "not_installed"


@of_either_version
def test_two_runs_at_once(clean: Cluster) -> None:
    clean.nodes.shell("node-1", "mkdir -p /run/hpcai_beeond")
    lock = "exec 9> /run/hpcai_beeond/1000.lock; flock 9; setsid sleep 600 > /dev/null 2>&1 & echo $!"
    holder = clean.nodes.shell("node-1", lock).strip()
    refused = clean.module()
    clean.nodes.run("node-1", "kill", "-9", holder)
    assert refused["error_kind"] == "busy"


@of_either_version
def test_a_run_that_is_killed_leaves_what_the_next_one_repairs(clean: Cluster) -> None:
    clean.fault("node-2", "--hang", "beegfs-storage")
    options = json.dumps({"nodes": clean.nodes.names, "storage_path": "/scratch", "mount_point": POINT})
    clean.nodes.run("node-1", "timeout", "-s", "KILL", "12", "/usr/bin/python3", "/common/run.py", options)
    clean.fault("node-2")
    done = clean.module()
    assert done.get("failed") is None, done
    assert done["done"][-1] == "start the file system"
    # The BeeOND of the first run has gone, too.
    ours = '[ "$(readlink /proc/$one/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]'
    script = f"for one in $(pgrep -f 'beeond star[t]'); do {ours} && echo $one; done; true"
    assert clean.nodes.shell("node-1", script) == ""


def test_the_survivors_of_a_lost_node_are_stopped(tmp_path: pathlib.Path) -> None:
    with small.Nodes(tmp_path / "nodes", 2) as nodes:
        cluster = Cluster(nodes, "8.3.1")
        assert cluster.module().get("failed") is None
        nodes.lose("node-2")
        found = cluster.module("verified")
        assert "node-2: does not answer" in found["msg"]
        done = cluster.module("cleaned", allow_data_loss=True)
        assert done.get("failed") is None, done
        assert done["nodes"]["node-2"]["problems"][0].startswith("does not answer")
        assert cluster.there("node-1") == set()


@of_either_version
def test_one_node_after_the_other_where_there_is_no_pdsh(clean: Cluster) -> None:
    pdsh = clean.nodes.root("node-1") / "usr/bin/pdsh"
    pdsh.rename(pdsh.with_name("pdsh.away"))
    try:
        done = clean.module()
        assert done.get("failed") is None, done
        assert clean.module()["changed"] is False
        assert clean.module("stopped")["changed"] is True
    finally:
        pdsh.with_name("pdsh.away").rename(pdsh)
    assert [clean.there(name) for name in clean.nodes.names] == [{"data"}, {"data"}]


def user_file(cluster: Cluster) -> None:
    """What BeeGFS has of a user's file. The double's services store none, so that this test does it for them."""
    cluster.nodes.shell(
        "node-2", f"mkdir -p {DATA}/beegfs-storage/chunks/u0 && echo mine > {DATA}/beegfs-storage/chunks/u0/file"
    )


def user_file_is_there(cluster: Cluster) -> bool:
    return cluster.nodes.shell("node-2", f"cat {DATA}/beegfs-storage/chunks/u0/file") == "mine\n"


@of_either_version
def test_what_users_wrote_after_a_start_that_was_killed_needs_consent(clean: Cluster) -> None:
    """The run was killed between the mount and its note that users may write."""
    clean.module()
    for name in clean.nodes.names:
        clean.nodes.shell(name, f"""sed -i 's/"used"/"starting"/' {DATA}/.hpcai_beeond""")
    user_file(clean)
    assert clean.module("cleaned")["error_kind"] == "data_would_be_lost"
    finished = clean.module()
    assert finished["done"] == ["finish a start that was cut off"]
    assert clean.module()["changed"] is False
    clean.module("stopped")
    assert clean.module("cleaned")["error_kind"] == "data_would_be_lost"
    assert user_file_is_there(clean)


@of_either_version
def test_another_mount_point_or_port_shift_leaves_what_runs_alone(clean: Cluster) -> None:
    clean.module()
    before = [clean.there(name) for name in clean.nodes.names]
    for options in ({"mount_point": "/mnt/b"}, {"port_shift": 2000}, {"port_shift": 2000, "mount_point": "/mnt/b"}):
        for state in ("started", "stopped", "cleaned"):
            refused = clean.module(state, allow_data_loss=True, **options)
            assert refused["error_kind"] in ("not_ours", "cannot_start_here"), (options, state, refused)
    # Its mount has gone, its services have not.
    clean.nodes.shell("node-2", f"umount -l {POINT}")
    refused = clean.module(nodes=["node-2"], port_shift=2000, mount_point="/mnt/b")
    assert refused.get("failed"), refused
    clean.nodes.shell("node-2", f"mount -t tmpfs beegfs_ondemand {POINT}")
    assert [clean.there(name) for name in clean.nodes.names] == before
    assert clean.module("verified")["changed"] is False


@of_either_version
def test_a_mount_that_cannot_be_unmounted_keeps_its_services_and_data(clean: Cluster) -> None:
    clean.module()
    umount = clean.nodes.root("node-2") / "usr/bin/umount"
    target = umount.readlink()
    umount.unlink()
    umount.write_text("#!/bin/sh\necho 'umount: it is stuck' >&2\nexit 32\n", encoding="utf-8")
    umount.chmod(0o755)
    try:
        failed = clean.module("cleaned", allow_data_loss=True)
    finally:
        umount.unlink()
        umount.symlink_to(target)
    assert failed["error_kind"] == "node_failed", failed
    assert "node-2: sweep: " in failed["msg"]
    assert "it is stuck" in failed["msg"]
    assert "mount" in clean.there("node-2")
    assert "data" in clean.there("node-2")


@of_either_version
def test_a_program_in_a_container_uses_it_too(clean: Cluster) -> None:
    clean.module()
    inside = f"mount --bind {POINT} /work && umount {POINT} && cd /work && exec sleep 600"
    script = f"mkdir -p /work; unshare -m sh -c '{inside}' > /dev/null 2>&1 & echo $!"
    user = clean.nodes.shell("node-2", script).strip()
    clean.nodes.shell("node-2", f'until [ "$(readlink /proc/{user}/cwd)" != / ]; do sleep 0.1; done; sleep 0.2')
    refused = clean.module("stopped")
    clean.nodes.run("node-2", "kill", "-9", user)
    assert refused["error_kind"] == "in_use", refused
    assert f"node-2: process {user}" in refused["msg"]


@of_either_version
def test_a_file_system_of_two_names_of_one_machine_is_refused(clean: Cluster) -> None:
    nodes = (clean.nodes.place / "common/nodes").read_text(encoding="utf-8")
    hosts = (clean.nodes.place / "common/hosts").read_text(encoding="utf-8")
    number = nodes.splitlines()[1].split()[1]
    (clean.nodes.place / "common/nodes").write_text(f"{nodes}node-3 {number}\n", encoding="utf-8")
    for name in clean.nodes.names:
        (clean.nodes.root(name) / "etc/hosts").write_text(f"{hosts}127.0.77.2 node-3\n", encoding="utf-8")
    try:
        refused = clean.module(nodes=["node-1", "node-2", "node-3"])
    finally:
        (clean.nodes.place / "common/nodes").write_text(nodes, encoding="utf-8")
        for name in clean.nodes.names:
            (clean.nodes.root(name) / "etc/hosts").write_text(hosts, encoding="utf-8")
    assert refused["error_kind"] == "same_machine", refused


@of_either_version
def test_a_link_as_mount_point_and_a_mount_as_data_path_are_refused(clean: Cluster) -> None:
    clean.nodes.shell("node-2", f"mkdir -p {DATA} /elsewhere; rmdir {POINT} 2>/dev/null; ln -s /elsewhere {POINT}")
    clean.nodes.shell("node-2", f"mount --bind /elsewhere {DATA}")
    try:
        refused = clean.module()
    finally:
        clean.nodes.shell("node-2", f"umount {DATA}; rmdir {DATA}; rm {POINT}")
    assert refused["error_kind"] == "cannot_start_here", refused
    assert f"{POINT} or a directory above it is a link" in refused["problems"]["node-2"]
    assert f"{DATA} is a mount point" in refused["problems"]["node-2"]


def test_a_run_that_is_interrupted_takes_back_what_it_started_and_names_what_was_missing(clean: Cluster) -> None:
    clean.fault("node-2", "--hang", "beegfs-storage")
    running = subprocess.Popen(clean.nodes.command("node-1", *clean.words()), stdout=subprocess.PIPE, text=True)
    # It has noted the management service, and starts the next one on both nodes, which is noted when both have it.
    waiting = f"until [ -s {STATUS} ]; do sleep 0.2; done; sleep 2"
    clean.nodes.shell("node-1", waiting)
    # A second one does not get in the way of what is taken back.
    for _ in range(3):
        running.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    found = json.loads(running.communicate(timeout=200)[0])
    assert found["error_kind"] == "interrupted", found
    assert "node-2: beegfs-storage does not run" in found["msg"]
    assert "What was started is stopped again." in found["msg"]
    assert [clean.there(name) for name in clean.nodes.names] == [set(), set()]
