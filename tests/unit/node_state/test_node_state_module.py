# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module node_state, run against temporary directories and a systemctl that keeps its state in files."""

from __future__ import annotations

import errno
import grp
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import typing as t

import pytest
from ansible.module_utils import basic
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import units as systemd
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.mounts import MountEntry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state import apply as node_state_apply
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.archive import unpack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import Absent, Archive
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.write import remove
from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_state
from module_run import run_main

OWNER = pwd.getpwuid(os.geteuid()).pw_name
GROUP = grp.getgrgid(os.getegid()).gr_name

SYSTEMCTL = """#!/bin/sh
# Units are files "name.load.active.enabled" below $UNITS; every call but show is written down.
verb=$1; shift
case $verb in
show) shift 3
  first=1
  for unit; do
    [ $first ] || echo; first=
    # One answer of ignorance for every line of "name.late".
    if [ -s "$UNITS/$unit.late" ]; then sed -i 1d "$UNITS/$unit.late"; echo LoadState=not-found; continue; fi
    if [ -f "$UNITS/$unit" ]; then cat "$UNITS/$unit"; else echo LoadState=not-found; echo ActiveState=inactive; echo UnitFileState=; fi
  done ;;
is-enabled) [ "$1" = -- ] && shift; sed -n s/^UnitFileState=//p "$UNITS/$1" ;;
status) echo "the unit's last words" ;;
*) echo "$verb $*" >> "$UNITS/log"
  [ "$1" = broken.service ] && [ $verb = start ] && { echo "Job failed" >&2; exit 1; }
  case $verb in
  start|restart) sed -i s/^ActiveState=.*/ActiveState=active/ "$UNITS/$1" ;;
  stop) sed -i s/^ActiveState=.*/ActiveState=inactive/ "$UNITS/$1" ;;
  enable) sed -i s/^UnitFileState=.*/UnitFileState=enabled/ "$UNITS/$1" ;;
  disable) sed -i s/^UnitFileState=.*/UnitFileState=disabled/ "$UNITS/$1" ;;
  esac ;;
esac
exit 0
"""


class Node:
    """A directory that plays a node."""

    def __init__(self, root: pathlib.Path, units: pathlib.Path) -> None:
        self.root, self.units = root, units

    def run(self, check: bool = False, **args: t.Any) -> dict[str, t.Any]:
        for kind in ("files", "directories"):
            for entry in args.get(kind, []):
                entry.setdefault("owner", OWNER)
                entry.setdefault("group", GROUP)
        return run_main(node_state.main, {**args, "_ansible_check_mode": check, "_ansible_diff": True})

    def unit(self, name: str, active: str = "inactive", enabled: str = "disabled") -> None:
        text = f"LoadState=loaded\nActiveState={active}\nUnitFileState={enabled}\nNeedDaemonReload=no\n"
        (self.units / name).write_text(text)

    def called(self) -> list[str]:
        log = self.units / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    programs, units, root = tmp_path / "bin", tmp_path / "units", tmp_path / "root"
    for directory in (programs, units, root):
        directory.mkdir()
    (programs / "systemctl").write_text(SYSTEMCTL)
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("UNITS", str(units))
    monkeypatch.setattr(systemd, "SYSTEMD", str(tmp_path))
    return Node(root, units)


