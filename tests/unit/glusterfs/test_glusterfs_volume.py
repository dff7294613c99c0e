# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starting, repairing and removing a volume, against a pool of nodes that lives in memory and answers like gluster."""

from __future__ import annotations

import os
import pathlib
import types
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.action.glusterfs_volume import ActionModule as GlusterAction
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs import apply, bricks, cli, mount, verify
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Wanted
from ansible_collections.hpcai.gpu_cluster.plugins.modules import glusterfs_check, glusterfs_volume
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_state_action import NodeStateAction
from module_run import run_main


class Pool:
    """gluster, as far as the node that leads uses it."""

    def __init__(self, *alive: str) -> None:
        self.alive = set(alive)
        self.peers: dict[str, bool] = {}
        self.bricks: list[str] = []
        self.options: dict[str, str] = {}
        self.exists = self.started = False
        self.stubborn: set[str] = set()
        self.crashed: set[str] = set()
        self.blind = ""
        self.me = "a"
        self.busy = 0
        self.refusal = "Another transaction is in progress for scratch."
        self.commands: list[str] = []

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        words = args[args.index("--xml") + 1 :]
        if (words[0] == "volume" and words[1] in ("info", "status", "list")) or words[:2] == ["pool", "list"]:
            return 0, self._tell(words), ""
        if self.busy:
            self.busy -= 1
            return 0, self._xml("", self.refusal), ""
        self.commands.append(" ".join(words))
        return 0, self._xml("", self._change(words)), ""

    @staticmethod
    def _xml(body: str, error: str = "") -> str:
        code = "-1" if error else "0"
        return f"<cliOutput><opRet>{code}</opRet><opErrstr>{error}</opErrstr>{body}</cliOutput>"

    def _tell(self, words: list[str]) -> str:
        if words[0] == "pool":
            rows = "".join(
                f"<peer><uuid>{p}</uuid><hostname>{p}</hostname><connected>{int(p in self.alive)}</connected>"
                "<state>3</state></peer>"
                for p in self.peers
            )
            return self._xml(
                f"{rows}<peer><uuid>me</uuid><hostname>localhost</hostname><connected>1</connected></peer>"
            )
        if words[1] == "list":
            return self._xml("<volume>scratch</volume>" if self.exists else "")
        if not self.exists:
            return self._xml("", "Volume does not exist")
        if words[1] == "info":
            bricks = "".join(f"<brick><name>{b}</name></brick>" for b in self.bricks)
            options = "".join(f"<option><name>{k}</name><value>{v}</value></option>" for k, v in self.options.items())
            state = "Started" if self.started else "Created"
            return self._xml(
                f"<volume><name>scratch</name><statusStr>{state}</statusStr><replicaCount>1</replicaCount>"
                f"{bricks}{options}</volume>"
            )
        if self.blind or not self.started:
            return self._xml("", self.blind or "Volume scratch is not started")
        rows = ""
        for brick in self.bricks:
            host, path = brick.split(":")
            if host in self.alive:
                rows += f"<node><hostname>{host}</hostname><path>{path}</path><status>{int(brick not in self.crashed)}</status></node>"
        return self._xml(rows)

    def _change(self, words: list[str]) -> str:
        verb = words[:2]
        if verb == ["peer", "probe"]:
            if words[2] not in self.alive:
                return "Probe returned with Transport endpoint is not connected"
            self.peers[words[2]] = True
        elif verb == ["peer", "detach"]:
            if words[2] == self.me:
                return f"{words[2]} is localhost"
            if any(brick.startswith(f"{words[2]}:") for brick in self.bricks if self.exists):
                return f"Peer {words[2]} hosts one or more bricks."
            self.peers.pop(words[2], None)
        elif words[1] == "create":
            self.exists, self.bricks = True, [w for w in words[3:] if ":" in w]
        elif words[1] == "start":
            if words[-1] != "force" and self.started:
                return "already started"
            self.started, self.crashed = True, set(self.stubborn)
        elif words[1] == "set":
            self.options[words[3]] = words[4]
        elif words[1] == "add-brick":
            self.bricks += [w for w in words[3:] if ":" in w]
        elif words[1] == "remove-brick":
            self.bricks = [b for b in self.bricks if b not in words]
        elif words[1] == "stop":
            self.started = False
        elif words[1] == "delete":
            if self.started:
                return "needs to be stopped"
            if not self.alive.issuperset(self.peers):
                return "Some of the peers are down"
            self.exists = False
        return ""


