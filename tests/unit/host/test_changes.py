# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes are told in the form that Ansible prints, in the order in which they were made."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change, Changes

FILE = Change("file", "/f", "create", "", "new\n", want={"content": "never told"})


def test_a_run_without_changes_says_so() -> None:
    assert Changes().result() == {"changed": False, "changes": [], "diff": []}


def test_changes_are_told_in_order_with_both_sides() -> None:
    changes = Changes([FILE])
    changes.note("unit", "x.service", "restart")
    assert changes.result() == {
        "changed": True,
        "changes": [
            {"kind": "file", "name": "/f", "what": "create"},
            {"kind": "unit", "name": "x.service", "what": "restart"},
        ],
        "diff": [
            {"before_header": "file /f", "after_header": "file /f (create)", "before": "", "after": "new\n"},
            {"before_header": "unit x.service", "after_header": "unit x.service (restart)", "before": "", "after": ""},
        ],
    }


def test_the_changes_of_another_run_follow_and_what_changed_is_found_by_kind() -> None:
    changes = Changes([FILE])
    other = Changes()
    other.note("unit", "x.service", "start")
    other.note("unit", "y.service", "stop")
    changes.add(*other)
    assert len(changes) == 3
    assert changes.names() == ["/f", "x.service", "y.service"]
    assert changes.names("unit") == ["x.service", "y.service"]
    assert changes.names("unit", "stop") == ["y.service"]
    assert changes.names(what="create") == ["/f"]
    assert len(other) == 2
