# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rdma_stack's plan: what is installed, what has to happen, and what stops it."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import model
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import plan as stack
from hypothesis import given
from hypothesis import strategies as st

UBUNTU = model.System("ubuntu22.04", "x86_64", "dpkg", "5.15.0-25-generic")
ROCKY = model.System("rhel9.4", "x86_64", "rpm", "5.14.0-427.el9.x86_64")
OFED = "24.10-3.2.5.0"
DOCA = "3.2.1-044000-25.10"
MLNX = model.Wanted("mlnx_ofed", OFED)
NONE = model.Software()
UNLOADED = model.Modules()
INSTALLED = model.Software(ofed=f"MLNX_OFED_LINUX-{OFED}")
FITTING = model.Modules(vendor=True, loaded=True, headers=True)
INBOX_LOADED = model.Modules(loaded=True, headers=True)


def kinds(
    wanted: model.Wanted,
    software: model.Software = NONE,
    modules: model.Modules = UNLOADED,
    system: model.System = UBUNTU,
    users: t.Sequence[str] = (),
) -> list[str]:
    return [step.kind for step in stack.plan_stack(wanted, system, software, modules, lambda: users)]


def refusal(*args: t.Any, **kwargs: t.Any) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        kinds(*args, **kwargs)
    return caught.value


def doca(version: str = DOCA, *names: str) -> model.Software:
    host = f"{version}-ubuntu2204"
    return model.Software("OFED-internal-25.10", {"doca-host": host, **dict.fromkeys(names or ("doca-ofed",), "3.2.1")})


# apt took doca-ofed away, and not doca-host.
HALF_REMOVED = model.Software(packages={"doca-host": f"{DOCA}-ubuntu2204"}, unfinished=f"removal of doca {DOCA}")
PREINSTALLED = model.Wanted("preinstalled")

# doca-host was upgraded, and what it offers was not installed.
HALF_UPGRADED = model.Software(packages={"doca-host": f"{DOCA}-ubuntu2204", "doca-ofed": "3.1.0-091000"})


@pytest.mark.parametrize(
    ("wanted", "software", "current"),
    [
        (MLNX, INSTALLED, True),
        (MLNX, NONE, False),
        (model.Wanted("mlnx_ofed", "24.10-4.1.4.0"), INSTALLED, False),
        (MLNX, dataclasses.replace(INSTALLED, unfinished="mlnx_ofed"), False),
        (model.Wanted("doca", OFED), INSTALLED, False),
        (model.Wanted("inbox"), NONE, True),
        (model.Wanted("inbox"), INSTALLED, False),
        (model.Wanted("inbox"), model.Software(unfinished=f"removal of doca {DOCA}"), False),
        (model.Wanted("doca", DOCA), doca(), True),
        (model.Wanted("doca", DOCA), doca("3.2.1-044000-25.10".replace("-25", "_25")), True),
        (model.Wanted("doca", DOCA), dataclasses.replace(doca(), unfinished="doca"), False),
        (model.Wanted("doca", "3.2.1-04400"), doca(), False),
        (model.Wanted("doca", DOCA), doca("3.1.0-091000-25.07"), False),
        (model.Wanted("doca", DOCA), HALF_UPGRADED, False),
        (PREINSTALLED, doca(), True),
        (PREINSTALLED, INSTALLED, True),
        (PREINSTALLED, NONE, True),
        (PREINSTALLED, HALF_REMOVED, False),
        (model.Wanted("preinstalled", DOCA), doca(), True),
        (model.Wanted("preinstalled", OFED), INSTALLED, True),
        (model.Wanted("preinstalled", DOCA), doca("3.1.0-091000-25.07"), False),
        (model.Wanted("preinstalled", OFED), NONE, False),
        (model.Wanted("doca", DOCA), model.Software(packages={"doca-host": f"{DOCA}-ubuntu2204"}), False),
        (model.Wanted("doca", DOCA, user_space_only=True), doca(DOCA, "doca-ofed-userspace"), True),
        (model.Wanted("doca", DOCA), doca(DOCA, "doca-ofed-userspace"), False),
    ],
)
def test_the_wanted_version_and_all_of_it(wanted: model.Wanted, software: model.Software, current: bool) -> None:
    assert stack.is_current(wanted, software) is current


