# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a node's container runtimes are: their packages, settings, and what of them runs. Changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import stat
import tempfile
import typing as t
from pathlib import Path, PurePosixPath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import containerd, settings, unread
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import (
    DOCKER,
    Access,
    Dump,
    Facts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.plan import (
    configures_docker,
    enroot_directories,
    own_files,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.apt import Apt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.dnf import Dnf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import last_lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import UNIT_DIRECTORIES, is_active

#: How long a container may take that lists the GPUs, in seconds.
_CONTAINER_S = 120
_TIMED_OUT = 124  # timeout(1)


def has_unit(name: str) -> bool:
    """Whether systemd would find this unit."""
    return any(os.path.exists(f"{directory}{name}") for directory in UNIT_DIRECTORIES)


def read_facts(request: Request, host: Host, manager: Apt | Dnf) -> Facts:
    """The node, as its files and its package system tell it."""
    facts = Facts(
        manager="dpkg" if isinstance(manager, Apt) else "rpm",
        machine=platform.machine(),
        docker=bool(host.get_bin_path("dockerd")) or has_unit(DOCKER),
        packages=manager.installed(),
        texts={},
        modes=_read_modes(entry["path"] for entry in enroot_directories(request)),
        unread=unread.read(host),
    )
    return with_settings(request, facts)


def with_settings(request: Request, facts: Facts) -> Facts:
    """The same node with its settings files as they are now. What the request has nothing to do with is not read."""
    texts = _read_texts(_concerned(request, facts))
    imported = _read_imported(texts.get(settings.CONTAINERD, "")) if request.containerd else ()
    access = _read_access([*texts, *(path for path, _text in imported)])
    return dataclasses.replace(facts, texts=texts, imported=imported, access=access)


def _concerned(request: Request, facts: Facts) -> tuple[str, ...]:
    """The files that the request reads. A removal takes every file that is ours, whatever the options say."""
    if request.state == "absent":
        return (settings.DAEMON_JSON, *filter(os.path.isfile, own_files()))
    wanted = {
        settings.DAEMON_JSON: configures_docker(request, facts),
        settings.CONTAINERD: request.containerd,
        settings.CONTAINERD_PART: request.containerd,
        settings.ENROOT_CONF: request.enroot,
        settings.ENROOT_MOUNTS: request.enroot,
        settings.PYXIS: request.pyxis,
    }
    return tuple(path for path, concerned in wanted.items() if concerned)


def _read_modes(paths: t.Iterable[str]) -> dict[str, int]:
    return {path: stat.S_IMODE(os.stat(path).st_mode) for path in paths if os.path.isdir(path)}


def _read_access(paths: t.Iterable[str]) -> dict[str, Access]:
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.stat(path)
            found[path] = Access(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    return found


def _read_texts(paths: t.Iterable[str]) -> dict[str, str]:
    """Those of these settings files that are there, by path."""
    found = {path: _read_text(path) for path in paths}
    return {path: text for path, text in found.items() if text is not None}


def _read_text(path: str) -> str | None:
    """A file with its line ends and what is not UTF-8 (surrogateescape); None where nothing is.

    A link is followed, as the daemons do it. Raises ClusterError (``in_the_way``) for what is no file and for what cannot be
    read: a pipe would keep its reader waiting, and a device may act when it is opened.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _in_the_way(path, "is a directory" if os.path.isdir(path) else "is a pipe, a socket or a device")
        # Even if it has just become one.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise _in_the_way(path, f"cannot be read: {exc.strerror}") from exc


def _in_the_way(path: str, why: str) -> ClusterError:
    return ClusterError(
        "in_the_way",
        f"{path} should be a file with settings, but {why}.",
        f"Look at it with `ls -lL {path}`, then move it away or put a file in its place.",
    )


def _read_imported(config: str) -> tuple[containerd.File, ...]:
    """What containerd reads after this ``config.toml``, once that imports our part: what it imports, then what these import."""
    found: dict[str, str] = {}
    pending = _expand(containerd.config_text(config), settings.CONTAINERD)
    while pending:
        path = pending.pop(0)
        if path in found or path == settings.CONTAINERD:
            continue
        text = _read_text(path)
        if text is not None or path == settings.CONTAINERD_PART:
            found[path] = text or ""
            pending += _expand(found[path], path)
    return tuple(found.items())


def _expand(text: str, parent: str) -> list[str]:
    """The paths that a file imports, in the order in which containerd reads them."""
    paths: list[str] = []
    for item in containerd.import_items(text, parent):
        pattern = os.path.normpath(os.path.join(os.path.dirname(parent), item))
        if "*" not in pattern:
            paths.append(pattern)
            continue
        there = set(map(str, Path("/").glob(pattern.lstrip("/"))))
        if PurePosixPath(settings.CONTAINERD_PART).match(pattern):
            there.add(settings.CONTAINERD_PART)
        paths += sorted(there)
    return paths


def running_containers(host: Host) -> list[str] | None:
    """The containers that Docker runs now; None where it does not say."""
    if not host.get_bin_path("docker"):
        return None
    rc, out, _err = host.run_command(["docker", "ps", "--quiet"])
    return out.split() if rc == 0 else None


def default_runtime(host: Host) -> str:
    """What the Docker that runs starts containers with; empty where it cannot be asked.

    That is not what its file says until it has read it again.
    """
    if not host.get_bin_path("docker") or not is_active(host, DOCKER):
        return ""
    rc, out, _err = host.run_command(["docker", "info", "--format", "{{.DefaultRuntime}}"])
    return out.strip() if rc == 0 else ""


def gpus_in_container(host: Host, image: str) -> str:
    """Start a container of an image that is here, with all GPUs; returns why it does not see those of the node, or nothing.

    Nothing is fetched, and the container has no network.
    """
    if not host.get_bin_path("docker"):
        return "there is no docker"
    options = ["--rm", "--pull", "never", "--network", "none", "--gpus", "all"]
    # A driver that hangs would keep it for ever.
    limit = ["timeout", "--kill-after=10", str(_CONTAINER_S)]
    rc, out, err = host.run_command([*limit, "docker", "run", *options, image, "nvidia-smi", "-L"])
    if rc == _TIMED_OUT:
        return f"it did not end within {_CONTAINER_S} s"
    seen = _gpus(out)
    if rc or not seen:
        return last_lines(err or out, 2) or f"`docker run` ended with {rc}"
    there: set[str] = set()
    if host.get_bin_path("nvidia-smi"):
        there = _gpus(host.run_command(["nvidia-smi", "-L"])[1])
    lacking = sorted(there - seen)
    return f"it does not see {'; '.join(lacking)}" if lacking else ""


def _gpus(listed: str) -> set[str]:
    """The GPUs, each as `nvidia-smi -L` has it: its number, model and UUID. MIG instances stand below theirs."""
    return {line.strip() for line in listed.splitlines() if line.startswith("GPU ")}


def docker_refusal(host: Host, text: str) -> str:
    """Why Docker would not start with this ``daemon.json``; empty where it would, or does not say, as before 23.0 (moby#42393).

    What contradicts the words with which its unit starts it, such as `hosts`, it does not say either.
    """
    program = host.get_bin_path("dockerd")
    if not program:
        return ""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        rc, out, err = host.run_command([program, "--validate", "--config-file", file.name])
        said = last_lines(err or out, 1).replace(file.name, settings.DAEMON_JSON)
    return "" if rc == 0 or "unknown flag" in f"{out}{err}" else said


def docker_last_words(host: Host) -> str:
    """Why Docker did not start the last time; empty where its journal does not tell. `systemctl status` may be of the next try already."""
    argv = ["journalctl", "--unit", DOCKER, "--lines", "40", "--output", "cat", "--no-pager"]
    _rc, out, _err = host.run_command(argv)
    said = [line for line in out.splitlines() if line.startswith(("unable to ", "failed to start daemon"))]
    return said[-1].rstrip(".") if said else ""


def read_dump(host: Host) -> Dump:
    """The settings that containerd itself makes of its files. It need not run, and nothing is started."""
    program = host.get_bin_path("containerd")
    if not program:
        return Dump()
    rc, out, err = host.run_command([program, "--config", settings.CONTAINERD, "config", "dump"])
    # Of its last two lines containerd 2 names the file in one, and containerd 1 needs only the other.
    return Dump(text=out) if rc == 0 else Dump(refused=last_lines(err or out, 2))


__all__ = [
    "default_runtime",
    "docker_last_words",
    "docker_refusal",
    "gpus_in_container",
    "has_unit",
    "read_dump",
    "read_facts",
    "running_containers",
    "with_settings",
]
