# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry point install of cluster_ssh with the real apt and dpkg, which work in a directory and with a repository of ours."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PYTHON = "/usr/bin/python3"
CONTROL = (
    "Package: openssh-client\nVersion: 1\nArchitecture: all\nMaintainer: lab\nDescription: stands for the ssh client\n"
)


def knows_apt() -> bool:
    """Whether this machine has what Ansible's module for apt needs."""
    done = (
        subprocess.run([PYTHON, "-c", "import apt"], capture_output=True, check=False)
        if shutil.which("dpkg-deb")
        else None
    )
    return done is not None and done.returncode == 0 and os.geteuid() == 0


pytestmark = pytest.mark.skipif(not knows_apt(), reason="needs root, apt and its Python library")


class Node:
    """A root directory with dpkg's database in it, no lists of packages, and a repository that has the client."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory, self.dpkg = directory, directory / "root/var/lib/dpkg"
        for path in ("state/lists/partial", "cache/archives/partial", "log", "repository", "package/DEBIAN", "none"):
            (directory / path).mkdir(parents=True)
        for path in ("info", "updates", "triggers"):
            (self.dpkg / path).mkdir(parents=True)
        (self.dpkg / "status").write_text("")
        self._publish()
        (directory / "sources.list").write_text(f"deb [trusted=yes] file:{directory}/repository ./\n")
        (directory / "apt.conf").write_text(
            f'Dir::State "{directory}/state";\nDir::State::status "{self.dpkg}/status";\nDir::Cache "{directory}/cache";\n'
            f'Dir::Log "{directory}/log";\nDir::Etc::sourcelist "{directory}/sources.list";\n'
            f'Dir::Etc::sourceparts "{directory}/none";\nDPkg::Options {{ "--root={directory}/root"; }};\n'
            'DPkg::Post-Invoke "";\n#clear DPkg::Post-Invoke;\n#clear DPkg::Pre-Install-Pkgs;\n#clear APT::Update::Post-Invoke;\n'
            "#clear APT::Update::Post-Invoke-Success;\nAPT::Sandbox::User \"root\";\n"
        )  # fmt: skip

    def _publish(self) -> None:
        (self.directory / "package/DEBIAN/control").write_text(CONTROL)
        deb = self.directory / "repository/openssh-client.deb"
        subprocess.run(["dpkg-deb", "--build", self.directory / "package", deb], check=True, capture_output=True)
        data = deb.read_bytes()
        more = f"Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        (self.directory / "repository/Packages").write_text(CONTROL + more)

    def install(self, *argv: str) -> tuple[dict[str, int], str]:
        """Run the entry point; returns the node's counts, and all that was said."""
        role = {"ansible.builtin.include_role": {"name": str(ROOT / "roles/cluster_ssh"), "tasks_from": "install"}}
        play = [{"hosts": "all", "gather_facts": False, "tasks": [role]}]
        (self.directory / "play.yml").write_text(json.dumps(play))
        local = f"node ansible_connection=local ansible_python_interpreter={PYTHON}\n"
        (self.directory / "hosts").write_text(local)
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            # Newer cores leave it out.
            "ANSIBLE_INJECT_INVOCATION": "1",
            "APT_CONFIG": str(self.directory / "apt.conf"),
        }
        done = subprocess.run(
            [program, *argv, "-i", self.directory / "hosts", self.directory / "play.yml"],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        recap = done.stdout.rpartition("PLAY RECAP")[2].split(":", 1)[1]
        return {name: int(count) for name, count in (word.split("=") for word in recap.split())}, done.stdout


@pytest.mark.slow
def test_the_client_is_installed_on_a_node_without_lists_of_packages(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    assert node.install("--check")[0]["failed"] == 0
    assert (node.dpkg / "status").read_text() == ""
    counts, _said = node.install()
    assert (counts["changed"], counts["rescued"], counts["failed"]) == (1, 1, 0)
    assert "Package: openssh-client\nStatus: install ok installed" in (node.dpkg / "status").read_text()


@pytest.mark.slow
@pytest.mark.newest
def test_nothing_is_fetched_where_the_client_is_there(tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path)
    (node.dpkg / "status").write_text(CONTROL.replace("\n", "\nStatus: install ok installed\n", 1))
    counts, said = node.install("-vvv")
    # To import the role, to check its variables, to learn the package manager, and to look for the package.
    assert (counts["ok"], counts["changed"], counts["rescued"]) == (4, 0, 0)
    assert not list((tmp_path / "state/lists").glob("*Packages"))
    # How long apt waits for another program that installs, which a test would have to wait for, too.
    assert re.search(r'"?lock_timeout"?: 300\b', said)
