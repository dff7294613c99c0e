# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is asked of ``container_runtime``: its options as Ansible checks them, and as the code has them."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.options import (
    PHASES,
    REPOSITORY_KEY,
    from_options,
)

ARGUMENT_SPEC: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "verified", "absent"], "default": "present"},
    **PHASES,
    "toolkit": {"type": "bool", "default": True},
    "toolkit_version": {"type": "str", "default": ""},
    "repository_url": {"type": "str", "default": ""},
    **REPOSITORY_KEY,
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
    "verify_image": {"type": "str", "default": ""},
}


# enroot's files are lines of words, and each user's shell expands what is in enroot.conf.
_PATH = re.compile(r"/[^\s\x00-\x1f\x7f\"'`$\\#;&|<>(){}*?\[\]!~]*")

# What Docker takes for an image, its tag, and its digest; what begins with a hyphen would be an option.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


def _refuse(name: str, value: str, why: str) -> t.NoReturn:
    raise ClusterError("bad_input", f"`{name}` ({value!r}) {why}. Nothing was changed.", f"Correct `{name}`.")


def _require_path(name: str, value: str) -> None:
    if value and (not _PATH.fullmatch(value) or ".." in value.split("/")):
        _refuse(
            name,
            value,
            "has to be an absolute path without blanks, `..`, and characters that mean something to a shell",
        )


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of one call, by their names. They are told in the module's documentation."""

    state: str
    phases: tuple[str, ...]
    toolkit: bool
    toolkit_version: str
    repository_url: str
    repository_key: str
    repository_fingerprint: str
    docker: str
    docker_packages: tuple[str, ...]
    docker_default_runtime: bool
    docker_data_root: str
    docker_settings: t.Mapping[str, t.Any]
    containerd: bool
    enroot: bool
    enroot_packages: tuple[str, ...]
    enroot_directory: str
    pyxis: bool
    pyxis_packages: tuple[str, ...]
    pyxis_library: str
    scratch: str
    scratch_target: str
    allow_restart: bool
    verify_image: str

    @classmethod
    def of(cls, options: t.Mapping[str, t.Any]) -> Request:
        """The request behind a module's parameters, which Ansible has checked and filled up."""
        request: Request = from_options(cls, options)
        for name in ("docker_data_root", "enroot_directory", "scratch", "scratch_target"):
            _require_path(name, getattr(request, name))
        root, other = request.docker_data_root, request.docker_settings.get("data-root")
        if root and other is not None and os.path.normpath(str(other)) != os.path.normpath(root):
            _refuse(
                "docker_data_root", root, f"is another directory than the data-root in `docker_settings` ({other!r})"
            )
        directory = request.enroot_directory
        if directory and (directory != os.path.normpath(directory) or directory.count("/") == len(directory)):
            _refuse("enroot_directory", directory, "has to be written without `.`, doubled slashes and one at its end")
        if request.enroot and request.scratch and not request.scratch_target:
            _refuse("scratch_target", "", "is empty, and `scratch` is to be mounted there")
        if request.verify_image and not _IMAGE.fullmatch(request.verify_image):
            _refuse("verify_image", request.verify_image, "is not the name of an image as `docker images` shows it")
        if not request.pyxis_library.isprintable() or not request.pyxis_library.strip():
            _refuse("pyxis_library", request.pyxis_library, "has to be one line of Slurm's plugstack.conf")
        return request

    @property
    def configures(self) -> bool:
        """Whether services are to read their settings again."""
        return "configure" in self.phases


__all__ = ["ARGUMENT_SPEC", "Request"]
