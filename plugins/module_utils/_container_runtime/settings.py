# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What Docker's, containerd's, enroot's and Slurm's settings become, as texts."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import PurePosixPath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import cri
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
# The plugin that starts Kubernetes' containers, by the version of config.toml (containerd, docs/PLUGINS.md and docs/cri/config.md).
_CRI_PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}


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
        settings = json.loads(text) if text.strip() else {}
    except ValueError as exc:
        raise ClusterError(
            "bad_daemon_json", f"{DAEMON_JSON} is not JSON in UTF-8: {exc}.", "Correct or remove it."
        ) from exc
    if not isinstance(settings, dict):
        raise ClusterError("bad_daemon_json", f"{DAEMON_JSON} is not a JSON object.", "Correct or remove it.")
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
        del left["default-runtime"]
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


def containerd_part(config: str, others: t.Sequence[str] = ()) -> str:
    """What containerd imports: the NVIDIA runtime, as the default one, in the version of the ``config.toml`` that imports it.

    containerd 2 refuses a part that is newer than the file, and an older containerd reads all of it in the part's version.
    ``others`` are further files that it imports, in their order: what they set for the plugin is carried over.
    """
    version = _config_version(config)
    plugin = _CRI_PLUGINS[version]
    # containerd 2 merges what is imported, and would keep what is deleted elsewhere.
    whole = version < max(_CRI_PLUGINS)
    there = cri.effective(config, others, plugin) if whole else []
    lines = cri.text_of(cri.with_nvidia(there, plugin, whole=whole))
    return "\n".join([MANAGED, f"version = {version}", *lines, ""])


def _config_version(config: str) -> int:
    """The version of a ``config.toml``, which is 1 where none is named; at most the newest that is known here."""
    head = re.split(r"^\s*\[", config, maxsplit=1, flags=re.M)[0]
    found = re.search(r"^\s*version\s*=\s*(\d+)", head, re.M)
    return min(max(int(found.group(1)), 1), max(_CRI_PLUGINS)) if found else 1


def containerd_config(text: str) -> str:
    """containerd's own file, which must import our part; everything else in it stays.

    ``imports`` is a key of the root table, so it has to come before the first table (containerd-config.toml(5)).
    """
    pattern = f'"{CONTAINERD_PART.rpartition("/")[0]}/*.toml"'
    head, bracket, rest = text.partition("\n[") if not text.startswith("[") else ("", "[", text[1:])
    found = re.search(r"^imports\s*=\s*\[([^\]]*)\]", head, re.M)
    if found and _imports_ours(found.group(1)):
        return text
    if found:
        items = [found.group(1).strip().rstrip(",")] if found.group(1).strip() else []
        line = f"imports = [{', '.join([*items, pattern])}]"
        return head[: found.start()] + line + head[found.end() :] + bracket + rest
    if not text.strip():
        return f"version = 2\nimports = [{pattern}]\n"
    if bracket == "[":
        return f"imports = [{pattern}]\n\n[{rest}"
    return (
        f"{head.rstrip()}\nimports = [{pattern}]\n{bracket}{rest}"
        if bracket
        else f"{head.rstrip()}\nimports = [{pattern}]\n"
    )


def _imports_ours(items: str) -> bool:
    """Whether one of these items of ``imports`` leads to our part. They may be patterns."""
    # containerd 1 takes a relative pattern from where it runs; a part that is imported twice is read once.
    absolute = re.findall(r"""["'](/[^"']*)["']""", items)
    return any(PurePosixPath(CONTAINERD_PART).match(item) for item in absolute)


def enroot_files(request: Request) -> list[dict[str, t.Any]]:
    """enroot's settings on scratch, and the bind mount of scratch into every container."""
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
    "containerd_config",
    "containerd_part",
    "daemon_settings",
    "daemon_text",
    "enroot_files",
    "needs_restart",
    "parse_daemon",
    "pyxis_file",
    "without_ours",
]
