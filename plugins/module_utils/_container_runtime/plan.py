# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a node's container runtimes need: packages, files, and services that read them again. Pure."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import containerd, settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import (
    CONTAINERD,
    DOCKER,
    Facts,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, Root, matches
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository, shows_password
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    directory_request,
    file_request,
)

# NVIDIA Container Toolkit installation guide.
_TOOLKIT_URL = "https://nvidia.github.io/libnvidia-container"
_TOOLKIT_KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
_REPOSITORY = "nvidia-container-toolkit"
#: One release, of which each needs the next ones.
TOOLKIT: tuple[str, ...] = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# What the toolkit took the place of: its own earlier names.
_FORMER = re.compile(r"^nvidia-(docker2?|container-runtime(-hook)?)$")
_OURS = re.compile(r"^(nvidia-container-toolkit(-base)?|libnvidia-container(-tools|1))$")
_EVERYBODY, _OTHERS = 0o004, 0o077

Item = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a node is to have.

    ``missing``: the packages that are wanted by name and not there at their version; ``mends``: one of these is half-installed.
    ``needs_repository``: some of these come from ``repository``. ``files``, ``directories`` and ``absent`` are items of
    node_state. ``docker``: Docker is to be configured; ``restarts``: to take its settings it has to be restarted.
    ``unread``: the units that an earlier run has left with settings from before it, and how they take the new ones.
    ``remove``: names of packages.
    """

    missing: tuple[Root, ...] = ()
    mends: bool = False
    repository: Repository | None = None
    needs_repository: bool = False
    files: tuple[Item, ...] = ()
    directories: tuple[Item, ...] = ()
    absent: tuple[str, ...] = ()
    docker: bool = False
    restarts: bool = False
    unread: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    remove: tuple[str, ...] = ()


def repository_for(request: Request, facts: Facts) -> Repository:
    """The toolkit's repository: the one that was named, or NVIDIA's."""
    url, key, fingerprint = (
        request.repository_url.rstrip("/"),
        request.repository_key,
        request.repository_fingerprint,
    )
    if not url and request.toolkit:
        directory = (
            f"deb/{'arm64' if facts.machine == 'aarch64' else 'amd64'}"
            if facts.manager == "dpkg"
            else f"rpm/{facts.machine}"
        )
        url = f"{_TOOLKIT_URL}/stable/{directory}"
        key, fingerprint = key or f"{_TOOLKIT_URL}/gpgkey", fingerprint or _TOOLKIT_KEY
    return Repository(url, key=key, fingerprint=fingerprint, name=_REPOSITORY)


def wanted_roots(request: Request) -> list[Root]:
    """The packages that are wanted by name."""
    roots = [Root(name) for name in request.docker_packages]
    if request.toolkit:
        # All four are one release, and apt would take the newest of those that are not named.
        roots += [Root(name, request.toolkit_version) for name in (TOOLKIT if request.toolkit_version else TOOLKIT[:1])]
    if request.enroot:
        roots += [Root(name) for name in request.enroot_packages]
    if request.pyxis:
        roots += [Root(name) for name in request.pyxis_packages]
    return roots


def configures_docker(request: Request, facts: Facts) -> bool:
    """Whether Docker is to be configured."""
    there = facts.docker or bool(request.docker_packages)
    return request.docker == "always" or (request.docker == "auto" and there)


def unread_of(request: Request, facts: Facts) -> dict[str, str]:
    """The units of the request that run with settings from before an earlier run, and how they take theirs."""
    ours = {DOCKER: configures_docker(request, facts), CONTAINERD: request.containerd}
    return {unit: verb for unit, verb in facts.unread.items() if ours[unit]}


def _there(root: Root, facts: Facts) -> bool:
    one = facts.packages.get(root.name)
    return one is not None and one.present and matches(root, one.version)


def plan_present(request: Request, facts: Facts) -> Plan:
    """What the request asks of this node."""
    docker = configures_docker(request, facts)
    have = settings.parse_daemon(facts.text(settings.DAEMON_JSON)) if docker else {}
    want = settings.daemon_settings(have, request) if docker else {}
    missing = tuple(root for root in wanted_roots(request) if not _there(root, facts))
    unread = unread_of(request, facts)
    return Plan(
        missing=missing,
        mends=any(root.name in facts.packages and facts.packages[root.name].broken for root in missing),
        repository=repository_for(request, facts),
        # NVIDIA's has the toolkit only.
        needs_repository=any(request.repository_url or root.name in TOOLKIT for root in missing),
        files=tuple(settings_file(facts, **entry) for entry in _files(request, facts, have, want)),
        directories=tuple(enroot_directories(request)),
        docker=docker,
        restarts=settings.needs_restart(have, want) or unread.get(DOCKER) == "restart",
        unread=unread,
    )


def _files(request: Request, facts: Facts, have: Item, want: Item) -> list[dict[str, t.Any]]:
    files: list[dict[str, t.Any]] = []
    # Who wrote the file formats it: only another content is a reason to write it anew.
    if want != have:
        files.append({"path": settings.DAEMON_JSON, "content": settings.daemon_text(want)})
    if request.containerd:
        files += containerd_files(facts)
    if request.enroot:
        files += settings.enroot_files(request, facts.text(settings.ENROOT_CONF))
    if request.pyxis:
        files.append(settings.pyxis_file(request))
    return files


def settings_file(facts: Facts, path: str, content: str) -> Item:
    """A settings file as an item of node_state. Nobody reads in it what he could not read before, a registry's password for example.

    A file of others keeps its owner and permissions, unless a password comes into it (of a proxy, in Docker's settings): then it is its
    owner's alone. Our part of containerd's may hold what is in the files before it.
    """
    if path == settings.CONTAINERD_PART:
        sources = {settings.CONTAINERD, *(one for one, _text in facts.imported)} - {path}
        private = any(not facts.access[one].mode & _EVERYBODY for one in sources if one in facts.access)
        return {**file_request(path, content, "0600" if private else "0644"), "sensitive": private}
    own = facts.access.get(path)
    before, secret = shows_password(facts.text(path)), shows_password(content)
    if not own or path not in (settings.DAEMON_JSON, settings.CONTAINERD, settings.ENROOT_CONF):
        return file_request(path, content, "0600" if secret else "0644", sensitive=before or secret)
    mode = own.mode & ~_OTHERS if secret and not before else own.mode
    private = before or secret or not own.mode & _EVERYBODY
    return file_request(path, content, f"{mode:04o}", str(own.owner), str(own.group), sensitive=private)


def containerd_files(facts: Facts) -> list[dict[str, t.Any]]:
    """containerd's own file and the part that it imports."""
    config = containerd.config_text(facts.text(settings.CONTAINERD))
    before, _after = containerd.around(facts.imported, settings.CONTAINERD_PART)
    return [
        {"path": settings.CONTAINERD, "content": config},
        {"path": settings.CONTAINERD_PART, "content": containerd.part_text([config, *before])},
    ]


def enroot_directories(request: Request) -> list[dict[str, t.Any]]:
    """Where enroot keeps what it makes."""
    directory = request.enroot_directory
    if not request.enroot or not directory:
        return []
    # Each user makes a directory of his own in these.
    parts = [directory_request(f"{directory}/{part}", "01777") for part in ("cache", "data", "temporary")]
    return [directory_request(directory), *parts]


def own_files() -> tuple[str, ...]:
    """Files that are ours where our line is the first in them.

    nvidia-ctk, NVIDIA's installation guide, the packages of enroot and pyxis, and users write files of the same names.
    """
    repository = Repository(name=_REPOSITORY)
    return (
        settings.CONTAINERD_PART,
        settings.ENROOT_MOUNTS,
        settings.PYXIS,
        settings.ENROOT_CONF,
        repository.sources,
        repository.repo,
    )


def plan_absent(request: Request, facts: Facts) -> Plan:
    """The toolkit and our settings go; Docker, images and enroot's containers stay."""
    files = []
    if settings.DAEMON_JSON in facts.texts:
        have = settings.parse_daemon(facts.text(settings.DAEMON_JSON))
        left = settings.without_ours(have)
        if left != have:
            files.append(settings_file(facts, settings.DAEMON_JSON, settings.daemon_text(left)))
    repository = repository_for(dataclasses.replace(request, toolkit=True), facts)
    own = [path for path in own_files() if facts.text(path).lstrip().startswith(settings.MANAGED)]
    others = settings.others_of_enroot(facts.text(settings.ENROOT_CONF))
    if settings.ENROOT_CONF in own and others:
        own.remove(settings.ENROOT_CONF)
        files.append(settings_file(facts, settings.ENROOT_CONF, f"{others}\n"))
    # Before the file that names it: a removal that is interrupted between both finds that file again.
    pairs = (("dpkg", repository.sources), ("rpm", repository.repo))
    keys = [repository.keyring(manager) for manager, path in pairs if path in own]
    remove = tuple(sorted(filter(_OURS.match, facts.packages)))
    # Docker keeps its data-root: a restart that is due for that is not the removal's.
    unread = {unit: verb for unit, verb in facts.unread.items() if (unit, verb) != (DOCKER, "restart")}
    return Plan(files=tuple(files), absent=(*keys, *own), unread=unread, remove=remove)


def check_consent(request: Request, containers: t.Sequence[str] | None) -> None:
    """Refuse a restart of Docker that would stop containers, unless it is allowed. None: Docker does not say which there are."""
    if request.allow_restart or (containers is not None and not containers):
        return
    what = (
        f"{len(containers)} running containers" if containers else "what runs; Docker does not say which containers do"
    )
    raise ClusterError(
        "consent_missing",
        f"The new settings of Docker take effect with a restart, which stops {what}. Nothing was changed.",
        "Set `allow_restart: true`, or wait until they have ended.",
    )


def check_removals(actions: t.Iterable[Action]) -> None:
    """Refuse a transaction that would push out packages of others, such as another Docker."""
    gone = sorted({one.name for one in actions if one.verb == "remove"})
    others = [name for name in gone if not _OURS.match(name) and not _FORMER.match(name)]
    if others:
        raise ClusterError(
            "conflict",
            f"The wanted packages take the place of packages that are installed: {', '.join(others)}. No package was changed.",
            "Remove them yourself if nobody needs them, or ask for what goes together with them, then run again.",
            packages=others,
        )


__all__ = [
    "TOOLKIT",
    "Item",
    "Plan",
    "check_consent",
    "check_removals",
    "configures_docker",
    "containerd_files",
    "enroot_directories",
    "own_files",
    "plan_absent",
    "plan_present",
    "repository_for",
    "settings_file",
    "unread_of",
    "wanted_roots",
]
