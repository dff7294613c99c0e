# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""container_runtime from its options to the commands that it runs, with programs that keep a node's state in files."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pathlib
import pwd
import signal
import stat
import subprocess
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import plan, settings, unread
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import units as systemd
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository
from ansible_collections.hpcai.gpu_cluster.plugins.modules import container_runtime
from containerd_files import CONTAINERD, CRI, NEEDS_CONTAINERD, SITE
from module_run import run_main
from time_limit import within

pytestmark = pytest.mark.oldest

PROGRAM = r"""#!/bin/sh
# Plays every program below by its name. $NODE holds installed and available packages, units that are active, and the log;
# it may hold files that a package brings, below brings/, units that are active once a package is installed, in starts, when units
# began, below began/, what apt says of packages that leave, in pushes, and the words of a systemctl that kills the module instead, in kill.
# With `old` dockerd is one before 23.0, with `limit` systemd starts nothing until that is reset. Docker knows no key no-such-key.
cd "$NODE" || exit 9
name=${0##*/}
words() { while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done; [ $# -gt 0 ] && shift; echo "$@"; }
case $name in
dpkg-query) sed 's/|/|/; s/$/|install|installed|ok/' installed ;;
apt-cache) shift; for one; do grep "^$one|" available | sed 's/|/ | /; s/$/ | repository/'; done ;;
dpkg) exit 1 ;;
apt-get)
  case " $* " in
  *" update "*) echo "apt-get update" >>log; [ -f new ] && cat new >>available; exit 0 ;;
  *" purge "*) echo "apt-get purge $(words "$@")" >>log; for one in $(words "$@"); do sed -i "/^$one|/d" installed; done
    [ -f meanwhile ] && { echo "E: Unable to locate package" >&2; exit 100; }; exit 0 ;;
  esac
  for one in $(words "$@"); do
    entry=$(grep "^${one%%=*}|" available | head -n 1)
    case " $* " in
    *" -s "*) echo "Inst ${entry%%|*} (${entry#*|} repository [amd64])" ;;
    *) sed -i "/^${entry%%|*}|/d" installed; echo "$entry" >>installed; [ -d "brings/${entry%%|*}" ] && cp -R "brings/${entry%%|*}/." .
      cat starts 2>/dev/null >>active ;;
    esac
  done
  case " $* " in *" -s "*) cat pushes 2>/dev/null ;; *) echo "apt-get install $(words "$@")" >>log ;; esac ;;
dockerd)
  [ -f old ] && { echo "unknown flag: --validate" >&2; exit 125; }
  grep -q no-such-key "$3" || exit 0
  echo "unable to configure the Docker daemon with file $3: the following directives don't match any option: no-such-key" >&2; exit 1 ;;
journalctl) echo "Starting docker.service"; echo "unable to configure: no-such-key"; echo "Failed to start docker.service" ;;
systemctl)
  case $1 in
  reset-failed) rm -f limit ;;
  status) ;;
  is-active) grep -qx "$3" active 2>/dev/null; exit ;;
  show) shift 3; [ "$1" = -- ] && shift
    for unit; do
      state=inactive; grep -qx "$unit" active && state=active
      printf 'LoadState=loaded\nActiveState=%s\nUnitFileState=enabled\nNeedDaemonReload=no\n' $state
      printf 'ExecMainStartTimestampMonotonic=%s\n\n' "$(cat "began/$unit" 2>/dev/null || echo 1)"
    done ;;
  *) [ "$*" = "$(cat kill 2>/dev/null)" ] && kill -9 $PPID && exit
    echo "systemctl $*" >>log; [ -f refuse ] && { echo "Job failed" >&2; exit 1; }
    [ -f limit ] && { echo "Start request repeated too quickly." >&2; exit 1; }
    [ "$*" = "restart docker.service" ] && grep -q no-such-key etc/docker/daemon.json && { echo "Job failed" >&2; exit 1; }
    [ "$1" = start ] && echo "$2" >>active
    [ "$1" = reload ] || python3 -c 'import time; print(time.monotonic_ns() // 1000)' >"began/$2" ;;
  esac ;;
docker) case $1 in ps) cat containers ;; info) cat runtime ;;
  run) echo "docker $*" >>log; [ -f no-container ] && { cat no-container >&2; exit 125; }; cat gpus-in-container ;;
  esac ;;
nvidia-smi) [ "$*" = -L ] && cat gpus ;;
esac
exit 0
"""
TOOLKIT = ["nvidia-container-toolkit"]