def test_nothing_is_done_to_a_node_that_is_right() -> None:
    def asked() -> t.Sequence[str]:
        raise AssertionError("nobody has to look through all processes for this")

    assert stack.plan_stack(MLNX, UBUNTU, INSTALLED, FITTING, asked) == []
    assert stack.plan_stack(model.Wanted("inbox"), UBUNTU, NONE, model.Modules(), asked) == []


@pytest.mark.parametrize(
    ("software", "before"),
    [
        (NONE, ""),
        (model.Software(unfinished="mlnx_ofed 1"), "(mlnx_ofed 1 was interrupted)"),
        (dataclasses.replace(INSTALLED, unfinished="it"), f"mlnx_ofed {OFED} (it was interrupted)"),
        (model.Software(ofed="MLNX_OFED_LINUX-5.8"), "mlnx_ofed 5.8"),
    ],
)
def test_an_installation_tells_what_was_there(software: model.Software, before: str) -> None:
    steps = stack.plan_stack(MLNX, UBUNTU, software, UNLOADED, list)
    assert [(step.kind, step.before, step.after) for step in steps] == [("install", before, f"mlnx_ofed {OFED}")]


@pytest.mark.parametrize(
    "software", [NONE, INSTALLED, doca(), model.Software("OFED-internal-25.10-2.4.1"), HALF_REMOVED]
)
def test_what_the_image_brought_is_left_as_it_is(software: model.Software) -> None:
    """Also where its modules are not those that are loaded, or it is a container."""
    stale = model.Modules(vendor=True, loaded=True, stale=("mlx5_core",))
    for system in (UBUNTU, dataclasses.replace(ROCKY, container=True)):
        assert kinds(PREINSTALLED, software, stale, system, ["hpl (pid 4)"]) == []
    assert stack.plan_removal(PREINSTALLED, software, lambda: ["hpl (pid 4)"]) == []


def test_a_node_without_adapters_is_installed_without_consent() -> None:
    assert kinds(MLNX) == ["install"]


@pytest.mark.parametrize(
    ("consent", "steps"),
    [
        ({"allow_restart": True}, ["install", "restart"]),
        ({"allow_reboot": True}, ["install", "reboot"]),
        # The lesser of two that were agreed to.
        ({"allow_restart": True, "allow_reboot": True}, ["install", "restart"]),
    ],
)
def test_loaded_modules_need_consent(consent: dict[str, bool], steps: list[str]) -> None:
    error = refusal(MLNX, modules=INBOX_LOADED)
    assert error.kind == "consent_missing"
    assert "`allow_restart: true`" in error.remedy
    assert "`allow_reboot: true`" in error.remedy
    assert kinds(dataclasses.replace(MLNX, **consent), modules=INBOX_LOADED) == steps


def test_libraries_alone_are_installed_beside_modules_that_are_loaded() -> None:
    assert kinds(dataclasses.replace(MLNX, user_space_only=True), modules=INBOX_LOADED) == ["install"]


def test_an_image_is_built_without_loading_anything() -> None:
    assert kinds(dataclasses.replace(MLNX, phases=("install",)), modules=INBOX_LOADED) == ["install"]


def test_old_modules_that_are_still_loaded_are_noticed_later() -> None:
    stale = dataclasses.replace(FITTING, stale=("mlx5_core",))
    assert "mlx5_core loaded from another build" in refusal(MLNX, INSTALLED, stale).message.lower()
    assert kinds(dataclasses.replace(MLNX, allow_restart=True), INSTALLED, stale) == ["restart"]


def test_nobody_s_consent_makes_jobs_harmless() -> None:
    wanted = dataclasses.replace(MLNX, allow_restart=True, allow_reboot=True, allow_replace=True)
    error = refusal(wanted, modules=INBOX_LOADED, users=["lustre mounted on /scratch"])
    assert error.kind == "in_use"
    assert "lustre mounted on /scratch" in error.message


def test_a_new_kernel_gets_its_modules_or_is_refused() -> None:
    unfit = model.Modules(vendor=False, headers=True)
    assert kinds(MLNX, INSTALLED, unfit) == ["rebuild"]
    assert refusal(dataclasses.replace(MLNX, kernel_support=False), INSTALLED, unfit).kind == "kernel_mismatch"
    assert kinds(dataclasses.replace(MLNX, user_space_only=True), INSTALLED, unfit) == []