@pytest.mark.slow
@pytest.mark.newest
def test_a_unit_that_systemd_does_not_know_at_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once on a busy node: `systemctl show` said not-found right after the file was written and the daemon reloaded."""
    monkeypatch.setattr(systemd, "UNIT_DIRECTORIES", (f"{node.root}/",))
    node.unit("new.service")
    (node.units / "new.service.late").write_text("before\nafter\nafter\n")
    wanted = {
        "files": [{"path": f"{node.root}/new.service", "content": "[Service]\n"}],
        "units": [{"name": "new.service", "enabled": True}],
    }
    done = node.run(**wanted)
    assert not done.get("failed"), done
    assert "enable new.service" in node.called()


def listing(root: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_everything_at_once_and_nothing_the_second_time(node: Node) -> None:
    (node.root / "old").mkdir()
    (node.root / "old" / "file").write_text("x")
    wanted: dict[str, t.Any] = {
        "directories": [{"path": f"{node.root}/d/e", "mode": "0750"}],
        "files": [{"path": f"{node.root}/d/e/f", "content": "hello\n", "mode": "0640"}],
        "links": [{"path": f"{node.root}/l", "target": "d"}],
        "absent": [{"path": f"{node.root}/old", "recursive": True}, f"{node.root}/never"],
    }
    planned = node.run(check=True, **wanted)
    assert listing(node.root) == ["old", "old/file"]
    done = node.run(**wanted)
    assert done["changed"] is True
    assert planned["changes"] == done["changes"]
    assert planned["diff"] == done["diff"]
    assert [change["kind"] for change in done["changes"]] == ["absent", "directory", "file", "link"]
    assert listing(node.root) == ["d", "d/e", "d/e/f", "l"]
    assert (node.root / "d/e").stat().st_mode & 0o7777 == 0o750
    assert (node.root / "d/e/f").stat().st_mode & 0o7777 == 0o640
    again = node.run(**wanted)
    assert again["changed"] is False
    assert again["changes"] == []


def test_items_whose_when_is_false_change_nothing(node: Node) -> None:
    (node.root / "kept").write_text("")
    off = {"when": "no"}
    wanted: dict[str, t.Any] = {
        "packages": [{"name": "no-such-package-at-all", **off}],
        "directories": [{"path": f"{node.root}/d", **off}],
        "archives": [{"path": f"{node.root}/a", "sha256": "", **off}],
        "files": [{"path": f"{node.root}/f", "content": "", **off}],
        "links": [{"path": f"{node.root}/l", "target": "", **off}],
        "absent": [{"path": f"{node.root}/kept", **off}],
        "units": [{"name": "none.service", "state": "started", **off}],
    }
    assert node.run(**wanted)["changed"] is False
    assert listing(node.root) == ["kept"]


def test_a_secret_is_written_but_never_shown(node: Node) -> None:
    secret = "s3cr3t-value-of-a-key"
    wanted = {"files": [{"path": f"{node.root}/key", "secret_content": secret, "mode": "0600"}]}
    result = node.run(**wanted)
    assert (node.root / "key").read_text() == secret
    assert (node.root / "key").stat().st_mode & 0o7777 == 0o600
    assert secret not in json.dumps(result)


def test_a_file_that_its_checker_refuses_stays_as_it_was(node: Node) -> None:
    path = node.root / "f"
    path.write_text("good\n")
    path.chmod(0o644)
    wanted = {"files": [{"path": str(path), "content": "bad\n", "validate": ["grep", "-q", "good", "%s"]}]}
    result = node.run(**wanted)
    assert result["failed"] is True
    assert result["error_kind"] == "invalid_content"
    assert path.read_text() == "good\n"
    assert listing(node.root) == ["f"]


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"links": [{"path": "{root}/dir", "target": "x"}]}, "in_the_way"),
        ({"absent": ["{root}/dir"]}, "not_empty"),
        ({"absent": ["/"]}, "bad_input"),
        ({"absent": [{"path": "/usr", "recursive": True}]}, "bad_input"),
        ({"directories": [{"path": "{root}/dir/file"}]}, "in_the_way"),
        ({"files": [{"path": "{root}/none/f", "content": ""}]}, "no_directory"),
        ({"files": [{"path": "{root}/dir/link", "content": ""}]}, "in_the_way"),
        ({"files": [{"path": "{root}/g", "content": "", "owner": "nobody-has-this-name"}]}, "user_missing"),
        ({"units": [{"name": "none.service", "state": "started"}]}, "unit_missing"),
    ],
)
def test_what_is_refused_changes_nothing(node: Node, wanted: dict[str, t.Any], kind: str) -> None:
    (node.root / "dir").mkdir()
    (node.root / "dir" / "file").write_text("mine")
    (node.root / "dir" / "link").symlink_to("file")
    wanted = json.loads(json.dumps(wanted).replace("{root}", str(node.root)))
    result = node.run(**wanted)
    assert result["failed"] is True
    assert result["error_kind"] == kind
    assert result["remedy"]
    assert listing(node.root) == ["dir", "dir/file", "dir/link"]
    assert (node.root / "dir" / "file").read_text() == "mine"


def mounts_at(point: str) -> tuple[MountEntry, ...]:
    return (MountEntry("8:1", "/", point, "ext4", "/dev/sda1"),)


def test_a_mount_below_is_never_removed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.root / "a" / "m").mkdir(parents=True)
    monkeypatch.setattr(node_state_apply, "read_mounts", lambda: mounts_at(f"{node.root}/a/m"))
    result = node.run(absent=[{"path": f"{node.root}/a", "recursive": True}])
    assert result["error_kind"] == "in_use"
    assert listing(node.root) == ["a", "a/m"]


def test_a_release_in_use_is_not_removed(node: Node) -> None:
    (node.root / "1.0").mkdir()
    (node.root / "current").symlink_to("1.0")
    entry = {"path": f"{node.root}/1.0", "recursive": True, "unless_target_of": f"{node.root}/current"}
    assert node.run(absent=[entry])["error_kind"] == "in_use"
    (node.root / "current").unlink()
    assert node.run(absent=[entry])["changed"] is True
    assert listing(node.root) == []


@pytest.fixture
def linked(node: Node) -> pathlib.Path:
    """A directory with a release in it, below a link."""
    (node.root / "data" / "1.0" / "m").mkdir(parents=True)
    (node.root / "opt").symlink_to("data")
    return node.root / "opt"


def test_a_release_in_use_is_not_removed_below_a_link(node: Node, linked: pathlib.Path) -> None:
    (linked / "current").symlink_to("1.0")
    entry = {"path": f"{linked}/1.0", "recursive": True, "unless_target_of": f"{linked}/current"}
    assert node.run(absent=[entry])["error_kind"] == "in_use"
    assert (linked / "1.0" / "m").is_dir()
    (linked / "current").unlink()
    assert node.run(absent=[entry])["changed"] is True
    assert listing(node.root) == ["data", "opt"]


def test_a_mount_below_is_never_removed_below_a_link(
    node: Node, linked: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state_apply, "read_mounts", lambda: mounts_at(f"{node.root}/data/1.0/m"))
    result = node.run(absent=[{"path": f"{linked}/1.0", "recursive": True}])
    assert result["error_kind"] == "in_use"
    assert (linked / "1.0" / "m").is_dir()


def test_a_link_goes_without_what_it_points_at(
    node: Node, linked: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the directories above a path are followed: a mount below its target keeps no link."""
    monkeypatch.setattr(node_state_apply, "read_mounts", lambda: mounts_at(f"{node.root}/data/1.0"))
    assert node.run(absent=[str(linked)])["changed"] is True
    assert listing(node.root) == ["data", "data/1.0", "data/1.0/m"]


