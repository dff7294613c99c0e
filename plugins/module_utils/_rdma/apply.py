# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The half of ``rdma_stack`` that looks at the node, and installs and removes a stack."""

from __future__ import annotations

import contextlib
import glob
import os
import platform
import shutil
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.command import Host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.archive import fetch_archive
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.packages import missing_packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.plan import (
    DISTRIBUTION_PACKAGES,
    DOCA_PACKAGES,
    Modules,
    Software,
    Step,
    System,
    Wanted,
    artifact_url,
    check_kernel,
    chosen_sum,
    conflicts,
    installed_stack,
    installer_arguments,
    is_vendor_module,
    os_tag,
    parse_modinfo,
    parse_ofed_info,
    parse_packages,
    parse_removals,
    plan_reboot,
    refuse_conflicts,
    wants_initramfs,
)

# Says that an installation began; gone when it ended well.
UNFINISHED = Path("/var/lib/mofed/unfinished")
_DRIVERS = ("mlx5_core", "ib_core")
_DOCA_KERNEL_SUPPORT = "/opt/mellanox/doca/tools/doca-kernel-support"
# An empty package that stands for DOCA's Open MPI where another one is used.
_MARKER = "mofed-provides-openmpi"
_TAIL = 4000


def in_container(root: Path = Path("/")) -> bool:
    """Whether the kernel is somebody else's."""
    return any((root / path).exists() for path in ("run/systemd/container", "run/.containerenv", ".dockerenv"))


def read_system(kernel: str = "", root: Path = Path("/")) -> System:
    """What this node is; ``kernel`` takes the place of the running one where an image is built."""
    tag = os_tag(read_text(root / "etc/os-release"), read_text(root / "etc/debian_version"))
    manager = "dpkg" if shutil.which("dpkg-query") else "rpm"
    return System(tag, platform.machine(), manager, kernel or platform.release(), in_container(root))


def read_software(host: Host, system: System) -> Software:
    """Which RDMA software is installed."""
    names = [*DOCA_PACKAGES, "doca-host", _MARKER, *DISTRIBUTION_PACKAGES]
    if system.manager == "dpkg":
        form = "${db:Status-Abbrev}|${Package}|${Version}\\n"
        _rc, out, _err = host.run_command(["dpkg-query", "-W", "-f", form, "--", *names])
    else:
        _rc, out, _err = host.run_command(["rpm", "-q", "--qf", "ii|%{NAME}|%{VERSION}-%{RELEASE}\\n", "--", *names])
    ofed = ""
    if shutil.which("ofed_info"):
        _rc, answer, _err = host.run_command(["ofed_info", "-s"])
        ofed = parse_ofed_info(answer)
    return Software(ofed, parse_packages(out), read_text(UNFINISHED))


def read_modules(host: Host, system: System, root: Path = Path("/")) -> Modules:
    """The modules on disk for the kernel, compared with those that are loaded."""
    loaded = [name for name in _DRIVERS if (root / "sys/module" / name).is_dir()]
    _rc, out, _err = host.run_command(["modinfo", "-k", system.kernel, *_DRIVERS])
    on_disk = {Path(item["filename"]).name.split(".")[0]: item for item in parse_modinfo(out)}
    # A kernel may be built without these digests of its sources; a vendor's modules always have them.
    stale = [
        name
        for name in loaded
        if name in on_disk
        and read_text(root / "sys/module" / name / "srcversion") != on_disk[name].get("srcversion", "")
    ]
    driver = on_disk.get(_DRIVERS[0])
    return Modules(
        found=driver is not None,
        vendor=driver is not None and is_vendor_module(driver["filename"]),
        loaded=bool(loaded),
        stale=tuple(stale),
        headers=(root / "lib/modules" / system.kernel / "build").is_dir(),
    )


