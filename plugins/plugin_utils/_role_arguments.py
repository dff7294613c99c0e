# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is wrong with the arguments of a role, by its argument spec, without the role.

Ansible validates them by a task at the start of the role, with the role's defaults below the host's variables and its vars above
them. Here the same values meet the same validator earlier. One thing is different: a value that only lacks a fact is left alone.
"""

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleError, AnsibleUndefinedVariable, AnsibleValueOmittedError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.secrets import check_place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._places import places_of
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import resolved
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_limits import beyond
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._survey_texts import is_unset, meant

Options = t.Mapping[str, t.Mapping[str, t.Any]]
_NAME = re.compile(r"[a-zA-Z_]\w*")
#: A variable that is not there, as Jinja says it; of a missing key it says that an object has no attribute.
_NO_VARIABLE = re.compile(r"'(\w+)' is undefined")
#: An empty list, as the filter `first` says it.
_NO_ITEM = "No first item, sequence was empty"
_NO_KEY = re.compile(r"has no attribute '(\w+)'")
#: Facts by names of their own, as Ansible injects them: its own, and what this collection's modules learn of a node.
_FACT = re.compile(r"ansible_\w+|gpu_node|node_profile")
#: What begins as a fact does, but says how Ansible connects, which no node tells.
_CONNECTION = re.compile(
    r"ansible_(?:fact\w*|user|host|port|connection|password|private_key_file|become\w*|shell_\w+|\w+_interpreter|ssh_(?!host_key_)\w+)"
)

#: Variables that are values of nodes, and no templates.
_DATA = ("ansible_facts", "hostvars")
#: What Ansible itself sets, and in some tasks only: a role may read it though nothing else can.
_SOMETIMES = re.compile(r"ansible_(?:collection_name|role_name|parent_role_names|loop|loop_var|index_var)")

#: Characters of what may be a secret where none is expected.
_LONG = 8


class _Templar(t.Protocol):
    available_variables: t.Mapping[str, t.Any]

    def template(self, variable: t.Any) -> t.Any: ...


class Verdict(t.NamedTuple):
    """``errors`` have one line each; ``later`` are the variables whose values need facts, with the first that is not known yet."""

    errors: list[str]
    later: dict[str, str]


def validate(
    options: Options,
    templar: _Templar,
    *,
    injected: bool = True,
    limits: Options | None = None,
    phases: t.Container[str] = (),
) -> Verdict:
    """Validate the templar's variables by the options of an argument spec, and by the limits of some of them.

    ``phases``: those of the role that are going to run. What only others read has no limit.

    ``injected``: Ansible gives facts names of their own, too (``inject_facts_as_vars``). Where it does not, ``ansible_hostname`` is none
    that will be known later.
    """
    values: dict[str, t.Any] = {}
    later: dict[str, str] = {}
    unresolved: dict[str, str] = {}
    for name in options:
        if name not in templar.available_variables:
            continue
        try:
            value = resolved(templar.available_variables[name], templar)
            if not is_unset(options[name], value):
                values[name] = meant(options[name], value)
        except AnsibleValueOmittedError:
            continue
        except ValueError as exc:
            unresolved[name] = f"{name} {exc}"
        except AnsibleError as exc:
            if _lacks_a_fact(name, exc, templar.available_variables, injected):
                later[name] = _missing(exc)
            else:
                unresolved[name] = f"{name} has no value: {_reason(options[name], exc)}"
    checked = {name: _whole(option) for name, option in options.items() if name not in later and name not in unresolved}
    found = [
        *_messages(checked, values),
        *_misplaced_secrets(checked, values),
        *beyond(limits or {}, checked, values, phases),
    ]
    secrets = {text for name, option in checked.items() for text in secrets_of(option, values.get(name))}
    return Verdict([*unresolved.values(), *(str(remove_values(message, secrets)) for message in found)], later)


def _whole(option: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """The option with dictionaries in its list, where a spec calls them raw so that Ansible itself lets a text pass."""
    raw = option.get("elements") == "raw" and option.get("options")
    return {**option, "elements": "dict"} if raw else option


def _messages(options: Options, values: t.Mapping[str, t.Any]) -> list[str]:
    """Ansible's messages. Its validator ends in an error of Python's where a dictionary with options is a number."""
    try:
        validator = ArgumentSpecValidator(options)
        return list(validator.validate(values, validate_role_argument_spec=True).error_messages)
    except (AttributeError, TypeError, ValueError):
        if len(options) == 1:
            return [_expected(*option) for option in options.items()]
        one_by_one = ({name: values[name]} if name in values else {} for name in options)
        return [
            text for (name, option), one in zip(options.items(), one_by_one) for text in _messages({name: option}, one)
        ]


def _misplaced_secrets(options: Options, values: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """A SAS in a URL, where the option has a place of its own for it."""
    for name, option in options.items():
        if {"url", "sas"} <= set(option.get("options") or {}):
            for url, prefix in places_of(values.get(name)):
                try:
                    check_place(url, prefix)
                except ClusterError as error:
                    yield f"{name}: {error}"


def _expected(name: str, option: t.Mapping[str, t.Any]) -> str:
    return f"{name} must be of type {option.get('type', 'str')}"


def _missing(exc: AnsibleError) -> str:
    """The name that is not known; empty where the error does not tell it."""
    found = _NO_VARIABLE.search(str(exc)) or _NO_KEY.search(str(exc))
    return found[1] if found else ""


def _lacks_a_fact(name: str, exc: AnsibleError, variables: t.Mapping[str, t.Any], injected: bool) -> bool:
    """Whether a value is undefined because of a fact, and not because of a variable that is not set."""
    if not isinstance(exc, AnsibleUndefinedVariable):
        return False
    missing = _NO_VARIABLE.search(str(exc))
    if missing and missing[1] not in variables:
        return _is_fact(missing[1], injected)
    names = _read_by(name, variables, set())
    return "ansible_facts" in names or ("hostvars" in names and any(_is_fact(other, injected) for other in names))


def _is_fact(name: str, injected: bool) -> bool:
    """Whether a later task may know a variable of this name."""
    if name.startswith("ansible_") and not injected:
        return bool(_SOMETIMES.fullmatch(name))
    return bool(_FACT.fullmatch(name)) and not _CONNECTION.fullmatch(name)


def _read_by(name: str, variables: t.Mapping[str, t.Any], seen: set[str]) -> set[str]:
    """The names in the variable's templates, and in those of the variables that they name."""
    for found in _NAME.findall(str(variables.get(name, ""))):
        if found not in seen:
            seen.add(found)
            if found not in _DATA and isinstance(variables.get(found), (str, list, dict)):
                _read_by(found, variables, seen)
    return seen


