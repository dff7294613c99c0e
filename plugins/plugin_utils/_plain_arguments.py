# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Arguments that are made of variables and text, without Jinja.

Ansible compiles every template anew in every worker, which costs one to two milliseconds of the controller's CPU each. A role
hands its variables to a module as ``option: "{{ role_option }}"``, 20 to 30 of them in a task: looking them up gives the same
values for a tenth of the time. So does ``{{ role_directory }}/name``, which the paths of files are. Whatever is not as simple as
that is left to Ansible: single values of a list or a dictionary where the rest of it is simple.
"""

from __future__ import annotations

import re
import typing as t

from ansible.plugins.action import ActionBase
from ansible.template import is_trusted_as_template

#: A variable, or one through the filter that its type asks for. Ansible's own variables may be more than values.
_PLAIN = re.compile(
    r"\{\{ *(?!ansible_)([a-zA-Z_]\w*) *(?:\| *(bool|int|float|hpcai\.gpu_cluster\.as_(?:list|dict)) *)?\}\}"
)
#: Variables with text around them, on one line.
_JOINED = re.compile(r"(?:[^{}\\\r\n]|\{\{ *(?!ansible_)[a-zA-Z_]\w* *\}\})+")
_NAME = re.compile(r"\{\{ *(\w+) *\}\}")
_FACT = re.compile(r"\{\{ *ansible_facts\['(\w+)'\] *\| *default\(\{\}\) *\}\}")
_TYPES: dict[str | None, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float,),
    # These change texts, and nothing else.
    "hpcai.gpu_cluster.as_list": (list, dict),
    "hpcai.gpu_cluster.as_dict": (list, dict),
}
_VALUES = (str, bool, int, float, list, dict)


class _Templar(t.Protocol):
    available_variables: t.Mapping[str, t.Any]

    def template(self, variable: t.Any) -> t.Any: ...


class _Template(Exception):  # noqa: N818 - it is no error
    """Something may be a template."""


def _copy(value: t.Any, templar: _Templar) -> t.Any:
    """The value without templates, in containers of its own. Raises _Template where Ansible has to look at it."""
    if isinstance(value, str):
        return _text(value, templar) if "{" in value or value.startswith("#jinja2:") else value
    if isinstance(value, dict):
        return {key: _item(item, templar) for key, item in value.items()}
    if isinstance(value, list):
        return [_item(item, templar) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise _Template


def _item(value: t.Any, templar: _Templar) -> t.Any:
    """An item of a container. One that is not simple does not keep Ansible busy with the others."""
    try:
        return _copy(value, templar)
    except _Template:
        return templar.template(value)


def _text(template: str, templar: _Templar) -> t.Any:
    """What a template of variables and text stands for."""
    if template.startswith("#jinja2:") or not is_trusted_as_template(template):
        raise _Template
    if found := _PLAIN.fullmatch(template):
        value = _variable(found[1], templar)
        if _stays(value, found[2]):
            return value
    elif _JOINED.fullmatch(template):
        return _NAME.sub(lambda found: _part(found[1], templar), template)
    raise _Template


def _variable(name: str, templar: _Templar) -> t.Any:
    value = templar.available_variables.get(name)
    if not isinstance(value, _VALUES):
        raise _Template
    return _copy(value, templar)


def _part(name: str, templar: _Templar) -> str:
    """The variable within a text."""
    value = _variable(name, templar)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _Template
    return str(value)


def resolved(value: t.Any, templar: _Templar) -> t.Any:
    """The value without templates. Facts have hundreds of values, which Ansible wraps one by one to look for any."""
    try:
        return _copy(value, templar)
    except Exception:
        # Its own error, of the whole value, or `omit`, which concerns what is around it.
        return templar.template(value)


def _named(argument: str, variables: t.Mapping[str, t.Any]) -> tuple[t.Any, str | None]:
    """What the argument names, and through which filter; None where it is not as simple as that."""
    if found := _PLAIN.fullmatch(argument):
        return variables.get(found[1]), found[2]
    if found := _FACT.fullmatch(argument):
        return (variables.get("ansible_facts") or {}).get(found[1], {}), None
    return None, None


def _stays(value: t.Any, name: str | None) -> bool:
    """Whether the filter of this name, if any, gives the value back as it is."""
    return name is None or (isinstance(value, _TYPES[name]) and isinstance(value, bool) == (name == "bool"))


def plain_value(argument: t.Any, templar: _Templar) -> tuple[bool, t.Any]:
    """Whether the argument is made of variables and text, and then its value."""
    if isinstance(argument, (dict, list)):
        return True, resolved(argument, templar)
    if not isinstance(argument, str) or not is_trusted_as_template(argument):
        return False, None
    if _JOINED.fullmatch(argument) and not _PLAIN.fullmatch(argument):
        return True, resolved(argument, templar)
    value, name = _named(argument, templar.available_variables)
    if not isinstance(value, _VALUES):
        return False, None
    value = resolved(value, templar)
    return _stays(value, name), value


class PlainArguments(ActionBase):
    """An action that looks its plain arguments up."""

    # Ansible calls this unstable: where it is not called, or called with more, templates are compiled as ever.
    @classmethod
    def finalize_task_arg(cls, name: str, value: t.Any, templar: t.Any, *rest: t.Any, **more: t.Any) -> t.Any:
        """The argument's value."""
        plain, found = plain_value(value, templar)
        return found if plain else super().finalize_task_arg(name, value, templar, *rest, **more)


__all__ = ["PlainArguments", "plain_value", "resolved"]
