# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The half of ``nvidia_driver`` that touches the node: looks, plans, asks for consent, and makes one transaction."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import (
    NodeState,
    fetch_archive,
    missing_parents,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.plan import NOTHING, file_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import kernel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.hardware import (
    check_cuda,
    choose_module,
    cuda_of_dcgm,
    read_hardware,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.modes import Modes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.packages import (
    Action,
    Difference,
    Root,
    branch_of,
    check_plan,
    check_version,
    compare,
    flavor_of,
    in_stack,
    is_fabric_manager,
    parse_os_release,
    to_hold,
    upstream,
    wanted_roots,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.slurm import Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.transaction import Dnf, manager_for

ROOT = Path("/")
_OPENIBD = ("etc/init.d/openibd", "usr/lib/systemd/system/openibd.service", "lib/systemd/system/openibd.service")
RUNFILE_UNINSTALL = "/usr/bin/nvidia-uninstall"


def _unit(name: str) -> dict[str, t.Any]:
    return {"name": name, "state": "started", "enabled": True, "restart_on": []}


def _of_system(exc: OSError) -> ClusterError:
    message = f"{exc.filename or 'A path'}: {exc.strerror}."
    return ClusterError("os_error", message, "Correct this on the node and run again.")


class DriverRun:
    """One run on one node."""

    def __init__(self, request: Request, host: t.Any) -> None:
        self.request, self.host = request, host
        self.hardware = read_hardware(ROOT)
        self.loaded = node.read_loaded(ROOT)
        self.kernel = self.request.kernel or platform.release()
        # Where the driver is removed, none is wanted.
        self.version = ""
        self.chroot = node.in_chroot()
        self.configures = "configure" in self.request.phases and not self.chroot
        self.changes: list[dict[str, str]] = []
        self.diff: list[dict[str, str]] = []
        self.reboot: list[str] = []
        self.new_fabric = False
        self.drained = False
        self.away = kernel.Away()
        self.sets_modes = False
        self.work = ""

    # -- what is wanted ----------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        self.version = check_version(self.request.version)
        self.branch = branch_of(self.version)
        self.flavor = choose_module(self.hardware, self.request.kernel_module, self.branch)
        check_cuda(self.hardware, self.request.cuda_version, self.branch)
        self.packaged = self.request.source in ("cuda_repo", "distro")
        self.dist = parse_os_release(read_text(ROOT / "etc/os-release"))
        self.manager = manager_for(self.host)
        self.fabric = self.request.fabric_manager == "always" or (
            self.request.fabric_manager == "auto" and self.hardware.nvswitches > 0
        )
        self.peermem = self.request.peermem == "always" or (
            self.request.peermem == "auto" and any((ROOT / path).exists() for path in _OPENIBD)
        )
        self.roots = wanted_roots(
            self.dist,
            source=self.request.source,
            flavor=self.flavor,
            version=self.version,
            fabric_manager=self.fabric,
            kernel=self.kernel if self.request.kernel_headers else "",
            dcgm_cuda=cuda_of_dcgm(self.hardware, self.branch) if self.request.dcgm else 0,
            dcgm_version=self.request.dcgm_version,
            cuda=self.request.cuda_version,
            override=self.request.packages,
        )
        if isinstance(self.manager, Dnf) and self.request.hold:
            self.roots.append(Root("python3-dnf-plugin-versionlock"))

    def _stream(self) -> str:
        """The module stream to enable on EL; empty when the right one is, or there is none to choose."""
        if not isinstance(self.manager, Dnf) or self.request.source != "cuda_repo":
            return ""
        wanted = f"{self.branch}-{'open' if self.flavor == 'open' else 'dkms'}"
        return "" if self.manager.stream() == wanted else wanted

    # -- files -------------------------------------------------------------------------------------------------------

    def _repository_files(self, *, check: bool) -> list[dict[str, t.Any]]:
        repository = rules.repository_for(self.request, self.dist, platform.machine())
        if (self.request.source == "runfile" and not self.fabric) or not repository.url:
            return []
        if vendor.listed_elsewhere(repository):
            return []
        text = vendor.key_text(repository, self.dist.manager, check=check)
        return vendor.repository_files(repository, self.dist.manager, text, rules.MANAGED)

    def _settings(self) -> dict[str, t.Any]:
        arguments: dict[str, t.Any] = {"peermem": self.peermem, "packaged": self.packaged}
        files = rules.settings_files(self.request, self.dist, **arguments)
        gone = rules.unwanted_files(self.request, self.dist, **arguments)
        return {"files": [file_request(**entry) for entry in files], "absent": gone}

    def _state(self, request: t.Mapping[str, t.Any], *, check: bool) -> list[str]:
        """Let node_state do it; returns the names of what changed."""
        directories = missing_parents(entry["path"] for entry in request.get("files", []))
        result = NodeState({**NOTHING, "directories": directories, **request}, self.host).run(check=check)
        self.changes += result["changes"]
        self.diff += result["diff"]
        return [change["name"] for change in result["changes"]]

    def _note(self, kind: str, name: str, what: str, before: str = "", after: str = "") -> None:
        self.changes.append({"kind": kind, "name": name, "what": what})
        self.diff.append(
            {
                "before_header": f"{kind} {name}",
                "after_header": f"{kind} {name} ({what})",
                "before": before,
                "after": after,
            }
        )

    # -- present -----------------------------------------------------------------------------------------------------

    def present(self, *, check: bool) -> dict[str, t.Any]:
        """Install and configure, or say what that would do."""
        try:
            with tempfile.TemporaryDirectory(prefix="nvidia-driver-") as self.work:
                return self._present(check=check)
        except ClusterError as exc:
            raise self.told(exc) from exc

    def told(self, exc: ClusterError) -> ClusterError:
        """An error, with what became of the node in Slurm: one that was left in the middle gets no jobs."""
        if not self.drained:
            return exc
        return ClusterError(exc.kind, f"{exc.message} The node stays drained in Slurm.", exc.remedy, **exc.details)

    def _present(self, *, check: bool) -> dict[str, t.Any]:
        if self.request.source == "preinstalled":
            if self.configures:
                self._modes(check=check)
            return self._result(message="The driver is preinstalled: nothing is installed.")
        if not self.request.version:
            raise ClusterError(
                "bad_input",
                "nvidia_driver_version is not set, and a driver is never chosen by chance.",
                "Set it to the whole version, for example 580.95.05.",
            )
        self._choose()
        if not self.flavor:
            return self._result(message="There is no NVIDIA GPU on the PCI bus, so nothing was done.")
        self.packages = self.manager.installed()
        difference = self._difference()
        reload = [] if self.chroot else self._reload_reasons()
        words, actions = self._early_plan(difference)
        users = node.gpu_users(ROOT) if reload else []
        replaces = self._replaced(difference)
        would = [action.text() for action in actions] or difference.text(self.packages)
        wanted = f"{self.version} ({self.flavor} module)"
        rules.check_consent(self.request, replaces=replaces, wanted=wanted, would=would, reload=reload, users=users)
        self._fetch_runfile(check=check)
        repository_files = [file_request(**entry) for entry in self._repository_files(check=check)]
        if difference and not check:
            self._state({"files": repository_files}, check=False)
            words, actions = self._late_plan(difference)
            if reload:
                # While the old driver still serves, the network may fail.
                self.manager.download(words, rules.pin_text(self.version), fix=bool(difference.broken))
        with self._retreating() if reload and not check else contextlib.nullcontext():
            if reload:
                self._release(reload, check=check)
            touched = self._state(self._merge({"files": repository_files}, self._settings()), check=check)
            if difference:
                self._transaction(difference, words, actions, check=check)
            self._run_installer(check=check)
            if self.fabric:
                self._fabric_unit(check=check)
            self._hold(check=check)
            self._initramfs(touched, check=check)
        if "configure" in self.request.phases:
            self._configure(check=check)
        return self._result()

    @staticmethod
    def _merge(one: t.Mapping[str, list[t.Any]], two: t.Mapping[str, list[t.Any]]) -> dict[str, list[t.Any]]:
        return {key: [*one.get(key, []), *two.get(key, [])] for key in {*one, *two}}

    def _difference(self) -> Difference:
        version, flavor = (self.version, self.flavor) if self.packaged else ("", "")
        difference = compare(self.packages, self.roots, version, flavor)
        from_runfile = os.path.exists(RUNFILE_UNINSTALL)
        drivers = [
            name for name, one in self.packages.items() if in_stack(name, one.version) and not is_fabric_manager(name)
        ]
        if self.packaged and from_runfile and difference:
            raise ClusterError(
                "other_source",
                "A driver from NVIDIA's .run file is installed; packages beside it would overwrite each other's files.",
                "Remove it first (entry point remove with nvidia_driver_source: runfile).",
            )
        if not self.packaged:
            if drivers:
                raise ClusterError(
                    "other_source",
                    f"Packages of a driver are installed ({', '.join(sorted(drivers)[:6])}); the .run file would overwrite them.",
                    "Remove them first (entry point remove with nvidia_driver_source: cuda_repo or distro).",
                )
            self.on_disk = node.module_on_disk(self.host, self.kernel)
            self.libraries = node.read_libraries(ROOT)
        return difference

    def _runfile_pending(self) -> bool:
        return not self.packaged and (self.libraries != [self.version] or self.on_disk != (self.version, self.flavor))

    def _replaced(self, difference: Difference) -> str:
        """The driver that would be replaced, for people; empty when there is none.

        Fabric Manager alone is none: with another version than the driver's it does not even start.
        """
        if not self.packaged:
            have = [one for one in self.libraries if one != self.version]
            return have[0] if have else ""
        stack = {name: one for name, one in self.packages.items() if in_stack(name, one.version)}
        others = [name for name in difference.other_version if name in stack and not is_fabric_manager(name)]
        if not others and not difference.other_flavor:
            return ""
        versions = sorted({upstream(one.version) for name, one in stack.items() if not is_fabric_manager(name)})
        flavor = flavor_of(stack)
        return f"{'/'.join(versions)}{f' ({flavor} module)' if flavor else ''}"

    def _reload_reasons(self) -> list[str]:
        options = rules.module_options(self.request) if self.configures else {}
        return rules.reload_reasons(self.loaded, self.version, self.flavor, options, nouveau=self.hardware.nouveau)

    def _early_plan(self, difference: Difference) -> tuple[list[str], list[Action]]:
        """What would be done, as far as the lists on the node tell before a repository is added."""
        if not difference or self._stream() or not self.manager.known(self.roots):
            return [], []
        try:
            return self._plan(difference)
        except ClusterError:
            # The lists may be old; the plan that counts is made after they were read again.
            return [], []

    def _plan(self, difference: Difference) -> tuple[list[str], list[Action]]:
        words = self.manager.resolve(self.roots)
        version = self.version if self.packaged else ""
        fix = bool(difference.broken)
        words, actions = self.manager.plan(words, self.packages, version, rules.pin_text(self.version), fix=fix)
        if version:
            check_plan(actions, self.packages, version)
        return words, actions

    def _late_plan(self, difference: Difference) -> tuple[list[str], list[Action]]:
        """The plan that is carried out: after mending, and with fresh lists where they lack something."""
        stream = self._stream()
        if stream and isinstance(self.manager, Dnf):
            self._note("module stream", "nvidia-driver", stream, f"{self.manager.stream()}\n", f"{stream}\n")
            self.manager.enable(stream)
        if difference.broken or self.manager.interrupted():
            self.manager.mend()
            self.packages = self.manager.installed()
        if not self.manager.known(self.roots):
            self.manager.update()
        return self._plan(difference)

    def _transaction(
        self, difference: Difference, words: list[str], actions: t.Sequence[Action], *, check: bool
    ) -> None:
        for name in difference.broken:
            self._note("package", name, "repair")
        for action in actions:
            before = f"{action.name} {action.old}\n" if action.old else ""
            after = f"{action.name} {action.version}\n" if action.verb != "remove" else ""
            self._note("package", action.name, action.text(), before, after)
        if check:
            if not actions:
                for root in self.roots:
                    if root.name in difference.missing:
                        self._note("package", root.name, "install", "", f"{root.name} {root.upstream}".rstrip() + "\n")
            return
        self.manager.commit(words, rules.pin_text(self.version), fix=bool(difference.broken))
        self.new_fabric = any(is_fabric_manager(action.name) and action.old for action in actions)
        self.packages = self.manager.installed()
        left = compare(
            self.packages, self.roots, self.version if self.packaged else "", self.flavor if self.packaged else ""
        )
        if left:
            raise ClusterError(
                "not_converged",
                f"The packages are not as wanted after the transaction: {'; '.join(left.text(self.packages))}.",
                "See the log of the package system.",
            )

    def _hold(self, *, check: bool) -> None:
        names = to_hold(self.packages, self.version)
        loose = [name for name in names if not self.packages[name].held]
        if not loose or not self.request.hold:
            return
        self._note("hold", ", ".join(loose), "hold", "", "".join(f"{name}\n" for name in loose))
        if not check:
            self.manager.hold(loose if self.dist.manager == "dpkg" else names, self.packages)

    def _fabric_unit(self, *, check: bool) -> None:
        for place in ("usr/lib/systemd/system", "lib/systemd/system"):
            vendor_unit = ROOT / place / "nvidia-fabricmanager.service"
            if vendor_unit.exists():
                content = rules.fabric_unit(vendor_unit.read_text(encoding="utf-8"))
                if content:
                    self._state({"files": [file_request(rules.FABRIC_UNIT, content)]}, check=check)
                return

    def _initramfs(self, touched: t.Sequence[str], *, check: bool) -> None:
        """nouveau may lie in the initramfs, with the modprobe settings of the time when that was made."""
        if rules.MODPROBE not in touched:
            return
        for argv in (["update-initramfs", "-u"], ["dracut", "--force"]):
            path = self.host.get_bin_path(argv[0])
            if path:
                self._note("initramfs", argv[0], "rebuild")
                if not check:
                    rc, _out, err = self.host.run_command([path, *argv[1:]])
                    if rc != 0:
                        raise ClusterError(
                            "initramfs_failed", f"{argv[0]} failed: {err.strip()[-500:]}", "See what it says."
                        )
                return

    def _fetch_runfile(self, *, check: bool) -> None:
        """Have the installer, and know that it is the right one, before anything is changed for it."""
        source = self.request.runfile
        # Check mode reads what lies on the node, and downloads nothing.
        if self._runfile_pending() and not (check and "://" in source):
            target, sha256 = os.path.join(self.work, "driver.run"), self.request.runfile_sha256.lower()
            fetch_archive(source, target, sha256, self.request.timeout_s)

    def _run_installer(self, *, check: bool) -> None:
        if self.packaged or not self._runfile_pending():
            return
        have = self.on_disk[0] or (self.libraries[0] if self.libraries else "")
        self._note("driver", f"{self.version} ({self.flavor})", "run the installer", f"{have}\n", f"{self.version}\n")
        if check:
            return
        argv = [
            "sh",
            os.path.join(self.work, "driver.run"),
            "--silent",
            "--dkms",
            f"--kernel-module-type={self.flavor}",
            f"--kernel-name={self.kernel}",
            f"--tmpdir={self.work}",
        ]
        rc, out, err = self.host.run_command([*argv, *self.request.runfile_arguments])
        self.libraries, self.on_disk = node.read_libraries(ROOT), node.module_on_disk(self.host, self.kernel)
        if rc != 0 or self._runfile_pending():
            raise ClusterError(
                "installer_failed",
                f"NVIDIA's installer ended with {rc} and left libraries {self.libraries} and module {self.on_disk[0] or 'none'}: "
                f"{(err or out).strip()[-600:]}",
                "Read /var/log/nvidia-installer.log on the node.",
            )

    # -- configure ---------------------------------------------------------------------------------------------------

    def _slurm(self) -> Slurm:
        name = self.request.slurm_node or platform.node().partition(".")[0]
        return Slurm(self.host, name, self.request.drain_timeout_s)

    def _drain(self, *, check: bool) -> None:
        if not self.request.drain:
            return
        slurm = self._slurm()
        if slurm.drain(check=check):
            self._note("slurm", slurm.node, "drain", "in service\n", "drained\n")
        self.drained = not check

    def give_back(self, result: t.Mapping[str, t.Any], *, check: bool) -> dict[str, t.Any]:
        """Resume the node in Slurm if it was this role that drained it. Comes last, when all is proven."""
        managed = self.request.source != "preinstalled" and self.hardware.gpus
        if not self.request.drain or self.chroot or not (managed or self.sets_modes):
            return dict(result)
        slurm = self._slurm()
        if slurm.drained_by_us():
            self._note("slurm", slurm.node, "resume", "drained\n", "in service\n")
            if not check:
                slurm.resume()
        return {**result, **self._result()}

    def _configure(self, *, check: bool) -> None:
        live = not self.chroot and bool(self.hardware.gpus) and not self.reboot
        loads = live and not self.loaded.version
        if loads:
            self._note("kernel module", "nvidia", "load", "", f"{self.version}\n")
        if loads and not check:
            try:
                self._load()
            except ClusterError as exc:
                raise self._in_the_middle(exc) from exc
            self._load_extras()
        if not self.reboot:
            there = [_unit(name) for name in self._own_units()]
            try:
                self._state({"units": there if live or self.chroot else []}, check=check)
            finally:
                if loads and not check:
                    self._start_others()
            if live and self.new_fabric and "nvidia-fabricmanager.service" not in self._started():
                # Its package replaces the program and lets the old one run.
                self._note("unit", "nvidia-fabricmanager.service", "restart")
                self.host.run_command(["systemctl", "restart", "nvidia-fabricmanager.service"])
        if live:
            self._modes(check=check)

    def _own_units(self) -> list[str]:
        units = ["nvidia-persistenced.service"]
        units += ["nvidia-fabricmanager.service"] if self.fabric else []
        units += ["nvidia-dcgm.service"] if self.request.dcgm else []
        # A unit that a package is still to bring is started with it.
        return [name for name in units if self._has_unit(name)]

    def _extras(self) -> list[str]:
        """Modules that went with the driver, and are no part of it."""
        return [name for name in self.away.modules if name not in (*kernel.BASE_MODULES, "nouveau")]

    def _load_extras(self) -> None:
        """Load what went with the old driver, and what is wanted; one may be gone by now, or fit the old driver only."""
        extras = self._extras()
        wanted = ["nvidia_peermem"] if self.peermem and "nvidia_peermem" not in extras else []
        for name, reason in kernel.bring_back(self.host, [*wanted, *extras]).items():
            self._note("kernel module", name, f"not loaded: {reason}")

    def _start_others(self) -> None:
        """Start the services that were stopped for the old driver to go, and that are not the role's."""
        units = [name for name in self.away.units if name not in self._own_units()]
        for name, reason in kernel.start(self.host, units).items():
            self._note("unit", name, f"not started: {reason}")

    def _started(self) -> list[str]:
        return [change["name"] for change in self.changes if change["kind"] == "unit" and change["what"] == "start"]

    def _load(self) -> None:
        kernel.load(self.host)
        self.loaded = node.read_loaded(ROOT)
        if self.loaded.version != self.version:
            raise ClusterError(
                "module_failed",
                f"modprobe loaded the module of driver {self.loaded.version or '(unknown)'}, not {self.version}.",
                "See `modinfo nvidia` and `dkms status`: another module lies in the kernel's directory.",
            )

    @staticmethod
    def _has_unit(name: str) -> bool:
        name = name if name.endswith(".service") else f"{name}.service"
        return any(os.path.exists(f"{path}/{name}") for path in ("/usr/lib/systemd/system", "/lib/systemd/system"))

    def _release(self, reasons: t.Sequence[str], *, check: bool) -> None:
        """Get the driver that runs out of the way before its libraries change, or decide on a reboot after that."""
        self._drain(check=check)
        before = f"{self.loaded.version or 'nouveau'}\n"
        if self.request.allow_unload:
            try:
                if not check:
                    self.away = kernel.unload(self.host, ROOT)
                self._note("kernel module", "nvidia", "unload", before, "")
                self.loaded = Loaded()
                return
            except ClusterError:
                if not self.request.allow_reboot:
                    # Nothing was changed: the node goes on serving.
                    if self.drained:
                        self._slurm().resume()
                        self.drained = False
                    raise
        self._note("node", "reboot", "; ".join(reasons), before, f"{self.version}\n" if self.version else "")
        self.reboot = list(reasons)

    def _parts(self) -> tuple[t.Any, ...]:
        """What is installed, whatever it came from."""
        return self.manager.installed(), node.read_libraries(ROOT), node.module_on_disk(self.host, self.kernel)

    @contextlib.contextmanager
    def _retreating(self) -> t.Iterator[None]:
        """Where the change fails before anything was installed: let what ran before run again, and the node serve on."""
        before, parts = self.loaded.version, self._parts()
        try:
            yield
        except (ClusterError, OSError) as error:
            exc = error if isinstance(error, ClusterError) else _of_system(error)
            untouched = before and parts == self._parts()
            raise (self._retreated(exc, before) if untouched else self._in_the_middle(exc)) from error

    def _in_the_middle(self, exc: ClusterError) -> ClusterError:
        """The error, with what the run that finishes the change cannot know of."""
        ours = [*self._own_units(), *(["nvidia_peermem"] if self.peermem else [])]
        lost = [name for name in (*self._extras(), *self.away.units) if name not in ours]
        said = f" Until it boots again, the node is without what had to make way: {', '.join(lost)}." if lost else ""
        return ClusterError(exc.kind, exc.message, exc.remedy + said, **exc.details)

    def _retreated(self, exc: ClusterError, before: str) -> ClusterError:
        said = ""
        if self.away.modules:
            try:
                kernel.load(self.host)
            except ClusterError as failed:
                said = f" The driver that ran before is not loaded again: {failed.message}"
                return ClusterError(exc.kind, exc.message + said, exc.remedy, **exc.details)
            failures = {**kernel.bring_back(self.host, self._extras()), **kernel.start(self.host, self.away.units)}
            said = " Nothing was installed, and what was unloaded and stopped for it runs again"
            said += f", except {', '.join(failures)}." if failures else "."
        # With a driver that somebody else had put on the disk meanwhile the node serves nobody unverified.
        if self.drained and node.read_loaded(ROOT).version == before:
            with contextlib.suppress(ClusterError):
                self._slurm().resume()
                self.drained = False
        return ClusterError(exc.kind, exc.message + said, exc.remedy, **exc.details)

    def _modes(self, *, check: bool) -> None:
        """ECC and MIG of every GPU that answers and has them; whatever is wrong with the others is told at the end."""
        if self.request.ecc == "keep" and self.request.mig == "keep":
            return
        modes = Modes(self.request, self.host, ROOT, self._note, lambda: self._drain(check=check))
        try:
            modes.run(check=check, expected=bool(self.hardware.gpus or self.request.expect_gpus))
        except ClusterError as exc:
            exc.details.update(self._result())
            raise
        self.reboot, self.sets_modes = modes.reboot, modes.found
        # With a reboot to come, the run after it finds out what is left.
        if modes.problems and (check or not self.reboot):
            raise ClusterError(
                modes.kind,
                " ".join(finding["message"] for finding in modes.problems),
                " ".join(dict.fromkeys(finding["remedy"] for finding in modes.problems)),
                **{**self._result(), "findings": modes.problems},
            )

    def _result(self, message: str = "") -> dict[str, t.Any]:
        return {
            "changed": bool(self.changes),
            "changes": self.changes,
            "diff": self.diff,
            "gpus": [f"{gpu.bus_id} {gpu.generation}" for gpu in self.hardware.gpus],
            "nvswitches": self.hardware.nvswitches,
            "kernel_module": getattr(self, "flavor", ""),
            "loaded": self.loaded.version,
            "reboot_required": self.reboot,
            **({"msg": message} if message else {}),
        }


__all__ = ["ROOT", "RUNFILE_UNINSTALL", "DriverRun"]
