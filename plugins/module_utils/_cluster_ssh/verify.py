# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Prove the trust by logging in, and see who lacks something before that."""

from __future__ import annotations

import os
import pwd
import subprocess
import typing as t
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.home import SshHome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.plan import outdated, surplus_keys
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.request import CheckRequest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# What ssh prints (OpenSSH 8 to 10), and what it means for a person. The first match counts.
_FAILURES = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is not the one in known_hosts"),
    ("Host key verification failed", "its host key is not in known_hosts"),
    ("Permission denied", "it does not accept the cluster's key"),
    ("Could not resolve hostname", "its name cannot be resolved"),
    ("Connection refused", "nothing listens on its ssh port"),
    ("No route to host", "there is no route to it"),
    ("timed out", "it did not answer in time"),
    ("Connection closed", "it closed the connection"),
    ("Connection reset", "it reset the connection"),
)


def why(stderr: str, rc: int) -> str:
    """Why a login failed, in words."""
    for needle, meaning in _FAILURES:
        if needle in stderr:
            return meaning
    last = stderr.strip().splitlines()[-1:] or [f"ssh exited with {rc}"]
    return last[0][:200]


def login_argv(host: str, user: str, port: int, timeout_s: int) -> list[str]:
    """The command that logs in to one node; as another user it goes through runuser."""
    prefix = [] if pwd.getpwuid(os.geteuid()).pw_name == user else ["runuser", "-u", user, "--"]
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(timeout_s),
        "StrictHostKeyChecking": "yes",
        "ControlPath": "none",
        "LogLevel": "ERROR",
    }
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return [*prefix, "ssh", "-n", "-p", str(port), *flags, "--", host, "true"]


def login(host: str, user: str, port: int, timeout_s: int) -> str:
    """Log in once; returns why that failed, or an empty string."""
    argv = login_argv(host, user, port, timeout_s)
    environment = {**os.environ, "LC_ALL": "C", "SSH_AUTH_SOCK": ""}
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s + 5,
            env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it did not answer in time"
    except FileNotFoundError as exc:
        return f"{exc.filename} is not installed on this node"
    return why(done.stderr, done.returncode) if done.returncode else ""


def lacking(request: CheckRequest, home: SshHome, warn: t.Callable[[str], None]) -> list[str]:
    """The nodes that lack something or hold a revoked key; keys that are not ours to take away are warned of."""
    nodes, others = request.nodes or (), request.others
    copies, theirs = ([], []) if request.key_on_all else surplus_keys(nodes, others)
    if copies:
        warn(
            f"Not only the first node holds the cluster's private key ({home.key_path}), but {', '.join(copies)}, too. Run "
            "once with `renew_key: true`, which revokes and removes the copies, or let all nodes hold it (`key_on_all`), as "
            "homes that nodes share need."
        )
    if theirs:
        warn(
            f"{home.key_path} on {', '.join(theirs)} is neither the cluster's key nor one that cluster_ssh made, so it "
            "stays there. Move it and its .pub away, or set another `cluster`."
        )
    known = home.lines("known_hosts")
    return outdated(nodes, others, known, home.key_path, request.lines, key_on_all=request.key_on_all)


def log_in(request: CheckRequest, home: SshHome) -> dict[str, t.Any]:
    """Log in everywhere; fails with all that went wrong."""
    here, hosts = os.uname().nodename, request.hosts
    if hosts and not os.path.exists(home.key_path):
        raise ClusterError(
            "no_key",
            f"{here} does not hold the cluster's key ({home.key_path}), so it cannot log in to the others.",
            "If another node holds it, list that one first in `hosts` and run with it in the limit. If the key is "
            "lost, run once with `renew_key: true` and all nodes in the limit: this node makes a new one.",
        )
    with ThreadPoolExecutor(max_workers=max(1, min(request.parallel, len(hosts)))) as pool:
        reasons = pool.map(lambda host: login(host, request.user, request.lines.port, request.timeout_s), hosts)
        failures = [{"host": host, "reason": reason} for host, reason in zip(hosts, reasons) if reason]
    reached = len(hosts) - len(failures)
    if failures:
        named = "; ".join(f"{item['host']}: {item['reason']}" for item in failures)
        raise ClusterError(
            "login_failed",
            f"From {here} no login to {len(failures)} node(s) (to {reached} it works): {named}.",
            "Run the role cluster_ssh on these nodes and on this one.",
            reached=reached,
            failures=failures,
        )
    return {"changed": False, "reached": reached, "failures": []}


__all__ = ["lacking", "log_in", "login", "login_argv", "why"]
