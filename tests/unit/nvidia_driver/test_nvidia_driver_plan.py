# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which steps a node gets, why, and with whose consent: facts in, a plan out, and no node anywhere."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.hardware import Gpu, Hardware
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Facts, Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.plan import Do, Plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import ARGUMENT_SPEC, Request

NEW, OLD = "580.95.05", "570.124.06"
FACTS = Facts(
    root=pathlib.Path("/nowhere"),
    hardware=Hardware((Gpu("0001:00:00.0", 0x20B0),)),
    loaded=Loaded(),
    kernel="6.8.0-1031-azure",
    machine="x86_64",
    hostname="gpu-1",
    chroot=False,
    os_release='ID=debian\nVERSION_ID="12"\n',
    openibd=False,
    uninstaller=False,
)
RUNFILE = {"source": "runfile", "kernel_headers": False}


def asked(**options: t.Any) -> Request:
    defaults = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}
    return Request.of({**defaults, "version": NEW, "kernel_headers": False, **options})


def packages(version: str) -> dict[str, Installed]:
    names = ("nvidia-open", "nvidia-kernel-open-dkms", "libcuda1", "nvidia-fabricmanager") if version else ()
    return {name: Installed(name, f"{version}-1") for name in names}


def found(installed: str = "", loaded: str = "", **parts: t.Any) -> Facts:
    driver = Loaded(loaded, "open" if loaded else "")
    return dataclasses.replace(FACTS, loaded=driver, packages=packages(installed), **parts)


def planned(request: Request, facts: Facts) -> Plan:
    wanted = rules.with_roots(request, facts, rules.choose(request, facts))
    return rules.plan(request, facts, wanted)


def names(plan: Plan) -> str:
    return " | ".join(" ".join(step.do.name for step in part) for part in (plan.prepare, plan.change, plan.finish))


TOOLS = {name: Installed(name, "1") for name in ("dkms", "gcc", "make")}
QUIET = "FILES UNITS HOLD INITRAMFS | CONFIGURE"


@pytest.mark.parametrize(
    ("facts", "options", "steps"),
    [
        (found(), {}, "REPOSITORY SIMULATE | FILES PACKAGES UNITS HOLD INITRAMFS | CONFIGURE"),
        (found(NEW, NEW), {}, f"REPOSITORY | {QUIET}"),
        (found(NEW), {"hold": False, "phases": ["install"]}, "REPOSITORY | FILES UNITS INITRAMFS | "),
        (found(OLD), {}, "REPOSITORY SIMULATE | FILES PACKAGES UNITS HOLD INITRAMFS | CONFIGURE"),
        (
            found(OLD, OLD),
            {"fabric_manager": "always"},
            "REPOSITORY SIMULATE DOWNLOAD | RELEASE FILES PACKAGES UNITS HOLD INITRAMFS | CONFIGURE",
        ),
        # The right packages are there, and the kernel still runs the old module: nothing to download.
        (found(NEW, OLD), {}, f"REPOSITORY | RELEASE {QUIET}"),
        (found(OLD, OLD, chroot=True), {}, "REPOSITORY SIMULATE | FILES PACKAGES UNITS HOLD INITRAMFS | CONFIGURE"),
        (
            found(),
            RUNFILE,
            "FETCH REPOSITORY SIMULATE | FILES PACKAGES INSTALLER UNITS HOLD INITRAMFS | CONFIGURE",
        ),
        (
            dataclasses.replace(FACTS, packages=TOOLS, libraries=(NEW,), on_disk=(NEW, "open")),
            RUNFILE,
            f"REPOSITORY | {QUIET}",
        ),
        (
            dataclasses.replace(FACTS, packages=TOOLS, libraries=(NEW,), on_disk=(NEW, "proprietary")),
            RUNFILE,
            "FETCH REPOSITORY | FILES INSTALLER UNITS HOLD INITRAMFS | CONFIGURE",
        ),
    ],
)
def test_steps(facts: Facts, options: dict[str, t.Any], steps: str) -> None:
    assert names(planned(asked(**options), facts)) == steps


