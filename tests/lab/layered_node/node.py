# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root directory that is a node of another distribution: this machine's root with a layer above it (overlayfs).

What the layer hides or replaces decides what the node is; the programs below are this machine's. Code runs in it unchanged, in
a child of the test that has changed its root directory. The mounts belong to a mount namespace of the tests and go with it.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import io
import json
import os
import pathlib
import pickle
import platform
import resource
import subprocess
import sys
import tempfile
import typing as t

from ansible.module_utils.testing import patch_module_args
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.package_repository import repository

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
#: Programs that stand in on nodes of any distribution.
FILES = CHECKOUT / "tests/lab/layered_node/files"
#: Where programs that stand in for others are found first.
LOCAL = "/usr/local/sbin"
_CLONE_NEWNS = 0x00020000
#: What has to be at its place for Python to go on in another root directory.
_PYTHON = {
    str(pathlib.Path(path).resolve())
    for path in (CHECKOUT, sys.prefix, sys.base_prefix, *sys.path)
    if os.path.isdir(path)
}
# Some programs look at each descriptor that they may have, where /proc does not tell which they do.
_OPEN_FILES = 1024
Answer = tuple[int, str, str]
Result = t.TypeVar("Result")
AnyNode = t.TypeVar("AnyNode", bound="Node")


def leave_mounts() -> None:
    """Have mounts of one's own from now on: they end with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(
            ctypes.get_errno(), "These tests mount file systems and change their root directory: run them as root"
        )
    mount("--make-rprivate", "/")


def mount(*words: str) -> None:
    """``mount`` with these words."""
    subprocess.run(["mount", *words], check=True)


def unmount(place: str) -> None:
    """Take away what is mounted below a place, and at it."""
    subprocess.run(["umount", "--recursive", "--lazy", place], check=True)


@contextlib.contextmanager
def workplace(prefix: str) -> t.Iterator[pathlib.Path]:
    """A directory in memory for the nodes of a test run, with mounts of its own."""
    leave_mounts()
    with tempfile.TemporaryDirectory(prefix=prefix) as work:
        mount("-t", "tmpfs", "tmpfs", work)
        yield pathlib.Path(work)
        unmount(work)


class Programs:
    """Runs programs as ``AnsibleModule`` does."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> Answer:
        environment = {**os.environ, "LC_ALL": "C", **(kwargs.get("environ_update") or {})}
        done = subprocess.run(args, capture_output=True, text=True, env=environment, check=False)
        return done.returncode, done.stdout, done.stderr


