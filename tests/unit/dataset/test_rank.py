# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node's part in a run gives back to Ansible."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import RankProgress

#: Keys of a result that Ansible itself reads.
RESERVED = {"changed", "failed", "skipped", "unreachable", "msg", "rc", "exception", "warnings", "invocation"}


def test_files_that_failed_do_not_make_ansible_fail_the_task() -> None:
    failure = {"name": "a.gz", "kind": "corrupt", "message": "It is damaged.", "remedy": "Upload it again."}
    totals = rank._totals(RankProgress(0, "gpu-1", files=3, failed=[failure]))
    assert not RESERVED & set(totals)
    assert totals["failed_files"] == [failure]


def test_at_most_a_hundred_failed_files_are_named() -> None:
    failures = [{"name": str(number), "kind": "corrupt"} for number in range(101)]
    assert rank._totals(RankProgress(0, "gpu-1", failed=failures))["failed_files"] == failures[:100]
