# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the house: which package is for what, and which may import which. The code is read, not run."""

from __future__ import annotations

import ast
import graphlib
import pathlib
import typing as t

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PLUGINS = ("ansible_collections", "hpcai", "gpu_cluster", "plugins")

#: The packages of plugins/module_utils, and what each is for.
PACKAGES = {
    "_attribution": "which node, link or domain makes a fleet slow",
    "_azcopy": "AzCopy: its arguments, messages, and supervision",
    "_beeond": "the BeeGFS file system on demand",
    "_beeond_software": "BeeOND's packages, and its client's module",
    "_blob": "blob storage: URLs, identity, listing, manifests",
    "_cluster_ssh": "keys and known hosts between nodes",
    "_container_runtime": "containerd, Docker, and NVIDIA's container toolkit",
    "_dataset": "datasets: plan, copy, verify, and remove them over all nodes",
    "_glusterfs": "the GlusterFS volume",
    "_gpu_affinity": "ranks, and the CPUs, GPUs and HCAs that are theirs",
    "_gpu_bind": "processes of a job, and whether they are next to the GPUs they use",
    "_gpu_clocks": "clocks of GPUs, and who holds them",
    "_gzip": "compression, and files that appear only when whole",
    "_health": "collectives launched over nodes, and what they print",
    "_mpi": "MPI jobs that prove the fabric",
    "_node": "what a node is: its facts, and the profile they are compared with",
    "_node_state": "packages, files and units of a node",
    "_nvidia_driver": "NVIDIA's driver, its packages, and modes of GPUs",
    "_nvme_raid": "local disks and the file system on them",
    "_rdma": "the RDMA stack and its performance",
    "_shards": "shares of a dataset for ranks",
}
#: Who stands on whom. An import goes to a lower floor.
FLOORS = (
    {"_errors", "_ranges"},
    {"_host"},
    set(PACKAGES),
    {"plugin_utils"},
    {"action", "doc_fragments", "filter", "modules"},
)
#: Packages of one floor that import each other.
ARROWS = {
    "_azcopy": {"_blob", "_gzip"},
    "_beeond_software": {"_node_state"},
    "_container_runtime": {"_node_state"},
    "_dataset": {"_azcopy", "_blob", "_gzip", "_shards"},
    "_gpu_affinity": {"_node"},
    "_gpu_bind": {"_node"},
    "_gpu_clocks": {"_node"},
    "_health": {"_mpi"},
    "_nvidia_driver": {"_node", "_node_state"},
    "_nvme_raid": {"_node"},
    "_rdma": {"_node", "_node_state"},
}
#: What the controller alone has: modules run on nodes.
CONTROLLER = {"plugin_utils"}
#: Folders of tests/unit that belong to no package.
OTHER_TESTS = {"benchmarks", "docs", "house", "lab", "programs", "proof", "roles"}

Arrow = tuple[str, str]


def box_of(parts: t.Sequence[str]) -> str:
    """What a path below plugins belongs to: a package, a file of module_utils, or a kind of plugin."""
    return parts[1].removesuffix(".py") if parts[0] == "module_utils" else parts[0]


def imported(path: pathlib.PurePath, source: str) -> t.Iterator[t.Sequence[str]]:
    """What a file below plugins imports from there, as paths below plugins."""
    for node in ast.walk(ast.parse(source)):
        names: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                base = (*PLUGINS, *path.parts[: -node.level], *base)
            names = [(*base, alias.name) for alias in node.names]
        for name in names:
            if name[: len(PLUGINS)] == PLUGINS and len(name) > len(PLUGINS) + 1:
                yield name[len(PLUGINS) :]


def arrows(files: t.Mapping[str, str]) -> dict[Arrow, str]:
    """Which box imports which, and one file that does. A box of plugins that imports itself is an arrow, too."""
    found: dict[Arrow, str] = {}
    for name, source in files.items():
        path = pathlib.PurePath(name)
        start = box_of(path.parts)
        for target in imported(path, source):
            if start != box_of(target) or start in FLOORS[-1]:
                found.setdefault((start, box_of(target)), name)
    return found


def floor_of(box: str) -> int:
    """0 is the lowest; -1 for what is not in the plan."""
    return next((number for number, boxes in enumerate(FLOORS) if box in boxes), -1)