class Node:
    """A node. ``repositories`` lie on this machine, ``layers`` below its own, the latest first.

    ``hidden``: directories of this machine that are empty on the node. ``kernel``: what ``platform.release`` says there, empty
    for this machine's.
    """

    def __init__(
        self,
        work: pathlib.Path,
        repositories: pathlib.Path,
        hidden: t.Sequence[str] = (),
        layers: t.Sequence[str] = ("/",),
        kernel: str = "",
    ) -> None:
        self.repositories, self.work, self.kernel = repositories, work, kernel
        self._begin(layers, hidden)

    def _begin(self, layers: t.Sequence[str], hidden: t.Sequence[str]) -> None:
        self.layers = tuple(layers)
        place = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        self.upper, self.root = place / "upper", place / "root"
        for directory in (self.upper, self.root, place / "work"):
            directory.mkdir()
        for path in hidden:
            empty = self.upper / path.lstrip("/")
            empty.mkdir(parents=True)
            os.setxattr(empty, "trusted.overlay.opaque", b"y")
        options = f"lowerdir={':'.join(self.layers)},upperdir={self.upper},workdir={place / 'work'}"
        mount("-t", "overlay", "overlay", "-o", options, str(self.root))
        self._bind("/dev", "/dev")
        self._bind(str(self.repositories), repository.PLACE)
        for path in _PYTHON:
            # What is on another file system than / is not in a layer above /.
            if os.stat(path).st_dev != os.stat("/").st_dev:
                self._bind(path, path)

    def _bind(self, source: str, target: str) -> None:
        place = self.root / target.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        mount("--bind", source, str(place))

    def child(self: AnyNode) -> AnyNode:
        """Another one that begins where this one is. This one must not change any more."""
        node = copy.copy(self)
        node._begin([str(self.upper), *self.layers], ())
        return node

    # -- files ---------------------------------------------------------------------------------------------------------

    def path(self, name: str) -> pathlib.Path:
        """Where a file of the node is."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str:
        """A file's content; empty where it is not there."""
        with contextlib.suppress(FileNotFoundError):
            return self.path(name).read_text()
        return ""

    def write(self, name: str, text: str) -> None:
        """Make a file; one that begins with ``#!`` can be run."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)

    def stand_in(self, *programs: pathlib.Path) -> None:
        """Have these programs take the place of those of their names."""
        for program in programs:
            self.write(f"{LOCAL}/{program.name}", program.read_text())

    # -- what runs on it -----------------------------------------------------------------------------------------------

    def inside(self, function: t.Callable[..., Result], *arguments: t.Any) -> Result:
        """Call a function on the node. A ClusterError comes back as it is, anything else as a RuntimeError."""
        reading, writing = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.close(reading)
            with os.fdopen(writing, "wb") as answer:
                answer.write(pickle.dumps(self._called(function, arguments)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            said = answer.read()
        os.waitpid(child, 0)
        kind, value = pickle.loads(said)
        if kind == "refused":
            raise ClusterError(*value[0], **value[1])
        if kind == "failed":
            raise RuntimeError(value)
        return t.cast(Result, value)

    def _called(self, function: t.Callable[..., t.Any], arguments: t.Sequence[t.Any]) -> tuple[str, t.Any]:
        try:
            os.chroot(self.root)
            os.chdir("/")
            os.environ.update(HOME="/root", PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
            if self.kernel:
                platform.release = lambda: self.kernel
            return "done", function(*arguments)
        except ClusterError as exc:
            return "refused", ((exc.kind, exc.message, exc.remedy), exc.details)
        except BaseException as exc:
            import traceback

            return "failed", "".join(traceback.format_exception(exc))

    def run(self, *argv: str) -> Answer:
        """A program on the node: exit status, output and errors."""
        return self.inside(Programs().run_command, list(argv))

    def must(self, *argv: str) -> str:
        """A program that has to succeed; returns its output."""
        rc, out, err = self.run(*argv)
        if rc:
            raise RuntimeError(f"{' '.join(argv)} ended with {rc}: {out}{err}")
        return out

    def module(self, main: t.Callable[[], None], **arguments: t.Any) -> dict[str, t.Any]:
        """Run a module on the node, and return what Ansible would read."""
        return self.inside(_printed, main, arguments)

    # -- what is on it -------------------------------------------------------------------------------------------------

    def put_gpus(self, gpus: int, switches: int = 0) -> None:
        """Have this many A100 on the PCI bus, and their NVSwitches."""
        for number in range(gpus + switches):
            device = {"vendor": "0x10de", "class": "0x030200", "device": "0x20b0"}
            if number >= gpus:
                device.update({"class": "0x068000", "device": "0x1af1"})
            for name, value in device.items():
                self.write(f"/sys/bus/pci/devices/0001:00:0{number}.0/{name}", value)


def _printed(main: t.Callable[[], None], arguments: dict[str, t.Any]) -> dict[str, t.Any]:
    said = io.StringIO()
    with patch_module_args(arguments), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main()
    result = {"failed": False, **json.loads(said.getvalue())}
    # What pytest shows of a result that was not expected has to be about the reason.
    return {key: value for key, value in result.items() if key not in ("diff", "invocation")}


def told(result: dict[str, t.Any]) -> list[str]:
    """The changes that a module reports."""
    return [f"{one['kind']} {one['name']}: {one['what']}" for one in result["changes"]]


__all__ = ["CHECKOUT", "FILES", "LOCAL", "Node", "Programs", "leave_mounts", "mount", "told", "unmount", "workplace"]