def test_a_directory_below_a_link_goes_with_the_last_thing_in_it(node: Node, linked: pathlib.Path) -> None:
    result = node.run(absent=[f"{node.root}/data/1.0/m", {"path": f"{linked}/1.0", "if_empty": True}])
    assert [change["name"] for change in result["changes"]] == [f"{node.root}/data/1.0/m", f"{linked}/1.0"]
    assert listing(node.root) == ["data", "opt"]


def test_a_refusal_says_what_its_caller_knows(node: Node) -> None:
    (node.root / "1.0").mkdir()
    (node.root / "current").symlink_to("1.0")
    entry = {"path": f"{node.root}/1.0", "recursive": True, "unless_target_of": f"{node.root}/current"}
    assert node.run(absent=[entry])["remedy"] == f"Point {node.root}/current elsewhere first."
    remedy = "Set some_variable to true."
    refused = node.run(absent=[{**entry, "remedy": remedy}])
    assert (refused["remedy"], refused["error_kind"]) == (remedy, "in_use")
    assert node.run(absent=[{**entry, "remedy": 7}])["error_kind"] == "bad_input"


def test_a_directory_goes_with_the_last_thing_in_it(node: Node) -> None:
    (node.root / "mpi").mkdir()
    for name in ("a", "b"):
        (node.root / "mpi" / name).write_text("")
    directory = {"path": f"{node.root}/mpi", "if_empty": True}
    node.run(absent=[f"{node.root}/mpi/a", directory])
    assert listing(node.root) == ["mpi", "mpi/b"]
    planned = node.run(check=True, absent=[f"{node.root}/mpi/b", f"{node.root}/mpi"])
    assert node.run(absent=[f"{node.root}/mpi/b", f"{node.root}/mpi"])["changes"] == planned["changes"]
    assert listing(node.root) == []