def test_steps_tell_why() -> None:
    plan = planned(asked(), found(OLD, OLD))
    reasons = {step.do: step.reasons for step in (*plan.prepare, *plan.change)}
    assert reasons[Do.RELEASE] == (f"the kernel runs driver {OLD}, and {NEW} is wanted",)
    assert f"libcuda1 is at {OLD}-1" in reasons[Do.PACKAGES]
    assert plan.replaces == f"{OLD} (open module)"
    installer = planned(asked(**RUNFILE), dataclasses.replace(FACTS, packages=TOOLS))
    assert {step.reasons for step in installer.change if step.do is Do.INSTALLER} == {
        (f"{NEW} (open module) is not installed",)
    }


CONSENTS = ("allow_upgrade", "allow_unload", "allow_reboot")
NODES = [
    (found(), {}),
    (found(OLD), {}),
    (found(NEW, OLD), {}),
    (found(OLD, OLD), {}),
    (dataclasses.replace(FACTS, packages=TOOLS, libraries=(OLD,), on_disk=(OLD, "open")), RUNFILE),
    (dataclasses.replace(FACTS, packages=TOOLS, libraries=(OLD,), on_disk=(OLD, "open"), loaded=Loaded(OLD)), RUNFILE),
]


@pytest.mark.parametrize("given", list(itertools.product((False, True), repeat=len(CONSENTS))))
@pytest.mark.parametrize(("facts", "options"), NODES)
def test_a_plan_is_refused_where_one_of_its_steps_lacks_consent(
    facts: Facts, options: dict[str, t.Any], given: tuple[bool, ...]
) -> None:
    agreed = dict(zip(CONSENTS, given))
    request = asked(**options, **agreed)
    plan = planned(request, facts)
    needs = [step.consents for step in (*plan.prepare, *plan.change, *plan.finish) if step.consents]
    allowed = all(any(agreed[name] for name in names) for names in needs)
    parts = {"replaces": plan.replaces, "wanted": plan.wanted.text(), "reload": plan.reload}
    if allowed:
        rules.check_consent(request, would=(), users=(), **parts)
    else:
        with pytest.raises(ClusterError) as caught:
            rules.check_consent(request, would=(), users=(), **parts)
        assert caught.value.kind == "consent_missing"


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        (found(uninstaller=True), {}, "NVIDIA's .run file is installed"),
        (found(NEW), RUNFILE, r"Packages of a driver are installed \(libcuda1, "),
        # What is as wanted is left alone, and Fabric Manager alone is no driver.
        (found(NEW, uninstaller=True), {}, ""),
        (
            dataclasses.replace(FACTS, packages={"nvidia-fabricmanager": Installed("nvidia-fabricmanager", OLD)}),
            RUNFILE,
            "",
        ),
        (
            dataclasses.replace(
                FACTS, packages={name: Installed(name, NEW) for name in ("libnvidia-nscq", "libnvsdm-570")}
            ),
            RUNFILE,
            "",
        ),
    ],
)
def test_two_ways_to_install_do_not_meet(facts: Facts, options: dict[str, t.Any], message: str) -> None:
    request = asked(**options)
    wanted = rules.with_roots(request, facts, rules.choose(request, facts))
    if not message:
        rules.check_source(request, facts, wanted)
        return
    with pytest.raises(ClusterError, match=message) as caught:
        rules.check_source(request, facts, wanted)
    assert caught.value.kind == "other_source"


EL_9, EL_10 = 'ID=rocky\nVERSION_ID="9.5"\n', 'ID=rocky\nVERSION_ID="10.0"\n'


@pytest.mark.parametrize(
    ("os_release", "stream", "options", "enabled"),
    [
        (FACTS.os_release, None, {}, ""),
        (EL_9, "", {}, "580-open"),
        (EL_9, "570-open", {"kernel_module": "proprietary"}, "580-dkms"),
        (EL_9, "580-open", {}, ""),
        (EL_9, "", {"source": "distro", "packages": ["driver"]}, ""),
        # Modules ended with EL 9.
        (EL_10, "", {}, ""),
    ],
)
def test_the_module_stream(os_release: str, stream: str | None, options: dict[str, t.Any], enabled: str) -> None:
    facts = dataclasses.replace(FACTS, stream=stream, os_release=os_release)
    request = asked(**options)
    assert rules.stream_to_enable(request, facts, rules.choose(request, facts)) == enabled


