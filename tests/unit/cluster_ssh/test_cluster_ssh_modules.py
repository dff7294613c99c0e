# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster_ssh modules on homes in temporary directories, with the real ssh-keygen."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import types
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh import home as cluster_ssh_home
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh import read as cluster_ssh_read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh import verify as cluster_ssh_verify
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.request import CHECK_SPEC, CheckRequest
from ansible_collections.hpcai.gpu_cluster.plugins.modules import (
    cluster_ssh_check,
    cluster_ssh_identity,
    cluster_ssh_trust,
)
from module_run import run_main

pytestmark = [
    pytest.mark.oldest,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's client"),
]


class Machine:
    """A home and an /etc/ssh of its own."""

    def __init__(self, root: pathlib.Path, name: str, patch: pytest.MonkeyPatch) -> None:
        self.root, self.name, self._patch = root / name, name, patch
        self.ssh = self.root / "home" / ".ssh"
        self.etc = self.root / "etc"
        self.ssh.parent.mkdir(parents=True)
        self.etc.mkdir()
        argv = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "host",
            "-f",
            str(self.etc / "ssh_host_ed25519_key"),
        ]
        subprocess.run(argv, check=True)

    def _run(self, module: types.ModuleType, args: dict[str, t.Any]) -> dict[str, t.Any]:
        # The password database is the machine's, so the user's home is the one thing that a test has to replace.
        # It has the same path on every machine.
        home = self.root.parent / "home"
        home.unlink(missing_ok=True)
        home.symlink_to(self.ssh.parent)
        entry = types.SimpleNamespace(pw_dir=str(home), pw_uid=os.geteuid(), pw_gid=os.getegid(), pw_name="someone")
        self._patch.setattr(cluster_ssh_home, "pwd", types.SimpleNamespace(getpwnam=lambda _user: entry))
        return run_main(module.main, {**args, "_ansible_diff": True})

    def identity(self, **args: t.Any) -> dict[str, t.Any]:
        # All these machines are one, so its names and addresses would be everybody's.
        self._patch.setattr(cluster_ssh_read, "names_of", lambda _host, _extra: [f"{self.name}.cluster"])
        return self._run(cluster_ssh_identity, {"name": self.name, "host_key_directory": str(self.etc), **args})

    def trust(self, nodes: list[t.Any], **args: t.Any) -> dict[str, t.Any]:
        return self._run(cluster_ssh_trust, {"nodes": nodes, **args})

    def check(self, **args: t.Any) -> dict[str, t.Any]:
        return self._run(cluster_ssh_check, args)

    def tree(self) -> dict[str, tuple[int, bytes]]:
        return {
            str(path.relative_to(self.root)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in sorted(self.ssh.parent.rglob("*"))
        }


@pytest.fixture
def machines(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    return [Machine(tmp_path, name, monkeypatch) for name in ("gpu-1", "gpu-2")]


def converge(machines: list[Machine], **trust: t.Any) -> list[bool]:
    found = [machine.identity(make_key=number == 0) for number, machine in enumerate(machines)]
    nodes = [result["node"] for result in found]
    done = [machine.trust(nodes, **trust) for machine in machines]
    return [first["changed"] or second["changed"] for first, second in zip(found, done)]


@pytest.mark.newest
def test_trust_is_made_once(machines: list[Machine]) -> None:
    first, second = machines
    assert converge(machines) == [True, True]
    before = [machine.tree() for machine in machines]
    assert converge(machines) == [False, False]
    assert [machine.tree() for machine in machines] == before
    key = (first.ssh / "id_ed25519_gpu_cluster.pub").read_text().split()[1]
    assert f"restrict,pty ssh-ed25519 {key} gpu_cluster\n" in (second.ssh / "authorized_keys").read_text()
    assert (first.ssh / "id_ed25519_gpu_cluster").stat().st_mode & 0o777 == 0o600
    assert not (second.ssh / "id_ed25519_gpu_cluster").exists()
    assert "IdentityFile" in (first.ssh / "config").read_text()
    assert not (second.ssh / "config").exists()
    host_key = (second.etc / "ssh_host_ed25519_key.pub").read_text().split()[1]
    assert host_key in (first.ssh / "known_hosts").read_text()


def test_ssh_itself_agrees_with_our_known_hosts(machines: list[Machine]) -> None:
    converge(machines)
    for name in ("gpu-1", "gpu-2"):
        argv = ["ssh-keygen", "-F", name, "-f", str(machines[0].ssh / "known_hosts")]
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.mark.newest
@pytest.mark.parametrize("present", [True, False])
def test_remove_leaves_everything_as_it_was(machines: list[Machine], present: bool) -> None:
    second = machines[1]
    if present:
        second.ssh.mkdir(mode=0o700)
        (second.ssh / "authorized_keys").write_bytes(b"# mine, no newline at its end \xff")
        (second.ssh / "known_hosts").write_bytes(b"")
        (second.ssh / "known_hosts").chmod(0o640)
        (second.ssh / "config").write_bytes(b"ForwardAgent no\n\nHost *\n  User x\n")
    before = [machine.tree() for machine in machines]
    converge(machines)
    for machine in machines:
        planned = machine.trust([], state="absent", _ansible_check_mode=True)
        assert planned["changed"] is True
        assert machine.trust([], state="absent")["changed"] is True
        assert machine.trust([], state="absent")["changed"] is False
    assert [machine.tree() for machine in machines] == before


@pytest.mark.newest
def test_check_mode_on_a_fresh_cluster_touches_nothing(machines: list[Machine]) -> None:
    result = machines[0].identity(make_key=True, _ansible_check_mode=True)
    assert result["changed"] is True
    assert result["node"]["public_key"] == ""
    assert machines[1].trust([result["node"]], _ansible_check_mode=True)["changed"] is True
    assert [machine.tree() for machine in machines] == [{}, {}]


def test_a_node_that_trusts_a_key_makes_none(machines: list[Machine]) -> None:
    converge(machines)
    result = machines[1].identity(make_key=True)
    assert result["changed"] is False
    assert not (machines[1].ssh / "id_ed25519_gpu_cluster").exists()
    assert machines[1].trust([result["node"]])["changed"] is False


def test_a_node_whose_line_lost_its_key_makes_one(machines: list[Machine]) -> None:
    first = machines[0]
    first.ssh.mkdir()
    (first.ssh / "authorized_keys").write_text(
        "# BEGIN hpcai.gpu_cluster cluster_ssh gpu_cluster\nrestrict\n# END hpcai.gpu_cluster cluster_ssh gpu_cluster\n"
    )
    assert first.trust([first.identity(make_key=True)["node"]])["changed"] is True
    assert converge([first]) == [False]


def test_a_renewed_key_replaces_the_old_one(machines: list[Machine]) -> None:
    converge(machines)
    old = (machines[0].ssh / "id_ed25519_gpu_cluster.pub").read_text().split()[1]
    nodes = [machines[0].identity(make_key=True, renew_key=True)["node"], machines[1].identity()["node"]]
    assert machines[1].trust(nodes)["changed"] is True
    lines = (machines[1].ssh / "authorized_keys").read_text()
    assert old not in lines
    assert nodes[0]["public_key"] in lines


KEY = "id_ed25519_gpu_cluster"


def dies_before(name: str, run: t.Callable[[], object]) -> None:
    """Do it in a process that is killed at the moment at which it would put the file of this name in its place."""
    child = os.fork()
    if child == 0:
        replace = os.replace

        def put(source: str, target: str) -> None:
            if os.path.basename(target) == name:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        try:
            os.replace = put  # type: ignore[assignment]
            run()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def halves(machine: Machine) -> tuple[str, str]:
    """The public key that the private one has, and the line that lies beside it."""
    argv = ["ssh-keygen", "-y", "-P", "", "-f", str(machine.ssh / KEY)]
    held = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return " ".join(held.split()[:2]), (machine.ssh / f"{KEY}.pub").read_text().strip()


@pytest.mark.parametrize("name", [KEY, f"{KEY}.pub"])
@pytest.mark.parametrize("had", ["no key", "another key"])
def test_a_key_that_was_handed_over_in_part_is_handed_over_again(machines: list[Machine], had: str, name: str) -> None:
    first, second = machines
    if had == "another key":
        copied(machines)
    exported = first.identity(make_key=True, export_key=True, renew_key=True)
    nodes, key = [exported["node"], second.identity()["node"]], exported["node"]["public_key"]
    dies_before(name, lambda: second.trust(nodes, private_key=exported["private_key"]))
    assert second.trust(nodes, private_key=exported["private_key"])["changed"] is True
    assert halves(second) == (key, f"{key} gpu_cluster cluster key")
    assert second.identity()["node"]["made_key"] is True


@pytest.mark.parametrize("name", [KEY, f"{KEY}.pub"])
@pytest.mark.parametrize("had", ["no key", "an old key", "a lost key"])
def test_a_key_that_was_made_in_part_is_made_again(machines: list[Machine], had: str, name: str) -> None:
    first = machines[0]
    if had != "no key":
        converge(machines)
    if had == "a lost key":
        (first.ssh / KEY).unlink()
        (first.ssh / f"{KEY}.pub").unlink()
    renew = had != "no key"
    dies_before(name, lambda: first.identity(make_key=True, renew_key=renew))
    announced = first.identity(make_key=True, _ansible_check_mode=True)["changed"]
    done = first.identity(make_key=True)
    # Where it died before the first of the two files, what was asked for in that run only was not begun.
    assert done["changed"] is announced is (had == "no key" or name == KEY)
    if had == "a lost key" and name != KEY:
        return
    key = done["node"]["public_key"]
    assert halves(first) == (key, f"{key} gpu_cluster cluster key")
    assert done["node"]["made_key"] is True
    assert not (first.ssh / f"{KEY}.new").exists() or not done["changed"]
    assert first.identity(make_key=True)["changed"] is False


def test_a_key_of_somebody_else_beside_our_half_of_one_is_not_replaced(machines: list[Machine]) -> None:
    first = machines[0]
    converge(machines)
    (first.ssh / KEY).unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(first.ssh / "mine")], check=True)
    (first.ssh / "mine").rename(first.ssh / KEY)
    before = first.tree()
    assert first.identity(make_key=True)["changed"] is False
    assert first.tree() == before


