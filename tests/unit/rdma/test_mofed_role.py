# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role mofed makes of its variables: who measures with whom, what is expected, which tuning is on."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

ROOT = pathlib.Path(__file__).parents[3]
ROLE = ROOT / "roles" / "mofed"
FABRIC = {"count": 8, "rate_gbps": 200}
SHOWN = (
    "__mofed_part",
    "__mofed_partner",
    "__mofed_fabric",
    "__mofed_sysctl",
    "__mofed_limits",
    "__mofed_service_limits",
    "mofed_mirror",
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, t.Any]]:
    """The values on five nodes that differ, of one run."""
    directory = tmp_path_factory.mktemp("role")
    hosts: dict[str, dict[str, t.Any]] = {
        "a": {"ansible_facts_given": {"node_profile": {"fabric": FABRIC, "not_checked": []}}},
        "b": {"ansible_facts_given": {"node_profile": {"fabric": FABRIC, "not_checked": ["fabric"]}}},
        "c": {"mofed_rxe_netdev": "eth1", "mofed_tune_nfs_slots": False, "mofed_tune_memlock": False},
        "d": {"mofed_expected": {"count": 1}, "mofed_rxe_netdev": "eth1", "mofed_source": "doca"},
        "e": {
            "mofed_tune_services": False,
            "mofed_tune_zone_reclaim": False,
            "mofed_tune_arp_cache": False,
            "mofed_tune_nfs_slots": False,
        },
    }
    plays = [
        {
            "hosts": "all",
            "gather_facts": False,
            "vars": {"mofed_verify_bandwidth": True},
            "tasks": [
                {"ansible.builtin.set_fact": {"cacheable": True, "node_profile": "{{ ansible_facts_given.node_profile }}"},
                 "when": "ansible_facts_given is defined"},
                {"ansible.builtin.include_role": {"name": "mofed", "tasks_from": "show"}},
            ],
        }
    ]  # fmt: skip
    role = directory / "roles" / "mofed"
    (role / "tasks").mkdir(parents=True)
    for part in ("defaults", "vars"):
        os.symlink(ROLE / part, role / part)
    values = "{{ {" + ", ".join(f"'{name}': {name}" for name in SHOWN) + "} | to_json }}"
    write = {"ansible.builtin.copy": {"content": values, "dest": str(directory) + "/{{ inventory_hostname }}.json"}}
    (role / "tasks" / "show.yml").write_text(json.dumps([{**write, "delegate_to": "localhost"}]))
    (directory / "play.yml").write_text(json.dumps(plays))
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"hosts": {name: {**local, **values} for name, values in hosts.items()}}}
    (directory / "hosts.json").write_text(json.dumps(inventory))
    done = subprocess.run(
        [pathlib.Path(sys.executable).parent / "ansible-playbook", "-i", directory / "hosts.json", directory / "play.yml"],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_LOCALHOST_WARNING": "false"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((directory / f"{name}.json").read_text()) for name in hosts}


@pytest.mark.slow
@pytest.mark.newest
def test_neighbors_measure_with_each_other(shown: dict[str, dict[str, t.Any]]) -> None:
    parts = [(name, values["__mofed_part"], values["__mofed_partner"]) for name, values in shown.items()]
    assert parts == [
        ("a", "server", "b"), ("b", "client", "a"), ("c", "server", "d"), ("d", "client", "c"), ("e", "none", ""),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.newest
def test_the_profile_counts_where_it_is_checked(shown: dict[str, dict[str, t.Any]]) -> None:
    assert shown["a"]["__mofed_fabric"] == FABRIC
    assert shown["b"]["__mofed_fabric"] == {}
    assert shown["c"]["__mofed_fabric"] == {"hcas": [{"name": "rxe0", "link_layer": "Ethernet"}]}
    assert shown["d"]["__mofed_fabric"] == {"count": 1}
    assert shown["e"]["__mofed_fabric"] == {}


def test_every_switch_takes_its_setting_away(shown: dict[str, dict[str, t.Any]]) -> None:
    everything = {
        "vm.zone_reclaim_mode": "1",
        "net.ipv4.neigh.default.gc_thresh1": "4096",
        "net.ipv4.neigh.default.gc_thresh2": "8192",
        "net.ipv4.neigh.default.gc_thresh3": "16384",
        "sunrpc.tcp_max_slot_table_entries": "128",
    }
    assert shown["a"]["__mofed_sysctl"] == everything
    assert shown["a"]["__mofed_limits"] == {"memlock": "unlimited", "nofile": "1048576", "stack": "unlimited"}
    assert shown["a"]["__mofed_service_limits"] == {"memlock": "unlimited", "nofile": "1048576"}
    assert shown["c"]["__mofed_service_limits"] == {"nofile": "1048576"}
    assert shown["e"]["__mofed_service_limits"] == {}
    assert set(everything) - set(shown["c"]["__mofed_sysctl"]) == {"sunrpc.tcp_max_slot_table_entries"}
    assert set(shown["c"]["__mofed_limits"]) == {"nofile", "stack"}
    assert shown["e"]["__mofed_sysctl"] == {}


def test_the_mirror_follows_the_source(shown: dict[str, dict[str, t.Any]]) -> None:
    assert shown["a"]["mofed_mirror"] == ""
    assert shown["d"]["mofed_mirror"] == "https://www.mellanox.com/downloads/DOCA"
