#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A repository with the names, versions and dependencies of NVIDIA's for Debian 12: ``nvidia.py DIRECTORY KERNEL [MODULES]``.

The packages are tiny and our own. Prints as JSON where the packed repository is, and its key's fingerprint. One that was
made by the same recipe is not made again. MODULES holds kernel modules by version (``580.95.05/nvidia.ko``) which the open
driver then really brings, with their sources for the machine's own dkms, and a service that keeps them in use: for machines with
a kernel of their own.

What is like the real ones: metapackages that only ask for "this version or newer", so that without a pin they pull in the
newest parts; the two kernel modules, which exclude each other; Fabric Manager with the branch in its name before R580; a
library whose file carries the version; units. What is not: there is no driver in them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import pathlib
import sys
import tarfile
import tempfile
import typing as t

if __package__:
    from . import repository
else:
    import repository

VERSIONS = ("570.124.06", "580.95.05", "580.126.16")
_SOURCES = pathlib.Path(__file__).resolve().parents[1] / "vm" / "modules" / "nvidia"
#: While this file exists, a part of the newest driver fails to configure itself.
BREAK = "/run/break-nvidia-driver"

# Like the real one it changes what runc is about to make: here the container gets a variable, there it gets GPUs.
_CONTAINER_RUNTIME = """#!/bin/sh
bundle=. creates= before=
for word; do
  case $before in --bundle | -b) bundle=$word ;; esac
  [ "$word" != create ] || creates=1
  before=$word
done
[ -z "$creates" ] || sed -i 's/"env":\\[/"env":["NVIDIA_RUNTIME=lab",/' "$bundle/config.json"
exec runc "$@"
"""


