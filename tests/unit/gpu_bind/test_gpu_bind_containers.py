# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu-bind in images: mounted as the role has enroot mount it, with no Python, no bash, and few tools or none."""

from __future__ import annotations

import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml
from gpu_bind_bench import ALLOWED, GPU_BIND

ROLE = GPU_BIND.parents[1]
FIRST, SECOND = ALLOWED[0], ALLOWED[-1]
MAP = f"# rank gpus cpus memory hca uuids\n0 0 {SECOND} 0 - GPU-aa\n1 1 {FIRST} 0 - GPU-bb\n"
TWO_CPUS = pytest.mark.skipif(len(ALLOWED) < 2, reason="needs two CPUs")


def image_with(tmp_path: Path, *tools: str) -> dict[str, str]:
    """An environment in which nothing is found but these programs of the machine."""
    programs = tmp_path / "image"
    programs.mkdir()
    for tool in ("sh", *tools):
        (programs / tool).symlink_to(shutil.which(tool) or tool)
    return {"PATH": str(programs), "LOCAL_RANK": "0"}


def start(tmp_path: Path, env: dict[str, str], *command: str, on: str = "") -> subprocess.CompletedProcess[str]:
    """gpu-bind where the launcher allows the CPUs ``on``, with the map above."""
    (tmp_path / "map").write_text(MAP)
    program = ["/bin/sh", str(GPU_BIND), "-m", str(tmp_path / "map"), "-v", *command]
    if on:
        program = [str(shutil.which("taskset")), "-c", on, *program]
    return subprocess.run(program, env=env, capture_output=True, text=True, check=False)


@TWO_CPUS
def test_without_taskset_a_launcher_s_binding_that_is_right_is_enough(tmp_path: Path) -> None:
    done = start(tmp_path, image_with(tmp_path, "true"), "true", on=str(SECOND))
    assert done.returncode == 0, done.stderr
    assert f"taskset is not here, and not needed: runs on CPUs {SECOND} already" in done.stderr


@TWO_CPUS
def test_without_taskset_a_binding_that_is_wrong_ends_it_and_names_the_ways_out(tmp_path: Path) -> None:
    env = image_with(tmp_path, "true")
    for on in (f"{FIRST}", f"{FIRST},{SECOND}"):
        done = start(tmp_path, env, "true", on=on)
        assert done.returncode == 125, done.stderr
        for words in ("taskset is not here", f"{SECOND} of GPU 0", "util-linux", "--cpu-bind"):
            assert words in done.stderr


@TWO_CPUS
def test_without_numactl_memory_is_the_kernel_s_choice_and_one_rank_says_so(tmp_path: Path) -> None:
    two_nodes = GPU_BIND.read_text().replace("\nmap=$", "\nmemory_nodes() { nodes=0-1; }\nmap=$")
    (tmp_path / "gpu-bind").write_text(two_nodes)
    (tmp_path / "map").write_text(MAP)
    env = image_with(tmp_path, "true", "taskset")

    def rank(number: str, **more: str) -> subprocess.CompletedProcess[str]:
        argv = ["/bin/sh", str(tmp_path / "gpu-bind"), "-m", str(tmp_path / "map"), "true"]
        return subprocess.run(
            argv, env={**env, "LOCAL_RANK": number, **more}, capture_output=True, text=True, check=False
        )

    first, second = rank("0"), rank("1")
    assert (first.returncode, second.returncode, second.stderr) == (0, 0, "")
    assert "numactl is not here: memory comes from the NUMA node of the CPUs first" in first.stderr
    # Who asks for it by name gets it or is told.
    asked = rank("0", GPU_BIND_MEMORY="bind")
    assert (asked.returncode, "numactl is not here, so memory cannot be bound" in asked.stderr) == (125, True)
    assert rank("0", GPU_BIND_MEMORY="none").stderr == ""


def tasks_of_install() -> dict[str, t.Any]:
    return yaml.safe_load((ROLE / "tasks/install.yml").read_text())[0]["hpcai.gpu_cluster.node_state"]


