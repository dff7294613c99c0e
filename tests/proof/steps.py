# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a proof: what is run for each scenario, and what has to be there before.

Three labs can be up at the same time: ``.cache/lab`` for the whole site, ``.cache/lab-roles`` for roles one by one, and the
virtual machines. What changes a lab holds it, or nodes of it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from proof import schedule
from proof.scenario import Scenario
from proof.scenarios import ANSIBLE_LINT
from proof.step import Renewal, Step

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLE_NODES = ("gpu-1", "gpu-2", "gpu-3")
MACHINES = ("vm-1", "vm-2")
#: The nodes of scenarios that one node is not enough for. All others take whichever is free.
NODES_OF = {
    "beeond": ROLE_NODES,
    "cluster_ssh": ROLE_NODES,
    "dataset_staging": ROLE_NODES,
    "glusterfs": ROLE_NODES,
    "gpu_clocks": ROLE_NODES[1:],
    "hpcx_mpi": ROLE_NODES,
}
#: The steps that a role's scenario needs beside the lab.
NEEDS_OF = {"container_runtime": ("packages/containers",)}
#: What a step holds that has all of a lab, by the step that brings it up.
LAB_HOLDS = {"lab/up": ("lab",), "lab-roles/up": ROLE_NODES, "vm/up": MACHINES}
ROLES_LAB = {"LAB_DIR": str(ROOT / ".cache" / "lab-roles"), "LAB_NODES": str(len(ROLE_NODES))}
#: Runs on the second machine while the first one is still as no role has touched it.
BESIDE_FRESH = "vm/test_slurm"
NEWEST_CORE = "newest-core"
UNITS = "units"
UNIT_TESTS = "tests/unit"
QUICK_UNIT_MINUTES = 4.0
#: Azurite and AzCopy.
BLOB_TOOLS = "blob/tools"


def shell(function: str) -> tuple[str, ...]:
    """A function of bin/_env.sh as a command."""
    return ("bash", "-euc", f"source bin/_env.sh; {function}")


def pytest(*arguments: str) -> tuple[str, ...]:
    return ("python", "-m", "pytest", "-vv", *arguments)


def molecule(command: str, scenario: str, *arguments: str) -> tuple[str, ...]:
    return ("molecule", command, "--scenario-name", scenario, *arguments)


def playbook(path: str) -> tuple[str, ...]:
    return ("ansible-playbook", "--inventory", "localhost,", path)


def static_steps() -> list[Step]:
    """What looks at the files only. All but one take seconds, so no ledger remembers them."""
    linked = ".venv/collections/ansible_collections/hpcai/gpu_cluster"
    at_link = ("env", "-C", linked)
    programs = (".ci/run", "bin/_env.sh", "bin/demo", "bin/test", "roles/numa_pinning/files/gpu-bind")
    programs += ("tests/lab/image/build", "tests/lab/vm/build", "tests/sanity/run")
    code = ("plugins", "tests", "benchmarks", "inventories")
    return [
        Step("static/ruff", (("ruff", "check", *code), ("ruff", "format", "--check", *code)), minutes=0.1),
        # Through the link: mypy has to see the files at the place they are imported from.
        Step("static/mypy", (("mypy", f"{linked}/plugins"),), minutes=0.5),
        Step("packages/shellcheck", (shell("apt_install shellcheck"),), holds=("apt",), minutes=0.1),
        Step(
            "static/shellcheck",
            (("shellcheck", "--external-sources", *programs),),
            needs=("packages/shellcheck",),
            minutes=0.1,
        ),
        Step("static/yamllint", (("yamllint", "--strict", "."),), minutes=0.1),
        Step(
            ANSIBLE_LINT,
            ((*at_link, "ansible-lint", "--offline", "--strict"),),
            minutes=2,
            proves=(ANSIBLE_LINT,),
        ),
        Step(
            "static/docs",
            (
                (
                    *at_link,
                    "antsibull-docs",
                    "lint-collection-docs",
                    ".",
                    "--plugin-docs",
                    "--validate-collection-refs",
                    "self",
                ),
                ("antsibull-changelog", "lint"),
            ),
            minutes=0.5,
        ),
    ]


def unit_step(folders: t.Sequence[str], proves: t.Sequence[str], options: t.Sequence[str] = ()) -> Step:
    """Unit tests of these folders on this ansible-core. They wait for AzCopy much of the time: two processes for one core."""
    command = ("python", "-m", "pytest", "--numprocesses", "2", "--dist", "worksteal", *options, *folders)
    return Step(
        UNITS,
        (command,),
        needs=(BLOB_TOOLS, "packages/lab", "packages/vm", "packages/containers"),
        minutes=9.5,
        proves=tuple(proves),
    )


