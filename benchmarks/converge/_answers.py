# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes that are not there answer when nothing is left to do, and the inventory that names them.

An answer is ``{"when": pattern, "result": {...}}``: the first whose pattern is found in a module's arguments is given. Facts
and plan are those that the modules make of the unit tests' Standard_ND96asr_v4; the others have the fields that their
modules return on the container lab.
"""

from __future__ import annotations

import base64
import json
import tempfile
import typing as t
from pathlib import Path

import yaml
from _runs import ROOT
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.options import (
    PLAN_OPTIONS,
    PlanRequest,
    plan_and_render,
)
from ansible_collections.hpcai.gpu_cluster.plugins.modules.node_facts import collect
from unit.node.fake_node import FIXTURES, ndv4

Json = dict[str, t.Any]
Answers = dict[str, list[Json]]
_LAB = ROOT / "inventories/lab/group_vars/all"
AZCOPY = "/opt/azcopy/current/azcopy"
_DATASET = "/mnt/scratch/cosmoflow"
_FILES = [f"train/univ_ics_2019-03_a{number:05d}_000.tfrecord" for number in range(384)]
_DRIVER = "550.90.07"
_HOST_KEYS = ("ecdsa-sha2-nistp256", "ssh-ed25519", "ssh-rsa")


def names(count: int) -> list[str]:
    """The nodes of an inventory of this size."""
    return [f"gpu-{number:04d}" for number in range(1, count + 1)]


def _variables() -> Json:
    """The container lab's, with values for what it reads from its machines."""
    values: Json = {}
    for name in ("gpu_cluster.yml", "hardware.yml", "dataset_staging.yml"):
        values |= yaml.safe_load((_LAB / name).read_text(encoding="utf-8"))
    return {
        **values,
        "lab_root": str(ROOT),
        "dataset_staging_sources": [
            {
                "url": f"https://standin{number}.blob.core.windows.net/cosmoflow",
                "prefix": "",
                "sas": f"sig=stand-in-{number}",
            }
            for number in (1, 2)
        ],
        "dataset_staging_azcopy_path": AZCOPY,
        "dataset_staging_azcopy_controller_archive": "",
        "dataset_staging_azcopy_url": "https://standin.invalid/azcopy.tar.gz",
        "dataset_staging_azcopy_sha256": "0" * 64,
    }


def inventory(count: int) -> Json:
    """``count`` nodes that answer from constants."""
    hosts = {
        name: {
            "ansible_host": f"10.0.{number // 250}.{number % 250 + 1}",
            "converge_name": name,
            "converge_node": name,
            "converge_lead": number == 0,
        }
        for number, name in enumerate(names(count))
    }
    everywhere = {**_variables(), "ansible_connection": "stand_in"}
    return {"all": {"vars": everywhere, "children": {"gpu_nodes": {"hosts": hosts}}}}


def store(answered: Answers, directory: Path) -> None:
    """A file for each module: a call reads its own answers, not the long ones that name all nodes."""
    directory.mkdir(exist_ok=True)
    for module, told in answered.items():
        (directory / module).write_text(json.dumps(told), encoding="utf-8")


def _facts() -> Json:
    with tempfile.TemporaryDirectory() as folder:
        smi = Path(folder) / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\nexec cat {FIXTURES}/ndv4.out\n", encoding="utf-8")
        smi.chmod(0o755)
        root = ndv4(Path(folder) / "root").root
        return collect(root, nvidia_smi=str(smi), metadata="never")


def _always(result: Json) -> list[Json]:
    return [{"when": "", "result": result}]


def _unchanged() -> list[Json]:
    return _always({"changed": False, "changes": [], "diff": []})


