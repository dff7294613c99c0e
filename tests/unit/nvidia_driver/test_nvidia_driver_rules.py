# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Consent, reasons to reload, files, modes, versions that do not fit, keys, Slurm."""

from __future__ import annotations

import pathlib
import re
import shutil
import types
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import openpgp
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.distribution import Distribution
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import files, settings, verify
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import kernel as kernel_modules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import read as node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import slurm as driver_slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.model import Loaded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.request import ARGUMENT_SPEC, Request
from lab.package_repository import nvidia, repository

DEBIAN = Distribution("debian", "12", "Debian 12")
ROCKY = Distribution("rocky", "9.5", "Rocky 9.5")
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23 2025\n"
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Tue Mar  5 22:42:15 UTC 2024\nGCC version: 12\n"
)


def asked(**parts: t.Any) -> Request:
    defaults = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}
    return Request.of({**defaults, "version": "580.95.05", **parts})


# -- consent -----------------------------------------------------------------------------------------------------------


def consent(**parts: t.Any) -> None:
    given = {key: parts.pop(key) for key in list(parts) if key.startswith(("allow", "drain"))}
    defaults: dict[str, t.Any] = {
        "replaces": "",
        "wanted": "580.95.05 (open module)",
        "would": (),
        "reload": (),
        "users": (),
    }
    rules.check_consent(asked(**given), **{**defaults, **parts})


def test_nothing_pending_needs_no_consent() -> None:
    consent()
    consent(would=["install nvidia-open 580.95.05-1"])


def test_a_driver_is_not_replaced_silently() -> None:
    with pytest.raises(ClusterError) as caught:
        consent(replaces="570.124.06 (open module)", would=["upgrade libcuda1 570.124.06-1 to 580.95.05-1"])
    text = str(caught.value)
    assert caught.value.kind == "consent_missing"
    for part in (
        "570.124.06",
        "580.95.05",
        "upgrade libcuda1",
        "`allow_upgrade: true`",
        "Nothing was changed",
    ):
        assert part in text
    consent(replaces="570.124.06", allow_upgrade=True)
    # To agree to a reboot is not to agree to another driver.
    with pytest.raises(ClusterError, match="`allow_upgrade: true`"):
        consent(replaces="570.124.06", reload=["why"], allow_unload=True, allow_reboot=True)


@pytest.mark.parametrize(("count", "cut"), [(12, False), (13, True)])
def test_a_long_plan_is_cut_and_says_so(count: int, cut: bool) -> None:
    with pytest.raises(ClusterError) as caught:
        consent(replaces="570.124.06", would=[f"upgrade package-{number}" for number in range(count)])
    assert "upgrade package-11" in caught.value.message
    assert ("..." in caught.value.message) is cut
    assert len(caught.value.details["would"]) == count


def test_a_module_that_runs_is_not_unloaded_silently() -> None:
    with pytest.raises(ClusterError, match="`allow_unload: true` or `allow_reboot: true`"):
        consent(reload=["the kernel runs driver 570.124.06"], allow_upgrade=True)
    consent(reload=["why"], allow_unload=True)
    consent(reload=["why"], allow_reboot=True)


def test_jobs_that_run_stop_it_unless_a_reboot_or_draining_was_agreed_to() -> None:
    with pytest.raises(ClusterError, match=r"python \(42\)") as caught:
        consent(reload=["why"], users=["python (42)"], allow_unload=True)
    assert caught.value.kind == "in_use"
    consent(reload=["why"], users=["python (42)"], allow_unload=True, drain=True)
    consent(reload=["why"], users=["python (42)"], allow_reboot=True)


# -- reasons -----------------------------------------------------------------------------------------------------------

OPTIONS = {"NVreg_RestrictProfilingToAdminUsers": "1", "NVreg_EnableStreamMemOPs": "1"}


@pytest.mark.parametrize(
    ("loaded", "nouveau", "reasons"),
    [
        (Loaded(), False, 0),
        (Loaded(), True, 1),
        # Each drives some of the GPUs.
        (Loaded("570.124.06", "open"), True, 2),
        (Loaded("580.95.05", "open"), False, 0),
        (Loaded("580.95.05", ""), False, 0),
        (Loaded("570.124.06", "open"), False, 1),
        (Loaded("580.95.05", "proprietary"), False, 1),
        (Loaded("580.95.05", "open", {"RmProfilingAdminOnly": "0"}), False, 1),
        (Loaded("580.95.05", "open", {"RmProfilingAdminOnly": "1", "EnableStreamMemOPs": "1"}), False, 0),
        (Loaded("580.95.05", "open", {"RmProfilingAdminOnly": "0", "EnableStreamMemOPs": "0"}), False, 2),
    ],
)
def test_reasons_to_replace_the_module_that_runs(loaded: Loaded, nouveau: bool, reasons: int) -> None:
    assert len(rules.reload_reasons(loaded, "580.95.05", "open", OPTIONS, nouveau=nouveau)) == reasons