@pytest.mark.parametrize("lost", [False, True])
def test_check_mode_of_a_renewal_announces_it_everywhere(machines: list[Machine], lost: bool) -> None:
    converge(machines)
    first, other = reversed(machines) if lost else machines
    before = [machine.tree() for machine in machines]
    renewed = first.identity(make_key=True, renew_key=True, _ansible_check_mode=True)
    assert (renewed["changed"], renewed["node"]["public_key"]) == (True, "")
    nodes = [renewed["node"], *([] if lost else [other.identity()["node"]])]
    assert first.check(nodes=nodes, hosts=["good-2"])["outdated"] == [node["name"] for node in nodes]
    for machine in (first, other):
        diff = machine.trust(nodes, _ansible_check_mode=True)["diff"]
        assert "made by the real run" in diff[0]["after"]
    assert [machine.tree() for machine in machines] == before


def test_a_lost_first_node_is_replaced_by_a_new_key(machines: list[Machine], logins: t.Callable[[], list[str]]) -> None:
    lost, second = machines
    converge(machines)
    old = second.identity()["node"]["trusted_key"]
    user = pwd.getpwuid(os.geteuid()).pw_name
    wish = {"hosts": ["good-2"], "user": user}
    nodes = [second.identity(make_key=True)["node"]]
    failed = second.check(nodes=nodes, **wish)
    assert (failed["error_kind"], logins()) == ("no_key", [])
    assert "`renew_key: true`" in failed["msg"]
    nodes = [second.identity(make_key=True, renew_key=True)["node"]]
    assert second.check(nodes=nodes, **wish)["outdated"] == ["gpu-2"]
    assert second.trust(nodes)["changed"] is True
    result = second.check(nodes=[second.identity(make_key=True)["node"]], **wish)
    assert (result["outdated"], result["reached"]) == ([], 1)
    assert old not in (second.ssh / "authorized_keys").read_text()
    # It comes back, and its key does not.
    nodes = [second.identity(make_key=True)["node"], lost.identity()["node"]]
    assert second.check(nodes=nodes, **wish)["outdated"] == ["gpu-1"]
    assert lost.trust(nodes, drop_key=True)["public_key"] == nodes[0]["public_key"]