def _reason(option: t.Mapping[str, t.Any], exc: AnsibleError) -> str:
    """The error, but not where it may quote a secret."""
    if _holds_secrets(option):
        return "its template fails."
    return "it is the first item of a list that is empty." if _NO_ITEM in str(exc) else str(exc)


def _holds_secrets(option: t.Mapping[str, t.Any]) -> bool:
    return bool(option.get("no_log")) or any(map(_holds_secrets, (option.get("options") or {}).values()))


def secrets_of(option: t.Mapping[str, t.Any], value: t.Any) -> set[str]:
    """The texts in a value that no message may have. Where its place is not recognizable, every long text is one."""
    if value is None or not _holds_secrets(option):
        return set()
    inner = option.get("options")
    if option.get("no_log") or not inner:
        return _texts(value)
    found = set()
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            return _suspect(value)
        for key, part in item.items():
            found |= secrets_of(inner[key], part) if key in inner else _suspect(part)
    return found


def _suspect(value: t.Any) -> set[str]:
    """What may be a secret where none is expected. Without its short words messages could not be read."""
    return {text for text in _texts(value) if len(text) >= _LONG}


def _texts(value: t.Any) -> set[str]:
    """Every scalar of a value as messages would show it."""
    if isinstance(value, dict):
        return {text for item in value.values() for text in _texts(item)}
    if isinstance(value, (list, tuple)):
        return {text for item in value for text in _texts(item)}
    return set() if value is None or value == "" or isinstance(value, bool) else {str(value)}


__all__ = ["Options", "Verdict", "secrets_of", "validate"]