def test_any_kernel_module_is_right_where_none_is_asked_for() -> None:
    for flavor in ("open", "proprietary"):
        assert rules.reload_reasons(Loaded("580.95.05", flavor), "580.95.05", "", OPTIONS, nouveau=False) == []


@pytest.mark.parametrize(
    ("shown", "wanted", "reasons"),
    [
        ("432", "0660", 0),
        ("432", "0x1B0", 0),
        ("4294967295", "-1", 0),
        ("0", "0", 0),
        ("", "1", 1),
        ('"A=1"', "A=1", 0),
        ('"A=1"', '"A=1"', 0),
        ('""', "", 0),
        ("432", "0666", 1),
        ("8", "08", 1),
        ('"A=1"', "A=2", 1),
        ('"', "", 1),
    ],
)
def test_an_option_is_compared_as_the_kernel_reads_it(shown: str, wanted: str, reasons: int) -> None:
    loaded = Loaded("580.95.05", "open", {"Some": shown})
    assert len(rules.reload_reasons(loaded, "580.95.05", "open", {"NVreg_Some": wanted}, nouveau=False)) == reasons


@pytest.mark.parametrize(
    ("text", "version", "flavor"), [(OPEN, "580.95.05", "open"), (PROPRIETARY, "535.161.08", "proprietary")]
)
def test_what_the_kernel_runs(tmp_path: pathlib.Path, text: str, version: str, flavor: str) -> None:
    place = tmp_path / "proc/driver/nvidia"
    place.mkdir(parents=True)
    (place / "version").write_text(text)
    (place / "params").write_text('RmProfilingAdminOnly: 1\nRegistryDwords: ""\n')
    loaded = node.read_loaded(tmp_path)
    assert (loaded.version, loaded.flavor, loaded.parameters["RmProfilingAdminOnly"]) == (version, flavor, "1")


class Modinfo:
    """modinfo of a Debian whose driver was built by DKMS (recorded: nvidia-kernel-dkms 535.261.03)."""

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        assert args[:3] == ["modinfo", "-k", "6.1.0-50-amd64"]
        if args[3] != "nvidia-current":
            return 1, "", f"modinfo: ERROR: Module {args[3]} not found.\n"
        place = "/lib/modules/6.1.0-50-amd64/updates/dkms/nvidia-current.ko"
        return 0, f"filename:       {place}\nversion:        535.261.03\nlicense:        NVIDIA\n", ""

    def selinux_default_context(self, path: str) -> list[t.Any]:
        return []

    def set_context_if_different(self, path: str, context: list[t.Any], changed: bool) -> bool:
        raise NotImplementedError


def test_debians_module_has_another_file_name() -> None:
    assert node.module_on_disk(Modinfo(), "6.1.0-50-amd64") == ("535.261.03", "proprietary")


def test_no_module_is_no_version(tmp_path: pathlib.Path) -> None:
    assert node.read_loaded(tmp_path) == Loaded()