def test_a_revoked_key_does_not_come_back(machines: list[Machine]) -> None:
    """A new first node makes its own key; later runs leave it out."""
    former, other = machines
    converge(machines)
    new = Machine(former.root.parent, "gpu-0", former._patch)
    nodes = [new.identity(make_key=True)["node"], former.identity()["node"], other.identity()["node"]]
    for machine in (new, former, other):
        machine.trust(nodes)
    limited = [former.identity()["node"], other.identity()["node"]]
    assert limited[0]["public_key"] != limited[0]["trusted_key"] == nodes[0]["public_key"]
    assert other.check(nodes=limited, hosts=[])["outdated"] == []
    assert [machine.trust(limited)["changed"] for machine in (former, other)] == [False, False]


def copied(machines: list[Machine], renew_key: bool = False) -> list[dict[str, t.Any]]:
    """The nodes after the key went to both machines, and was renewed on the first one."""
    first, second = machines
    exported = first.identity(make_key=True, export_key=True)
    nodes = [exported["node"], second.identity()["node"]]
    for machine in machines:
        machine.trust(nodes, private_key=exported["private_key"])
    return [first.identity(make_key=True, renew_key=renew_key)["node"], second.identity()["node"]]


def warnings(machine: Machine, nodes: list[dict[str, t.Any]], *, key_on_all: bool = False) -> list[str]:
    """What the check warns of. Not through the module: ansible collects the warnings of all tests of a process."""
    home = cluster_ssh_home.SshHome(str(machine.ssh), os.geteuid(), os.getegid(), "gpu_cluster")
    usual = {name: option.get("default") for name, option in CHECK_SPEC.items()}
    request = CheckRequest.of({**usual, "hosts": [], "nodes": nodes, "key_on_all": key_on_all})
    warned: list[str] = []
    cluster_ssh_verify.lacking(request, home, warned.append)
    return warned


