# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every message writes an option so that the role's variable takes its place, and every role has one for it.

The code is read, so that a new message is judged without a test of its own.
"""

from __future__ import annotations

import ast
import pathlib
import re
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import in_words_of, variable_of
from test_role_variables import COLLECTION, ROLES, ROOT, calls, load

PLUGINS = ROOT / "plugins"
#: Who speaks where no task of a role is at hand: the modules of AzCopy and of datasets work in the background and for others, and
#: what reads a dataset runs without Ansible, too. dataset_collect names the variables.
ELSEWHERE = {"_azcopy", "_blob", "_dataset", "_gzip", "_shards"}
#: Texts for programs, with the names of their own formats.
NO_MESSAGE = {"gres_conf: which", "gres_conf: it is not known"}


def options_of(path: pathlib.Path) -> t.Iterator[str]:
    """The options that the documentation of a module or a fragment names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        named = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").isupper()
        if named and isinstance(node.value, ast.Constant) and "options:" in str(node.value.value):
            documented = yaml.safe_load(node.value.value)
            yield from (documented.get("options") or {}) if isinstance(documented, dict) else ()


OPTIONS = {
    option
    for folder in ("modules", "doc_fragments")
    for path in (PLUGINS / folder).glob("*.py")
    for option in options_of(path)
}


def sentences(path: pathlib.Path) -> t.Iterator[str]:
    """All texts of several words but docstrings and documentation, with ``{}`` for what is put in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    docs |= {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") in ("DOCUMENTATION", "EXAMPLES", "RETURN")
    }
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs | parts:
            text = node.value
        else:
            continue
        if " " in text and not text.startswith(tuple(NO_MESSAGE)):
            yield text


def bare(text: str) -> list[str]:
    """Options in a text that no backticks are around. A name of one word is one after a verb that sets it."""
    outside = re.sub(r"`[^`]*`", "``", text)
    words = re.findall(r"\b[a-z0-9]+_\w+", outside) + re.findall(r"\b[Ss]et (\w+) to\b", outside)
    return [word for word in words if word in OPTIONS]


def test_bare_options_are_found() -> None:
    assert bare("Install it, or set nvidia_smi.") == ["nvidia_smi"]
    assert bare("Set name to one of a, b.") == ["name"]
    assert bare("Set `name` to one of them, or set `nvidia_smi`: the name stays.") == []
    assert len(OPTIONS) > 200


SPEAKERS = [
    path
    for folder in ("module_utils", "plugin_utils", "action")
    for path in sorted((PLUGINS / folder).rglob("*.py"))
    if not ELSEWHERE & set(path.parts) and not path.name.startswith(("azcopy_", "dataset_"))
]


@pytest.mark.parametrize("folder", sorted({path.parent for path in SPEAKERS}), ids=lambda path: path.name)
def test_every_option_in_a_message_stands_in_backticks(folder: pathlib.Path) -> None:
    found = {
        f"{path.name}: {text}": bare(text)
        for path in SPEAKERS
        if path.parent == folder
        for text in sentences(path)
        if bare(text)
    }
    assert found == {}


#: The packages whose messages a module ends with.
PACKAGES = {
    "cluster_ssh_check": ["_cluster_ssh"],
    "cluster_ssh_identity": ["_cluster_ssh"],
    "cluster_ssh_trust": ["_cluster_ssh"],
    "container_runtime": ["_container_runtime"],
    "glusterfs_check": ["_glusterfs"],
    "glusterfs_volume": ["_glusterfs"],
    "gpu_binding": ["_gpu_affinity"],
    "gpu_clocks": ["_gpu_clocks", "_node/nvidia_smi.py"],
    "mpi_check": ["_mpi"],
    "node_profile": ["_node", "_host/metadata.py"],
    "nvidia_driver": ["_nvidia_driver", "_node/nvidia_smi.py"],
    "nvme_raid": ["_nvme_raid"],
    "rdma_check": ["_rdma/check.py", "_rdma/check_request.py"],
    "rdma_stack": ["_rdma"],
}
#: Options that a task gives a word of its own, or what another role has learned.
OF_THE_TASK = {"facts", "layer", "profile", "state"}


def named_by(module: str) -> set[str]:
    """The options in backticks in what a module says, of those that it has."""
    paths = [PLUGINS / "modules" / f"{module}.py", PLUGINS / "action" / f"{module}.py"]
    for place in PACKAGES[module]:
        root = PLUGINS / "module_utils" / place
        paths += [root] if root.suffix else sorted(root.glob("*.py"))
    texts = [text for path in paths for text in sentences(path)]
    return {option for text in texts for option in re.findall(r"`(\w+)[`:]", text)}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_option_that_a_role_passes_is_told_by_its_variable(role: pathlib.Path) -> None:
    lost = set()
    for path in sorted((role / "tasks").glob("*.yml")):
        for task in load(path):
            for key, arguments in task.items():
                module = key.removeprefix(COLLECTION)
                if module in PACKAGES and key != module:
                    shared = {**(load(role / "defaults/main.yml") or {}), **(load(role / "vars/main.yml") or {})}
                    variables = {**shared, **task.get("vars", {})}
                    options = (named_by(module) & set(arguments)) - OF_THE_TASK
                    lost |= {option for option in options if not variable_of(option, arguments, role.name, variables)}
    assert lost == set()


#: What a task makes of a role's variable under another name, or with text around it.
PATHS = {
    ("numa_pinning", "gpu_bind"): "numa_pinning_bin_dir",
    ("numa_pinning", "map"): "numa_pinning_map",
    ("glusterfs", "brick_directory"): "glusterfs_storage_path",
    ("glusterfs", "mount_point"): "glusterfs_mount_point",
}


@pytest.mark.parametrize(("case", "variable"), PATHS.items())
def test_a_path_is_told_by_its_variable(case: tuple[str, str], variable: str) -> None:
    role, option = case
    told = {
        variable_of(option, arguments, role, variables)
        for arguments, variables in calls(ROOT / "roles" / role)
        if option in arguments
    }
    assert told == {variable}


#: What an item of a list of node_state's is made of: role, place, and the variables that a message names.
ITEMS = {
    ("numa_pinning", "files[0].path"): "numa_pinning_bin_dir",
    ("numa_pinning", "directories[0].path"): "numa_pinning_bin_dir",
    ("numa_pinning", "files[1].interpreter"): "numa_pinning_python",
    ("numa_pinning", "absent[0]"): "numa_pinning_bin_dir",
    ("gpu_clocks", "files[0].interpreter"): "gpu_clocks_python",
    ("hpcx_mpi", "archives[0].path"): "hpcx_mpi_prefix` and `hpcx_mpi_version",
    ("hpcx_mpi", "archives[0].sha256"): "hpcx_mpi_sha256",
    ("dataset_staging", "archives[0].sha256"): "dataset_staging_azcopy_sha256",
    ("dataset_staging", "directories[0].path"): "dataset_staging_log_path",
}


@pytest.mark.parametrize("case", ITEMS, ids=" ".join)
def test_an_item_of_a_list_is_told_by_what_it_is_made_of(case: tuple[str, str]) -> None:
    role, place = case
    told = {
        in_words_of(role, {"msg": f"Write it into `{place}`."}, arguments, variables)["msg"]
        for arguments, variables in calls(ROOT / "roles" / role)
        if place.partition("[")[0] in arguments
    }
    assert f"Write it into `{ITEMS[case]}`." in told