def test_libraries_by_their_files(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "usr/lib64"
    place.mkdir(parents=True)
    for name in ("libnvidia-ml.so", "libnvidia-ml.so.1", "libnvidia-ml.so.580.95.05", "libnvidia-ml.so.570.124.06"):
        (place / name).touch()
    assert node.read_libraries(tmp_path) == ["570.124.06", "580.95.05"]


def test_programs_that_use_a_gpu(tmp_path: pathlib.Path) -> None:
    for pid, program, opened in (
        (7, "python3", "/dev/nvidia0"),
        (8, "nvidia-persiste", "/dev/nvidiactl"),
        (9, "sshd", "/dev/null"),
    ):
        place = tmp_path / f"proc/{pid}/fd"
        place.mkdir(parents=True)
        (tmp_path / f"proc/{pid}/comm").write_text(f"{program}\n")
        (place / "3").symlink_to(opened)
    assert node.gpu_users(tmp_path) == ["python3 (7: `kill 7`)"]


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("program", "cgroup", "text"),
    [
        ("nvtop", "0::/user.slice/user-1000.slice/session-3.scope\n", "nvtop (7: `kill 7`)"),
        (
            "nvidia-smi",
            "0::/user.slice/user-0.slice/user@0.service/app.slice/tmux.service\n",
            "nvidia-smi (7: `kill 7`)",
        ),
        (
            "dcgm-exporter",
            "0::/system.slice/dcgm-exporter.service\n",
            "dcgm-exporter (7: `systemctl stop dcgm-exporter.service`)",
        ),
        # Version 1 of control groups: the hierarchy of systemd counts.
        (
            "Xorg",
            "12:devices:/system.slice\n1:name=systemd:/system.slice/gdm.service\n0::/\n",
            "Xorg (7: `systemctl stop gdm.service`)",
        ),
        ("python3", f"0::/system.slice/docker-{ID}.scope\n", "python3 (7: `docker stop 0123456789ab`)"),
        (
            "python3",
            f"4:devices:/docker/{ID}\n1:name=systemd:/docker/{ID}\n",
            "python3 (7: `docker stop 0123456789ab`)",
        ),
        ("python3", f"0::/machine.slice/libpod-{ID}.scope\n", "python3 (7: `podman stop 0123456789ab`)"),
        ("python3", f"0::/machine.slice/libpod-{ID}.scope/container\n", "python3 (7: `podman stop 0123456789ab`)"),
        (
            "vllm",
            f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n",
            "vllm (7: `crictl stop 0123456789ab`)",
        ),
        ("xhpl", "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n", "xhpl (7: `scancel 42`)"),
        (
            "xhpl",
            "9:devices:/slurm/uid_1000/job_42/step_0/task_0\n1:name=systemd:/system.slice/slurmd.service\n",
            "xhpl (7: `scancel 42`)",
        ),
        # Nobody stops one that was started by hand.
        ("nvidia-persiste", "0::/user.slice/user-0.slice/session-1.scope\n", "nvidia-persiste (7: `kill 7`)"),
        ("nv-hostengine", f"0::/system.slice/docker-{ID}.scope\n", "nv-hostengine (7: `docker stop 0123456789ab`)"),
        ("nvidia-persiste", "0::/system.slice/nvidia-persistenced.service\n", ""),
        # Whose domain spans nodes, and whose scheduler may have started it.
        (
            "nvidia-imex",
            "0::/system.slice/nvidia-imex.service\n",
            "nvidia-imex (7: `systemctl stop nvidia-imex.service`)",
        ),
        ("nv-hostengine", "0::/\n", ""),
    ],
)
def test_who_holds_a_gpu_is_named_with_what_ends_it(
    tmp_path: pathlib.Path, program: str, cgroup: str, text: str
) -> None:
    place = tmp_path / "proc/7/fd"
    place.mkdir(parents=True)
    (place / "3").symlink_to("/dev/nvidiactl")
    (tmp_path / "proc/7/comm").write_text(f"{program}\n")
    (tmp_path / "proc/7/cgroup").write_text(cgroup)
    assert node.gpu_users(tmp_path) == ([text] if text else [])


def test_gdrcopy_s_device_holds_its_module(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc/7/fd").mkdir(parents=True)
    (tmp_path / "proc/7/fd/3").symlink_to("/dev/gdrdrv")
    (tmp_path / "proc/7/comm").write_text("gdrcopy_copybw\n")
    assert node.gpu_users(tmp_path) == ["gdrcopy_copybw (7: `kill 7`)"]


# -- versions that do not fit ------------------------------------------------------------------------------------------

FITS: dict[str, t.Any] = {
    "wanted": "580.95.05",
    "loaded": "580.95.05",
    "on_disk": "580.95.05",
    "libraries": ["580.95.05"],
    "smi": ["580.95.05"] * 8,
    "fabric": "580.95.05-1",
    "switches": 6,
}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({}, ""),
        ({"wanted": ""}, ""),
        ({"loaded": "", "on_disk": "", "libraries": []}, ""),
        ({"fabric": "", "switches": 0}, ""),
        ({"libraries": ["580.126.16"]}, "Driver/library version mismatch"),
        ({"on_disk": "580.126.16"}, "the next boot brings another driver"),
        ({"smi": ["570.124.06"]}, "nvidia-smi reports driver 570.124.06"),
        ({"fabric": "580.82.07-1"}, "Fabric Manager is 580.82.07, the driver is 580.95.05"),
        ({"fabric": ""}, "6 NVSwitches, but Fabric Manager is not installed"),
        ({"wanted": "", "loaded": "", "fabric": "570.1.1-1"}, "the driver is 580.95.05"),
        # One GPU of another driver among right ones.
        ({"smi": ["580.95.05"] * 7 + ["570.124.06"]}, "nvidia-smi reports driver 570.124.06, 580.95.05"),
        ({"switches": 0, "fabric": "580.82.07-1"}, "it refuses to start"),
        # What is not known is not wrong.
        ({"libraries": []}, ""),
        ({"on_disk": ""}, ""),
        ({"smi": []}, ""),
        ({"wanted": "", "loaded": "", "smi": []}, ""),
    ],
)
def test_versions(parts: dict[str, t.Any], says: str) -> None:
    found = " ".join(message for message, _remedy in verify.version_findings(**{**FITS, **parts}))
    assert says in found
    assert bool(found) is bool(says)