class Lead:
    """The node that leads, the first of them, and what it is asked to do."""

    def __init__(self, pool: Pool, *nodes: str, check: bool = False, timeout_s: float = 5, **parts: t.Any) -> None:
        self.gluster, self.me, self.check = cli.Gluster(pool, timeout_s), nodes[0], check
        self.wanted = Wanted("scratch", nodes, "/b", options={"network.ping-timeout": "10"}, **parts)

    def start(self) -> list[str]:
        return apply.start(self.gluster, self.wanted, self.me, check=self.check)

    def stop(self, hosts: t.Collection[str]) -> list[str]:
        return apply.stop(self.gluster, self.wanted, hosts, check=self.check)

    def delete(self, hosts: t.Collection[str]) -> list[str]:
        return apply.delete(self.gluster, self.wanted, self.me, hosts, check=self.check)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (apply, cli, mount, verify):
        monkeypatch.setattr(part, "_POLL_S", 0.01)
    monkeypatch.setattr(apply, "_BRICK_WAIT_S", 0.1)


def started(*nodes: str) -> Pool:
    pool = Pool(*nodes)
    Lead(pool, *nodes).start()
    pool.commands.clear()
    return pool


def test_a_volume_is_made_once() -> None:
    pool = Pool("a", "b", "c")
    planned = Lead(pool, "a", "b", "c", check=True).start()
    assert pool.commands == []
    assert Lead(pool, "a", "b", "c").start() == planned
    assert pool.started
    assert sorted(pool.peers) == ["b", "c"]
    pool.commands.clear()
    assert Lead(pool, "a", "b", "c").start() == []
    assert pool.commands == []


def test_every_volume_has_bricks_of_its_own() -> None:
    first, second = started("a"), started("a")
    assert first.bricks != second.bricks


def test_a_node_that_does_not_answer_is_not_taken_in() -> None:
    pool = Pool("a")
    with pytest.raises(ClusterError, match="peer probe b"):
        Lead(pool, "a", "b").start()
    assert not pool.exists


def test_nodes_that_do_not_reach_each_other_yet_are_waited_for() -> None:
    pool = Pool("a", "b")
    pool.busy, pool.refusal = 3, "Staging failed on a. Error: Host b not connected"
    Lead(pool, "a", "b").start()
    assert pool.started


def test_a_busy_glusterd_is_asked_again() -> None:
    pool = Pool("a", "b")
    pool.busy = 3
    Lead(pool, "a", "b").start()
    assert pool.started


def test_a_glusterd_that_stays_busy_is_given_up_on() -> None:
    pool = Pool("a", "b")
    pool.busy = 10**9
    with pytest.raises(ClusterError) as caught:
        Lead(pool, "a", "b", timeout_s=0.05).start()
    assert caught.value.kind == "timeout"


def test_a_crashed_brick_is_started_again() -> None:
    pool = started("a", "b")
    pool.crashed = {pool.bricks[1]}
    assert Lead(pool, "a", "b", check=True).start() == ["restart the brick of b"]
    assert Lead(pool, "a", "b").start() == ["restart the brick of b"]
    assert pool.commands == ["volume start scratch force"]
    assert Lead(pool, "a", "b").start() == []


def test_a_dead_node_stops_the_run_by_name() -> None:
    pool = started("a", "b", "c")
    pool.alive.remove("c")
    with pytest.raises(ClusterError, match="on c does not run") as caught:
        Lead(pool, "a", "b", "c").start()
    assert caught.value.kind == "brick_offline"
    assert not any("remove-brick" in command for command in pool.commands)


def test_forgetting_needs_consent() -> None:
    pool = started("a", "b", "c")
    pool.alive.remove("c")
    with pytest.raises(ClusterError) as caught:
        Lead(pool, "a", "b", forget=("c",)).start()
    assert caught.value.kind == "consent_missing"
    assert len(pool.bricks) == 3


