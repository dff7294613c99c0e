# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What a session of BeeOND is: what is asked for, what was seen of it on a node, and what is to be done."""

from __future__ import annotations

import dataclasses
import typing as t

#: What this module makes below the storage path; all else there is left alone.
DATA_DIRECTORY = "beeond"
#: Where status file, settings and the lock are. A boot empties it, as it ends services and mounts.
RUN_DIRECTORY = "/run/hpcai_beeond"
LOG_DIRECTORY = "/var/log/hpcai_beeond"
#: Ports before the shift: management, metadata, storage, and management's gRPC, 8 only (build/dist/etc/*.conf of BeeGFS 7.4.7;
#: mgmtd/src/config.rs of ThinkParQ/beegfs-rust). The client's 8004 is UDP alone.
PORTS = {"beegfs-mgmtd": (8008,), "beegfs-meta": (8005,), "beegfs-storage": (8003,)}
GRPC_PORT = 8010
HELPER_PORT = 8006
#: A node with less could not even hold the services' own files. Bytes, and inodes: the metadata service of 7.4.7 makes 66,000 directories
#: before it serves.
LEAST_BYTES = 1 << 30
LEAST_INODES = 100_000


@dataclasses.dataclass(frozen=True)
class Request:
    """What ``beeond`` is to do. ``version`` is 7 or 8, 0 for what is installed. Servers: 0 means every node."""

    state: str
    nodes: tuple[str, ...]
    storage_path: str
    mount_point: str
    meta_servers: int
    storage_servers: int
    port_shift: int
    config_dir: str
    interfaces: tuple[str, ...]
    timeout_s: int
    allow_data_loss: bool
    version: int
    root_mode: str

    @property
    def data_path(self) -> str:
        """Where the services keep their files."""
        return f"{self.storage_path}/{DATA_DIRECTORY}"

    @property
    def run_dir(self) -> str:
        """This file system's own directory in /run."""
        return f"{RUN_DIRECTORY}/{self.port_shift}"

    @property
    def status_file(self) -> str:
        """BeeOND's notes of what it started."""
        return f"{RUN_DIRECTORY}/{self.port_shift}.status"

    @property
    def lock(self) -> str:
        """What a run holds on the first node while it works."""
        return f"{RUN_DIRECTORY}/{self.port_shift}.lock"

    @property
    def node_lock(self) -> str:
        """What a step that changes something holds on each node."""
        return f"{RUN_DIRECTORY}/{self.port_shift}.step"

    @property
    def log_dir(self) -> str:
        """Where the services log."""
        return f"{LOG_DIRECTORY}/{self.port_shift}"

    def servers(self, service: str) -> tuple[str, ...]:
        """The nodes of a service, as BeeOND chooses them: the first node manages, the first so many serve."""
        numbers = {"beegfs-mgmtd": 1, "beegfs-meta": self.meta_servers, "beegfs-storage": self.storage_servers}
        number = numbers[service]
        return self.nodes[:number] if number else self.nodes

    def services_of(self, node: str) -> tuple[str, ...]:
        """The services that run on a node."""
        return tuple(service for service in PORTS if node in self.servers(service))

    def ports_of(self, node: str, version: int) -> tuple[int, ...]:
        """The TCP ports that a node needs."""
        found = [port for service in self.services_of(node) for port in PORTS[service]]
        if version == 7:
            found.append(HELPER_PORT)
        elif node == self.nodes[0]:
            found.append(GRPC_PORT)
        return tuple(port + self.port_shift for port in found)

    def layout(self, version: int) -> dict[str, t.Any]:
        """What data is only of use to: the same nodes in the same order, with the same services."""
        return {
            "nodes": list(self.nodes),
            "meta": len(self.servers("beegfs-meta")),
            "storage": len(self.servers("beegfs-storage")),
            "version": version,
        }


@dataclasses.dataclass(frozen=True)
class Seen:
    """What ``agent.observe`` told of a node. ``unreachable``: why there is nothing to tell; all else is then empty."""

    unreachable: str = ""
    program: str = ""
    version: int = 0
    pdsh: bool = False
    shell_is_bash: bool = True
    machine: str = ""
    other_run: bool = False
    mounted: bool = False
    foreign_mount: str = ""
    mount_entries: tuple[str, ...] = ()
    point_is_link: bool = False
    point_is_no_directory: bool = False
    mounted_elsewhere: tuple[str, ...] = ()
    mounts_below: tuple[str, ...] = ()
    status_there: bool = False
    run_dir_there: bool = False
    status_services: tuple[str, ...] = ()
    services: t.Mapping[str, bool] = dataclasses.field(default_factory=dict)
    strays: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    launchers: tuple[int, ...] = ()
    mark: t.Mapping[str, t.Any] | None = None
    data_entries: tuple[str, ...] = ()
    data_there: tuple[str, ...] = ()
    data_is_link: bool = False
    data_mounts: tuple[str, ...] = ()
    inside_data: str = ""
    files: bool = False
    on_os_disk: bool = False
    free_bytes: int = 0
    total_bytes: int = 0
    free_inodes: int = -1
    ports_busy: tuple[int, ...] = ()
    unresolved: tuple[str, ...] = ()
    config_there: bool = True
    authentication: bool = False
    license: bool = False
    control_configured: bool = True
    users: tuple[int, ...] = ()
    capacity_bytes: int = 0

    @classmethod
    def of(cls, answer: t.Mapping[str, t.Any]) -> Seen:
        """The node behind an answer of the agent."""
        names = {field.name for field in dataclasses.fields(cls)}
        kept: dict[str, t.Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in answer.items() if key in names
        }
        return cls(**kept)

    @property
    def remains(self) -> bool:
        """Whether anything of a session is there, apart from data."""
        return self.mounted or self.status_there or bool(self.strays or self.launchers) or any(self.services.values())

    @property
    def foreign(self) -> bool:
        """Whether BeeOND's mount is of a session that this module did not start: it has a directory in /run for as long as it mounts."""
        return self.mounted and not self.status_there and not self.run_dir_there

    @property
    def used(self) -> bool:
        """Whether users may have files here: a session that never came up left none."""
        return bool(self.data_there) and self.mark is not None and (self.files or self.mark.get("state") == "used")

    @property
    def members(self) -> tuple[str, ...]:
        """The nodes of the file system that has data here."""
        return tuple(((self.mark or {}).get("layout") or {}).get("nodes") or ())


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be done, in this order. ``problems``: what is not as wanted, by node, for whoever reads the result.

    ``sweep``: nodes that lose what a session left. ``purge``: nodes that lose its data. ``start``: on all nodes. ``keep``: all runs, and a
    run that was cut off has not noted it.
    """

    stop: tuple[str, ...] = ()
    sweep: tuple[str, ...] = ()
    purge: tuple[str, ...] = ()
    start: bool = False
    keep: bool = False
    problems: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The same for a person."""
        found = []
        if self.stop:
            found.append(f"stop the file system on {', '.join(self.stop)}")
        if self.sweep:
            found.append(f"clean up what a session left on {', '.join(self.sweep)}")
        if self.purge:
            found.append(f"remove the data on {', '.join(self.purge)}")
        if self.keep:
            found.append("finish a start that was cut off")
        return [*found, "start the file system"] if self.start else found


__all__ = [
    "DATA_DIRECTORY",
    "GRPC_PORT",
    "HELPER_PORT",
    "LEAST_BYTES",
    "LEAST_INODES",
    "LOG_DIRECTORY",
    "PORTS",
    "RUN_DIRECTORY",
    "Plan",
    "Request",
    "Seen",
]