def _own(count: int, facts: Json) -> Answers:
    """The answers to the modules of the collection."""
    nodes = names(count)
    options = {name: option.get("default") for name, option in PLAN_OPTIONS.items()}
    bricks = {f"{name}:/mnt/resource_nvme/glusterfs/scratch-0a1b2c3d": True for name in nodes}
    gpu = {
        "status": "ok",
        "before": {
            "persistence": True,
            "applications": {"graphics": 1410, "memory": 1593},
            "locks": {"graphics": [1410, 1410]},
        },
        "after": {
            "persistence": True,
            "applications": {"graphics": 1410, "memory": 1593},
            "locks": {"graphics": [1410, 1410]},
        },
        "clocks": {"graphics": 1410, "graphics_max": 1410, "memory": 1593, "memory_max": 1593},
        "problems": [],
        "notes": [],
    }
    whole = {"total_files": len(_FILES), "verified_files": len(_FILES), "manifest_digest": "0" * 64}
    identity = {
        "name": "@HOST@",
        "names": ["@HOST@", "10.0.0.1"],
        "host_keys": [f"{kind} {'A' * 68}" for kind in _HOST_KEYS],
        "public_key": "",
        "trusted_key": f"ssh-ed25519 {'A' * 68}",
        "blocks": "0" * 64,
        "first": False,
        "made_key": True,
    }
    answers = {
        "rdma_stack": _always(
            {
                "changes": [],
                "diff": [],
                "stack": {"source": "", "version": ""},
                "not_applied": [],
                "reboot_required": False,
            }
        ),
        "rdma_check": _always({"verdicts": [], "ports": [], "bandwidth": []}),
        "nvidia_driver": _always(
            {
                "changes": [],
                "diff": [],
                "gpus": [f"{one['bus_id']} ampere" for one in facts["gpus"]],
                "nvswitches": 6,
                "kernel_module": "open",
                "loaded": _DRIVER,
                "reboot_required": [],
                "findings": [],
                "would": [],
            }
        ),
        "node_facts": _always({"ansible_facts": {"gpu_node": facts}}),
        "node_state": _unchanged(),
        "cluster_ssh_identity": _always({"node": identity, "changes": [], "diff": []}),
        "cluster_ssh_check": _always({"outdated": [], "nodes": [identity] * count, "reached": count, "failures": []}),
        "mpi_check": _always(
            {
                "ranks": count,
                "placement": {name: [rank] for rank, name in enumerate(nodes)},
                "seconds": 2.0,
                "problems": [],
            }
        ),
        "gpu_clocks": _always(
            {
                "gpus": [
                    {"index": one["index"], "uuid": one["uuid"], "bus_id": one["bus_id"], **gpu}
                    for one in facts["gpus"]
                ],
                "commands": [],
                "unknown": [],
            }
        ),
        "gpu_binding": _always(
            {"changes": [], "diff": [], "plan": plan_and_render(facts, {}, PlanRequest.of(options)), "proven": 8}
        ),
        "nvme_raid": _always(
            {"steps": [], "disks": [], "array": {}, "geometry": {}, "notes": [], "diff": {"before": "", "after": ""}}
        ),
        "glusterfs_volume": _always(
            {"done": [], "nonce": "0" * 32, "left": [], "known": True, "changes": [], "leftovers": []}
        ),
        "glusterfs_check": _always(
            {"nonce": "0" * 32, "bricks": bricks, "mounted": True, "started": True, "free_bytes": 1, "total_bytes": 2}
        ),
        "dataset_plan": _always(
            {**whole, "run": "", "missing_files": 0, "missing_bytes": 0, "killed": [], "shares": [], "bandwidth": []}
        ),
        "dataset_verify": _always(
            {
                **whole,
                "verdict": "ok",
                "verified_bytes": 1,
                "extra_files": 0,
                "problems": [],
                "causes": [],
                "again": False,
            }
        ),
    }
    return {f"hpcai.gpu_cluster.{name}": answer for name, answer in answers.items()}


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _said(when: str, *lines: str, rc: int = 0) -> Json:
    """What a command answers."""
    failed = {"failed": True, "msg": "non-zero return code"} if rc else {}
    return {"when": when, "result": {"rc": rc, "stdout": "\n".join(lines), "stderr": "", **failed}}


def _found(when: str, paths: t.Iterable[str]) -> Json:
    return {
        "when": when,
        "result": {"files": [{"path": path, "mode": "0644", "size": 1} for path in paths], "matched": 1},
    }


def _gpu_line(gpu: Json) -> str:
    """A GPU as nvidia-smi lists it for peers.yml."""
    parts = (gpu["index"], gpu["uuid"], gpu["name"], f"0000{gpu['bus_id'].upper()}", gpu["memory_mib"], _DRIVER)
    return ", ".join(map(str, (*parts, "Enabled", "Enabled", "Disabled")))


