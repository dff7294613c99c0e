# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The half of ``container_runtime`` that touches the node."""

from __future__ import annotations

import os
import platform
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.files import read_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Action, matches
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.transaction import Apt, manager_for
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import is_running
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.apply import NodeState
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.read import missing_parents
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.request import (
    NOTHING,
    directory_request,
    file_request,
)


def _read(path: str) -> str:
    """A settings file exactly as it is; empty when there is none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


class RuntimeRun:
    """One run on one node."""

    def __init__(self, params: dict[str, t.Any], host: t.Any) -> None:
        self.params, self.host = params, host
        self.manager = manager_for(host)
        self.roots = rules.wanted_roots(params)
        self.changes: list[dict[str, str]] = []
        self.diff: list[dict[str, str]] = []

    @property
    def _docker(self) -> bool:
        """Whether Docker is to be configured."""
        there = bool(self.params["docker_packages"]) or bool(self.host.get_bin_path("dockerd")) or self._unit("docker")
        return self.params["docker"] == "always" or (self.params["docker"] == "auto" and there)

    @staticmethod
    def _unit(name: str) -> bool:
        places = ("/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system")
        return any(os.path.exists(f"{place}/{name}.service") for place in places)

    def _note(self, kind: str, name: str, what: str, before: str = "", after: str = "") -> None:
        header = {"before_header": f"{kind} {name}", "after_header": f"{kind} {name} ({what})"}
        self.changes.append({"kind": kind, "name": name, "what": what})
        self.diff.append({**header, "before": before, "after": after})

    def _state(self, *, check: bool, **request: t.Any) -> list[str]:
        directories = request.get("directories", [])
        missing = missing_parents(
            [entry["path"] for entry in request.get("files", [])], [entry["path"] for entry in directories]
        )
        request["directories"] = [*missing, *directories]
        result = NodeState({**NOTHING, **request}, self.host).run(check=check)
        self.changes += result["changes"]
        self.diff += result["diff"]
        return [change["name"] for change in result["changes"]]

    def _active(self, unit: str) -> bool:
        return self.host.run_command(["systemctl", "is-active", "--quiet", unit])[0] == 0

    # -- present -----------------------------------------------------------------------------------------------------

    def present(self, *, check: bool) -> dict[str, t.Any]:
        """Packages, then every setting, then what has to read them again."""
        have = rules.parse_daemon(_read(rules.DAEMON_JSON)) if self._docker else {}
        want = rules.daemon_settings(have, self.params) if self._docker else {}
        restart = "configure" in self.params["phases"] and self._check_restart(have, want)
        self._install(check=check)
        files, directories = self._files(have, want)
        touched = self._state(files=files, directories=directories, check=check)
        if "configure" in self.params["phases"] and is_running():
            if self.params["docker_packages"] and self._docker and self._unit("docker"):
                unit = {"name": "docker.service", "state": "started", "enabled": True, "restart_on": []}
                started = "docker.service" in self._state(units=[unit], check=check)
                touched = [name for name in touched if not started or name != rules.DAEMON_JSON]
            if rules.DAEMON_JSON in touched:
                self._again("docker.service", "restart" if restart else "reload", check=check)
            if {rules.CONTAINERD, rules.CONTAINERD_PART} & set(touched):
                self._again("containerd.service", "restart", check=check)
        return self._result()

    def _check_restart(self, have: t.Mapping[str, t.Any], want: t.Mapping[str, t.Any]) -> bool:
        if not rules.needs_restart(have, want) or not self._active("docker.service"):
            return False
        _rc, out, _err = (
            self.host.run_command(["docker", "ps", "--quiet"]) if self.host.get_bin_path("docker") else (0, "", "")
        )
        running = out.split()
        if running and not self.params["allow_restart"]:
            raise ClusterError(
                "consent_missing",
                f"The new settings of Docker take effect with a restart, which stops {len(running)} running containers. "
                "Nothing was changed.",
                "Set `allow_restart: true`, or wait until they have ended.",
            )
        return True

    def _again(self, unit: str, verb: str, *, check: bool) -> None:
        if not self._active(unit):
            return
        self._note("unit", unit, verb)
        if check:
            return
        rc, _out, err = self.host.run_command(["systemctl", verb, unit])
        if rc != 0:
            raise ClusterError(
                "systemctl_failed", f"`systemctl {verb} {unit}` failed: {err.strip()}", f"Read `journalctl -u {unit}`."
            )

    def _install(self, *, check: bool) -> None:
        packages = self.manager.installed()
        wrong = [
            root
            for root in self.roots
            if root.name not in packages
            or not packages[root.name].present
            or not matches(root, packages[root.name].version)
        ]
        if not wrong and not self.params["toolkit"]:
            return
        repository = rules.repository_for(
            self.params, "dpkg" if isinstance(self.manager, Apt) else "rpm", platform.machine()
        )
        if repository.url and not vendor.listed_elsewhere(repository):
            manager = "dpkg" if isinstance(self.manager, Apt) else "rpm"
            text = vendor.key_text(repository, manager, check=check)
            files = vendor.repository_files(repository, manager, text, rules.MANAGED)
            self._state(files=[file_request(**entry) for entry in files], check=check)
        if not wrong:
            return
        actions: list[Action] = []
        if not check:
            if (
                any(root.name in packages and packages[root.name].broken for root in wrong)
                or self.manager.interrupted()
            ):
                self.manager.mend()
            if not self.manager.known(self.roots):
                self.manager.update()
        if self.manager.known(self.roots):
            words = self.manager.resolve(self.roots)
            actions = self.manager.simulate(words)
            self._note_packages(actions)
            if not check:
                self.manager.commit(words, fix=False)
        elif check:
            for root in wrong:
                self._note("package", root.name, "install", "", f"{root.name} {root.upstream}".rstrip() + "\n")
        else:
            self.manager.resolve(self.roots)

    def _note_packages(self, actions: t.Sequence[Action]) -> None:
        for action in actions:
            before = f"{action.name} {action.old}\n" if action.old else ""
            after = f"{action.name} {action.version}\n" if action.verb != "remove" else ""
            self._note("package", action.name, action.text(), before, after)

    def _files(
        self, have: t.Mapping[str, t.Any], want: t.Mapping[str, t.Any]
    ) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
        files: list[dict[str, t.Any]] = []
        directories: list[dict[str, t.Any]] = []
        # Who wrote the file formats it: only another content is a reason to write it anew.
        if self._docker and want != have:
            files.append(file_request(rules.DAEMON_JSON, rules.daemon_text(want)))
        if self.params["containerd"]:
            files.append(file_request(rules.CONTAINERD, rules.containerd_config(_read(rules.CONTAINERD))))
            files.append(file_request(rules.CONTAINERD_PART, rules.containerd_part()))
        if self.params["enroot"]:
            files += [file_request(**entry) for entry in rules.enroot_files(self.params)]
            if self.params["enroot_directory"]:
                directory = self.params["enroot_directory"]
                directories.append(directory_request(directory))
                # Each user makes a directory of his own in these.
                directories += [
                    directory_request(f"{directory}/{part}", "01777") for part in ("cache", "data", "temporary")
                ]
        if self.params["pyxis"]:
            files.append(file_request(**rules.pyxis_file(self.params)))
        return files, directories

    # -- verified, absent --------------------------------------------------------------------------------------------

    def verified(self) -> dict[str, t.Any]:
        """Everything that is wrong, or the result. Changes nothing."""
        packages = self.manager.installed()
        wrong = []
        for root in self.roots:
            one = packages.get(root.name)
            if one is None or not one.present:
                wrong.append(f"{root.name} is not installed")
            elif not matches(root, one.version):
                wrong.append(f"{root.name} is {one.version}, wanted is {root.upstream}")
        if self._docker:
            have = rules.parse_daemon(_read(rules.DAEMON_JSON))
            if rules.daemon_settings(have, self.params) != have:
                wrong.append(f"{rules.DAEMON_JSON} lacks settings of the role")
            wrong += self._docker_says()
        if self.params["containerd"] and _read(rules.CONTAINERD_PART) != rules.containerd_part():
            wrong.append(f"{rules.CONTAINERD_PART} is not the role's")
        for entry in rules.enroot_files(self.params) if self.params["enroot"] else []:
            if _read(entry["path"]) != entry["content"]:
                wrong.append(f"{entry['path']} is not the role's")
        if wrong:
            raise ClusterError("runtime_wrong", "; ".join(wrong) + ".", "Run the role.")
        return self._result()

    def _docker_says(self) -> list[str]:
        """What the Docker that runs uses, which is not what its file says until it has read it again."""
        asked = self.params["toolkit"] and self.params["docker_default_runtime"] and self.host.get_bin_path("docker")
        if not asked or not self._active("docker.service"):
            return []
        rc, out, _err = self.host.run_command(["docker", "info", "--format", "{{.DefaultRuntime}}"])
        return (
            [f"Docker runs containers with {out.strip()}, not with nvidia"]
            if rc == 0 and out.strip() != "nvidia"
            else []
        )

    def absent(self, *, check: bool) -> dict[str, t.Any]:
        """The toolkit and the role's settings go; Docker, images and enroot's containers stay."""
        files = []
        if os.path.exists(rules.DAEMON_JSON):
            have = rules.parse_daemon(_read(rules.DAEMON_JSON))
            left = rules.without_ours(have)
            if left != have:
                files.append(file_request(rules.DAEMON_JSON, rules.daemon_text(left)))
        repository = rules.repository_for({**self.params, "toolkit": True}, "dpkg", platform.machine())
        own = [rules.CONTAINERD_PART, rules.ENROOT_MOUNTS, rules.PYXIS]
        # enroot.conf is a package's, too: ours says so in its first line.
        own += [rules.ENROOT_CONF] if read_text(Path(rules.ENROOT_CONF)).startswith(rules.MANAGED) else []
        gone = [*own, repository.sources, repository.repo, repository.keyring("dpkg"), repository.keyring("rpm")]
        touched = self._state(files=files, absent=gone, check=check)
        if rules.DAEMON_JSON in touched:
            self._again("docker.service", "reload", check=check)
        names = sorted(
            name
            for name in self.manager.installed()
            if re.match(r"^(nvidia-container-toolkit(-base)?|libnvidia-container(-tools|1))$", name)
        )
        if names:
            for name in names:
                self._note("package", name, "remove", f"{name}\n", "")
            if not check:
                self.manager.remove(names)
        return self._result()

    def _result(self) -> dict[str, t.Any]:
        return {"changed": bool(self.changes), "changes": self.changes, "diff": self.diff}


__all__ = ["RuntimeRun"]