class Node:
    """A node whose files lie below a directory."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.write("installed", "bash|5.2-1\n")
        self.write("available", "nvidia-container-toolkit|1.17.8-1\ndocker.io|26.1-1\nenroot|3.5-1\n")
        for name in ("active", "containers", "log"):
            self.write(name, "")
        self.write("runtime", "nvidia\n")
        (root / "began").mkdir()
        self.docker_unit = False

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def daemon(self) -> dict[str, t.Any]:
        found: dict[str, t.Any] = json.loads((self.root / "etc/docker/daemon.json").read_text())
        return found

    def log(self) -> list[str]:
        lines = (self.root / "log").read_text().splitlines()
        self.write("log", "")
        return lines

    def killed(self, words: str, **options: t.Any) -> None:
        """A run that is killed where it comes to these words of systemctl."""
        self.write("kill", words)
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                self.run(**options)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        self.write("kill", "")

    def run(self, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        return run_main(
            container_runtime.main, {"repository_url": "file:/opt/toolkit", **options, "_ansible_check_mode": check}
        )


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    programs, root = tmp_path / "bin", tmp_path / "node"
    programs.mkdir()
    for name in ("dpkg-query", "dpkg", "apt-get", "apt-cache", "systemctl", "journalctl", "docker", "nvidia-smi"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    found = Node(root)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("NODE", str(root))
    monkeypatch.setattr(systemd, "SYSTEMD", str(root))
    for name in (
        "DAEMON_JSON",
        "CONTAINERD",
        "CONTAINERD_PART",
        "CONTAINERD_PARTS",
        "ENROOT_CONF",
        "ENROOT_MOUNTS",
        "PYXIS",
    ):
        monkeypatch.setattr(settings, name, f"{root}{getattr(settings, name)}")
    monkeypatch.setattr(unread, "PATH", f"{root}/unread")
    for name in ("sources", "repo"):
        monkeypatch.setattr(Repository, name, property(lambda _self, name=name: f"{root}/etc/{name}"))
    monkeypatch.setattr(Repository, "keyring", lambda _self, manager: f"{root}/etc/{manager}.key")
    # Whoever runs this test is root on the node.
    owner, group, exists = pwd.getpwuid(os.geteuid()), grp.getgrgid(os.getegid()), os.path.exists
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: owner)
    monkeypatch.setattr(grp, "getgrnam", lambda _name: group)
    unit = "/usr/lib/systemd/system/docker.service"
    monkeypatch.setattr(os.path, "exists", lambda path: found.docker_unit if path == unit else exists(path))
    return found


def cut_off(address: str) -> t.NoReturn:
    """A node that reaches no network."""
    raise AssertionError(f"{address} was fetched")


def told(result: dict[str, t.Any]) -> list[str]:
    assert not result["failed"], result
    return [f"{change['kind']} {pathlib.Path(change['name']).name} {change['what']}" for change in result["changes"]]


@pytest.mark.newest
def test_a_node_is_set_up_once_and_check_mode_says_how(node: Node) -> None:
    node.write("active", "docker.service\n")
    first = node.run(docker="always", check=True)
    assert (node.log(), (node.root / "etc").exists()) == ([], False)
    done = node.run(docker="always")
    assert told(first) == told(done)
    assert told(done) == [
        "directory etc create",
        "file sources create",
        "package nvidia-container-toolkit install nvidia-container-toolkit 1.17.8-1",
        "directory docker create",
        "file daemon.json create",
        "unit docker.service reload",
    ]
    assert node.log() == ["apt-get install nvidia-container-toolkit", "systemctl reload docker.service"]
    assert node.daemon()["default-runtime"] == "nvidia"
    again = node.run(docker="always")
    assert (told(again), again["changed"], node.log()) == ([], False, [])
    assert told(node.run(docker="always", state="verified")) == []


GPUS = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)\n"


@pytest.mark.slow
@pytest.mark.newest
def test_a_container_has_to_see_the_gpus_of_the_node_where_an_image_is_named(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.run(docker="always")
    node.log()
    node.write("gpus", GPUS)
    node.write("gpus-in-container", GPUS)
    assert told(node.run(docker="always", state="verified")) == []
    assert node.log() == []
    wish = {"docker": "always", "state": "verified", "verify_image": "site/ubuntu:24.04"}
    assert told(node.run(**wish)) == []
    assert node.log() == ["docker run --rm --pull never --network none --gpus all site/ubuntu:24.04 nvidia-smi -L"]
    node.write("gpus-in-container", GPUS.splitlines()[1])
    said = node.run(**wish)["msg"]
    assert "a container of site/ubuntu:24.04 cannot use the GPUs: it does not see GPU 0: NVIDIA H100" in said
    node.write("gpus-in-container", "")
    assert "cannot use the GPUs: `docker run` ended with 0" in node.run(**wish)["msg"]
    node.write("no-container", "docker: Error response from daemon: No such image: site/ubuntu:24.04.\n")
    assert "cannot use the GPUs: docker: Error response from daemon: No such image" in node.run(**wish)["msg"]
    # Where Docker is nothing to the role, and where nothing is verified, no container starts.
    node.log()
    assert told(node.run(**{**wish, "docker": "never"})) == []
    assert told(node.run(**{**wish, "state": "present"})) == []
    assert node.log() == []


@pytest.mark.parametrize("image", ["--privileged", "a b", "a;b", "$(a)"])
def test_what_is_no_image_is_refused(node: Node, image: str) -> None:
    assert node.run(verify_image=image)["error_kind"] == "bad_input"


def test_lists_are_read_again_only_where_a_package_is_not_in_them(node: Node) -> None:
    (node.root / "available").rename(node.root / "new")
    node.write("available", "")
    planned = node.run(docker="never", check=True)
    assert told(planned)[-1] == "package nvidia-container-toolkit install"
    assert told(node.run(docker="never"))[-1].startswith("package nvidia-container-toolkit install ")
    assert node.log() == ["apt-get update", "apt-get install nvidia-container-toolkit"]


@pytest.mark.newest
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("version", ["", "1.18.0"])
def test_a_toolkit_that_is_whole_is_configured_without_its_repository(
    node: Node, monkeypatch: pytest.MonkeyPatch, version: str, check: bool
) -> None:
    """An image may bring it, to nodes that reach no repository."""
    monkeypatch.setattr(repository, "open_source", cut_off)
    toolkit = "".join(f"{name}|1.18.0-1\n" for name in plan.TOOLKIT)
    node.write("installed", f"bash|5.2-1\n{toolkit}")
    node.write("available", "")
    node.write("active", "docker.service\n")
    wish = {"repository_url": "", "toolkit_version": version, "docker": "always"}
    done = told(node.run(**wish, check=check))
    assert done == ["directory docker create", "file daemon.json create", "unit docker.service reload"]
    assert node.log() == ([] if check else ["systemctl reload docker.service"])
    if not check:
        assert told(node.run(**wish)) == []
        assert told(node.run(**wish, state="verified")) == []


def test_what_is_there_needs_no_repository_beside_what_is_missing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker comes from a mirror of the distribution, the toolkit came with the image."""
    monkeypatch.setattr(repository, "open_source", cut_off)
    node.write("installed", "bash|5.2-1\nnvidia-container-toolkit|1.18.0-1\n")
    node.write("available", "docker.io|26.1-1\n")
    done = node.run(repository_url="", docker_packages=["docker.io"])
    assert "package docker.io install docker.io 26.1-1" in told(done)
    assert not (node.root / "etc/sources").exists()
    assert node.log()[:1] == ["apt-get install docker.io"]


