# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Arguments that are a variable and nothing else, without Jinja.

Ansible compiles every template anew in every worker, which costs one to two milliseconds of the controller's CPU each. A role
hands its variables to a module as ``option: "{{ role_option }}"``, 20 to 30 of them in a task: looking them up gives the same
values for a tenth of the time. Whatever is not as simple as that is left to Ansible.
"""

from __future__ import annotations

import re
import typing as t

from ansible.plugins.action import ActionBase
from ansible.template import is_trusted_as_template

#: A variable, or one through the filter that its type asks for. Ansible's own variables may be more than values.
_PLAIN = re.compile(r"\{\{ *(?!ansible_)([a-zA-Z_]\w*) *(?:\| *(bool|int) *)?\}\}")
_VALUES = (str, bool, int, float, list, dict)


class _Templar(t.Protocol):
    available_variables: t.Mapping[str, t.Any]

    def template(self, variable: t.Any) -> t.Any: ...


def _as_filtered(value: t.Any, name: str | None) -> bool:
    """Whether the filter would give back the value as it is."""
    if name == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return name is None or isinstance(value, bool)


def plain_value(argument: t.Any, templar: _Templar) -> tuple[bool, t.Any]:
    """Whether the argument is a variable and nothing else, and then its value."""
    found = _PLAIN.fullmatch(argument) if isinstance(argument, str) else None
    if not found or not is_trusted_as_template(argument):
        return False, None
    value = templar.available_variables.get(found[1])
    if not isinstance(value, _VALUES):
        return False, None
    value = templar.template(value)
    return _as_filtered(value, found[2]), value


class PlainArguments(ActionBase):
    """An action that looks its plain arguments up."""

    # Ansible calls this unstable: where it is not called, or called with more, templates are compiled as ever.
    @classmethod
    def finalize_task_arg(cls, name: str, value: t.Any, templar: t.Any, *rest: t.Any, **more: t.Any) -> t.Any:
        """The argument's value."""
        plain, found = plain_value(value, templar)
        return found if plain else super().finalize_task_arg(name, value, templar, *rest, **more)


__all__ = ["PlainArguments", "plain_value"]
