# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Closures and digests of trees that are made up."""

from __future__ import annotations

import pytest
from made_tree import MadeTree
from proof.closure import Cache, chain, closures, digest
from proof.scenario import Scenario

UTILS = "plugins/module_utils"
IMPORT = "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils"


def closure(files: dict[str, str], *roots: str, parts: tuple[str, ...] = ()) -> set[str]:
    """What a scenario reaches, its own roots included. Unknown files are left out of the answer."""
    rest = Scenario("rest", tuple(files))
    return set(closures(MadeTree(files), [Scenario("one", roots, parts), rest])["one"])


def test_imports_of_flat_files_and_of_packages_without_init() -> None:
    files = {
        "t.py": f"{IMPORT} import _a\n{IMPORT}._b import plan\n{IMPORT}._c.apply import run\n",
        f"{UTILS}/_a.py": f"{IMPORT}._errors import E\n",
        f"{UTILS}/_b/plan.py": "from .._errors import E\nfrom . import model\n",
        f"{UTILS}/_b/model.py": "",
        f"{UTILS}/_b/other.py": "",
        f"{UTILS}/_c/apply.py": "",
        f"{UTILS}/_c/plan.py": "",
        f"{UTILS}/_errors.py": "",
        f"{UTILS}/_d.py": "",
    }
    assert closure(files, "t.py") == set(files) - {f"{UTILS}/_b/other.py", f"{UTILS}/_c/plan.py", f"{UTILS}/_d.py"}


def test_packages_with_init_bring_it() -> None:
    files = {"tests/unit/a/test_a.py": "from lab.list import x\n", "tests/lab/list/__init__.py": "import b\n"}
    assert closure(files, "tests/unit/a") == set(files)


def test_test_helpers_siblings_and_conftests() -> None:
    files = {
        "tests/unit/a/test_a.py": "from lab.vm import machine\nimport module_run\nfrom simulated import Node\n",
        "tests/unit/a/simulated.py": "",
        "tests/unit/a/conftest.py": "",
        "tests/unit/conftest.py": "",
        "tests/unit/b/conftest.py": "",
        "tests/lab/vm/machine.py": "from lab.vm import state\n",
        "tests/lab/vm/state.py": "",
        "tests/lab/vm/qemu.py": "",
        "tests/module_run.py": "",
    }
    assert closure(files, "tests/unit/a/test_a.py") == set(files) - {"tests/unit/b/conftest.py", "tests/lab/vm/qemu.py"}


PRODUCT = {
    "playbooks/site.yml": "- import_playbook: a.yml\n",
    "playbooks/a.yml": "- hosts: x\n  roles: [hpcai.gpu_cluster.a]\n",
    "roles/a/tasks/main.yml": "- hpcai.gpu_cluster.act:\n    x: '{{ y | hpcai.gpu_cluster.mask }}'\n",
    "roles/a/defaults/main.yml": "a_x: 1\n",
    "roles/a/README.md": "",
    "roles/b/tasks/main.yml": "- hpcai.gpu_cluster.b:\n",
    "roles/b/meta/main.yml": "dependencies:\n  - role: hpcai.gpu_cluster.c\n",
    "roles/c/tasks/main.yml": "[]\n",
    "plugins/modules/act.py": f"{IMPORT} import _act\n",
    "plugins/modules/b.py": "",
    "plugins/action/act.py": 'NAME = "hpcai.gpu_cluster.b"\n',
    "plugins/filter/mask.py": "",
    f"{UTILS}/_act.py": "",
}
A = {
    *("playbooks/a.yml", "roles/a/tasks/main.yml", "roles/a/defaults/main.yml"),
    *(
        "plugins/modules/act.py",
        "plugins/action/act.py",
        "plugins/filter/mask.py",
        "plugins/modules/b.py",
        f"{UTILS}/_act.py",
    ),
}


def test_a_playbook_brings_its_roles_their_modules_actions_and_filters() -> None:
    """The action calls the module b. That there is a role of this name is another thing."""
    assert closure(PRODUCT, "playbooks/site.yml") == A | {"playbooks/site.yml"}


def test_a_collection_s_playbook_by_its_name() -> None:
    files = {**PRODUCT, "molecule/x/converge.yml": "- import_playbook: hpcai.gpu_cluster.a\n"}
    assert closure(files, "molecule/x") == A | {"molecule/x/converge.yml"}


def test_roles_bring_their_dependencies() -> None:
    files = {**PRODUCT, "p.yml": "- hosts: x\n  tasks:\n    - include_role: {name: b}\n"}
    expected = {
        "p.yml",
        "roles/b/tasks/main.yml",
        "roles/b/meta/main.yml",
        "roles/c/tasks/main.yml",
        "plugins/modules/b.py",
    }
    assert closure(files, "p.yml") == expected


