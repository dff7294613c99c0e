# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of rdma_stack, and the lines that it changes in files of others."""

from __future__ import annotations

import re

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import files, limits
from hypothesis import given
from hypothesis import strategies as st


def rename(rules: str, address: str, vendor: str = "Microsoft Corporation", link_layer: str = "InfiniBand") -> str:
    """Walk through the rules as udev does for an mlx5 device at this address; the name that it gets, or an empty string."""
    facts = {
        'ACTION!="add"': False,
        'SUBSYSTEM!="infiniband"': False,
        'DRIVERS=="mlx5_core"': True,
        'SUBSYSTEMS=="pci"': True,
        'ATTR{ports/1/link_layer}=="Ethernet"': link_layer == "Ethernet",
        'ATTR{[dmi/id]sys_vendor}!="Microsoft Corporation"': vendor != "Microsoft Corporation",
    }
    lines, number = [line for line in rules.splitlines() if line and not line.startswith("#")], 0
    while number < len(lines):
        words = [word.strip() for word in re.split(r",\s*(?=[A-Z])", lines[number])]
        number += 1
        matched, name, target = True, "", ""
        for word in words:
            key, _operator, value = re.match(r"(\w+(?:\{[^}]*\})?)([!=]=?)(.*)", word).groups()  # type: ignore[union-attr]
            value = value.strip('"')
            if key == "KERNELS":
                pattern = re.escape(value).replace(r"\*", ".*")
                matched = matched and bool(re.fullmatch(pattern, address))
            elif key == "PROGRAM":
                name = value.split()[-1]
            elif key == "GOTO":
                target = value
            elif key != "LABEL":
                matched = matched and facts[word]
        if matched and target:
            if name:
                return name
            number = lines.index(f'LABEL="{target}"')
    return ""


@pytest.mark.parametrize("number", range(8))
def test_azure_s_adapters_are_named_by_their_domain(number: int) -> None:
    rules = files.naming_rules({})
    address = f"{0x101 + number:04x}:00:00.0"
    assert rename(rules, address) == f"mlx5_ib{number}"
    assert rename(rules, address, vendor="Supermicro") == ""


def test_azure_s_network_card_is_named_apart() -> None:
    assert rename(files.naming_rules({}), "9a2c:00:02.0", link_layer="Ethernet") == "mlx5_an0"
    assert rename(files.naming_rules({}), "9a2c:00:02.0", vendor="Dell", link_layer="Ethernet") == ""


def test_given_names_come_first() -> None:
    rules = files.naming_rules({"0000:1A:00.0": "rail0", "0101:00:00.0": "mine"})
    assert rename(rules, "0000:1a:00.0", vendor="Dell") == "rail0"
    assert rename(rules, "0101:00:00.0") == "mine"
    assert rename(rules, "0102:00:00.0") == "mlx5_ib1"


def test_the_distribution_s_rules_follow_without_comments() -> None:
    own = '# a comment\nACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="rdma_rename %k NAME_FALLBACK"\n\n'
    lines = files.naming_rules({}, own).splitlines()
    assert lines[-3:] == ['LABEL="mofed_distribution"', own.splitlines()[1], 'LABEL="mofed_end"']


@pytest.mark.parametrize(
    "names",
    [
        {"x": "a"},
        {"0000:1a:00.0": 'a", RUN+="/bin/false'},
        {"0000:1a:00.0": "a", "0000:1b:00.0": "a"},
        {"0000:1a:00.0": ""},
    ],
)
def test_bad_names_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(ClusterError):
        files.naming_rules(names)


def test_limits_reach_root_as_well() -> None:
    lines = files.limits_file({"memlock": "unlimited"}).splitlines()[1:]
    assert lines == [f"{who} {kind} memlock unlimited" for who in ("*", "root") for kind in ("soft", "hard")]


def test_limits_of_services_are_in_systemd_s_words() -> None:
    made = files.wanted_files(files.Settings(service_limits={"memlock": "unlimited", "nofile": "1048576"}))
    lines = made[files.SERVICE_LIMITS].splitlines()
    assert lines[1:] == ["[Manager]", "DefaultLimitMEMLOCK=infinity", "DefaultLimitNOFILE=1048576"]
    # limits.conf counts in KiB, systemd in bytes.
    assert "DefaultLimitMEMLOCK=64K\n" in limits.manager_file({"memlock": "64"})