def test_the_list_of_a_repository_that_was_added_follows_its_address(node: Node) -> None:
    node.run(docker="never")
    assert told(node.run(docker="never", repository_url="file:/opt/other")) == ["file sources content"]
    assert "URIs: file:/opt/other/" in (node.root / "etc/sources").read_text()


def test_a_version_that_nobody_has_is_said_so(node: Node) -> None:
    result = node.run(toolkit_version="1.2.3", docker="never")
    assert result["failed"]
    assert "1.2.3" in result["msg"]
    assert node.log() == ["apt-get update"]


@pytest.mark.newest
@pytest.mark.parametrize("check", [True, False])
def test_a_restart_that_stops_containers_needs_consent(node: Node, check: bool) -> None:
    node.write("active", "docker.service\n")
    node.write("containers", "c0ffee\nfeed\n")
    wish = {"docker": "always", "docker_data_root": "/mnt/docker"}
    refused = node.run(**wish, check=check)
    assert refused["error_kind"] == "consent_missing"
    assert "`allow_restart: true`" in refused["msg"]
    assert "2 running containers" in refused["msg"]
    assert (node.log(), (node.root / "etc").exists()) == ([], False)
    assert told(node.run(**wish, allow_restart=True, check=check))[-1] == "unit docker.service restart"
    assert node.log()[-1:] == ([] if check else ["systemctl restart docker.service"])


@pytest.mark.parametrize("check", [True, False])
def test_packages_of_others_are_not_pushed_out(node: Node, check: bool) -> None:
    node.write("pushes", "Remv docker-ce [5:26.1.0]\nRemv nvidia-docker2 [2.13.0-1]\n")
    result = node.run(docker_packages=["docker.io"], check=check)
    assert result["error_kind"] == "conflict"
    assert "docker-ce. No package was changed" in result["msg"]
    assert "nvidia-docker2" not in result["msg"]
    assert node.log() == []
    # The toolkit's own earlier names go.
    node.write("pushes", "Remv nvidia-docker2 [2.13.0-1]\n")
    assert not node.run(docker_packages=["docker.io"], check=check)["failed"]


def test_an_image_gets_packages_and_files_and_no_unit_is_touched(node: Node) -> None:
    node.write("active", "docker.service\ncontainerd.service\n")
    node.write("containers", "c0ffee\n")
    wish = {"phases": ["install"], "docker": "always", "containerd": True, "docker_data_root": "/mnt/docker"}
    kinds = {change.split()[0] for change in told(node.run(**wish))}
    assert kinds == {"directory", "file", "package"}
    assert node.log() == ["apt-get install nvidia-container-toolkit"]


def test_docker_that_was_installed_is_started_and_not_told_to_reload(node: Node) -> None:
    node.docker_unit = True
    done = told(node.run(docker="auto", docker_packages=["docker.io"]))
    assert done[-1] == "unit docker.service start"
    assert node.log() == ["apt-get install docker.io nvidia-container-toolkit", "systemctl start docker.service"]
    assert told(node.run(docker="auto", docker_packages=["docker.io"])) == []


