# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module says names the variables of the role that called it, and its own options to everybody else."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import types
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import in_words_of, variable_of

ROOT = pathlib.Path(__file__).parents[3]
ROLES = sorted((ROOT / "roles").iterdir())
COLLECTION = "hpcai.gpu_cluster."

#: What roles call otherwise than the module does, where messages name it. ``role.option`` -> variable
OTHER_NAMES = {
    "cluster_ssh.cluster": "cluster_ssh_name",
    "cluster_ssh.key_on_all": "cluster_ssh_private_key_on",
    "dataset_staging.rank": "dataset_staging_scope",
    "glusterfs.brick_directory": "glusterfs_storage_path",
    "gpu_clocks.graphics_mhz": "gpu_clocks_job_graphics_mhz",
    "gpu_clocks.policy": "gpu_clocks_job_policy",
    "mofed.timeout_s": "mofed_verify_timeout_s",
}


def load(path: pathlib.Path) -> t.Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def calls(role: pathlib.Path) -> t.Iterator[tuple[dict[str, t.Any], dict[str, t.Any]]]:
    """The arguments of every module of the collection that a role calls, and what the task sees of the role's variables."""
    shared = {**(load(role / "defaults/main.yml") or {}), **(load(role / "vars/main.yml") or {})}
    for path in sorted((role / "tasks").glob("*.yml")):
        for task in load(path):
            for key, arguments in task.items():
                if key.startswith(COLLECTION):
                    yield arguments, {**shared, **task.get("vars", {})}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_variable_that_stands_for_an_option_is_one_of_the_role(role: pathlib.Path) -> None:
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    known = {name for spec in specs.values() for name in spec.get("options") or {}}
    found = {
        variable_of(option, arguments, role.name, variables)
        for arguments, variables in calls(role)
        for option in arguments
    }
    assert found - {""} <= known
    assert found - {""}


@pytest.mark.parametrize("case", OTHER_NAMES)
def test_another_name_is_read_from_the_task(case: str) -> None:
    role, option = case.split(".")
    found = {
        variable_of(option, arguments, role, variables)
        for arguments, variables in calls(ROOT / "roles" / role)
        if option in arguments
    }
    assert OTHER_NAMES[case] in found


def test_every_option_that_nvidia_driver_names_is_a_variable_of_its_role() -> None:
    sources = (ROOT / "plugins/module_utils/_nvidia_driver").glob("*.py")
    named = {option for path in sources for option in re.findall(r"`(\w+)[`:]", path.read_text(encoding="utf-8"))}
    [(arguments, variables)] = calls(ROOT / "roles/nvidia_driver")
    found = {option: variable_of(option, arguments, "nvidia_driver", variables) for option in named & set(arguments)}
    # The role has an entry point for each state.
    assert found.pop("state") == ""
    assert found == {option: f"nvidia_driver_{option}" for option in found}
    assert {"source", "version", "allow_unload", "drain", "cuda_version"} <= set(found)


@pytest.mark.parametrize(
    ("arguments", "variables", "variable"),
    [
        ({"size": "{{ disk_size | int }}"}, {}, "disk_size"),
        ({"size": "{{ disk_bytes }}"}, {"disk_size": 1}, "disk_bytes"),
        ({"size": "{{ __disk_a }}"}, {"__disk_a": "{{ __disk_b }}", "__disk_b": "{{ disk_c + disk_c }}"}, "disk_c"),
        ({"size": "{{ __disk_a }}"}, {"__disk_a": "{{ __disk_a }}"}, ""),
        ({"size": "{{ disk_size if disk_kind else 0 }}"}, {}, "disk_size"),
        ({"size": "{{ disk_kind or disk_bytes }}"}, {"disk_size": 1}, ""),
        ({"size": 1}, {}, ""),
        ({}, {"disk_size": 1}, "disk_size"),
        ({}, {"other_size": 1}, ""),
    ],
)
def test_the_variable_behind_an_option(arguments: dict[str, t.Any], variables: dict[str, t.Any], variable: str) -> None:
    assert variable_of("size", arguments, "disk", variables) == variable


