# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another kernel comes to a node: Debian's for clouds, in a repository beside the sources of an InfiniBand stack's module.

The packages of the kernel and of its headers are Debian's own (tests/lab/vm/modules/next_kernel), dkms, gcc and the hooks of both
are what the image has. What brings them is ours: newer versions of Debian's metapackages, and OFED's packages with our sources.
"""

from __future__ import annotations

import pathlib
import tarfile
import typing as t

from lab.package_repository import nvidia, repository
from lab.vm import state
from own_machine import NODE
from rdma import OFED, archives

if t.TYPE_CHECKING:
    from conftest import VmLab

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACE = "/opt/lab-kernel"
_LIST = "/etc/apt/sources.list.d/lab-kernel.list"
_INITRAMFS = "/etc/kernel/postinst.d/initramfs-tools"
_STACK = ("mlnx-ofed-kernel", "mlnx-ofed-kernel-dkms", "ofed-scripts")
#: The command of an operator who wants the newer kernel, and does not think of its headers.
UPGRADE = f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y install linux-image-amd64 {' '.join(_STACK)} >/dev/null"


def _kernels(lab: VmLab) -> pathlib.Path:
    return pathlib.Path(lab.lab["image"]) / "kernels"


def releases(lab: VmLab) -> tuple[str, str]:
    """The kernel that nodes start with, and the other one."""
    kernels = _kernels(lab)
    own = (kernels / "default").readlink().name
    (other,) = {path.name for path in kernels.iterdir()} - {"default", own}
    return own, other


def _stack(lab: VmLab, directory: pathlib.Path) -> list[pathlib.Path]:
    """OFED's packages with the module for the nodes' own kernel, and openibd."""
    own, _other = releases(lab)
    debian = lab.shell(NODE, "cat /etc/debian_version").strip()
    made = archives(directory, debian, own, pathlib.Path(lab.lab["image"]) / "modules" / "mlx5_core")
    with tarfile.open(made.files[OFED]) as archive:
        members = [one for one in archive if one.name.endswith(".deb")]
        archive.extractall(directory, members)
    return [directory / one.name for one in members if one.name.rpartition("/")[2].startswith(("mlnx-ofed", "ofed"))]


def offer(lab: VmLab, directory: pathlib.Path) -> str:
    """Bring the repository to the node, where apt reads it; returns the new kernel's release. ``directory``: for work."""
    _own, other = releases(lab)
    sources = nvidia.dkms_sources(
        "mlnx-ofed-kernel", OFED, ["mlx5_core"], ROOT / "tests" / "lab" / "vm" / "modules" / "mlx5_core"
    )
    packages = repository.parse(
        [
            *(
                {"name": f"linux-{what}-amd64", "version": "99:2", "depends": [f"linux-{what}-{other}"]}
                for what in ("image", "headers")
            ),
            {"name": "mlnx-ofed-kernel-dkms", "version": OFED, "depends": ["dkms"], **sources},
        ]
    )
    place = directory / pathlib.Path(PLACE).name
    kernels = [path for release in releases(lab) for path in (_kernels(lab) / release).glob("*.deb")]
    repository.make(place, packages, "Debian stand-in", [*kernels, *_stack(lab, directory)])
    packed = directory / "packed.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(place, place.name)
    lab.unpack(NODE, packed.read_bytes(), "/opt")
    # The kernel is started by QEMU, with an initramfs of its own: making one takes a minute under emulation.
    lab.shell(NODE, f"chmod -x {_INITRAMFS}; echo '{repository.source(PLACE).strip()}' >{_LIST}; apt-get -qq update")
    return other


def withdraw(lab: VmLab) -> None:
    """Leave the node with its own kernel only, and running it; a test that was interrupted may have left anything."""
    own, other = releases(lab)
    (brought,) = (path.name for path in (_kernels(lab) / own).glob("*.deb"))
    names = " ".join((*_STACK, "linux-headers-amd64", f"linux-headers-{other}", f"linux-image-{other}"))
    lab.shell(
        NODE,
        f"""[ -d {PLACE} ] || exit 0
        dpkg --install {PLACE}/{brought} >/dev/null
        # It would refuse, because this kernel runs.
        rm -f /var/lib/dpkg/info/linux-image-{other}.prerm
        dpkg --purge {names} >/dev/null
        rm -rf /lib/modules/{other} /var/lib/dkms/mok.* {_LIST} {PLACE}
        chmod +x {_INITRAMFS}
        sync""",
    )
    assert boot(lab) == own
    if lab.run(NODE, "uname", "-r").strip() != own:
        lab.power_cycle(NODE)


def boot(lab: VmLab) -> str:
    """Let the next start of the node take what its own disk says, as a boot loader would; returns that kernel's release."""
    release = lab.run(NODE, "readlink", "/vmlinuz").strip().rpartition("vmlinuz-")[2]
    state.choose_kernel(lab.paths, lab.lab, NODE, release)
    return release


__all__ = ["PLACE", "UPGRADE", "boot", "offer", "releases", "withdraw"]
