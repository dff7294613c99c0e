# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What files mention."""

from __future__ import annotations

import pytest
from proof import parts
from proof.mentions import HOLE, Import, Mentions, Name, mentions


def of(path: str, text: str) -> Mentions:
    return mentions(path, text.encode())


def paths(found: Mentions) -> set[str]:
    return {one.text for one in found.paths}


def names(found: Mentions) -> set[tuple[str, str]]:
    return {(one.text, one.kind) for one in found.names}


def test_python_imports() -> None:
    found = of("x.py", "import a.b\nfrom . import c\nfrom ..d import e as f, g\nif x:\n    from h import i\n")
    assert found.imports == {
        Import(0, "a.b"),
        Import(1, "", ("c",)),
        Import(2, "d", ("e", "g")),
        Import(0, "h", ("i",)),
    }


def test_imports_in_programs_that_python_writes() -> None:
    found = of("x.py", 'CODE = "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._a import b"')
    assert Import(0, "ansible_collections.hpcai.gpu_cluster.plugins.module_utils._a") in found.imports


@pytest.mark.parametrize(
    "text",
    [
        '"""See roles/a/tasks/main.yml and hpcai.gpu_cluster.b."""\n',
        'def f():\n    """roles/a/tasks/main.yml"""\n',
        "x = 1  # roles/a/tasks/main.yml\n",
        'DOCUMENTATION = "roles/a/tasks/main.yml hpcai.gpu_cluster.b"\n',
        'EXAMPLES = """\n- hpcai.gpu_cluster.b:\n"""\n',
        'fail("Run roles/a/tasks/main.yml, then it works.")\n',
        'sys.path.insert(0, str(ROOT / "roles/a"))\n',
    ],
)
def test_prose_in_python_mentions_nothing(text: str) -> None:
    found = of("plugins/modules/x.py", text)
    assert not found.names
    assert not [path for path in paths(found) if "roles" in path]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('ROOT / "roles" / "a" / "vars" / "main.yml"', "roles/a/vars/main.yml"),
        ('pathlib.Path(__file__).parents[3] / "plugins/modules"', "plugins/modules"),
        ('ROOT / "playbooks" / f"{name}.yml"', f"playbooks/{HOLE}.yml"),
        ('f"{ROOT}/tests/lab/vm/machine.py up"', "tests/lab/vm/machine.py"),
        ("run(\"cat 'tests/lab/x.py' | sh\")", "tests/lab/x.py"),
        ('["ansible-playbook", f"playbooks/{name}.yml"]', f"playbooks/{HOLE}.yml"),
        ('ROOT.glob("roles/*/meta/main.yml")', "roles/*/meta/main.yml"),
    ],
)
def test_paths_in_python(text: str, path: str) -> None:
    assert path in paths(of("x.py", text))


def test_only_what_hangs_on_the_root_is_rooted() -> None:
    found = of("x.py", 'a = ROOT / "roles"\nb = tmp_path / "docs"\nc = {"plugins": 1}\n')
    assert {one.text: one.rooted for one in found.paths} == {"roles": True, "docs": False}


def test_kinds_of_names_in_python() -> None:
    text = """
tasks = [{"hpcai.gpu_cluster.a": {}}, {"ansible.builtin.include_role": {"name": "hpcai.gpu_cluster.b", "tasks_from": "c"}}]
argv = ["-m", "hpcai.gpu_cluster.d", f"hpcai.gpu_cluster.{e}"]
"""
    expected = {("a", "plugin"), ("b", "role"), ("d", "any"), (HOLE, "any")}
    assert expected <= names(of("tests/x.py", text))
    assert ("d", "plugin") in names(of("plugins/action/x.py", text))
    assert ("d", "any") not in names(of("plugins/action/x.py", text))


def test_a_hole_knows_its_function() -> None:
    found = of("x.py", 'class A:\n    def role(self, name):\n        return f"hpcai.gpu_cluster.{name}"\n')
    assert found.names == {Name(HOLE, "any", "role")}


