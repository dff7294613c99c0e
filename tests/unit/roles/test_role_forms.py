# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a text has to look like, by the limits of the roles: playbooks refuse the rest before any node is touched."""

from __future__ import annotations

import typing as t

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_arguments import validate
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import ROLES, role_files
from role_validation import known

SUFFIX = "is no name of a unit: write it with its suffix, such as containerd.service."
WRONG: list[tuple[str, t.Any, str]] = [
    ("nvme_raid_required_by", "docker.service, containerd", f"containerd {SUFFIX}"),
    ("nvme_raid_required_by", ["containerd"], f"containerd {SUFFIX}"),
    ("nvme_raid_before", "slurmd", "slurmd is no name of a unit: write it with its suffix, such as slurmd.service."),
    ("nvme_raid_before", ["a b.service"], "a b.service is no name of a unit: it has letters"),
    ("nvme_raid_before", ["../x.service"], "../x.service is no name of a unit: it has letters"),
    ("hpcx_mpi_environment", {"A B": 1}, "'A B' is no name of an environment variable"),
    ("hpcx_mpi_environment", '{"A-B": 1}', "'A-B' is no name of an environment variable"),
    ("hpcx_mpi_environment", {"1A": 1}, "'1A' is no name of an environment variable"),
    ("hpcx_mpi_environment", {"A": True}, 'A is a boolean: write what programs are to read, such as "1" or "true" in quotes.'),
    ("hpcx_mpi_environment", {"A": ["x", "y"]}, "A is a list: write a text, such as \"x,y\"."),
    ("hpcx_mpi_environment", {"A": {"x": 1}}, "A is a dictionary: write a text."),
    ("hpcx_mpi_environment", {"A": None}, 'A has no value: write one, or "" for an empty one.'),
    ("hpcx_mpi_environment", {"A": "x\ny"}, "A has to be one line."),
    ("hpcx_mpi_mca_params", {"bad key": 1}, "'bad key' is no name of an MCA parameter"),
    ("hpcx_mpi_mca_params", {"coll_hcoll_enable": False}, "coll_hcoll_enable is a boolean"),
    ("hpcx_mpi_ucx_transports", ["rc", "sm"], 'is a list: write a text, such as "rc,sm".'),
    ("hpcx_mpi_ucx_transports", {"rc": "sm"}, "is a dictionary: write a text."),
    ("hpcx_mpi_interface", ["eth0", "eth1"], 'is a list: write a text, such as "eth0,eth1".'),
    ("container_runtime_repository_url", "not-a-url", "is no URL: write it with its protocol, such as https://"),
    ("container_runtime_repository_url", "user:password@host", "is no URL"),
    ("nvidia_driver_repository_url", "mirror.example.org", "is no URL"),
    ("nvidia_driver_version", 580.95, 'is the number 580.95, which loses zeros at its end: write the version in quotes, "580.95"'),
    ("nvidia_driver_cuda_version", "latest", "is no version: write numbers with dots between them, such as 13.0."),
]  # fmt: skip
RIGHT: list[tuple[str, t.Any]] = [
    ("nvme_raid_required_by", "docker.service,containerd.service"),
    ("nvme_raid_required_by", ["getty@tty1.service", r"srv-a\x2db.mount", "docker.socket"]),
    ("nvme_raid_required_by", ""),
    ("nvme_raid_before", []),
    ("hpcx_mpi_environment", {"A_b1": 1, "_C": "x y", "D": 2.5, "E": ""}),
    ("hpcx_mpi_environment", "A=1,B=2"),
    ("hpcx_mpi_mca_params", {"btl_tcp_if_include": "eth0", "x": 1}),
    ("hpcx_mpi_ucx_transports", "rc,sm,self"),
    ("hpcx_mpi_ucx_transports", ""),
    ("hpcx_mpi_interface", ""),
    ("container_runtime_repository_url", "file:/opt/toolkit"),
    ("nvidia_driver_repository_url", "https://mirror.example.org/$releasever/"),
    ("nvidia_driver_repository_url", trust_as_template("{{ 'https://' ~ inventory_hostname }}")),
    ("nvidia_driver_version", "580.95"),
    ("nvidia_driver_cuda_version", "13"),
    ("nvidia_driver_cuda_version", 12.9),
    ("nvidia_driver_cuda_version", "12.9.1"),
]


def errors(name: str, value: t.Any) -> list[str]:
    (role,) = [path.parent for path in ROLES.glob("*/meta") if name.startswith(f"{path.parent.name}_")]
    files = role_files(role)
    limits = {name: files.limits[name]} if name in files.limits else {}
    templar = Templar(loader=DataLoader(), variables=known(role.name, **{name: value}))
    return validate(files.options["main"], templar, limits=limits, phases=("install", "configure")).errors


@pytest.mark.parametrize(("name", "value", "said"), WRONG)
def test_what_cannot_be_meant_is_refused_with_what_to_write(name: str, value: t.Any, said: str) -> None:
    (error,) = errors(name, value)
    assert error.startswith(f"{name}: ")
    assert said in error
    assert "password" not in error


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_what_can_be_meant_is_not(name: str, value: t.Any) -> None:
    assert errors(name, value) == []
