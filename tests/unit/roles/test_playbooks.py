# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks run, and where. The playbooks are the real ones; but for the last test the roles only say that they ran."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[3]
VALIDATES = "hpcai.gpu_cluster.role_arguments"
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
#: The switches that a node may have for itself, and what they keep it out of. All but one are on unless they are false.
PER_NODE = {
    "mofed": {"main", "verify", "install"},
    "nvidia_driver": {"main", "verify", "install"},
    "container_runtime": {"main", "verify", "install"},
    "gpu_clocks": {"main", "verify", "remove", "install"},
    "numa_pinning": {"main", "verify", "remove", "install"},
    "nvme_raid": {"main", "verify", "remove", "install"},
}
OFF = {f"gpu_cluster_{role}": False for role in PER_NODE}
#: Chosen in place of the shared scratch that these tests choose.
INSTEAD = {"beeond"}
#: What concerns all nodes together.
SHARED = {
    "gpu_cluster_mpi": True,
    "gpu_cluster_health": True,
    "gpu_cluster_scratch": "glusterfs",
    "dataset_staging_sources": [{"url": "https://account.blob.core.windows.net/data"}],
}
EVERYWHERE = {**SHARED, "dataset_staging_destination": "/data", "gpu_cluster_container_runtime": True}
EVERYWHERE["nvidia_driver_source"] = "preinstalled"
EVERYWHERE["hpcx_mpi_source"] = "distro"
EVERYWHERE["dataset_staging_azcopy_source"] = "preinstalled"
Nodes = dict[str, dict[str, t.Any]]
Ran = dict[tuple[str, str], list[str]]


