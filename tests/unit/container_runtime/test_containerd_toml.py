# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However containerd's files are written, the role reads them as Python's own reader of TOML does, and nothing in them is lost."""

from __future__ import annotations

import typing as t

import pytest
import tomllib
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import containerd, settings, toml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from containerd_files import CRI
from hypothesis import example, given
from hypothesis import strategies as st
from toml_documents import NAMES, SCALARS, TEXTS, TREES, documents

PATTERN = "/etc/containerd/conf.d/*.toml"
RUNC = {"runtime_type": "io.containerd.runc.v2"}
BOM = "\ufeff"
WAYS = [
    'a = """x""y"""\nb = """x"""""\nc = \'\'\'x\'\'\'\'\'\n',
    "\"\\u0061\" = [1, # ]\n  \"]\", '''\n]''',\n]\n[ \"b\" . c ]\nd.e = {f = {g = [{h = 1}]}}\n",
    'a = """\\\n  x\\\n\n  y"""\n[b]#\n[[b.c]]\n[[b.c]]\nd=1979-05-27 07:32:00.5-07:00',
    "[a.b]\n[a]\nc = 1\n",
]


def plain(tree: t.Any) -> t.Any:
    """What a tree of pieces of text stands for."""
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in tree.items()}
    return [plain(one) for one in tree] if isinstance(tree, list) else tomllib.loads(f"x = {tree}")["x"]


def reads_and_writes(text: str, tree: dict[str, t.Any]) -> None:
    found = toml.read(text, "a file").tree
    assert plain(found) == tree
    assert tomllib.loads("\n".join([*toml.lines_of(found), ""])) == tree


@pytest.mark.slow
@given(documents(), st.booleans())
def test_every_file_is_read_and_written_again(document: tuple[str, dict[str, t.Any]], marked: bool) -> None:
    text, tree = document
    assert tomllib.loads(text) == tree
    reads_and_writes(BOM + text if marked else text, tree)


@pytest.mark.parametrize("text", WAYS)
def test_what_people_write_by_hand_is_read_and_written_again(text: str) -> None:
    reads_and_writes(text, tomllib.loads(text))


@given(st.text(alphabet="ab\"'\\\n\t un0041U", max_size=12))
@example("\\u00e9\\U0001f600\\\n  ")
def test_every_text_is_understood(text: str) -> None:
    for raw in (f"'''\n{text}'''", f"'{text}'", f'"{text}"', f'"""{text}"""'):
        try:
            value = tomllib.loads(f"x = {raw}")["x"]
        except tomllib.TOMLDecodeError:
            continue
        if isinstance(value, str):
            assert toml.text_of(raw) == value


CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "root": TEXTS,
        "version": st.just(2),
        "imports": st.lists(TEXTS | st.sampled_from([PATTERN, "/site/*.toml"]), max_size=3),
        "disabled_plugins": st.lists(st.sampled_from(["cri", "a]", "#"]), max_size=3),
        "plugins": TREES,
        "grpc": TREES,
    },
)


@pytest.mark.slow
@given(documents(CONFIGS), st.booleans())
def test_our_part_is_imported_and_nothing_else_changes(document: tuple[str, dict[str, t.Any]], marked: bool) -> None:
    text, before = document
    mark = BOM if marked and text.strip() else ""
    after = containerd.config_text(mark + text)
    assert after.startswith(mark)
    found = tomllib.loads(after.removeprefix(BOM))
    imports = found.pop("imports")
    had = before.pop("imports", [])
    assert imports == (had if PATTERN in had else [*had, PATTERN])
    assert containerd.import_items(after) == imports
    assert found == (before if text.strip() else {"version": 2})
    assert containerd.config_text(after) == after


RUNTIME = st.fixed_dictionaries(
    {},
    optional={
        "runtime_type": TEXTS,
        "pod_annotations": st.lists(TEXTS, max_size=2),
        "options": st.dictionaries(NAMES, SCALARS, max_size=2),
    },
)
SECTION = st.fixed_dictionaries(
    {},
    optional={
        "sandbox_image": TEXTS,
        "registry": TREES,
        "mirrors": st.lists(TREES, min_size=1, max_size=2),
        "containerd": st.fixed_dictionaries(
            {},
            optional={
                "default_runtime_name": st.sampled_from(["", "runc", "kata.v2", "nvidia"]),
                "snapshotter": TEXTS,
                "runtimes": st.dictionaries(st.sampled_from(["runc", "kata.v2", "nvidia"]), RUNTIME, max_size=3),
            },
        ),
    },
)
SITES = st.fixed_dictionaries({"version": st.just(2), "plugins": st.fixed_dictionaries({CRI: SECTION, "other": TREES})})