def test_a_lost_node_is_forgotten_once() -> None:
    pool = started("a", "b", "c")
    pool.alive.remove("c")
    consent: dict[str, t.Any] = {"forget": ("c",), "allow_data_loss": True}
    assert Lead(pool, "a", "b", **consent).start() == ["give up the brick of c", "forget c"]
    assert len(pool.bricks) == 2
    assert sorted(pool.peers) == ["b"]
    assert Lead(pool, "a", "b", **consent).start() == []


def test_a_node_made_anew_gets_an_empty_brick_and_is_not_forgotten_again() -> None:
    pool = started("a", "b")
    old = pool.bricks[1]
    pool.stubborn = pool.crashed = {old}
    consent: dict[str, t.Any] = {"forget": ("b",), "allow_data_loss": True}
    done = Lead(pool, "a", "b", **consent).start()
    assert done[:2] == ["give up the brick of b", "forget b"]
    assert old not in pool.bricks
    assert pool.bricks[1].startswith("b:/b/scratch-")
    assert sorted(pool.peers) == ["b"]
    pool.commands.clear()
    assert Lead(pool, "a", "b", **consent).start() == []
    assert pool.commands == []


def test_a_new_node_joins() -> None:
    pool = started("a", "b")
    pool.alive.add("c")
    done = Lead(pool, "a", "b", "c").start()
    assert done == ["take c into the pool", "add a brick on c", "spread new files over the new bricks"]
    assert Lead(pool, "a", "b", "c").start() == []


def test_shrinking_is_left_to_a_person() -> None:
    pool = started("a", "b")
    with pytest.raises(ClusterError, match="not in `nodes`"):
        Lead(pool, "a").start()
    assert len(pool.bricks) == 2


def test_a_brick_is_not_given_up_because_it_cannot_be_seen_now() -> None:
    pool = started("a", "b", "c")
    pool.blind = "Staging failed on b. Error: Request timed out"
    with pytest.raises(ClusterError, match="Request timed out") as caught:
        Lead(pool, "a", "b", "c", forget=("c",), allow_data_loss=True).start()
    assert caught.value.kind == "gluster_failed"
    assert len(pool.bricks) == 3
    pool.blind, pool.started = "", False
    assert cli.Gluster(pool, 5).online("scratch") == set()


def test_the_node_that_leads_gets_a_new_brick_and_does_not_forget_itself() -> None:
    pool = started("a", "b")
    old = pool.bricks[0]
    pool.stubborn = pool.crashed = {old}
    consent: dict[str, t.Any] = {"forget": ("a",), "allow_data_loss": True}
    done = Lead(pool, "a", "b", **consent).start()
    assert done == ["give up the brick of a", "add a brick on a", "spread new files over the new bricks"]
    assert old not in pool.bricks
    assert Lead(pool, "a", "b", **consent).start() == []


def test_stop_and_delete_happen_once() -> None:
    pool, hosts = started("a", "b"), ["a", "b"]
    assert Lead(pool, "a", "b", check=True).delete(hosts)[-1] == "forget b"
    assert pool.exists
    assert Lead(pool, "a", "b").stop(hosts) == ["stop the volume"]
    assert Lead(pool, "a", "b").stop(hosts) == []
    assert Lead(pool, "a", "b").delete(hosts) == ["delete the volume", "forget b"]
    assert Lead(pool, "a", "b").delete(hosts) == []
    assert not pool.exists


@pytest.mark.parametrize(
    ("lost", "parts"),
    [
        ((), {}),
        ((), {"forget": ("b",)}),
        ((), {"allow_data_loss": True}),
        # Its brick runs, so it is not lost, whatever was said of it.
        ((), {"forget": ("b",), "allow_data_loss": True}),
        (("b",), {"forget": ("b",)}),
        (("b",), {"allow_data_loss": True}),
    ],
)
@pytest.mark.parametrize("what", ["stop", "delete"])
def test_a_volume_is_not_taken_away_from_nodes_that_were_not_asked(
    what: str, lost: tuple[str, ...], parts: dict[str, t.Any]
) -> None:
    pool = started("a", "b", "c")
    pool.alive.difference_update(lost)
    with pytest.raises(ClusterError, match="b holds a brick") as caught:
        getattr(Lead(pool, "a", "b", "c", **parts), what)(["a", "c"])
    assert (caught.value.kind, caught.value.details) == ("partial_run", {"nodes": ["b"]})
    assert "--limit" in caught.value.remedy
    assert "`forget_nodes`" in caught.value.remedy
    assert (pool.exists, pool.started, pool.commands) == (True, True, [])