@pytest.mark.parametrize(
    "parts",
    [
        {"libraries": ["580.126.16"]},
        {"on_disk": "580.126.16"},
        {"smi": ["570.124.06"]},
        {"fabric": "580.82.07-1"},
        {"fabric": ""},
    ],
)
def test_of_a_preinstalled_driver_nothing_is_advised_that_the_role_does_not_do(parts: dict[str, t.Any]) -> None:
    ((_message, managed),) = verify.version_findings(**{**FITS, **parts})
    ((_message, remedy),) = verify.version_findings(**{**FITS, **parts}, managed=False)
    assert managed.startswith("Run the role")
    assert "Run the role" not in remedy
    assert "allow_" not in remedy
    assert "leaves a preinstalled driver as it is" in remedy


# -- files -------------------------------------------------------------------------------------------------------------


def test_nvidias_repository_is_the_default_with_its_key() -> None:
    found = settings.repository_for(asked(), DEBIAN, "x86_64")
    assert found.url == "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"
    assert (found.key, found.fingerprint[-8:]) == (f"{found.url}/3bf863cc.pub", "3BF863CC")
    assert settings.repository_for(asked(), ROCKY, "aarch64").url.endswith("rhel9/sbsa")
    assert settings.repository_for(asked(source="distro"), DEBIAN, "x86_64").url == ""


@pytest.mark.parametrize("distribution", [DEBIAN, ROCKY, Distribution("rocky", "10.1", "Rocky 10.1")])
def test_a_driver_that_is_whole_needs_no_repository_and_no_key(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, distribution: Distribution
) -> None:
    """An image may bring it, to nodes that reach no repository."""

    def cut_off(address: str) -> t.NoReturn:
        raise AssertionError(f"{address} was fetched")

    monkeypatch.setattr(vendor, "open_source", cut_off)
    for name in ("sources", "repo"):
        monkeypatch.setattr(vendor.Repository, name, property(lambda _self: str(tmp_path / "list")))
    facts = types.SimpleNamespace(machine="x86_64")
    wanted = types.SimpleNamespace(dist=distribution, fabric=True)
    for source in ("cuda_repo", "runfile", "distro"):
        assert files.repository_files(asked(source=source), facts, wanted, needed=False, check=False) == []


def test_fabric_manager_is_compared_with_the_driver_that_runs() -> None:
    """It has to fit that one, also before the wanted driver is there."""
    found = verify.version_findings(**{**FITS, "wanted": "580.126.16", "smi": []})
    assert found == []


def test_nvidias_repository_may_be_mirrored_or_signed_by_another_key() -> None:
    # The installer brings no Fabric Manager.
    runfile = settings.repository_for(asked(source="runfile"), DEBIAN, "x86_64")
    assert runfile == settings.repository_for(asked(), DEBIAN, "x86_64")
    own = settings.repository_for(
        asked(repository_key="/etc/keys/site.asc", repository_fingerprint="AB"), DEBIAN, "x86_64"
    )
    assert (own.url, own.key, own.fingerprint) == (runfile.url, "/etc/keys/site.asc", "AB")
    mirror = settings.repository_for(asked(repository_url="https://mirror/cuda/"), DEBIAN, "x86_64")
    assert (mirror.url, mirror.key) == ("https://mirror/cuda", "")


