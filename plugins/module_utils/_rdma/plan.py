# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The pure half of ``rdma_stack``: which RDMA software a node has, which one it should have, and the steps between.

Nothing here touches the node: every function takes plain data and returns plain data.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma.model import (
    DISTRIBUTION_PACKAGES,
    DOCA_PACKAGES,
    Modules,
    Software,
    Step,
    System,
    Wanted,
)

#: How a node is left that something was refused for in time.
UNTOUCHED = "Nothing has been changed."
_REMOVAL = "removal of "
# The beginnings of System.os: whose package systems, package names and vendor's files are known.
_KNOWN = ("debian", "rhel", "ubuntu")
# These would flash or change the firmware, which is never this collection's business.
_FIRMWARE_OPTIONS = ("--fw-update-only", "--force-fw-update", "--fw-image-dir", "--fw-dir", "--enable-sriov")


def parse_removals(output: str) -> list[str]:
    """Packages that ``apt-get --simulate`` would remove."""
    return sorted({match.group(1) for match in re.finditer(r"^(?:Remv|Purg) (\S+)", output, re.MULTILINE)})


def wants_initramfs(output: str) -> bool:
    """Whether an installer asks for a new initial ram disk."""
    return bool(re.search(r"(update|rebuild|regenerate)\w*\b[^.\n]*\binitramfs|dracut -f", output, re.IGNORECASE))


def installed_stack(software: Software) -> tuple[str, str]:
    """Which vendor's stack is on the node: its source (empty: none) and its version."""
    have = software.packages
    if any(name in have for name in DOCA_PACKAGES):
        return "doca", have.get("doca-host", software.ofed or "unknown").replace("_", "-")
    if software.ofed.startswith("MLNX_OFED"):
        return "mlnx_ofed", re.sub(r"^MLNX_OFED(_LINUX)?-", "", software.ofed)
    if software.ofed:
        return "other", software.ofed
    return "", ""


def remaining_stack(software: Software) -> tuple[str, str]:
    """The stack of which there is something: the installed one, or one that was interrupted and is there in part."""
    source, version = installed_stack(software)
    if source not in ("", "other") or not software.unfinished:
        return source, version
    text = software.unfinished
    begun, _space, version = (text[len(_REMOVAL) :] if text.startswith(_REMOVAL) else text).partition(" ")
    return begun, version


def _remains(software: Software) -> str:
    """What remains of a stack, as the beginning of a sentence."""
    have = " ".join(remaining_stack(software)).strip()
    part = f" in part ({software.unfinished} was interrupted)" if software.unfinished else ""
    return f"{have} is installed{part}"


def _vendor_loaded(software: Software, modules: Modules) -> bool:
    """Whether modules are loaded that a removal leaves behind. After an interrupted one they may be the kernel's own again."""
    return modules.loaded and (bool(installed_stack(software)[0]) or modules.vendor or bool(modules.stale))


def is_current(wanted: Wanted, software: Software) -> bool:
    """Whether the node has the wanted stack in the wanted version, and all of it."""
    source, version = installed_stack(software)
    if wanted.source == "inbox":
        return not source and not software.unfinished
    if not wanted.installs:
        return not software.unfinished and f"{version}-".startswith(f"{wanted.version}-" if wanted.version else "")
    if source != wanted.source or software.unfinished:
        return False
    if source == "mlnx_ofed":
        return version == wanted.version
    # doca-host's version ends in the distribution: 3.2.1-044000-25.10-ubuntu2404.
    package = DOCA_PACKAGES[1] if wanted.user_space_only else DOCA_PACKAGES[0]
    # The stack's own begins with the release, 3.2.1: the repository may be newer than what was installed from it.
    release = wanted.version.partition("-")[0]
    return software.packages.get(package, "").startswith(release) and f"{version}-".startswith(f"{wanted.version}-")


def conflicts(software: Software) -> list[str]:
    """The distribution's RDMA packages that a vendor's installer would replace; none where a vendor was first."""
    if installed_stack(software)[0]:
        return []
    return sorted(set(software.packages) & set(DISTRIBUTION_PACKAGES))


