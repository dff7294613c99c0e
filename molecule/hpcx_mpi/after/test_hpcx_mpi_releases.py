# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After two releases in HPC-X's layout were installed, used side by side, and removed."""

from __future__ import annotations

import typing as t

from lab.seen import seen


def test_an_archive_with_a_wrong_sha256_is_refused_and_not_unpacked(host: t.Any) -> None:
    found = seen(host)
    assert (found["wrong"], found["unpacked"]) == ("checksum", False)


def test_modules_lead_to_each_release_and_to_the_current_one(host: t.Any) -> None:
    first, current, built = seen(host)["modules"][:3]
    assert (first, current) == ("/opt/hpcx/0.0.1/ompi/bin/mpirun", "/opt/hpcx/current/ompi/bin/mpirun")
    assert built.startswith("--with-hcoll")


def test_the_image_s_hpcx_is_used_where_it_lies(host: t.Any) -> None:
    assert seen(host)["image"] == "/opt/hpcx-0.0.3-gcc-doca_ofed-ubuntu24.04-cuda13-x86_64/ompi/bin/mpirun"


def test_the_version_in_use_is_not_removed_without_consent(host: t.Any) -> None:
    assert seen(host)["used"] == "in_use"


def test_removal_with_consent_leaves_nothing(host: t.Any) -> None:
    assert seen(host)["left"] == []