def test_what_matches_a_pattern_goes_unless_it_is_listed(node: Node) -> None:
    """With the directory that it leaves empty, and no other empty one."""
    for name in ("a.d/x.conf", "b.d/x.conf", "b.d/y.conf", "c.d/x.conf", "d.d/x.conf"):
        (node.root / name).parent.mkdir(exist_ok=True)
        (node.root / name).write_text("1\n")
    (node.root / "empty.d").mkdir()
    wanted = {
        "directories": [{"path": f"{node.root}/d.d"}],
        "files": [{"path": f"{node.root}/c.d/x.conf", "content": "1\n"}],
        "absent": [{"path": f"{node.root}/*.d/x.conf", "pattern": True}],
    }
    planned = node.run(check=True, **wanted)["changes"]
    assert [change["name"].removeprefix(f"{node.root}/") for change in planned] == [
        "a.d/x.conf", "a.d", "b.d/x.conf", "d.d/x.conf",
    ]  # fmt: skip
    assert node.run(**wanted)["changes"] == planned
    assert listing(node.root) == ["b.d", "b.d/y.conf", "c.d", "c.d/x.conf", "d.d", "empty.d"]
    assert node.run(**wanted)["changed"] is False


def test_units_start_restart_and_go(node: Node) -> None:
    node.unit("x.service")
    config = f"{node.root}/x.conf"
    wanted = {
        "files": [{"path": config, "content": "1\n"}],
        "units": [{"name": "x.service", "state": "started", "enabled": True, "restart_on": [config]}],
    }
    assert [c["what"] for c in node.run(check=True, **wanted)["changes"]] == ["create", "enable", "start"]
    assert node.called() == []
    node.run(**wanted)
    assert node.called() == ["enable x.service", "start x.service"]
    assert node.run(**wanted)["changed"] is False
    assert node.called() == []
    wanted["files"][0]["content"] = "2\n"
    node.run(**wanted)
    assert node.called() == ["restart x.service"]
    gone = {"units": [{"name": "x.service", "state": "stopped", "enabled": False}], "absent": [config]}
    node.run(**gone)
    assert node.called() == ["stop x.service", "disable x.service"]
    assert node.run(**gone)["changed"] is False


def test_a_changed_unit_file_is_read_again_before_the_start(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "UNIT_DIRECTORIES", (f"{node.root}/",))
    node.unit("x.service")
    node.run(
        files=[{"path": f"{node.root}/x.service", "content": "[Unit]\n"}],
        units=[{"name": "x.service", "state": "started"}],
    )
    assert node.called() == ["daemon-reload ", "start x.service"]


def test_a_unit_that_fails_shows_its_last_words(node: Node) -> None:
    node.unit("broken.service")
    result = node.run(units=[{"name": "broken.service", "state": "started"}])
    assert result["error_kind"] == "systemctl_failed"
    assert "Job failed" in result["msg"]
    assert "last words" in result["status"]


def test_without_systemd_units_are_only_enabled(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "SYSTEMD", f"{node.root}/none")
    node.unit("x.service")
    result = node.run(units=[{"name": "x.service", "state": "started", "enabled": True}])
    assert node.called() == ["enable x.service"]
    assert result["units_not_started"] == ["x.service"]


def archive(path: pathlib.Path) -> str:
    source = path.parent / "made"
    (source / "top" / "bin").mkdir(parents=True)
    (source / "top" / "bin" / "tool").write_text("#!/bin/sh\n")
    with tarfile.open(path, "w:bz2") as tar:
        tar.add(source / "top", "top")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_archive_is_unpacked_once(node: Node, tmp_path: pathlib.Path) -> None:
    digest = archive(tmp_path / "a.tbz")
    wanted = {"archives": [{"path": f"{node.root}/1.0", "src": str(tmp_path / "a.tbz"), "sha256": digest}]}
    (node.root / f".1.0.node_state-{node_digest(digits=8)}-killed").mkdir()
    (node.root / ".1.0.node_state-01234567-killed").mkdir()  # of another node that shares the directory
    os.utime(node.root / ".1.0.node_state-01234567-killed", (0, 0))
    assert node.run(check=True, **wanted)["changes"][0]["what"] == "unpack"
    assert node.run(**wanted)["changed"] is True
    assert listing(node.root) == ["1.0", "1.0/.node_state.json", "1.0/bin", "1.0/bin/tool"]
    assert (node.root / "1.0").stat().st_mode & 0o7777 == 0o755
    (tmp_path / "a.tbz").unlink()
    assert node.run(**wanted)["changed"] is False


