# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole module run in the process of the test, from its arguments to the JSON that Ansible would read."""

from __future__ import annotations

import contextlib
import io
import json
import typing as t

import pytest
from ansible.module_utils.testing import patch_module_args

Main = t.Callable[[], None]


def print_main(main: Main, arguments: dict[str, t.Any]) -> str:
    """What the module prints: one JSON object, whose ``failed`` agrees with the exit status."""
    printed = io.StringIO()
    with patch_module_args(arguments), contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main()
    output = printed.getvalue()
    assert ended.value.code == int(json.loads(output).get("failed", False)), output
    return output


def run_main(main: Main, arguments: dict[str, t.Any]) -> dict[str, t.Any]:
    """What the module returns, in the types that JSON knows and without secrets; ``failed`` tells how it ended."""
    return {"failed": False, **json.loads(print_main(main, arguments))}


__all__ = ["print_main", "run_main"]