def test_what_cannot_be_built_is_refused_before_anything_is_removed() -> None:
    with pytest.raises(ClusterError) as caught:
        stack.check_kernel(MLNX, UBUNTU, model.Modules(), ["5.4.0"])
    assert caught.value.kind == "headers_missing"
    stack.check_kernel(MLNX, UBUNTU, model.Modules(), [UBUNTU.kernel])
    stack.check_kernel(MLNX, UBUNTU, model.Modules(headers=True), ["5.4.0"])
    stack.check_kernel(dataclasses.replace(MLNX, user_space_only=True), UBUNTU, model.Modules(), [])
    assert refusal(model.Wanted("doca", DOCA)).kind == "headers_missing"
    assert refusal(model.Wanted("doca", DOCA), system=ROCKY).kind == "headers_missing"
    # Without it DOCA's repository has modules for some kernels.
    assert kinds(model.Wanted("doca", DOCA, kernel_support=False), system=ROCKY) == ["install"]
    # Nothing is built for a container, or where only libraries are wanted.
    assert kinds(model.Wanted("doca", DOCA, user_space_only=True)) == ["install"]
    # The installer of MLNX_OFED brings modules for some kernels: which ones is known once it was fetched.
    assert kinds(MLNX) == ["install"]


def test_another_stack_goes_only_with_consent() -> None:
    wanted = model.Wanted("doca", DOCA, user_space_only=True)
    assert refusal(wanted, INSTALLED).kind == "conflict"
    assert kinds(dataclasses.replace(wanted, allow_replace=True), INSTALLED) == ["uninstall", "install"]
    inbox = model.Wanted("inbox", allow_replace=True)
    assert kinds(inbox, INSTALLED) == ["uninstall"]
    # openibd is gone then: only a reboot brings the kernel's own modules.
    assert refusal(dataclasses.replace(inbox, allow_restart=True), INSTALLED, FITTING).kind == "consent_missing"
    assert kinds(dataclasses.replace(inbox, allow_reboot=True), INSTALLED, FITTING) == ["uninstall", "reboot"]


def test_a_stack_of_somebody_else_is_not_taken_for_the_distribution_s() -> None:
    software = model.Software("OFED-internal-25.10-2.4.1", {"rdma-core": "44"})
    assert not stack.is_current(model.Wanted("inbox"), software)
    assert "other OFED-internal-25.10-2.4.1 is installed" in refusal(MLNX, software).message
    assert kinds(dataclasses.replace(MLNX, allow_replace=True), software) == ["uninstall", "install"]
    # Its packages are not the distribution's either.
    assert stack.conflicts(software) == []


@pytest.mark.parametrize("os", ["azurelinux3.0", "sles15.6", "fedora42", "unknown"])
@pytest.mark.parametrize("source", ["inbox", "doca", "mlnx_ofed"])
def test_a_distribution_of_another_kind_is_refused_before_anything_is_tried(os: str, source: str) -> None:
    system = dataclasses.replace(ROCKY, os=os)
    refused = refusal(model.Wanted(source, DOCA), system=system)
    assert refused.kind == "unsupported_distribution"
    assert os in refused.message
    assert "preinstalled" in refused.remedy
    assert kinds(PREINSTALLED, system=system) == []


@pytest.mark.parametrize("os", ["debian13.1", "rhel10.0", "ubuntu24.04"])
def test_newer_releases_of_what_is_known_are_left_to_the_vendor_s_files(os: str) -> None:
    system = dataclasses.replace(ROCKY, os=os)
    assert kinds(model.Wanted("doca", DOCA), modules=model.Modules(headers=True), system=system) == ["install"]


def test_a_container_has_no_modules_of_its_own() -> None:
    inside = dataclasses.replace(UBUNTU, container=True)
    assert refusal(MLNX, system=inside).kind == "container"
    assert refusal(dataclasses.replace(MLNX, phases=("install",)), system=inside).kind == "container"
    assert kinds(dataclasses.replace(MLNX, phases=("install",), kernel="5.15.0-9-azure"), system=inside) == ["install"]
    # To say for which kernel is not enough: what loads the modules cannot run here.
    assert refusal(dataclasses.replace(MLNX, kernel="5.15.0-9-azure"), system=inside).kind == "container"
    assert kinds(dataclasses.replace(MLNX, user_space_only=True), system=inside) == ["install"]
    # Nor do modules of the host that changed matter.
    stale = dataclasses.replace(FITTING, stale=("mlx5_core",))
    assert kinds(dataclasses.replace(MLNX, user_space_only=True), INSTALLED, stale, system=inside) == []
    assert kinds(model.Wanted("inbox"), system=inside) == []


