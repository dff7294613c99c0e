#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build tiny Debian packages and a signed apt repository of them: ``repository.py DIRECTORY PACKAGES.yml``.

The packages carry names, versions and dependencies of real ones, and our own content: they stand in for packages that
cannot be fetched or must not be installed in a lab. PACKAGES.yml holds a list; see README.md for its keys. The same
directory can be built again: it is then replaced, with a new key.

Needs dpkg-deb and gpg (packages dpkg and gnupg), and PyYAML for the command line.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t

KEYRING = "repository.asc"
#: Where nodes that are layers above this machine have repositories (tests/lab/layered_node).
PLACE = "/srv/repositories"
#: Fields of a package's control file that a specification may set, in the order in which they are written.
_RELATIONS = ("pre_depends", "depends", "recommends", "conflicts", "breaks", "replaces", "provides")
_SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


@dataclasses.dataclass(frozen=True)
class File:
    """A file that a package installs."""

    content: str | bytes = ""
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Package:
    """A package: what its control file says, which files it installs, and its maintainer scripts."""

    name: str
    version: str
    architecture: str = "amd64"
    section: str = "misc"
    #: How many of 100 machines get it by themselves now; None for all. It stands in the index only.
    phased: int | None = None
    description: str = "Stands in for the package of this name in a test"
    pre_depends: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    files: t.Mapping[str, File] = dataclasses.field(default_factory=dict)
    preinst: str = ""
    postinst: str = ""
    prerm: str = ""
    postrm: str = ""

    @property
    def file_name(self) -> str:
        """The name of the archive; a colon of an epoch is left out, as Debian does."""
        return f"{self.name}_{re.sub('^[0-9]+:', '', self.version)}_{self.architecture}.deb"

    def control(self) -> str:
        """The control file."""
        lines = [
            f"Package: {self.name}",
            f"Version: {self.version}",
            f"Architecture: {self.architecture}",
            "Maintainer: The hpcai.gpu_cluster developers <noreply@example.org>",
            f"Section: {self.section}",
            "Priority: optional",
        ]
        for field in _RELATIONS:
            values = getattr(self, field)
            if values:
                lines.append(f"{field.replace('_', '-').title()}: {', '.join(values)}")
        return "\n".join([*lines, f"Description: {self.description}", ""])


def parse(items: t.Iterable[t.Mapping[str, t.Any]]) -> list[Package]:
    """Packages of plain data, with the keys of :class:`Package`.

    ``{version}`` in a relation stands for the package's own version. A file is its content, or a mapping with
    ``content``, or ``source`` (a file with the content), and ``mode`` (a number as octal text).
    """
    packages = []
    for item in items:
        known = {field.name for field in dataclasses.fields(Package)}
        unknown = sorted(set(item) - known)
        if unknown:
            raise ValueError(f"package {item.get('name')} has the unknown key {unknown[0]}; known: {', '.join(known)}")
        values: dict[str, t.Any] = dict(item)
        for field in _RELATIONS:
            values[field] = tuple(text.replace("{version}", item["version"]) for text in item.get(field) or ())
        values["files"] = {
            path: File(what)
            if isinstance(what, str)
            else File(
                pathlib.Path(what["source"]).read_bytes() if "source" in what else what.get("content", ""),
                int(what.get("mode", "644"), 8),
            )
            for path, what in (item.get("files") or {}).items()
        }
        packages.append(Package(**values))
    return packages


def build(package: Package, directory: pathlib.Path) -> pathlib.Path:
    """Build one package into ``directory``."""
    target = directory / package.file_name
    with tempfile.TemporaryDirectory(prefix="package.") as name:
        tree = pathlib.Path(name) / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        tree.chmod(0o755)
        (tree / "DEBIAN" / "control").write_text(package.control())
        for script in _SCRIPTS:
            if getattr(package, script):
                path = tree / "DEBIAN" / script
                path.write_text(getattr(package, script))
                path.chmod(0o755)
        for where, file in package.files.items():
            path = tree / where.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content.encode() if isinstance(file.content, str) else file.content)
            path.chmod(file.mode)
        argv = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(target)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return target


