# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a role or a module ended, and what it said."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from conftest import Result


def _texts(value: t.Any) -> t.Iterator[str]:
    """All texts in a result, which are no keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def refused(result: dict[str, t.Any], kind: str, *words: str) -> None:
    """A module failed with this error, and what it returned has these words, whatever their line breaks."""
    assert result["failed"], result
    assert result.get("error_kind") == kind, result
    # The options that it was given are no words of its own.
    own = {key: value for key, value in result.items() if key != "invocation"}
    said = " ".join(" ".join(_texts(own)).split())
    for word in words:
        assert word in said, result


def changed(result: dict[str, t.Any]) -> bool:
    """Whether a module, which must succeed, changed something."""
    assert not result["failed"], result
    return bool(result["changed"])


def role_refused(result: Result, kind: str, *words: str) -> None:
    """A role failed with this error and these words, whatever line breaks the output has."""
    assert result.rc != 0, result.output
    said = " ".join(result.output.split())
    for word in (f"error_kind: {kind}", *words):
        assert word in said, result.output


def right(result: Result, node: str) -> dict[str, int]:
    """The recap of a role, which must succeed."""
    assert result.rc == 0, result.output
    return result.recap(node)


__all__ = ["changed", "refused", "right", "role_refused"]
