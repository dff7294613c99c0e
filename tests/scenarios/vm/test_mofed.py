# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mofed on real kernels: RDMA over Ethernet between two machines, a reboot, users of RDMA, and a stack with modules."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
from own_machine import NODE

ROOT = pathlib.Path(__file__).resolve().parents[3]
FILES = (
    "/etc/systemd/system/mofed-rxe.service",
    "/etc/udev/rules.d/60-rdma-persistent-naming.rules",
    "/etc/sysctl.d/90-mofed.conf",
    "/etc/security/limits.d/90-mofed.conf",
)
HOLD = "import os, time; os.open('/dev/infiniband/uverbs0', os.O_RDWR); open('/run/held', 'w'); time.sleep(600)"


@pytest.fixture(scope="module")
def netdev(vm_lab: t.Any) -> t.Iterator[str]:
    """The interface of the fabric, on machines that have nothing of mofed, before and after."""
    address = vm_lab.lab["nodes"][NODE]["fabric_address"]
    words = vm_lab.run(NODE, "ip", "-4", "-o", "address", "show", "to", address).split()
    _remove(vm_lab)
    yield words[1]
    _remove(vm_lab)


def _remove(vm_lab: t.Any) -> None:
    done = vm_lab.role("mofed", "remove")
    assert done.rc == 0, done.output


def measured(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"average_gbps: ([\d.]+)", output)]


@pytest.mark.both
def test_rdma_over_ethernet_from_nothing_to_a_measurement(vm_lab: t.Any, netdev: str) -> None:
    variables = {"mofed_rxe_netdev": netdev, "mofed_verify_bandwidth": True, "mofed_verify_iterations": 200}
    first = vm_lab.role("mofed", "main", "-v", **variables)
    assert first.rc == 0, first.output
    rates = measured(first.output)
    # Both ends tell the same transfer.
    assert len(rates) == 2, first.output
    assert min(rates) > 0
    for node in vm_lab.nodes:
        assert first.recap(node)["changed"] == 1
        assert vm_lab.run(node, "cat", "/sys/class/infiniband/rxe0/ports/1/state").strip() == "4: ACTIVE"
        assert vm_lab.run(node, "cat", "/proc/sys/net/ipv4/neigh/default/gc_thresh3").strip() == "16384"
        assert vm_lab.run(node, "bash", "-lc", "ulimit -l", login=True).strip() == "unlimited"
    second = vm_lab.role("mofed", **variables)
    assert second.rc == 0, second.output
    for node in vm_lab.nodes:
        assert second.recap(node)["changed"] == 0


def test_it_outlives_a_reboot_and_goes_only_when_nobody_uses_it(vm_lab: t.Any, netdev: str) -> None:
    installed = vm_lab.role("mofed", "configure", limit=NODE, mofed_rxe_netdev=netdev)
    assert installed.rc == 0, installed.output
    vm_lab.power_off(NODE, clean=True)
    vm_lab.power_on(NODE)
    again = vm_lab.role("mofed", limit=NODE, mofed_rxe_netdev=netdev)
    assert again.rc == 0, again.output
    assert again.recap(NODE)["changed"] == 0
    assert vm_lab.run(NODE, "cat", "/proc/sys/vm/zone_reclaim_mode").strip() == "1"
    # udev complains in the journal about rules that it cannot read, and names their file.
    assert vm_lab.shell(NODE, "journalctl -b --no-pager | grep -E 'persistent-naming|90-mofed' || true") == ""

    missing = vm_lab.role("mofed", "verify", limit=NODE, mofed_expected={"count": 2, "link_layer": "Ethernet"})
    assert missing.rc != 0
    assert "expected 2 ports" in missing.output
    assert "found 1: rxe0" in missing.output

    vm_lab.run(NODE, "systemd-run", "--unit=mofed-job", "--collect", "python3", "-c", HOLD)
    try:
        vm_lab.shell(NODE, "for n in $(seq 60); do test -e /run/held && exit; sleep 1; done; exit 1")
        refused = vm_lab.role("mofed", "remove", limit=NODE)
        assert refused.rc != 0
        assert "in_use" in refused.output
        assert "python3 (pid" in refused.output
        assert vm_lab.run(NODE, "ls", "/sys/class/infiniband").split() == ["rxe0"]
        vm_lab.run(NODE, "ls", *FILES)
    finally:
        vm_lab.run(NODE, "systemctl", "stop", "mofed-job.service")
    removed = vm_lab.role("mofed", "remove", limit=NODE)
    assert removed.rc == 0, removed.output
    assert vm_lab.run(NODE, "ls", "/sys/class/infiniband", check=False).split() == []
    assert vm_lab.shell(NODE, f"ls {' '.join(FILES)} 2>/dev/null || true") == ""


