# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes made of namespaces with the lab's double of BeeOND, and the module as Ansible sends it."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import typing as t

import ansible

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOUBLE = ROOT / "tests/lab/beeond"
DATA, POINT = "/scratch/beeond", "/mnt/beeond"
STATUS = "/run/hpcai_beeond/1000.status"
RUN = """
import json, sys
sys.path.insert(0, "/common/lib.zip")
from ansible.module_utils.testing import patch_module_args
from ansible_collections.hpcai.gpu_cluster.plugins.modules import beeond
with patch_module_args(json.loads(sys.argv[1])):
    beeond.main()
"""
# As the double's, but what comes through ssh's standard input is the program.
SSH = """#!/bin/bash
input=/dev/stdin
while [[ $1 == -* ]]; do [[ $1 != -n && $1 != *n ]] || input=/dev/null; [[ $1 != -o ]] || shift; shift; done
host=$1; shift
while read -r name number; do [[ $name != "$host" ]] || pid=$number; done < /etc/ssh-nodes
[[ -n $pid && -d /proc/$pid/ns ]] || { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
exec nsenter -t "$pid" -m -u -r -w env -i HOME=/root USER=root SHELL=/bin/bash PATH=@PATH@ /bin/bash -c "$*" < $input
"""

sys.path.insert(0, str(DOUBLE))
import small_nodes as small


def put_library(place: pathlib.Path) -> None:
    """What a module needs on a node, as one archive, as Ansible sends it."""
    core = pathlib.Path(ansible.__file__).parent
    (place / "ansible").mkdir(parents=True)
    # As in the archive: the controller's own file imports what nodes do not have.
    (place / "ansible/__init__.py").write_text("", encoding="utf-8")
    shutil.copy(core / "release.py", place / "ansible/release.py")
    shutil.copytree(core / "module_utils", place / "ansible/module_utils", ignore=shutil.ignore_patterns("__pycache__"))
    plugins = place / "ansible_collections/hpcai/gpu_cluster/plugins"
    for name in ("module_utils/_beeond", "module_utils/_host"):
        shutil.copytree(ROOT / "plugins" / name, plugins / name, ignore=shutil.ignore_patterns("__pycache__"))
    (plugins / "modules").mkdir()
    shutil.copy(ROOT / "plugins/module_utils/_errors.py", plugins / "module_utils/_errors.py")
    shutil.copy(ROOT / "plugins/modules/beeond.py", plugins / "modules/beeond.py")
    shutil.make_archive(str(place), "zip", place)


class Cluster:
    """Two nodes with the double, whose scratch is a file system of its own."""

    def __init__(self, nodes: small.Nodes, version: str) -> None:
        self.nodes, self.major = nodes, int(version[0])
        put_library(nodes.place / "common/lib")
        (nodes.place / "common/run.py").write_text(RUN, encoding="utf-8")
        for name in nodes.names:
            root = nodes.root(name)
            done = subprocess.run(
                [sys.executable, DOUBLE / "install.py", "--root", root, "--version", version, "--pdsh",
                 "--address", nodes.address(name)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert done.stdout == "installed\n"
            (root / "usr/bin/ssh").write_text(SSH.replace("@PATH@", small.PATH), encoding="utf-8")
            nodes.shell(name, "mkdir -p /scratch && mount -t tmpfs scratch /scratch")
            if self.major == 7:
                nodes.shell(name, "echo 'connDisableAuthentication = true' >> /etc/beegfs/beegfs-client.conf")

    def fault(self, name: str, *words: str) -> str:
        script = self.nodes.root(name) / "root/fault.py"
        script.write_bytes((DOUBLE / "fault.py").read_bytes())
        return self.nodes.shell(name, f"/usr/bin/python3 /root/fault.py {' '.join(words)}")

    def words(self, state: str = "started", **options: t.Any) -> list[str]:
        """What runs the module on a node."""
        wanted = {
            "state": state, "nodes": self.nodes.names, "storage_path": "/scratch", "mount_point": POINT, "timeout_s": 200, **options
        }  # fmt: skip
        return ["/usr/bin/python3", "/common/run.py", json.dumps(wanted)]

    def module(self, state: str = "started", **options: t.Any) -> t.Any:
        done = self.nodes.run("node-1", *self.words(state, **options), timeout_s=600)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def there(self, name: str) -> set[str]:
        """What is on a node of a session."""
        script = (
            f"grep -q ' {POINT} ' /proc/mounts && echo mount; test -e {STATUS} && echo status; "
            f"test -e {DATA} && echo data; ls /run/beegfs-*.pid 2>/dev/null; true"
        )
        return set(self.nodes.shell(name, script).split())
