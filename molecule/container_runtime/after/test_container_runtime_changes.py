# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After containers ran, another toolkit and another place for images came under one, and the removal.

Docker, containerd and runc are Debian's. That settings reach what a container is made with, and which of them a Docker takes without
a restart, only they can show.
"""

from __future__ import annotations

import json
import typing as t

from lab.seen import seen

OURS = "NVIDIA_RUNTIME=lab"


def test_a_container_of_docker_is_made_by_the_nvidia_runtime(host: t.Any) -> None:
    assert OURS in seen(host)["container"]


def test_a_pod_is_made_by_the_nvidia_runtime_with_the_site_s_options(host: t.Any) -> None:
    pod = seen(host)["pod"]
    assert OURS in pod["environment"]
    assert pod["runc_knows"], "in the site's place, as the runtime was told that was the default"


def test_a_restart_under_a_running_container_needs_consent(host: t.Any) -> None:
    found = seen(host)
    assert found["restart"] == "consent_missing"
    start, upgraded, moved = found["start"], found["upgraded"], found["moved"]
    assert start["root"] == upgraded["root"] == "/var/lib/docker"
    assert moved["root"] == "/mnt/resource_nvme/docker", "with consent"
    assert moved["daemon"] != upgraded["daemon"]
    assert moved["lives"] is False


def test_a_newer_toolkit_comes_whole_and_docker_is_only_reloaded(host: t.Any) -> None:
    found = seen(host)
    assert found["start"]["runtime"] == "runc", "somebody had changed it"
    assert found["upgraded"]["runtime"] == "nvidia"
    assert found["upgraded"]["versions"] == ["1.18.0-1"]
    assert found["upgraded"]["daemon"] == found["start"]["daemon"]
    assert found["upgraded"]["lives"] is True


def test_a_docker_that_does_not_know_a_setting_runs_with_those_that_it_had(host: t.Any) -> None:
    found = seen(host)
    assert "any configuration option: no-such-key. /etc/docker/daemon.json is again as it was" in found["unknown"]
    assert found["kept"]["daemon"] != found["moved"]["daemon"]
    assert {**found["kept"], "daemon": 0} == {**found["moved"], "daemon": 0}


def test_removal_leaves_the_settings_of_others_alone_and_none_of_ours(host: t.Any) -> None:
    left = seen(host)["left"]
    # The whole output is one document, docker's: no package is listed behind it, and no file.
    settings = json.loads(left)
    assert settings["storage-driver"] == "vfs"
    assert set(settings["runtimes"]) == {"kata"}
    assert "nvidia" not in left


def test_after_the_removal_containers_start_without_a_restart_of_docker(host: t.Any) -> None:
    found = seen(host)
    assert found["removed"]["daemon"] == found["kept"]["daemon"]
    assert found["removed"]["runtime"] == "runc"
    assert "PATH=" in found["plain"]
    assert OURS not in found["plain"]
    assert "nvidia" not in found["dump"]