def test_flat_and_debian_repositories() -> None:
    flat = vendor.Repository("https://mirror/x", fingerprint="AB")
    text = vendor.repository_files(flat, "dpkg", "key\n", "#")
    assert [entry["path"] for entry in text] == [
        "/etc/apt/keyrings/nvidia-driver.asc",
        "/etc/apt/sources.list.d/nvidia-driver.sources",
    ]
    assert "URIs: https://mirror/x/\nSuites: ./\nSigned-By: /etc/apt/keyrings/nvidia-driver.asc" in text[1]["content"]
    suite = vendor.Repository(
        "https://mirror.example.org/debian", "bookworm", ("contrib", "non-free"), "/usr/share/keyrings/d.gpg"
    )
    (only,) = vendor.repository_files(suite, "dpkg", "", "#")
    assert "Suites: bookworm\nComponents: contrib non-free\nSigned-By: /usr/share/keyrings/d.gpg" in only["content"]
    assert (
        "excludepkgs=mft mft-*\ngpgcheck=1\ngpgkey=file:///etc/pki"
        in vendor.repository_files(flat, "rpm", "key\n", "#")[1]["content"]
    )


def test_what_an_earlier_request_left_goes() -> None:
    keep = {entry["path"] for entry in settings.settings_files(asked(), DEBIAN, peermem=True)}
    gone = set(settings.unwanted_files(asked(), DEBIAN, peermem=True))
    assert not keep & gone
    assert settings.PIN in keep
    loose = asked(hold=False)
    assert settings.PIN in settings.unwanted_files(loose, DEBIAN, peermem=False)
    assert settings.OPENIBD in settings.unwanted_files(loose, DEBIAN, peermem=False)


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("packaged", [True, False])
@pytest.mark.parametrize("peermem", [True, False])
@pytest.mark.parametrize("nvlink5", [True, False])
@pytest.mark.parametrize("dist", [DEBIAN, ROCKY], ids=["apt", "dnf"])
def test_every_file_is_written_or_goes(
    dist: Distribution, nvlink5: bool, peermem: bool, packaged: bool, hold: bool
) -> None:
    request = asked(hold=hold, source="cuda_repo" if packaged else "runfile")
    keep = {entry["path"] for entry in settings.settings_files(request, dist, peermem=peermem, nvlink5=nvlink5)}
    gone = set(settings.unwanted_files(request, dist, peermem=peermem, nvlink5=nvlink5))
    subnet = {settings.UMAD}
    assert (keep & subnet, gone & subnet) == ((subnet, set()) if nvlink5 else (set(), subnet))
    pins, peers = {settings.PIN, settings.UNATTENDED}, {settings.PEERMEM, settings.OPENIBD}
    # Only packages of apt are kept at their version by files; dnf has its list of locks.
    held = hold and packaged and dist is DEBIAN
    assert keep - pins - peers - subnet == {settings.MODPROBE}
    assert (keep & pins, gone & pins) == ((pins, set()) if held else (set(), pins))
    assert (keep & peers, gone & peers) == ((peers, set()) if peermem else (set(), peers))


def test_the_pin_brings_an_older_version_back() -> None:
    """apt goes back to an older version only by a priority above 1000 (apt_preferences(5))."""
    lines = dict(line.split(": ", 1) for line in settings.pin_text("580.95.05").splitlines() if ": " in line)
    assert int(lines["Pin-Priority"]) > 1000
    assert lines["Pin"] == "version 580.95.05-*"


def test_unattended_upgrades_leave_the_driver_alone_and_nothing_else() -> None:
    patterns = re.findall(r'^ +"(.+)";$', settings.unattended_text(), re.M)
    for name, left_alone in {
        "libcuda1": True,
        "libnvidia-ml1": True,
        "nvidia-driver-580-server-open": True,
        "cuda-drivers": True,
        "cuda-drivers-fabricmanager-580": True,
        "cuda-toolkit-12-9": False,
        "openssh-server": False,
        "libcuda1-extra": False,
    }.items():
        assert any(re.match(pattern, name) for pattern in patterns) is left_alone, name


def test_fabric_managers_unit_starts_with_the_machine() -> None:
    unit = "[Unit]\nAfter=network-online.target\nAfter=multi-user.target\n[Service]\nType=forking\n"
    text = settings.fabric_unit(unit)
    assert "multi-user" not in text
    assert text.endswith("After=network-online.target\n[Service]\nType=forking\n")
    assert settings.fabric_unit(text) == ""


