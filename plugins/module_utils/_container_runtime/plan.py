# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The pure half of ``container_runtime``: what Docker's, containerd's and enroot's settings become."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository

MANAGED = "# Managed by the role hpcai.gpu_cluster.container_runtime. Changes here are overwritten."
DAEMON_JSON = "/etc/docker/daemon.json"
CONTAINERD, CONTAINERD_PART = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"
ENROOT_CONF, ENROOT_MOUNTS = "/etc/enroot/enroot.conf", "/etc/enroot/mounts.d/50-scratch.fstab"
PYXIS = "/etc/slurm/plugstack.conf.d/pyxis.conf"
# Docker's reference of dockerd, "Configuration reload behavior": these need no restart, which would stop containers.
_RELOADABLE = frozenset({"runtimes", "default-runtime"})
# NVIDIA Container Toolkit installation guide.
_TOOLKIT_URL = "https://nvidia.github.io/libnvidia-container"
_TOOLKIT_KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "verified", "absent"], "default": "present"},
    "phases": {
        "type": "list",
        "elements": "str",
        "choices": ["install", "configure"],
        "default": ["install", "configure"],
    },
    "toolkit": {"type": "bool", "default": True},
    "toolkit_version": {"type": "str", "default": ""},
    "repository_url": {"type": "str", "default": ""},
    "repository_key": {"type": "str", "default": "", "no_log": False},
    "repository_fingerprint": {"type": "str", "default": ""},
    "docker": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "docker_packages": {"type": "list", "elements": "str", "default": []},
    "docker_default_runtime": {"type": "bool", "default": True},
    "docker_data_root": {"type": "str", "default": ""},
    "docker_settings": {"type": "dict", "default": {}},
    "containerd": {"type": "bool", "default": False},
    "enroot": {"type": "bool", "default": False},
    "enroot_packages": {"type": "list", "elements": "str", "default": ["enroot", "enroot+caps"]},
    "enroot_directory": {"type": "str", "default": ""},
    "pyxis": {"type": "bool", "default": False},
    "pyxis_packages": {"type": "list", "elements": "str", "default": ["nvslurm-plugin-pyxis"]},
    "pyxis_library": {"type": "str", "default": "spank_pyxis.so"},
    "scratch": {"type": "str", "default": "/mnt/scratch"},
    "scratch_target": {"type": "str", "default": "/data"},
    "allow_restart": {"type": "bool", "default": False},
}


def repository_for(params: t.Mapping[str, t.Any], manager: str, machine: str) -> Repository:
    """The toolkit's repository: the one that was named, or NVIDIA's."""
    url, key, fingerprint = (
        params["repository_url"].rstrip("/"),
        params["repository_key"],
        params["repository_fingerprint"],
    )
    if not url and params["toolkit"]:
        directory = f"deb/{'arm64' if machine == 'aarch64' else 'amd64'}" if manager == "dpkg" else f"rpm/{machine}"
        url = f"{_TOOLKIT_URL}/stable/{directory}"
        key, fingerprint = key or f"{_TOOLKIT_URL}/gpgkey", fingerprint or _TOOLKIT_KEY
    return Repository(url, key=key, fingerprint=fingerprint, name="nvidia-container-toolkit")


def wanted_roots(params: t.Mapping[str, t.Any]) -> list[Root]:
    """The packages that are wanted by name."""
    roots = [Root(name) for name in params["docker_packages"]]
    if params["toolkit"]:
        names = (
            "nvidia-container-toolkit",
            "nvidia-container-toolkit-base",
            "libnvidia-container-tools",
            "libnvidia-container1",
        )
        # All four are one release, and apt would take the newest of those that are not named.
        roots += [Root(name, params["toolkit_version"]) for name in (names if params["toolkit_version"] else names[:1])]
    if params["enroot"]:
        roots += [Root(name) for name in params["enroot_packages"]]
    if params["pyxis"]:
        roots += [Root(name) for name in params["pyxis_packages"]]
    return roots


def _merged(one: t.Mapping[str, t.Any], two: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    both = dict(one)
    for key, value in two.items():
        deep = isinstance(value, t.Mapping) and isinstance(both.get(key), t.Mapping)
        both[key] = _merged(both[key], value) if deep else value
    return both


def parse_daemon(text: str) -> dict[str, t.Any]:
    """Docker's settings; a file that Docker itself would refuse is not touched."""
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as exc:
        raise ClusterError("bad_daemon_json", f"{DAEMON_JSON} is not JSON: {exc}.", "Correct or remove it.") from exc
    if not isinstance(settings, dict):
        raise ClusterError("bad_daemon_json", f"{DAEMON_JSON} is not a JSON object.", "Correct or remove it.")
    return settings


def daemon_settings(have: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Docker's settings with ours merged in; what others set stays."""
    ours: dict[str, t.Any] = {}
    if params["toolkit"]:
        ours["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
        if params["docker_default_runtime"]:
            ours["default-runtime"] = "nvidia"
    if params["docker_data_root"]:
        ours["data-root"] = params["docker_data_root"]
    return _merged(_merged(have, ours), params["docker_settings"])


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


def containerd_part() -> str:
    """What containerd imports: the NVIDIA runtime, as the default one, under the plugin names of its two config versions."""
    return "\n".join(
        [
            MANAGED,
            "version = 2",
            '[plugins."io.containerd.grpc.v1.cri".containerd]',
            '  default_runtime_name = "nvidia"',
            '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]',
            '    runtime_type = "io.containerd.runc.v2"',
            '    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]',
            '      BinaryName = "/usr/bin/nvidia-container-runtime"',
            "",
        ]
    )


def containerd_config(text: str) -> str:
    """containerd's own file, which must import our part; everything else in it stays.

    ``imports`` is a key of the root table, so it has to come before the first table (containerd-config.toml(5)).
    """
    pattern = f'"{CONTAINERD_PART.rpartition("/")[0]}/*.toml"'
    head, bracket, rest = text.partition("\n[") if not text.startswith("[") else ("", "[", text[1:])
    found = re.search(r"^imports\s*=\s*\[([^\]]*)\]", head, re.M)
    if found and ("conf.d" in found.group(1)):
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


def enroot_files(params: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """enroot's settings on scratch, and the bind mount of scratch into every container."""
    files = []
    directory = params["enroot_directory"]
    if directory:
        lines = [
            MANAGED,
            f"ENROOT_CACHE_PATH {directory}/cache/user-$(id -u)",
            f"ENROOT_DATA_PATH {directory}/data/user-$(id -u)",
            f"ENROOT_TEMP_PATH {directory}/temporary",
            "ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)",
        ]
        files.append({"path": ENROOT_CONF, "content": "\n".join([*lines, ""])})
    if params["scratch"]:
        line = f"{params['scratch']} {params['scratch_target']} none x-create=dir,bind,rw,nosuid 0 0"
        files.append({"path": ENROOT_MOUNTS, "content": f"{MANAGED}\n{line}\n"})
    return files


def pyxis_file(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """How Slurm loads pyxis."""
    return {"path": PYXIS, "content": f"{MANAGED}\nrequired {params['pyxis_library']}\n"}


__all__ = [
    "ARGUMENT_SPEC",
    "CONTAINERD",
    "CONTAINERD_PART",
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
    "repository_for",
    "wanted_roots",
    "without_ours",
]
