# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What mofed leaves on a node, with the distribution's packages."""

from __future__ import annotations

import typing as t


def test_the_tools_are_there(host: t.Any) -> None:
    for tool in ("ibv_devinfo", "ib_write_bw", "ibstat", "rdma"):
        assert host.exists(tool), tool


def test_settings_are_written_but_the_host_s_kernel_is_left_alone(host: t.Any) -> None:
    written = host.file("/etc/sysctl.d/90-mofed.conf")
    assert "-net.ipv4.neigh.default.gc_thresh3 = 16384" in written.content_string.splitlines()
    assert written.mode == 0o644


def test_a_limit_that_is_written_can_be_set(host: t.Any) -> None:
    """One that cannot would keep users from logging in."""
    text = host.file("/etc/security/limits.d/90-mofed.conf")
    lines = (
        [line.split() for line in text.content_string.splitlines() if not line.startswith("#")] if text.exists else []
    )
    flags = {"memlock": "l", "nofile": "n", "stack": "s"}
    for who, kind, name, value in lines:
        assert who in ("*", "root")
        assert kind in ("soft", "hard")
        assert host.run(f"bash -c 'ulimit -{flags[name]} {value}'").rc == 0


def test_a_login_session_gets_the_limits(host: t.Any) -> None:
    done = host.run("su --login nobody --shell /bin/bash --command 'ulimit -n'")
    assert done.rc == 0, done.stderr
    text = host.file("/etc/security/limits.d/90-mofed.conf")
    if text.exists and "nofile" in text.content_string:
        assert done.stdout.strip() == "1048576"


def test_rules_keep_the_distribution_s_own(host: t.Any) -> None:
    ours = host.file("/etc/udev/rules.d/60-rdma-persistent-naming.rules").content_string
    packaged = host.file("/usr/lib/udev/rules.d/60-rdma-persistent-naming.rules").content_string
    rules = [line for line in packaged.splitlines() if line.strip() and not line.startswith("#")]
    assert rules
    assert [line for line in rules if line not in ours.splitlines()] == []
