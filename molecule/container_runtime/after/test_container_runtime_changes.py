# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After another toolkit and another place for images came under a running container, and after the removal."""

from __future__ import annotations

import json
import typing as t


def seen(host: t.Any) -> dict[str, t.Any]:
    """What side_effect.yml noted on this node."""
    return t.cast("dict[str, t.Any]", json.loads(host.file("/run/lab-seen.json").content_string))


def test_a_restart_under_a_running_container_needs_consent(host: t.Any) -> None:
    found = seen(host)
    assert found["restart"] == "consent_missing"
    assert found["moved"] == "start", "with consent"


def test_a_newer_toolkit_comes_whole_and_docker_is_only_reloaded(host: t.Any) -> None:
    assert seen(host)["upgraded"] == ["reload", "1.18.0-1"]


def test_removal_leaves_the_settings_of_others_alone_and_none_of_ours(host: t.Any) -> None:
    left = seen(host)["left"]
    # The whole output is one document, docker's: no package is listed behind it, and no file.
    settings = json.loads(left)
    assert settings["live-restore"] is True
    assert set(settings["runtimes"]) == {"kata"}
    assert "nvidia" not in left