def test_a_volume_is_taken_away_without_a_node_that_is_lost_for_good() -> None:
    pool = started("a", "b", "c")
    pool.alive.remove("b")
    consent: dict[str, t.Any] = {"forget": ("b",), "allow_data_loss": True}
    assert Lead(pool, "a", "c", **consent).stop(["a", "c"]) == ["stop the volume"]
    assert len(pool.bricks) == 3
    done = Lead(pool, "a", "c", **consent).delete(["a", "c"])
    assert done == ["give up the brick of b", "forget b", "delete the volume", "forget c"]
    assert not pool.exists


def brick(root: pathlib.Path, name: str, *files: str) -> pathlib.Path:
    path = root / "bricks" / name
    (path / ".glusterfs").mkdir(parents=True)
    for file in files:
        (path / file).write_text("x")
    return path


def test_only_bricks_of_the_volume_are_cleaned(tmp_path: pathlib.Path) -> None:
    brick(tmp_path, "scratch-0a1b2c3d", "data")
    for name in ("scratch-notatag", "scratch-personal", "other-0a1b2c3d", "my-scratch-0a1b2c3d", "scratch"):
        brick(tmp_path, name)
    directory = str(tmp_path / "bricks")
    assert bricks.brick_directories(directory, "scratch") == [f"{directory}/scratch-0a1b2c3d"]
    mount_point = tmp_path / "mnt"
    mount_point.mkdir()
    planned = bricks.clean(directory, "scratch", str(mount_point), check=True)
    assert (tmp_path / "bricks" / "scratch-0a1b2c3d").exists()
    assert bricks.clean(directory, "scratch", str(mount_point), check=False) == planned
    assert sorted(path.name for path in (tmp_path / "bricks").iterdir()) == [
        "my-scratch-0a1b2c3d", "other-0a1b2c3d", "scratch", "scratch-notatag", "scratch-personal",
    ]  # fmt: skip
    assert not mount_point.exists()
    assert bricks.clean(directory, "scratch", str(mount_point), check=False) == []


def test_gluster_s_own_files_are_no_data(tmp_path: pathlib.Path) -> None:
    path = brick(tmp_path, "scratch-0a1b2c3d")
    assert not bricks.holds_data(str(path))
    (path / "directory").mkdir()
    assert bricks.holds_data(str(path))


def test_every_node_s_number_is_found_and_removed(tmp_path: pathlib.Path) -> None:
    numbers = {name: verify.write_nonce(str(tmp_path), name) for name in ("a", "b")}
    assert verify.collect_nonces(str(tmp_path), {**numbers, "c": "1"}) == ["c"]
    assert list(tmp_path.iterdir()) == []
    verify.write_nonce(str(tmp_path), "a")
    assert verify.collect_nonces(str(tmp_path), numbers) == ["a", "b"]


