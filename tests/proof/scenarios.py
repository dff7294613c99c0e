# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scenarios of a tree, found by where their files lie. The minutes are estimates for a machine with two cores."""

from __future__ import annotations

import re
import typing as t

from proof.scenario import Scenario
from proof.tree import Tree

ANSIBLE_LINT = "static/ansible-lint"
#: Minutes of a role's scenario, where it takes more or less than most.
_ROLES = {
    "nvidia_driver": 2.7,
    "beeond": 2.4,
    "glusterfs": 1.9,
    "container_runtime": 1.0,
    "cluster_ssh": 0.9,
    "numa_pinning": 0.6,
    "node_profile": 0.3,
}
_FAULTS = {"test_staging_faults": 5.4, "test_teardown": 3.2, "test_quick_start": 1.5, "test_beeond_scratch": 3.5}
_MACHINES = {
    "test_nvidia_modules": 8.9,
    "test_slurm": 7.8,
    "test_nvme_raid": 6.2,
    "test_mofed": 1.2,
    "test_mofed_modules": 3.7,
    "test_rdma_between_machines": 2.5,
    "test_numa_pinning": 1.8,
}
#: Roles whose molecule scenarios are run by hand, not by bin/test: files of tests/scenarios/vm prove the same and more.
_BY_PEOPLE = ("nvme_raid",)
#: Minutes of the unit tests that start programs; most of the others take seconds.
_UNITS = {
    "azcopy": 3.1,
    "beeond": 3.5,
    "beeond_software": 0.3,
    "benchmarks": 2.8,
    "gpu_clocks": 0.9,
    "blob": 0.8,
    "dataset": 0.8,
    "lab": 0.5,
    "node": 0.4,
    "docs": 0.4,
    "glusterfs": 0.4,
    "gzip": 0.4,
    "nvidia_driver": 0.4,
    "gpu_bind": 0.3,
    "shards": 0.3,
    "roles": 0.2,
    "proof": 0.2,
}
#: Unit tests that read whatever there is, or much of it, as text.
_WALKS = {
    "docs": ("**",),
    "proof": ("**",),
    "node": ("plugins/**", "roles/**"),
}
#: What tests/sanity/run copies for ansible-test, and itself. Its checks read pages and metadata, too.
_ANSIBLE_TEST = (
    *("tests/sanity/**", "**/*.md", "galaxy.yml", "changelogs", "docs", "meta", "playbooks", "plugins", "roles"),
    "tests/integration/targets",
)


def _each(tree: Tree, pattern: str) -> dict[str, str]:
    """What matches the pattern's group, and the file that it was found in."""
    found = filter(None, map(re.compile(pattern).fullmatch, sorted(tree.paths())))
    return {match[1]: match[0] for match in found}


def scenarios(tree: Tree) -> list[Scenario]:
    """All scenarios that the tree has, in the order in which a full run takes them."""
    return [
        *_lint(tree),
        *_unit(tree),
        *_ansible_test(tree),
        *_package_managers(tree),
        *_containers(tree),
        *_machines(tree),
    ]


def _lint(tree: Tree) -> t.Iterator[Scenario]:
    """The one static check that takes minutes. It reads YAML, and of plugins what their options are."""
    if ".ansible-lint.yml" in tree.paths():
        walks = ("**/*.yml", "**/*.yaml", "**/*.j2", "plugins/{action,doc_fragments,filter,modules}/*.py")
        yield Scenario(ANSIBLE_LINT, (".ansible-lint.yml",), minutes=2.0, walks=walks)


def _unit(tree: Tree) -> t.Iterator[Scenario]:
    for name in _each(tree, r"tests/unit/([^/]+)/.*test_[^/]*\.py"):
        roots = (f"tests/unit/{name}", "tests/proof") if name == "proof" else (f"tests/unit/{name}",)
        yield Scenario(f"unit/{name}", roots, minutes=_UNITS.get(name, 0.1), walks=_WALKS.get(name, ()))
    if _each(tree, r"(tests/unit/test_[^/]*\.py)"):
        yield Scenario("unit", ("tests/unit/*.py",), minutes=1.0)


def _ansible_test(tree: Tree) -> t.Iterator[Scenario]:
    """What proves that plugins fit Ansible: its newest version, its own checks, and small plays on this machine."""
    paths = tree.paths()
    if "tests/unit/conftest.py" in paths:
        yield Scenario("newest-core", ("tests/unit",), minutes=1.5)
    if "tests/sanity/run" in paths:
        yield Scenario("sanity", ("tests/sanity/run", "plugins", "meta/runtime.yml"), minutes=1.6, walks=_ANSIBLE_TEST)
        roots = ("tests/sanity/run", "tests/integration/targets")
        yield Scenario("targets", roots, minutes=1.0, walks=_ANSIBLE_TEST)


def _package_managers(tree: Tree) -> t.Iterator[Scenario]:
    """Nodes of EL and of Ubuntu: root directories with the real dnf or apt, of which one test makes and leaves several."""
    for name in ("dnf", "apt"):
        files = _each(tree, rf"tests/scenarios/{name}/(test_[^/]*)\.py").values()
        if files:
            yield Scenario(name, (f"tests/scenarios/{name}", *files), minutes=1.0)


def _containers(tree: Tree) -> t.Iterator[Scenario]:
    lab = ("containers",)
    for name in _each(tree, r"molecule/([^/]+)/molecule\.yml"):
        if name not in {"cluster", "vm", *_BY_PEOPLE}:
            yield Scenario(f"role/{name}", (f"molecule/{name}",), lab, _ROLES.get(name, 1.3))
    if _each(tree, r"(molecule/cluster/molecule\.yml)"):
        yield Scenario("cluster", ("molecule/cluster", "playbooks/site.yml", "playbooks/image.yml"), lab, 2.6)
    for name, path in _each(tree, r"tests/(?:integration|scenarios)/(?:cluster/)?(test_[^/]*)\.py").items():
        if "fresh" in name:
            yield Scenario("cluster/fresh", (path,), lab, 1.0)
        else:
            yield Scenario(f"faults/{name}", (path,), lab, _FAULTS.get(name, 3.0))


def _machines(tree: Tree) -> t.Iterator[Scenario]:
    lab = ("machines",)
    if _each(tree, r"(molecule/vm/molecule\.yml)"):
        yield Scenario("vm", ("molecule/vm",), lab, 5.4)
    for name, path in _each(tree, r"tests/(?:integration|scenarios)/vm/(test_[^/]*)\.py").items():
        minutes = 1.7 if "fresh" in name else _MACHINES.get(name, 4.0)
        yield Scenario(f"vm/{name}", (path,), lab, minutes)


__all__ = ["ANSIBLE_LINT", "scenarios"]
