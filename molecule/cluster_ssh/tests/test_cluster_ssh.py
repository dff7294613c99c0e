# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cluster_ssh leaves on a node."""

from __future__ import annotations

import typing as t

KEY = "/root/.ssh/id_ed25519_gpu_cluster"


def is_first(host: t.Any) -> bool:
    return bool(host.backend.get_hostname() == "gpu-1")


def test_only_the_first_node_holds_the_key(host: t.Any) -> None:
    assert host.file(KEY).exists == is_first(host)
    if is_first(host):
        assert host.file(KEY).mode == 0o600


def test_every_node_lets_the_key_in_and_knows_the_others(host: t.Any) -> None:
    assert host.file("/root/.ssh/authorized_keys").content_string.count("restrict,pty ssh-ed25519 ") == 1
    known = host.file("/root/.ssh/known_hosts").content_string
    assert all(name in known for name in ("gpu-1,", "gpu-2,"))


def test_only_the_first_node_logs_in_by_name(host: t.Any) -> None:
    other = "gpu-2" if is_first(host) else "gpu-1"
    # Testinfra takes 255 for a failure of its own connection.
    done = host.run(f"ssh -o BatchMode=yes -o StrictHostKeyChecking=yes {other} hostname || exit 1")
    if is_first(host):
        assert done.stdout.strip() == other, done.stderr
    else:
        assert "Permission denied" in done.stderr, "without the key, but with the host's own one known"