class Stack:
    """Carries out the steps that were planned."""

    def __init__(self, host: Host, params: t.Mapping[str, t.Any], wanted: Wanted, system: System) -> None:
        self.host = host
        self.params = params
        self.wanted = wanted
        self.system = system
        self.file = ""
        self.installer: list[str] = []

    def run(self, argv: t.Sequence[str], what: str, **kwargs: t.Any) -> str:
        """Run a command that must succeed; returns what it said."""
        limit = ["timeout", "--kill-after=30", str(self.params["timeout_s"])]
        rc, out, err = self.host.run_command([*limit, *argv], **kwargs)
        if rc == 124:
            raise ClusterError(
                "timeout",
                f"{what} took longer than {self.params['timeout_s']} s and was ended.",
                "Look at what it said, raise `timeout_s`, and run again: it starts over.",
                output=(out + err)[-_TAIL:],
            )
        if rc != 0:
            said = (err.strip() or out.strip()).splitlines()
            raise ClusterError(
                "command_failed",
                f"{what} failed: {said[-1].strip() if said else f'exit status {rc}'}.",
                "Read its output in this result, correct the cause, and run again: it starts over.",
                output=(out + err)[-_TAIL:],
            )
        return out + err

    # -- packages --------------------------------------------------------------------------------------------------

    def apt(self, *words: str) -> list[str]:
        """``apt-get`` with what every call needs."""
        return ["apt-get", "--yes", "-o", "DPkg::Lock::Timeout=300", *words]

    def install_packages(self, names: t.Sequence[str]) -> None:
        """From the node's repositories. Package lists are read again only where a first try failed."""
        if not names:
            return
        if self.system.manager == "rpm":
            self.run([shutil.which("dnf") or "yum", "--assumeyes", "install", *names], f"installing {', '.join(names)}")
            return
        argv = self.apt("install", "--no-install-recommends", *names)
        if self.host.run_command(argv)[0] != 0:
            self.run(self.apt("update"), "reading the package lists")
            self.run(argv, f"installing {', '.join(names)}")

    def missing(self, items: t.Sequence[t.Any]) -> list[str]:
        """Packages that are not there yet."""
        return missing_packages(items, self.host)[0]

    # -- steps -----------------------------------------------------------------------------------------------------

    def apply(self, step: Step) -> Step:
        """Do one step; returns what was done. A reboot takes the place of a restart that fails, where it may."""
        try:
            getattr(self, f"_do_{step.kind}")(step)
        except ClusterError as exc:
            if (
                exc.kind not in ("still_loaded", "command_failed")
                or step.kind != "restart"
                or not self.wanted.allow_reboot
            ):
                raise
            return plan_reboot(step.before)
        return step

    @contextlib.contextmanager
    def _marked(self, what: str) -> t.Iterator[None]:
        UNFINISHED.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        UNFINISHED.write_text(f"{what}\n", encoding="utf-8")
        yield
        UNFINISHED.unlink()
        with contextlib.suppress(OSError):
            UNFINISHED.parent.rmdir()

    @contextlib.contextmanager
    def prepared(self, steps: t.Iterable[Step]) -> t.Iterator[None]:
        """Fetch, check and unpack what the steps will install, and refuse what cannot work, before the first of them."""
        kinds = {step.kind for step in steps}
        built_here = self.wanted.source == "doca" and self.system.manager == "dpkg"
        if "install" not in kinds and ("rebuild" not in kinds or built_here):
            yield
            return
        # Not /tmp: the unpacked installer needs gigabytes, and /tmp may be memory or forbid programs.
        work = tempfile.mkdtemp(prefix="mofed.", dir="/var/tmp")
        try:
            self.file = self._fetch(work)
            if self.wanted.source == "mlnx_ofed":
                self._unpack(rebuild="rebuild" in kinds)
            yield
        finally:
            shutil.rmtree(work)

    def _fetch(self, directory: str) -> str:
        version, source = self.wanted.version, self.wanted.source
        address = self.params["artifact"] or artifact_url(source, self.params["mirror"], version, self.system)
        target = os.path.join(directory, address.rsplit("/", 1)[-1].split("?", 1)[0])
        digest = chosen_sum(self.params["sha256"], version, self.system)
        fetch_archive(address, target, digest, self.params["timeout_s"])
        return target

    def _unpack(self, *, rebuild: bool) -> None:
        tree = os.path.join(os.path.dirname(self.file), "tree")
        os.mkdir(tree)
        unpack = ["tar", "-x", "-f", self.file, "-C", tree, "--no-same-owner", "--strip-components=1"]
        self.run(unpack, "unpacking the installer")
        installer = os.path.join(tree, "mlnxofedinstall")
        if not os.access(installer, os.X_OK):
            raise ClusterError("bad_archive", "The archive has no mlnxofedinstall.", "Check `artifact`.")
        supported = [] if rebuild else read_text(Path(tree) / ".supported_kernels").split()
        modules = read_modules(self.host, self.system) if self.wanted.kernel_parts else Modules()
        check_kernel(self.wanted, self.system, modules, supported)
        refuse_conflicts(self._replaced(), "MLNX_OFED", self.wanted)
        extra = [str(option) for option in self.params["installer_options"]]
        arguments = installer_arguments(self.wanted, self.system, supported, extra)
        if self.wanted.kernel_parts and self.params["kernel"]:
            arguments += ["--kernel", self.system.kernel]
        self.installer = [installer, "--tmpdir", os.path.dirname(self.file), *arguments]

    def _do_install(self, step: Step) -> None:
        self._initramfs(self._install_doca(step) if self.wanted.source == "doca" else self._install_mlnx(step))

    def _do_rebuild(self, step: Step) -> None:
        if self.wanted.source == "doca" and self.system.manager == "dpkg":
            said = self.run(
                ["dkms", "autoinstall", "-k", self.system.kernel], f"building modules for {self.system.kernel}"
            )
            self._initramfs(said)
        else:
            self._do_install(step)

    def _install_mlnx(self, step: Step) -> str:
        with self._marked(step.name):
            said = self.run(self.installer, "mlnxofedinstall", cwd=os.path.dirname(self.installer[0]))
            self.install_packages(self.missing(self.params["packages"]))
        return said

    def _replaced(self) -> list[str]:
        """What the vendor's packages push out: the distribution's, and all that cannot be without them."""
        names = conflicts(read_software(self.host, self.system))
        if not names or self.system.manager != "dpkg":
            return names
        _rc, out, _err = self.host.run_command(["apt-get", "--simulate", "remove", *names])
        return sorted({*names, *parse_removals(out)})

    def _install_doca(self, step: Step) -> str:
        package = DOCA_PACKAGES[1] if self.wanted.user_space_only else DOCA_PACKAGES[0]
        had = "doca-host" in read_software(self.host, self.system).packages
        if self.system.manager == "dpkg":
            self.run(["dpkg", "--install", self.file], "installing doca-host")
            try:
                self.run(self.apt("update"), "reading DOCA's package list")
                if self.params["without_openmpi"]:
                    self._stand_in_for_openmpi()
                _rc, out, _err = self.host.run_command(["apt-get", "--simulate", "install", package])
                refuse_conflicts(parse_removals(out), "DOCA", self.wanted)
            except ClusterError:
                if not had:
                    self.host.run_command(["dpkg", "--purge", "doca-host", _MARKER])
                    self.host.run_command(self.apt("update"))
                raise
            with self._marked(step.name):
                said = self.run(self.apt("install", package), f"installing {package}")
                self.install_packages(self.missing(self.params["packages"]))
            return said
        dnf = shutil.which("dnf") or "yum"
        with self._marked(step.name):
            self.run(["rpm", "--upgrade", "--replacepkgs", self.file], "installing doca-host")
            self.run([dnf, "--assumeyes", "makecache"], "reading DOCA's package list")
            if self.wanted.kernel_parts and self.wanted.kernel_support:
                self._build_doca_modules(dnf)
            replace = ["--allowerasing"] if self.wanted.allow_replace else []
            said = self.run([dnf, "--assumeyes", *replace, "install", package], f"installing {package}")
            self.install_packages(self.missing(self.params["packages"]))
        return said

    def _stand_in_for_openmpi(self) -> None:
        """doca-ofed wants its own Open MPI in one version: say that it is there, without its files."""
        _rc, out, _err = self.host.run_command(["apt-cache", "show", "--no-all-versions", "openmpi"])
        version = next((line.split(": ", 1)[1] for line in out.splitlines() if line.startswith("Version: ")), "")
        if not version:
            return
        tree = os.path.join(os.path.dirname(self.file), _MARKER)
        os.makedirs(os.path.join(tree, "DEBIAN"), mode=0o755)
        control = (
            f"Package: {_MARKER}\nVersion: {version}\nProvides: openmpi (= {version})\nConflicts: openmpi\n"
            "Replaces: openmpi\nArchitecture: all\nMaintainer: hpcai.gpu_cluster\n"
            "Description: stands for DOCA's Open MPI, which another MPI takes the place of\n"
        )
        Path(tree, "DEBIAN", "control").write_text(control, encoding="utf-8")
        self.run(["dpkg-deb", "--build", "--root-owner-group", tree], f"building {_MARKER}")
        self.run(["dpkg", "--install", f"{tree}.deb"], f"installing {_MARKER}")

    def _build_doca_modules(self, dnf: str) -> None:
        self.run([dnf, "--assumeyes", "install", "doca-extra"], "installing doca-extra")
        self.run([_DOCA_KERNEL_SUPPORT, "-k", self.system.kernel], f"building modules for {self.system.kernel}")
        # The tool leaves a repository in /tmp, in a directory with a random name.
        built = glob.glob("/tmp/DOCA.*/**/doca-kernel-repo-*.rpm", recursive=True)  # noqa: S108 - the vendor's choice
        if not built:
            raise ClusterError(
                "build_failed", "doca-kernel-support left no repository.", "Read its log below /tmp/DOCA.*."
            )
        newest = max(built, key=os.path.getmtime)
        self.run(["rpm", "--upgrade", "--replacepkgs", newest], "installing the modules' repository")

    def _initramfs(self, said: str) -> None:
        mode = self.params["initramfs"]
        if not self.wanted.kernel_parts or mode == "never" or (mode == "auto" and not wants_initramfs(said)):
            return
        if shutil.which("update-initramfs"):
            self.run(["update-initramfs", "-u", "-k", self.system.kernel], "updating the initial ram disk")
        elif shutil.which("dracut"):
            self.run(["dracut", "--force", "--kver", self.system.kernel], "updating the initial ram disk")

    def _do_uninstall(self, step: Step) -> None:
        script = shutil.which("ofed_uninstall.sh")
        if not script and installed_stack(read_software(self.host, self.system))[0] != "doca":
            raise ClusterError("no_uninstaller", "There is no ofed_uninstall.sh.", "Remove the stack by hand.")
        with self._marked(f"removal of {step.name}"):
            # DOCA's packages need those that the script removes, so they go first; what they brought goes with the script.
            self._purge(DOCA_PACKAGES, [] if script else ["--autoremove"])
            if script:
                self.run([script, "--force"], "ofed_uninstall.sh")
            self._purge(["doca-host", _MARKER], [])
        remaining = installed_stack(read_software(self.host, self.system))
        if remaining[0]:
            raise ClusterError(
                "not_removed", f"{' '.join(remaining)} is still there.", "Remove its packages by hand, then run again."
            )

    def _purge(self, names: t.Sequence[str], options: t.Sequence[str]) -> None:
        present = [name for name in names if name in read_software(self.host, self.system).packages]
        if not present:
            return
        what = f"removing {', '.join(present)}"
        if self.system.manager == "rpm":
            self.run([shutil.which("dnf") or "yum", "--assumeyes", "remove", *present], what)
            return
        self.run(self.apt("purge", *options, *present), what)
        if "doca-host" in present:
            self.run(self.apt("update"), "reading the package lists")

    def _do_restart(self, _step: Step) -> None:
        modules = read_modules(self.host, self.system)
        if not modules.vendor:
            raise ClusterError(
                "kernel_mismatch",
                f"The stack is installed, but has no modules for the kernel {self.system.kernel}.",
                "Build them (`kernel_support: true`), or boot a kernel that has them. Nothing was unloaded.",
            )
        self.run(["systemctl", "restart", "openibd.service"], "restarting openibd")
        stale = read_modules(self.host, self.system).stale
        if stale:
            raise ClusterError(
                "still_loaded",
                f"After the restart of openibd the old {', '.join(stale)} is still loaded.",
                "Reboot the node, or set `allow_reboot: true`.",
            )

    def _do_reboot(self, _step: Step) -> None:
        """The role reboots: a module cannot outlive that."""


__all__ = ["UNFINISHED", "Stack", "in_container", "read_modules", "read_software", "read_system"]
