# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Everything that is wrong with a node's container runtimes. Changes nothing."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import containerd, cri, settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import Dump, Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.plan import (
    Item,
    configures_docker,
    containerd_files,
    enroot_directories,
    unread_of,
    wanted_roots,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Root, matches


def check(request: Request, facts: Facts, runtime: str, dump: Dump, container: str = "") -> None:
    """Fail with all that is wrong.

    ``runtime``: what the Docker that runs starts containers with, "" for unknown. ``container``: why a container does not see
    the GPUs, "" where it does or none was to be started.
    """
    wrong = [found for root in wanted_roots(request) for found in _package(root, facts)]
    if configures_docker(request, facts):
        have = settings.parse_daemon(facts.text(settings.DAEMON_JSON))
        if settings.daemon_settings(have, request) != have:
            wrong.append(f"{settings.DAEMON_JSON} lacks settings of the role")
        if request.toolkit and request.docker_default_runtime and runtime not in ("", "nvidia"):
            wrong.append(f"Docker runs containers with {runtime}, not with nvidia")
        if container:
            wrong.append(f"a container of {request.verify_image} cannot use the GPUs: {container}")
    wanted = [settings.pyxis_file(request)] if request.pyxis else []
    if request.containerd:
        wrong += _containerd(facts, dump)
    wanted += settings.enroot_files(request, facts.text(settings.ENROOT_CONF)) if request.enroot else []
    wrong += [f"{file['path']} is not the role's" for file in wanted if facts.text(file["path"]) != file["content"]]
    wrong += [f"{unit} has not read its settings since they were changed" for unit in unread_of(request, facts)]
    wrong += [said for entry in enroot_directories(request) for said in _directory(entry, facts)]
    if wrong:
        raise ClusterError("runtime_wrong", "; ".join(wrong) + ".", "Run the role.")


def _containerd(facts: Facts, dump: Dump) -> list[str]:
    """What is wrong with containerd: its files, and what it makes of them together with those of others."""
    config, part = containerd_files(facts)
    wrong = []
    if facts.text(settings.CONTAINERD) != config["content"]:
        wrong.append(f"{settings.CONTAINERD} does not import {settings.CONTAINERD_PART}")
    if facts.text(settings.CONTAINERD_PART) != part["content"]:
        wrong.append(f"{settings.CONTAINERD_PART} is not the role's")
    if dump.refused:
        wrong.append(f"containerd refuses its settings: {dump.refused}")
    return wrong or _default_of_pods(facts, config["content"], dump)


def _default_of_pods(facts: Facts, config: str, dump: Dump) -> list[str]:
    """Whether containerd starts Kubernetes' containers with the NVIDIA runtime. Without a dump only the order of its files tells."""
    before, after = containerd.around(facts.imported, settings.CONTAINERD_PART)
    culprit = containerd.overruling([config, *before], after)
    right = cri.in_effect(dump.text) in (None, (cri.RUNTIME, cri.BINARY)) if dump.text else not culprit
    if right:
        return []
    why = ""
    if culprit:
        why = f": it reads {culprit} after {settings.CONTAINERD_PART}. Give that file a name that sorts before it"
    elif containerd.version_of([config, *before]) == 1:
        # containerd 2.0 to 2.2, `LoadConfig` in server/config: names are migrated, settings are not.
        why = f": no file says which version it has, and containerd 2 ignores such settings. Give {settings.CONTAINERD} one"
    return [f"containerd does not start Kubernetes' containers with nvidia{why}"]


def _package(root: Root, facts: Facts) -> list[str]:
    one = facts.packages.get(root.name)
    if one is None or not one.present:
        return [f"{root.name} is not installed"]
    return [] if matches(root, one.version) else [f"{root.name} is {one.version}, wanted is {root.upstream}"]


def _directory(entry: Item, facts: Facts) -> list[str]:
    path, mode = entry["path"], facts.modes.get(entry["path"])
    if mode is None:
        return [f"{path} is missing"]
    return (
        [] if mode == int(entry["mode"], 8) else [f"{path} has mode {mode:04o}, wanted is {int(entry['mode'], 8):04o}"]
    )


__all__ = ["check"]
