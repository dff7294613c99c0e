# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks of a staging run as processes of this machine, each behind a network interface of its own.

A rank lives in a network namespace whose veth pair is limited by ``tc tbf`` in both directions, as a NIC would be. The shared
file system is a directory of this machine, so that only the network and the code are measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import subprocess
import sys
import time
import traceback
import typing as t
from pathlib import Path

from _report import AZCOPY  # also makes the collection importable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.prepare import prepare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.rank import run_rank
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan, dataset_stage

_PREFIX = "hpcb"
_NETWORK = "10.222"
#: tbf counts Ethernet frames. This much more lets the stated rate of payload through (1448 of 1514 bytes per frame).
_FRAME = 1514 / 1448
#: Anything that looks like a SAS: the benchmark's server asks for none.
_SAS = "sv=2021-12-02&sp=rl&sig=none"


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def network(rates_mbit: t.Sequence[int]) -> t.Iterator[str]:
    """One namespace per rank, limited to its rate. Yields the address at which the ranks see this process.

    From here on this process has a network of its own: nothing clashes with other benchmarks, and nothing outlives it.
    """
    if os.geteuid() != 0:
        sys.exit("This benchmark makes network namespaces: run it as root.")
    _leave_network()
    with contextlib.ExitStack() as stack:
        _run("ip", "link", "add", f"{_PREFIX}0", "type", "bridge")
        stack.callback(_run, "ip", "link", "del", f"{_PREFIX}0")
        _run("ip", "addr", "add", f"{_NETWORK}.0.1/16", "dev", f"{_PREFIX}0")
        _run("ip", "link", "set", f"{_PREFIX}0", "up")
        for rank, rate in enumerate(rates_mbit):
            name, outside = f"{_PREFIX}-{rank}", f"{_PREFIX}v{rank}"
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", outside, "master", f"{_PREFIX}0", "up")
            for prefix, device in (((), outside), (("ip", "netns", "exec", name), "eth0")):
                limit = ("rate", f"{round(rate * _FRAME * 1000)}kbit", "burst", "256kb", "latency", "100ms")
                _run(*prefix, "tc", "qdisc", "add", "dev", device, "root", "tbf", *limit)
            inside = ("ip", "-n", name)
            _run(*inside, "addr", "add", f"{_NETWORK}.1.{rank + 1}/16", "dev", "eth0")
            _run(*inside, "link", "set", "eth0", "up")
            _run(*inside, "link", "set", "lo", "up")
        yield f"{_NETWORK}.0.1"


def _leave_network() -> None:
    """Enter a new network namespace, where ``ip netns`` knows no others; os.unshare came with Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000 | 0x00020000):  # CLONE_NEWNET, CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")
    os.makedirs("/run/netns", exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    _run("ip", "link", "set", "lo", "up")


def parameters(url: str, destination: Path, ranks: int, **options: t.Any) -> dict[str, t.Any]:
    """What the role passes to its modules."""
    return {
        "destination": str(destination),
        "sources": [{"url": url, "prefix": "", "sas": _SAS}],
        "hosts": [f"rank-{rank}" for rank in range(ranks)],
        "rank": None,
        "manifest": None,
        "decompress": False,
        "content": False,
        "mount_point": None,
        "nic_mbps": 0,
        "egress_mbps": 0,
        "batch_s": 60,
        "allow_overwrite": False,
        "threads": 0,
        "identity_client_id": "",
        "azcopy": str(AZCOPY),
        "cap_mbps": 0,
        "processes": 8,
        "concurrency": 0,
        "decompress_engine": "collection",
        "landing_path": None,
        "landing_limit_gib": 0,
        "log_path": str(destination.parent / "log"),
        "claim_expiry_s": 60,
        "stall_timeout_s": 60,
        "timeout_s": 3600,
        "identity": "msi",
        **options,
    }


def plan(params: dict[str, t.Any]) -> dict[str, t.Any]:
    return prepare(dataset_plan.read_options({**params, "threads": params["threads"] or 16}), write=True)


def shared(params: dict[str, t.Any], run: str = "") -> list[dict[str, t.Any]]:
    """The ranks of one run at one destination, which help each other; without a run it is planned here."""
    run = run or plan(params)["run"]
    return [{**params, "run": run, "rank": rank, "host": host} for rank, host in enumerate(params["hosts"])]


def separate(params: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """The same ranks with a destination and a static share each, as without a shared file system."""
    ranks = []
    for rank, host in enumerate(params["hosts"]):
        own = {**params, "destination": f"{params['destination']}-{rank}", "hosts": None, "host": host}
        run = plan({**own, "rank": rank, "world_size": len(params["hosts"])})["run"]
        ranks.append({**own, "run": run, "rank": 0})  # alone in its run
    return ranks


def copy(ranks: t.Sequence[dict[str, t.Any]], *, namespaces: bool = True) -> tuple[float, list[dict[str, t.Any]]]:
    """Run all ranks, each in its namespace; returns the makespan in seconds and each rank's result."""
    began = time.monotonic()
    children = [
        _start(number if namespaces else None, functools.partial(run_rank, dataset_stage.read_options(params)))
        for number, params in enumerate(ranks)
    ]
    results = [_result(child) for child in children]
    return time.monotonic() - began, results


def inside(number: int, work: t.Callable[[], t.Any]) -> t.Any:
    """What ``work`` returns in a rank's namespace, as JSON can carry it."""
    return _result(_start(number, work))


def inside_processes(works: t.Iterable[t.Callable[[], t.Any]]) -> list[t.Any]:
    """What each of them returns, each in a process of its own, all at the same time."""
    return [_result(child) for child in [_start(None, work) for work in works]]


def command_inside(number: int, *argv: str) -> list[str]:
    """A command that runs another one in a rank's namespace."""
    return ["ip", "netns", "exec", f"{_PREFIX}-{number}", *argv]


def _start(namespace: int | None, work: t.Callable[[], t.Any]) -> tuple[int, int]:
    """A process that does some work; its id, and where its result can be read."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        status = 1
        try:
            if namespace is not None:
                _enter(namespace)
            with os.fdopen(write_end, "w") as stream:
                stream.write(json.dumps(work()))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write_end)
    return pid, read_end


def _result(child: tuple[int, int]) -> t.Any:
    pid, read_end = child
    with os.fdopen(read_end) as stream:
        text = stream.read()
    _pid, status = os.waitpid(pid, 0)
    if status or not text:
        raise RuntimeError(f"A rank ended with status {status}.")
    return json.loads(text)


def _enter(number: int) -> None:
    """Move this process into the rank's namespace; os.setns came with Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{_PREFIX}-{number}", "rb") as namespace:
        if libc.setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")


def verify(ranks: t.Sequence[dict[str, t.Any]]) -> None:
    """Raise unless every destination is whole."""
    for destination in {rank["destination"] for rank in ranks}:
        result = Dataset.open(destination).verify(content=False, part=(0, 1), threads=16)
        if result["verdict"] != "ok":
            raise RuntimeError(f"The dataset is not whole: {result['problems']}")


__all__ = [
    "command_inside",
    "copy",
    "inside",
    "inside_processes",
    "network",
    "parameters",
    "plan",
    "separate",
    "shared",
    "verify",
]