def test_a_revoked_copy_of_the_key_is_removed(machines: list[Machine]) -> None:
    first, second = machines
    nodes = copied(machines, renew_key=True)
    assert first.check(nodes=nodes, hosts=[])["outdated"] == ["gpu-1", "gpu-2"]
    assert warnings(first, nodes) == []
    before = second.tree()
    planned = second.trust(nodes, drop_key=True, _ansible_check_mode=True)
    assert second.tree() == before
    done = second.trust(nodes, drop_key=True)
    assert {**planned, "invocation": {}} == {**done, "invocation": {}}
    gone = ["config", "id_ed25519_gpu_cluster", "id_ed25519_gpu_cluster.pub"]
    diffs = [item.get("before_header") or item["before"].strip() for item in done["diff"] if not item["after"]]
    assert [pathlib.Path(path).name for path in diffs] == gone
    assert not {path.name for path in second.ssh.iterdir()} & set(gone)
    first.trust(nodes)
    assert second.trust(nodes, drop_key=True)["changed"] is False
    nodes = [first.identity(make_key=True)["node"], second.identity()["node"]]
    assert first.check(nodes=nodes, hosts=[])["outdated"] == []


def test_a_copy_of_the_key_stays_until_it_is_revoked_and_is_named(machines: list[Machine]) -> None:
    """It may be the first node's own file: in a shared home both are one."""
    first, second = machines
    nodes = copied(machines)
    assert second.trust(nodes, drop_key=True)["changed"] is False
    assert first.check(nodes=nodes, hosts=[])["outdated"] == []
    (warned,) = warnings(first, nodes)
    assert "but gpu-2, too" in warned
    assert "`renew_key: true`" in warned
    assert warnings(first, nodes, key_on_all=True) == warnings(second, nodes[1:]) == []


def test_a_key_in_a_shared_home_survives_its_renewal(machines: list[Machine]) -> None:
    """The second machine has told of the old key before the first one replaced it."""
    first, _second = machines
    converge(machines[:1])
    late = {**first.identity()["node"], "name": "gpu-2"}
    nodes = [first.identity(make_key=True, renew_key=True)["node"], late]
    assert "gpu-2" in first.check(nodes=nodes, hosts=[])["outdated"]
    first.trust(nodes)
    assert first.trust(nodes, drop_key=True)["changed"] is False
    assert first.identity()["node"]["public_key"] == nodes[0]["public_key"]


def test_the_only_key_stays_where_it_is(machines: list[Machine]) -> None:
    """Another first node makes no key while it trusts one, and the old first node goes on to hold it."""
    converge(machines)
    former, first = machines
    nodes = [first.identity(make_key=True)["node"], former.identity()["node"]]
    for known in (nodes, nodes[1:]):
        assert former.trust(known, drop_key=True)["changed"] is False
    assert (former.ssh / "id_ed25519_gpu_cluster").exists()


