# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Where the settings of all runtimes lie, and what Docker's, enroot's and Slurm's become, as texts."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

MANAGED = "# Managed by the role hpcai.gpu_cluster.container_runtime. Changes here are overwritten."
DAEMON_JSON = "/etc/docker/daemon.json"
CONTAINERD, CONTAINERD_PART = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"
CONTAINERD_PARTS = "/etc/containerd/conf.d"
ENROOT_CONF, ENROOT_MOUNTS = "/etc/enroot/enroot.conf", "/etc/enroot/mounts.d/50-scratch.fstab"
PYXIS = "/etc/slurm/plugstack.conf.d/pyxis.conf"
# Docker's reference of dockerd, "Configuration reload behavior": these need no restart, which would stop containers.
_RELOADABLE = frozenset({"runtimes", "default-runtime"})


def _merged(one: t.Mapping[str, t.Any], two: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    both = dict(one)
    for key, value in two.items():
        deep = isinstance(value, t.Mapping) and isinstance(both.get(key), t.Mapping)
        both[key] = _merged(both[key], value) if deep else value
    return both


def parse_daemon(text: str) -> dict[str, t.Any]:
    """Docker's settings; a file that Docker itself would refuse is not touched."""
    try:
        # What is not UTF-8 would be written back as another text.
        text.encode("utf-8")
        # Docker skips a byte order mark since 23.0 (moby#44777).
        plain = text[1:] if text.startswith("\ufeff") else text
        settings = json.loads(plain) if plain.strip() else {}
    except (ValueError, RecursionError) as exc:
        raise ClusterError(
            "bad_daemon_json", f"{DAEMON_JSON} is not JSON in UTF-8: {exc}.", "Correct or remove it."
        ) from exc
    if not isinstance(settings, dict):
        raise ClusterError("bad_daemon_json", f"{DAEMON_JSON} is not a JSON object.", "Correct or remove it.")
    if not isinstance(settings.get("runtimes", {}), dict):
        raise ClusterError(
            "bad_daemon_json", f"`runtimes` in {DAEMON_JSON} is not a JSON object.", "Correct or remove it."
        )
    return settings


def daemon_settings(have: t.Mapping[str, t.Any], request: Request) -> dict[str, t.Any]:
    """Docker's settings with ours merged in; what others set stays."""
    ours: dict[str, t.Any] = {}
    if request.toolkit:
        ours["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
        if request.docker_default_runtime:
            ours["default-runtime"] = "nvidia"
    if request.docker_data_root:
        ours["data-root"] = request.docker_data_root
    return _merged(_merged(have, ours), request.docker_settings)


def without_ours(have: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Docker's settings without the NVIDIA runtime. A data-root stays: the images lie there."""
    left = dict(have)
    if left.get("default-runtime") == "nvidia":
        # Where none is named, a Docker that reads its settings again keeps ours, and 20.10 ends if `runtimes` no longer has it.
        left["default-runtime"] = "runc"
    runtimes = {name: value for name, value in left.get("runtimes", {}).items() if name != "nvidia"}
    if runtimes:
        left["runtimes"] = runtimes
    else:
        left.pop("runtimes", None)
    return left


def daemon_text(settings: t.Mapping[str, t.Any]) -> str:
    """The file, as people write it."""
    return json.dumps(settings, indent=4) + "\n"


def needs_restart(have: t.Mapping[str, t.Any], want: t.Mapping[str, t.Any]) -> bool:
    """Whether Docker has to be restarted, or a reload will do."""
    changed = {key for key in {*have, *want} if have.get(key) != want.get(key)}
    return bool(changed - _RELOADABLE)


def others_of_enroot(conf: str) -> str:
    """What is in ``enroot.conf`` besides ours: the package's remarks, and what a site has set."""
    ours = {"ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_TEMP_PATH", "ENROOT_RUNTIME_PATH"}
    lines = [line for line in conf.split("\n") if line != MANAGED and re.split(r"[\s=]", line.strip())[0] not in ours]
    return "\n".join(lines).strip("\n")


def enroot_files(request: Request, conf: str = "") -> list[dict[str, t.Any]]:
    """enroot's settings on scratch, and the bind mount of scratch into every container. ``conf``: its settings as they are."""
    files = []
    directory = request.enroot_directory
    if directory:
        lines = [
            MANAGED,
            f"ENROOT_CACHE_PATH {directory}/cache/user-$(id -u)",
            f"ENROOT_DATA_PATH {directory}/data/user-$(id -u)",
            f"ENROOT_TEMP_PATH {directory}/temporary",
            "ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)",
        ]
        others = others_of_enroot(conf)
        lines += ["", others] if others else []
        files.append({"path": ENROOT_CONF, "content": "\n".join([*lines, ""])})
    if request.scratch:
        line = f"{request.scratch} {request.scratch_target} none x-create=dir,bind,rw,nosuid 0 0"
        files.append({"path": ENROOT_MOUNTS, "content": f"{MANAGED}\n{line}\n"})
    return files


def pyxis_file(request: Request) -> dict[str, t.Any]:
    """How Slurm loads pyxis."""
    return {"path": PYXIS, "content": f"{MANAGED}\nrequired {request.pyxis_library}\n"}


__all__ = [
    "CONTAINERD",
    "CONTAINERD_PART",
    "CONTAINERD_PARTS",
    "DAEMON_JSON",
    "ENROOT_CONF",
    "ENROOT_MOUNTS",
    "MANAGED",
    "PYXIS",
    "daemon_settings",
    "daemon_text",
    "enroot_files",
    "needs_restart",
    "others_of_enroot",
    "parse_daemon",
    "pyxis_file",
    "without_ours",
]