def test_yaml() -> None:
    text = """
# roles/comment/tasks/main.yml
- import_playbook: hpcai.gpu_cluster.site
- name: Use roles/prose/tasks/main.yml, as hpcai users do
  hosts: all
  vars_files: [vars/lab.yml]
  vars:
    sources: "{{ role_path }}/../../plugins/module_utils"
    one: "{{ lookup('ansible.builtin.file', sources ~ '/_a.py') }}"
    list: [_b, _c]
    folded: >-
      {#- roles/comment/vars/main.yml -#}
      {{ masks | hpcai.gpu_cluster.cpu_mask }}
  roles:
    - role: hpcai.gpu_cluster.glusterfs
    - plain
  tasks:
    - hpcai.gpu_cluster.node_state:
    - ansible.builtin.include_role:
        name: hpcai.gpu_cluster.{{ item }}
    - ansible.builtin.command:
        cmd: tests/lab/image/build --name
"""
    found = of("x.yml", text)
    assert {"vars/lab.yml", "../../plugins/module_utils", "_a.py", "tests/lab/image/build"} <= paths(found)
    assert not [path for path in paths(found) if path.startswith("roles/")]
    assert {"_b", "_c", "_a.py"} <= found.words
    assert names(found) == {
        ("site", "playbook"),
        ("cpu_mask", "any"),
        ("glusterfs", "role"),
        ("plain", "role"),
        ("node_state", "plugin"),
        (HOLE, "role"),
    }


def test_descriptions_of_options_mention_nothing() -> None:
    text = "argument_specs:\n  main:\n    description: Like hpcai.gpu_cluster.other\n    options: {}\n"
    assert not of("roles/a/meta/argument_specs.yml", text).names


def test_shell_and_other_text() -> None:
    text = (
        '#!/bin/sh\n# roles/a/tasks/main.yml\ncat "$root/tests/lab/image/packages.txt" # bin/demo\n. "${here}/rootfs"\n'
    )
    assert {"tests/lab/image/packages.txt", "rootfs"} <= paths(of("x", text))
    assert not {"roles/a/tasks/main.yml", "bin/demo"} & paths(of("x", text))


def test_a_program_without_ending_is_python_where_it_says_so() -> None:
    text = "#!/usr/bin/python3 -I\nfrom a import b\n"
    assert of("roles/a/files/program", text).imports == {Import(0, "a", ("b",))}


@pytest.mark.parametrize("path", ["README.md", "tests/unit/a/fixtures/x.yml", "a/package-lock.json"])
def test_pages_and_recordings_mention_nothing(path: str) -> None:
    assert of(path, "hpcai.gpu_cluster.a roles/a/tasks/main.yml") == Mentions()


@pytest.mark.parametrize(("path", "text"), [("x.py", "def f(:\n  'bin/tool'\n"), ("x.yml", "a: [\n  'bin/tool'\n")])
def test_what_cannot_be_parsed_is_text(path: str, text: str) -> None:
    assert "bin/tool" in paths(of(path, text))


def test_what_is_no_text_mentions_nothing() -> None:
    assert mentions("weird.bin", b"\xff\xfe\x00roles/a") == Mentions()


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("docs/**", "docs/a/b.md", True),
        ("docs/**", "docs", False),
        ("**/*.md", "README.md", True),
        ("**/*.md", "roles/a/README.md", True),
        ("roles/*/README.md", "roles/a/b/README.md", False),
        ("m/{create,destroy}.yml", "m/destroy.yml", True),
        ("m/{create,destroy}.yml", "m/converge.yml", False),
        ("**", "a/b/c", True),
        ("a.b", "axb", False),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert parts.matcher([pattern])(path) is expected


def test_a_pattern_can_take_away() -> None:
    matches = parts.matcher(["a/**", "!a/b/**"])
    assert matches("a/x")
    assert not matches("a/b/x")