@pytest.mark.parametrize(
    ("variables", "shipped"),
    [
        (
            "s: \"{{ lookup('file', role_path ~ '/../../plugins/module_utils/' ~ name ~ '.py') }}\"\nl: [_a, _b]\n",
            {"_a.py", "_b.py"},
        ),
        ("d: \"{{ role_path }}/../../plugins/module_utils\"\nf: \"{{ lookup('file', d ~ '/_a.py') }}\"\n", {"_a.py"}),
        ("d: ansible_collections/hpcai/gpu_cluster/plugins/module_utils\nl: [_p/plan, _a]\n", {"_p/plan.py", "_a.py"}),
        ("packages: [_p]\n", {"_p/plan.py", "_p/read.py"}),
        ("modules: [_p.read]\n", {"_p/read.py"}),
        (
            'all: "{{ role_path }}/../../plugins/module_utils"\n',
            {"_a.py", "_b.py", "_c.py", "_p/plan.py", "_p/read.py"},
        ),
    ],
)
def test_files_that_a_role_ships(variables: str, shipped: set[str]) -> None:
    """Named one by one, in a list, or as a package; all of them where none is named."""
    files = {f"{UTILS}/{name}": "" for name in ("_a.py", "_b.py", "_c.py", "_p/plan.py", "_p/read.py")}
    files |= {"roles/r/vars/main.yml": variables, "roles/r/tasks/main.yml": "[]\n"}
    assert {path for path in closure(files, "roles/r") if path.startswith(UTILS)} == {
        f"{UTILS}/{name}" for name in shipped
    }


@pytest.mark.parametrize("form", ['Program("{}", "{}:main"),', 'Program(\n    "{}",\n    "{}:main",\n),'])
def test_a_role_that_names_a_program_brings_its_entry(form: str) -> None:
    listed = "\n".join(form.format(name, entry) for name, entry in (("a-b", "_a.program"), ("c", "_c.program")))
    files = {
        "roles/r/tasks/main.yml": "- hpcai.gpu_cluster.node_state: {files: [{program: a-b}]}\n",
        "plugins/plugin_utils/_programs.py": f"PROGRAMS = ({listed})\n",
        f"{UTILS}/_a/program.py": "",
        f"{UTILS}/_c/program.py": "",
    }
    assert f"{UTILS}/_a/program.py" in closure(files, "roles/r")
    assert f"{UTILS}/_c/program.py" not in closure(files, "roles/r")


CONFTEST = """
class Lab:
    def role(self, name):
        return {"ansible.builtin.include_role": {"name": f"hpcai.gpu_cluster.{name}"}}
    def playbook(self, name):
        return ["ansible-playbook", f"playbooks/{name}.yml"]
"""
CALLS = {
    "tests/scenarios/vm/conftest.py": CONFTEST,
    "playbooks/one.yml": "[]\n",
    "playbooks/two.yml": "[]\n",
    "roles/one/tasks/main.yml": "[]\n",
    "roles/two/tasks/main.yml": "[]\n",
}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('lab.role("one")', {"roles/one/tasks/main.yml"}),
        ('lab.playbook("one")', {"playbooks/one.yml"}),
        ("lab.role(made_up())", {"roles/one/tasks/main.yml", "roles/two/tasks/main.yml"}),
        ("lab.power_off()", set()),
    ],
)
def test_a_test_s_own_words_fill_the_holes_of_its_conftest(call: str, expected: set[str]) -> None:
    """All that fits, where it cannot be told which; nothing, where the function is not called."""
    test = "tests/scenarios/vm/test_x.py"
    found = closure({**CALLS, test: f"def test_x(lab):\n    {call}\n"}, test)
    assert found - {test, "tests/scenarios/vm/conftest.py"} == expected


def test_a_loop_in_the_same_file_fills_a_hole() -> None:
    play = "- hosts: x\n  tasks:\n    - include_role: {name: 'hpcai.gpu_cluster.{{ it }}'}\n      loop: [two]\n"
    assert closure({**CALLS, "molecule/m/verify.yml": play}, "molecule/m") == {
        "molecule/m/verify.yml",
        "roles/two/tasks/main.yml",
    }


