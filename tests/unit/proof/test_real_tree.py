# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This repository: what a change of a file makes run, and what the labs know."""

from __future__ import annotations

import fnmatch
import pathlib
import re
import shlex
import subprocess

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._programs import PROGRAMS
from proof import ledger, parts
from proof import scenarios as scenario_table
from proof.closure import Cache, References, chain, closures, digest
from proof.scenarios import scenarios
from proof.tree import Tree, WorkTree

ROOT = pathlib.Path(__file__).parents[3]
#: They read whatever there is.
LABS = ("cluster", "faults/", "role/", "vm")
WALKERS = {"unit/docs", "unit/proof", "unit/node", "static/ansible-lint"}
SITE = ["cluster", "cluster/fresh", "faults/test_teardown", "faults/test_beeond*"]
VM = ["vm", "vm/test_fresh*"]
#: Everything on containers, and everything on virtual machines.
CONTAINERS = ["role/*", "cluster", "cluster/*", "faults/*"]
MACHINES = ["vm", "vm/*"]


class Repository:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.cache = Cache()
        self.closures = closures(tree, scenarios(tree), self.cache)

    def with_files(self, *paths: str) -> dict[str, frozenset[str]]:
        """The closures, were there these files."""
        tree = With(self.tree, *paths)
        return closures(tree, scenarios(tree), self.cache)

    def find(self, pattern: str) -> str:
        """The first file whose whole path matches: files move, and this test need not."""
        return next(path for path in sorted(self.tree.paths()) if re.fullmatch(pattern, path))

    def affected(self, path: str) -> set[str]:
        return {name for name, files in self.closures.items() if path in files} - WALKERS

    def labs(self, path: str) -> set[str]:
        return {name for name in self.affected(path) if name.startswith(LABS)}


class With:
    """A tree and files that are new, or have another content."""

    def __init__(self, tree: Tree, *paths: str) -> None:
        self._tree = tree
        self._new = frozenset(paths)

    def paths(self) -> frozenset[str]:
        return self._tree.paths() | self._new

    def read(self, path: str) -> bytes:
        return b"\xff" if path in self._new else self._tree.read(path)

    def identity(self, path: str) -> str:
        return "new" if path in self._new else self._tree.identity(path)


@pytest.fixture(scope="module")
def repository() -> Repository:
    return Repository(WorkTree(ROOT))


@pytest.mark.parametrize(
    ("pattern", "labs"),
    [
        (r"README\.md", []),
        (r"docs/coverage\.md", []),
        (r"roles/gpu_clocks/README\.md", []),
        (r"changelogs/config\.yaml", []),
        (r"plugins/doc_fragments/.*\.py", []),
        (r"benchmarks/staging/s1_.*\.py", []),
        (r"requirements/mutation\.txt", []),
        (r"tests/unit/mofed/test_rdma_check\.py|tests/unit/_?rdma/test_\w+\.py", []),
        (
            r"roles/gpu_clocks/defaults/main\.yml",
            [*SITE, "faults/test_staging*", *VM, "role/gpu_clocks", "vm/test_slurm*"],
        ),
        (r"roles/glusterfs/tasks/main\.yml", [*SITE, "faults/test_staging*", "role/glusterfs", "role/dataset_staging"]),
        (
            r"roles/node_profile/files/profiles/generic\.yml",
            [*SITE, "faults/*", *VM, "role/n*_p*", "vm/test_numa_pinning*", "vm/test_slurm*"],
        ),
        (
            r"roles/nvidia_driver/tasks/main\.yml",
            [
                *SITE,
                "faults/test_quick*",
                *VM,
                "role/nvidia_driver",
                "vm/test_driver*",
                "vm/test_nvidia*",
                "vm/test_slurm*",
            ],
        ),
        (
            r"plugins/module_utils/(_gpu_clocks\.py|_gpu_clocks/plan\.py)",
            [*SITE, "faults/test_staging*", *VM, "role/gpu_clocks", "vm/test_slurm*"],
        ),
        (
            r"plugins/module_utils/(_nvme_raid_plan\.py|_nvme_raid/plan\.py)",
            [*SITE, "faults/test_staging*", *VM, "role/nvme_raid", "vm/test_nvme_raid*"],
        ),
        (r"plugins/module_utils/(_shards\.py|_shards/plan\.py)", [*SITE, "faults/*", "role/dataset_staging"]),
        (r"plugins/module_utils/_errors\.py", [*CONTAINERS, *MACHINES]),
        (r"tests/lab/vm/qemu\.py", MACHINES),
        (r"inventories/vm/machines\.py", MACHINES),
        (r"tests/lab/image/packages\.txt", CONTAINERS),
        (r"inventories/lab/machines\.py", CONTAINERS),
        (r"molecule/cluster/tasks/machines\.yml", CONTAINERS),
        (r"molecule/mofed/converge\.yml", ["role/mofed"]),
        (r"playbooks/site\.yml", SITE),
        (r"playbooks/job_begin\.yml", ["role/gpu_clocks"]),
        (r"tests/lab/gpu_simulator/nvidia-smi", [*CONTAINERS, *MACHINES]),
        (r"requirements/test\.txt", [*CONTAINERS, *MACHINES]),
        (r"ansible\.cfg", [*CONTAINERS, *MACHINES]),
    ],
)
def test_a_change_affects_exactly_these_labs(repository: Repository, pattern: str, labs: list[str]) -> None:
    names = {name for name in repository.closures if name.startswith(LABS)}
    expected = {name for name in names for wanted in labs if fnmatch.fnmatch(name, wanted)}
    assert repository.labs(repository.find(pattern)) == expected