def refuse_conflicts(names: t.Sequence[str], what: str, wanted: Wanted, left: str = UNTOUCHED) -> None:
    """Refuse to replace packages without consent. ``left`` says how the node is left."""
    if names and not wanted.allow_replace:
        raise ClusterError(
            "conflict",
            f"{what} takes the place of packages that are installed: {', '.join(names)}.",
            f"Set `allow_replace: true` if they may be removed or replaced. {left}",
            packages=list(names),
        )


def installer_arguments(
    wanted: Wanted, system: System, supported: t.Container[str], extra: t.Sequence[str]
) -> list[str]:
    """The options of ``mlnxofedinstall``. Firmware is never touched, and a question is never asked."""
    for option in extra:
        if option.split("=")[0] in _FIRMWARE_OPTIONS:
            raise ClusterError(
                "bad_input",
                f"`installer_options` has {option}, which changes the firmware of adapters.",
                "Take it out. Update firmware apart, with the vendor's tools.",
            )
    arguments = ["--without-fw-update", "--force"]
    if wanted.user_space_only:
        arguments += ["--user-space-only", "--all", "--without-neohost-backend"]
    elif system.kernel not in supported and wanted.kernel_support:
        arguments += ["--add-kernel-support", "--skip-repo"]
    return arguments + [option for option in extra if option not in arguments]


def check_kernel(wanted: Wanted, system: System, modules: Modules, supported: t.Container[str]) -> None:
    """Stop before anything is removed where the stack could not be loaded by the kernel afterwards."""
    if not wanted.kernel_parts or system.kernel in supported:
        return
    if not wanted.kernel_support:
        raise ClusterError(
            "kernel_mismatch",
            f"This build has no modules for the kernel {system.kernel}.",
            "Set `kernel_support: true` to build them, or choose another version. Nothing has been changed.",
        )
    if not modules.headers:
        raise ClusterError(
            "headers_missing",
            f"Modules cannot be built: /lib/modules/{system.kernel}/build does not exist.",
            f"Install the headers of the running kernel (linux-headers-{system.kernel} or kernel-devel-{system.kernel}).",
        )


def refuse_users(users: t.Sequence[str], what: str) -> None:
    """Stop where RDMA is in use: no consent makes that harmless."""
    if users:
        raise ClusterError(
            "in_use",
            f"{what} would break what uses RDMA now: {'; '.join(users)}.",
            "End these jobs and unmount these file systems (drain the node), then run again. Nothing has been changed.",
            users=list(users),
        )


def plan_reboot(reason: str) -> Step:
    """Loading new modules by starting the node again."""
    return Step("reboot", "the node", reason, "modules of the installed version")


def plan_restart(wanted: Wanted, reason: str) -> Step:
    """Loading new modules: with consent, or not at all."""
    if wanted.allow_restart:
        return Step("restart", "openibd", reason, "modules of the installed version")
    if wanted.allow_reboot:
        return plan_reboot(reason)
    raise ClusterError(
        "consent_missing",
        f"{reason[:1].upper()}{reason[1:]}: the modules have to be loaded anew, which interrupts the node's network over them.",
        "Set `allow_restart: true` to restart openibd, or `allow_reboot: true` to reboot.",
    )


def plan_stack(
    wanted: Wanted, system: System, software: Software, modules: Modules, users: t.Callable[[], t.Sequence[str]]
) -> list[Step]:
    """The steps from the stack that is there to the wanted one; raises what speaks against them.

    ``users`` is asked only when something is to be done: looking through all processes takes time.
    """
    if not wanted.installs:
        return []
    _refuse_distribution(wanted, system)
    _refuse_container(wanted, system)
    steps = [*_other_stack_away(wanted, software), *_wanted_stack(wanted, system, software, modules)]
    # On EL without kernel_support DOCA's own modules come, of which only its repository tells for which kernels they are.
    if steps and wanted.source == "doca" and (system.manager == "dpkg" or wanted.kernel_support):
        check_kernel(wanted, system, modules, ())
    if wanted.configures:
        steps += _new_modules(wanted, software, modules, steps)
    if steps:
        refuse_users(users(), "; ".join(f"{step.kind} {step.name}" for step in steps))
    return steps


