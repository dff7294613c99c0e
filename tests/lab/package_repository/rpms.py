# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build tiny RPMs and signed dnf repositories of them, with rpmbuild, rpmsign and createrepo_c.

The packages carry names, versions and dependencies of real ones, and our own content.

Needs the Debian packages rpm, createrepo-c and gnupg.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
import subprocess
import tempfile
import typing as t

from lab.package_repository.repository import gpg

KEY = "RPM-GPG-KEY"
#: No compression, no digging through files for dependencies, and the same names on every distribution.
_MACROS = {
    "debug_package": "%{nil}",
    "__os_install_post": "%{nil}",
    "_binary_payload": "w0.gzdio",
    "_build_id_links": "none",
    "_build_name_fmt": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    "_buildhost": "localhost",
}
_RELATIONS = ("requires", "recommends", "provides", "conflicts", "obsoletes")


@dataclasses.dataclass(frozen=True)
class Rpm:
    """A package. ``version`` is ``[epoch:]version-release``; ``files`` have their contents, programs begin with ``#!``.

    ``directories`` are made with the package, and go with it.
    """

    name: str
    version: str
    noarch: bool = True
    requires: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    obsoletes: tuple[str, ...] = ()
    files: t.Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)
    directories: tuple[str, ...] = ()
    post: str = ""

    @property
    def parts(self) -> tuple[str, str, str]:
        """Epoch, version and release."""
        epoch, colon, rest = self.version.rpartition(":")
        version, _hyphen, release = rest.partition("-")
        return epoch if colon else "0", version, release

    def nevra(self, machine: str) -> str:
        """As module streams list it."""
        epoch, version, release = self.parts
        return f"{self.name}-{epoch}:{version}-{release}.{'noarch' if self.noarch else machine}"

    def _paragraph(self) -> str:
        epoch, version, release = self.parts
        lines = [
            f"%package -n {self.name}",
            f"Epoch: {epoch}\nVersion: {version}\nRelease: {release}",
            *(["BuildArch: noarch"] if self.noarch else []),
            f"Summary: Stands in for {self.name} in a test\nAutoReqProv: no",
        ]
        for field in _RELATIONS:
            lines += [f"{field.title()}: {text}" for text in getattr(self, field)]
        return "\n".join([*lines, f"%description -n {self.name}", "It stands in."])

    def spec(self) -> str:
        """Its part of a spec file."""
        modes = {True: "755", False: "644"}
        files = [f"%attr({modes[what[:2] in ('#!', b'#!')]}, root, root) {path}" for path, what in self.files.items()]
        files += [f"%dir {path}" for path in self.directories]
        script = f"%post -n {self.name}\n{self.post}\n" if self.post else ""
        return "\n".join([self._paragraph(), f"{script}%files -n {self.name}", *files, ""])


@dataclasses.dataclass(frozen=True)
class Stream:
    """A stream of a module with the packages that it brings; the first one of a module is its default."""

    module: str
    name: str
    packages: tuple[Rpm, ...]
    default: bool = False

    def document(self, platform: str, machine: str) -> str:
        """As modulemd has it. All versions of a branch are in one document, as in the vendor's repository."""
        artifacts = "".join(f"      - {package.nevra(machine)}\n" for package in self.packages)
        text = (
            "---\ndocument: modulemd\nversion: 2\ndata:\n"
            f"  name: {self.module}\n  stream: '{self.name}'\n  version: 20260101000000\n  context: '{platform[:8]}'\n"
            f"  arch: {machine}\n  summary: {self.name}\n  description: {self.name}\n  license:\n    module: [MIT]\n"
            f"  dependencies:\n  - requires:\n      platform: [{platform}]\n"
            f"  profiles:\n    default:\n      rpms: [{self.packages[0].name}]\n"
            f"  artifacts:\n    rpms:\n{artifacts}...\n"
        )
        if self.default:
            text += f"---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: {self.module}\n  stream: '{self.name}'\n...\n"
        return text


def _rounds(packages: t.Sequence[Rpm]) -> list[list[Rpm]]:
    """One spec cannot have two packages of one name, nor two contents of one file."""
    rounds: list[list[Rpm]] = []
    for package in packages:
        for group in rounds:
            taken = {one.name for one in group} | {path for one in group for path in one.files}
            if not taken & {package.name, *package.files}:
                group.append(package)
                break
        else:
            rounds.append([package])
    return rounds


def build(packages: t.Sequence[Rpm], directory: pathlib.Path) -> None:
    """Build packages into ``directory``: many with each call of rpmbuild, which takes its time to start."""
    for group in _rounds(packages):
        with tempfile.TemporaryDirectory(prefix="rpm.") as work:
            tree = pathlib.Path(work, "tree")
            for path in [path for one in group for path in one.directories]:
                (tree / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
            for path, what in [item for one in group for item in one.files.items()]:
                (tree / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                (tree / path.lstrip("/")).write_bytes(what.encode() if isinstance(what, str) else what)
            head = "Name: lab\nVersion: 1\nRelease: 1\nSummary: Lab\nLicense: MIT\n%description\nLab\n"
            install = f"%install\nmkdir -p %{{buildroot}}\n[ ! -d {tree} ] || cp -a {tree}/. %{{buildroot}}\n"
            spec = pathlib.Path(work, "lab.spec")
            spec.write_text(head + install + "\n".join(one.spec() for one in group))
            macros = {**_MACROS, "_topdir": f"{work}/top", "_rpmdir": str(directory)}
            defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
            _run(["rpmbuild", "-bb", "--quiet", *defines, str(spec)])


def _run(argv: t.Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def signing_key(directory: pathlib.Path) -> t.Iterator[t.Callable[[pathlib.Path], None]]:
    """A key that is thrown away in the end, its public half in ``directory/KEY``; gives what signs a directory's packages."""
    # Not below `directory`: the agent's socket must have a short path.
    home = tempfile.mkdtemp(prefix="gpg.", dir="/tmp")
    try:
        gpg(home, "--quick-generate-key", "Vendor's stand-in <noreply@example.org>", "rsa2048", "sign", "never")
        gpg(home, "--armor", "--export-options", "export-minimal", "--output", str(directory / KEY), "--export")
        macros = {"__gpg": shutil.which("gpg"), "_gpg_name": "noreply@example.org", "_gpg_path": home}
        defines = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]

        def sign(place: pathlib.Path) -> None:
            _run(["rpmsign", *defines, "--addsign", *map(str, sorted(place.glob("*.rpm")))])

        yield sign
    finally:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
        shutil.rmtree(home, ignore_errors=True)


def index(directory: pathlib.Path, streams: t.Sequence[Stream] = (), platform: str = "", machine: str = "") -> None:
    """Make a repository of the packages in a directory."""
    _run(["createrepo_c", "--quiet", "--no-database", str(directory)])
    if streams:
        with tempfile.TemporaryDirectory(prefix="modules.") as work:
            modules = pathlib.Path(work, "modules.yaml")
            modules.write_text("".join(stream.document(platform, machine) for stream in streams))
            _run(["modifyrepo_c", "--mdtype=modules", str(modules), str(directory / "repodata")])


__all__ = ["KEY", "Rpm", "Stream", "build", "index", "signing_key"]