def test_persistenced_keeps_persistence_mode_on() -> None:
    text = settings.persistenced_dropin(nvidia.PERSISTENCED_UNIT)
    # The first, empty one takes the vendor's back (systemd.service(5)).
    assert [line for line in text.splitlines() if line.startswith("ExecStart")] == [
        "ExecStart=",
        "ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose",
    ]
    assert "StopWhenUnneeded=no" in text
    for unit in ("", nvidia.PERSISTENCED_UNIT.replace("--no-persistence-mode", "--persistence-mode")):
        assert "ExecStart" not in settings.persistenced_dropin(unit)


def test_module_options_override_ours() -> None:
    text = settings.modprobe_text(
        settings.module_options(asked(restrict_profiling=False, module_options={"NVreg_X": 1}))
    )
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0 NVreg_X=1\n" in text
    assert "options nvidia-current NVreg_RestrictProfilingToAdminUsers=0 NVreg_X=1\n" in text
    assert "options nvidia-current-open NVreg_RestrictProfilingToAdminUsers=0 NVreg_X=1\n" in text
    # Neither by its name nor for a device that it finds.
    assert "\nblacklist nouveau\noptions nouveau modeset=0\n" in text
    # Performance counters tell what other users compute.
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=1\n" in settings.modprobe_text(
        settings.module_options(asked())
    )


# -- keys --------------------------------------------------------------------------------------------------------------


needs_tools = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("dpkg-deb")), reason="needs gpg and dpkg-deb"
)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("repository") / "nvidia"
    repository.make(place, [repository.Package("nvidia-open", "580.95.05-1")])
    return place


@needs_tools
def test_a_key_has_the_fingerprint_that_gpg_says(signed: pathlib.Path) -> None:
    data = (signed / repository.KEYRING).read_bytes()
    said = repository.fingerprint(signed)
    assert openpgp.fingerprints(data) == [said]
    # Binary and armored again it is the same key.
    assert openpgp.fingerprints(openpgp.dearmor(data)) == [said]
    assert openpgp.fingerprints(openpgp.armor(openpgp.dearmor(data)).encode()) == [said]
    openpgp.check_fingerprint(data, " ".join([said[:20].lower(), said[20:]]), "key")


@needs_tools
def test_another_key_is_refused(signed: pathlib.Path) -> None:
    with pytest.raises(ClusterError, match="Nothing was changed") as caught:
        openpgp.check_fingerprint((signed / repository.KEYRING).read_bytes(), settings.CUDA_KEYS["dpkg"][1], "key")
    assert caught.value.kind == "wrong_key"
    with pytest.raises(ClusterError, match="no key"):
        openpgp.check_fingerprint(b"<html>Not found</html>", "AB", "key")


def test_a_repository_that_is_there_already_is_not_added_twice(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cuda-ubuntu2204-x86_64.list").write_text("deb [signed-by=/x.gpg] https://mirror/cuda/ /\n")
    monkeypatch.setattr(
        vendor.glob, "glob", lambda pattern: [str(path) for path in tmp_path.iterdir()] if "*" in pattern else []
    )
    assert vendor.listed_elsewhere(vendor.Repository("https://mirror/cuda"))
    assert not vendor.listed_elsewhere(vendor.Repository("https://mirror/cud"))


def test_a_key_from_the_network_needs_a_fingerprint() -> None:
    with pytest.raises(ClusterError, match="nothing says which one"):
        vendor.key_text(vendor.Repository("https://mirror", key="https://mirror/key"), "dpkg", check=False)


# -- Slurm -------------------------------------------------------------------------------------------------------------


class Scontrol:
    """scontrol, for one node whose jobs end after a few looks."""

    def __init__(self, state: str = "IDLE", reason: str = "", looks: int = 0) -> None:
        self.state, self.reason, self.looks, self.updates = state, reason, looks, list[str]()

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        if args[1] == "update":
            self.updates.append(args[3])
            if args[3] == "State=DRAIN":
                self.state, self.reason = f"{self.state}+DRAIN", args[4].partition("=")[2]
            else:
                self.state, self.reason = "IDLE", ""
            return 0, "", ""
        assert args == ["scontrol", "-o", "show", "node", "gpu-1"]
        self.looks -= 1
        if self.looks <= 0:
            self.state = self.state.replace("ALLOCATED", "IDLE")
        reason = f" Reason={self.reason} [root@2026-11-20T14:00:00]" if self.reason else ""
        return 0, f"NodeName=gpu-1 Arch=x86_64 State={self.state} ThreadsPerCore=1{reason}\n", ""

    def selinux_default_context(self, path: str) -> list[t.Any]:
        return []

    def set_context_if_different(self, path: str, context: list[t.Any], changed: bool) -> bool:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_slurm, "_POLL_S", 0.001)


