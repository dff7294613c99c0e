# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules say, in the words of the role that called them.

Modules name their own options, in backticks. Where a role called the module, its user knows the role's variables instead,
and the task says which of them became which option: ``allow_format: "{{ scratch_allow_format | bool }}"``. What runs in
the background and is collected by ``async_status``, which is Ansible's, keeps the options; dataset_collect names the variables.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ansible.plugins.action import ActionBase
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import PlainArguments

Result = dict[str, t.Any]
Run = t.Callable[..., Result]
Translate = t.Callable[[str], str]

#: `option` or `option: value`, and `option[0].key`, which is of an item of a list.
_OPTION = re.compile(r"`(\w+(?:\[\d+\](?:\.\w+)?)?)(?=[`:])")
_ITEM = re.compile(r"(\w+)\[(\d+)\](?:\.(\w+))?")
#: A template that is one variable, maybe with a condition.
_ALONE = re.compile(r"\{\{\s*(\w+)(?: if .+)?\s*\}\}")
#: Where in a result, and in the lists of dictionaries in it, text for people stands.
_TEXTS = frozenset({"message", "msg", "notes", "reason", "remedy", "warnings"})


def _behind(value: t.Any, role: str, variables: t.Mapping[str, t.Any], seen: set[str]) -> list[str]:
    """The role's variables that a template reads, also through private ones (``__role_...``)."""
    found = []
    for private, name in re.findall(rf"\b(__)?({re.escape(role)}_\w+)", str(value)):
        if not private:
            found.append(name)
        elif name not in seen:
            seen.add(name)
            found += _behind(variables.get(f"__{name}", ""), role, variables, seen)
    return found


def variable_of(option: str, arguments: t.Mapping[str, t.Any], role: str, variables: t.Mapping[str, t.Any]) -> str:
    """The role's variable that stands for an option, or "". ``arguments`` are the task's, before they were templated.

    Where a task makes an option of several variables, and none of them has its name, no one of them stands for it.
    """
    item = _ITEM.fullmatch(option)
    if item:
        return _of_item(item, arguments, role, variables)
    usual = f"{role}_{option}"
    found = set(_behind(arguments.get(option, ""), role, variables, set()))
    if usual in found or (not found and usual in variables):
        return usual
    return found.pop() if len(found) == 1 else ""


def _of_item(
    place: re.Match[str], arguments: t.Mapping[str, t.Any], role: str, variables: t.Mapping[str, t.Any]
) -> str:
    """The role's variables, in the middle of two backticks, that stand for a key of an item of a list, or ""."""
    option, number, key = place.groups()
    value = _opened(arguments.get(option), variables)
    if isinstance(value, list) and int(number) < len(value):
        value = _opened(value[int(number)], variables)
        value = value.get(key) if key and isinstance(value, dict) else value
    found = list(dict.fromkeys(_behind(value, role, variables, set())))
    named = [name for name in found if key and name.endswith(f"_{key}")]
    # More of them would tell nobody which one to change.
    return named[0] if len(named) == 1 else "` and `".join(found) if len(found) <= 2 else ""


def _opened(value: t.Any, variables: t.Mapping[str, t.Any]) -> t.Any:
    """What a variable holds where the value is a template of that alone."""
    alone = _ALONE.fullmatch(value) if isinstance(value, str) else None
    return variables.get(alone[1]) if alone and isinstance(variables.get(alone[1]), (list, dict)) else value


def _translation(role: str, arguments: t.Any, variables: t.Mapping[str, t.Any]) -> Translate:
    known = arguments if isinstance(arguments, dict) else {}
    return lambda text: _OPTION.sub(lambda match: f"`{variable_of(match[1], known, role, variables) or match[1]}", text)


def translation_for(action: ActionBase, task_vars: t.Mapping[str, t.Any]) -> Translate:
    """What puts the variables of the role that called an action into a text; without a role it changes nothing."""
    role = str(task_vars.get("ansible_role_name") or "").rpartition(".")[2]
    if not role:
        return lambda text: text
    return _translation(role, (action._task.get_ds() or {}).get(action._task.action), task_vars)


def in_words_of(role: str, result: Result, arguments: t.Any, variables: t.Mapping[str, t.Any]) -> Result:
    """The result with the role's variables in place of the module's options."""
    translated = _texts(result, _translation(role, arguments, variables), deeper=True)
    if translated.get("msg") != result.get("msg"):
        # The module's error with the message in its own words: without it Ansible makes one of the result's.
        translated.pop("exception", None)
    return translated


def _texts(part: Result, translate: Translate, *, deeper: bool) -> Result:
    """A copy with its texts translated, and those of dictionaries in its lists."""
    translated = {}
    for key, value in part.items():
        if key in _TEXTS and isinstance(value, str):
            value = translate(value)
        elif key in _TEXTS and isinstance(value, list):
            value = [_item(text, translate) for text in value]
        elif deeper and isinstance(value, list) and value and isinstance(value[0], dict):
            value = [_texts(item, translate, deeper=False) if isinstance(item, dict) else item for item in value]
        translated[key] = value
    return translated


def _item(item: t.Any, translate: Translate) -> t.Any:
    """A text of a list. A warning is an object of Ansible's, and a text to Ansible, too: it stays what it is where nothing changes."""
    text = getattr(getattr(item, "event", None), "msg", item)
    if not isinstance(text, str):
        return item
    said = translate(text)
    return item if said == text else said


def names_role_variables(run: Run) -> Run:
    """Around an action's ``run``: its result speaks of the role's variables."""

    @functools.wraps(run)
    def wrapped(self: ActionBase, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        result = run(self, tmp, task_vars)
        variables = task_vars or {}
        role = str(variables.get("ansible_role_name") or "").rpartition(".")[2]
        if not role:
            return result
        arguments = (self._task.get_ds() or {}).get(self._task.action)
        return in_words_of(role, result, arguments, variables)

    return wrapped


class ModuleAction(PlainArguments, NormalAction):
    """Runs the module on the node, as Ansible does for modules without an action."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        """Run it, in the background, too."""
        return t.cast(Result, super().run(tmp, task_vars))


__all__ = ["ModuleAction", "in_words_of", "names_role_variables", "translation_for", "variable_of"]