def test_arguments_of_the_container_installation_are_those_of_the_reference() -> None:
    wanted = model.Wanted("mlnx_ofed", "5.2-2.2.0.0", user_space_only=True)
    arguments = stack.installer_arguments(wanted, UBUNTU, (), ())
    assert set(arguments) == {
        "--user-space-only",
        "--without-fw-update",
        "--all",
        "--without-neohost-backend",
        "--force",
    }


def test_modules_are_built_only_where_there_are_none() -> None:
    extra = ["--hpc", "--with-nfsrdma"]
    assert stack.installer_arguments(MLNX, UBUNTU, (), extra)[2:] == ["--add-kernel-support", "--skip-repo", *extra]
    assert stack.installer_arguments(MLNX, UBUNTU, [UBUNTU.kernel], extra)[2:] == extra
    # Not where building is not allowed, and no option twice.
    refused = dataclasses.replace(MLNX, kernel_support=False)
    assert stack.installer_arguments(refused, UBUNTU, (), ["--force", *extra])[2:] == extra


@pytest.mark.parametrize(
    "option", ["--fw-update-only", "--force-fw-update", "--fw-image-dir", "--fw-dir", "--enable-sriov"]
)
def test_options_that_write_to_adapters_are_refused(option: str) -> None:
    for spelled in (option, f"{option}=/x"):
        with pytest.raises(ClusterError, match="firmware"):
            stack.installer_arguments(MLNX, UBUNTU, (), [spelled])


@given(
    user_space=st.booleans(),
    support=st.booleans(),
    supported=st.booleans(),
    extra=st.lists(st.sampled_from(["--hpc", "--dkms", "-q", "--fw-update-only", "--force-fw-update", "--fw-dir=/x"])),
)
def test_firmware_is_never_touched(user_space: bool, support: bool, supported: bool, extra: list[str]) -> None:
    wanted = model.Wanted("mlnx_ofed", OFED, user_space_only=user_space, kernel_support=support)
    kernels = [UBUNTU.kernel] if supported else []
    if any("fw" in option for option in extra):
        with pytest.raises(ClusterError, match="firmware"):
            stack.installer_arguments(wanted, UBUNTU, kernels, extra)
        return
    arguments = stack.installer_arguments(wanted, UBUNTU, kernels, extra)
    assert {"--without-fw-update", "--force"} <= set(arguments)
    assert not [option for option in arguments if "fw" in option and option != "--without-fw-update"]


@given(
    source=st.sampled_from(["inbox", "doca", "mlnx_ofed"]),
    software=st.sampled_from([NONE, INSTALLED, doca(), dataclasses.replace(INSTALLED, unfinished="x"), HALF_REMOVED]),
    flags=st.fixed_dictionaries(
        {
            name: st.booleans()
            for name in ("user_space_only", "kernel_support", "allow_restart", "allow_reboot", "allow_replace")
        }
    ),
    modules=st.builds(
        model.Modules,
        vendor=st.booleans(),
        loaded=st.booleans(),
        stale=st.sampled_from([(), ("ib_core",)]),
        headers=st.booleans(),
    ),
    busy=st.booleans(),
    phases=st.sampled_from([("install",), ("configure",), ("install", "configure")]),
)
def test_every_plan_has_its_consent_and_disturbs_nobody(
    source: str,
    software: model.Software,
    flags: dict[str, bool],
    modules: model.Modules,
    busy: bool,
    phases: tuple[str, ...],
) -> None:
    version = {"inbox": "", "doca": DOCA, "mlnx_ofed": OFED}[source]
    wanted = model.Wanted(source, version, phases=phases, **flags)
    try:
        steps = kinds(wanted, software, modules, users=["a job"] if busy else [])
    except ClusterError:
        return
    assert not (busy and steps)
    assert "restart" not in steps or flags["allow_restart"]
    assert "reboot" not in steps or flags["allow_reboot"]
    assert "uninstall" not in steps or flags["allow_replace"]
    assert not ("configure" not in phases and {"restart", "reboot"} & set(steps))
    # Whatever is loaded last, it comes after what is installed.
    order = ["uninstall", "install", "rebuild", "restart", "reboot"]
    assert steps == sorted(steps, key=order.index)
    assert bool({"uninstall", "install"} & set(steps)) is not stack.is_current(wanted, software)