def test_paths_from_the_root_from_here_and_from_beside() -> None:
    files = {
        "molecule/a/molecule.yml": "create: ../cluster/create.yml\n",
        "molecule/a/tasks/x.yml": "- f: files/data\n",
        "molecule/a/files/data": "",
        "molecule/cluster/create.yml": "- vars_files: [vars/lab.yml]\n  import_tasks: tasks/state.yml\n",
        "molecule/cluster/vars/lab.yml": "tools: \"{{ (playbook_dir ~ '/../..') | realpath }}/tests/lab\"\n",
        "molecule/cluster/tasks/state.yml": '- command: {argv: ["{{ tools }}/host.py", "{{ tools }}/image/build"]}\n',
        "molecule/cluster/converge.yml": "",
        "tests/lab/host.py": "",
        "tests/lab/image/build": "cat $here/packages.txt\n",
        "tests/lab/vm/qemu.py": "",
    }
    assert closure(files, "molecule/a") == set(files) - {"molecule/cluster/converge.yml", "tests/lab/vm/qemu.py"}


def test_a_directory_that_is_named_comes_whole() -> None:
    files = {
        "tests/unit/a/test_a.py": 'X = ROOT / "molecule/m/files"\n',
        "molecule/m/files/a": "",
        "molecule/m/converge.yml": "",
    }
    assert closure(files, "tests/unit/a") == {"tests/unit/a/test_a.py", "molecule/m/files/a"}


def test_a_pattern_of_paths_brings_what_fits() -> None:
    files = {
        "tests/unit/a/test_a.py": 'X = ROOT.glob("roles/*/meta/main.yml")\n',
        "roles/b/meta/main.yml": "",
        "roles/b/tasks/x.yml": "",
    }
    assert closure(files, "tests/unit/a") == {"tests/unit/a/test_a.py", "roles/b/meta/main.yml"}


def test_a_directory_below_the_root_comes_whole_and_a_mere_word_does_not() -> None:
    files = {
        "roles/b/tasks/x.yml": "[]\n",
        "docs.py": 'X = ROOT / "roles"\n',
        "play.py": 'X = {"roles": []}\nY = tmp / "roles"\n',
    }
    assert closure(files, "docs.py") == {"docs.py", "roles/b/tasks/x.yml"}
    assert closure(files, "play.py") == {"play.py"}


def test_tasks_find_files_beside_their_directory() -> None:
    files = {"molecule/a/tasks/x.yml": "- f: files/data\n", "molecule/a/files/data": "", "molecule/a/y.yml": ""}
    assert closure(files, "molecule/a/tasks/x.yml") == {"molecule/a/tasks/x.yml", "molecule/a/files/data"}


def test_what_a_role_is_given_is_no_role() -> None:
    task = "- include_role:\n    name: hpcai.gpu_cluster.one\n    vars: {kind: two}\n"
    assert closure({**CALLS, "p.yml": task}, "p.yml") == {"p.yml", "roles/one/tasks/main.yml"}


def test_an_action_brings_its_module() -> None:
    files = {"t.py": "from ansible_collections.hpcai.gpu_cluster.plugins.action import act\n"}
    files |= {"plugins/action/act.py": "", "plugins/modules/act.py": "", "plugins/modules/other.py": ""}
    assert closure(files, "t.py") == {"t.py", "plugins/action/act.py", "plugins/modules/act.py"}


def test_a_file_and_a_package_of_one_name_both_count() -> None:
    """As long as files move into packages."""
    files = {
        "t.py": f"{IMPORT}._b import plan\n",
        f"{UTILS}/_b.py": "",
        f"{UTILS}/_b/plan.py": "",
        f"{UTILS}/_b/read.py": "",
    }
    assert closure(files, "t.py") == {"t.py", f"{UTILS}/_b.py", f"{UTILS}/_b/plan.py"}


def test_what_bakes_the_image_counts_but_not_what_it_bakes() -> None:
    files = {
        **PRODUCT,
        "molecule/r/converge.yml": "[]\n",
        "tests/lab/image/build": "ansible-playbook playbooks/site.yml\n",
    }
    found = closure(files, "molecule/r", parts=("containers",))
    assert found == {"molecule/r/converge.yml", "tests/lab/image/build"}


def test_parts_and_what_everybody_needs() -> None:
    files = {
        "molecule/r/converge.yml": "[]\n",
        "bin/test": "molecule/cluster/converge.yml\n",
        "requirements/test.txt": "",
        "molecule/cluster/create.yml": "[]\n",
        "molecule/cluster/converge.yml": "[]\n",
        "tests/lab/image/rootfs/x": "",
        "tests/lab/image/README.md": "",
    }
    everywhere = {"molecule/r/converge.yml", "bin/test", "requirements/test.txt"}
    assert closure(files, "molecule/r") == everywhere
    lab = {"molecule/cluster/create.yml", "tests/lab/image/rootfs/x"}
    assert closure(files, "molecule/r", parts=("containers",)) == everywhere | lab


