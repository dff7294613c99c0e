# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The play around a task: which hosts it is for, and whether they go through it in step.

Ansible tells neither in a variable. ``ansible_play_hosts_all`` lacks what ``--limit`` leaves out, and no variable names the strategy.
"""

from __future__ import annotations

import typing as t

from ansible.playbook.task import Task
from ansible.plugins.loader import lookup_loader, strategy_loader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError


def whole_play(task: Task, variables: t.Mapping[str, t.Any]) -> list[str]:
    """All hosts that the play is for, in the order of the inventory, also those that ``--limit``, ``serial`` or a failure leave out."""
    there: list[str] = variables["ansible_play_hosts_all"]
    patterns = task.get_play().hosts
    lookup = lookup_loader.get("ansible.builtin.inventory_hostnames", loader=task.get_loader())
    # `groups` knows nothing of limits, serial and failures, but each group has an order of its own: where a pattern is about hosts,
    # they come in that in which the lookup meets them first.
    groups = {"__hosts_as_in_the_inventory": [*variables["hostvars"]], **variables["groups"]}
    names: list[str] = lookup.run([patterns] if isinstance(patterns, str) else patterns, {"groups": groups})
    return names + [name for name in there if name not in {*names}]


def out_of_step(task: Task, who: str) -> ClusterError | None:
    """The error (``bad_input``) of ``who``, which needs the hosts in step, where the play's strategy lets each go at its own pace.

    So do ``free`` and ``host_pinned``, which is made of it. What is to run once runs on every host then; Ansible only warns of that.
    """
    name = task.get_play().strategy
    made_of = {one.__module__.rpartition(".")[2] for one in strategy_loader.get(name, class_only=True).__mro__}
    if "free" not in made_of:
        return None
    return ClusterError(
        "bad_input",
        f"With `strategy: {name}` every host goes through the play at its own pace, but {who} has one host work for all of them. "
        "Nothing was done.",
        "Take `strategy: linear` for this play, which is Ansible's own default; look at ANSIBLE_STRATEGY and ansible.cfg, too.",
    )


def refuse_out_of_step(task: Task) -> None:
    """Raise that error where a task is to run once."""
    error = out_of_step(task, "this task") if task.run_once else None
    if error is not None:
        raise error


__all__ = ["out_of_step", "refuse_out_of_step", "whole_play"]