def test_settings_that_a_package_brings_stay(node: Node) -> None:
    node.write("available", "containerd.io|1.7.27-1\nnvidia-container-toolkit|1.17.8-1\n")
    node.write("brings/containerd.io/etc/containerd/config.toml", 'disabled_plugins = ["cri"]\n')
    node.write("brings/containerd.io/etc/docker/daemon.json", '{"debug": true}\n')
    wish = {"docker": "always", "containerd": True, "docker_packages": ["containerd.io"]}
    assert "file config.toml content" in told(node.run(**wish))
    config = (node.root / "etc/containerd/config.toml").read_text()
    assert config.startswith('disabled_plugins = ["cri"]\nimports = [')
    assert "version = 1\n" in (node.root / "etc/containerd/conf.d/99-nvidia.toml").read_text()
    assert node.daemon()["debug"] is True
    assert node.daemon()["default-runtime"] == "nvidia"
    assert told(node.run(**wish)) == []
    assert told(node.run(**wish, state="verified")) == []


def test_docker_that_its_package_starts_is_restarted_for_its_data_root(node: Node) -> None:
    node.docker_unit = True
    node.write("starts", "docker.service\n")
    done = told(node.run(docker_packages=["docker.io"], docker_data_root="/mnt/docker"))
    assert done[-1] == "unit docker.service restart"
    assert node.log()[-1] == "systemctl restart docker.service"
    assert told(node.run(docker_packages=["docker.io"], docker_data_root="/mnt/docker")) == []


def test_containerd_is_restarted_for_its_part(node: Node) -> None:
    node.write("active", "containerd.service\n")
    node.write("etc/containerd/config.toml", 'version = 2\n[grpc]\n  address = "/run/x.sock"\n')
    done = told(node.run(docker="never", containerd=True))
    assert done[-3:] == ["file config.toml content", "file 99-nvidia.toml create", "unit containerd.service restart"]
    assert node.log()[-1] == "systemctl restart containerd.service"
    assert told(node.run(docker="never", containerd=True)) == []
    assert told(node.run(docker="never", containerd=True, state="verified")) == []


@NEEDS_CONTAINERD
def test_containerd_is_not_restarted_with_settings_that_it_refuses(node: Node, tmp_path: pathlib.Path) -> None:
    (tmp_path / "bin" / "containerd").symlink_to(CONTAINERD)
    node.write("active", "containerd.service\n")
    node.write("etc/containerd/conf.d/10-site.toml", "root = two\n")
    result = node.run(toolkit=False, docker="never", containerd=True)
    assert result["error_kind"] == "containerd_config"
    for said in ("containerd refuses its settings: ", "10-site.toml", "It was not restarted"):
        assert said in result["msg"]
    assert node.log() == []
    # A containerd that is started for another reason starts.
    assert sorted(path.name for path in (node.root / "etc/containerd").rglob("*.toml")) == ["10-site.toml"]
    node.write("etc/containerd/conf.d/10-site.toml", "version = 2\n")
    done = told(node.run(toolkit=False, docker="never", containerd=True))
    assert done == ["file config.toml create", "file 99-nvidia.toml create", "unit containerd.service restart"]
    assert told(node.run(toolkit=False, docker="never", containerd=True, state="verified")) == []


@pytest.mark.parametrize("state", ["present", "verified"])
@pytest.mark.parametrize("name", ["config.toml", "conf.d/10-site.toml", "conf.d/99-zz.toml"])
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_changed(node: Node, name: str, state: str) -> None:
    node.write(f"etc/containerd/{name}", "version = 2\n[plugins\n")
    before = {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()}
    result = node.run(docker="never", containerd=True, state=state)
    assert result["error_kind"] == "containerd_config"
    assert f"{node.root}/etc/containerd/{name} does not read like TOML: ] is missing (line 2)." in result["msg"]
    assert {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()} == before


CRI_TABLE = '[plugins."io.containerd.grpc.v1.cri"]'
# What was not read before our part was imported takes the place of the site's section, or is refused.
PARTS = {
    "another section": f'version = 2\n{CRI_TABLE}\ncontainerd.snapshotter = "native"\n',
    "a wrong value": 'version = 2\n[grpc]\nuid = "seven"\n',
}


@NEEDS_CONTAINERD
@pytest.mark.parametrize("part", PARTS)
def test_a_containerd_that_would_lose_settings_or_refuse_ours_keeps_its_own(
    node: Node, tmp_path: pathlib.Path, part: str
) -> None:
    """Settings of a site were gone after the restart, or containerd would not have come back after the next boot."""
    config = f'version = 2\n{CRI_TABLE}\nsandbox_image = "site/pause:1"\n'
    (tmp_path / "bin" / "containerd").symlink_to(CONTAINERD)
    node.write("active", "containerd.service\n")
    node.write("etc/containerd/config.toml", config)
    node.write("etc/containerd/conf.d/10-site.toml", PARTS[part])
    for _run in range(2):
        result = node.run(toolkit=False, docker="never", containerd=True)
        assert result["error_kind"] == "containerd_config"
        assert "Its files are again as they were" in result["msg"]
        assert (node.root / "etc/containerd/config.toml").read_text() == config
        left = sorted(path.name for path in (node.root / "etc/containerd").rglob("*.toml"))
        assert left == ["10-site.toml", "config.toml"]
    assert node.log() == []


