# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The management service of version 8: other options, a database file made by --init, and an early detachment.

It detaches before it opens its database, its authentication file and its ports, so that whoever starts it cannot see those
failures; they are in the journal.
"""

from __future__ import annotations

import json
import socket
import sys
import typing as t
from pathlib import Path

import configuration
import daemon
import registry
import settings

JOURNAL = "/run/systemd/journal/socket"
SWITCHES = {"init", "daemonize", "tls-disable", "auth-disable", "license-disable", "ipv6-disable", "quota-enable"}


def read(arguments: t.Sequence[str]) -> dict[str, str]:
    """Options "--name value", "--name=value", and "--name" alone for switches; above those of the file."""
    given: dict[str, str] = {}
    rest = list(arguments)
    names = json.loads(Path(__file__).with_name("keys.json").read_text(encoding="utf-8"))["8"]["beegfs-mgmtd"].split()
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        name = name.removeprefix("--")
        if name not in names:
            raise configuration.InvalidError(f"unexpected argument '--{name}' found")
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        elif not equals and name in SWITCHES:
            value = "true"
        given[name] = value
    path = given.get("config-file") or "/etc/beegfs/beegfs-mgmtd.toml"
    values = configuration.parse(path) if "config-file" in given or Path(path).is_file() else {}
    for name in values:
        if name not in names:
            raise configuration.InvalidError(f"Parsing config file {path} failed: unknown field `{name}`")
    return {**values, **given}


def initialize(path: Path) -> int:
    """Make the database file; one that is there is an error, and stays."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            json.dump(registry.empty(), stream)
    except OSError as exc:
        text = f"{exc.strerror} (os error {exc.errno})"
        print(f'Initializing database failed: Creating database file "{path}" failed: {text}', file=sys.stderr)
        return 1
    print(f'Created new database version 5 at "{path}".')
    return 0


def journal(priority: int, message: str) -> None:
    """A line of the journal; nothing where there is none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            text = f"MESSAGE={message}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=beegfs-mgmtd\n"
            link.sendto(text.encode(), JOURNAL)
    except OSError:
        return


def main(arguments: t.Sequence[str]) -> int:
    try:
        values = read(arguments)
    except configuration.InvalidError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    database = Path(values.get("db-file") or "/var/lib/beegfs/mgmtd.sqlite")
    if values.get("init") == "true":
        return initialize(database)
    held: list[t.Any] = []
    if values.get("daemonize") == "true":
        pid_file = Path(values.get("daemonize-pid-file") or "/run/beegfs-mgmtd.pid")
        try:
            held.append(daemon.lock(pid_file))
        except configuration.InvalidError:
            print("Daemonization failed: unable to lock pid file", file=sys.stderr)
            return 1
        daemon.detach(str(pid_file), "beegfs-mgmtd")
    return run(values, database, held)


def run(values: t.Mapping[str, str], database: Path, held: list[t.Any]) -> int:
    if "beegfs-mgmtd" in settings.load()["dead"]:
        return 1
    shift = int(values.get("port-shift") or 0)
    ports = int(values.get("beemsg-port") or 8008) + shift, int(values.get("grpc-port") or 8010) + shift
    try:
        if not database.is_file():
            raise configuration.InvalidError(f'No accessible database file found at "{database}"')
        disabled = values.get("auth-disable", "false") == "true"
        given = {"connAuthFile": values.get("auth-file") or "/etc/beegfs/conn.auth"}
        secret = "" if disabled else configuration.secret(given)
        if values.get("tls-disable", "false") != "true":
            for name in ("tls-cert-file", "tls-key-file"):
                Path(values.get(name) or f"/etc/beegfs/{name[4:-5]}.pem").read_bytes()
        held.append(daemon.bind(socket.SOCK_DGRAM, ports[0]))
        listeners = [daemon.bind(socket.SOCK_STREAM, port) for port in ports]
    except (configuration.InvalidError, OSError) as exc:
        journal(3, str(exc))
        print(exc, file=sys.stderr)
        return 1
    known = registry.Registry(database.parent, secret)
    return daemon.stay("beegfs-mgmtd", listeners, known, lambda level, message: journal(6, message))