def test_switches_that_are_off_leave_no_file() -> None:
    assert files.wanted_files(files.Settings()) == {}
    assert files.wanted_files(files.Settings(persistent_names=True, sysctl={"vm.a": "1"}, user_space_only=True)) == {}


def test_an_image_keeps_the_settings_of_its_stack() -> None:
    assert files.wanted_files(files.Settings(source="preinstalled")) == {}


def test_what_a_vendor_s_stack_adds() -> None:
    doca = files.wanted_files(files.Settings(source="doca"))
    assert set(doca) == {files.PINS, files.OPENIBD}
    assert "Package: dkms\nPin: release l=DOCA-HOST*\nPin-Priority: -1\n" in doca[files.PINS]
    assert "Restart=on-failure" in doca[files.OPENIBD]
    assert set(files.wanted_files(files.Settings(source="doca", user_space_only=True))) == {files.PINS}
    assert set(files.wanted_files(files.Settings(source="mlnx_ofed", manager="rpm"))) == {files.OPENIBD}


@pytest.mark.parametrize(("ipoib", "expected"), [(None, set()), (True, {files.MODULES}), (False, {files.MODPROBE})])
def test_ipoib(ipoib: bool | None, expected: set[str]) -> None:
    made = files.wanted_files(files.Settings(ipoib=ipoib))
    assert set(made) == expected
    assert all("ib_ipoib" in text for text in made.values())


def test_every_file_is_known_to_its_removal() -> None:
    all_on = files.Settings(
        source="doca", persistent_names=True, ipoib=True, rxe_netdev="eth1", limits={"stack": "unlimited"}, service_limits={"nofile": "9"},
        sysctl={"vm.zone_reclaim_mode": "1"}, sunrpc_slots=128, nfs_read_ahead_kib=15380,
    )  # fmt: skip
    made = files.wanted_files(all_on)
    assert set(made) == set(files.OWNED)
    assert all(text.startswith(files.HEADER) for text in made.values())


def test_the_unit_of_rxe() -> None:
    unit = files.rxe_unit("eth-1", "rxe0")
    assert "After=sys-subsystem-net-devices-eth\\x2d1.device" in unit
    assert "rdma link add rxe0 type rxe netdev eth-1'" in unit
    with pytest.raises(ClusterError, match="no name"):
        files.wanted_files(files.Settings(rxe_netdev="eth1; reboot"))
    with pytest.raises(ClusterError, match="container"):
        files.wanted_files(files.Settings(rxe_netdev="eth1", container=True))


def test_settings_with_strange_names_are_refused() -> None:
    for key in ("vm.a = 1\nkernel.b", "../x", "vm"):
        with pytest.raises(ClusterError):
            files.sysctl_file({key: "1"})


AGENT = "# Enable RDMA\n# OS.EnableRDMA=y\nOS.EnableRDMA=n\nLogs.Verbose=n\n"


def test_a_line_is_changed_and_restored() -> None:
    changed = files.set_key(AGENT, "OS.EnableRDMA", "y")
    assert changed == AGENT.replace("\nOS.EnableRDMA=n\n", "\n#mofed had: OS.EnableRDMA=n\nOS.EnableRDMA=y\n")
    assert files.set_key(changed, "OS.EnableRDMA", "y") == changed
    assert files.restore_keys(changed) == AGENT


def test_a_line_that_is_right_is_left_alone() -> None:
    text = "OS.EnableRDMA = y\n"
    assert files.set_key(text, "OS.EnableRDMA", "y") == text
    assert files.restore_keys(text) == text


@given(
    lines=st.lists(st.sampled_from(["A=1", "B=2", "# A=3", "", "AB=4", "A = 5", "text"])),
    value=st.sampled_from(["1", "y"]),
    again=st.sampled_from(["y", "no"]),
)
def test_files_of_others_come_back_as_they_were(lines: list[str], value: str, again: str) -> None:
    before = "".join(f"{line}\n" for line in lines)
    after = files.set_key(before, "A", value)
    assert files.set_key(after, "A", value) == after
    settings = [re.split(r"\s*=\s*", line) for line in after.splitlines() if re.match(r"\s*A\s*=", line)]
    assert settings[-1] == ["A", value]
    assert files.restore_keys(files.set_key(after, "A", again)) == before or after == before