class Playbooks:
    """Runs playbooks on nodes that are this machine."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        collection = folder / "collections/ansible_collections/hpcai/gpu_cluster"
        for role in ROLES:
            tasks = collection / "roles" / role / "tasks"
            tasks.mkdir(parents=True)
            for entry in ("main", "install", "verify", "remove"):
                (tasks / f"{entry}.yml").write_text(json.dumps([{"name": entry, "ansible.builtin.debug": {"msg": ""}}]))
        # What validates arguments is real, and so are the specs that it reads.
        for part in ("plugins", "meta"):
            (collection / part).symlink_to(ROOT / part)

    def run(
        self, nodes: Nodes, *names: str, fails: bool = False, real: str = "", tags: str = "", **options: t.Any
    ) -> tuple[Ran, str]:
        """The hosts that every entry point of a role ran on, and what was printed. ``real``: a tag of the real roles."""
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        hosts = {name: {**local, **variables} for name, variables in nodes.items()}
        inventory, noted = self.folder / "hosts.json", self.folder / "results.json"
        inventory.write_text(json.dumps({"gpu_nodes": {"hosts": hosts}}))
        done = subprocess.run(
            [
                pathlib.Path(sys.executable).parent / "ansible-playbook",
                *("-i", inventory),
                *("-e", json.dumps({"target": "gpu_nodes", **options})),
                *("--tags", real or tags or "all"),
                *(ROOT / "playbooks" / f"{name}.yml" for name in names),
            ],
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections" if real else self.folder / "collections"),
                "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "benchmarks/converge/callbacks"),
                "ANSIBLE_FORCE_COLOR": "0",
                "CONVERGE_RESULTS": str(noted),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output
        ran: Ran = {}
        for _play, role, task, host, kind, _changed in json.loads(noted.read_text())["results"]:
            if role and kind == "ok":
                ran.setdefault((role.rpartition(".")[2], task.rpartition(" : ")[2]), []).append(host)
        return {part: sorted(hosts) for part, hosts in ran.items()}, output


@pytest.fixture
def playbooks(tmp_path: pathlib.Path) -> Playbooks:
    return Playbooks(tmp_path)


@pytest.mark.slow
@pytest.mark.newest
def test_nodes_that_go_without_something_do_so_alone(playbooks: Playbooks) -> None:
    """One between two: whether the first, the last, any or all of them decided for the others, one would do what it should not."""
    nodes = {"gpu-1": {**EVERYWHERE, **OFF}, "gpu-2": EVERYWHERE, "gpu-3": {**EVERYWHERE, **OFF}}
    ran, _output = playbooks.run(nodes, "site", "teardown", "image", gpu_cluster_drivers_serial=1)
    missed = {(role, entry) for role, entries in PER_NODE.items() for entry in entries}
    assert {part: hosts for part, hosts in ran.items() if part in missed} == {part: ["gpu-2"] for part in missed}
    everywhere = {part: hosts for part, hosts in ran.items() if part not in missed}
    assert {role for role, _entry in everywhere} == set(ROLES) - set(PER_NODE) - INSTEAD
    assert everywhere == {part: list(nodes) for part in everywhere}


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.oldest
def test_hardware_is_verified_where_it_is_wanted(playbooks: Playbooks) -> None:
    nodes = {"gpu-1": {**EVERYWHERE, "gpu_cluster_verify_hardware": False}, "gpu-2": EVERYWHERE}
    ran, _output = playbooks.run(nodes, "verify")
    assert ran["node_profile", "verify"] == ["gpu-2"]
    assert ran["hpcx_mpi", "verify"] == ["gpu-1", "gpu-2"]


@pytest.mark.slow
@pytest.mark.newest
def test_nothing_that_nobody_asked_for_is_run_or_baked(playbooks: Playbooks) -> None:
    """But AzCopy, on the node for which it is said which one."""
    plain = {"nvidia_driver_source": "preinstalled", "gpu_cluster_mpi": False}
    nodes = {"gpu-1": {**plain, "dataset_staging_azcopy_sha256": "0" * 64}, "gpu-2": plain}
    ran, _output = playbooks.run(nodes, "site", "image")
    assert ran.pop(("dataset_staging", "install")) == ["gpu-1"]
    expected = set(ROLES) - {
        "container_runtime",
        "cluster_ssh",
        "hpcx_mpi",
        "glusterfs",
        "dataset_staging",
        "health_check",
    }
    assert {role for role, _entry in ran} == expected - INSTEAD
    assert all(set(hosts) == set(nodes) for hosts in ran.values())


@pytest.mark.slow
@pytest.mark.newest
def test_what_concerns_all_nodes_must_not_differ(playbooks: Playbooks) -> None:
    nodes = {
        "gpu-1": {**EVERYWHERE, "gpu_cluster_mpi": "no"},
        "gpu-2": EVERYWHERE,
        "gpu-3": {**EVERYWHERE, "gpu_cluster_scratch": "none", "gpu_cluster_mpi": "yes", "dataset_staging_sources": []},
    }
    ran, output = playbooks.run(nodes, "site", fails=True)
    assert ran == {}
    told = " ".join(output.split())
    assert "gpu_cluster_mpi is false on gpu-1, true on gpu-2, gpu-3. gpu_cluster_scratch is glusterfs on" in told
    assert "on gpu-1, gpu-2, none on gpu-3. dataset_staging_sources is set on gpu-1, gpu-2, not set on gpu-3." in told
    assert "https://account.blob.core.windows.net/data" not in told


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.oldest
def test_the_mpi_in_use_stays_and_its_switch_is_named(playbooks: Playbooks, tmp_path: pathlib.Path) -> None:
    """The real role, on a node whose /opt is a link."""
    release = tmp_path / "data" / "hpcx" / "2.25.1"
    release.mkdir(parents=True)
    (release / ".node_state.json").write_text(json.dumps({"sha256": "0" * 64}))
    (tmp_path / "opt").symlink_to("data")
    (tmp_path / "opt" / "hpcx" / "current").symlink_to("2.25.1")
    node = {**OFF, "hpcx_mpi_prefix": f"{tmp_path}/opt/hpcx", "hpcx_mpi_modulefiles": f"{tmp_path}/modulefiles"}
    _ran, output = playbooks.run({"gpu-1": node}, "teardown", fails=True, real="hpcx_mpi_remove")
    assert f"{tmp_path}/opt/hpcx/current points at it. Set hpcx_mpi_remove_current to true" in " ".join(output.split())
    assert release.is_dir()


#: No connection can be made to these.
ELSEWHERE = {"ansible_connection": "ssh", "ansible_host": "gpu-1.invalid"}


@pytest.mark.slow
@pytest.mark.newest
def test_wrong_arguments_are_refused_before_a_node_is_contacted(playbooks: Playbooks) -> None:
    source = {"url": "https://account.blob.core.windows.net/data", "sas": "sig=hidden", "container": "c"}
    wrong = {"dataset_staging_processes": "many", "mofed_source": "cd", "dataset_staging_sources": [source]}
    # YAML reads a version that is not quoted as a number.
    wrong |= {"nvidia_driver_source": "cuda_repo", "nvidia_driver_version": 580.95}
    nodes = {"gpu-1": {**EVERYWHERE, **ELSEWHERE, **wrong}, "gpu-2": {**EVERYWHERE, **ELSEWHERE}}
    ran, output = playbooks.run(nodes, "site", fails=True)
    assert ran == {}
    told = " ".join(output.split())
    assert "4 arguments of roles are wrong. Nothing was changed. Correct them and run again." in told
    assert "nvidia_driver: nvidia_driver_version: it is the number 580.95" in told
    assert "mofed: value of mofed_source must be one of" in told
    assert "dataset_staging: argument 'dataset_staging_processes' is of type" in told
    assert "dataset_staging: dataset_staging_sources.container. Supported parameters include:" in told
    assert "hidden" not in told
    assert "UNREACHABLE" not in told
    assert "PLAY [RDMA drivers]" not in told


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    ("login", "remedy"),
    [
        ({"ansible_user": "azureuser"}, "Set ansible_become: true in the inventory, or give --become"),
        (
            {"ansible_become": True, "ansible_become_user": "azureuser"},
            "Leave ansible_become_user and --become-user out",
        ),
    ],
)
def test_a_user_who_does_not_become_root_is_refused_before_a_node_is_contacted(
    playbooks: Playbooks, login: dict[str, t.Any], remedy: str
) -> None:
    nodes = {"gpu-1": {**EVERYWHERE, **ELSEWHERE, **login}, "gpu-2": {**EVERYWHERE, **ELSEWHERE}}
    ran, output = playbooks.run(nodes, "site", fails=True)
    assert ran == {}
    told = " ".join(output.split())
    assert "Roles work as root, and on this node they would as azureuser. Nothing was changed." in told
    assert remedy in told
    assert "UNREACHABLE" not in told
    assert "PLAY [RDMA drivers]" not in told


@pytest.mark.slow
@pytest.mark.newest
def test_a_user_who_becomes_root_is_let_through(playbooks: Playbooks) -> None:
    login = {"ansible_user": "azureuser", "ansible_become": True}
    node = {**EVERYWHERE, **ELSEWHERE, **login, "mofed_source": "cd"}
    _ran, output = playbooks.run({"gpu-1": node}, "site", fails=True)
    told = " ".join(output.split())
    assert "Roles work as root" not in told
    assert "mofed: value of mofed_source must be one of" in told


@pytest.mark.slow
@pytest.mark.newest
def test_site_validates_before_and_with_the_facts_and_only_what_the_node_runs(playbooks: Playbooks) -> None:
    off = {**EVERYWHERE, **OFF, "mofed_source": "cd", "nvme_raid_level": "cd"}
    lacking = {**EVERYWHERE, "nvme_raid_wait_s": "{{ ansible_facts.of_nobody }}"}
    ran, output = playbooks.run({"gpu-1": lacking, "gpu-2": off}, "site")
    assert ran["mofed", "main"] == ["gpu-1"]
    assert ran["dataset_staging", "main"] == ["gpu-1", "gpu-2"]
    assert output.count("TASK [Check the arguments of every role that the node will run]") == 2
    assert output.count("TASK [Check the choices that concern more than one role]") == 1
    assert "TASK [Refuse wrong arguments" not in output
    # Nothing judges it after the second time.
    first, second = output.split("PLAY [Profile]")
    assert "not validated" not in first
    assert "These arguments lack a fact and are not validated: nvme_raid_wait_s (of_nobody)." in " ".join(
        second.split()
    )


@pytest.mark.slow
@pytest.mark.newest
def test_what_reads_a_fact_is_refused_once_the_fact_is_known(playbooks: Playbooks) -> None:
    """The role would take a list for no disks."""
    known = {"ansible.builtin.set_fact": {"gpu_node": {"nvme": ["a", "b"]}, "cacheable": True}}
    stub = playbooks.folder / "collections/ansible_collections/hpcai/gpu_cluster/roles/node_profile/tasks/main.yml"
    stub.write_text(json.dumps([{"name": "main", **known}]))
    wrong = {**EVERYWHERE, "nvme_raid_expected_disks": "{{ gpu_node.nvme }}"}
    other = {**EVERYWHERE, "nvme_raid_expected_disks": "{{ hostvars['gpu-1'].gpu_node.nvme | length }}"}
    ran, output = playbooks.run({"gpu-1": wrong, "gpu-2": other}, "site", fails=True)
    assert set(ran) == {("mofed", "main"), ("nvidia_driver", "main"), ("node_profile", "main")}
    assert "nvme_raid: argument 'nvme_raid_expected_disks' is of type" in " ".join(output.split())
    assert "One argument of a role is wrong." in output
    # The drivers are there by now.
    assert "Nothing was changed" not in output
    assert "not validated" not in output


#: A wrong argument of every role of a playbook, in the order in which they are run.
WRONG = {
    "mofed": ("mofed_timeout_s", "drivers"),
    "nvidia_driver": ("nvidia_driver_timeout_s", "drivers"),
    "node_profile": ("node_profile_metadata_timeout_s", "profile"),
    "cluster_ssh": ("cluster_ssh_timeout_s", "mpi"),
    "hpcx_mpi": ("hpcx_mpi_verify_timeout_s", "mpi"),
    "gpu_clocks": ("gpu_clocks_timeout_s", "tuning"),
    "numa_pinning": ("numa_pinning_ranks_per_node", "tuning"),
    "nvme_raid": ("nvme_raid_wait_s", "scratch"),
    "glusterfs": ("glusterfs_timeout_s", "scratch"),
    "container_runtime": ("container_runtime_toolkit", "containers"),
    "dataset_staging": ("dataset_staging_processes", "staging"),
    "health_check": ("health_check_iterations", "health"),
}


@pytest.mark.slow
@pytest.mark.newest
def test_every_playbook_by_itself_validates_its_roles(playbooks: Playbooks) -> None:
    """Every node has one wrong argument and stops there."""
    assert set(WRONG) == set(ROLES) - INSTEAD
    nodes = {f"{role}-1": {**EVERYWHERE, variable: "many"} for role, (variable, _playbook) in WRONG.items()}
    every = playbooks.folder / "every.yml"
    names = dict.fromkeys(name for _variable, name in WRONG.values())
    every.write_text(
        json.dumps([{"ansible.builtin.import_playbook": f"{ROOT}/playbooks/{name}.yml"} for name in names])
    )
    ran, output = playbooks.run(nodes, str(every.with_suffix("")), fails=True)
    order = list(nodes)
    # The roles of mpi.yml are validated together.
    late = {role: place + (role == "cluster_ssh") for place, role in enumerate(WRONG)}
    assert ran == {(role, "main"): sorted(order[late[role] + 1 :]) for role in WRONG if order[late[role] + 1 :]}
    told = " ".join(output.split())
    for role, (variable, _playbook) in WRONG.items():
        assert f"{role}: argument '{variable}' is of type" in told


@pytest.mark.slow
@pytest.mark.newest
def test_beeond_is_run_in_place_of_glusterfs_where_it_is_chosen(playbooks: Playbooks) -> None:
    nodes: Nodes = {node: {**EVERYWHERE, **OFF, "gpu_cluster_scratch": "beeond"} for node in ("gpu-1", "gpu-2")}
    ran, _output = playbooks.run(nodes, "site", "teardown", "image")
    scratch = {part: hosts for part, hosts in ran.items() if part[0] in ("beeond", "glusterfs")}
    assert scratch == {("beeond", entry): list(nodes) for entry in ("main", "verify", "remove", "install")}


@pytest.mark.slow
@pytest.mark.newest
def test_what_is_wrong_for_beeond_stops_its_play(playbooks: Playbooks) -> None:
    wrong = {**EVERYWHERE, **OFF, "gpu_cluster_scratch": "beeond", "beeond_timeout_s": "many"}
    ran, output = playbooks.run({"gpu-1": wrong}, "scratch", fails=True)
    assert ran == {}
    assert "beeond: argument 'beeond_timeout_s' is of type" in " ".join(output.split())


@pytest.mark.slow
@pytest.mark.newest
def test_a_tag_does_not_leave_the_validation_out(playbooks: Playbooks) -> None:
    nodes = {"gpu-1": {**EVERYWHERE, "dataset_staging_processes": "many"}}
    for playbook in ("site", "staging"):
        ran, output = playbooks.run(nodes, playbook, fails=True, tags="dataset_staging_verify")
        assert ran == {}
        assert "One argument of a role is wrong." in output


@pytest.mark.slow
@pytest.mark.newest
def test_a_role_is_validated_with_the_defaults_that_its_play_has(playbooks: Playbooks) -> None:
    """A default of a role of another play is not there when the role runs."""
    reads = {
        **EVERYWHERE,
        "container_runtime_docker_data_root": "{{ nvme_raid_mount_point }}/docker",
        "hpcx_mpi_verify_timeout_s": "{{ cluster_ssh_timeout_s }}",
    }
    # The filter `bool` would take the switch for false.
    misspelled = {**reads, "nvme_raid_mount_point": "/scratch", "gpu_cluster_numa_pinning": "ture"}
    right = {**misspelled, "gpu_cluster_numa_pinning": "yes", "gpu_cluster_mofed": "1"}
    nodes = {"gpu-1": reads, "gpu-2": right, "gpu-3": {**misspelled, "hpcx_mpi_source": "hpcx"}}
    _ran, output = playbooks.run(nodes, "validate", fails=True)
    told = " ".join(output.split())
    assert (
        "container_runtime: container_runtime_docker_data_root has no value: 'nvme_raid_mount_point' is undef" in told
    )
    assert "One argument of a role is wrong." in told
    assert "gpu-2 : ok=1" in told
    assert "2 arguments of roles are wrong." in told
    assert "gpu_cluster_numa_pinning is ture: it has to be true or false." in told
    assert "hpcx_mpi: hpcx_mpi_sha256 has no entry 2.25.1-ubuntu24.04-cuda13-x86_64: it has to be 64 hex" in told


def parts(plays: list[t.Any]) -> list[set[str]]:
    """Roles that share a play, of an option `roles`."""
    return [{item} if isinstance(item, str) else set(item) for item in plays]


PHASES = ["containers", "drivers", "health", "mpi", "profile", "scratch", "staging", "tuning"]


def plays_of(name: str) -> list[dict[str, t.Any]]:
    return t.cast(
        "list[dict[str, t.Any]]", yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text(encoding="utf-8"))
    )


def imported_by(play: dict[str, t.Any]) -> set[str]:
    return {task["ansible.builtin.import_role"]["name"].rpartition(".")[2] for task in play["tasks"]}


ENTRY_POINTS = {**dict.fromkeys(PHASES, "main"), "verify": "verify", "nvme_raid_consent": "consent"}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_play_validates_the_roles_that_it_imports_and_no_other(name: str) -> None:
    for play in plays_of(name):
        (arguments,) = (task[VALIDATES] for task in play["pre_tasks"] if VALIDATES in task)
        assert parts(arguments["roles"]) == [imported_by(play)]
        assert arguments.get("entry_point", "main") == ENTRY_POINTS[name]


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.oldest
def test_verify_by_itself_refuses_what_would_leave_a_measurement_out(playbooks: Playbooks) -> None:
    nodes = {"gpu-1": {**EVERYWHERE, "mofed_verify_bandwidth": "ture", "gpu_cluster_verify_hardware": False}}
    ran, output = playbooks.run(nodes, "verify", fails=True)
    assert ran == {}
    assert "mofed: argument 'mofed_verify_bandwidth' is of type" in " ".join(output.split())


def test_all_are_validated_in_the_parts_that_plays_import() -> None:
    (validation,) = (task for task in plays_of("validate")[0]["tasks"] if VALIDATES in task)
    named = re.findall(r"'([a-z_ ]+)': ", validation["vars"]["__gpu_cluster_roles"])
    imported = [imported_by(play) for name in PHASES for play in plays_of(name)]
    assert sorted(map(sorted, parts([item.split() for item in named]))) == sorted(map(sorted, imported))
