# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After a brick and a mount were killed and repaired, and a removal was asked for without consent."""

from __future__ import annotations

import typing as t

from lab.seen import seen


def test_verify_names_what_is_broken(host: t.Any) -> None:
    found = seen(host)
    if found["broken"]:
        assert found["noticed"] in {"not_mounted", "not_connected", "brick_offline"}


def test_the_file_outlives_the_repair(host: t.Any) -> None:
    assert seen(host)["repaired"] == "kept"


def test_files_are_not_removed_without_consent(host: t.Any) -> None:
    found = seen(host)
    assert "consent_missing" in found["refused"]
    assert found["kept"] == "kept"