class _Slow:
    """A node whose tar takes so long that another one, which shares the directory, is quicker."""

    def __init__(self, quicker: t.Callable[[], object]) -> None:
        self._quicker = quicker

    def run_command(self, args: list[str], **_options: t.Any) -> tuple[int, str, str]:
        self._quicker()
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def set_context_if_different(self, _path: str, _context: list[t.Any], changed: bool) -> bool:
        return changed

    def selinux_default_context(self, _path: str) -> list[t.Any]:
        return []


def test_nodes_that_share_a_directory_may_unpack_the_same_archive_at_once(node: Node, tmp_path: pathlib.Path) -> None:
    path, packed = f"{node.root}/1.0", tmp_path / "a.tbz"
    wanted = Archive(path, archive(packed), src=str(packed))
    at_work = node.root / ".1.0.node_state-01234567-work"
    at_work.mkdir()

    def other_node() -> None:
        there = tmp_path / "there"
        there.mkdir()
        node.run(archives=[{"path": f"{there}/1.0", "src": str(packed), "sha256": wanted.sha256}])
        os.rename(there / "1.0", path)

    unpack(wanted, t.cast(Host, _Slow(other_node)))
    assert listing(node.root) == [at_work.name, "1.0", "1.0/.node_state.json", "1.0/bin", "1.0/bin/tool"]

    def somebody_else() -> None:
        shutil.rmtree(path)
        os.makedirs(f"{path}/data")

    with pytest.raises(OSError, match="not empty"):
        unpack(wanted, t.cast(Host, _Slow(somebody_else)))
    assert os.listdir(path) == ["data"]


def test_nodes_that_share_a_directory_may_remove_it_at_once(tmp_path: pathlib.Path) -> None:
    for recursive in (False, True):
        remove(Absent(str(tmp_path / "removed meanwhile"), recursive=recursive))


def test_what_an_archive_holds_is_built_once_and_again_with_other_words(node: Node, tmp_path: pathlib.Path) -> None:
    """A build may replace a file of the request, as HPC-X's does: what it leaves is put right in the same run."""
    settings = f"{node.root}/1.0/settings"
    entry = {"path": f"{node.root}/1.0", "src": str(tmp_path / "a.tbz"), "sha256": archive(tmp_path / "a.tbz")}

    def wanted(script: str) -> dict[str, t.Any]:
        built = {**entry, "build": ["sh", "-c", script]}
        return {"archives": [built], "files": [{"path": settings, "content": "ours\n"}]}

    script = "echo run >> count; echo theirs > settings"
    planned = node.run(check=True, **wanted(script))
    assert [(change["kind"], change["what"]) for change in planned["changes"]][:2] == [
        ("archive", "unpack"),
        ("build", "run sh"),
    ]
    assert listing(node.root) == []
    assert node.run(**wanted(script))["changed"] is True
    assert node.run(**wanted(script))["changed"] is False
    assert pathlib.Path(settings).read_text() == "ours\n"
    again = node.run(**wanted(script + "; true"))
    assert [change["kind"] for change in again["changes"]] == ["build", "file"]
    assert pathlib.Path(settings).read_text() == "ours\n"
    assert (node.root / "1.0" / "count").read_text() == "run\nrun\n"


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    ("script", "kind"), [("echo no compiler; exit 3", "build_failed"), ("sleep 60", "timeout")], ids=["fails", "hangs"]
)
def test_a_build_that_does_not_end_well_is_done_again(
    node: Node, tmp_path: pathlib.Path, script: str, kind: str
) -> None:
    entry = {"path": f"{node.root}/1.0", "src": str(tmp_path / "a.tbz"), "sha256": archive(tmp_path / "a.tbz")}
    node.run(archives=[entry])
    result = node.run(archives=[{**entry, "build": ["sh", "-c", script], "build_timeout_s": 1}])
    assert result["error_kind"] == kind
    assert kind == "timeout" or "no compiler" in result["msg"]
    done = node.run(archives=[{**entry, "build": ["sh", "-c", "true"]}])
    assert [change["kind"] for change in done["changes"]] == ["build"]


def test_a_wrong_checksum_unpacks_nothing(node: Node, tmp_path: pathlib.Path) -> None:
    archive(tmp_path / "a.tbz")
    result = node.run(archives=[{"path": f"{node.root}/1.0", "src": str(tmp_path / "a.tbz"), "sha256": "0" * 64}])
    assert result["error_kind"] == "checksum"
    assert listing(node.root) == []