@NEEDS_CONTAINERD
def test_what_a_site_changes_later_is_carried_over(node: Node, tmp_path: pathlib.Path) -> None:
    (tmp_path / "bin" / "containerd").symlink_to(CONTAINERD)
    node.write("etc/containerd/config.toml", SITE)
    wish: dict[str, t.Any] = {"toolkit": False, "docker": "never", "containerd": True}
    node.run(**wish)
    config = node.root / "etc/containerd/config.toml"
    config.write_text(config.read_text().replace("pause:3.9", "pause:3.10"))
    assert told(node.run(**wish)) == ["file 99-nvidia.toml content"]
    assert told(node.run(**wish, state="verified")) == []


@NEEDS_CONTAINERD
@pytest.mark.parametrize("check", [True, False])
def test_settings_that_containerd_refuses_already_are_not_written_to(
    node: Node, tmp_path: pathlib.Path, check: bool
) -> None:
    (tmp_path / "bin" / "containerd").symlink_to(CONTAINERD)
    node.write("etc/containerd/config.toml", PARTS["a wrong value"])
    result = node.run(docker="always", containerd=True, check=check)
    assert result["error_kind"] == "containerd_config"
    assert "refuses its settings as they are: " in result["msg"]
    assert (node.root / "etc/containerd/config.toml").read_text() == PARTS["a wrong value"]
    assert (node.log(), (node.root / "etc/docker").exists()) == ([], False)


@pytest.mark.newest
def test_what_only_root_may_read_only_root_may_read_afterwards(node: Node) -> None:
    """A registry's password stands in containerd's settings, and with containerd 1 in our part as well: everybody could read both."""
    node.write("etc/containerd/config.toml", f'{SITE}# s3cret\n[plugins."{CRI}".registry.headers]\nX = ["s3cret"]\n')
    node.write("etc/docker/daemon.json", '{"http-proxy": "http://user:s3cret@proxy"}')
    files = [node.root / "etc" / name for name in ("containerd/config.toml", "docker/daemon.json")]
    for file in files:
        file.chmod(0o640)
    done = node.run(docker="always", containerd=True)
    told(done)
    part = node.root / "etc/containerd/conf.d/99-nvidia.toml"
    assert "s3cret" in part.read_text()
    assert [file.stat().st_mode & 0o777 for file in (*files, part)] == [0o640, 0o640, 0o600]
    assert "s3cret" not in json.dumps(done)
    assert told(node.run(docker="always", containerd=True)) == []
    gone = node.run(state="absent")
    told(gone)
    assert "s3cret" not in json.dumps(gone)
    assert files[1].stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("check", [True, False])
def test_settings_that_docker_would_not_start_with_are_not_written(
    node: Node, tmp_path: pathlib.Path, check: bool
) -> None:
    """A word that Docker does not know took Docker down, and all containers with it."""
    (tmp_path / "bin" / "dockerd").symlink_to("docker")
    node.write("active", "docker.service\n")
    result = node.run(docker="always", docker_settings={"no-such-key": 1}, check=check)
    assert result["error_kind"] == "docker_config"
    assert f"with file {settings.DAEMON_JSON}: the following directives don't match" in result["msg"]
    assert (node.log(), (node.root / "etc").exists()) == ([], False)
    assert "file daemon.json create" in told(node.run(docker="always", check=check))


def test_an_older_docker_that_does_not_start_with_its_settings_gets_the_former(
    node: Node, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "bin" / "dockerd").symlink_to("docker")
    node.write("old", "")
    node.write("active", "docker.service\n")
    node.write("etc/docker/daemon.json", '{"debug": true}')
    result = node.run(toolkit=False, docker="always", docker_settings={"no-such-key": 1})
    assert result["error_kind"] == "docker_config"
    assert "new settings: unable to configure: no-such-key. " in result["msg"]
    assert (node.root / "etc/docker/daemon.json").read_text() == '{"debug": true}'
    assert node.log() == ["systemctl restart docker.service"] * 2
    assert told(node.run(toolkit=False, docker="always")) == []