def _commands(nodes: list[str], facts: Json) -> list[Json]:
    gpus = facts["gpus"]
    cpus = {number: f"{number * 24}-{number * 24 + 23}" for number in range(4)}
    placed = [f"{one['index']} {one['index']} {cpus[one['numa']]} {one['numa']} - {one['uuid']}" for one in gpus]
    bricks = [f"Brick{number}: {name}:/mnt/resource_nvme/glusterfs/scratch" for number, name in enumerate(nodes, 1)]
    return [
        _said(
            "--query-gpu=index,uuid",
            *(_gpu_line(one) for one in gpus),
        ),
        _said("--query-gpu=index,driver_version", *(f"{g['index']}, {_DRIVER}, Enabled, Disabled" for g in gpus)),
        _said("--query-gpu=index,persistence", *(f"{g['index']}, Enabled, 1410, 1410, 1593, 1593" for g in gpus)),
        _said("/sys/module/nvidia/version", _DRIVER),
        _said("libnvidia-ml", f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{_DRIVER}"),
        _said(
            "node\\*/cpulist",
            *(f"/sys/devices/system/node/node{number}/cpulist:{text}" for number, text in cpus.items()),
        ),
        _said("numa_node", *(f"/sys/bus/pci/devices/{g['bus_id']}/numa_node:{g['numa']}" for g in gpus)),
        _said("cpu/online", "0-95", "0-3", *placed),
        _said("grep -v \\^#|\\^#", *placed),
        _said("gpu-bind grep", f"Cpus_allowed_list:\t{placed[0].split()[2]}"),
        _said("ulimit", "memlock", "nofile", "stack"),
        _said("ofed_info", rc=1),
        _said("lsblk", json.dumps({"blockdevices": []})),
        _said("gluster .*status", "<status>1</status>"),
        _said("gluster", "Status: Started", *bricks, *_OPTIONS, *nodes),
        _said("findmnt", "localhost:/scratch fuse.glusterfs"),
        _said("mpirun", *nodes),
        _said("standin1", *(f"{name}.gz;  Content Length: 1" for name in _FILES)),
        _said(""),
    ]


#: The options of the volume, by their defaults.
_OPTIONS = [
    f"{key}: {value}"
    for key, value in yaml.safe_load((ROOT / "roles/glusterfs/defaults/main.yml").read_text(encoding="utf-8"))[
        "glusterfs_options"
    ].items()
]


def _peers(count: int, facts: Json) -> Answers:
    """The answers to Ansible's modules, by which peers.yml works. They are short, so that they cost peers.yml little."""
    nodes = names(count)
    keys = [f"/etc/ssh/ssh_host_{kind}_key.pub" for kind in ("ecdsa", "ed25519", "rsa")]
    proofs = [
        {"when": f'peers_check/{name}"', "result": {"content": _b64(name), "encoding": "base64"}} for name in nodes
    ]
    key = {"content": _b64(f"ssh-ed25519 {'A' * 68} stand-in"), "encoding": "base64"}
    quiet = (
        "ansible.modules.apt",
        "ansible.modules.file",
        "ansible.modules.systemd",
        "ansible.modules.systemd_service",
    )
    quiet += (
        "ansible.modules.blockinfile",
        "ansible.modules.known_hosts",
        "ansible.modules.lineinfile",
        "ansible.posix.sysctl",
    )
    return {
        **{name: _always({"changed": False}) for name in quiet},
        "ansible.modules.command": _commands(nodes, facts),
        "ansible.modules.setup": _always({"ansible_facts": {}}),
        "ansible.modules.slurp": [*proofs, {"when": "", "result": key}],
        "ansible.modules.find": [
            _found("/etc/ssh", keys),
            _found(_DATASET, (f"{_DATASET}/{name}" for name in _FILES)),
            _found("", ()),
        ],
    }


def answers(count: int) -> Answers:
    """What nodes of an inventory of this size answer."""
    facts = _facts()
    return _own(count, facts) | _peers(count, facts)


__all__ = ["AZCOPY", "answers", "inventory", "names", "store"]
