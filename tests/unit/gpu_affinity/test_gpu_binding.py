# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module gpu_binding: it writes real files and starts real processes through the real gpu-bind on this machine's CPUs."""

from __future__ import annotations

import os
import signal
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_affinity.binding import judge_probe, nothing_to_pin
from ansible_collections.hpcai.gpu_cluster.plugins.modules import gpu_binding
from module_run import run_main

REPOSITORY = Path(__file__).parents[3]
GPU_BIND = REPOSITORY / "roles/numa_pinning/files/gpu-bind"
NDV4 = REPOSITORY / "roles/node_profile/files/profiles/Standard_ND96asr_v4.yml"
CPUS = ",".join(map(str, sorted(os.sched_getaffinity(0))))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to root")


def facts(cpus: str = CPUS, gpus: int = 2) -> dict[str, t.Any]:
    """This machine with two GPUs that it does not have."""
    return {
        "numa": [{"id": 0, "cpus": cpus, "memory_mib": 1024}],
        "cpus": {},
        "gpus": [{"index": index, "numa": 0, "bus_id": f"0000:0{index}:00.0", "name": "A100"} for index in range(gpus)],
        "hcas": [],
    }


def call(check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    return run_main(gpu_binding.main, {**options, "_ansible_check_mode": check})


@pytest.fixture
def options(tmp_path: Path) -> dict[str, t.Any]:
    return {"facts": facts(), "map": str(tmp_path / "etc/map"), "gpu_bind": str(GPU_BIND)}


@needs_root
def test_written_proven_and_unchanged_afterwards(options: dict[str, t.Any], tmp_path: Path) -> None:
    planned = call(check=True, **options)
    assert (planned["changed"], planned["proven"], (tmp_path / "etc").exists()) == (True, 0, False)
    first = call(**options)
    # Both ranks have the same place: one process shows it.
    assert (first["changed"], first["proven"]) == (True, 1)
    text = Path(options["map"]).read_text()
    assert text.startswith("# Ansible managed")
    assert text.splitlines()[-1].startswith("1 1 ")
    assert [entry["after"] for entry in first["diff"] if "map" in entry["after_header"]] == [text]
    again = call(**options)
    assert (again["changed"], again["changes"], again["proven"]) == (False, [], 1)
    assert call(state="verified", **options)["changed"] is False
    assert call(check=True, **options)["proven"] == 1


@needs_root
def test_verified_writes_nothing_and_names_what_is_due(options: dict[str, t.Any]) -> None:
    assert call(state="verified", **options)["error_kind"] == "not_as_planned"
    assert not Path(options["map"]).exists()
    call(**options)
    Path(options["map"]).write_text("0 0 0 0 - -\n")
    result = call(state="verified", **options)
    assert (result["error_kind"], options["map"] in result["msg"]) == ("not_as_planned", True)
    assert Path(options["map"]).read_text() == "0 0 0 0 - -\n"


@needs_root
def test_a_profile_for_other_cpus_is_refused_and_nothing_is_written(options: dict[str, t.Any]) -> None:
    profile = yaml.safe_load(NDV4.read_text())
    result = call(source="profile", profile=profile, **options)
    assert result["error_kind"] == "profile_does_not_fit"
    assert "not there" in result["msg"]
    assert "`source`" in result["remedy"]
    assert not Path(options["map"]).exists()
    # What the kernel tells is enough, whatever the profile says of another machine.
    assert call(source="auto", profile=profile, **options)["plan"]["source"] == "facts"


@needs_root
def test_a_profile_that_fits_places_gpus_even_before_the_driver_is_there(options: dict[str, t.Any]) -> None:
    profile = {
        "name": "site",
        "cpu": {},
        "gpus": {"count": 2},
        "numa": {"nodes": [{"id": 0, "cpus": CPUS, "gpus": [0, 1]}]},
    }
    result = call(source="profile", profile=profile, **{**options, "facts": facts(gpus=0)})
    assert result["proven"] == 1
    assert call(source="profile", **options)["error_kind"] == "bad_input"


def test_a_node_without_gpus_is_left_alone_unless_it_should_have_some(options: dict[str, t.Any]) -> None:
    result = call(**{**options, "facts": facts(gpus=0)})
    assert (result["changed"], result["plan"], "No GPU here" in result["msg"]) == (False, {}, True)
    result = call(profile={"gpus": {"count": 8}}, **{**options, "facts": facts(gpus=0)})
    assert result["error_kind"] == "no_gpus"
    assert nothing_to_pin({}, {})


@needs_root
def test_a_wrapper_that_cannot_bind_is_a_failure(options: dict[str, t.Any], tmp_path: Path) -> None:
    result = call(**{**options, "facts": facts("4000-4001")})
    assert (result["error_kind"], "may not run on the CPUs 4000-4001" in result["msg"]) == ("not_bound", True)
    missing = {**options, "gpu_bind": str(tmp_path / "missing")}
    assert call(**missing)["error_kind"] == "not_installed"
    # In check mode on a fresh node it is still to be installed.
    assert call(check=True, **missing)["proven"] == 0
    unbound = tmp_path / "unbound"
    unbound.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    unbound.chmod(0o755)
    narrow = facts("4000")
    result = call(**{**options, "facts": narrow, "gpu_bind": str(unbound)})
    assert (result["error_kind"], "not among 4000" in result["msg"]) == ("not_bound", True)


@needs_root
def test_slurm_s_and_nccl_s_files_are_written_where_asked(options: dict[str, t.Any], tmp_path: Path) -> None:
    wanted = {
        "gres_conf": str(tmp_path / "gres.conf"),
        "gres_type": "a100",
        "nccl_topology": str(tmp_path / "topo.xml"),
    }
    assert call(**wanted, **options)["changed"] is True
    managed, line, *_more = (tmp_path / "gres.conf").read_text().splitlines()
    assert managed.startswith("# Ansible managed")
    assert line.startswith("Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0")
    assert '<system version="1">' in (tmp_path / "topo.xml").read_text()
    assert call(**wanted, **options)["changed"] is False
    unknown = facts()
    unknown["gpus"][0]["name"] = "Something New"
    result = call(**wanted, **{**options, "facts": unknown})
    assert (result["error_kind"], "PCIe speed" in result["msg"]) == ("cannot_write", True)


def ncv4(tmp_path: Path, **env: str) -> dict[str, t.Any]:
    """A profile that names files for NCCL, and a node of two GPUs that it has channels for."""
    channels = {"gbytes_s": 12, "rings": [[0, 1]], "trees": [[1, 0]]}
    named = {name: str(tmp_path / "opt/vendor" / path) for name, path in env.items()}
    return {"name": "site", "gpus": {"count": 2}, "nccl": {"env": named, "channels": channels}}


@needs_root
def test_files_for_nccl_are_made_where_the_profile_says_and_go_with_the_map(
    options: dict[str, t.Any], tmp_path: Path
) -> None:
    both = ncv4(tmp_path, NCCL_TOPO_FILE="ncv4/topo.xml", NCCL_GRAPH_FILE="ncv4/graph.xml")
    wanted = {**options, "profile": both}
    home = tmp_path / "opt/vendor/ncv4"
    assert (call(check=True, **wanted)["changed"], home.exists()) == (True, False)
    assert call(state="verified", **wanted)["error_kind"] == "not_as_planned"
    first = call(**wanted)
    written = {entry["name"] for entry in first["changes"] if entry["kind"] == "file"}
    assert written == {options["map"], f"{home}/topo.xml", f"{home}/graph.xml"}
    assert (home / "topo.xml").read_text().startswith("<!-- Ansible managed")
    assert '<graphs version="1">' in (home / "graph.xml").read_text()
    assert call(**wanted)["changed"] is False
    assert call(state="verified", **wanted)["changed"] is False
    # A file that is no longer wanted goes, and with the map what is left.
    alone = {**options, "profile": ncv4(tmp_path, NCCL_TOPO_FILE="ncv4/topo.xml")}
    assert [entry["name"] for entry in call(**alone)["changes"]] == [f"{home}/graph.xml", options["map"]]
    assert call(**alone)["changed"] is False
    gone = {"state": "absent", "map": options["map"]}
    assert (call(check=True, **gone)["changed"], (home / "topo.xml").exists()) == (True, True)
    assert call(**gone)["changed"] is True
    assert not (home / "topo.xml").exists()
    assert not Path(options["map"]).parent.exists()
    assert call(**gone)["changed"] is False
    # A map that was changed by hand names nothing; the profile still does.
    call(**alone)
    Path(options["map"]).write_text("0 0 0 0 - -\n")
    call(**gone, profile=alone["profile"])
    assert not home.exists()


@needs_root
def test_a_file_of_the_image_is_left_alone(options: dict[str, t.Any], tmp_path: Path) -> None:
    home = tmp_path / "opt/vendor"
    home.mkdir(parents=True)
    (home / "ncv4-topo.xml").write_text('<system version="1">\n</system>\n')
    (home / "topo.xml").symlink_to(home / "ncv4-topo.xml")
    wanted = {**options, "profile": ncv4(tmp_path, NCCL_TOPO_FILE="topo.xml")}
    call(**wanted)
    assert call(state="verified", **wanted)["changed"] is False
    assert "Also written" not in Path(options["map"]).read_text()
    call(state="absent", map=options["map"])
    assert (home / "topo.xml").read_text() == '<system version="1">\n</system>\n'
    # One that took the place of ours is not ours to remove.
    (home / "topo.xml").unlink()
    call(**wanted)
    assert "Also written" in Path(options["map"]).read_text()
    (home / "topo.xml").write_text("<system/>\n")
    call(state="absent", map=options["map"])
    assert (home / "topo.xml").read_text() == "<system/>\n"


@needs_root
@pytest.mark.parametrize(
    "wish",
    [
        {"nccl_topology": "topo.xml"},
        {"nccl_topology": "MAP"},
        {"gres_conf": "MAP"},
        {"nccl_topology": "/opt/a\n# Also written: /etc/passwd"},
        {"profile": {"nccl": {"env": {"NCCL_TOPO_FILE": "~/topo.xml"}}}},
        {"profile": {"nccl": {"env": {"NCCL_TOPO_FILE": ["/opt/topo.xml"]}}}},
        {"profile": {"nccl": {"env": {"NCCL_TOPO_FILE": "/opt/lab.xml", "NCCL_GRAPH_FILE": "/opt//lab.xml"}}}},
        {"profile": {"nccl": {"env": ["NCCL_TOPO_FILE=/opt/topo.xml"]}}},
        {"profile": {"nccl": "NCCL_TOPO_FILE"}},
    ],
    ids=str,
)
def test_paths_that_cannot_be_kept_are_refused_before_anything_is_written(
    options: dict[str, t.Any], tmp_path: Path, wish: dict[str, t.Any]
) -> None:
    """Of one path for both files the graph was left, which NCCL ends every job for; others ended in a traceback."""
    wish = {name: options["map"] if value == "MAP" else value for name, value in wish.items()}
    for check in (True, False):
        assert call(check=check, **{**options, **wish})["error_kind"] == "bad_input"
    assert not list(tmp_path.iterdir())


@needs_root
def test_what_is_no_file_is_left_alone(options: dict[str, t.Any], tmp_path: Path) -> None:
    """Also where the map names it: a pipe kept the module waiting for ever, a directory ended it in a traceback."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        wish = {**options, "profile": {"nccl": {"env": {"NCCL_TOPO_FILE": str(tmp_path / name)}}}}
        assert not call(**wish)["failed"]
        assert not call(**wish)["changed"]
        Path(options["map"]).write_text(f"# Also written: {tmp_path / name}\n" + Path(options["map"]).read_text())
        assert not call(state="absent", map=options["map"])["failed"]
        assert (tmp_path / name).exists()


@needs_root
@pytest.mark.parametrize("option", ["gres_conf", "nccl_topology", "nccl_graph", "map"])
def test_a_file_of_somebody_else_is_replaced_only_with_consent(
    options: dict[str, t.Any], tmp_path: Path, option: str
) -> None:
    theirs = tmp_path / "site.conf"
    theirs.write_text("AutoDetect=nvml\nName=gpu Type=h100 File=/dev/nvidia[0-7]\n")
    profile = {name: value for name, value in ncv4(tmp_path).items() if name != "env"}
    wanted = {**options, "profile": profile, option: str(theirs)}
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for state in ("present", "verified", "absent"):
        for check in (True, False):
            result = call(state=state, check=check, **wanted)
            assert result["failed"] is (state != "absent"), result
            assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
            if state == "present":
                assert (result["error_kind"], str(theirs) in result["msg"]) == ("foreign_files", True)
                assert "`allow_overwrite: true`" in result["remedy"]
    result = call(allow_overwrite=True, **wanted)
    assert str(theirs) in [change["name"] for change in result["changes"]]
    assert "Ansible managed" in theirs.read_text().splitlines()[0]
    # It is ours now, and needs no consent any more.
    assert call(**wanted)["changed"] is False
    for gres_type in ("other", ""):
        assert call(**{**wanted, "gres_type": gres_type})["changed"] is (option == "gres_conf")


@needs_root
def test_a_gres_conf_of_an_earlier_release_is_ours(options: dict[str, t.Any], tmp_path: Path) -> None:
    """It had no first line that said so."""
    wanted = {**options, "gres_conf": str(tmp_path / "gres.conf")}
    call(**wanted)
    managed, rest = (tmp_path / "gres.conf").read_text().split("\n", 1)
    (tmp_path / "gres.conf").write_text(rest)
    assert call(**wanted)["changed"] is True
    assert (tmp_path / "gres.conf").read_text() == f"{managed}\n{rest}"
    (tmp_path / "gres.conf").write_text("\n")
    assert call(**wanted)["changed"] is True


@needs_root
@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
@pytest.mark.parametrize("option", ["map", "gres_conf"])
def test_what_is_no_file_is_refused_at_once_and_stays(
    options: dict[str, t.Any], tmp_path: Path, option: str, kind: str
) -> None:
    """Where our file is to be: a pipe at the place of the map kept the module waiting for ever."""
    place = tmp_path / kind
    {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: os.symlink("/dev/zero", path)}[kind](place)
    before = signal.signal(signal.SIGALRM, lambda *_seen: pytest.fail("still waiting"))
    signal.alarm(10)
    try:
        for state in ("present", "verified"):
            result = call(state=state, **{**options, option: str(place)})
            assert (result["error_kind"], f"{place} should be a file" in result["msg"]) == ("in_the_way", True)
        assert call(state="absent", **{**options, option: str(place)})["failed"] is False
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == [kind]


@needs_root
def test_what_cannot_be_made_is_told_and_only_stops_where_jobs_would_end(
    options: dict[str, t.Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = facts()
    for gpu in unknown["gpus"]:
        gpu["name"] = "Something New"
    wanted = {**options, "facts": unknown, "profile": ncv4(tmp_path, NCCL_TOPO_FILE="topo.xml")}
    result = call(**wanted)
    assert result["changed"] is True
    # On the screen, which may break it anywhere, where something has imported the controller's half of Ansible.
    warned = "".join(f"{result.get('warnings', '')} {capsys.readouterr().err}".split())
    assert f"{tmp_path}/opt/vendor/topo.xmlwasnotwritten" in warned
    assert "PCIespeedofSomethingNewisnotknown" in warned
    assert not (tmp_path / "opt/vendor/topo.xml").exists()
    lost = {**options, "facts": facts(gpus=1), "profile": ncv4(tmp_path, NCCL_GRAPH_FILE="graph.xml")}
    result = call(**lost)
    assert (result["error_kind"], "for GPU 0-1, and the node has GPU 0" in result["msg"]) == ("cannot_write", True)
    assert "NCCL_GRAPH_FILE out of the profile" in result["remedy"]
    assert call(nccl_graph="", **lost)["changed"] is True
    result = call(nccl_graph=str(tmp_path / "graph.xml"), **{**options, "facts": facts()})
    assert (result["error_kind"], "`nccl_graph`" in result["remedy"]) == ("cannot_write", True)


@needs_root
def test_numbers_of_device_files_reach_the_map_of_an_older_run_and_gres_conf(
    options: dict[str, t.Any], tmp_path: Path
) -> None:
    wanted = {**options, "gres_conf": str(tmp_path / "gres.conf")}
    call(**wanted)
    assert "minors" not in Path(options["map"]).read_text()
    for gpu, minor in zip(wanted["facts"]["gpus"], (1, 0)):
        gpu["minor"] = minor
    assert call(**wanted)["changed"] is True
    assert "# minors 1,0\n" in Path(options["map"]).read_text()
    files = [line.split()[1] for line in (tmp_path / "gres.conf").read_text().splitlines()[1:]]
    assert files == ["File=/dev/nvidia1", "File=/dev/nvidia0"]
    assert call(**wanted)["changed"] is False
    wanted["facts"]["gpus"][1]["minor"] = None
    result = call(**wanted)
    assert (result["error_kind"], "which /dev/nvidiaN is GPU 1" in result["msg"]) == ("cannot_write", True)


@needs_root
def test_without_facts_the_node_is_looked_at(options: dict[str, t.Any]) -> None:
    result = call(**{**options, "facts": {}})
    assert result["changed"] is (bool(result["plan"]))


@pytest.mark.parametrize(
    ("output", "memory_nodes", "words"),
    [
        ("Cpus_allowed_list:\t0-1\n55d0 bind:0 file=/bin/cat N0=2\n", 2, ""),
        ("Cpus_allowed_list:\t1\n55d0 bind=static:0 file=/bin/cat\n", 2, ""),
        ("Cpus_allowed_list:\t0-1\n55d0 default file=/bin/cat N0=2\n", 1, ""),
        ("Cpus_allowed_list:\t0-1\n", 2, ""),
        ("Cpus_allowed_list:\t0-2\n", 1, "may run on CPUs 2"),
        ("Cpus_allowed_list:\t0-1\n55d0 bind:1 file=/bin/cat\n", 2, "policy bind:1, not bind:0"),
        ("nothing\n", 1, "did not say"),
    ],
)
def test_what_the_probe_says(output: str, memory_nodes: int, words: str) -> None:
    found = judge_probe({"rank": 0, "cpus": "0-1", "numa": [0]}, output, memory_nodes)
    assert (words in found) if words else found == ""