def test_an_archive_by_url_keeps_the_password_of_the_url_to_itself(node: Node) -> None:
    source = "http://user:pa55word@127.0.0.1:1/dir/a.tbz?sig=tok3n"
    result = node.run(archives=[{"path": f"{node.root}/1.0", "src": source, "sha256": "0" * 64}])
    assert result["error_kind"] == "download_failed"
    assert "a.tbz" in result["msg"]
    shown = json.dumps({key: value for key, value in result.items() if key != "invocation"})
    assert "pa55word" not in shown
    assert "tok3n" not in shown


def test_missing_packages_are_left_to_the_action(node: Node) -> None:
    result = node.run(packages=["no-such-package-at-all"], directories=[{"path": f"{node.root}/d"}])
    assert result["needs"]["packages"] == ["no-such-package-at-all"]
    assert result["changed"] is False
    assert listing(node.root) == []
    planned = node.run(check=True, packages=["no-such-package-at-all"], directories=[{"path": f"{node.root}/d"}])
    assert [change["kind"] for change in planned["changes"]] == ["package", "directory"]
    # bash is on every machine that runs these tests.
    assert node.run(packages=["bash"])["changed"] is False


@pytest.mark.parametrize("check", [False, True])
def test_a_file_of_somebody_else_is_refused_before_packages_come_and_is_not_removed(node: Node, check: bool) -> None:
    path = node.root / "module"
    wanted = {"path": str(path), "content": "#ours 2\n", "ours": r"\A#ours \d\n"}
    path.write_text("#theirs\n#ours 1\n")
    refused = node.run(check, packages=["no-such-package"], files=[{**wanted, "remedy": "Do this."}])
    assert (refused["error_kind"], refused["remedy"], refused["files"]) == ("foreign_files", "Do this.", [str(path)])
    assert refused["msg"] == f"{path} was not written by this collection. Nothing was changed. Do this."
    gone = {"path": str(path), "ours": wanted["ours"]}
    assert node.run(check, absent=[gone])["changed"] is False
    assert path.read_text() == "#theirs\n#ours 1\n"
    # What is right already is nobody's loss, and neither is an empty file.
    path.write_text("#theirs\n")
    assert node.run(check, files=[{**wanted, "content": "#theirs\n"}])["changed"] is False
    for text in ("", " \n", "#ours 1\n"):
        path.write_text(text)
        assert node.run(check, files=[dict(wanted)])["changed"] is True
        path.write_text(text)
        assert node.run(check, absent=[gone])["changed"] is True
    assert node.run(check, files=[{**wanted, "ours": "("}])["error_kind"] == "bad_input"


def test_packages_of_repositories_are_asked_for_before_the_others(node: Node) -> None:
    wanted = ["no-such-package", {"name": ["bash", "no-such-repository"], "first": True}]
    assert node.run(packages=wanted)["needs"]["packages"] == ["no-such-repository"]
    planned = node.run(check=True, packages=wanted)
    assert [change["name"] for change in planned["changes"]] == ["no-such-package", "no-such-repository"]
    assert node.run(packages=["no-such-package", {"name": "bash", "first": True}])["needs"]["packages"] == [
        "no-such-package"
    ]
    for check in (True, False):
        whole = node.run(check=check, packages=["bash", {"name": "no-such-repository", "first": True}])
        assert (whole["changed"], whole["changes"]) == (False, [])


def announced(path: str, data: bytes, **parts: t.Any) -> dict[str, t.Any]:
    """An item of ``files`` as it comes before the node was found to lack it."""
    return {"path": path, "sha256": hashlib.sha256(data).hexdigest(), **parts}


def test_a_file_that_is_right_is_known_by_its_digest(node: Node) -> None:
    (node.root / "f").write_text("right\n")
    (node.root / "f").chmod(0o644)
    result = node.run(files=[announced(f"{node.root}/f", b"right\n")])
    assert (result["changed"], "needs" in result) == (False, False)
    result = node.run(files=[announced(f"{node.root}/f", b"right\n", mode="0600")])
    assert [change["what"] for change in result["changes"]] == ["mode 0644 to 0600"]
    assert (node.root / "f").read_text() == "right\n"