def quick_unit_step(scenarios: t.Sequence[str]) -> Step:
    """All quick unit tests, and the slow ones of these scenarios, which are proven by it."""
    if scenarios:
        return unit_step([UNIT_TESTS], scenarios, ["--slow-of", ",".join(f"tests/{name}" for name in scenarios)])
    step = unit_step([UNIT_TESTS], (), ["-m", "not (slow or blob)"])
    return dataclasses.replace(step, needs=(BLOB_TOOLS,), minutes=QUICK_UNIT_MINUTES)


def newest_core_steps() -> list[Step]:
    """The tests that touch Ansible, with the newest ansible-core that is supported."""
    # What runs the proof and draws no plugin in is only ever run with the oldest one. What AzCopy copies is no matter of Ansible.
    marks = "ansible and (newest or not (slow or blob or oldest))"
    run = f"with_newest_core python -m pytest --numprocesses 2 --dist worksteal -m '{marks}' --ignore tests/unit/proof tests/unit"
    return [
        Step(f"{NEWEST_CORE}/venv", (shell("prepare_newest_core"),), minutes=1.1),
        Step(
            NEWEST_CORE,
            (shell(run),),
            needs=(f"{NEWEST_CORE}/venv", BLOB_TOOLS),
            minutes=1.5,
            proves=(NEWEST_CORE,),
        ),
    ]


def ansible_test_steps() -> list[Step]:
    """Ansible's own checks, on a copy of what users get. They do more than mypy and ruff, but for pylint."""
    return [
        Step("sanity", (("tests/sanity/run", "sanity", "--skip-test", "pylint"),), minutes=2, proves=("sanity",)),
        Step(
            "targets",
            (("tests/sanity/run", "integration"),),
            after=("sanity",),
            minutes=1,
            proves=("targets",),
        ),
    ]


def set_up_steps() -> list[Step]:
    """What the labs need. Nothing is proven by it."""
    # Nodes that no role has touched yet: what an earlier run left is of no use.
    new = (playbook("molecule/cluster/destroy.yml"), playbook("molecule/cluster/create.yml"))
    return [
        # The packages of npm may take minutes to come, in which other steps can run: only its library is apt's.
        Step("packages/blob", (shell("apt_install libsecret-1-0"),), holds=("apt",), minutes=0.1),
        Step(BLOB_TOOLS, (shell("prepare_blob_tools"),), needs=("packages/blob",), minutes=0.3),
        Step("packages/lab", (shell("prepare_lab_packages"),), holds=("apt",), minutes=0.5),
        Step("packages/dnf", (shell("prepare_dnf_packages"),), holds=("apt",), minutes=0.3),
        Step("packages/apt", (shell("prepare_apt_packages"),), holds=("apt",), minutes=0.1),
        Step("packages/containers", (shell("prepare_container_packages"),), holds=("apt",), minutes=0.2),
        Step("packages/vm", (shell("prepare_vm_packages"),), holds=("apt",), minutes=0.5),
        # One makes the image that both labs run on.
        Step("lab/up", new, needs=("packages/lab", BLOB_TOOLS), minutes=0.8),
        Step("lab-roles/up", new, needs=("lab/up",), environment=ROLES_LAB, minutes=0.3),
        Step("vm/image", (("tests/lab/vm/build",),), needs=("packages/vm",), minutes=2.6),
        Step(
            "vm/up",
            tuple(molecule(command, "vm") for command in ("destroy", "create", "prepare")),
            needs=("vm/image",),
            minutes=2.3,
        ),
    ]


def tear_down_steps(planned: t.Sequence[Step]) -> list[Step]:
    """Take each lab down that is brought up, once everything that works in it has ended, however it ended."""
    down = playbook("molecule/cluster/destroy.yml")
    all_labs = [
        Step("lab/down", (down,), minutes=0.2),
        Step("lab-roles/down", (down,), environment=ROLES_LAB, minutes=0.2),
        Step("vm/down", (molecule("destroy", "vm"),), minutes=0.2),
    ]
    names = {step.name for step in planned}
    pairs = [(step, step.name.replace("/down", "/up")) for step in all_labs]
    return [dataclasses.replace(step, after=_users(up, planned)) for step, up in pairs if up in names]


def _users(up: str, planned: t.Sequence[Step]) -> tuple[str, ...]:
    """The step that brings a lab up, and all that need it directly or through others."""
    found = {up}
    while new := {step.name for step in planned if step.name not in found and found & set(step.needs)}:
        found |= new
    return tuple(sorted(found))


