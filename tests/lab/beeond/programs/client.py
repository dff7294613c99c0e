# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client: the kernel module's loading and building, and mount.beegfs, which "mount -t beegfs" runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import configuration
import registry
import settings

LOG = settings.PLACE / "kernel.log"
LOADED = settings.PLACE / "module"


def modprobe() -> int:
    """As "modprobe beegfs"; the module stays loaded until the settings take it away."""
    module = settings.load()["module"]
    if module == "loadable" or (module == "buildable" and LOADED.exists()):
        return 0
    print("modprobe: FATAL: Module beegfs not found in directory /lib/modules/" + os.uname().release, file=sys.stderr)
    return 1


def service(arguments: t.Sequence[str]) -> int:
    """/etc/init.d/beegfs-client rebuild: build the module for the running kernel."""
    if list(arguments) != ["rebuild"]:
        print("Usage: /etc/init.d/beegfs-client {rebuild}", file=sys.stderr)
        return 1
    print("- BeeGFS module autobuild")
    settings.hang_if_asked("rebuild")
    if settings.load()["module"] == "missing":
        print("Module could not be built: no headers of the running kernel", file=sys.stderr)
        return 1
    LOADED.touch()
    return 0


def mount(arguments: t.Sequence[str]) -> int:
    """mount.beegfs SOURCE PLACE [-o OPTIONS]: 32 where the kernel's mount would fail, with mount's own sentence."""
    source, place = arguments[0], arguments[1]
    words = [arguments[index + 1] for index, word in enumerate(arguments[:-1]) if word == "-o"]
    pairs = dict(word.partition("=")[::2] for word in ",".join(words).split(",") if word)
    given = {key: value for key, value in pairs.items() if value}
    settings.hang_if_asked("mount")
    if modprobe():
        print(f"mount: {place}: unknown filesystem type 'beegfs'.", file=sys.stderr)
        return 32
    try:
        filesystem = check(given)
    except configuration.InvalidError as exc:
        settings.PLACE.mkdir(parents=True, exist_ok=True)
        with LOG.open("a", encoding="utf-8") as stream:
            stream.write(f"beegfs: mount({os.getpid()}): {exc}\n")
        text = f"wrong fs type, bad option, bad superblock on {source}, missing codepage or helper program, or other error."
        print(f"mount: {place}: {text}", file=sys.stderr)
        return 32
    return attach(source, place, filesystem)


def check(given: t.Mapping[str, str]) -> str:
    """What the real client checks while it mounts (sysMountSanityCheckMS); the file system's own name."""
    values = configuration.read("beegfs-client", given)
    secret = configuration.secret(values)
    manager = values.get("sysMgmtdHost", "")
    if not manager:
        raise configuration.InvalidError("Management host undefined")
    configuration.check_interfaces(values)
    if settings.major() == 7:
        # The helper daemon is another service, which only has to be there: it closes the connection without a word.
        port = configuration.port(values, "beegfs-helperd")
        if not listens(settings.load()["address"] or "127.0.0.1", port):
            raise configuration.InvalidError(
                "Communication with user-space helper daemon failed. Is beegfs-helperd running?"
            )
    question = {"do": "list", "secret": secret}
    end = time.monotonic() + int(values.get("sysMountSanityCheckMS") or 11000) / 1000
    port = configuration.port(values, "beegfs-mgmtd")
    answer = registry.ask(manager, port, question)
    while answer is None and time.monotonic() < end:
        time.sleep(0.5)
        answer = registry.ask(manager, port, question)
    if answer is None:
        text = "Waiting for management server initialization timed out. Are the server settings correct?"
        raise configuration.InvalidError(f"{text} Is the management daemon running?")
    for kind, what in (("meta", "root directory entry"), ("storage", "storage server free space info")):
        if not any(row["type"] == kind and row["reachability"] == "Online" for row in answer["states"]):
            raise configuration.InvalidError(
                f"Retrieval of {what} failed. Are all {kind} servers running and registered?"
            )
    return str(answer["filesystem"])


def listens(host: str, port: int) -> bool:
    import socket

    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True


def attach(source: str, place: str, filesystem: str) -> int:
    """A tmpfs under the source's name, or a part of the shared directory."""
    values = settings.load()
    if values["backing"] == "directory":
        part = Path(values["shared_directory"], filesystem)
        part.mkdir(parents=True, exist_ok=True)
        part.chmod(0o777)
        return subprocess.run(["mount", "--bind", str(part), place], check=False).returncode
    return subprocess.run(["mount", "-i", "-t", "tmpfs", "-o", "mode=0777", source, place], check=False).returncode