def test_a_node_is_drained_and_given_back() -> None:
    scontrol = Scontrol("ALLOCATED", looks=4)
    slurm = driver_slurm.Slurm(scontrol, "gpu-1", 5)
    assert slurm.drain(check=True)
    assert scontrol.updates == []
    assert slurm.drain(check=False)
    assert "ALLOCATED" not in scontrol.state
    assert slurm.drained_by_us()
    slurm.resume()
    assert scontrol.updates == ["State=DRAIN", "State=RESUME"]


class Restarting(Scontrol):
    """scontrol while slurmctld is away, from the third look on: for some looks, or for good."""

    def __init__(self, away: int) -> None:
        super().__init__("ALLOCATED", looks=20)
        self.asked, self.away = 0, away

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        self.asked += 1
        if 2 < self.asked <= 2 + self.away:
            return 1, "", "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"
        return super().run_command(args, **kwargs)


def test_a_controller_that_is_away_for_a_while_does_not_end_the_waiting() -> None:
    scontrol = Restarting(5)
    assert driver_slurm.Slurm(scontrol, "gpu-1", 5).drain()
    assert scontrol.state == "IDLE+DRAIN"
    with pytest.raises(ClusterError, match=r"Unable to contact slurm controller.*The node stays drained") as caught:
        driver_slurm.Slurm(Restarting(10**9), "gpu-1", 0).drain()
    assert caught.value.kind == "drain_failed"


def test_a_node_that_was_rebooted_while_it_was_drained_is_given_back() -> None:
    """Slurm 22.05 marks it DOWN, "unexpectedly rebooted", and keeps the reason of the draining."""
    scontrol = Scontrol("DOWN+DRAIN", reason="hpcai.gpu_cluster.nvidia_driver")
    slurm = driver_slurm.Slurm(scontrol, "gpu-1", 5)
    assert slurm.drained_by_us()
    slurm.resume()
    assert scontrol.updates == ["State=RESUME"]