def _refuse_distribution(wanted: Wanted, system: System) -> None:
    if not system.os.startswith(_KNOWN):
        raise ClusterError(
            "unsupported_distribution",
            f"RDMA software (`source: {wanted.source}`) is not installed on {system.os}: only Debian, Ubuntu, and RHEL with its "
            "rebuilds are known.",
            "Bring it with the image, and set `source: preinstalled`. Nothing has been changed.",
        )


def _refuse_container(wanted: Wanted, system: System) -> None:
    # An image for real machines may be built in a container, if it says for which kernel.
    image = not wanted.configures and bool(wanted.kernel)
    if wanted.kernel_parts and system.container and not image:
        raise ClusterError(
            "container",
            "This is a container: kernel modules belong to its host.",
            "Set `user_space_only: true` for containers, and install the modules on the host.",
        )


def _other_stack_away(wanted: Wanted, software: Software) -> list[Step]:
    source, version = remaining_stack(software)
    if not source or source == wanted.source:
        return []
    have = f"{source} {version}".strip()
    if not wanted.allow_replace:
        raise ClusterError(
            "conflict",
            f"{_remains(software)}, and `source` is {wanted.source}.",
            f"Set `allow_replace: true` to remove {source} first, or `source: {source}` to keep it.",
        )
    return [Step("uninstall", have, have, "")]


def _wanted_stack(wanted: Wanted, system: System, software: Software, modules: Modules) -> list[Step]:
    """The installation of what is not there, or not whole, or the modules that a new kernel lacks."""
    if wanted.source == "inbox":
        return []
    want = f"{wanted.source} {wanted.version}".strip()
    if not is_current(wanted, software):
        source, _version = remaining_stack(software)
        have = " ".join(installed_stack(software)).strip() if source == wanted.source else ""
        left = f" ({software.unfinished} was interrupted)" if software.unfinished else ""
        return [Step("install", want, f"{have}{left}".strip(), want)]
    if modules.vendor or not wanted.kernel_parts:
        return []
    if not wanted.kernel_support:
        check_kernel(wanted, system, modules, ())
    return [Step("rebuild", f"{want} for {system.kernel}", "no modules", f"modules for {system.kernel}")]


def _new_modules(wanted: Wanted, software: Software, modules: Modules, steps: t.Sequence[Step]) -> list[Step]:
    """How modules come into the kernel in place of those that are loaded, after ``steps``."""
    if wanted.kernel_parts and modules.loaded and (steps or modules.stale):
        stale = f"{', '.join(modules.stale)} loaded from another build"
        return [plan_restart(wanted, "new modules are to be installed" if steps else stale)]
    if _vendor_loaded(software, modules) and any(step.kind == "uninstall" for step in steps):
        have = " ".join(remaining_stack(software)).strip()
        # openibd goes with its stack: only a reboot brings the kernel's own modules.
        return [plan_restart(dataclasses.replace(wanted, allow_restart=False), f"{have} is loaded")]
    return []


def plan_removal(wanted: Wanted, software: Software, users: t.Callable[[], t.Sequence[str]]) -> list[Step]:
    """Taking a vendor's stack away, also what an interruption left of one; the distribution's packages stay."""
    source, version = remaining_stack(software)
    if not source or wanted.source == "inbox" or not wanted.installs:
        return []
    if source != wanted.source:
        raise ClusterError(
            "conflict",
            f"{_remains(software)}, and `source` is {wanted.source}.",
            f"Set `source: {source}` to remove it.",
        )
    have = f"{source} {version}".strip()
    refuse_users(users(), f"removing {have}")
    return [Step("uninstall", have, have, "")]


__all__ = [
    "UNTOUCHED",
    "check_kernel",
    "conflicts",
    "installed_stack",
    "installer_arguments",
    "is_current",
    "parse_removals",
    "plan_reboot",
    "plan_removal",
    "plan_restart",
    "plan_stack",
    "refuse_conflicts",
    "refuse_users",
    "remaining_stack",
    "wants_initramfs",
]
