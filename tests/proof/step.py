# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a step of the proof is: commands, what they need, and the scenarios that they prove when all of them end well."""

from __future__ import annotations

import dataclasses
import typing as t

#: What every step gets, besides where its records go.
COMMON_ENVIRONMENT: t.Mapping[str, str] = {"ANSIBLE_CALLBACKS_ENABLED": "task_seconds", "ANSIBLE_FORCE_COLOR": "0"}


@dataclasses.dataclass(frozen=True)
class Renewal:
    """What makes the nodes of a lab anew. ``holds``: all of them. ``like``: steps that together take as long."""

    commands: tuple[tuple[str, ...], ...] = ()
    holds: tuple[str, ...] = ()
    like: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Step:
    """Commands that run one after the other. The first one that fails ends the step."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    #: Steps that must have ended well before. They are run even if nobody else asks for them.
    needs: tuple[str, ...] = ()
    #: Steps that come first where they are part of the same run.
    after: tuple[str, ...] = ()
    #: What no other step may hold at the same time, such as a lab's node.
    holds: tuple[str, ...] = ()
    #: One of these is held, and its name goes into the environment variable ``pool_variable``.
    pool: tuple[str, ...] = ()
    pool_variable: str = ""
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Measured on two CPUs; the ledger knows better.
    minutes: float = 1.0
    #: The scenarios of ``scenarios.py`` that are proven when it ends well.
    proves: tuple[str, ...] = ()
    #: A command that hangs is killed after this; the step, after ``budget.limit_s`` of its estimate.
    limit_s: float = 3600.0
    #: A step that has it is run once more when it fails, behind this.
    renewal: Renewal | None = None
    #: Of a step's second run: the log of the first one.
    first_log: str = ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    name: str
    #: "ok", "flaky" (it failed, and then was ok on new nodes), "failed", "cut" (it did not fit into the budget), "left" (a
    #: step that it needs did not end well)
    result: str
    seconds: float = 0.0
    #: The member of its pool that it held.
    member: str = ""
    #: The command that failed, and its log.
    command: str = ""
    log: str = ""
    #: Of the first run, where there was a second one.
    first_log: str = ""

    @property
    def well(self) -> bool:
        """Whether steps that need it can run."""
        return self.result in ("ok", "flaky")


__all__ = ["COMMON_ENVIRONMENT", "Outcome", "Renewal", "Step"]
