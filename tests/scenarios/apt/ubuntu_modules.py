# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of Ubuntu in the states that tests begin with, and our modules run on them."""

from __future__ import annotations

import functools
import hashlib
import pathlib
import typing as t

import ubuntu_node
from ansible_collections.hpcai.gpu_cluster.plugins.modules import nvidia_driver, rdma_stack
from lab.layered_node.node import CHECKOUT
from lab.package_repository import repository, ubuntu

#: Consent to what an upgrade or a downgrade needs.
AGREED = {"allow_upgrade": True, "allow_unload": True}
#: Ubuntu's driver for servers, with the open module.
HEADLESS = "nvidia-headless-580-server-open"


class Nodes:
    """Makes nodes. What several tests begin with is made once: their nodes are layers above it."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work = work
        self.base = functools.lru_cache(None)(self._base)
        self.driven = functools.lru_cache(None)(self._driven)

    def _base(self, version: str) -> ubuntu_node.Node:
        release = ubuntu.RELEASES[version]
        return ubuntu_node.made(self.work, release, ubuntu.made(CHECKOUT / ".cache/ubuntu_repository", release))

    def _driven(self, release: str, version: str, gpus: int, switches: int) -> ubuntu_node.Node:
        node = self.fresh(release, "mirror", gpus=gpus, switches=switches)
        result = driver(node, version=version)
        assert not result["failed"], result["msg"]
        return node

    def fresh(self, release: str, *repositories: str, gpus: int = 1, switches: int = 0) -> ubuntu_node.Node:
        """A node with GPUs and these repositories, untouched so far."""
        node = self.base(release).child()
        node.put_gpus(gpus, switches)
        node.repository(*repositories)
        return node

    def with_driver(
        self, release: str, version: str = ubuntu.NEW, gpus: int = 1, switches: int = 0
    ) -> ubuntu_node.Node:
        """One with the mirror, and with Ubuntu's driver for servers, which our module has installed."""
        return self.driven(release, version, gpus, switches).child()


def driver(node: ubuntu_node.Node, **options: t.Any) -> dict[str, t.Any]:
    """Run the module nvidia_driver with the distribution's packages."""
    # There is no library in the packages that could be started.
    given = {"source": "distro", "version": ubuntu.NEW, "cuda_library": "", **options}
    return node.module(nvidia_driver.main, **given)


def vendor_driver(node: ubuntu_node.Node, **options: t.Any) -> dict[str, t.Any]:
    """The same with the repository of the vendor's stand-in."""
    place = f"{repository.PLACE}/cuda"
    given = {
        "source": "cuda_repo",
        "repository_url": f"file://{place}",
        "repository_key": f"{place}/{repository.KEYRING}",
        "repository_fingerprint": repository.fingerprint(node.repositories / "cuda"),
        **options,
    }
    return driver(node, **given)


def rdma(node: ubuntu_node.Node, version: str, **options: t.Any) -> dict[str, t.Any]:
    """Run the module rdma_stack for DOCA, whose files lie as on the vendor's site."""
    for path in sorted(node.path(f"{repository.PLACE}/doca").glob("*.deb")):
        place = node.path(f"/srv/vendor/DOCA_v{path.name.split('_')[1].split('-')[0]}/host/{path.name}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    full = f"{version}-{ubuntu.DOCA[version]}"
    (file,) = node.path(f"/srv/vendor/DOCA_v{version}/host").iterdir()
    given = {
        "source": "doca",
        "version": full,
        "mirror": "/srv/vendor",
        "sha256": {f"{full}-ubuntu{node.release.version}-x86_64": hashlib.sha256(file.read_bytes()).hexdigest()},
        "phases": ["install"],
        **options,
    }
    return node.module(rdma_stack.main, **given)


__all__ = ["AGREED", "HEADLESS", "Nodes", "driver", "rdma", "vendor_driver"]