def scenario_step(scenario: Scenario) -> Step:
    """How a scenario is run."""
    kind, _slash, name = scenario.name.partition("/")
    step = Step(scenario.name, (), minutes=scenario.minutes, proves=(scenario.name,))
    if kind == "role":
        return _role(step, name)
    if kind == "vm":
        return _machines(step, scenario)
    if scenario.name in ("dnf", "apt"):
        # Its nodes are layers above this machine's root, which no other step may change meanwhile.
        command = pytest("--numprocesses", "2", "--dist", "loadfile", scenario.roots[0])
        return dataclasses.replace(step, commands=(command,), needs=(f"packages/{scenario.name}",), holds=("apt",))
    if kind == "faults" and name == "test_teardown":
        command = pytest("-m", "teardown", "tests/scenarios/cluster")
        return dataclasses.replace(
            step, commands=(command,), needs=("lab-roles/up",), holds=ROLE_NODES, environment=ROLES_LAB
        )
    if kind == "faults":
        command = pytest("-m", "not fresh and not teardown", scenario.roots[0])
        return dataclasses.replace(step, commands=(command,), needs=("cluster",), holds=("lab",))
    if scenario.name == "cluster/fresh":
        command = pytest("-m", "fresh", "tests/scenarios/cluster")
        return dataclasses.replace(step, commands=(command,), needs=("lab/up",), holds=("lab",))
    if scenario.name == "cluster":
        commands = tuple(molecule(command, "cluster") for command in ("converge", "idempotence", "verify"))
        return dataclasses.replace(step, commands=commands, needs=("lab/up",), after=("cluster/fresh",), holds=("lab",))
    raise ValueError(f"There is no rule how {scenario.name} is run: add one to {__name__}.scenario_step.")


def _role(step: Step, role: str) -> Step:
    """A role's scenario on nodes of its own."""
    nodes = NODES_OF.get(role, ())
    named = {"LAB_SCENARIO_NODES": ",".join(nodes)} if nodes and nodes != ROLE_NODES else {}
    return dataclasses.replace(
        step,
        commands=(molecule("test", role, "--destroy", "never"),),
        needs=("lab-roles/up", *NEEDS_OF.get(role, ())),
        holds=nodes,
        pool=() if nodes else ROLE_NODES,
        pool_variable="LAB_SCENARIO_NODES",
        environment={**ROLES_LAB, **named},
    )


def _machines(step: Step, scenario: Scenario) -> Step:
    """A scenario of the virtual machines. An emulated machine keeps a core busy."""
    fresh = "vm/test_fresh_machines"
    test_file = scenario.roots[0]
    step = dataclasses.replace(step, needs=("vm/up",), pool_variable="LAB_VM_NODE")
    if scenario.name == fresh:
        return dataclasses.replace(step, commands=(pytest("-m", "fresh", test_file),), pool=MACHINES[:1])
    if scenario.name == BESIDE_FRESH:
        return dataclasses.replace(step, commands=(pytest(test_file),), pool=MACHINES[1:])
    step = dataclasses.replace(step, after=(fresh,))
    if scenario.name == "vm/test_rdma_between_machines":
        return dataclasses.replace(step, commands=(pytest("-m", "both", test_file),), holds=MACHINES)
    if scenario.name == "vm":
        sequence = ("converge", "idempotence", "side-effect", "verify")
        return dataclasses.replace(step, commands=tuple(molecule(one, "vm") for one in sequence), pool=MACHINES)
    return dataclasses.replace(step, commands=(pytest("-m", "not fresh and not both", test_file),), pool=MACHINES)


def table(scenarios: t.Iterable[Scenario]) -> dict[str, Step]:
    """All steps but the unit tests, which depend on what was asked for, by name."""
    steps = [*static_steps(), *newest_core_steps(), *ansible_test_steps(), *set_up_steps()]
    own = {name for step in steps for name in step.proves}
    steps += [scenario_step(one) for one in scenarios if one.name not in own and not one.name.startswith("unit")]
    made = {step.name: step for step in steps}
    # It takes away what the roles have made.
    teardown = "faults/test_teardown"
    if teardown in made:
        roles = tuple(name for name in made if name.startswith("role/"))
        made[teardown] = dataclasses.replace(made[teardown], after=roles)
    return {name: dataclasses.replace(step, renewal=_renewal(step, made)) for name, step in made.items()}


def _renewal(step: Step, made: t.Mapping[str, Step]) -> Renewal | None:
    """How the nodes that a step works on are made anew; None where it works on no lab."""
    if step.name in LAB_HOLDS:
        return Renewal(holds=step.holds)  # it begins with it
    lab = next((name for name in schedule.with_needs([step.name], made)[::-1] if name in LAB_HOLDS), "")
    if not lab:
        return None
    # For the whole lab, whichever of its machines the step is for.
    commands, like = [("env", "-u", "LAB_VM_NODE", *one) for one in made[lab].commands], (lab,)
    if "cluster" in step.needs:
        commands.append(molecule("converge", "cluster"))
        like = (*like, "cluster")
    return Renewal(tuple(commands), LAB_HOLDS[lab], like)


__all__ = [
    "NEWEST_CORE",
    "ROOT",
    "scenario_step",
    "shell",
    "static_steps",
    "table",
    "tear_down_steps",
    "unit_step",
]
