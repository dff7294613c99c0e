# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a proof: what is run for each scenario, and what has to be there before.

Three labs can be up at the same time: ``.cache/lab`` for the whole site, ``.cache/lab-roles`` for roles one by one, and the
virtual machines. What changes a lab holds it, or one of its nodes.
"""

from __future__ import annotations

import pathlib
import typing as t

from proof.scenario import Scenario
from proof.step import Step

ROLE_NODES = ("gpu-1", "gpu-2", "gpu-3")
MACHINES = ("vm-1", "vm-2")
#: Roles whose scenario is about several nodes. All others need one, whichever is free.
OF_SEVERAL_NODES = ("cluster_ssh", "glusterfs", "hpcx_mpi")

ROLES_LAB = {"LAB_DIR": ".cache/lab-roles", "LAB_NODES": str(len(ROLE_NODES))}


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
    """What looks at the files only. Each takes seconds, so no ledger remembers it."""
    linked = ".venv/collections/ansible_collections/hpcai/gpu_cluster"
    at_link = ("env", "-C", linked)
    code = ("plugins", "tests", "benchmarks", "inventories")
    return [
        Step("static/ruff", (("ruff", "check", *code), ("ruff", "format", "--check", *code)), minutes=0.1),
        # Through the link: mypy has to see the files at the place they are imported from.
        Step("static/mypy", (("mypy", f"{linked}/plugins"),), minutes=0.5),
        Step("static/yamllint", (("yamllint", "--strict", "."),), minutes=0.1),
        Step("static/ansible-lint", ((*at_link, "ansible-lint", "--offline", "--strict"),), minutes=1),
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


def unit_step(folders: t.Sequence[str], proves: t.Sequence[str], quick: bool = False) -> Step:
    """Unit tests of these folders on this ansible-core. They wait for AzCopy much of the time: two processes for one core."""
    marks = ("-m", "not slow") if quick else ()
    command = ("python", "-m", "pytest", "--numprocesses", "2", "--dist", "worksteal", *marks, *folders)
    return Step(
        "units",
        (command,),
        needs=() if quick else ("packages/lab", "packages/vm"),
        minutes=4 if quick else 6,
        proves=tuple(proves),
    )


def newest_core_steps() -> list[Step]:
    """The tests that touch Ansible, with the newest ansible-core that is supported."""
    return [
        Step("newest-core/venv", (shell("prepare_newest_core"),), minutes=1),
        Step(
            "newest-core",
            (shell("with_newest_core python -m pytest --numprocesses 2 -m 'ansible and not slow' tests/unit"),),
            needs=("newest-core/venv",),
            minutes=1.5,
            proves=("newest-core",),
        ),
    ]


def set_up_steps() -> list[Step]:
    """What the labs need. Nothing is proven by it."""
    # Nodes that no role has touched yet: what an earlier run left is of no use.
    new = (playbook("molecule/cluster/destroy.yml"), playbook("molecule/cluster/create.yml"))
    return [
        Step("packages/lab", (shell("prepare_lab_packages"),), holds=("apt",), minutes=0.5),
        Step("packages/vm", (shell("prepare_vm_packages"),), holds=("apt",), minutes=0.5),
        # One makes the image that both labs run on.
        Step("lab/up", new, needs=("packages/lab",), minutes=3),
        Step("lab-roles/up", new, needs=("lab/up",), environment=ROLES_LAB, minutes=0.5),
        Step("vm/image", (("tests/lab/vm/build",),), needs=("packages/vm",), minutes=2),
        Step(
            "vm/up",
            tuple(molecule(command, "vm") for command in ("destroy", "create", "prepare")),
            needs=("vm/image",),
            cores=2,
            minutes=1.5,
        ),
    ]


def tear_down_steps() -> list[Step]:
    """Run when everything else has ended, however it ended."""
    down = playbook("molecule/cluster/destroy.yml")
    return [
        Step("lab/down", (down,), minutes=0.2),
        Step("lab-roles/down", (down,), environment=ROLES_LAB, minutes=0.2),
        Step("vm/down", (molecule("destroy", "vm"),), minutes=0.2),
    ]


def scenario_step(scenario: Scenario) -> Step:
    """How a scenario of a lab is run."""
    kind, _slash, name = scenario.name.partition("/")
    minutes, proves = scenario.minutes, (scenario.name,)
    test_file = next((root for root in scenario.roots if root.endswith(".py")), "")
    if scenario.name == "cluster/fresh":
        return Step(
            scenario.name,
            (pytest("-m", "fresh", "tests/scenarios/cluster"),),
            needs=("lab/up",),
            holds=("lab",),
            minutes=minutes,
            proves=proves,
        )
    if scenario.name == "cluster":
        commands = tuple(molecule(command, "cluster") for command in ("converge", "idempotence", "verify"))
        return Step(
            scenario.name,
            commands,
            needs=("lab/up",),
            after=("cluster/fresh",),
            holds=("lab",),
            minutes=minutes,
            proves=proves,
        )
    if kind == "faults":
        return Step(
            scenario.name,
            (pytest("-m", "not fresh", test_file),),
            needs=("cluster",),
            holds=("lab",),
            minutes=minutes,
            proves=proves,
        )
    if kind == "role":
        several = name in OF_SEVERAL_NODES
        return Step(
            scenario.name,
            (molecule("test", name, "--destroy", "never"),),
            needs=("lab-roles/up",),
            holds=ROLE_NODES if several else (),
            pool=() if several else ROLE_NODES,
            pool_variable="LAB_NODE",
            environment=ROLES_LAB,
            cores=2 if several else 1,
            minutes=minutes,
            proves=proves,
        )
    return machine_step(scenario, test_file)


def machine_step(scenario: Scenario, test_file: str) -> Step:
    """How a scenario of the virtual machines is run. An emulated machine keeps a core busy."""
    minutes, proves = scenario.minutes, (scenario.name,)
    if scenario.name in ("vm/fresh", "vm/both"):
        mark = scenario.name.removeprefix("vm/")
        return Step(
            scenario.name,
            (pytest("-m", mark, "tests/scenarios/vm"),),
            needs=("vm/up",),
            after=("vm/fresh",) if mark == "both" else (),
            holds=MACHINES,
            cores=2,
            minutes=minutes,
            proves=proves,
        )
    if scenario.name == "vm":
        sequence = ("converge", "idempotence", "side-effect", "verify")
        commands = tuple(molecule(command, "vm") for command in sequence)
    else:
        commands = (pytest("-m", "not fresh and not both", test_file),)
    return Step(
        scenario.name,
        commands,
        needs=("vm/up",),
        after=("vm/fresh",),
        pool=MACHINES,
        pool_variable="LAB_VM_NODE",
        minutes=minutes,
        proves=proves,
    )


def table(scenarios: t.Iterable[Scenario]) -> dict[str, Step]:
    """All steps but the unit tests, which depend on what was asked for, by name."""
    steps = [*static_steps(), *newest_core_steps(), *set_up_steps()]
    steps += [scenario_step(one) for one in scenarios if not one.name.startswith(("unit/", "newest-core"))]
    order_teardown = [step for step in steps if step.name.startswith("faults/")]
    made = {step.name: step for step in steps}
    last = "faults/test_teardown"
    if last in made:  # it takes away what the others need
        before = tuple(step.name for step in order_teardown if step.name != last)
        made[last] = Step(**{**vars(made[last]), "after": before})
    return made


def unit_folders(root: pathlib.Path) -> list[str]:
    return sorted(
        str(path.relative_to(root)) for path in (root / "tests" / "unit").iterdir() if any(path.glob("test_*.py"))
    )


__all__ = ["static_steps", "table", "tear_down_steps", "unit_folders", "unit_step"]
