# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of ``beeond``: its options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import from_options, require_absolute

SPEC: dict[str, t.Any] = {
    "state": {
        "type": "str",
        "choices": ["started", "stopped", "cleaned", "verified"],
        "default": "started",
    },
    "nodes": {"type": "list", "elements": "str", "required": True},
    "storage_path": {"type": "path", "required": True},
    "mount_point": {"type": "path", "required": True},
    "meta_servers": {"type": "int", "default": 1},
    "storage_servers": {"type": "int", "default": 0},
    "port_shift": {"type": "int", "default": 1000},
    "config_dir": {"type": "path"},
    "interfaces": {"type": "list", "elements": "str", "default": []},
    "timeout_s": {"type": "int", "default": 300},
    "allow_data_loss": {"type": "bool", "default": False},
    "version": {"type": "int", "choices": [7, 8]},
    "root_mode": {"type": "str", "default": "01777"},
}
# What may stand in BeeOND's node file, whose words the shell splits, and reach ssh as a host.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
# The shell of BeeOND splits paths that hold anything else.
_PATH = re.compile(r"(/[A-Za-z0-9_.+@-]+)+")
_INTERFACE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
# The highest port that is shifted is 8010.
_MOST_SHIFT = 65535 - 8010


def _refuse(message: str, remedy: str) -> t.NoReturn:
    raise ClusterError("bad_input", f"{message} Nothing was changed.", remedy)


def check_nodes(nodes: t.Sequence[str]) -> None:
    """Raise ClusterError for nodes that BeeOND would misread: it knows no comments and sees only neighbors that are alike."""
    if not nodes:
        _refuse("`nodes` is empty.", "Name at least one node; the first one manages the file system.")
    for node in nodes:
        if not _HOST.fullmatch(node):
            _refuse(
                f"`nodes`: {node!r} is no host name.",
                "List names alone, without users, ports, comments, or blank entries.",
            )
    twice = sorted({node for node in nodes if nodes.count(node) > 1})
    if twice:
        _refuse(f"`nodes` names {', '.join(twice)} more than once.", "Name every node once.")


def check_paths(options: t.Mapping[str, t.Any]) -> None:
    """Raise ClusterError for a path that is not absolute, is the root, or holds what a shell would split."""
    require_absolute(options, "storage_path", "mount_point", "config_dir")
    for name in ("storage_path", "mount_point", "config_dir"):
        path = options[name]
        if path and (not _PATH.fullmatch(path.rstrip("/")) or {".", ".."} & set(path.split("/"))):
            _refuse(
                f"`{name}`: {path!r} is the root directory, or has characters that BeeOND's shell would not keep together.",
                "Use a directory below the root, of letters, digits and the characters _ . + @ -.",
            )
    data, point = f"{options['storage_path'].rstrip('/')}/", f"{options['mount_point'].rstrip('/')}/"
    if data.startswith(point) or point.startswith(data):
        _refuse("`mount_point` and `storage_path` lie in each other.", "Use two directories that do not.")


def check_numbers(options: t.Mapping[str, t.Any]) -> None:
    """Raise ClusterError for numbers that make no file system."""
    for name in ("meta_servers", "storage_servers"):
        if options[name] < 0 or options[name] > len(options["nodes"]):
            _refuse(
                f"`{name}` is {options[name]}, and there are {len(options['nodes'])} nodes.",
                "Use 0 for all nodes, or a number of them.",
            )
    if not 0 <= options["port_shift"] <= _MOST_SHIFT:
        _refuse(f"`port_shift` is {options['port_shift']}.", f"Use a number from 0 to {_MOST_SHIFT}.")
    if options["timeout_s"] < 1:
        _refuse(f"`timeout_s` is {options['timeout_s']}.", "Use a number above 0.")
    if options["root_mode"] and not re.fullmatch(r"0?[0-7]{3,4}", options["root_mode"]):
        _refuse(f"`root_mode`: {options['root_mode']!r} is no mode.", 'Use octal digits in quotes, such as "01777".')


def request_of(options: t.Mapping[str, t.Any]) -> Request:
    """The request behind the module's parameters, which Ansible has checked and filled up."""
    check_nodes(options["nodes"])
    check_paths(options)
    check_numbers(options)
    for interface in options["interfaces"]:
        if not _INTERFACE.fullmatch(interface):
            _refuse(f"`interfaces`: {interface!r} is no network interface.", "Use names such as ib0.")
    if options["interfaces"] and options["config_dir"]:
        _refuse(
            "`interfaces` and `config_dir` are both given, and BeeOND reads one directory of settings.",
            "Name the interfaces in the files of `config_dir` (connInterfacesFile), or leave that out.",
        )
    return from_options(
        Request,
        options,
        storage_path=options["storage_path"].rstrip("/"),
        mount_point=options["mount_point"].rstrip("/"),
        config_dir=(options["config_dir"] or "").rstrip("/"),
        version=options["version"] or 0,
    )


__all__ = ["SPEC", "check_nodes", "check_numbers", "check_paths", "request_of"]
