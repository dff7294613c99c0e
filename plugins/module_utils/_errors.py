# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The one exception that the pure half raises and a module turns into ``fail_json``."""

from __future__ import annotations

import contextlib
import typing as t


class ClusterError(Exception):
    """Something went wrong that a person can act on.

    ``kind`` is a stable identifier for programs (``sas_expired``, ``disk_full``, ...), ``message`` says what happened and
    why, ``remedy`` the next step. None of them may hold a secret: they reach logs and reports.
    """

    def __init__(self, kind: str, message: str, remedy: str, **details: t.Any) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.kind = kind
        self.message = message
        self.remedy = remedy
        self.details = details

    def as_result(self) -> dict[str, t.Any]:
        """The keyword arguments of ``AnsibleModule.fail_json``: ``msg``, ``error_kind``, ``remedy`` and the details."""
        return {"msg": str(self), "error_kind": self.kind, "remedy": self.remedy, **self.details}


@contextlib.contextmanager
def failing(module: t.Any) -> t.Iterator[None]:
    """Around the work of a module: what goes wrong in it ends the module with ``fail_json``."""
    try:
        yield
    except ClusterError as exc:
        module.fail_json(**exc.as_result())
    except OSError as exc:
        message = f"{exc.filename or 'A path'}: {exc.strerror}. Correct this on the node and run again."
        module.fail_json(msg=message, error_kind="os_error")


__all__ = ["ClusterError", "failing"]