def test_a_docker_that_was_started_often_just_now_is_restarted_all_the_same(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.write("limit", "")
    assert told(node.run(docker="always", docker_data_root="/mnt/docker"))[-1] == "unit docker.service restart"
    node.write("limit", "")
    node.write("active", "")
    node.docker_unit = True
    again = node.run(docker="always", docker_data_root="/mnt/docker", docker_packages=["docker.io"])
    assert told(again)[-1] == "unit docker.service start"


def test_a_docker_that_another_run_restarts_meanwhile_is_looked_at_in_the_next(node: Node) -> None:
    """It was not active just then, and may have read its settings before they were written: this run wrote that it had read them."""
    node.run(docker="always")
    node.write("active", "docker.service\n")
    assert told(node.run(docker="always")) == ["unit docker.service reload"]
    assert told(node.run(docker="always")) == []


def test_a_part_that_is_read_after_ours_is_named(node: Node) -> None:
    node.write("etc/containerd/config.toml", "version = 2\n")
    node.write("etc/containerd/conf.d/99-zz.toml", SITE)
    node.run(toolkit=False, docker="never", containerd=True)
    said = node.run(toolkit=False, docker="never", containerd=True, state="verified")["msg"]
    assert (
        f"with nvidia: it reads {node.root}/etc/containerd/conf.d/99-zz.toml after {settings.CONTAINERD_PART}." in said
    )
    (node.root / "etc/containerd/conf.d/99-zz.toml").rename(node.root / "etc/containerd/conf.d/20-site.toml")
    node.run(toolkit=False, docker="never", containerd=True)
    assert told(node.run(toolkit=False, docker="never", containerd=True, state="verified")) == []


def test_line_ends_of_others_stay(node: Node) -> None:
    node.write("active", "containerd.service\n")
    config = node.root / "etc/containerd/config.toml"
    config.parent.mkdir(parents=True)
    config.write_bytes(b"version = 2\r\n\r\n[grpc]\r\n  uid = 0\r\n")
    node.run(docker="never", containerd=True)
    assert config.read_bytes().endswith(b"\n[grpc]\r\n  uid = 0\r\n")
    config.write_bytes(config.read_bytes().replace(b"\r", b"").replace(b"\n", b"\r\n"))
    node.log()
    assert told(node.run(docker="never", containerd=True)) == []
    assert node.log() == []


@pytest.mark.newest
def test_a_remark_in_another_encoding_stays(node: Node) -> None:
    config = node.root / "etc/containerd/config.toml"
    config.parent.mkdir(parents=True)
    config.write_bytes(b"# caf\xe9\nversion = 2\n")
    result = node.run(docker="never", containerd=True)
    assert "file config.toml content" in told(result)
    assert config.read_bytes().startswith(b"# caf\xe9\nversion = 2\nimports = [")
    assert json.dumps(result["diff"], ensure_ascii=False).encode("utf-8")
    assert told(node.run(docker="never", containerd=True)) == []


def test_enroot_and_pyxis_get_their_files(node: Node) -> None:
    directory = node.root / "scratch"
    wish = {
        "toolkit": False,
        "docker": "never",
        "enroot": True,
        "enroot_packages": [],
        "enroot_directory": str(directory),
    }
    wish |= {"pyxis": True, "pyxis_packages": []}
    node.run(**wish)
    assert {path.name: path.stat().st_mode & 0o7777 for path in directory.iterdir()} == {
        "cache": 0o1777,
        "data": 0o1777,
        "temporary": 0o1777,
    }
    assert "required spank_pyxis.so" in (node.root / "etc/slurm/plugstack.conf.d/pyxis.conf").read_text()
    assert told(node.run(**wish)) == []
    assert node.log() == []


@pytest.mark.newest
def test_everything_that_is_wrong_is_said_at_once(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.write("runtime", "runc\n")
    wish = {"docker": "always", "containerd": True, "enroot": True, "state": "verified"}
    result = node.run(**wish)
    assert result["error_kind"] == "runtime_wrong"
    for said in (
        "nvidia-container-toolkit is not installed",
        "enroot is not installed",
        "daemon.json lacks settings",
        "99-nvidia.toml is not",
        "50-scratch.fstab is not",
        "runs containers with runc, not with nvidia",
    ):
        assert said in result["msg"]
    node.write("installed", "nvidia-container-toolkit|1.16.0-1\n")
    assert "is 1.16.0-1, wanted is 1.17.8" in node.run(toolkit_version="1.17.8", **wish)["msg"]
    assert node.log() == []


@pytest.mark.newest
def test_what_is_ours_goes_and_the_rest_stays(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.write("etc/docker/daemon.json", '{"debug": true}')
    node.write("etc/enroot/enroot.conf", "# theirs\n")
    node.run(docker="always", containerd=True)
    node.log()
    planned = told(node.run(state="absent", check=True))
    assert node.log() == []
    assert told(node.run(state="absent")) == planned
    assert planned == [
        "absent 99-nvidia.toml remove file",
        "absent sources remove file",
        "file daemon.json content",
        "unit docker.service reload",
        "package nvidia-container-toolkit remove",
    ]
    assert node.log() == ["systemctl reload docker.service", "apt-get purge nvidia-container-toolkit"]
    assert node.daemon() == {"debug": True, "default-runtime": "runc"}
    assert (node.root / "etc/enroot/enroot.conf").read_text() == "# theirs\n"
    assert told(node.run(state="absent")) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("docker_data_root", "docker"),
        ("docker_data_root", "/mnt/a\nb"),
        ("enroot_directory", "/mnt/a\nENROOT_ROOTFS_WRITABLE yes"),
        ("enroot_directory", "/mnt/$(reboot)"),
        # Packages were installed by then.
        ("enroot_directory", "/mnt/enroot/"),
        ("enroot_directory", "/"),
        ("scratch", "/mnt/a b"),
        ("scratch", "/mnt/a\n/etc /etc none bind"),
        ("scratch_target", "/../etc"),
        ("scratch_target", ""),
        ("pyxis_library", "spank_pyxis.so\nrequired /tmp/other.so"),
        ("pyxis_library", ""),
    ],
)
def test_what_would_become_another_setting_is_refused(node: Node, name: str, value: str) -> None:
    """enroot's and Slurm's files are lines of words: a blank or a new line in a value made another mount, or another plugin."""
    wish = {
        "toolkit": False,
        "docker": "always",
        "enroot": True,
        "enroot_packages": [],
        "pyxis": True,
        "pyxis_packages": [],
    }
    refused = node.run(**{**wish, name: value})
    assert (refused["error_kind"], f"`{name}`" in refused["msg"]) == ("bad_input", True)
    assert not (node.root / "etc").exists()


def test_what_a_site_has_set_for_enroot_stays(node: Node) -> None:
    """The whole file was overwritten, and gone after a removal."""
    theirs = "#ENROOT_LIBRARY_PATH /usr/lib/enroot\n\nENROOT_MOUNT_HOME yes\n"
    node.write("etc/enroot/enroot.conf", f"{theirs}ENROOT_DATA_PATH /home/enroot\n")
    wish = {
        "toolkit": False,
        "docker": "never",
        "enroot": True,
        "enroot_packages": [],
        "enroot_directory": str(node.root / "scratch"),
    }
    node.run(**wish)
    written = (node.root / "etc/enroot/enroot.conf").read_text()
    assert written.endswith(f"\n\n{theirs}")
    assert written.count("ENROOT_DATA_PATH") == 1
    assert told(node.run(**wish)) == []
    assert told(node.run(**wish, state="verified")) == []
    node.run(state="absent")
    assert (node.root / "etc/enroot/enroot.conf").read_text() == theirs
    assert told(node.run(state="absent")) == []


def test_files_of_others_that_have_the_same_names_stay(node: Node) -> None:
    """nvidia-ctk writes 99-nvidia.toml, NVIDIA's guide the toolkit's repository, a site its mounts; the role was for Docker only."""
    theirs = {
        "etc/containerd/conf.d/99-nvidia.toml": "version = 2\n",
        "etc/enroot/mounts.d/50-scratch.fstab": "/lustre /lustre none bind\n",
        "etc/slurm/plugstack.conf.d/pyxis.conf": "required /opt/site/pyxis.so\n",
        "etc/repo": "[nvidia-container-toolkit]\n",
        "etc/rpm.key": "theirs\n",
    }
    for name, text in theirs.items():
        node.write(name, text)
    node.run(docker="always")
    node.log()
    assert not [said for said in told(node.run(state="absent")) if said.startswith("absent ") and "sources" not in said]
    assert {name: (node.root / name).read_text() for name in theirs} == theirs


def test_a_unit_that_does_not_take_its_settings_is_an_error(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.write("refuse", "")
    result = node.run(docker="always")
    assert result["error_kind"] == "systemctl_failed"
    assert "`systemctl reload docker.service` failed: Job failed" in result["msg"]


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"docker": "always", "docker_data_root": "/mnt/docker"}, "restart docker.service"),
        ({"docker": "always"}, "reload docker.service"),
        ({"docker": "never", "containerd": True}, "restart containerd.service"),
    ],
)
def test_a_daemon_that_a_killed_run_left_with_older_settings_reads_them_in_the_next(
    node: Node, options: dict[str, t.Any], words: str
) -> None:
    node.write("active", "docker.service\ncontainerd.service\n")
    node.killed(words, **options)
    node.log()
    verb, unit = words.split()
    assert f"{unit} has not read its settings" in node.run(**options, state="verified")["msg"]
    planned = told(node.run(**options, check=True))
    assert planned == [f"unit {unit} {verb}"]
    assert told(node.run(**options)) == planned
    assert node.log() == [f"systemctl {words}"]
    assert told(node.run(**options)) == []
    assert told(node.run(**options, state="verified")) == []


