# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario that is run otherwise than it was proven is unproven, and what cannot change its result leaves it proven."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import typing as t

import pytest
from proof import steps
from proof.__main__ import Digests
from proof.how import how, newest_python, said, tools
from proof.scenario import Scenario
from proof.scenarios import scenarios
from proof.step import Step
from proof.tree import WorkTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
KNOWN = scenarios(WorkTree(ROOT))
UP = Step("up", (("create", "lab"),), environment={"LAB_NODES": "3"})
DEEPER = Step("image", (("build",),))
STEP = Step("role/a", (("test", "a"),), needs=("up",), environment={"LAB_DIR": "roles"}, pool=("gpu-1", "gpu-2"))


def told(step: Step = STEP, *needed: Step, inherited: t.Mapping[str, str] | None = None) -> str:
    return said(step, {one.name: one for one in (step, *(needed or (UP,)))}, inherited or {})


@pytest.mark.parametrize(
    "change",
    [
        {"commands": (("test", "a", "--parallel"),)},
        {"environment": {"LAB_DIR": "roles", "LAB_SCENARIO_NODES": "gpu-3"}},
        {"environment": {"LAB_DIR": "others"}},
        {"pool": ("gpu-1",)},
        {"pool_variable": "LAB_VM_NODE"},
        {"needs": ()},
    ],
)
def test_what_a_step_is_given_counts(change: dict[str, t.Any]) -> None:
    assert told(dataclasses.replace(STEP, **change)) != told()


@pytest.mark.parametrize("change", [{"minutes": 9.0}, {"limit_s": 1.0}, {"holds": ("apt",)}, {"after": ("b",)}])
def test_when_a_step_runs_does_not_count(change: dict[str, t.Any]) -> None:
    assert told(dataclasses.replace(STEP, **change)) == told()


def test_what_was_set_up_before_counts_however_far_back() -> None:
    assert told(STEP, dataclasses.replace(UP, environment={"LAB_NODES": "4"})) != told()
    assert told(STEP, dataclasses.replace(UP, commands=(("create", "other"),))) != told()
    deep = dataclasses.replace(UP, needs=("image",))
    assert told(STEP, deep, DEEPER) != told(STEP, deep, dataclasses.replace(DEEPER, commands=(("download",),)))


def test_variables_of_whoever_started_the_run_count_where_they_choose_what_is_proven() -> None:
    assert told(inherited={"LAB_NODES": "2"}) != told()
    assert told(inherited={"ANSIBLE_STRATEGY": "free"}) != told()
    assert told(inherited={"MOLECULE_PARALLEL": "1"}) != told()


@pytest.mark.parametrize(
    "inherited",
    [
        {"HOME": "/home/me", "PATH": "/opt/bin"},
        {"LAB_VM_DIR": "/tmp/vm", "LAB_MIRROR": "http://mirror.example.org", "LAB_VM_ACCEL": "kvm"},
        {"ANSIBLE_CONFIG": "/clone/ansible.cfg", "ANSIBLE_FORCE_COLOR": "1", "MOLECULE_GLOB": "molecule/*"},
        {"LAB_DIR": "/mine"},
    ],
)
def test_places_and_what_the_run_sets_itself_do_not_count(inherited: dict[str, str]) -> None:
    assert told(inherited=inherited) == told()


def test_another_checkout_has_the_same() -> None:
    texts = how(KNOWN, {}, {})
    assert set(texts) == {one.name for one in KNOWN}
    assert not [name for name, text in texts.items() if str(ROOT) in text]
    assert ".cache/lab-roles" in texts["role/mofed"]


def test_folders_of_unit_tests_are_run_in_one_way() -> None:
    (text,) = {text for name, text in how(KNOWN, {}, {}).items() if name.startswith("unit/")}
    assert "prepare_lab_packages" in text


def test_the_tools_that_are_installed_count_but_for_what_brings_its_own() -> None:
    one, other = (how(KNOWN, {}, {"python": version}) for version in ("3.11", "3.12"))
    assert {name for name in one if one[name] == other[name]} == {steps.NEWEST_CORE}


def test_the_python_of_the_newest_core_counts_for_what_runs_on_it() -> None:
    one, other = (how(KNOWN, {}, {"python": "3.11"}, version) for version in ("3.12", "3.13"))
    assert {name for name in one if one[name] != other[name]} == {steps.NEWEST_CORE}


@pytest.mark.parametrize("version", ["3.13", "3.12", ""])
def test_the_python_of_the_newest_core_is_asked_for_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, version: str
) -> None:
    """Interpreters that say whether they are new enough, and which they are."""
    for name in ("3.12", "3.13"):
        answer = f"case $2 in *print*) echo {name} ;; *) exit {int(name != version)} ;; esac"
        (tmp_path / f"python{name}").write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / f"python{name}").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert newest_python() == version


def test_tools_are_those_that_are_pinned_as_they_are_installed() -> None:
    found = tools(["# one\npytest==1.0\n-r controller.txt\n", "no-such-thing==2.0; python_version < '3.12'\n"])
    assert found == {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "no-such-thing": "missing",
        "pytest": pytest.__version__,
    }


@pytest.mark.slow
def test_digests_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [Scenario("cluster", ("molecule/cluster/molecule.yml",))]
    before = Digests(known)()
    assert Digests(known)() == before
    monkeypatch.setenv("LAB_NODES", "2")
    assert Digests(known)()["cluster"] != before["cluster"]
