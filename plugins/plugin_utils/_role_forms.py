# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a text of a role's option has to look like: the ``form`` of its limit.

``units``: names of systemd's units; ``environment`` and ``parameters``: variables of an environment, or MCA parameters of Open MPI, by
their names; ``line``: one line; ``url``; ``quoted``: a version that YAML may not read as a number; ``version``: numbers with dots.

None of the sentences repeats a URL, which may hold a password.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import is_url

#: systemd.unit(5): what a name consists of, and its suffix.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+")
_SUFFIX = re.compile(r".+\.(?:service|socket|device|mount|automount|swap|target|path|timer|slice|scope)")
#: What a shell takes for a variable. Open MPI reads a parameter from OMPI_MCA_ with its name.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


def misformed(form: str, value: t.Any) -> t.Iterator[str]:
    """What is wrong with a value, a sentence each. A value of a wrong type may be for the argument spec to refuse."""
    return _FORMS[form](value)


def _units(names: t.Any) -> t.Iterator[str]:
    for name in names if isinstance(names, list) else []:
        if not _UNIT.fullmatch(str(name)):
            yield f"{name!s} is no name of a unit: it has letters, digits, and :-_.\\@ alone."
        elif not _SUFFIX.fullmatch(str(name)):
            yield f"{name!s} is no name of a unit: write it with its suffix, such as {name!s}.service."


def _named(what: str) -> t.Callable[[t.Any], t.Iterator[str]]:
    def faults(values: t.Any) -> t.Iterator[str]:
        for name, value in values.items() if isinstance(values, dict) else []:
            if not _VARIABLE.fullmatch(str(name)):
                yield f"{str(name)!r} is no name of {what}: it has letters, digits and underscores alone, and no digit first."
            elif value is None:
                yield f'{name} has no value: write one, or "" for an empty one.'
            elif isinstance(value, bool):
                # YAML's true is True to Python, and programs read 1, true, yes or on.
                yield f'{name} is a boolean: write what programs are to read, such as "1" or "true" in quotes.'
            else:
                yield from (f"{name} {fault}" for fault in _line(value))

    return faults


def _line(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, list):
        joined = ",".join(map(str, value))
        yield f'is a list: write a text, such as "{joined}".'
    elif isinstance(value, dict):
        yield "is a dictionary: write a text."
    elif len(str(value).splitlines()) > 1:
        yield "has to be one line."


def _whole_line(value: t.Any) -> t.Iterator[str]:
    yield from (f"it {fault}" for fault in _line(value))


def _url(value: t.Any) -> t.Iterator[str]:
    if value and not is_url(str(value)):
        yield "it is no URL: write it with its protocol, such as https:// or file:/."


def _quoted(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, float):
        yield (
            f'it is the number {value}, which loses zeros at its end: write the version in quotes, "{value}", with those that it has.'
        )


def _version(value: t.Any) -> t.Iterator[str]:
    if value not in (None, "") and not _VERSION.fullmatch(str(value)):
        yield "it is no version: write numbers with dots between them, such as 13.0."


_FORMS: dict[str, t.Callable[[t.Any], t.Iterator[str]]] = {
    "environment": _named("an environment variable"),
    "line": _whole_line,
    "parameters": _named("an MCA parameter"),
    "quoted": _quoted,
    "units": _units,
    "url": _url,
    "version": _version,
}

__all__ = ["misformed"]