@pytest.mark.parametrize("check", [False, True])
def test_nothing_changes_while_bytes_are_missing(node: Node, check: bool) -> None:
    node.unit("x.service", active="active")
    (node.root / "old").write_text("")
    (node.root / "other").write_text("other\n")
    (node.root / "other").chmod(0o644)
    names = ("other", "lacking", "different")
    (node.root / "different").write_text("not yet\n")
    result = node.run(
        check=check,
        absent=[f"{node.root}/old"],
        directories=[{"path": f"{node.root}/d"}],
        files=[announced(f"{node.root}/{name}", f"{name}\n".encode()) for name in names],
        units=[{"name": "x.service", "state": "stopped"}],
    )
    assert result["changed"] is False
    assert result["needs"]["files"] == [1, 2]
    assert listing(node.root) == ["different", "old", "other"]
    assert (node.root / "different").read_text() == "not yet\n"
    assert node.called() == []


def test_bytes_that_a_diff_cannot_show_come_only_to_be_written(node: Node) -> None:
    entry = announced(f"{node.root}/f", b"\xff\xfe", size=2)
    planned = node.run(check=True, files=[entry])
    assert planned["diff"][0]["after"] == f"sha256: {entry['sha256']} (2 bytes)\n"
    assert node.run(files=[entry])["needs"]["files"] == [0]
    done = node.run(files=[{"path": entry["path"], "content_base64": "//4="}])
    assert done["diff"] == planned["diff"]
    assert (node.root / "f").read_bytes() == b"\xff\xfe"


def test_a_build_needs_the_bytes_of_what_it_may_replace(node: Node, tmp_path: pathlib.Path) -> None:
    (node.root / "f").write_text("right\n")
    (node.root / "f").chmod(0o644)
    entry = {"path": f"{node.root}/1.0", "src": str(tmp_path / "a.tbz"), "sha256": archive(tmp_path / "a.tbz")}
    script = f"echo theirs > {node.root}/f"
    wanted = {
        "archives": [{**entry, "build": ["sh", "-c", script]}],
        "files": [announced(f"{node.root}/f", b"right\n")],
    }
    assert node.run(**wanted)["needs"]["files"] == [0]
    assert listing(node.root) == ["f"]
    assert node.run(**{**wanted, "files": [{"path": f"{node.root}/f", "content": "right\n"}]})["changed"]
    assert (node.root / "f").read_text() == "right\n"
    assert node.run(**wanted)["changed"] is False


