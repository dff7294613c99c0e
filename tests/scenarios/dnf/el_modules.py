# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of EL in the states that tests begin with, and our modules run on them."""

from __future__ import annotations

import functools
import hashlib
import pathlib
import subprocess
import typing as t

import el_node
from ansible_collections.hpcai.gpu_cluster.plugins.modules import nvidia_driver, rdma_stack
from lab.package_repository import el, rpms

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Nodes:
    """Makes nodes. What several tests begin with is made once: their nodes are layers above it."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work = work
        self.base = functools.lru_cache(None)(self._base)
        self.driven = functools.lru_cache(None)(self._driven)

    def _base(self, major: str) -> el_node.Node:
        release = el.RELEASES[major]
        return el_node.made(self.work, release, el.made(ROOT / ".cache/rpm_repository", release))

    def _driven(self, major: str, version: str, gpus: int, switches: int) -> el_node.Node:
        node = self.fresh(major, gpus, switches)
        result = driver(node, version=version)
        assert not result["failed"], result["msg"]
        return node

    def fresh(self, major: str, gpus: int = 1, switches: int = 0) -> el_node.Node:
        """A node with GPUs and EPEL, untouched so far."""
        node = self.base(major).child()
        node.repository("epel")
        node.put_gpus(gpus, switches)
        return node

    def with_driver(self, major: str, version: str = el.OLD, gpus: int = 1, switches: int = 0) -> el_node.Node:
        """The same, with a driver that our module has installed."""
        return self.driven(major, version, gpus, switches).child()


def own_devices(node: el_node.Node) -> None:
    """Let a node have a /dev in which files can be made: until then it is that of this machine."""
    place = str(node.path("/dev"))
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    names = ("null", "zero", "full", "random", "urandom")
    subprocess.run(["cp", "-a", *(f"/dev/{name}" for name in names), place], check=True)


def driver(node: el_node.Node, **options: t.Any) -> dict[str, t.Any]:
    """Run the module nvidia_driver for the older of the node's kernels, with the repository of the vendor's stand-in."""
    given = {
        "version": el.NEW,
        "kernel": node.release.kernel(0),
        "repository_url": f"file://{el.PLACE}/cuda",
        "repository_key": f"{el.PLACE}/{rpms.KEY}",
        "repository_fingerprint": el.fingerprint(node.repositories),
        # There is no library in the packages that could be started.
        "cuda_library": "",
        **options,
    }
    return node.module(nvidia_driver.main, **given)


def rdma(node: el_node.Node, version: str, **options: t.Any) -> dict[str, t.Any]:
    """Run the module rdma_stack for DOCA, whose files lie as on the vendor's site, and for the older of the node's kernels."""
    offered = sorted(node.path(f"{el.PLACE}/doca").glob("*.rpm"))
    for path in offered:
        place = node.path(f"/srv/vendor/DOCA_v{path.name.split('-')[2]}/host/{path.name}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    (file,) = [path for path in offered if f"-{version}-" in path.name]
    given = {
        "source": "doca",
        "version": f"{version}-{el.DOCA[version].replace('_', '-')}",
        "mirror": "/srv/vendor",
        "sha256": {_sum_key(node, version): hashlib.sha256(file.read_bytes()).hexdigest()},
        "kernel": node.release.kernel(0),
        "phases": ["install"],
        **options,
    }
    return node.module(rdma_stack.main, **given)


def _sum_key(node: el_node.Node, version: str) -> str:
    release = node.release.major if version == "3.2.1" else node.release.version
    return f"{version}-{el.DOCA[version].replace('_', '-')}-rhel{release}-{el.MACHINE}"


def carried(node: el_node.Node, version: str) -> dict[str, t.Any]:
    """Options for a doca-host that carries its repository in itself, as NVIDIA's does: here the lists of its packages."""
    (offered,) = node.path(f"{el.PLACE}/doca").glob(f"doca-host-{version}-*.rpm")
    place = f"/usr/share/doca-host-{version}/repo"
    lists = node.path(f"{el.PLACE}/doca-{version}/repodata").iterdir()
    files: dict[str, str | bytes] = {f"{place}/repodata/{path.name}": path.read_bytes() for path in lists}
    files[f"{place}/Packages/none.rpm"] = "not a package\n"
    files["/etc/yum.repos.d/doca.repo"] = f"[doca]\nname=DOCA\nbaseurl=file://{place}\nenabled=1\ngpgcheck=0\n"
    host = rpms.Rpm(
        "doca-host", offered.name[len("doca-host-") : -len(f".{el.MACHINE}.rpm")], noarch=False, files=files
    )
    rpms.build([host], node.path("/srv/carried"))
    (built,) = node.path("/srv/carried").rglob(f"doca-host-{version}-*.rpm")
    key = _sum_key(node, version)
    return {
        "artifact": f"/{built.relative_to(node.root)}",
        "sha256": {key: hashlib.sha256(built.read_bytes()).hexdigest()},
    }


def site(node: el_node.Node, *packages: rpms.Rpm) -> None:
    """Have packages of the site, installed."""
    place = node.path("/srv/site")
    place.mkdir(parents=True)
    rpms.build(packages, place)
    rpms.index(place)
    node.write("/etc/yum.repos.d/site.repo", "[site]\nname=site\nbaseurl=file:///srv/site\nenabled=1\ngpgcheck=0\n")
    node.must("dnf", "-y", "-q", "install", *(one.name for one in packages))


__all__ = ["Nodes", "carried", "driver", "own_devices", "rdma", "site"]
