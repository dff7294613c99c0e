# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request holds every option, and nothing in it changes."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import ARGUMENT_SPEC, Request

DEFAULTS = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}


def test_the_request_has_the_modules_options() -> None:
    assert [field.name for field in dataclasses.fields(Request)] == list(ARGUMENT_SPEC)


def test_a_request_stays_as_it_is() -> None:
    request = Request.of({**DEFAULTS, "packages": ["nvidia-open"]})
    assert request.packages == ("nvidia-open",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.hold = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "packaged", "configures"),
    [
        ({}, True, True),
        ({"source": "distro", "phases": ["configure"]}, True, True),
        ({"source": "runfile", "phases": ["install"]}, False, False),
        ({"source": "preinstalled"}, False, True),
    ],
)
def test_what_follows_from_the_options(options: dict[str, object], packaged: bool, configures: bool) -> None:
    request = Request.of({**DEFAULTS, **options})
    assert (request.packaged, request.configures) == (packaged, configures)
