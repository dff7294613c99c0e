# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Write what was planned into a user's ``~/.ssh``, and make the cluster's key."""

from __future__ import annotations

import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import Plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host


def make_key(home: SshHome, host: Host) -> None:
    """Make a new key pair beside the old one and put it in place, the public half first.

    A run that dies between the two leaves the private half beside its place, by which the next one knows
    (:func:`read.made_in_part`). The other way round nothing would tell that the key was made by us.
    """
    home.make()
    fresh = home.key_path + ".new"
    for path in (fresh, fresh + ".pub"):
        home.write(path, None, 0)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", home.key_comment, "-f", fresh]
    rc, _out, err = host.run_command(argv)
    if rc != 0:
        raise ClusterError("keygen_failed", f"ssh-keygen failed: {err.strip()}", "Install the OpenSSH client.")
    for suffix in (".pub", ""):
        os.chown(fresh + suffix, home.uid, home.gid)
        os.replace(fresh + suffix, home.key_path + suffix)


def carry_out(plan: Plan, home: SshHome) -> None:
    """Write and remove every file of the plan, each at once."""
    for file in plan.writes:
        if file.content is not None:
            home.make()
        home.write(file.path, file.content, file.mode)
    if plan.leaves:
        home.leave()


__all__ = ["carry_out", "make_key"]