@pytest.mark.slow
@given(documents(SITES))
def test_our_part_has_everything_that_was_set_beside_it(document: tuple[str, dict[str, t.Any]]) -> None:
    text, before = document
    part = tomllib.loads(containerd.part_text([text]))
    assert (part.pop("version"), list(part), list(part["plugins"])) == (2, ["plugins"], [CRI])
    had = before["plugins"][CRI]
    base_of = had.get("containerd", {})
    runtimes = base_of.get("runtimes", {})
    named = base_of.get("default_runtime_name", "")
    base = "runc" if named in ("", "nvidia") else named
    like = runtimes.get(base, {})
    ours = {**like, **RUNC, "options": {**like.get("options", {}), "BinaryName": "/usr/bin/nvidia-container-runtime"}}
    wanted = {
        "default_runtime_name": "nvidia",
        "runtimes": {**runtimes, base: runtimes.get(base, RUNC), "nvidia": ours},
    }
    assert part["plugins"][CRI] == {**had, "containerd": {**base_of, **wanted}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = [\n", "no value that could be read (line 2)"),
        ("a = 1 b = 2\n", "something follows that does not belong there (line 1)"),
        ("\n[a\n", "] is missing (line 2)"),
        ("[[a]\n", "]] is missing (line 1)"),
        ("a\n", "= is missing (line 1)"),
        ("= 1\n", "no key that could be read (line 1)"),
        ('"\\x" = 1\n', "no key that could be read (line 1)"),
        ('a = "x\n', "no value that could be read (line 1)"),
        ("a = [1 2]\n", ", is missing (line 1)"),
        ("a = {b = 1, c}\n", "= is missing (line 1)"),
        ("a = 1\na = 2\n", "a is there twice (line 2)"),
        ("a = 1\n[a.b]\n", "a has a value elsewhere and is a table here (line 2)"),
        ("[a.b]\n[[a.b]]\n", "b is not an array of tables elsewhere (line 2)"),
    ],
)
def test_what_does_not_read_like_toml_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    for lines in (text, text.replace("\n", "\r\n")):
        with pytest.raises(ClusterError) as refused:
            containerd.import_items(lines, "/etc/containerd/conf.d/site.toml")
        said = str(refused.value)
        assert said.startswith("/etc/containerd/conf.d/site.toml does not read like TOML: ")
        assert words in said


def test_what_would_take_a_reader_all_its_memory_is_refused() -> None:
    with pytest.raises(ClusterError, match="nested too deeply"):
        containerd.config_text("a = " + "[" * 100_000)


@pytest.mark.parametrize(
    "imports", ["imports = 1", "imports = [1]", 'imports.a = "x"', "[imports]", "[[imports]]", 'imports = "x"']
)
def test_imports_that_are_no_list_of_texts_are_refused(imports: str) -> None:
    with pytest.raises(ClusterError, match=f"`imports` in {settings.CONTAINERD} is not a list of texts"):
        containerd.config_text(f"{imports}\n")


@pytest.mark.parametrize("version", ['"2"', "2.0", "-1", "[2]", "{a = 2}"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(ClusterError, match="`version` in a file of containerd"):
        containerd.version_of([f"version = {version}\n"])


@pytest.mark.parametrize("value", ["1", '"x"', "[]"])
@pytest.mark.parametrize(
    "key", ["plugins", f'plugins."{CRI}"', f'plugins."{CRI}".containerd', f'plugins."{CRI}".containerd.runtimes']
)
def test_a_value_where_a_table_belongs_is_refused(key: str, value: str) -> None:
    with pytest.raises(ClusterError, match="is not a table, so that nothing can be set in it"):
        containerd.part_text([f"version = 2\n{key} = {value}\n"])