@pytest.fixture
def passwd(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "passwd"
    path.write_text("root")
    return path


@pytest.fixture
def volume(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "volume"
    path.mkdir()
    return path


def refused(volume: pathlib.Path, numbers: dict[str, str]) -> None:
    """Neither half of the proof touches what may be another's."""
    for step in (lambda: verify.write_nonce(str(volume), "a"), lambda: verify.collect_nonces(str(volume), numbers)):
        with pytest.raises(ClusterError, match="only root can write") as caught:
            step()
        assert caught.value.kind == "in_the_way"
        assert str(volume) in caught.value.remedy


def test_a_directory_that_others_may_write_is_not_used(volume: pathlib.Path, passwd: pathlib.Path) -> None:
    proof = volume / ".glusterfs_check"
    proof.mkdir()
    proof.chmod(0o777)
    (proof / "a").symlink_to(passwd)
    refused(volume, {"a": "root"})
    assert passwd.read_text() == "root"
    assert (proof / "a").is_symlink()


def test_a_directory_of_somebody_else_is_not_used(
    volume: pathlib.Path, passwd: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = volume / ".glusterfs_check"
    proof.mkdir(mode=0o700)
    (proof / "a").symlink_to(passwd)
    monkeypatch.setattr(os, "geteuid", lambda: proof.stat().st_uid + 1)
    refused(volume, {"a": "root"})
    assert passwd.read_text() == "root"


@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_what_is_no_directory_is_not_used(volume: pathlib.Path, tmp_path: pathlib.Path, kind: str) -> None:
    proof, elsewhere = volume / ".glusterfs_check", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    make = {"link": lambda: proof.symlink_to(elsewhere), "pipe": lambda: os.mkfifo(proof), "file": proof.touch}
    make[kind]()
    refused(volume, {"a": "1"})
    assert list(elsewhere.iterdir()) == []


def test_no_link_is_followed_and_no_pipe_waited_for(volume: pathlib.Path, passwd: pathlib.Path) -> None:
    proof = volume / ".glusterfs_check"
    proof.mkdir(mode=0o700)
    (proof / "a").symlink_to(passwd)
    os.mkfifo(proof / "b")
    os.mkfifo(proof / "c")
    numbers = {name: verify.write_nonce(str(volume), name) for name in ("a", "b")}
    assert passwd.read_text() == "root"
    (proof / "d").symlink_to(passwd)
    assert verify.collect_nonces(str(volume), {**numbers, "c": "", "d": "root"}) == ["c", "d"]
    assert list(volume.iterdir()) == []


def test_the_proof_is_only_root_s(volume: pathlib.Path) -> None:
    verify.write_nonce(str(volume), "a")
    proof = volume / ".glusterfs_check"
    assert (proof.stat().st_mode & 0o7777, (proof / "a").stat().st_mode & 0o7777) == (0o700, 0o600)


def test_a_directory_that_is_found_only_later_is_waited_for(
    volume: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node makes it, so it cannot be made here, and yet it is not there for a moment."""
    mkdir, calls = os.mkdir, 0

    def late(path: str, mode: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise FileExistsError
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", late)
    assert verify.collect_nonces(str(volume), {"a": verify.write_nonce(str(volume), "a")}) == []


def test_a_directory_that_another_node_is_just_making_is_no_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify.write_nonce(str(tmp_path), "a")
    # So it looks on a node for a moment: making it fails because it is there, and yet it is not found.
    monkeypatch.setattr("os.path.isdir", lambda _path: False)
    assert verify.write_nonce(str(tmp_path), "b")


def client(root: pathlib.Path, number: int, host: str, connected: int) -> pathlib.Path:
    path = root / ".meta" / "graphs" / "active" / f"scratch-client-{number}"
    (path / "options").mkdir(parents=True, exist_ok=True)
    # As GlusterFS 10.3 writes it.
    text = f"[xlator.protocol.client.scratch-client-{number}.priv]\nconnected = {connected}\ntotal_bytes_read = 4036\n"
    (path / "private").write_text(text)
    (path / "options" / "remote-host").write_text(f"{host}\n")
    return path


def test_bricks_that_a_mount_does_not_talk_to_are_named(tmp_path: pathlib.Path) -> None:
    client(tmp_path, 0, "a", 1)
    mount.wait_connected(str(tmp_path), "scratch", 0)
    client(tmp_path, 1, "b", 0)
    assert mount.disconnected(str(tmp_path), "scratch") == ["b"]
    assert mount.disconnected(str(tmp_path), "other") == []
    with pytest.raises(ClusterError, match="brick of b"):
        mount.wait_connected(str(tmp_path), "scratch", 0)
    (client(tmp_path, 1, "b", 1) / "private").unlink()
    assert mount.disconnected(str(tmp_path), "scratch") == ["scratch-client-1"]


def test_a_volume_that_cannot_be_written_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="Nothing can be written"):
        verify.write_nonce(str(tmp_path / "file"), "a")


class Mounts:
    """What is mounted at one path, as mount and umount change it. ``refusals``: how often mount fails first, and how."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, found: tuple[str, str] | None = None, stale: bool = False
    ) -> None:
        self.found, self.stale = found, stale
        self.refusals: list[str] = []
        self.commands: list[list[str]] = []
        monkeypatch.setattr(mount, "current_mount", lambda _path: self.found)
        monkeypatch.setattr(mount, "is_stale", lambda _path: self.stale)

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        self.commands.append(args)
        assert args[:4] == ["timeout", "-k", "5", "60"]
        if args[4] == "umount":
            self.found, self.stale = None, False
        elif self.refusals:
            return 1, "", self.refusals.pop(0)
        else:
            self.found = ("fuse.glusterfs", "localhost:/scratch")
        return 0, "", ""


MOUNT = ["timeout", "-k", "5", "60", "mount", "-t", "glusterfs", "-o", "_netdev,acl", "localhost:/scratch"]
UMOUNT = ["timeout", "-k", "5", "60", "umount"]
OURS = ("fuse.glusterfs", "localhost:/scratch")


def mounted(mounts: Mounts, path: pathlib.Path, *, check: bool = False, timeout_s: float = 5) -> list[str]:
    gluster = cli.Gluster(mounts, timeout_s)
    return mount.mount(gluster, mounts, "scratch", str(path), "_netdev,acl", check=check)


def test_a_volume_is_mounted_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts, path = Mounts(monkeypatch), tmp_path / "mnt" / "scratch"
    assert mounted(mounts, path, check=True) == [f"mount scratch at {path}"]
    assert (mounts.commands, path.exists()) == ([], False)
    assert mounted(mounts, path) == [f"mount scratch at {path}"]
    assert (mounts.commands, path.stat().st_mode & 0o777) == ([[*MOUNT, str(path)]], 0o755)
    assert mounted(mounts, path) == []
    assert len(mounts.commands) == 1


def test_a_dead_mount_is_taken_away_before_the_volume_is_mounted_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = Mounts(monkeypatch, OURS, stale=True)
    done = [f"unmount the dead mount at {tmp_path}", f"mount scratch at {tmp_path}"]
    assert mounted(mounts, tmp_path, check=True) == done
    assert mounts.commands == []
    assert mounted(mounts, tmp_path) == done
    assert mounts.commands == [[*UMOUNT, "-l", str(tmp_path)], [*MOUNT, str(tmp_path)]]


def test_mounting_is_tried_until_the_time_is_over(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = Mounts(monkeypatch)
    mounts.refusals = ["Mount failed."] * 2
    assert mounted(mounts, tmp_path) == [f"mount scratch at {tmp_path}"]
    assert mounts.commands == [[*MOUNT, str(tmp_path)]] * 3
    mounts = Mounts(monkeypatch)
    mounts.refusals = ["Mount failed."] * 2
    with pytest.raises(ClusterError, match="Mount failed") as caught:
        mounted(mounts, tmp_path, timeout_s=0)
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize("found", [("xfs", "/dev/md0"), ("fuse.glusterfs", "localhost:/other")])
def test_what_else_is_mounted_stays(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, found: tuple[str, str]
) -> None:
    mounts = Mounts(monkeypatch, found)
    with pytest.raises(ClusterError, match="is mounted at") as caught:
        mounted(mounts, tmp_path)
    assert caught.value.kind == "in_the_way"
    assert mount.unmount(mounts, "scratch", str(tmp_path), check=False) == []
    assert mounts.commands == []


def test_no_file_is_hidden_by_a_mount(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    mounts = Mounts(monkeypatch)
    with pytest.raises(ClusterError, match="is not empty"):
        mounted(mounts, tmp_path)
    assert mounts.commands == []


@pytest.mark.parametrize(("stale", "flags"), [(False, []), (True, ["-l"])])
def test_only_a_dead_mount_is_detached_while_it_is_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, stale: bool, flags: list[str]
) -> None:
    mounts, done = Mounts(monkeypatch, OURS, stale), [f"unmount {tmp_path}"]
    assert mount.unmount(mounts, "scratch", str(tmp_path), check=True) == done
    assert mounts.commands == []
    assert mount.unmount(mounts, "scratch", str(tmp_path), check=False) == done
    assert mounts.commands == [[*UMOUNT, *flags, str(tmp_path)]]
    assert mount.unmount(mounts, "scratch", str(tmp_path), check=False) == []


class Machine:
    """A node with a volume that is somewhere between absent and in use; what the module runs is answered here."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mount_point, self.bricks = root / "mnt", root / "bricks"
        self.mount_point.mkdir()
        self.pool = Pool("a", "b")
        self.changes: list[dict[str, str]] = []
        self.needs: dict[str, t.Any] = {}
        self.mounted = True
        monkeypatch.setattr(glusterfs_volume, "NodeState", lambda request, _module: self._state(request))
        monkeypatch.setattr(
            glusterfs_volume.AnsibleModule, "run_command", lambda _self, args, **_options: self._command(args)
        )
        monkeypatch.setattr(glusterfs_volume.AnsibleModule, "get_bin_path", lambda _self, name: f"/usr/sbin/{name}")
        monkeypatch.setattr(cli.shutil, "which", lambda name: f"/usr/sbin/{name}")
        monkeypatch.setattr(
            mount, "current_mount", lambda _path: ("localhost:/scratch", "fuse.glusterfs") if self.mounted else None
        )
        monkeypatch.setattr(mount, "is_ours", lambda *_found: True)

    def _state(self, request: dict[str, t.Any]) -> types.SimpleNamespace:
        self.request = request
        done = {"changed": bool(self.changes), "changes": self.changes, "diff": []}
        return types.SimpleNamespace(run=lambda check: {**done, **({"needs": self.needs} if self.needs else {})})

    def _command(self, args: list[str]) -> tuple[int, str, str]:
        return (0, "UUID", "") if "--xml" not in args else self.pool.run_command(args)

    def run(self, *, check: bool = False, **args: t.Any) -> dict[str, t.Any]:
        wanted = {
            "volume": "scratch", "state": "prepared", "packages": ["glusterfs-server"], "nodes": ["a", "b"], "node": "a", "lead": True,
            "brick_directory": str(self.bricks), "mount_point": str(self.mount_point), "mode": "0755", "prove": True, **args,
        }  # fmt: skip
        return run_main(glusterfs_volume.main, {**wanted, "_ansible_check_mode": check})


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_where_nothing_is_left_preparing_proves_the_volume(machine: Machine) -> None:
    machine.pool = Pool("a", "b")
    Lead(machine.pool, "a", "b").start()
    machine.pool.commands.clear()
    result = machine.run()
    assert (result["changed"], result["left"], len(result["nonce"])) == (False, [], 16)
    assert machine.pool.commands == []
    assert [unit["name"] for unit in machine.request["units"]] == ["glusterd.service"]
    assert machine.run(check=True)["left"] == []
    assert "nonce" not in machine.run(check=True)


def test_what_is_left_is_said_and_not_done(machine: Machine) -> None:
    """Other nodes may have no glusterd yet: whatever concerns them waits until all are prepared."""
    machine.mounted = False
    result = machine.run()
    assert result["left"][0] == "take b into the pool"
    assert result["left"][-1] == f"mount scratch at {machine.mount_point}"
    assert result["changed"] is False
    assert "nonce" not in result
    assert machine.pool.commands == []


def test_a_brick_that_another_node_must_bring_back_is_not_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.time, "sleep", lambda _seconds: pytest.fail("it waited"))
    client(machine.mount_point, 0, "b", 0)
    result = machine.run(lead=False)
    assert result["left"] == ["reach the brick of b"]
    assert "nonce" not in result


def test_a_node_that_was_set_up_just_now_says_so(machine: Machine) -> None:
    machine.mounted = False
    machine.changes = [{"kind": "unit", "name": "glusterd.service", "what": "start"}]
    result = machine.run(lead=False)
    assert result["changed"] is True
    assert result["done"] == ["start unit glusterd.service"]
    assert result["left"] == [f"mount scratch at {machine.mount_point}"]


def test_missing_packages_are_left_to_the_action(machine: Machine) -> None:
    machine.needs = {"packages": ["glusterfs-server"], "package_manager": "dpkg", "archives": []}
    result = machine.run()
    assert result["needs"] == machine.needs
    assert "left" not in result
    assert machine.pool.commands == []
    assert GlusterAction.MODULE == "hpcai.gpu_cluster.glusterfs_volume"
    assert issubclass(GlusterAction, NodeStateAction)


def test_only_a_node_that_knows_the_volume_says_so(machine: Machine) -> None:
    """By this the node is chosen that leads: one that was made anew would make another volume."""
    machine.mounted = False
    machine.pool.me = "b"
    assert machine.run()["known"] is False
    Lead(machine.pool, "a", "b").start()
    assert machine.run()["known"] is True
    assert machine.run(lead=False)["known"] is True
    assert machine.run(check=True)["known"] is True
    assert machine.run(state="unmounted", hosts=["a", "b"])["known"] is True
    machine.mounted = True
    assert machine.run()["known"] is True
    machine.pool.exists = False
    assert machine.run(state="unmounted", hosts=["a", "b"], lead=False)["known"] is False


@pytest.mark.parametrize("state", ["unmounted", "stopped", "deleted"])
def test_nothing_is_taken_away_in_a_part_of_the_nodes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(mount, "_umount", lambda *_args: pytest.fail("it unmounted"))
    Lead(machine.pool, "a", "b").start()
    machine.pool.commands.clear()
    result = machine.run(state=state, hosts=["a"], allow_data_loss=True)
    assert (result["failed"], result["error_kind"], result["nodes"]) == (True, "partial_run", ["b"])
    assert machine.pool.commands == []
    if state != "unmounted":
        assert machine.run(state=state)["error_kind"] == "partial_run"


def test_a_node_is_unmounted_where_all_are_asked_or_lost(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount, "is_stale", lambda _path: False)
    Lead(machine.pool, "a", "b").start()
    unmounted = [f"unmount {machine.mount_point}"]
    assert machine.run(state="unmounted", hosts=["a", "b"], check=True)["done"] == unmounted
    assert machine.run(state="unmounted", check=True)["done"] == unmounted
    machine.pool.alive.remove("b")
    lost = {"hosts": ["a"], "forget_nodes": ["b"], "allow_data_loss": True}
    assert machine.run(state="unmounted", check=True, **lost)["done"] == unmounted


@pytest.mark.parametrize("check", [False, True])
def test_a_proof_by_no_node_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    """Mount and bricks are right, and nobody would show that the volume is shared."""
    monkeypatch.setattr(verify, "current_mount", lambda _path: ("fuse.glusterfs", "localhost:/scratch"))
    Lead(machine.pool, "a", "b").start()
    args = {
        "step": "collect",
        "volume": "scratch",
        "mount_point": str(machine.mount_point),
        "_ansible_check_mode": check,
    }
    result = run_main(glusterfs_check.main, args)
    assert (result["failed"], result.get("error_kind")) == (True, "bad_input")
    assert "`nodes`" in result["msg"]


def test_status_tells_what_is_wrong_and_does_not_fail(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def status() -> dict[str, t.Any]:
        args = {"step": "status", "volume": "scratch", "mount_point": str(machine.mount_point)}
        return run_main(glusterfs_check.main, args)

    # A mount outlives glusterd.
    monkeypatch.setattr(verify, "current_mount", lambda _path: ("fuse.glusterfs", "localhost:/scratch"))
    Lead(machine.pool, "a", "b").start()
    assert status()["problem"] == ""
    assert set(status()["bricks"].values()) == {True}
    machine.pool.blind = "Staging failed on b. Error: Request timed out"
    found = status()
    assert "Request timed out" in found["problem"]
    assert (found["bricks"], found["started"], found["mounted"]) == ({}, False, True)
    monkeypatch.setattr(cli.Gluster, "answers", lambda _self: False)
    found = status()
    assert "glusterd" in found["problem"]
    assert (found["bricks"], found["started"], found["mounted"]) == ({}, False, True)
    assert not found["failed"]