def _unit(name: str) -> dict[str, str]:
    path = f"/lib/systemd/system/{name}.service"
    body = (
        f"[Unit]\nDescription={name}\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    )
    return {path: body}


# Ubuntu's unit and rule (nvidia-graphics-drivers, debian/templates): without persistence mode, started by udev when the driver is
# there, and stopped by systemd as soon as nothing else needs it.
PERSISTENCED_UNIT = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
_PERSISTENCED_RULE = 'ACTION=="add", DEVPATH=="/bus/pci/drivers/nvidia", TAG+="systemd", ENV{SYSTEMD_WANTS}="nvidia-persistenced.service"\n'
# Like the real one it sets persistence mode unless it is told not to, and takes it back when it ends. Where there are modules it
# keeps the driver open as well, and cannot start without it; the shell's children shall not: nobody knows their names.
_PERSISTENCED = """#!/bin/sh
{opens}
mode=1
case " $* " in *" --no-persistence-mode "*) mode=0 ;; esac
persist() {{
  trap 'nvidia-smi -pm 0 >/dev/null 2>&1 3<&-; kill $!; exit 0' TERM
  while :; do
    if [ $mode = 1 ] && nvidia-smi --query-gpu=persistence_mode --format=csv,noheader 2>/dev/null 3<&- | grep -q Disabled 3<&-; then
      nvidia-smi -pm 1 >/dev/null 2>&1 3<&-
    fi
    sleep {pause} 3<&- &
    wait
  done
}}
persist &
"""


def dkms_sources(name: str, version: str, modules: t.Sequence[str], sources: pathlib.Path) -> dict[str, t.Any]:
    """Files and scripts of a package that leaves its kernel modules to dkms, as ``dh_dkms`` makes them."""
    lines = [f'PACKAGE_NAME="{name}"', f'PACKAGE_VERSION="{version}"', 'AUTOINSTALL="yes"']
    for number, module in enumerate(modules):
        lines += [f'BUILT_MODULE_NAME[{number}]="{module}"', f'DEST_MODULE_LOCATION[{number}]="/updates/dkms"']
    place = f"/usr/src/{name}-{version}"
    return {
        "files": {
            f"{place}/dkms.conf": "\n".join([*lines, ""]),
            f"{place}/Kbuild": f"obj-m := {' '.join(f'{module}.o' for module in modules)}\n",
            f"{place}/version.h": f'#define LAB_VERSION "{version}"\n',
            **{f"{place}/{module}.c": {"source": str(sources / f"{module}.c")} for module in modules},
        },
        "postinst": f"#!/bin/sh\nset -e\n/usr/lib/dkms/common.postinst {name} {version}\n",
        "prerm": f"#!/bin/sh\nset -e\ndkms remove -m {name} -v {version} --all >/dev/null\n",
    }


def _open_module(version: str, kernel: str, modules: pathlib.Path | None) -> dict[str, t.Any]:
    """The files, for ``kernel`` as dkms would have left them, and the kernel told of them.

    The newest can be built for others: the first module of it, because a compiler takes half a minute for each under emulation.
    """
    made = sorted((modules / version).glob("*.ko")) if modules else []
    if not made:
        return {}
    sources = dkms_sources("nvidia", version, ["nvidia"], _SOURCES) if version == VERSIONS[-1] else {}
    files = {f"/lib/modules/{kernel}/updates/dkms/{path.name}": {"source": str(path)} for path in made}
    postinst = sources.pop("postinst", "#!/bin/sh\nset -e\n")
    return {**sources, "files": {**sources.get("files", {}), **files}, "postinst": f"{postinst}depmod {kernel}\n"}


def _persistenced(modules: pathlib.Path | None) -> dict[str, t.Any]:
    """The service as Ubuntu starts it."""
    # A simulated reboot of a container restarts nothing, so there the mode is looked after again and again.
    opens, pause = ("exec 3</dev/nvidiactl || exit 1", "infinity") if modules else (":", "2")
    return {
        "/lib/systemd/system/nvidia-persistenced.service": PERSISTENCED_UNIT,
        "/lib/udev/rules.d/71-nvidia.rules": _PERSISTENCED_RULE,
        "/usr/bin/nvidia-persistenced": {"content": _PERSISTENCED.format(opens=opens, pause=pause), "mode": "755"},
    }


def _driver(version: str, kernel: str, modules: pathlib.Path | None) -> list[dict[str, t.Any]]:
    branch = version.partition(".")[0]
    full = f"{version}-1"
    equal = f"(= {full})"
    least = f"(>= {full})"
    # Ordered after the target that wants it, as some versions of the real one are.
    (path, unit), *_rest = _unit("nvidia-fabricmanager").items()
    unit = unit.replace("\n[Service]", "\nAfter=multi-user.target\n[Service]")
    manager: dict[str, t.Any] = {"name": f"nvidia-fabricmanager-{branch}", "files": {path: unit}}
    if int(branch) >= 580:
        old = ["nvidia-fabricmanager-570"]
        manager.update(
            name="nvidia-fabricmanager", conflicts=old, replaces=old, provides=[f"nvidia-fabricmanager-{branch}"]
        )
    fails = f"#!/bin/sh\n[ ! -e {BREAK} ] || exit 1\n" if version == VERSIONS[-1] else ""
    parts: list[dict[str, t.Any]] = [
        {"name": "nvidia-open", "depends": [f"nvidia-kernel-open-dkms {least}", f"nvidia-driver-cuda {least}"]},
        {"name": "cuda-drivers", "depends": [f"nvidia-kernel-dkms {least}", f"nvidia-driver-cuda {least}"]},
        {
            "name": "nvidia-kernel-open-dkms",
            "conflicts": ["nvidia-kernel-dkms"],
            "depends": [f"firmware-nvidia-gsp {equal}"],
            **_open_module(version, kernel, modules),
        },
        {
            "name": "nvidia-kernel-dkms",
            "conflicts": ["nvidia-kernel-open-dkms"],
            "depends": [f"firmware-nvidia-gsp {equal}"],
        },
        {"name": "firmware-nvidia-gsp"},
        {
            "name": "nvidia-driver-cuda",
            "depends": [f"libcuda1 {equal}", f"libnvidia-ml1 {equal}", f"nvidia-persistenced {least}"],
        },
        {"name": "libcuda1", "depends": [f"libnvidia-ml1 {equal}"]},
        {
            "name": "libnvidia-ml1",
            "files": {f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}": "not a library\n"},
            "postinst": fails,
        },
        {"name": "nvidia-persistenced", "files": _persistenced(modules)},
        {"name": "nvidia-settings"},
        manager,
    ]
    return [{"version": full, **part} for part in parts]


def packages(kernel: str, modules: pathlib.Path | None = None) -> list[repository.Package]:
    """All packages; headers and modules are those of ``kernel``."""
    items: list[dict[str, t.Any]] = [part for version in VERSIONS for part in _driver(version, kernel, modules)]
    toolkit = ("nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools")
    for version in ("1.17.8-1", "1.18.0-1"):
        items += [{"name": name, "version": version} for name in toolkit[1:]]
        items.append(
            {
                "name": toolkit[0],
                "version": version,
                "files": {"/usr/bin/nvidia-container-runtime": {"content": _CONTAINER_RUNTIME, "mode": "755"}},
            }
        )
        items.append(
            {
                "name": "nvidia-container-toolkit",
                "version": version,
                "depends": [f"{name} (= {version})" for name in toolkit],
            }
        )
    dcgm = "datacenter-gpu-manager-4"
    items += [
        {"name": f"linux-headers-{kernel}", "version": "1"},
        # Beside Debian's linux-image-amd64, which machines have. Its own would bring headers of another kernel.
        {"name": "linux-headers-amd64", "version": "99:1", "depends": [f"linux-headers-{kernel}"]},
        {"name": f"{dcgm}-core", "version": "1:4.4.1-1", "files": _unit("nvidia-dcgm")},
        {"name": f"{dcgm}-proprietary", "version": "1:4.4.1-1"},
        *(
            {"name": f"{dcgm}{part}-cuda{cuda}", "version": "1:4.4.1-1", "depends": [f"{dcgm}-core"]}
            for cuda in (12, 13)
            for part in ("", "-proprietary")
        ),
        # What the .run file needs to build: ours have the higher versions, so that no compiler is fetched for a test. A machine
        # with a kernel of its own has the real ones.
        *({"name": name, "version": "99:1"} for name in (() if modules else ("dkms", "gcc", "make"))),
        {"name": "cuda-toolkit-12-9", "version": "12.9.1-1"},
        {"name": "cuda-toolkit-13-0", "version": "13.0.2-1"},
        {
            "name": "enroot",
            "version": "3.5.0-1",
            "files": {"/etc/enroot/mounts.d/10-system.fstab": "# the package's own\n"},
        },
        {"name": "enroot+caps", "version": "3.5.0-1", "depends": ["enroot"]},
    ]
    return repository.parse(items)


def _make(directory: pathlib.Path, name: str, kernel: str, modules: pathlib.Path | None) -> None:
    """NAME.tar, and NAME.json, which says what there is to know about it, once it is whole."""
    with tempfile.TemporaryDirectory(dir=directory) as work:
        place = pathlib.Path(work) / name
        repository.make(place, packages(kernel, modules), origin="NVIDIA stand-in")
        with tarfile.open(directory / f"{name}.tar", "w") as archive:
            archive.add(place, name)
        text = {
            "path": f"/opt/{name}",
            "archive": str(directory / f"{name}.tar"),
            "sha256": hashlib.sha256((directory / f"{name}.tar").read_bytes()).hexdigest(),
            "fingerprint": repository.fingerprint(place),
            "kernel": kernel,
        }
        (directory / f"{name}.json").write_text(json.dumps(text))


def main(argv: t.Sequence[str]) -> int:
    """Make and pack the repository, unless it is there; print what there is to know about it as JSON."""
    directory, kernel = pathlib.Path(argv[0]).resolve(), argv[1]
    modules = pathlib.Path(argv[2]) if len(argv) > 2 else None
    recipe = [pathlib.Path(__file__).read_bytes(), pathlib.Path(repository.__file__).read_bytes(), kernel.encode()]
    if modules:
        recipe += [path.read_bytes() for path in (*sorted(modules.glob("*/*.ko")), *sorted(_SOURCES.iterdir()))]
    name = f"nvidia-{hashlib.sha256(b''.join(recipe)).hexdigest()[:12]}"
    about = directory / f"{name}.json"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # scenarios run beside each other
        if not about.exists():
            _make(directory, name, kernel, modules)
    print(about.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
