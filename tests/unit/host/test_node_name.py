# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two nodes that share directories: this one, and a process with a host name of its own (a UTS namespace)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.share import private_directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.node_name import node_digest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a host name of its own takes root")

_PACKAGES = "ansible_collections.hpcai.gpu_cluster.plugins.module_utils"
RANK = f"from {_PACKAGES}._dataset.rank import _only_worker\nheld = _only_worker(sys.argv[1], '/data', 0)"
SHARE = f"from {_PACKAGES}._azcopy.share import private_directory\nheld = private_directory(sys.argv[1], 'share')"


@contextlib.contextmanager
def held_elsewhere(what: str, directory: pathlib.Path, name: str = "gpu-2") -> t.Iterator[subprocess.Popen[str]]:
    """Another node holds it."""
    program = f"import sys, time\n{what}\nwith held:\n    print('held', flush=True)\n    time.sleep(600)\n"
    argv = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name]
    argv += [sys.executable, "-c", program, str(directory)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as node:
        try:
            assert node.stdout is not None
            assert node.stdout.readline() == "held\n"
            yield node
        finally:
            node.kill()


def test_a_worker_of_another_node_is_neither_waited_for_nor_told_to_stop(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `scope: local` all nodes have rank 0 and the same destination; a number of its process means another one here."""
    monkeypatch.setattr(rank, "_STOP_OLD_WORKER_S", 0.0)
    with held_elsewhere(RANK, tmp_path) as node, rank._only_worker(str(tmp_path), "/data", 0):
        assert node.poll() is None


def test_the_same_copy_may_run_on_two_nodes_that_share_a_home(tmp_path: pathlib.Path) -> None:
    with held_elsewhere(SHARE, tmp_path) as node, private_directory(str(tmp_path), "share") as own:
        assert node.poll() is None
        others = [path for path in tmp_path.iterdir() if str(path) != own]
        assert len(others) == 1, "plans of a running AzCopy would be taken for leftovers of one that was killed"


def test_the_same_copy_does_not_run_twice_on_one_node(tmp_path: pathlib.Path) -> None:
    here = os.uname().nodename
    with held_elsewhere(SHARE, tmp_path, here):
        refused = pytest.raises(ClusterError, match="already running on this node")
        with refused, private_directory(str(tmp_path), "share"):
            pass


def test_names_differ_from_node_to_node_and_stay_on_one() -> None:
    argv = ["unshare", "--uts", "sh", "-c", 'hostname gpu-2; exec "$@"', "-", sys.executable, "-c"]
    argv.append(f"from {_PACKAGES}._host.node_name import node_digest\nprint(node_digest('a'))")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run(argv, stdout=subprocess.PIPE, text=True, env=environment, check=True).stdout.strip()
    assert len(there) == 16
    assert node_digest("a") == node_digest("a") != there
    assert node_digest("a") != node_digest("b")


def test_the_directory_for_all_copies_is_as_private_as_that_of_one(tmp_path: pathlib.Path) -> None:
    """`upload` made /var/log/azcopy with 0755, which the role's `install` makes with 0700."""
    with private_directory(str(tmp_path / "log"), "share") as own:
        assert [path.stat().st_mode & 0o777 for path in (tmp_path / "log", pathlib.Path(own))] == [0o700, 0o700]