def mounts(program: Path, node_map: Path) -> list[list[str]]:
    """The fields of the lines that the role writes for enroot: source, target, type, options, dump, pass."""
    item = next(item for item in tasks_of_install()["files"] if item["path"].endswith(".fstab"))
    text = item["content"].replace("{{ numa_pinning_bin_dir }}/gpu-bind", str(program))
    text = text.replace("{{ numa_pinning_map }}", str(node_map))
    assert "{{" not in text
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def test_the_mounts_for_enroot_keep_no_container_from_starting(tmp_path: Path) -> None:
    lines = mounts(tmp_path / "gpu-bind", tmp_path / "map")
    assert (
        [fields[0] for fields in lines]
        == [fields[1] for fields in lines]
        == [f"{tmp_path}/gpu-bind", f"{tmp_path}/map"]
    )
    for fields in lines:
        options = fields[3].split(",")
        # enroot gives up on a mount that fails, and the map is not there before the role's configure has run.
        # Without root a mount may not lose a nodev or nosuid that the node's own has.
        assert {"x-create=file", "bind", "ro", "nosuid", "nodev", "nofail"} <= set(options)
    assert "noexec" not in lines[0][3].split(",")


def can_mount() -> bool:
    return subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode == 0


def static_busybox() -> str:
    """The path of a BusyBox that needs no library; empty where the machine has none."""
    path = shutil.which("busybox")
    loader = b"/lib64/ld-linux" if path else b""
    return "" if not path or loader in Path(path).read_bytes()[:4096] else str(Path(path).resolve())


@TWO_CPUS
@pytest.mark.skipif(not static_busybox() or not can_mount(), reason="needs busybox-static and user namespaces")
def test_an_image_of_nothing_but_busybox_binds(tmp_path: Path) -> None:
    """As enroot does: a user namespace without root, the node's /proc, /sys and /dev, and the mounts of the role."""
    root, node_map = tmp_path / "root", tmp_path / "map"
    node_map.write_text(MAP)
    program = tmp_path / "gpu-bind"
    program.write_bytes(GPU_BIND.read_bytes())
    program.chmod(0o755)
    for directory in ("bin", "proc", "sys", "dev"):
        (root / directory).mkdir(parents=True)
    shutil.copy(static_busybox(), root / "bin/busybox")
    for tool in ("sh", "taskset", "grep", "true"):
        (root / "bin" / tool).symlink_to("busybox")
    steps = ["set -e", *(f"mount --rbind /{place} {root}/{place}" for place in ("proc", "sys", "dev"))]
    for source, target, _type, options, _dump, _pass in mounts(program, node_map):
        assert "x-create=file" in options
        where = root / target.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.touch()
        steps.append(f"mount --bind -o ro {source} {where}")
    chroot = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin")
    show = "grep Cpus_allowed_list /proc/self/status"
    steps.append(f"env -i PATH=/bin LOCAL_RANK=0 {chroot} {root} {program} -m {node_map} -v {show}")
    steps.append(f"env -i PATH=/bin LOCAL_RANK=1 {chroot} {root} {program} -m {node_map} {show}")
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", "\n".join(steps)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == [str(SECOND), str(FIRST)]
    assert sorted(path.name for path in (root / "bin").iterdir()) == ["busybox", "grep", "sh", "taskset", "true"]


@TWO_CPUS
@pytest.mark.skipif(not static_busybox() or not can_mount(), reason="needs busybox-static and user namespaces")
def test_bound_outside_a_container_stays_bound_inside(tmp_path: Path) -> None:
    # gpu-bind apptainer exec image.sif ...: nothing of gpu-bind is needed in the image.
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "proc").mkdir()
    shutil.copy(static_busybox(), root / "bin/busybox")
    (tmp_path / "map").write_text(MAP)
    inside = f"mount --rbind /proc {root}/proc && chroot {root} /bin/busybox grep Cpus_allowed_list /proc/self/status"
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LOCAL_RANK": "0"}
    done = start(tmp_path, env, "unshare", "-Urm", "sh", "-c", inside)
    assert (done.returncode, done.stdout.split()[1:]) == (0, [str(SECOND)]), done.stderr
