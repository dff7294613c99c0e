# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Values of options that cannot work, refused before anything is listed or written."""

from __future__ import annotations

import math
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: Has to be more than 0.
POSITIVE = ("batch_s", "claim_expiry_s", "stall_timeout_s")
#: The smallest value. 0 stands for no limit, or for a value of AzCopy's or of the node's.
LEAST = {
    "cap_mbps": 0,
    "concurrency": 0,
    "egress_mbps": 0,
    "ingress_mbps": 0,
    "landing_limit_gib": 0,
    "nic_mbps": 0,
    "processes": 1,
    "threads": 0,
    "timeout_s": 0,
}
#: Has to be absolute, where it is given.
PATHS = ("destination", "landing_path", "log_path", "mount_point", "source", "work_path")

#: Must not be the root of the node: all that is in it would be taken for the dataset's.
NOT_ROOT = ("destination",)


def check_options(params: t.Mapping[str, t.Any]) -> None:
    """Refuse a module's options outside their limits, all of them in one message. An option that is None is not looked at."""
    wrong = [
        *(_sentence(name, params[name], "more than 0") for name in POSITIVE if _outside(params, name, math.ulp(0))),
        *(
            _sentence(name, params[name], f"{least} or more")
            for name, least in LEAST.items()
            if _outside(params, name, least)
        ),
        *(
            _sentence(name, params[name], "an absolute path")
            for name in PATHS
            if params.get(name) is not None and not os.path.isabs(params[name])
        ),
        *(
            _sentence(name, params[name], "a directory below /, which belongs to the whole node")
            for name in NOT_ROOT
            if params.get(name) and os.path.normpath(params[name]) in ("/", "//")
        ),
    ]
    if wrong:
        raise ClusterError("bad_input", " ".join(wrong), "Correct this and run again.")


def _outside(params: t.Mapping[str, t.Any], name: str, least: float) -> bool:
    value = params.get(name)
    return value is not None and not least <= value < math.inf


def _sentence(name: str, value: t.Any, wanted: str) -> str:
    return f"`{name}` is {value!r}: it has to be {wanted}."


__all__ = ["LEAST", "NOT_ROOT", "PATHS", "POSITIVE", "check_options"]
