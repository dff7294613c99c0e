# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role hpcx_mpi would write, in check mode on this machine: every file of all sources and both fabrics, to the byte."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.modules import node_state
from module_run import run_main

ROOT = pathlib.Path(__file__).parents[3]
EXPECTED = pathlib.Path(__file__).parent / "fixtures/role"
#: Writes what each task of a node said, one line a result: the screen's output would have to be taken apart.
CALLBACK = """
import json
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "notification", "results"

    def v2_runner_on_ok(self, result):
        with open({path!r}, "a") as file:
            file.write(json.dumps([result._host.name, result._result], default=str) + "\\n")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.v2_runner_on_ok(result)
"""
HPCX: dict[str, t.Any] = {
    "hpcx_mpi_source": "hpcx",
    "hpcx_mpi_sha256": {"2.25.1-ubuntu24.04-cuda13-x86_64": "0" * 64},
}
DISTRO: dict[str, t.Any] = {"hpcx_mpi_source": "distro", "hpcx_mpi_distro_prefix": "/usr/lib64/openmpi"}
PREINSTALLED: dict[str, t.Any] = {"hpcx_mpi_source": "preinstalled"}
INFINIBAND: dict[str, t.Any] = {
    "hpcx_mpi_fabric": "infiniband",
    "hpcx_mpi_mca_params": {"coll_hcoll_enable": "1", "x_quoted": 'a "$b" [c]'},
    "hpcx_mpi_environment": {"UCX_TLS": "rc,cuda", "SITE": "it's"},
}
TCP: dict[str, t.Any] = {"hpcx_mpi_fabric": "tcp", "hpcx_mpi_interface": "ens3"}
NODES = {
    "hpcx-infiniband": {**HPCX, **INFINIBAND, "nccl": {"NCCL_TOPO_FILE": "/opt/topo.xml", "UCX_TLS": "profile"}},
    "hpcx-tcp": {**HPCX, **TCP, "hpcx_mpi_prefix": "/opt/other", "hpcx_mpi_module": "vendor/mpi"},
    "hpcx-beside": {**HPCX, **TCP, "hpcx_mpi_make_current": False, "hpcx_mpi_remove_current": True},
    "distro-infiniband": {**DISTRO, **INFINIBAND, "hpcx_mpi_distro_prefix": ""},
    "distro-tcp": {**DISTRO, **TCP},
    "preinstalled-infiniband": {**PREINSTALLED, **INFINIBAND, "hpcx_mpi_preinstalled_modulefile": "hpcx-rebuild"},
    "as it comes": HPCX,
    "no interface": {**DISTRO, "hpcx_mpi_fabric": "tcp", "hpcx_mpi_interface": ""},
    "with a list": {**HPCX, "hpcx_mpi_ucx_transports": "rc,sm,self,cuda", "hpcx_mpi_allow_overwrite": True},
}
#: A node that is refused, without a playbook of the collection, which would refuse it before.
REFUSED: dict[str, t.Any] = {**DISTRO, "hpcx_mpi_environment": {"A B": 1}, "hpcx_mpi_ucx_transports": ["rc", "sm"]}
#: Nodes whose files are compared to the byte.
WHOLE = [name for name in NODES if " " not in name]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, t.Any]]]:
    """The results of the role's entry points configure and remove on each node."""
    folder = tmp_path_factory.mktemp("role")
    facts = {"ansible.builtin.set_fact": {"cacheable": True, "node_profile": {"nccl": {"env": "{{ nccl }}"}}}}
    roles = [
        {"ansible.builtin.include_role": {"name": "hpcai.gpu_cluster.hpcx_mpi", "tasks_from": entry}}
        for entry in ("configure", "remove")
    ]
    play = {"hosts": "all", "gather_facts": False, "tasks": [{**facts, "when": "nccl is defined"}, *roles]}
    (folder / "play.yml").write_text(json.dumps([play]))
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.json").write_text(
        json.dumps(
            {"all": {"hosts": {name: {**local, **given} for name, given in {**NODES, "refused": REFUSED}.items()}}}
        )
    )
    (folder / "callback").mkdir()
    (folder / "callback/results.py").write_text(CALLBACK.format(path=str(folder / "results")))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        # Newer cores leave it out.
        "ANSIBLE_INJECT_INVOCATION": "1",
        "ANSIBLE_CALLBACK_PLUGINS": str(folder / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "results",
    }
    done = subprocess.run(
        [program, "--check", "--diff", "-i", folder / "hosts.json", folder / "play.yml"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    # One node is refused.
    assert done.returncode == 2, done.stdout + done.stderr
    found: dict[str, list[dict[str, t.Any]]] = {}
    for name, result in map(json.loads, (folder / "results").read_text().splitlines()):
        if "changes" in result or "error_kind" in result:
            found.setdefault(name, []).append(result)
    return found


def shown(result: dict[str, t.Any]) -> str:
    """Files and links that would be written, in order. Directories of other packages may be there or not."""
    parts = [(entry["after_header"].rpartition(" ")[0], entry["after"]) for entry in result["diff"]]
    return "".join(f"==> {what} <==\n{text}" for what, text in parts if what.startswith(("file ", "link ")))


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("name", WHOLE)
def test_the_files_are_these_to_the_byte(results: dict[str, list[dict[str, t.Any]]], name: str) -> None:
    assert shown(results[name][0]) == (EXPECTED / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.newest
def test_ucx_chooses_its_transports_unless_the_site_names_them(results: dict[str, list[dict[str, t.Any]]]) -> None:
    """A list leaves out what it does not name: with "rc" alone ranks of a node have no shared memory and GPUs no CUDA."""
    files = shown(results["as it comes"][0])
    assert "export UCX_IB_PCI_RELAXED_ORDERING=on" in files
    assert "UCX_TLS" not in files
    files = shown(results["with a list"][0])
    assert "export UCX_TLS=rc,sm,self,cuda" in files
    assert 'setenv UCX_TLS "rc,sm,self,cuda"' in files


def test_names_that_no_shell_takes_and_lists_are_refused_before_anything_is_written(
    results: dict[str, list[dict[str, t.Any]]],
) -> None:
    (refused,) = results["refused"]
    assert {name for name, found in results.items() if any("error_kind" in result for result in found)} == {"refused"}
    first, *lines = refused["msg"].splitlines()
    assert first == "2 arguments of the role hpcx_mpi are wrong. Nothing was changed. Correct them and run again."
    assert lines == [
        'hpcx_mpi_ucx_transports: it is a list: write a text, such as "rc,sm".',
        "hpcx_mpi_environment: 'A B' is no name of an environment variable: it has letters, digits and underscores alone, "
        "and no digit first.",
    ]


def test_an_interface_that_is_empty_is_not_set(results: dict[str, list[dict[str, t.Any]]]) -> None:
    files = shown(results["no interface"][0])
    assert "export OMPI_MCA_btl=self,vader,tcp" in files
    assert "IFNAME" not in files
    assert "if_include" not in files


MODULES = "/usr/share/modules/modulefiles"
THEIRS = """#%Module1.0
# By hand.
module-whatis "NVIDIA HPC-X in /opt/hpcx"
module load /opt/hpcx/modulefiles/hpcx
"""


def test_a_modulefile_of_somebody_else_is_replaced_only_with_consent(
    results: dict[str, list[dict[str, t.Any]]], tmp_path: pathlib.Path
) -> None:
    for name in NODES:
        for result, consent in zip(results[name], (name == "with a list", False)):
            items = result["invocation"]["module_args"]
            modulefiles = [
                item
                for item in [*items["files"], *items["absent"]]
                if item["path"].startswith(f"{MODULES}/") and not item.get("if_empty")
            ]
            assert modulefiles
            assert [bool(item["ours"]) for item in modulefiles] == [not consent] * len(modulefiles)
    files = results["as it comes"][0]["invocation"]["module_args"]["files"]
    (wanted,) = [item for item in files if item["path"] == f"{MODULES}/mpi/current"]
    # Whatever this release writes is known to the next one.
    written = [
        part for name in NODES for part in shown(results[name][0]).split("==> ") if part.startswith(f"file {MODULES}/")
    ]
    assert len(written) >= len(NODES)
    assert all(re.search(wanted["ours"], text.partition("\n")[2]) for text in written)
    place = tmp_path / "current"
    place.write_text(THEIRS)
    item = {"path": str(place), "content": "new", **{key: wanted[key] for key in ("ours", "remedy")}}
    refused = run_main(node_state.main, {"files": [item]})
    assert refused["error_kind"] == "foreign_files"
    assert "set hpcx_mpi_allow_overwrite to true" in refused["msg"]
    assert place.read_text() == THEIRS


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("hpcx-infiniband", ["/opt/hpcx/2.25.1", f"{MODULES}/mpi/hpcx-2.25.1", f"{MODULES}/mpi", "/opt/hpcx"]),
        ("hpcx-tcp", ["/opt/other/2.25.1", f"{MODULES}/vendor/hpcx-2.25.1", f"{MODULES}/vendor", "/opt/other"]),
        (
            "hpcx-beside",
            [
                *("/opt/hpcx/2.25.1", f"{MODULES}/mpi/hpcx-2.25.1", "/opt/hpcx/current", f"{MODULES}/mpi/current"),
                *("/etc/hpcx_mpi", f"{MODULES}/mpi", "/opt/hpcx"),
            ],
        ),
        (
            "preinstalled-infiniband",
            ["/opt/hpcx/current", f"{MODULES}/mpi/current", "/etc/hpcx_mpi", f"{MODULES}/mpi", "/opt/hpcx"],
        ),
        (
            "distro-tcp",
            ["/opt/hpcx/current", f"{MODULES}/mpi/current", "/etc/hpcx_mpi", f"{MODULES}/mpi", "/opt/hpcx"],
        ),
    ],
)
def test_the_version_in_use_goes_with_consent_only(
    results: dict[str, list[dict[str, t.Any]]], name: str, paths: list[str]
) -> None:
    absent = results[name][1]["invocation"]["module_args"]["absent"]
    assert [item["path"] for item in absent] == paths
    # Only what was unpacked is deleted whole, and not while it is in use.
    release = [item for item in absent if item.get("if_unpacked")]
    assert [item["unless_target_of"] for item in release] == {
        "hpcx-infiniband": ["/opt/hpcx/current"],
        "hpcx-tcp": ["/opt/other/current"],
        "hpcx-beside": [""],
    }.get(name, [])


#: What Environment Modules and Lmod give to a modulefile, as far as ours asks for it.
TCL = """
proc module-whatis {args} {}
proc conflict {args} {}
proc setenv {args} {}
proc module {what path} { puts "$what $path" }
source [lindex $argv 0]
"""


@pytest.mark.skipif(not shutil.which("tclsh"), reason="needs tclsh")
@pytest.mark.parametrize(
    ("there", "said"),
    [
        (["hpcx-2/modulefiles/hpcx-rebuild"], "load %s/hpcx-2/modulefiles/hpcx-rebuild"),
        (["hpcx-2/modulefiles/hpcx"], "there is no %s/hpcx-2/modulefiles/hpcx-rebuild"),
        ([], "0 directories fit %s/hpcx-* ()"),
        (["hpcx-1/x", "hpcx-2/x"], "2 directories fit %s/hpcx-* (%s/hpcx-1, %s/hpcx-2)"),
        # An archive that was left there is no directory.
        (["hpcx-1.tbz", "hpcx-2/modulefiles/hpcx-rebuild"], "load %s/hpcx-2/modulefiles/hpcx-rebuild"),
    ],
)
def test_the_image_s_hpcx_is_found_where_the_module_is_loaded(
    results: dict[str, list[dict[str, t.Any]]], tmp_path: pathlib.Path, there: list[str], said: str
) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#%Module1.0\n")
    text = shown(results["preinstalled-infiniband"][0]).partition(f"file {MODULES}/mpi/current <==\n")[2]
    (tmp_path / "current").write_text(text.replace("/opt/hpcx-", f"{tmp_path}/hpcx-"))
    (tmp_path / "modules.tcl").write_text(TCL)
    done = subprocess.run(
        ["tclsh", tmp_path / "modules.tcl", tmp_path / "current"], capture_output=True, text=True, check=False
    )
    found = said.startswith("load ")
    assert (done.returncode == 0) is found
    assert said.replace("%s", str(tmp_path)) in (done.stdout if found else done.stderr)
    assert found or "The HPC-X of the image cannot be told: " in done.stderr