@pytest.mark.slow
def test_an_unknown_new_file_affects_everything(repository: Repository) -> None:
    weird = "-".join(("nobody", "knows"))  # a name that stands in a test is known
    found = repository.with_files(weird)
    assert all(weird in files for files in found.values())


def test_new_pages_and_benchmarks_affect_no_lab(repository: Repository) -> None:
    new = {"docs/new.md", "roles/mofed/NEW.md", "benchmarks/new/run.py", ledger.PATH}
    found = repository.with_files(*new)
    assert not [name for name, files in found.items() if files & new and name.startswith(LABS)]


@pytest.mark.parametrize(
    "path",
    [
        "benchmarks/staging/_ranks.py",
        "benchmarks/staging/s6_slow_rank.py",
        "plugins/modules/dataset_plan.py",
        "plugins/module_utils/_dataset/prepare.py",
        "tests/lab/blob/fast_server.py",
    ],
)
def test_what_a_benchmark_needs_affects_its_smoke_run(repository: Repository, path: str) -> None:
    assert "unit/benchmarks" in repository.affected(path)


def test_a_benchmark_is_not_affected_by_tests_of_others(repository: Repository) -> None:
    for pattern in (
        r"tests/unit/glusterfs/test_\w+\.py",
        r"tests/scenarios/dnf/test_\w+\.py",
        r"molecule/glusterfs/.*",
    ):
        assert "unit/benchmarks" not in repository.affected(repository.find(pattern))


def test_what_ansible_test_is_given_belongs_to_it(repository: Repository) -> None:
    """As tests/sanity/run lists it: pages, settings and documentation, which no other run reads."""
    script = "tests/sanity/run"
    listed = re.search(r"git -C \"\$root\" (ls-files .*?) \|\n", (ROOT / script).read_text(), re.DOTALL)
    assert listed
    command = ["git", "-C", str(ROOT), *shlex.split(listed[1].replace("\\\n", " "))]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    copied = {path for path in printed.split("\0") if path in repository.tree.paths()}
    assert {"galaxy.yml", "README.md", "meta/runtime.yml", "plugins/doc_fragments/attributes.py"} < copied
    for name in ("sanity", "targets"):
        assert {*copied, script} - repository.closures[name] == set()


def test_nobody_has_the_ledger(repository: Repository) -> None:
    assert not [name for name, files in repository.closures.items() if ledger.PATH in files]
    assert ledger.PATH == parts.LEDGER


def test_no_file_is_unknown(repository: Repository) -> None:
    """One that is makes every change of it cost a full run. Let a scenario refer to it, or name it in ``parts``."""
    everywhere = set.intersection(*(set(files) for files in repository.closures.values()))
    environment = References(repository.tree).part(parts.EVERYWHERE)
    known = scenarios(repository.tree)
    unknown = [path for path in everywhere - environment if not any(chain(repository.tree, one, path) for one in known)]
    assert unknown == []


