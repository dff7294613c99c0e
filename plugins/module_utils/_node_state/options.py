# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The options of ``node_state``, for the module and for its action."""

from __future__ import annotations

import typing as t

_WHEN: dict[str, t.Any] = {"when": {"type": "bool", "default": True}}
_OWNERSHIP: dict[str, t.Any] = {
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}

#: Where the content of a file comes from. The action reads those of the controller, and sends what they hold.
CONTROLLER_SOURCES = ["src", "template", "program"]
FILE_SOURCES = ["content", "secret_content", "content_base64", "sha256", *CONTROLLER_SOURCES]

ARGUMENT_SPEC: dict[str, t.Any] = {
    "packages": {"type": "list", "elements": "raw", "default": []},
    "directories": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "mode": {"type": "str", "default": "0755"},
            **_OWNERSHIP,
            **_WHEN,
        },
    },
    "archives": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "src": {"type": "str"},
            "controller_src": {"type": "path"},
            "staged_src": {"type": "path"},
            "sha256": {"type": "str", "required": True},
            "built_for": {"type": "str", "default": ""},
            "strip_components": {"type": "int", "default": 1},
            "timeout_s": {"type": "int", "default": 900},
            "build": {"type": "list", "elements": "str", "default": []},
            "build_timeout_s": {"type": "int", "default": 3600},
            **_WHEN,
        },
    },
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "mutually_exclusive": [FILE_SOURCES],
        "required_one_of": [FILE_SOURCES],
        "required_by": {"template_vars": ["template"]},
        "options": {
            "path": {"type": "path", "required": True},
            "content": {"type": "str"},
            "secret_content": {"type": "str", "no_log": True},
            "content_base64": {"type": "str", "no_log": True},
            "sha256": {"type": "str"},
            "size": {"type": "int"},
            "src": {"type": "str"},
            "template": {"type": "str"},
            "template_vars": {"type": "dict"},
            "program": {"type": "str"},
            "interpreter": {"type": "str"},
            "sensitive": {"type": "bool", "default": False},
            "unsafe_writes": {"type": "bool", "default": False},
            "mode": {"type": "str", "default": "0644"},
            "validate": {"type": "list", "elements": "str", "default": []},
            "ours": {"type": "str", "default": ""},
            "remedy": {"type": "str", "default": ""},
            **_OWNERSHIP,
            **_WHEN,
        },
    },
    "links": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "path", "required": True},
            "target": {"type": "str", "required": True},
            **_WHEN,
        },
    },
    "absent": {"type": "list", "elements": "raw", "default": []},
    "units": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "stopped"]},
            "enabled": {"type": "bool"},
            "restart_on": {"type": "list", "elements": "path", "default": []},
            **_WHEN,
        },
    },
}


__all__ = ["ARGUMENT_SPEC", "CONTROLLER_SOURCES"]
