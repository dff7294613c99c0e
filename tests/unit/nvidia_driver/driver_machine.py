# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node in memory that answers every program which ``nvidia_driver`` runs, and writes down what it was asked.

Only programs, files and units are faked, so that whatever the module is made of runs as on a node.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.changes import Change
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import SmiRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import Request

NEW, OLD = "580.95.05", "570.124.06"
#: What apt installs for nvidia-open, and what dnf does.
PARTS = ("libcuda1", "nvidia-kernel-open-dkms", "nvidia-open")
UNITS = ("nvidia-persistenced.service", "nvidia-dcgm.service")
KERNEL = "6.8.0-1031-azure"
EL_KERNEL = "5.14.0-503.14.1.el9_5.x86_64"
#: The headers of a kernel that is installed beside the one that runs.
_OTHER_HEADERS = "kernel-devel|0:5.14.0-427.13.1.el9_4|x86_64\n"
_RELAXED = "--ignore-hold --allow-change-held-packages --allow-downgrades --no-install-recommends -o ..."
Answer = tuple[int, str, str]


@dataclasses.dataclass
class Machine:
    """A node. ``fails`` has the beginnings of the commands that fail; ``broken`` packages are half-configured.

    ``fabric``: the version of Fabric Manager, where it is not that of the driver, or is there without NVSwitches.
    """

    root: pathlib.Path
    installed: str = ""
    loaded: str = ""
    runfile: str = ""
    system: str = "dpkg"
    gpus: int = 1
    switches: int = 0
    fabric: str = ""
    bridges: int = 0
    nouveau: bool = False
    broken: bool = False
    held: bool = True
    stale: bool = False
    fabric_unit: str = ""
    next_kernel: str = ""
    built_for: tuple[str, ...] = (KERNEL, EL_KERNEL)
    others: tuple[str, ...] = ()
    secure_boot: bool = False
    enrolled: bool = False
    serving: bool = True
    ecc: bool = True
    cuda_code: int = 0
    silent: bool = False
    hangs: bool = False
    persistence: bool = True
    running: list[str] = dataclasses.field(default_factory=lambda: list(UNITS))
    extras: tuple[str, ...] = ("nvidia_uvm",)
    fails: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    done: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.packages = dict.fromkeys(PARTS, f"{self.installed}-1") if self.installed else {}
        if (self.switches or self.fabric) and self.installed:
            self.packages["nvidia-fabricmanager"] = f"{self.fabric or self.installed}-1"
        self.names: set[str] = set(self.packages)
        self.ready: set[str] = set()
        self.drained_by, self.pending = "", self.ecc
        for number in range(self.gpus + self.switches):
            self._write(f"sys/bus/pci/devices/0001:00:0{number}.0/vendor", "0x10de")
            kind = "0x030200" if number < self.gpus else "0x068000"
            self._write(f"sys/bus/pci/devices/0001:00:0{number}.0/class", kind)
            device = "0x2901" if self.bridges else "0x20b0"
            self._write(f"sys/bus/pci/devices/0001:00:0{number}.0/device", device)
        for number in range(self.bridges):
            self._write(f"sys/bus/pci/devices/0002:00:0{number}.0/vendor", "0x15b3")
            self._write(f"sys/bus/pci/devices/0002:00:0{number}.0/vpd", "SMDL SW_MNG")
        ident = 'ID=debian\nVERSION_ID="12"\n' if self.system == "dpkg" else 'ID=rocky\nVERSION_ID="9.4"\n'
        self._write("etc/os-release", ident)
        if self.runfile:
            self._write("usr/bin/nvidia-uninstall", "")
            self._write(f"usr/lib64/libnvidia-ml.so.{self.runfile}", "")
        for unit in UNITS:
            self._write(f"usr/lib/systemd/system/{unit}", "[Service]\n")
        if self.switches or self.fabric or self.bridges:
            vendor = "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/bin/fm\n"
            self._write("usr/lib/systemd/system/nvidia-fabricmanager.service", vendor)
        self.packages.update(dict.fromkeys(self.others, "6.8.0-1032"))
        if self.next_kernel:
            self._write(f"boot/vmlinuz-{self.next_kernel}", "")
            (self.root / "boot/vmlinuz").symlink_to(f"vmlinuz-{self.next_kernel}")
        if self.secure_boot:
            self._write("var/lib/dkms/mok.pub", "")
            variable = self.root / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
            variable.parent.mkdir(parents=True)
            variable.write_bytes(b"\x06\x00\x00\x00\x01")
        if self.fabric_unit:
            self._write("usr/lib/systemd/system/nvidia-fabricmanager.service", "[Service]\nExecStart=/bin/fm\n")
            self._write("etc/systemd/system/nvidia-fabricmanager.service", self.fabric_unit)
            self.ready.add("/etc/systemd/system/nvidia-fabricmanager.service")
        if "gdrdrv" in self.extras:
            self._write("etc/init.d/gdrdrv", "")
        if self.nouveau:
            self._write("sys/module/nouveau/version", "")
        if self.loaded:
            self._load(self.loaded)

    def _write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def _load(self, version: str, *, at_boot: bool = True) -> None:
        self._write("sys/module/nvidia/version", version)
        self._write(
            "proc/driver/nvidia/version", f"NVRM: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release"
        )
        for name in self.extras:
            # Nothing but a boot loads it by itself.
            if at_boot or name != "gdrdrv":
                self._write(f"sys/module/{name}/x", "")

    def _forget(self, name: str) -> None:
        for file in (self.root / "sys/module" / name).glob("*"):
            file.unlink()
        (self.root / "sys/module" / name).rmdir()
        if name == "nvidia":
            (self.root / "proc/driver/nvidia/version").unlink()

    @property
    def on_disk(self) -> str:
        """The version of the module that modprobe would load."""
        return self.runfile or self.packages.get(PARTS[1], "").partition("-")[0]

    def reboot(self) -> None:
        """Boot: what lies on the disk is what runs, and pending modes are taken."""
        for name in [path.name for path in (self.root / "sys/module").glob("*")]:
            if name != "nvidia":
                self._forget(name)
        if self.on_disk:
            self._load(self.on_disk)
        self.ecc = self.pending

    # -- what is asked -------------------------------------------------------------------------------------------------

    def command(self, argv: t.Sequence[str]) -> Answer:
        """One command, as ``AnsibleModule.run_command`` answers it."""
        line = re.sub(r"/[\w/]*/(nvidia-driver|transaction)-\w+(\.pref)?", "TMP", " ".join(argv)).replace(
            str(self.root), ""
        )
        # Which options apt always gets is proven elsewhere.
        line = re.sub(r"( -o \S+)+", " -o ...", line) if argv[0] == "apt-get" else line
        line = line.replace(_RELAXED, "...")
        self.done.append(line)
        program = pathlib.PurePath(argv[0]).name.replace("-", "_")
        if any(line.startswith(one) for one in self.fails):
            return 1, "", f"{argv[-1]} does not.\n"
        answer: Answer | str | None = getattr(self, f"_{program}")(list(argv[1:]))
        return answer if isinstance(answer, tuple) else (0, answer or "", "")

    def _dpkg_query(self, _words: list[str]) -> str:
        want, state = ("hold" if self.held else "install"), ("half-configured" if self.broken else "installed")
        return "".join(f"{name}|{version}|{want}|{state}|ok\n" for name, version in sorted(self.packages.items()))

    def _dpkg(self, words: list[str]) -> Answer | None:
        if words[0] == "--compare-versions":
            return (0 if words[1] > words[3] else 1), "", ""
        return None

    def _apt_cache(self, words: list[str]) -> str:
        return "" if self.stale else "".join(f" {name} | {NEW}-1 | repository\n" for name in words[1:])

    def _apt_get(self, words: list[str]) -> str | None:
        if "update" in words:
            self.stale = False
            return None
        names = [re.split("[=]", word)[0] for word in words[words.index("--") + 1 :]]
        if "-s" in words:
            return self._simulate(names, remove="remove" in words)
        if "--download-only" not in words:
            self._change(names, remove="purge" in words)
        return None

    def _whole(self, names: t.Sequence[str]) -> list[str]:
        return sorted({*names, *(PARTS if "nvidia-open" in names else ())})

    def _simulate(self, names: t.Sequence[str], *, remove: bool) -> str:
        if remove:
            return "".join(f"Remv {name} [{self.packages[name]}]\n" for name in names)
        olds = {name: f"[{self.packages[name]}] " if name in self.packages else "" for name in self._whole(names)}
        return "".join(f"Inst {name} {old}({NEW}-1 repository)\n" for name, old in olds.items())

    def _change(self, names: t.Sequence[str], *, remove: bool) -> None:
        for name in self._whole(names):
            self.packages.pop(name, None)
            if not remove:
                self.packages[name] = f"{NEW}-1"
        self.broken, self.held = False, False

    def _apt_mark(self, _words: list[str]) -> None:
        self.held = True

    def _rpm(self, _words: list[str]) -> str:
        found = [
            f"kernel-devel|0:{name[len('kernel-devel-') :].rpartition('.')[0]}|x86_64\n"
            if name.startswith("kernel-devel-")
            else f"{name}|0:{version}|x86_64\n"
            for name, version in sorted(self.packages.items())
        ]
        return "".join([*found, _OTHER_HEADERS])

    def _dnf(self, words: list[str]) -> Answer | str | None:
        if "--assumeno" in words:
            rows = "".join(f" {name}  x86_64  {NEW}-1  repository  1 M\n" for name in PARTS)
            return 1, f"Installing:\n{rows}\nTransaction Summary\n", ""
        if "install" in words and "--downloadonly" not in words:
            names = [word.partition(f"-{NEW}")[0] for word in words[words.index("install") + 1 :]]
            self._change(names, remove=False)
        return None

    def _modinfo(self, words: list[str]) -> Answer | str:
        if not self.on_disk or words[-1] != "nvidia" or words[1] not in self.built_for:
            return 1, "", "not found\n"
        return f"version: {self.on_disk}\nlicense: Dual MIT/GPL\n"

    def _modprobe(self, words: list[str]) -> None:
        if "-r" in words:
            for name in words[2:]:
                self._forget(name)
        elif words[0] == "nvidia":
            self._load(self.on_disk, at_boot=False)
        elif words[0] in ("mlx5_ib", "ib_umad", "nvidia_peermem", "gdrdrv"):
            self._write(f"sys/module/{words[0]}/x", "")
        if words[0] == "gdrdrv":
            self._write("dev/gdrdrv", "")

    def _systemctl(self, words: list[str]) -> Answer | None:
        unit = words[-1]
        if words[0] == "is-active":
            return (0 if unit in self.running else 3), "", ""
        if words[0] == "stop":
            self.running.remove(unit)
        elif unit not in self.running:
            self.running.append(unit)
        return None

    def _scontrol(self, words: list[str]) -> str | None:
        if words[0] == "update":
            self.drained_by = words[-1].partition("=")[2] if words[-1].startswith("Reason") else ""
            return None
        return f"NodeName=gpu-1 State={'IDLE+DRAIN Reason=' + self.drained_by if self.drained_by else 'IDLE'}\n"

    def _update_initramfs(self, _words: list[str]) -> None:
        return None

    def _mokutil(self, words: list[str]) -> str:
        # The words of mokutil's source (src/mokutil.c, test_key).
        return f"{words[-1]} is {'already' if self.enrolled else 'not'} enrolled\n"

    def _sh(self, _words: list[str]) -> None:
        for file in (self.root / "usr/lib64").glob("libnvidia-ml.so.*"):
            file.unlink()
        self._write(f"usr/lib64/libnvidia-ml.so.{NEW}", "")
        self.runfile = NEW

    def _nvidia_uninstall(self, _words: list[str]) -> None:
        self.runfile = ""

    # -- files, units and GPUs -----------------------------------------------------------------------------------------

    def state(self, request: Request, *, check: bool) -> list[Change]:
        """What node_state does: a file is made once, a unit is started once."""
        changes = []
        for file in request.files:
            if file.path not in self.ready:
                changes.append({"kind": "file", "name": file.path, "what": "create"})
        for absent in request.absent:
            if absent.path in self.ready:
                changes.append({"kind": "path", "name": absent.path, "what": "remove"})
        for unit in request.units:
            if (unit.name in self.running) != (unit.state == "started"):
                what = "start" if unit.state == "started" else "stop"
                changes.append({"kind": "unit", "name": unit.name, "what": what})
        for change in changes if not check else []:
            self._settle(**change)
        self.done += [] if check else [f"{change['what']} {change['name']}" for change in changes]
        return [Change(**change) for change in changes]

    def _settle(self, kind: str, name: str, what: str) -> None:
        if kind == "unit":
            (self.running.append if what == "start" else self.running.remove)(name)
        elif what == "create":
            self.ready.add(name)
        else:
            self.ready.remove(name)

    def cells(self, fields: t.Sequence[str]) -> str:
        """The rows of nvidia-smi; none where no driver runs."""
        version = self.root / "sys/module/nvidia/version"
        if not version.exists():
            return ""
        words = {True: "Enabled", False: "Disabled"}
        known = {"driver_version": version.read_text(), "name": "NVIDIA A100", "compute_cap": "8.0"}
        known.update({"ecc.mode.current": words[self.ecc], "ecc.mode.pending": words[self.pending]})
        rows = []
        for index in range(self.gpus):
            known["persistence_mode"] = words[self.persistence]
            row = {"index": str(index), "uuid": f"GPU-{index}", "pci.bus_id": f"0001:00:0{index}.0", **known}
            rows.append(", ".join(row.get(field, "[N/A]") for field in fields))
        return "\n".join(rows) + "\n"

    def smi(self, words: t.Sequence[str]) -> None:
        """A mode that is set, or a reset."""
        self.done.append(f"nvidia-smi {' '.join(words)}")
        if words[-1] == "--gpu-reset":
            self.ecc = self.pending
        elif words[-2] == "-e":
            self.pending = words[-1] == "1"

    def cuda(self, library: str) -> SmiRun:
        """What a start of CUDA gives."""
        self.done.append(f"cuInit of {library}")
        return SmiRun(0, json.dumps({"code": self.cuda_code, "name": "", "devices": self.gpus}))

    def fabric_of(self, words: t.Sequence[str]) -> SmiRun:
        """What nvidia-smi says of GPUs that do not register with a fabric."""
        self.done.append(f"nvidia-smi {' '.join(words)}")
        if self.silent:
            return SmiRun(15, "", "NVML does not answer.\n")
        return SmiRun(0, "    Fabric\n        State : N/A\n        Status : N/A\n")


__all__ = ["EL_KERNEL", "KERNEL", "NEW", "OLD", "UNITS", "Machine"]