#: Plugins for playbooks of users. Unit tests run them.
WITHOUT_LAB = {"azcopy_copy", "azcopy_shard", "cpu_list", "cpu_mask"}


def test_some_lab_knows_every_plugin_role_and_playbook(repository: Repository) -> None:
    """Otherwise it would never run again after a change: whoever adds a thing adds it to a lab, or here."""
    labs = set().union(*(files for name, files in repository.closures.items() if not name.startswith("unit")))
    told = parts.matcher(parts.TOLD_ONLY)
    product = {
        path
        for path in repository.tree.paths()
        if re.match(r"(roles|playbooks|plugins/(modules|action|filter))/", path) and not told(path)
    }
    assert {path for path in product - labs if pathlib.PurePosixPath(path).stem not in WITHOUT_LAB} == set()


#: The role that brings a program to nodes.
ROLE_OF = {"gpu-bind-check": "numa_pinning", "gpu-clocks": "gpu_clocks", "nvme-raid": "nvme_raid"}


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_every_file_of_a_program_is_in_the_labs_of_its_role(repository: Repository, program: str) -> None:
    files = {f"plugins/module_utils/{path}" for path in PROGRAMS[program].files()}
    tasks = f"roles/{ROLE_OF[program]}/tasks/main.yml"
    users = {name for name, paths in repository.closures.items() if tasks in paths} - WALKERS
    assert len(users) > 3
    assert all({*files, "plugins/plugin_utils/_programs.py"} <= repository.closures[name] for name in users)


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (scenario_table._UNITS, "unit/"),
        (scenario_table._WALKS, "unit/"),
        (scenario_table._ROLES, "role/"),
        (scenario_table._FAULTS, "faults/"),
        (scenario_table._MACHINES, "vm/"),
    ],
)
def test_what_is_told_of_a_scenario_is_told_of_one_that_there_is(
    repository: Repository, names: dict[str, object], prefix: str
) -> None:
    assert {f"{prefix}{name}" for name in names} - set(repository.closures) == set()


def imports(path: pathlib.Path) -> set[str]:
    """Modules of module_utils that a file imports by their full name, found without the code under test."""
    text = path.read_text(encoding="utf-8")
    found = set(
        re.findall(
            r"^from ansible_collections\.hpcai\.gpu_cluster\.plugins\.module_utils\.([\w.]+) import", text, re.MULTILINE
        )
    )
    names = re.findall(
        r"^from ansible_collections\.hpcai\.gpu_cluster\.plugins\.module_utils import (?:\(([^)]*)\)|(.*))$",
        text,
        re.MULTILINE,
    )
    return found | {
        name.split(" as ")[0].strip() for pair in names for name in "".join(pair).split(",") if name.strip()
    }


MODULES = [path for path in sorted((ROOT / "plugins/modules").glob("*.py")) if imports(path)]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_whoever_has_a_module_has_what_it_imports(repository: Repository, module: pathlib.Path) -> None:
    wanted = {f"plugins/module_utils/{name.replace('.', '/')}.py" for name in imports(module)}
    wanted = {path for path in wanted if (ROOT / path).is_file()}
    assert wanted
    for name, files in repository.closures.items():
        if f"plugins/modules/{module.name}" in files and name not in WALKERS:
            assert wanted <= files


def test_digests_are_the_same_twice_and_follow_a_change(repository: Repository) -> None:
    path = repository.find(r"roles/gpu_clocks/defaults/main\.yml")
    before = {
        name: digest(repository.tree, files, cache=repository.cache) for name, files in repository.closures.items()
    }
    assert digest(WorkTree(ROOT), repository.closures["cluster"]) == before["cluster"]
    changed = With(repository.tree, path)
    after = {
        name: digest(changed, files, cache=repository.cache) for name, files in repository.with_files(path).items()
    }
    proofs = {name: ledger.Proof(one, 1.0, "2026-11-22") for name, one in before.items()}
    assert set(ledger.affected(after, proofs)) == repository.affected(path) | WALKERS