def test_a_key_that_somebody_else_put_there_stays_and_is_named(machines: list[Machine]) -> None:
    first, second = machines
    converge(machines)
    theirs = second.ssh / "id_ed25519_gpu_cluster"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me@home", "-f", str(theirs)], check=True)
    nodes = [first.identity(make_key=True)["node"], second.identity()["node"]]
    assert nodes[1]["made_key"] is False
    second.trust(nodes, drop_key=True)
    before = second.tree()
    assert second.trust(nodes, drop_key=True)["changed"] is False
    assert second.tree() == before
    assert theirs.exists()
    nodes = [first.identity(make_key=True)["node"], second.identity()["node"]]
    assert first.check(nodes=nodes, hosts=[])["outdated"] == []
    (warned,) = warnings(first, nodes)
    assert "on gpu-2 is neither the cluster's key nor one that cluster_ssh made" in warned


def test_nobody_with_a_key_is_an_error(machines: list[Machine]) -> None:
    nodes = [machine.identity()["node"] for machine in machines]
    assert machines[0].trust(nodes)["error_kind"] == "no_key"
    assert machines[0].tree() == {}


def test_the_private_key_reaches_the_others_only_when_it_is_handed_over(machines: list[Machine]) -> None:
    exported = machines[0].identity(make_key=True, export_key=True)
    other = machines[1].identity()
    assert "private_key" not in machines[0].identity(make_key=True)
    nodes = [exported["node"], other["node"]]
    result = machines[1].trust(nodes, private_key=exported["private_key"])
    written = (machines[1].ssh / "id_ed25519_gpu_cluster").read_bytes()
    assert written == (machines[0].ssh / "id_ed25519_gpu_cluster").read_bytes()
    assert (machines[1].ssh / "id_ed25519_gpu_cluster").stat().st_mode & 0o777 == 0o600
    secret = exported["private_key"].splitlines()[2]
    assert secret not in json.dumps(result)
    assert machines[1].trust(nodes, private_key=exported["private_key"])["changed"] is False


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("whole", [True, False])
def test_a_private_key_that_is_not_the_clusters_is_refused(machines: list[Machine], whole: bool, check: bool) -> None:
    first, second = machines
    nodes = [first.identity(make_key=True)["node"]]
    other = second.identity(make_key=True, export_key=True)["private_key"]
    before = second.tree()
    refused = second.trust(nodes, private_key=other if whole else other[:120], _ansible_check_mode=check)
    assert refused["error_kind"] == "wrong_key"
    assert "`private_key`" in refused["msg"]
    assert second.tree() == before


@pytest.mark.newest
def test_a_link_in_place_of_a_file_is_refused(machines: list[Machine], tmp_path: pathlib.Path) -> None:
    nodes = [machines[0].identity(make_key=True)["node"]]
    machines[1].ssh.mkdir()
    (tmp_path / "elsewhere").write_text("untouched")
    (machines[1].ssh / "authorized_keys").symlink_to(tmp_path / "elsewhere")
    assert machines[1].trust(nodes)["error_kind"] == "in_the_way"
    assert (tmp_path / "elsewhere").read_text() == "untouched"


@pytest.fixture
def logins(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[], list[str]]:
    """An ssh of our own, which lets everybody in whose name begins with good; calling this says who was asked for."""
    programs, asked = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    script = f"""#!/bin/sh
for word; do host=$last; last=$word; done
echo $host >>{asked}
case $host in
good*) exit 0 ;;
slow) sleep 30 ;;
*) echo "root@$host: Permission denied (publickey)." >&2; exit 255 ;;
esac
"""
    (programs / "ssh").write_text(script)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def said() -> list[str]:
        hosts = sorted(asked.read_text().split()) if asked.exists() else []
        asked.unlink(missing_ok=True)
        return hosts

    return said


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.usefixtures("logins")
def test_the_check_names_every_node_that_fails(machines: list[Machine]) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert machines[0].check(hosts=["good"], user=user)["error_kind"] == "no_key"
    machines[0].identity(make_key=True)
    assert machines[0].check(hosts=["good-1", "good-2"], user=user)["reached"] == 2
    failed = machines[0].check(hosts=["good-1", "bad", "slow"], user=user, timeout_s=-4)
    assert failed["error_kind"] == "login_failed"
    assert {item["host"]: item["reason"] for item in failed["failures"]} == {
        "bad": "it does not accept the cluster's key",
        "slow": "it did not answer in time",
    }


