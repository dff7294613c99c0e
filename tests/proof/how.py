# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a scenario is run, as text for its digest: commands, environment, what is set up before, and the installed tools.

Packages of the distribution, such as podman and QEMU, are not pinned, so they do not count.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import typing as t

from proof import steps
from proof.scenario import Scenario
from proof.step import COMMON_ENVIRONMENT, Step

#: Variables of whoever started the run that choose what is proven, such as LAB_NODES or ANSIBLE_STRATEGY.
_CHOOSING = ("ANSIBLE_", "LAB_", "MOLECULE_")
#: Where a lab lies, where its packages come from, and how fast its machines are. bin/_env.sh sets the last three, and
#: proof.execute the places of its records.
_NOT_CHOOSING = frozenset(
    (
        *("LAB_DIR", "LAB_VM_DIR", "LAB_MIRROR", "LAB_VM_ACCEL"),
        *("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "MOLECULE_GLOB"),
        "ANSIBLE_CALLBACK_PLUGINS",
    )
)
_PIN = re.compile(r"^([\w.-]+)==", re.MULTILINE)
#: The files that bin/_env.sh installs from.
REQUIREMENTS = ("requirements/controller.txt", "requirements/test.txt")


def tools(requirements: t.Iterable[str]) -> dict[str, str]:
    """Python, and what the contents of requirement files pin, with the versions that are installed."""
    names = {name for text in requirements for name in _PIN.findall(text)}
    found = {name: _installed(name) for name in sorted(names)}
    return {"python": "{}.{}".format(*sys.version_info), **found}


def newest_python() -> str:
    """The Python that the newest ansible-core is tested with, as 3.13; empty where this machine has none."""
    tell = '"$python" -c "import sys; print(*sys.version_info[:2], sep=chr(46))"'
    command = steps.shell(f"python=$(newer_python); [[ -z $python ]] || {tell}")
    return subprocess.run(command, cwd=steps.ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def said(step: Step, table: t.Mapping[str, Step], inherited: t.Mapping[str, str]) -> str:
    """What a step and those that it needs are run with. ``inherited``: the environment of the run itself."""
    own = {*step.environment, step.pool_variable, *COMMON_ENVIRONMENT}
    chosen = {
        name: value
        for name, value in inherited.items()
        if name.startswith(_CHOOSING) and name not in own and name not in _NOT_CHOOSING
    }
    facts = [
        {
            "commands": one.commands,
            "environment": {**COMMON_ENVIRONMENT, **one.environment},
            "pool": one.pool,
            "pool_variable": one.pool_variable,
        }
        for one in _with_needs(step, table)
    ]
    # A checkout at another place runs the same.
    return json.dumps([facts, chosen], sort_keys=True).replace(str(steps.ROOT), "")


def _with_needs(step: Step, table: t.Mapping[str, Step]) -> list[Step]:
    found = {step.name: step}
    waiting = list(step.needs)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = table[name]
            waiting += table[name].needs
    return [found[name] for name in sorted(found)]


def how(
    scenarios: t.Sequence[Scenario], inherited: t.Mapping[str, str], installed: t.Mapping[str, str], newest: str = ""
) -> dict[str, str]:
    """Scenario to text. Which folders of unit tests share a run says nothing about one of them.

    ``newest``: what ``newest_python`` says.
    """
    table = steps.table(scenarios)
    runs = {name: step for step in table.values() for name in step.proves}
    units = steps.unit_step([], ())
    runs.update((one.name, units) for one in scenarios if one.name.startswith("unit"))
    texts = {name: said(step, table, inherited) for name, step in runs.items()}
    # The newest ansible-core runs with a Python and tools of its own, which are pinned in the same files.
    own = {steps.NEWEST_CORE: {"python": newest}}
    return {name: text + json.dumps(own.get(name, dict(installed))) for name, text in texts.items()}


__all__ = ["REQUIREMENTS", "how", "newest_python", "said", "tools"]