class NoScontrol(Scontrol):
    """A node without Slurm's commands, or with them elsewhere: what run_command does when it may not end the module."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> tuple[int, str, str]:
        assert kwargs == {"handle_exceptions": False}
        raise FileNotFoundError(2, "No such file or directory", args[0])


def test_a_node_without_scontrol_is_told_what_to_do() -> None:
    with pytest.raises(ClusterError, match=r"scontrol cannot be run.*`drain: false`") as caught:
        driver_slurm.Slurm(NoScontrol(), "gpu-1", 5).drain()
    assert caught.value.kind == "drain_failed"


def test_a_node_that_somebody_else_drained_stays_drained() -> None:
    scontrol = Scontrol("IDLE+DRAIN", reason="broken fan")
    slurm = driver_slurm.Slurm(scontrol, "gpu-1", 5)
    assert not slurm.drain(check=False)
    slurm.resume()
    assert scontrol.updates == []


def test_jobs_that_do_not_end_are_not_killed() -> None:
    slurm = driver_slurm.Slurm(Scontrol("ALLOCATED", looks=10**9), "gpu-1", 0)
    with pytest.raises(ClusterError, match="nothing else was changed") as caught:
        slurm.drain(check=False)
    assert caught.value.kind == "drain_timeout"


# -- unloading ---------------------------------------------------------------------------------------------------------


class Kernel:
    """Modules below sysfs, and one that lets go of nothing."""

    def __init__(self, root: pathlib.Path, *loaded: str, busy: str = "", on_disk: bool = True) -> None:
        self.modules, self.busy, self.on_disk, self.done = root / "sys/module", busy, on_disk, []
        for name in loaded:
            (self.modules / name).mkdir(parents=True)

    def run_command(self, args: list[str]) -> tuple[int, str, str]:
        self.done.append(" ".join(args))
        if args[0] == "systemctl":
            return (0 if args[-1] == "nvidia-persistenced.service" else 3), "", ""
        if args[0] == "modprobe" and not self.on_disk:
            return 1, "", f"modprobe: FATAL: Module {args[-1]} not found."
        for name in args[1:] if args[0] == "rmmod" else args[3:] if "-r" in args else []:
            if name == self.busy:
                return 1, "", f"modprobe: FATAL: Module {name} is in use."
            (self.modules / name).rmdir()
        if args[0] == "modprobe" and "-r" not in args:
            (self.modules / args[1]).mkdir()
        return 0, "", ""

    def loaded(self) -> set[str]:
        return {path.name for path in self.modules.iterdir()}


def test_a_driver_that_cannot_go_is_left_as_it_was(tmp_path: pathlib.Path) -> None:
    """modprobe takes the modules one by one: those that went before the one that is in use have to come back."""
    kernel = Kernel(tmp_path, "nvidia", "nvidia_uvm", "nvidia_modeset", busy="nvidia")
    with pytest.raises(ClusterError, match="Module nvidia is in use") as caught:
        kernel_modules.unload(kernel, tmp_path)
    assert caught.value.kind == "in_use"
    assert kernel.loaded() == {"nvidia", "nvidia_uvm", "nvidia_modeset"}
    assert kernel.done[-1] == "systemctl start nvidia-persistenced.service"


def test_modules_that_are_no_longer_on_the_disk_go_as_well(tmp_path: pathlib.Path) -> None:
    kernel = Kernel(tmp_path, "nvidia", "nvidia_uvm", on_disk=False)
    kernel_modules.unload(kernel, tmp_path)
    assert kernel.loaded() == set()
    assert kernel.done[-1] == "rmmod nvidia_uvm nvidia"


def test_modules_go_in_an_order_in_which_they_can(tmp_path: pathlib.Path) -> None:
    kernel = Kernel(tmp_path, "nvidia", "nvidia_uvm", "nvidia_peermem", "ext4")
    assert kernel_modules.unload(kernel, tmp_path) == kernel_modules.Away(
        ["nvidia_peermem", "nvidia_uvm", "nvidia"], ["nvidia-persistenced.service"]
    )
    assert kernel.loaded() == {"ext4"}
    assert kernel.done[-1] == "modprobe -r -i nvidia_peermem nvidia_uvm nvidia"


# -- the stand-in repository -------------------------------------------------------------------------------------------


def test_the_stand_in_packages_depend_on_this_version_or_a_newer_one() -> None:
    (meta,) = (one for one in nvidia.packages("6.1") if (one.name, one.version) == ("nvidia-open", "580.95.05-1"))
    assert meta.depends == ("nvidia-kernel-open-dkms (>= 580.95.05-1)", "nvidia-driver-cuda (>= 580.95.05-1)")


def test_a_driver_with_modules_brings_those_of_its_version(tmp_path: pathlib.Path) -> None:
    (tmp_path / "580.95.05").mkdir()
    (tmp_path / "580.95.05/nvidia.ko").write_bytes(b"\x7fELF\xff")
    kernel = {one.version: one for one in nvidia.packages("6.1", tmp_path) if one.name == "nvidia-kernel-open-dkms"}
    assert kernel["580.126.16-1"].files == {}
    files = kernel["580.95.05-1"].files
    assert {path: file.content for path, file in files.items()} == {
        "/lib/modules/6.1/updates/dkms/nvidia.ko": b"\x7fELF\xff"
    }
    assert kernel["580.95.05-1"].postinst.endswith("depmod 6.1\n")


def test_unknown_keys_of_a_package_are_refused() -> None:
    with pytest.raises(ValueError, match="dependz"):
        repository.parse([{"name": "a", "version": "1", "dependz": []}])


@needs_tools
def test_a_repository_that_is_built_again_replaces_the_old_one(signed: pathlib.Path) -> None:
    repository.make(signed, [repository.Package("other", "2:1.0-1", depends=("bash",))])
    index = (signed / "Packages").read_text()
    assert "Package: other\nVersion: 2:1.0-1" in index
    assert "Filename: ./other_1.0-1_amd64.deb" in index
    assert not list(signed.glob("nvidia-open*"))


@needs_tools
def test_a_repository_offers_packages_that_were_built_elsewhere(signed: pathlib.Path, tmp_path: pathlib.Path) -> None:
    built = repository.build(repository.Package("elsewhere", "3:2.0", architecture="all"), tmp_path)
    repository.make(signed, [repository.Package("other", "1.0")], archives=[built])
    stanza = (signed / "Packages").read_text().split("\n\n")[1]
    assert "Package: elsewhere\nVersion: 3:2.0\n" in stanza
    assert f"Filename: ./{built.name}\nSize: {(signed / built.name).stat().st_size}\n" in stanza