class Policy:
    """SELinux as Python knows it, where everything has the label of its path."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.labels: dict[str, str] = {}
        #: How many labels are given before the module is killed.
        self.left = sys.maxsize

    def follow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the SELinux of this machine. What is renamed keeps its labels."""
        monkeypatch.setattr(basic, "HAVE_SELINUX", True)
        monkeypatch.setattr(basic, "selinux", self, raising=False)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._moving(getattr(os, name)))

    def _moving(self, move: t.Callable[[str, str], None]) -> t.Callable[[str, str], None]:
        def moved(old: str, new: str) -> None:
            move(old, new)
            self.labels = {
                re.sub(rf"^{re.escape(old)}(?=/|$)", new, path): label for path, label in self.labels.items()
            }

        return moved

    def is_right(self, path: str) -> bool:
        return self.labels.get(path) == self.matchpathcon(path, 0)[1]

    def is_selinux_enabled(self) -> int:
        return int(self.enabled)

    def is_selinux_mls_enabled(self) -> int:
        return 1

    def matchpathcon(self, path: str, _mode: int) -> tuple[int, str]:
        return 0, f"system_u:object_r:{os.path.basename(path)}_t:s0"

    def lgetfilecon_raw(self, path: str) -> tuple[int, str]:
        assert os.path.lexists(path)
        return 0, self.labels.get(str(path), "system_u:object_r:default_t:s0")

    def lsetfilecon(self, path: str, label: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.labels[str(path)] = label
        return 0


@pytest.mark.parametrize("enabled", [True, False])
def test_everything_that_is_made_gets_the_label_of_its_place(
    node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    policy = Policy(enabled=enabled)
    policy.follow(monkeypatch)
    (node.root / "was").write_text("there\n")
    (node.root / "was").chmod(0o644)
    entry = {"path": f"{node.root}/opt/1.0", "src": str(tmp_path / "a.tbz"), "sha256": archive(tmp_path / "a.tbz")}
    done = node.run(
        directories=[{"path": f"{node.root}/a/b"}],
        archives=[{**entry, "build": ["touch", "built"]}],
        files=[{"path": f"{node.root}/{name}", "content": "there\n"} for name in ("was", "a/file")],
        links=[{"path": f"{node.root}/link", "target": "a"}],
    )
    assert not done.get("failed"), done
    made = ["a", "a/b", "a/file", "link", "opt", "opt/1.0", "opt/1.0/bin", "opt/1.0/bin/tool", "opt/1.0/built"]
    labelled = [name for name in listing(node.root) if f"{node.root}/{name}" in policy.labels]
    assert labelled == ([*made[:6], "opt/1.0/.node_state.json", *made[6:]] if enabled else [])
    assert all(label == policy.matchpathcon(path, 0)[1] for path, label in policy.labels.items())


@pytest.mark.slow
@pytest.mark.newest
def test_a_run_that_is_killed_leaves_nothing_with_a_wrong_label_for_good(
    node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is looked at again that is there, so everything must be labelled before it is."""
    entry = {"src": str(tmp_path / "a.tbz"), "sha256": archive(tmp_path / "a.tbz")}
    policy = Policy(enabled=True)
    policy.follow(monkeypatch)
    for after in range(20):
        root = node.root / str(after)
        root.mkdir()
        wanted = {
            "directories": [{"path": f"{root}/a/b", "mode": "0700"}],
            "archives": [{"path": f"{root}/opt/1.0", **entry}],
            "files": [{"path": f"{root}/a/file", "content": "x"}],
            "links": [{"path": f"{root}/link", "target": "a"}],
        }
        policy.left = after
        killed = False
        try:
            node.run(**wanted)
        except KeyboardInterrupt:
            killed = True
        policy.left = sys.maxsize
        assert node.run(**wanted)["changed"] is killed
        made = [
            "a",
            "a/b",
            "a/file",
            "link",
            "opt",
            "opt/1.0",
            "opt/1.0/.node_state.json",
            "opt/1.0/bin",
            "opt/1.0/bin/tool",
        ]
        assert listing(root) == made
        assert [name for name in made if not policy.is_right(f"{root}/{name}")] == [], after
    assert not killed


def mounted_alone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel answer as for a file that is mounted by itself."""
    replace = os.replace

    def refuse(source: str, target: str) -> None:
        if target == path:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source, None, target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)


def test_a_file_that_cannot_be_replaced_is_written_into_only_where_that_is_wanted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = node.root / "resolv.conf"
    path.write_text("a longer text than the new one\n")
    number = path.stat().st_ino
    mounted_alone(str(path), monkeypatch)
    wanted = {"path": str(path), "content": "new\n", "mode": "0640"}
    refused = node.run(files=[wanted])
    assert refused["error_kind"] == "cannot_replace"
    assert "`unsafe_writes: true`" in refused["remedy"]
    assert path.read_text() == "a longer text than the new one\n"
    assert node.run(files=[{**wanted, "unsafe_writes": True}])["changed"] is True
    assert (path.read_text(), path.stat().st_ino, path.stat().st_mode & 0o777) == ("new\n", number, 0o640)
    assert listing(node.root) == ["resolv.conf"]
    assert node.run(files=[{**wanted, "unsafe_writes": True}])["changed"] is False


def test_only_what_was_unpacked_here_is_removed_with_if_unpacked(node: Node, tmp_path: pathlib.Path) -> None:
    """A role that is pointed at a directory of somebody else must not empty it."""
    bystander = pathlib.Path(node.root) / "bin"
    bystander.mkdir()
    (bystander / "tool").write_text("not ours")
    digest = archive(tmp_path / "a.tbz")
    node.run(archives=[{"path": f"{node.root}/1.0", "src": str(tmp_path / "a.tbz"), "sha256": digest}])
    wanted = [
        {"path": f"{node.root}/{name}", "recursive": True, "if_unpacked": True} for name in ("bin", "1.0", "nothing")
    ]
    assert node.run(absent=wanted)["changed"]
    assert listing(node.root) == ["bin", "bin/tool"]
    assert not node.run(absent=wanted)["changed"]


def test_the_parents_of_files_are_those_that_nobody_made_or_lists(tmp_path: pathlib.Path) -> None:
    (tmp_path / "made").mkdir()
    paths = [f"{tmp_path}/{name}" for name in ("made/f", "new/a", "new/b", "listed/f")]
    parents = read.missing_parents(paths, [f"{tmp_path}/listed"])
    assert [(entry["path"], entry["mode"]) for entry in parents] == [(f"{tmp_path}/new", "0755")]