def test_a_restart_that_a_killed_run_left_needs_the_same_consent_unless_somebody_did_it(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.write("containers", "c0ffee\n")
    wish = {"docker": "always", "docker_data_root": "/mnt/docker"}
    node.killed("restart docker.service", **wish, allow_restart=True)
    node.log()
    refused = node.run(**wish)
    assert refused["error_kind"] == "consent_missing"
    assert told(node.run(**wish, docker_packages=[], state="present", phases=["install"])) == []
    # One that does not ask for Docker has nothing to restart.
    assert told(node.run(docker="never")) == []
    assert node.log() == []
    subprocess.run(["systemctl", "restart", "docker.service"], check=True)
    assert told(node.run(**wish)) == []
    assert told(node.run(**wish, state="verified")) == []


def test_what_was_installed_without_services_is_read_with_the_next_configure(node: Node) -> None:
    node.write("active", "docker.service\n")
    wish = {"docker": "always", "docker_data_root": "/mnt/docker"}
    node.run(**wish, phases=["install"])
    assert node.log() == ["apt-get install nvidia-container-toolkit"]
    assert told(node.run(**wish)) == ["unit docker.service restart"]
    assert told(node.run(**wish)) == []


def test_a_restart_that_failed_is_tried_again(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.write("refuse", "")
    wish = {"docker": "always", "docker_data_root": "/mnt/docker"}
    assert node.run(**wish)["error_kind"] == "systemctl_failed"
    (node.root / "refuse").unlink()
    assert told(node.run(**wish)) == ["file daemon.json create", "unit docker.service restart"]
    assert told(node.run(**wish)) == []


def test_a_removal_that_was_killed_lets_docker_forget_the_runtime_in_the_next(node: Node) -> None:
    node.write("active", "docker.service\n")
    node.run(docker="always")
    node.killed("reload docker.service", state="absent")
    node.log()
    assert told(node.run(state="absent"))[0] == "unit docker.service reload"
    assert told(node.run(state="absent")) == []


def test_a_removal_that_the_apt_of_a_killed_run_has_ended_meanwhile_has_worked(node: Node) -> None:
    """apt waits for the other one's lock, and finds neither the packages nor, as their lists are gone, their names."""
    node.run(docker="never")
    node.write("meanwhile", "")
    assert "package nvidia-container-toolkit remove" in told(node.run(state="absent"))
    assert told(node.run(state="absent")) == []


def test_what_slurm_and_containerd_read_is_verified_too(node: Node) -> None:
    directory = node.root / "scratch"
    node.write("etc/containerd/config.toml", "version = 2\n")
    wish = {"toolkit": False, "docker": "never", "containerd": True, "pyxis": True, "pyxis_packages": []}
    wish |= {"enroot": True, "enroot_packages": [], "enroot_directory": str(directory)}
    node.run(**wish)
    assert told(node.run(**wish, state="verified")) == []
    node.write("etc/slurm/plugstack.conf.d/pyxis.conf", "required other.so\n")
    node.write("etc/containerd/config.toml", "version = 2\n")
    (directory / "cache").chmod(0o755)
    (directory / "data").rmdir()
    said = node.run(**wish, state="verified")["msg"]
    assert "pyxis.conf is not" in said
    assert f"{node.root}/etc/containerd/config.toml does not import" in said
    assert f"{directory}/cache has mode 0755, wanted is 1777" in said
    assert f"{directory}/data is missing" in said


def test_containerd_forgets_the_runtime_that_goes(node: Node) -> None:
    node.write("active", "containerd.service\n")
    node.run(docker="never", containerd=True)
    node.log()
    assert "unit containerd.service restart" in told(node.run(state="absent"))
    assert node.log() == ["systemctl restart containerd.service", "apt-get purge nvidia-container-toolkit"]


CONTAINERD_ALONE = {"toolkit": False, "docker": "never", "containerd": True}
PLACES = {
    "etc/docker/daemon.json": {"docker": "always"},
    "etc/containerd/config.toml": CONTAINERD_ALONE,
    "etc/containerd/conf.d/10-site.toml": CONTAINERD_ALONE,
    "etc/containerd/conf.d/99-nvidia.toml": CONTAINERD_ALONE,
    "etc/enroot/enroot.conf": {"docker": "never", "enroot": True, "enroot_packages": [], "enroot_directory": "/data"},
}


@pytest.mark.parametrize("state", ["present", "verified"])
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device", "socket", "directory"])
@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_file_is_named_at_once_and_nothing_is_changed(node: Node, name: str, kind: str, state: str) -> None:
    path = node.root / name
    path.parent.mkdir(parents=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "link to a pipe":
        os.mkfifo(node.root / "pipe")
        path.symlink_to(node.root / "pipe")
    elif kind == "device":
        # Where a test may not make one of its own.
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        os.mknod(path, 0o600 | stat.S_IFSOCK)
    else:
        os.mkfifo(path)
    before = sorted(node.root.rglob("*"))
    with within(10):
        result = node.run(**PLACES[name], state=state)
    assert (result["failed"], result.get("error_kind")) == (True, "in_the_way"), result
    word = "directory" if kind == "directory" else "pipe, a socket or a device"
    assert f"{path} should be a file with settings, but is a {word}" in result["msg"]
    assert (node.log(), sorted(node.root.rglob("*"))) == ([], before)


def test_what_nobody_asked_for_is_not_looked_at(node: Node) -> None:
    for name in ("etc/docker/daemon.json", "etc/containerd/config.toml", "etc/enroot/enroot.conf"):
        (node.root / name).parent.mkdir(parents=True)
        os.mkfifo(node.root / name)
    with within(10):
        assert not node.run(docker="never")["failed"]


def test_a_removal_leaves_what_is_no_file(node: Node) -> None:
    node.run(docker="never")
    node.write("etc/enroot/mounts.d/keep", "")
    os.mkfifo(node.root / "etc/enroot/enroot.conf")
    with within(10):
        assert "file enroot.conf remove" not in told(node.run(state="absent"))
    assert (node.root / "etc/enroot/enroot.conf").is_fifo()


@pytest.mark.parametrize("earlier", ["", "{}", '{"debug": true}'])
def test_a_proxy_s_password_is_its_owner_s_alone_and_shows_in_no_diff(node: Node, earlier: str) -> None:
    place = node.root / "etc/docker/daemon.json"
    if earlier:
        node.write("etc/docker/daemon.json", earlier)
        place.chmod(0o644)
    proxy = {"proxies": {"http-proxy": "http://hpc:S3cret@proxy:3128"}}
    planned = node.run(check=True, docker="always", docker_settings=proxy)
    result = node.run(docker="always", docker_settings=proxy)
    for seen in (planned, result):
        assert str(place) in str(seen["changes"])
        assert "S3cret" not in str({key: seen[key] for key in ("changes", "diff")})
    assert node.daemon()["proxies"] == proxy["proxies"]
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert node.run(docker="always", docker_settings=proxy)["changed"] is False
    # What goes away is not shown either.
    gone = node.run(docker="always", docker_settings={"proxies": {"http-proxy": "http://proxy:3128"}})
    assert (gone["changed"], "S3cret" in str(gone["diff"])) == (True, False)
