# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole module run in the process of the test."""

from __future__ import annotations

import typing as t

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args


def run_main(main: t.Callable[[], None], arguments: dict[str, t.Any]) -> dict[str, t.Any]:
    """What the module returns; ``failed`` tells how it ended."""
    result: dict[str, t.Any] = {}

    def leave(_module: basic.AnsibleModule, **kwargs: t.Any) -> None:
        result.update(failed=False, **kwargs)
        raise SystemExit(0)

    def fail(_module: basic.AnsibleModule, msg: str, **kwargs: t.Any) -> None:
        result.update(failed=True, msg=msg, **kwargs)
        raise SystemExit(1)

    with pytest.MonkeyPatch.context() as patch, patch_module_args(arguments):
        patch.setattr(basic.AnsibleModule, "exit_json", leave)
        patch.setattr(basic.AnsibleModule, "fail_json", fail)
        with pytest.raises(SystemExit):
            main()
    return result


__all__ = ["run_main"]
