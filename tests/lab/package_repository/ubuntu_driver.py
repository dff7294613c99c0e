# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's packages as Canonical has them in Ubuntu, and NVIDIA in its repository for Ubuntu. There is no driver in them.

Names, versions and relations: Canonical's own packaging (`README.md`). What is like it: a driver, its kernel module and what both
share demand each other by the upstream version, with names between them that carry it (``nvidia-kernel-common-580-server-580.95.05``);
the firmware's package has the version in its name, so that an older one stays behind; flavors exclude each other by virtual
names; a branch that ends becomes empty packages which ask for the next one.
"""

from __future__ import annotations

import typing as t

Item = dict[str, t.Any]
#: What this file holds decides how the newest driver's installation ends: ``fail`` or ``kill``, which is a power cut for dpkg.
BREAK = "/run/break-nvidia-driver"
_BREAKING = f"""#!/bin/sh
case $(cat {BREAK} 2>/dev/null) in
  fail) exit 1 ;;
  kill) kill -9 $PPID ;;
esac
"""
_PERSISTENCED = """[Unit]
Description=NVIDIA Persistence Daemon
StopWhenUnneeded=true
[Service]
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
"""


def _virtual(*names: str) -> Item:
    """For packages of which there is only one at a time."""
    return {"provides": list(names), "conflicts": list(names), "replaces": list(names)}


class Graphics:
    """One version of one flavor of the driver: ``580-server``, or ``580`` for desktops.

    ``strict``: everything demands this very package version, as in NVIDIA's repository.
    """

    def __init__(self, flavor: str, version: str, full: str, *, strict: bool = False) -> None:
        self.flavor, self.version, self.full, self.strict = flavor, version, full, strict
        self.common = f"nvidia-kernel-common-{flavor}"
        self.provided = f"{self.common}-{version}"

    def exactly(self, *names: str) -> list[str]:
        return [f"{name}-{self.flavor} (= {self.full})" for name in names]

    def about(self, *names: str) -> list[str]:
        """Whatever revision of the packaging it is."""
        if self.strict:
            return [f"{name} (= {self.full})" for name in names]
        return [text for name in names for text in (f"{name} (<= {self.version}-1)", f"{name} (>= {self.version})")]

    def items(self) -> list[Item]:
        """All packages, those of both kernel modules among them."""
        items = [*self._shared(), *(item for tail in ("", "-open") for item in self._of_module(tail))]
        return [{"version": self.full, **item} for item in items]

    def _of_module(self, tail: str) -> list[Item]:
        name = f"{self.flavor}{tail}"
        source, dkms = f"nvidia-kernel-source-{name}", f"nvidia-dkms-{name}"
        libraries = self.exactly("libnvidia-compute", "nvidia-compute-utils", "libnvidia-cfg1")
        desktop = ("libnvidia-gl", "libnvidia-extra", "libnvidia-decode", "libnvidia-encode", "libnvidia-fbc1")
        license_text = "Dual MIT/GPL" if tail else "NVIDIA"
        without = f"nvidia-headless-no-dkms-{name}"
        return [
            {"name": source, **_virtual("nvidia-kernel-source")},
            {
                "name": dkms,
                "depends": ["dkms", *self.about(source, self.common)],
                **_virtual("nvidia-dkms-kernel"),
                "files": {f"/usr/src/nvidia-{name}-{self.version}/modules": f"nvidia|{self.version}|{license_text}\n"},
                "postinst": "#!/bin/sh\ndkms autoinstall\n",
                "prerm": "#!/bin/sh\nrm -f /lib/modules/*/updates/dkms/nvidia.ko\n",
            },
            {"name": without, "depends": [*self.about(self.common), f"{source} (= {self.full})", *libraries]},
            {"name": f"nvidia-headless-{name}", "depends": [without, dkms], **_virtual("nvidia-headless")},
            {
                "name": f"nvidia-driver-{name}",
                "depends": [
                    *self.about(dkms, self.common),
                    f"{source} (= {self.full})",
                    *libraries,
                    *self.exactly("nvidia-utils", "xserver-xorg-video-nvidia", *desktop),
                ],
                "recommends": ["nvidia-settings"],
            },
        ]

    def _shared(self) -> list[Item]:
        flavor, full = self.flavor, self.full
        firmware, other = f"nvidia-firmware-{flavor}-{self.version}", flavor.replace("-server", "")
        other = f"nvidia-firmware-{other if other != flavor else f'{flavor}-server'}-{self.version}"
        of_version: Item = {"depends": [self.provided]}
        library = f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{self.version}"
        single = ("gl", "extra", "decode", "encode", "fbc1")
        return [
            {
                "name": self.common,
                "depends": [firmware],
                "conflicts": ["nvidia-kernel-common"],
                "replaces": ["nvidia-kernel-common"],
                "provides": ["nvidia-kernel-common", self.provided],
            },
            {"name": firmware, "breaks": [other], "replaces": [other]},
            {"name": f"nvidia-utils-{flavor}", **of_version, **_virtual("nvidia-utils", "nvidia-smi")},
            {
                "name": f"libnvidia-compute-{flavor}",
                **of_version,
                **_virtual("libnvidia-compute"),
                "provides": ["libnvidia-compute", f"libnvidia-ml1 (= {full})", f"libcuda1 (= {full})"],
                "files": {library: "not a library\n"},
                "postinst": _BREAKING,
            },
            {
                "name": f"nvidia-compute-utils-{flavor}",
                "depends": [f"libnvidia-compute-{flavor}", "adduser"],
                **_virtual("nvidia-compute-utils", "nvidia-persistenced"),
                "files": {"/usr/lib/systemd/system/nvidia-persistenced.service": _PERSISTENCED},
            },
            {"name": f"libnvidia-cfg1-{flavor}", **of_version, **_virtual("libnvidia-cfg1-any")},
            {"name": f"xserver-xorg-video-nvidia-{flavor}", "depends": self.exactly("libnvidia-cfg1")},
            *({"name": f"libnvidia-{one}-{flavor}", **of_version, **_virtual(f"libnvidia-{one}")} for one in single),
        ]


def for_nvswitches(branch: str, version: str, full: str) -> list[Item]:
    """Fabric Manager and the library that asks NVSwitches, as Ubuntu names them."""
    # The real one starts with the machine; this one as some versions of NVIDIA's do not.
    unit = "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    return [
        {
            "name": f"nvidia-fabricmanager-{branch}",
            "version": full,
            "depends": [f"nvidia-kernel-common-{branch}-server-{version}"],
            **_virtual("nvidia-fabricmanager"),
            "files": {"/usr/lib/systemd/system/nvidia-fabricmanager.service": unit},
        },
        {"name": f"libnvidia-nscq-{branch}", "version": full, **_virtual("libnvidia-nscq")},
    ]


def signed_modules(kernel: str, version: str, driver: Graphics) -> list[Item]:
    """The modules that Canonical builds and signs for a kernel, at ``version``, and what follows the newest kernel."""
    metas, kernel_flavor = [], kernel.rpartition("-")[2]
    items: list[Item] = [{"name": f"linux-signatures-nvidia-{kernel}", "version": version}]
    for tail, license_text in (("", "NVIDIA"), ("-open", "Dual MIT/GPL")):
        name = f"linux-modules-nvidia-{driver.flavor}{tail}"
        objects = f"linux-objects-nvidia-{driver.flavor}-{kernel}"
        signed = [f"linux-signatures-nvidia-{kernel} (= {version})", f"{objects} (= {version})"]
        place = f"/usr/lib/modules/{kernel}/kernel/nvidia-{driver.flavor}{tail}"
        items += [] if tail else [{"name": objects, "version": version}]
        items.append(
            {
                "name": f"{name}-{kernel}",
                "version": version,
                "depends": [
                    f"linux-image-{kernel} | linux-image-unsigned-{kernel}",
                    *([] if tail else signed),
                    *driver.about(driver.common),
                ],
                "files": {f"{place}/nvidia.ko": f"version:        {driver.version}\nlicense:        {license_text}\n"},
            }
        )
        metas.append(
            {
                "name": f"{name}-{kernel_flavor}",
                "version": version,
                "depends": [f"{name}-{kernel} (= {version})", *driver.about(driver.common)],
            }
        )
    return [*items, *metas]


def given_up(flavor: str, full: str, follower: str) -> list[Item]:
    """A branch after its end: its packages are empty and ask for those of the next one."""
    names = [
        f"{name}-{{}}{tail}" for name in ("nvidia-driver", "nvidia-dkms", "nvidia-headless") for tail in ("", "-open")
    ]
    names += [f"nvidia-headless-no-dkms-{{}}{tail}" for tail in ("", "-open")]
    names += [f"{name}-{{}}" for name in ("nvidia-utils", "libnvidia-compute", "nvidia-compute-utils")]
    names += [f"{name}-{{}}" for name in ("nvidia-kernel-common", "libnvidia-cfg1")]
    return [{"name": one.format(flavor), "version": full, "depends": [one.format(follower)]} for one in names]


__all__ = ["BREAK", "Graphics", "Item", "for_nvswitches", "given_up", "signed_modules"]
