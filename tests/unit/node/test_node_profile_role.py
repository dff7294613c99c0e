# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role in a real play on this machine, with the simulator's GPUs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import simulated_gpus
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import SHIPPED, FileLibrary

REPO = Path(__file__).resolve().parents[3]
ROLE = REPO / "roles/node_profile"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The root of a node with simulated GPUs."""
    simulated_gpus.install(tmp_path, "Standard_ND96asr_v4")
    return tmp_path


def play(root: Path, variables: dict[str, t.Any], *plays: dict[str, t.Any]) -> tuple[dict[str, t.Any], str]:
    """Run plays on localhost; the results by task name, and everything that was printed."""
    base = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    playbook = root / "play.yml"
    playbook.write_text(yaml.safe_dump([{**base, **item} for item in plays]), encoding="utf-8")
    variables = {
        "ansible_python_interpreter": sys.executable,
        "node_profile_nvidia_smi": str(root / "usr/bin/nvidia-smi"),
        "node_profile_metadata": "never",
        **variables,
    }
    environment = {
        **os.environ,
        "GPU_SIMULATOR_STATE": str(root / "var/lib/gpu-simulator/state.json"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
    }
    ran = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", playbook, "--extra-vars", json.dumps(variables)],
        cwd=REPO,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    try:
        document = json.loads(ran.stdout[ran.stdout.index("{") :])
    except ValueError:
        pytest.fail(f"no JSON in the output:\n{ran.stdout}\n{ran.stderr}")
    results = {}
    for played in document["plays"]:
        for task in played["tasks"]:
            # Tasks of a role carry its name in front.
            results[task["task"]["name"].rpartition(" : ")[2]] = task["hosts"]["localhost"]
    return results, ran.stdout + ran.stderr


VERIFY = "verify | Check that the node is what its profile says"
ROLE_PLAY = {"roles": ["hpcai.gpu_cluster.node_profile"]}
SHOW = {
    "tasks": [
        {
            "name": "Show",
            "ansible.builtin.debug": {
                "msg": {
                    "name": "{{ ansible_facts['node_profile']['name'] }}",
                    "verdict": "{{ ansible_facts['node_profile']['verdict'] }}",
                    "memory": "{{ ansible_facts['node_profile']['memory']['mib'] }}",
                    "nccl": "{{ ansible_facts['node_profile']['nccl']['env'] }}",
                    "gpus": "{{ ansible_facts['gpu_node']['gpus'] | length }}",
                    "numa": "{{ ansible_facts['gpu_node']['numa'] | length }}",
                }
            },
        }
    ]
}


@pytest.mark.slow
@pytest.mark.newest
def test_the_role_offers_facts_in_two_results(node: Path) -> None:
    variables = {"node_profile_checks": ["gpus"], "node_profile_overrides": {"memory": {"mib": 123456}}}
    results, _output = play(node, variables, ROLE_PLAY, SHOW)
    # The argument check and one action: nothing else costs time on a node.
    assert len(results) == 3
    assert not any(result.get("changed") for result in results.values())
    shown = results["Show"]["msg"]
    assert (shown["name"], shown["verdict"], shown["memory"], shown["gpus"]) == ("Standard_ND96asr_v4", "ok", 123456, 8)
    assert shown["nccl"]["NCCL_IB_PCI_RELAXED_ORDERING"] == "1"
    assert shown["numa"] >= 1
    assert "chosen by hardware" in results[VERIFY]["msg"]
    assert "not asked for: cpu, memory, numa, fabric, nvme" in results[VERIFY]["msg"]


@pytest.mark.slow
@pytest.mark.newest
def test_a_lost_gpu_fails_the_play_and_is_named(node: Path) -> None:
    simulated_gpus.simulate(node, "fault.py", "--lost", "3")
    results, _output = play(node, {"node_profile_checks": ["gpus"]}, ROLE_PLAY)
    result = results[VERIFY]
    assert result["failed"] is True
    assert result["error_kind"] == "profile_mismatch"
    assert "GPU 3 (0004:00:00.0): expected present, found the driver answers 'GPU is lost' for it" in result["msg"]
    assert "Source: azhpc-images" in result["msg"]
    assert "ansible_facts" not in result


@pytest.mark.slow
@pytest.mark.newest
def test_the_action_in_every_mode(tmp_path: Path) -> None:
    """One play for all: starting ansible-playbook is what takes the time."""
    site = tmp_path / "profiles"
    site.mkdir()
    (site / "mine.yml").write_text("a: [", encoding="utf-8")
    nd = {"name": "Standard_ND96asr_v4", "checks": ["gpus"]}
    missing, hang = ["--missing", "0", "5"], ["--hang", "600"]
    # title -> (faults, options, whether it fails, verdict, words of its message)
    cases: dict[str, tuple[list[str], dict[str, t.Any], bool, str, str]] = {
        "fail": (missing, nd, True, "fail", "GPU 5 (000c:00:00.0): expected present, found missing"),
        "warn": (missing, {**nd, "on_mismatch": "warn"}, False, "fail", "2 fail"),
        "gather only": (missing, {**nd, "state": "gathered"}, False, "fail", "2 fail"),
        "hang": (hang, {**nd, "nvidia_smi_timeout_s": 0.5}, False, "incomplete", "1 incomplete"),
        "unknown machine": (["--exit", "9"], {}, False, "incomplete", "generic, chosen by nothing that is known"),
        "wrong name": ([], {"name": "NDv4"}, True, "", "There is no profile 'NDv4'"),
        "wrong path": ([], {"paths": ["/nowhere/at/all"]}, True, "", "/nowhere/at/all of `paths`"),
        "wrong key": ([], {**nd, "overrides": {"memory": {"mbi": 1}}}, True, "", "memory.mbi: unknown key"),
        "wrong file": ([], {"paths": [str(site)], "name": "mine"}, True, "", "mine.yml cannot be read"),
        "wrong choice": ([], {"on_mismatch": "panic"}, True, "", "must be one of: fail, warn"),
    }
    tasks = []
    for number, (title, (faults, options, *_expected)) in enumerate(cases.items()):
        root = tmp_path / str(number)
        simulated_gpus.install(root, "Standard_ND96asr_v4")
        simulated_gpus.simulate(root, "fault.py", *faults)
        arguments = {"nvidia_smi": str(root / "usr/bin/nvidia-smi"), "metadata": "never", **options}
        state = {"GPU_SIMULATOR_STATE": str(root / "var/lib/gpu-simulator/state.json")}
        tasks.append(
            {"name": title, "hpcai.gpu_cluster.node_profile": arguments, "environment": state, "ignore_errors": True}
        )
    results, output = play(tmp_path, {}, {"tasks": tasks})
    for title, (_faults, _options, fails, verdict, words) in cases.items():
        assert bool(results[title].get("failed")) is fails, title
        assert results[title].get("verdict", "") == verdict, title
        assert words in results[title]["msg"], title
    # What does not fail is still said aloud: a warning per node, none where only facts were wanted.
    assert output.count("GPU 5 (000c:00:00.0): expected present, found missing") == 1 + 1
    assert "nvidia-smi did not answer in time and was killed" in output


def test_the_entry_points_call_the_same_action() -> None:
    """What verify passes on, configure passes on too, except that it never fails."""
    tasks = {
        name: yaml.safe_load((ROLE / f"tasks/{name}.yml").read_text(encoding="utf-8"))[0][
            "hpcai.gpu_cluster.node_profile"
        ]
        for name in ("configure", "verify")
    }
    assert tasks["configure"].pop("state") == "gathered"
    assert tasks["verify"].pop("state") == "verified"
    assert tasks["verify"].pop("on_mismatch") == "{{ node_profile_on_mismatch }}"
    assert tasks["configure"] == tasks["verify"]
    # A list or dictionary may be a text, see as_list and as_dict.
    values = {name: re.sub(r" \| hpcai\.gpu_cluster\.as_\w+", "", value) for name, value in tasks["verify"].items()}
    assert values == {name: f"{{{{ node_profile_{name} }}}}" for name in values}


def test_site_files_hide_shipped_ones(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, memory in ((first, 1), (second, 2)):
        directory.mkdir()
        spec = yaml.safe_load((ROLE / "files/profiles/Standard_ND96asr_v4.yml").read_text(encoding="utf-8"))
        spec["memory"]["mib"] = memory
        (directory / "standard_nd96asr_v4.yml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    library = FileLibrary([first, second, SHIPPED])
    loaded = library.load("Standard_ND96asr_v4")
    assert loaded is not None
    assert loaded["memory"]["mib"] == 1
    assert [item["memory"]["mib"] for item in library.load_all() if item["name"] == "Standard_ND96asr_v4"] == [1]
    assert library.load("absent") is None
    # A file that hides a shipped one is the site's.
    assert [item["name"] for item in library.load_own()] == ["Standard_ND96asr_v4"]


def test_argument_specs_equal_the_defaults() -> None:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    specs = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    assert set(specs) == {"main", "configure", "verify"}
    for spec in specs.values():
        assert {name: option["default"] for name, option in spec["options"].items()} == defaults