def test_versionlock_comes_where_dnf_is_to_hold() -> None:
    def roots(stream: str | None, **options: t.Any) -> list[str]:
        facts, request = dataclasses.replace(FACTS, stream=stream), asked(**options)
        return [root.name for root in rules.with_roots(request, facts, rules.choose(request, facts)).roots]

    assert roots("") == ["nvidia-open", "python3-dnf-plugin-versionlock"]
    assert roots("", hold=False) == roots(None) == ["nvidia-open"]


@pytest.mark.parametrize(
    ("option", "parts", "wanted"),
    [
        ("auto", {"openibd": True}, True),
        ("auto", {}, False),
        ("always", {}, True),
        ("never", {"openibd": True}, False),
    ],
)
def test_peermem_follows_the_infiniband_stack(option: str, parts: dict[str, t.Any], wanted: bool) -> None:
    assert rules.choose(asked(peermem=option), found(**parts)).peermem is wanted


@pytest.mark.parametrize(
    ("option", "switches", "wanted"), [("auto", 6, True), ("auto", 0, False), ("always", 0, True), ("never", 6, False)]
)
def test_fabric_manager_follows_the_switches(option: str, switches: int, wanted: bool) -> None:
    hardware = dataclasses.replace(FACTS.hardware, nvswitches=switches)
    facts = dataclasses.replace(FACTS, hardware=hardware)
    assert rules.choose(asked(fabric_manager=option), facts).fabric is wanted


def test_a_library_for_nvswitches_alone_is_no_driver_to_replace() -> None:
    facts = found(NEW, NEW)
    facts = dataclasses.replace(facts, packages={**facts.packages, "libnvidia-nscq": Installed("libnvidia-nscq", OLD)})
    plan = planned(asked(), facts)
    assert plan.difference.other_version == ("libnvidia-nscq",)
    assert plan.replaces == ""


SIGNED = ("linux-modules-nvidia-580-server-open-azure", "nvidia-utils-580-server")


@pytest.mark.parametrize(
    ("facts", "options", "builds"),
    [
        (found(), {}, True),
        (found(OLD, OLD), {}, True),
        (found(NEW, NEW), {}, False),
        # A site's own package brings the module, under a name that says nothing of it.
        (
            dataclasses.replace(FACTS, packages={"site-driver": Installed("site-driver", f"{NEW}-1")}),
            {"packages": ["site-driver"]},
            False,
        ),
        (found(), {"packages": list(SIGNED)}, False),
        # The module of dkms leaves with the signed ones, unless it is asked for beside them.
        (found(OLD, OLD), {"packages": list(SIGNED)}, False),
        (found(), {"packages": [*SIGNED, "nvidia-dkms-580-server-open"]}, True),
        (dataclasses.replace(FACTS, packages=TOOLS), RUNFILE, True),
        (dataclasses.replace(FACTS, packages=TOOLS, libraries=(NEW,), on_disk=(NEW, "open")), RUNFILE, False),
    ],
)
def test_a_module_is_built_only_where_something_is_installed(
    facts: Facts, options: dict[str, t.Any], *, builds: bool
) -> None:
    request = asked(**options)
    wanted = rules.with_roots(request, facts, rules.choose(request, facts))
    assert rules.builds_module(request, facts, wanted) is builds


def test_signed_modules_have_the_version_of_their_kernel() -> None:
    """apt has linux-modules-nvidia-580-server-open-azure at 6.8.0-1031.36, and no driver's version of it."""
    request = asked(packages=list(SIGNED))
    wanted = rules.with_roots(request, FACTS, rules.choose(request, FACTS))
    # The one that follows a flavor has the newest kernel's: those of the kernel that runs are named, too.
    of_kernel = f"linux-modules-nvidia-580-server-open-{FACTS.kernel}"
    assert [(root.name, root.upstream) for root in wanted.roots] == [(SIGNED[0], ""), (SIGNED[1], NEW), (of_kernel, "")]