def test_the_distribution_s_packages_in_the_way_are_named() -> None:
    software = model.Software(packages={"perftest": "4.5", "rdma-core": "44", "doca-host": "1"})
    assert stack.conflicts(software) == ["perftest", "rdma-core"]
    assert stack.conflicts(dataclasses.replace(software, ofed=f"MLNX_OFED_LINUX-{OFED}")) == []
    with pytest.raises(ClusterError, match=r"perftest, rdma-core.*`allow_replace"):
        stack.refuse_conflicts(["perftest", "rdma-core"], "DOCA", MLNX)
    stack.refuse_conflicts(["perftest"], "DOCA", dataclasses.replace(MLNX, allow_replace=True))


def test_removal_takes_only_what_was_named() -> None:
    def nobody() -> list[str]:
        return []

    assert [step.kind for step in stack.plan_removal(MLNX, INSTALLED, nobody)] == ["uninstall"]
    assert stack.plan_removal(model.Wanted("inbox"), INSTALLED, nobody) == []
    assert stack.plan_removal(MLNX, NONE, nobody) == []
    with pytest.raises(ClusterError, match="`source: mlnx_ofed`"):
        stack.plan_removal(model.Wanted("doca", DOCA), INSTALLED, nobody)
    with pytest.raises(ClusterError, match="hpl"):
        stack.plan_removal(MLNX, INSTALLED, lambda: ["hpl (pid 7)"])


INBOX = model.Wanted("inbox", allow_replace=True)


@pytest.mark.parametrize(
    "software",
    [
        HALF_REMOVED,
        # doca-ofed is gone, and what it brought still answers `ofed_info -s`.
        dataclasses.replace(HALF_REMOVED, ofed="OFED-internal-25.10-2.4.1"),
        # An installation that did not end.
        dataclasses.replace(HALF_REMOVED, unfinished=f"doca {DOCA}"),
    ],
)
def test_what_was_interrupted_is_brought_to_an_end(software: model.Software) -> None:
    (removal,) = stack.plan_removal(model.Wanted("doca", DOCA), software, list)
    (step,) = stack.plan_stack(INBOX, UBUNTU, software, UNLOADED, list)
    assert (removal.kind, removal.name) == (step.kind, step.name) == ("uninstall", f"doca {DOCA}")
    assert kinds(dataclasses.replace(MLNX, allow_replace=True), software) == ["uninstall", "install"]
    # To install the same again takes nothing away.
    assert kinds(model.Wanted("doca", DOCA, user_space_only=True), software) == ["install"]
    for refused in (refusal(model.Wanted("inbox"), software), refusal(MLNX, software)):
        assert (refused.kind, f"({software.unfinished} was interrupted)" in refused.message) == ("conflict", True)
    with pytest.raises(ClusterError, match="`source: doca`"):
        stack.plan_removal(MLNX, software, list)
    with pytest.raises(ClusterError, match="hpl"):
        stack.plan_removal(model.Wanted("doca", DOCA), software, lambda: ["hpl (pid 7)"])


def test_modules_that_an_interrupted_removal_left_loaded_wait_for_a_reboot() -> None:
    stale = dataclasses.replace(INBOX_LOADED, stale=("mlx5_core",))
    for modules in (stale, FITTING):
        assert refusal(INBOX, HALF_REMOVED, modules).kind == "consent_missing"
        assert kinds(dataclasses.replace(INBOX, allow_reboot=True), HALF_REMOVED, modules) == ["uninstall", "reboot"]
    # The node was started again since.
    assert kinds(INBOX, HALF_REMOVED, INBOX_LOADED) == ["uninstall"]


@pytest.mark.parametrize(
    ("said", "wants"),
    [
        ("Note: In order to load the new nvme-rdma, please update your initramfs\n", True),
        ("In order to update the initramfs run dracut -f\n", True),
        ("Run dracut -f before the next boot.\n", True),
        ("Installation passed successfully\n", False),
    ],
)
def test_the_hint_at_the_initial_ram_disk(said: str, wants: bool) -> None:
    assert stack.wants_initramfs(said) is wants


def test_simulated_removals_are_read() -> None:
    out = (
        "Reading package lists...\nThe following packages will be REMOVED:\n  libopenmpi3 openmpi-bin\n"
        "Remv openmpi-bin [4.1.4-3+b1]\nRemv libopenmpi3 [4.1.4-3+b1]\nInst ofed-scripts (1 Lab [all])\n"
    )
    assert stack.parse_removals(out) == ["libopenmpi3", "openmpi-bin"]
