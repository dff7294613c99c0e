# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What mofed leaves on a node, with the distribution's packages."""

from __future__ import annotations

import typing as t

#: Flag of ulimit and value.
LIMITS = {"memlock": ("l", "unlimited"), "nofile": ("n", "1048576"), "stack": ("s", "unlimited")}


def test_the_tools_are_there(host: t.Any) -> None:
    for tool in ("ibv_devinfo", "ib_write_bw", "ibstat", "rdma"):
        assert host.exists(tool), tool


def test_settings_are_written_but_the_host_s_kernel_is_left_alone(host: t.Any) -> None:
    written = host.file("/etc/sysctl.d/90-mofed.conf")
    assert "-net.ipv4.neigh.default.gc_thresh3 = 16384" in written.content_string.splitlines()
    assert written.mode == 0o644


def settable(host: t.Any) -> set[str]:
    """The limits that root may set there: a container gets only what its computer lets it."""
    return {name for name, (flag, value) in LIMITS.items() if host.run(f"bash -c 'ulimit -{flag} {value}'").rc == 0}


def test_exactly_the_limits_that_can_be_set_are_written(host: t.Any) -> None:
    """One that cannot would keep users from logging in."""
    text = host.file("/etc/security/limits.d/90-mofed.conf")
    lines = text.content_string.splitlines() if text.exists else []
    assert {tuple(line.split()) for line in lines if not line.startswith("#")} == {
        (who, kind, name, LIMITS[name][1])
        for name in settable(host)
        for who in ("*", "root")
        for kind in ("soft", "hard")
    }


def test_a_login_session_gets_the_limits(host: t.Any) -> None:
    done = host.run("su --login nobody --shell /bin/bash --command 'ulimit -n'")
    assert done.rc == 0, done.stderr
    assert (done.stdout.strip() == LIMITS["nofile"][1]) == ("nofile" in settable(host))


def test_a_service_gets_the_limits(host: t.Any) -> None:
    done = host.run("systemd-run --quiet --wait --pipe --collect bash -c 'ulimit -n'")
    assert done.rc == 0, done.stderr
    assert (done.stdout.strip() == LIMITS["nofile"][1]) == ("nofile" in settable(host))


def test_rules_keep_the_distribution_s_own(host: t.Any) -> None:
    ours = host.file("/etc/udev/rules.d/60-rdma-persistent-naming.rules").content_string
    packaged = host.file("/usr/lib/udev/rules.d/60-rdma-persistent-naming.rules").content_string
    rules = [line for line in packaged.splitlines() if line.strip() and not line.startswith("#")]
    assert rules
    assert [line for line in rules if line not in ours.splitlines()] == []