def test_an_unknown_file_belongs_to_all_and_pages_to_those_who_walk_them() -> None:
    files = {"a/x": "", "b/x": "", "weird.bin": "", "README.md": "", "docs/x.md": "", "benchmarks/x.py": "", "c/x": ""}
    files |= {"tests/proven.json": "{}"}
    given = [Scenario("a", ("a",)), Scenario("b", ("b",)), Scenario("pages", ("c",), walks=("**",))]
    assert closures(MadeTree(files), given) == {
        "a": {"a/x", "weird.bin"},
        "b": {"b/x", "weird.bin"},
        "pages": set(files) - {"tests/proven.json"},
    }


def test_a_benchmark_belongs_to_those_who_name_it() -> None:
    files = {"t/a.py": 'X = ROOT / "benchmarks/callbacks"\n', "benchmarks/callbacks/x.py": "", "benchmarks/run.py": ""}
    assert closure(files, "t") == {"t/a.py", "benchmarks/callbacks/x.py"}


def test_who_imports_from_the_tests_does_not_have_all_of_them() -> None:
    files = {"benchmarks/run.py": 'sys.path[:0] = [str(ROOT / "tests")]\nimport lab.a\n', "tests/lab/__init__.py": ""}
    files |= {"tests/lab/a.py": "", "tests/lab/b.py": "", "tests/unit/test_c.py": ""}
    assert closure(files, "benchmarks/run.py") == {"benchmarks/run.py", "tests/lab/__init__.py", "tests/lab/a.py"}


def test_the_chain_says_why() -> None:
    tree = MadeTree(PRODUCT)
    site = Scenario("site", ("playbooks/site.yml",))
    assert chain(tree, site, f"{UTILS}/_act.py") == [
        "root",
        *(
            "playbooks/site.yml",
            "playbooks/a.yml",
            "roles/a/tasks/main.yml",
            "plugins/modules/act.py",
            f"{UTILS}/_act.py",
        ),
    ]
    assert chain(tree, site, "roles/b/tasks/main.yml") == []


def test_a_digest_is_over_paths_and_contents_and_nothing_else() -> None:
    tree = MadeTree({"a": "1", "b": "2", "c": "3"})
    before = digest(tree, ["b", "a"])
    assert before == digest(tree.with_files({"c": "4"}), ["a", "b"])
    assert before != digest(tree.with_files({"b": "4"}), ["a", "b"])
    assert before != digest(tree, ["a", "b", "c"])
    assert before != digest(MadeTree({"a": "1", "d": "2"}), ["a", "d"])
    assert before != digest(MadeTree({"a": "2", "b": "1"}), ["a", "b"])
    assert before != digest(tree, ["a", "b"], how="molecule test")


def test_of_the_python_tools_settings_only_pytest_s_count() -> None:
    text = '[tool.pytest.ini_options]\naddopts = "-q"\n[tool.ruff]\nline-length = {}\n'
    first, second = (MadeTree({"pyproject.toml": text.replace("{}", length)}) for length in ("100", "120"))
    third = MadeTree({"pyproject.toml": text.replace("-q", "-v").replace("{}", "100")})
    wrong = MadeTree({"pyproject.toml": "[tool"})
    digests = [digest(tree, ["pyproject.toml"]) for tree in (first, second, third, wrong)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_of_the_groups_of_modules_only_the_modules_that_a_scenario_has_count() -> None:
    """A new module leaves what a scenario without it does as it is."""
    text = 'requires_ansible: ">=2.19.0"\naction_groups:\n  all:\n    - disks\n'
    runtime, disks, beds = "meta/runtime.yml", "plugins/modules/disks.py", "plugins/modules/beds.py"
    first = MadeTree({runtime: text, disks: "", beds: ""})
    grown = first.with_files({runtime: f"{text}    - beds\n"})
    assert digest(first, [runtime, disks]) == digest(grown, [runtime, disks])
    assert digest(first, [runtime, disks, beds]) != digest(grown, [runtime, disks, beds])
    gone = first.with_files({runtime: text.replace("    - disks\n", "")})
    assert digest(first, [runtime, disks]) != digest(gone, [runtime, disks])
    newer = first.with_files({runtime: text.replace("2.19", "2.20")})
    assert digest(first, [runtime]) != digest(newer, [runtime])
    wrong = first.with_files({runtime: "action_groups: [\n"})
    assert digest(first, [runtime]) != digest(wrong, [runtime])


def test_a_cache_serves_many_trees() -> None:
    cache = Cache()
    tree = MadeTree(PRODUCT)
    other = tree.with_files({"playbooks/a.yml": "[]\n"})
    given = [Scenario("site", ("playbooks/site.yml",)), Scenario("rest", tuple(PRODUCT))]
    for one in (tree, other, tree):
        assert closures(one, given, cache) == closures(one, given)
        files = closures(one, given)["site"]
        assert digest(one, files, cache=cache) == digest(one, files)