def test_texts_are_translated_and_nothing_else() -> None:
    warning = types.SimpleNamespace(event=types.SimpleNamespace(msg="Raise `size`."))
    other = types.SimpleNamespace(event=types.SimpleNamespace(msg="`ls` said `no`."))
    result = {
        "failed": True,
        "error_kind": "too_small",
        "msg": "`size` is 1. Set `size: 2`, or see `size of` and size.",
        "remedy": "Set `size: 2`.",
        "stdout": "`size`",
        "warnings": [warning, other],
        "problems": [{"remedy": "Set `size`.", "name": "`size`"}],
        "exception": "of the module",
    }
    translated = in_words_of("disk", result, {"size": "{{ disk_size }}"}, {})
    assert translated == {
        "failed": True,
        "error_kind": "too_small",
        "msg": "`disk_size` is 1. Set `disk_size: 2`, or see `size of` and size.",
        "remedy": "Set `disk_size: 2`.",
        "stdout": "`size`",
        "warnings": ["Raise `disk_size`.", other],
        "problems": [{"remedy": "Set `disk_size`.", "name": "`size`"}],
    }


def test_an_error_that_names_no_option_keeps_its_traceback() -> None:
    result = {"failed": True, "msg": "No space is left.", "exception": "of the module"}
    assert in_words_of("disk", result, {"size": "{{ disk_size }}"}, {}) == result


@pytest.mark.slow
@pytest.mark.newest
def test_a_play_names_the_variables_of_the_role_and_without_one_the_options(tmp_path: pathlib.Path) -> None:
    """One play for a module, an action, and an item of a loop: starting ansible-playbook is what takes the time."""
    clocks = {"name": f"{COLLECTION}gpu_clocks", "tasks_from": "job_begin"}
    tasks: list[dict[str, t.Any]] = [
        {"ansible.builtin.include_role": clocks, "vars": {"gpu_clocks_job_policy": "values"}},
        {
            "ansible.builtin.include_role": {"name": f"{COLLECTION}node_profile"},
            "vars": {"node_profile_paths": ["/nowhere"]},
        },
        {"hpcai.gpu_cluster.gpu_clocks": {"policy": "{{ item }}"}, "loop": ["values"]},
        {
            "ansible.builtin.include_role": {"name": f"{COLLECTION}numa_pinning", "tasks_from": "install"},
            "vars": {"numa_pinning_bin_dir": "bin", "numa_pinning_packages": []},
        },
        {
            "ansible.builtin.include_role": {"name": f"{COLLECTION}gpu_clocks", "tasks_from": "install"},
            "vars": {"gpu_clocks_python": "python3"},
        },
        # Not wrong, but of an unknown machine type: it warns.
        {
            "ansible.builtin.include_role": {"name": f"{COLLECTION}node_profile"},
            "vars": {"node_profile_metadata": "never", "node_profile_on_mismatch": "warn"},
        },
        {
            "ansible.builtin.include_role": {"name": f"{COLLECTION}dataset_staging", "tasks_from": "install"},
            "vars": {"dataset_staging_azcopy_sha256": "", "dataset_staging_log_path": str(tmp_path)},
        },
    ]
    kinds = ["bad_value", "bad_input", "", "bad_input", "bad_input", "", "bad_input"]
    blocks = [
        {
            "block": [task],
            "rescue": [
                {"ansible.builtin.assert": {"that": f"(ansible_failed_result.error_kind | default('')) == '{kind}'"}}
            ],
        }
        for task, kind in zip(tasks, kinds)
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": blocks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    ran = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / "ansible-playbook",
            tmp_path / "play.yml",
            "--extra-vars",
            f"ansible_python_interpreter={sys.executable}",
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    output = " ".join((ran.stdout + ran.stderr).split())
    assert ran.returncode == 0, output
    # Once in Ansible's error, and once in the result's msg and in its remedy.
    assert output.count("Set `gpu_clocks_job_graphics_mhz`, `gpu_clocks_job_memory_mhz`, or both.") == 3
    assert output.count("Correct `node_profile_paths`.") == 3
    assert output.count("Set `graphics_mhz`, `memory_mhz`, or both.") == 3
    assert "'bin' is not an absolute path. Write the whole path in `numa_pinning_bin_dir`, from the root." in output
    assert "Set `gpu_clocks_python` to an absolute path without blanks, such as /usr/bin/python3." in output
    assert "Set `node_profile_name`, or add a file to `node_profile_paths`." in output
    assert "is not set. Compute it with `sha256sum` from a copy that you trust" in output
    assert "write it into `dataset_staging_azcopy_sha256`." in output
