# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root directory that is an EL node, with this machine's own rpm and dnf in it.

It is this machine's root with a layer above it (overlayfs): the release of EL says who it is, dpkg and apt are gone, and the
database of rpm is its own. Code runs in it unchanged, in a child of the test that has changed its root directory. The mounts
belong to a mount namespace of the tests and go with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import typing as t

from ansible.module_utils.testing import patch_module_args
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.package_repository import el, rpms

FILES = pathlib.Path(__file__).parent / "files"
CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
_CLONE_NEWNS = 0x00020000
#: What has to be at its place for Python to go on in another root directory.
_PYTHON = {
    str(pathlib.Path(path).resolve())
    for path in (CHECKOUT, sys.prefix, sys.base_prefix, *sys.path)
    if os.path.isdir(path)
}
_DEBIAN = ("/usr/bin/dpkg-query", "/usr/bin/dpkg", "/usr/bin/apt-get", "/usr/sbin/update-initramfs", el.LOCK)
Answer = tuple[int, str, str]
Result = t.TypeVar("Result")


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


class Programs:
    """Runs programs as ``AnsibleModule`` does."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> Answer:
        environment = {**os.environ, "LC_ALL": "C", **(kwargs.get("environ_update") or {})}
        done = subprocess.run(args, capture_output=True, text=True, env=environment, check=False)
        return done.returncode, done.stdout, done.stderr


class Node:
    """A node of a release. ``layers`` lie below its own, the latest first."""

    def __init__(
        self, work: pathlib.Path, release: el.Release, repositories: pathlib.Path, layers: t.Sequence[str] = ("/",)
    ) -> None:
        self.release, self.repositories, self.work, self.layers = release, repositories, work, tuple(layers)
        place = pathlib.Path(tempfile.mkdtemp(dir=work))
        self.upper, self.root = place / "upper", place / "root"
        for directory in (self.upper, self.root, place / "work"):
            directory.mkdir()
        options = f"lowerdir={':'.join(self.layers)},upperdir={self.upper},workdir={place / 'work'}"
        mount("-t", "overlay", "overlay", "-o", options, str(self.root))
        self._bind("/dev", "/dev")
        self._bind(str(repositories), el.PLACE)
        for path in _PYTHON:
            # What is on another file system than / is not in a layer above /.
            if os.stat(path).st_dev != os.stat("/").st_dev:
                self._bind(path, path)

    def _bind(self, source: str, target: str) -> None:
        place = self.root / target.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        mount("--bind", source, str(place))

    def child(self) -> Node:
        """Another one that begins where this one is. This one must not change any more."""
        return Node(self.work, self.release, self.repositories, [str(self.upper), *self.layers])

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

    @property
    def installed(self) -> dict[str, list[str]]:
        """What rpm has, with all versions of a name."""
        found: dict[str, list[str]] = {}
        for line in self.must("rpm", "-qa", "--queryformat", r"%{NAME} %{VERSION}-%{RELEASE}\n").split("\n")[:-1]:
            name, version = line.split(" ")
            found[name] = sorted([*found.get(name, []), version])
        return found

    def repository(self, name: str, *, signed: bool = False) -> None:
        """Have a repository on the node."""
        key = f"gpgcheck=1\ngpgkey=file://{el.PLACE}/{rpms.KEY}\n" if signed else "gpgcheck=0\n"
        self.write(
            f"/etc/yum.repos.d/{name}.repo",
            f"[{name}]\nname={name}\nbaseurl=file://{el.PLACE}/{name}\nenabled=1\n{key}",
        )


def _printed(main: t.Callable[[], None], arguments: dict[str, t.Any]) -> dict[str, t.Any]:
    said = io.StringIO()
    with patch_module_args(arguments), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main()
    result = {"failed": False, **json.loads(said.getvalue())}
    # What pytest shows of a result that was not expected has to be about the reason.
    return {key: value for key, value in result.items() if key not in ("diff", "invocation")}


def made(work: pathlib.Path, release: el.Release, repositories: pathlib.Path) -> Node:
    """A node as its distribution's image has it: the older of two kernels runs, both have their headers."""
    node = Node(work, release, repositories)
    for path in _DEBIAN:
        node.path(path).unlink(missing_ok=True)
    for path in ("/var/lib/rpm", "/var/lib/dnf", "/var/cache/dnf", "/etc/dnf", "/etc/yum.repos.d", "/etc/os-release"):
        if node.path(path).is_dir():
            shutil.rmtree(node.path(path))
        else:
            node.path(path).unlink(missing_ok=True)
    node.path("/usr/lib/os-release").unlink(missing_ok=True)
    node.path("/etc/os-release").symlink_to("../usr/lib/os-release")
    # As RHEL has it. Debian keeps rpm's database with the user, and does not want to be told to install packages.
    node.write("/etc/rpm/macros.el", "%_dbpath /var/lib/rpm\n%_transaction_color 0\n")
    node.write(
        "/etc/popt", "rpm alias --upgrade --upgrade --force-debian\nrpm alias --import --import --force-debian\n"
    )
    node.write(
        "/etc/dnf/dnf.conf", "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\n"
    )
    for name in ("modprobe", "systemctl", "dracut", "nvidia-smi", "dkms"):
        node.write(f"/usr/local/sbin/{name}", (FILES / name).read_text())
    node.write("/usr/local/sbin/modinfo", (FILES / "modprobe").read_text())
    for path in ("/var/lib/rpm", "/run/systemd/system", "/tmp", "/var/tmp"):
        node.path(path).mkdir(parents=True, exist_ok=True)
    node.repository("base")
    kernels = [f"{name}-{kernel}" for kernel in release.kernels for name in ("kernel-core", "kernel-devel")]
    node.must(
        "dnf",
        "-y",
        "-q",
        f"--releasever={release.major}",
        "install",
        f"{release.id}-release",
        *kernels,
        "rdma-core",
        "libibverbs",
        "numactl",
    )
    return node


__all__ = ["Node", "Programs", "leave_mounts", "made", "mount", "unmount"]