@pytest.fixture
def vendor(vm_lab: t.Any, tmp_path: pathlib.Path) -> dict[str, t.Any]:
    """Archives in MLNX_OFED's layout with modules for the node's kernel, brought there, and the role's variables."""
    kernel, release = vm_lab.shell(NODE, "uname -r; cat /etc/debian_version").split()
    made, tasks = {}, []
    for name, fitting in (("fits", kernel), ("other", "5.4.0-1")):
        directory = tmp_path / name
        directory.mkdir()
        words = [
            sys.executable,
            str(ROOT / "molecule/mofed/files/vendor.py"),
            str(directory),
            f"debian{release}",
            fitting,
        ]
        done = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        made[name] = {
            "mofed_source": "mlnx_ofed",
            "mofed_version": "24.10-3.2.5.0",
            "mofed_sha256": done["sha256"],
            "mofed_artifact": f"/var/tmp/{name}.tgz",
            "mofed_vendor_packages": [],
            "mofed_allow_replace": True,
        }
        copy = {"src": str(directory / done["files"]["24.10-3.2.5.0"]), "dest": f"/var/tmp/{name}.tgz", "mode": "0644"}
        tasks.append({"name": f"Copy {name}", "ansible.builtin.copy": copy})
    brought = vm_lab.playbook([{"hosts": NODE, "gather_facts": False, "tasks": tasks}])
    assert brought.rc == 0, brought.output
    return made


def test_modules_are_loaded_only_where_they_fit_and_with_consent(
    vm_lab: t.Any, netdev: str, vendor: dict[str, t.Any]
) -> None:
    """ib_core is loaded, so that another build of it is a change that needs consent."""
    packages = vm_lab.run(NODE, "dpkg-query", "--show")
    vm_lab.shell(NODE, "modprobe ib_core; rm -f /run/openibd.log")

    other = vm_lab.role("mofed", "configure", limit=NODE, mofed_allow_restart=True, **vendor["other"])
    assert other.rc != 0
    assert "headers_missing" in other.output
    unasked = vm_lab.role("mofed", "configure", limit=NODE, **vendor["fits"])
    assert unasked.rc != 0
    assert "consent_missing" in unasked.output
    assert "mofed_allow_restart" in unasked.output
    assert vm_lab.run(NODE, "dpkg-query", "--show") == packages

    asked = vm_lab.role("mofed", limit=NODE, mofed_allow_restart=True, **vendor["fits"])
    assert asked.rc == 0, asked.output
    assert "/updates/" in vm_lab.run(NODE, "modinfo", "-F", "filename", "mlx5_core")
    assert vm_lab.run(NODE, "cat", "/run/openibd.log").split() == ["started"]
    dropped = vm_lab.run(NODE, "systemctl", "show", "-p", "Restart", "openibd.service")
    assert dropped.strip() == "Restart=on-failure"
    again = vm_lab.role("mofed", "configure", limit=NODE, **vendor["fits"])
    assert again.rc == 0, again.output
    assert again.recap(NODE)["changed"] == 0

    removed = vm_lab.role("mofed", "remove", limit=NODE, **vendor["fits"])
    assert removed.rc == 0, removed.output
    assert vm_lab.run(NODE, "dpkg-query", "--show") == packages
    assert "/updates/" not in vm_lab.run(NODE, "modinfo", "-F", "filename", "mlx5_core")
