# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Options that modules of several packages have, and the way from a module's options to the frozen request of the code."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

Kind = t.TypeVar("Kind")

PHASES: dict[str, t.Any] = {
    "phases": {
        "type": "list",
        "elements": "str",
        "choices": ["install", "configure"],
        "default": ["install", "configure"],
    }
}
REPOSITORY_KEY: dict[str, t.Any] = {
    "repository_key": {"type": "str", "default": "", "no_log": False},
    "repository_fingerprint": {"type": "str", "default": ""},
}
REBOOT_TIMEOUT: dict[str, t.Any] = {"reboot_timeout_s": {"type": "int", "default": 1200}}


def from_options(kind: type[Kind], options: t.Mapping[str, t.Any], /, **others: t.Any) -> Kind:
    """An instance of a dataclass whose fields are the options of their names, with tuples in place of lists.

    ``options`` are a module's parameters, which Ansible has checked and filled up. ``others`` are the fields that are not just
    an option. Raises KeyError for a field that is neither.
    """
    fields = dataclasses.fields(t.cast(t.Any, kind))
    taken = {field.name: _frozen(options[field.name]) for field in fields if field.name not in others}
    return kind(**taken, **others)


def require_absolute(options: t.Mapping[str, t.Any], *names: str) -> None:
    """Raise ClusterError (``bad_input``) for one of these options that is a path and not absolute."""
    for name in names:
        path = options.get(name)
        if path and not path.startswith("/"):
            raise ClusterError(
                "bad_input", f"`{name}`: {path!r} is not an absolute path.", "Write the whole path, from the root."
            )


def _frozen(value: t.Any) -> t.Any:
    return tuple(value) if isinstance(value, list) else value


__all__ = ["PHASES", "REBOOT_TIMEOUT", "REPOSITORY_KEY", "from_options", "require_absolute"]