def wrong(files: t.Mapping[str, str]) -> list[str]:
    """What in these files is not as planned. ``files`` maps paths below plugins to their text."""
    boxes = {box_of(pathlib.PurePath(name).parts) for name in files}
    found = [f"{box} is not in the plan" for box in sorted(boxes) if floor_of(box) < 0]
    found += [f"{name}: no package has one" for name in files if pathlib.PurePath(name).name == "__init__.py"]
    for (start, target), name in arrows(files).items():
        down = floor_of(target) < floor_of(start)
        if not down and target not in ARROWS.get(start, ()):
            found.append(f"{name}: {start} may not import {target}")
        if start == "modules" and target in CONTROLLER:
            found.append(f"{name}: nodes have no {target}")
    try:
        graph: dict[str, set[str]] = {}
        for start, target in arrows(files):
            if start != target:
                graph.setdefault(start, set()).add(target)
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as exc:
        found.append(f"a circle: {' -> '.join(exc.args[1])}")
    return found


@pytest.fixture(scope="module")
def house() -> dict[str, str]:
    """Everything below plugins."""
    plugins = ROOT / "plugins"
    return {
        path.relative_to(plugins).as_posix(): path.read_text(encoding="utf-8") for path in sorted(plugins.rglob("*.py"))
    }


def test_everything_is_as_planned(house: dict[str, str]) -> None:
    assert wrong(house) == []


def test_the_plan_has_nothing_that_is_not_there(house: dict[str, str]) -> None:
    planned = {(start, target) for start, targets in ARROWS.items() for target in targets}
    assert planned - set(arrows(house)) == set()
    assert set().union(*FLOORS) == {box_of(pathlib.PurePath(name).parts) for name in house}


def test_the_tests_of_a_package_lie_in_a_folder_of_its_name() -> None:
    folders = {path.parent.name for path in (ROOT / "tests/unit").glob("*/test_*.py")}
    assert folders - OTHER_TESTS == {name.lstrip("_") for name in (*PACKAGES, "_host")}


def of(box: str, name: str = "x") -> str:
    return f"from {'.'.join(PLUGINS)}.{box} import {name}\n"


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"module_utils/_host/files.py": of("module_utils._node.sysfs")}, "_host may not import _node"),
        ({"module_utils/_errors.py": of("module_utils._host.files")}, "_errors may not import _host"),
        ({"module_utils/_errors.py": of("module_utils", "_ranges")}, "_errors may not import _ranges"),
        ({"module_utils/_gzip/inflate.py": of("module_utils._dataset", "run")}, "_gzip may not import _dataset"),
        (
            {"module_utils/_gzip/inflate.py": "def f():\n    from .._dataset import run\n"},
            "_gzip may not import _dataset",
        ),
        (
            {"module_utils/_gzip/inflate.py": f"import {'.'.join(PLUGINS)}.modules.mpi_check"},
            "_gzip may not import modules",
        ),
        ({"module_utils/_node/facts.py": of("plugin_utils._profiles")}, "_node may not import plugin_utils"),
        ({"action/a.py": of("action.b")}, "action may not import action"),
        ({"action/a.py": "from .b import ActionModule"}, "action may not import action"),
        ({"modules/a.py": of("modules.b")}, "modules may not import modules"),
        ({"modules/a.py": of("plugin_utils._profiles")}, "nodes have no plugin_utils"),
        ({"module_utils/_new/plan.py": ""}, "_new is not in the plan"),
        ({"module_utils/_loose.py": ""}, "_loose is not in the plan"),
        ({"module_utils/_node/__init__.py": ""}, "no package has one"),
        (
            {
                "module_utils/_azcopy/run.py": of("module_utils._blob.url"),
                "module_utils/_blob/url.py": of("module_utils._azcopy.run"),
            },
            "a circle: ",
        ),
    ],
)
def test_what_is_not_as_planned_is_found(files: dict[str, str], complaint: str) -> None:
    assert [said for said in wrong(files) if complaint in said]


@pytest.mark.parametrize(
    "files",
    [
        {"module_utils/_gzip/inflate.py": "from . import part_file\nfrom .part_file import sweep_parts\nimport gzip\n"},
        {"module_utils/_node/sysfs.py": of("module_utils._host.files") + of("module_utils._ranges", "parse_ranges")},
        {"action/a.py": of("plugin_utils._profiles") + of("module_utils._node.profile")},
        {"modules/a.py": of("module_utils._dataset", "run")},
        {"module_utils/_dataset/plan.py": of("module_utils._blob.url")},
    ],
)
def test_what_is_as_planned_is_not_complained_about(files: dict[str, str]) -> None:
    assert wrong(files) == []
