#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make an archive with MLNX_OFED's layout and a doca-host package, of tiny packages of our own:
``vendor.py DIRECTORY OS [KERNEL [MODULES]]``. With a kernel the archive has modules for it (a copy of that kernel's own) and
openibd. MODULES holds others by version (``24.10-3.2.5.0/mlx5_core.ko``), which openibd then really unloads and loads.

Prints a JSON object: file name by version, and sha256 as mofed_sha256 wants them.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import typing as t

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests"))
from lab.package_repository import repository

HERE = pathlib.Path(__file__).parent
OFED = ("24.10-3.2.5.0", "24.10-4.1.4.0")
DOCA = "3.2.1-044000-25.10"


def tool(content: str) -> dict[str, str]:
    return {"content": content, "mode": "755"}


def ofed_scripts(answer: str, remove: str) -> dict[str, t.Any]:
    """The package with ``ofed_info`` and the uninstaller."""
    return {
        "name": "ofed-scripts",
        "version": answer,
        "architecture": "all",
        "files": {
            "/usr/bin/ofed_info": tool(f"#!/bin/sh\necho {answer}:\n"),
            "/usr/sbin/ofed_uninstall.sh": tool(f'#!/bin/sh\ntest "$1" = --force && dpkg --purge {remove}\n'),
        },
    }


def kernel_modules(version: str, kernel: str) -> dict[str, t.Any]:
    """The package with the driver and its service; the driver is the kernel's own once more, outside of the kernel's tree."""
    updates = f"/lib/modules/{kernel}/updates"
    start = "ExecStart=/bin/sh -c 'echo started >>/run/openibd.log'"
    return {
        "name": "mlnx-ofed-kernel",
        "version": version,
        "files": {
            "/lib/systemd/system/openibd.service": f"[Service]\nType=oneshot\nRemainAfterExit=yes\n{start}\n",
        },
        "postinst": f"""#!/bin/sh
set -e
mkdir -p {updates}
cp "$(modinfo -k {kernel} -F filename mlx5_core)" {updates}/
depmod {kernel}
""",
        "prerm": f"#!/bin/sh\nrm -f {updates}/mlx5_core.ko*\ndepmod {kernel}\n",
    }


# openibd replaces a driver of another build when it starts, and goes on where that is in use.
OPENIBD = """#!/bin/sh
loaded() { cat /sys/module/mlx5_core/srcversion 2>/dev/null; }
echo "$1" >>/run/openibd.log
case $1 in
  start)
    [ ! -d /sys/module/mlx5_core ] || [ "$(loaded)" = "$(modinfo -F srcversion mlx5_core)" ] || modprobe -r mlx5_ib mlx5_core
    modprobe mlx5_core
    ;;
  stop) modprobe -r mlx5_ib mlx5_core ;;
esac
"""


def own_modules(version: str, kernel: str, modules: pathlib.Path) -> dict[str, t.Any]:
    """The package with modules of our own, and a service that does what its name says."""
    unit = "\n".join(
        [
            "[Unit]\nDescription=openibd\n[Service]\nType=oneshot\nRemainAfterExit=yes",
            *(f"Exec{when}=/usr/sbin/openibd {when.lower()}" for when in ("Start", "Stop")),
            "[Install]\nWantedBy=multi-user.target\n",
        ]
    )
    updates = f"/lib/modules/{kernel}/updates"
    made = sorted((modules / version).glob("*.ko"))
    return {
        "name": "mlnx-ofed-kernel",
        "version": version,
        "files": {
            **{f"{updates}/{path.name}": {"source": str(path)} for path in made},
            "/usr/sbin/openibd": tool(OPENIBD),
            "/lib/systemd/system/openibd.service": unit,
        },
        "postinst": f"#!/bin/sh\nset -e\ndepmod {kernel}\nsystemctl --quiet enable openibd.service\n",
        "prerm": '#!/bin/sh\n[ "$1" != remove ] || systemctl --quiet disable openibd.service\n',
        "postrm": f'#!/bin/sh\n[ "$1" != remove ] || depmod {kernel}\n',
    }


def make_ofed(
    directory: pathlib.Path, version: str, os_name: str, kernel: str, modules: pathlib.Path | None
) -> pathlib.Path:
    """MLNX_OFED_LINUX-<version>-<os>-<arch>.tgz with mlnxofedinstall, DEBS, .supported_kernels and distro."""
    name = f"MLNX_OFED_LINUX-{version}-{os_name}-x86_64"
    tree = directory / name
    (tree / "DEBS").mkdir(parents=True)
    everything = f"{'mlnx-ofed-kernel' if kernel else 'perftest'} mlnx-tools ofed-scripts"
    packages = [
        {**ofed_scripts(f"MLNX_OFED_LINUX-{version}", everything), "version": version},
        {"name": "mlnx-tools", "version": version, "files": {"/usr/bin/mlnx_tune": tool("#!/bin/sh\nexit 0\n")}},
    ]
    if kernel:
        packages.append(own_modules(version, kernel, modules) if modules else kernel_modules(version, kernel))
    else:
        perftest = {"/usr/bin/ib_write_bw": tool("#!/bin/sh\nexit 0\n")}
        packages.append({"name": "perftest", "version": f"{version}.mlnx", "files": perftest})
    for package in repository.parse(packages):
        repository.build(package, tree / "DEBS")
    shutil.copy(HERE / "mlnxofedinstall", tree)
    (tree / ".supported_kernels").write_text(f"5.15.0-25-generic\n{kernel}\n")
    (tree / "distro").write_text(f"{os_name}\n")
    archive = directory / f"{name}.tgz"
    subprocess.run(["tar", "-C", str(directory), "-czf", str(archive), name], check=True)
    shutil.rmtree(tree)
    return archive


def make_doca(directory: pathlib.Path, version: str, os_name: str) -> pathlib.Path:
    """A doca-host package that carries a repository and points apt at it."""
    home = f"/usr/share/doca-host-{version}/repo"
    contents = repository.parse(
        [
            ofed_scripts("OFED-internal-25.10-2.4.1", "mlnx-tools ofed-scripts") | {"version": "25.10.OFED.2510"},
            {"name": "mlnx-tools", "version": "25.10", "files": {"/usr/bin/mlnx_tune": tool("#!/bin/sh\nexit 0\n")}},
            {"name": "dkms", "version": "99", "architecture": "all"},
            {"name": "openmpi", "version": "4.1.9a1-1", "files": {"/etc/pmix-mca-params.conf": "# DOCA's\n"}},
            {
                "name": "doca-ofed-userspace",
                "version": "3.2.1-044000",
                "depends": ["ofed-scripts", "mlnx-tools", "openmpi (= 4.1.9a1-1)"],
                "conflicts": ["perftest", "infiniband-diags"],
            },
        ]
    )
    made = directory / "doca-repository"
    repository.make(made, contents, "DOCA-HOST-3.2.1")
    host: dict[str, t.Any] = {
        "name": "doca-host",
        "version": f"{version}-{os_name.replace('.', '')}",
        "files": {"/etc/apt/sources.list.d/doca.list": f"{repository.source(home)}\n"},
    }
    built = repository.build(repository.parse([host])[0], directory)
    # Packages of the repository are binary files, which a specification cannot hold: they are added to the built package.
    tree = directory / "doca-host"
    subprocess.run(["dpkg-deb", "--raw-extract", str(built), str(tree)], check=True)
    shutil.copytree(made, tree / home.lstrip("/"))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(built)], check=True, stdout=subprocess.DEVNULL
    )
    shutil.rmtree(tree)
    shutil.rmtree(made)
    return built


def main() -> None:
    directory, os_name = pathlib.Path(sys.argv[1]), sys.argv[2]
    kernel = sys.argv[3] if len(sys.argv) > 3 else ""
    modules = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    files = {version: make_ofed(directory, version, os_name, kernel, modules) for version in OFED}
    files[DOCA] = make_doca(directory, DOCA, os_name)
    sums = {
        f"{version}-{os_name}-x86_64": hashlib.sha256(path.read_bytes()).hexdigest() for version, path in files.items()
    }
    print(json.dumps({"files": {version: path.name for version, path in files.items()}, "sha256": sums}))


if __name__ == "__main__":
    main()
