# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Lists, dictionaries and numbers as a survey or ``-e name=value`` gives them: every answer is a text.

Ansible itself takes a text for a list, too, and separates it at every comma, those of JSON included.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible.module_utils.common.validation import check_type_dict


def as_list(value: t.Any) -> t.Any:
    """A text as the list that it stands for: JSON, or values with commas between them. Any other value as it is.

    One object of JSON is a list of one. Raises ValueError, which does not quote the text: it may hold a secret.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.startswith(("[", "{")):
        return [part for part in map(str.strip, text.split(",")) if part]
    found = _json(text)
    return found if isinstance(found, list) else [found]


def as_globs(value: t.Any) -> t.Any:
    """A text as the globs that it stands for: JSON, or globs with commas or line breaks between them. Any other value as it is.

    A comma within ``[,;]`` or ``{a,b}`` belongs to its glob, and so does one behind a backslash. Raises ValueError as ``as_list`` does.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if _JSON_LIST.match(text):
        return _json(text)
    return [glob for glob in map(str.strip, _split_globs(text)) if glob]


#: As no glob begins that anybody would write: brackets that are empty, or hold a quote first.
_JSON_LIST = re.compile(r"""\[\s*(?:["']|\]$)""")


def _split_globs(text: str) -> list[str]:
    globs = [""]
    braces, in_class, escaped = 0, False, False
    for character in text:
        if character == "\n" or (character == "," and not (braces or in_class or escaped)):
            globs.append("")
            braces, in_class, escaped = 0, False, False
            continue
        globs[-1] += character
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        else:
            braces = max(braces + {"{": 1, "}": -1}.get(character, 0), 0)
    return globs


def _json(text: str) -> t.Any:
    try:
        return json.loads(text)
    except ValueError as exc:
        why = f"{exc.msg}, character {exc.pos + 1}" if isinstance(exc, json.JSONDecodeError) else "a number is too long"
        raise ValueError(
            f'is a text that begins as JSON does and is none ({why}). Write ["a", "b"], or a,b without brackets.'
        ) from None


def _require_places(items: t.Sequence[t.Any]) -> None:
    """Refuse the words of a text where places in blob storage are meant. Raises ValueError, which does not quote the text."""
    if any(isinstance(item, str) and not _PAIR.match(item) for item in items):
        raise ValueError(
            "is a text that is no list of places. Write it as YAML, or as JSON where it has to be a text: "
            '[{"url": "https://account.blob.core.windows.net/container", "prefix": "train"}].'
        )


def as_dict(value: t.Any) -> t.Any:
    """A text as the dictionary that it stands for: JSON, or ``a=1,b=2`` as modules take it. Any other value as it is.

    Raises ValueError, which does not quote the text.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        return check_type_dict(text) if text else {}
    except TypeError:
        raise ValueError('is a text that is no dictionary. Write {"a": "1", "b": "2"}, or a=1,b=2.') from None


#: ``name=value``, of which Ansible makes a dictionary.
_PAIR = re.compile(r"\w+\s*=")


def is_unset(option: t.Mapping[str, t.Any], value: t.Any) -> bool:
    """Whether the text is that of a number which a survey left empty. Where the option has a default, empty is not that default."""
    number = option.get("type") in ("int", "float") and "default" not in option
    return number and isinstance(value, str) and not value.strip()


#: By the type of an option in an argument spec.
_MEANT: dict[str, t.Callable[[t.Any], t.Any]] = {"list": as_list, "dict": as_dict}


def meant(option: t.Mapping[str, t.Any], value: t.Any) -> t.Any:
    """A list or a dictionary that is given as a text, as roles read it. Raises ValueError where it is none."""
    convert = _MEANT.get(option.get("type", "str"))
    found = convert(value) if convert else value
    if isinstance(value, str) and isinstance(found, list) and "url" in (option.get("options") or {}):
        _require_places(found)
    return found


__all__ = ["as_dict", "as_globs", "as_list", "is_unset", "meant"]