def _digests(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packages_index(directory: pathlib.Path, packages: t.Iterable[Package], others: t.Iterable[str] = ()) -> str:
    """The index of a flat repository that holds these packages' archives, and others by their file names."""
    packages = list(packages)
    controls = {package.file_name: package.control() for package in packages}
    for name in others:
        argv = ["dpkg-deb", "--field", str(directory / name)]
        controls[name] = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    stanzas = []
    phased = {package.file_name: package.phased for package in packages}
    for name, control in controls.items():
        data = (directory / name).read_bytes()
        place = f"Filename: ./{name}\nSize: {len(data)}\nSHA256: {_digests(data)}\n"
        if phased.get(name) is not None:
            place += f"Phased-Update-Percentage: {phased[name]}\n"
        stanzas.append(f"{control.rstrip()}\n{place}")
    return "\n".join(stanzas)


def gpg(home: str, *argv: str) -> None:
    """Run gpg on the keys of a directory, without questions."""
    command = ["gpg", "--homedir", home, "--batch", "--quiet", "--yes", "--pinentry-mode", "loopback"]
    subprocess.run([*command, "--passphrase", "", *argv], check=True)


def sign(directory: pathlib.Path, origin: str) -> None:
    """Sign the repository's Release file with a key that is made here and thrown away."""
    # Not below `directory`: the agent's socket must have a short path.
    home = tempfile.mkdtemp(prefix="gpg.", dir="/tmp")
    try:
        identity = f"{origin} <noreply@example.org>"
        gpg(home, "--quick-generate-key", identity, "rsa2048", "sign", "never")
        gpg(home, "--armor", "--export-options", "export-minimal", "--output", str(directory / KEYRING), "--export")
        release = str(directory / "Release")
        gpg(home, "--clearsign", "--digest-algo", "SHA256", "--output", str(directory / "InRelease"), release)
        gpg(home, "--detach-sign", "--armor", "--output", f"{release}.gpg", release)
    finally:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
        shutil.rmtree(home, ignore_errors=True)


def make(
    directory: pathlib.Path,
    packages: t.Sequence[Package],
    origin: str = "Lab",
    archives: t.Sequence[pathlib.Path] = (),
) -> None:
    """Make a flat, signed repository at ``directory``; one that is there is replaced. ``archives`` were built elsewhere."""
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        for package in packages:
            build(package, work)
        for archive in archives:
            shutil.copy(archive, work)
        index = packages_index(work, packages, [archive.name for archive in archives]).encode()
        files = {"Packages": index, "Packages.gz": gzip.compress(index, mtime=0)}
        release = [
            f"Origin: {origin}",
            f"Label: {origin}",
            f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S UTC', time.gmtime())}",
            f"Architectures: {' '.join(sorted({package.architecture for package in packages} - {'all'}) or ['amd64'])}",
            "SHA256:",
        ]
        for name, data in files.items():
            (work / name).write_bytes(data)
            release.append(f" {_digests(data)} {len(data)} {name}")
        (work / "Release").write_text("\n".join([*release, ""]))
        sign(work, origin)
        # apt reads a local repository as the user _apt.
        work.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        os.replace(work, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fingerprint(directory: pathlib.Path, key: str = KEYRING) -> str:
    """The fingerprint of the key that signed the repository, as gpg says."""
    with tempfile.TemporaryDirectory(prefix="gpg.", dir="/tmp") as home:
        argv = ["gpg", "--homedir", home, "--batch", "--with-colons", "--show-keys", str(directory / key)]
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return next(line.split(":")[9] for line in said.splitlines() if line.startswith("fpr:"))


def source(path: str) -> str:
    """The line for ``/etc/apt/sources.list.d`` of a machine that has the repository at ``path``."""
    return f"deb [signed-by={path}/{KEYRING}] file:{path} ./\n"


def main(argv: t.Sequence[str]) -> int:
    """Make a repository from a file."""
    import yaml  # only here: tests use make() without it

    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    directory = pathlib.Path(argv[0]).resolve()
    packages = parse(yaml.safe_load(pathlib.Path(argv[1]).read_text()))
    directory.parent.mkdir(parents=True, exist_ok=True)
    make(directory, packages)
    print(f"{len(packages)} packages in {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
