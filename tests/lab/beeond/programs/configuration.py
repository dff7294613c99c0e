# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the services and the client read their configuration: files, arguments, unknown names, authentication."""

from __future__ import annotations

import hashlib
import json
import typing as t
from pathlib import Path

import settings

DIRECTORY = Path("/etc/beegfs")
PORTS = {"beegfs-mgmtd": 8008, "beegfs-meta": 8005, "beegfs-storage": 8003, "beegfs-helperd": 8006}
GRPC_PORT = 8010
NO_AUTHENTICATION = (
    "No connAuthFile configured. Using BeeGFS without connection authentication is considered insecure and is not "
    "recommended. If you really want or need to run BeeGFS without connection authentication, please set "
    "connDisableAuthentication to true."
)


class InvalidError(Exception):
    """The configuration is wrong; the message is the one that the service prints."""


def read(service: str, given: t.Mapping[str, str]) -> dict[str, str]:
    """The values of the file (cfgFile, else the service's own below /etc/beegfs, where there is one), then of GIVEN."""
    default = DIRECTORY / f"{service}.conf"
    name = given.get("cfgFile") or (str(default) if default.is_file() else "")
    values = {**(parse(name) if name else {}), **given}
    names = json.loads(Path(__file__).with_name("keys.json").read_text(encoding="utf-8"))[str(settings.major())]
    known = set(f"{names['common']} {names[service]}".split()) | {"sysMgmtdHost"}
    for key in values:
        if key not in known:
            raise InvalidError(f"The config argument '{key}' is invalid")
    return values


def parse(name: str, comment: str = "#") -> dict[str, str]:
    """Lines "name = value" of a file of version 7's form, or of the part of TOML that a management daemon's file has."""
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as exc:
        raise InvalidError(f"Could not open config file: {name} ({exc.strerror})") from exc
    values = {}
    for line in text.splitlines():
        line = line.strip()
        if line and not line.startswith((comment, "[")):
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip().strip('"')
    return values


def port(values: t.Mapping[str, str], service: str) -> int:
    """The TCP port with the shift. Version 8 has one name for the ports of TCP and UDP."""
    short = f"conn{service.partition('-')[2].capitalize()}Port"
    chosen = values.get(f"{short}TCP") or values.get(short) or PORTS[service]
    return int(chosen) + int(values.get("connPortShift") or 0)


def secret(values: t.Mapping[str, str]) -> str:
    """A hash of the authentication file; empty: none is wanted.

    Version 7 prefers a file to connDisableAuthentication, version 8 the other way around.
    """
    name, disabled = values.get("connAuthFile", ""), values.get("connDisableAuthentication", "false") == "true"
    if disabled and (settings.major() > 7 or not name):
        return ""
    if not name:
        raise InvalidError(NO_AUTHENTICATION)
    try:
        content = Path(name).read_bytes()
    except OSError as exc:
        raise InvalidError(f"Unable to open auth file: {name} (SysErr: {exc.strerror})") from exc
    if len(content) < 4:
        raise InvalidError(f"Auth file is empty: {name}")
    return hashlib.sha256(content).hexdigest()


def check_interfaces(values: t.Mapping[str, str]) -> None:
    """At least one of the interfaces that connInterfacesFile names must be there."""
    name = values.get("connInterfacesFile", "")
    if not name:
        return
    try:
        lines = Path(name).read_text(encoding="utf-8").split("\n")
    except OSError as exc:
        raise InvalidError(f"Unable to open configured interfaces file: {name} (SysErr: {exc.strerror})") from exc
    wanted = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if wanted and not any(Path("/sys/class/net", one).exists() for one in wanted):
        raise InvalidError("Couldn't find any usable NIC")