def found(machines: list[Machine], **args: t.Any) -> dict[str, t.Any]:
    """What the first machine finds out about all of them."""
    nodes = [machine.identity(make_key=number == 0)["node"] for number, machine in enumerate(machines)]
    user = pwd.getpwuid(os.geteuid()).pw_name
    return machines[0].check(nodes=nodes, hosts=["good-1", "good-2"], user=user, **args)


def test_where_nobody_lacks_anything_every_login_is_tried(
    machines: list[Machine], logins: t.Callable[[], list[str]]
) -> None:
    converge(machines)
    result = found(machines)
    assert (result["outdated"], result["reached"], logins()) == ([], 2, ["good-1", "good-2"])
    assert "nodes" not in result


def test_who_lacks_something_is_found_before_anybody_logs_in(
    machines: list[Machine], logins: t.Callable[[], list[str]]
) -> None:
    fresh = found(machines)
    assert fresh["outdated"] == ["gpu-1", "gpu-2"]
    converge(machines)
    lines = (machines[1].ssh / "authorized_keys").read_text().splitlines(keepends=True)
    (machines[1].ssh / "authorized_keys").write_text("".join(line for line in lines if "ssh-ed25519" not in line))
    result = found(machines)
    assert (result["outdated"], result["reached"]) == (["gpu-2"], 0)
    assert [node["name"] for node in result["nodes"]] == ["gpu-1", "gpu-2"]
    assert machines[1].trust(result["nodes"])["changed"] is True
    assert logins() == []
    assert found(machines)["outdated"] == []


@pytest.mark.parametrize(
    "wish", [{"key_options": ["restrict"]}, {"port": 2222}, {"cluster": "other"}, {"user": "root", "key_on_all": True}]
)
def test_another_wish_is_seen(machines: list[Machine], wish: dict[str, t.Any]) -> None:
    """Whatever trust would change, the check has announced, and what trust leaves alone it has not."""
    converge(machines)
    nodes = [machine.identity(make_key=number == 0)["node"] for number, machine in enumerate(machines)]
    result = machines[0].check(nodes=nodes, hosts=[], **wish)
    handed = {"private_key": machines[0].identity(export_key=True)["private_key"]} if wish.get("key_on_all") else {}
    options = {name: value for name, value in wish.items() if name != "key_on_all"}
    changed = [m.name for m in machines if m.trust(nodes, _ansible_check_mode=True, **options, **handed)["changed"]]
    assert result["outdated"] == changed != []


def test_a_node_outside_the_cluster_is_looked_at_too(machines: list[Machine]) -> None:
    """A login node is in the play, lets the cluster's key in, and is none of the cluster's nodes."""
    first, login = machines
    inside, outside = first.identity(make_key=True)["node"], login.identity()["node"]
    first.trust([inside])
    inside = first.identity(make_key=True)["node"]
    assert first.check(nodes=[inside], others=[outside], hosts=[])["outdated"] == ["gpu-2"]
    assert login.trust([inside])["changed"] is True
    assert first.check(nodes=[inside], others=[login.identity()["node"]], hosts=[])["outdated"] == []
    assert first.check(nodes=[], others=[outside], hosts=[])["outdated"] == ["gpu-2"]


def test_a_lost_node_is_remembered_until_it_is_to_be_forgotten(machines: list[Machine]) -> None:
    converge(machines)
    nodes = [machines[0].identity(make_key=True)["node"]]
    assert machines[0].check(nodes=nodes, hosts=[])["outdated"] == []
    assert machines[0].check(nodes=nodes, hosts=[], forget_unseen=True)["outdated"] == ["gpu-1"]


def test_without_the_first_node_nobody_is_logged_in_to(
    machines: list[Machine], logins: t.Callable[[], list[str]]
) -> None:
    converge(machines)
    result = machines[1].check(nodes=[machines[1].identity()["node"]], hosts=[])
    assert (result["outdated"], logins()) == ([], [])
