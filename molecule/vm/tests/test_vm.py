# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After the hardware roles and a reboot: the node is what QEMU was told to make, and what the roles made of it is in place."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import subprocess
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRATCH = "/mnt/resource_nvme"


@functools.cache
def verified() -> subprocess.CompletedProcess[str]:
    """The roles' verify on all machines: together, because RDMA is measured between them."""
    play = ["ansible-playbook", "-i", str(ROOT / "inventories/vm/machines.py"), str(ROOT / "molecule/vm/came_back.yml")]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(play, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900)


def test_every_role_says_after_the_reboot_that_all_is_there(host: t.Any) -> None:
    done = verified()
    node = host.backend.get_hostname()
    recap = re.search(rf"^{re.escape(node)} .*$", done.stdout.partition("PLAY RECAP")[2], re.MULTILINE)
    assert recap, done.stdout[-4000:] + done.stderr
    counts = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", recap[0])}
    # Nothing was left out: each of the five roles has a result of its own.
    assert (counts["unreachable"], counts["failed"], counts["ok"] >= 5) == (0, 0, True), done.stdout[-4000:]


def test_no_unit_has_failed(host: t.Any) -> None:
    failed = host.run("systemctl list-units --failed --plain --no-legend")
    assert failed.stdout.strip() == "", host.run("journalctl --no-pager --priority=3 --lines=30").stdout


def test_gpus_lie_on_the_numa_nodes_of_their_pci_functions(host: t.Any) -> None:
    """The order of an ND96asr_v4, read from the guest's sysfs at the bus ids that the simulated nvidia-smi names."""
    script = (
        "nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr A-F a-f | "
        "while read id; do cat /sys/bus/pci/devices/${id#0000}/numa_node; done"
    )
    assert host.run(script).stdout.split() == ["1", "1", "0", "0", "3", "3", "2", "2"]


def test_every_numa_node_has_two_disks_and_two_cpus(host: t.Any) -> None:
    controllers = host.file("/sys/class/nvme").listdir()
    disks = [host.file(f"/sys/class/nvme/{name}/device/numa_node").content_string.strip() for name in controllers]
    assert sorted(disks) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    nodes = [host.file(f"/sys/devices/system/node/node{number}/cpulist") for number in range(4)]
    assert [node.content_string.strip() for node in nodes] == ["0-1", "2-3", "4-5", "6-7"]
    assert not host.file("/sys/devices/system/node/node4").exists


def test_scratch_is_one_file_system_over_all_disks(host: t.Any) -> None:
    mounted = host.mount_point(SCRATCH)
    assert mounted.filesystem == "xfs"
    device = f"/sys/block/{host.check_output('basename $(realpath %s)', mounted.device)}"
    assert host.file(f"{device}/md/level").content_string.strip() == "raid0"
    assert [name[:4] for name in host.file(f"{device}/slaves").listdir()] == ["nvme"] * 8


def test_data_outlived_the_reboot(host: t.Any) -> None:
    written = host.file(f"{SCRATCH}/data.sha256").content_string.split()[0]
    assert host.file(f"{SCRATCH}/data").sha256sum == written


def test_settings_of_the_fabric_outlived_the_reboot(host: t.Any) -> None:
    assert host.sysctl("vm.zone_reclaim_mode") == 1
    # udev complains in the journal about rules that it cannot read, and names their file.
    complaints = host.run("journalctl -b --no-pager | grep -E 'persistent-naming|90-mofed'")
    assert complaints.stdout == ""


def test_a_daemon_that_the_boot_started_may_lock_all_its_memory(host: t.Any) -> None:
    """No login and no PAM gave it the limit."""
    limits = host.check_output("cat /proc/$(systemctl show --value -p MainPID ssh.service)/limits")
    assert re.search(r"^Max locked memory +unlimited +unlimited ", limits, re.MULTILINE), limits


def test_rdma_runs_over_the_fabric(host: t.Any) -> None:
    assert "state ACTIVE physical_state LINK_UP netdev enp37s0" in host.run("rdma link show rxe0/1").stdout
