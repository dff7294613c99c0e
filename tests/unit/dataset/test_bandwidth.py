# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Caps for downloads and uploads."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.argv import (
    SMALLEST_CAP_MBPS,
    CopyRequest,
    check_request,
    split_request,
    suggest_processes,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.bandwidth import (
    most_processes,
    plan_download,
    plan_upload,
    split_cap,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("nodes", "nic", "egress", "accounts", "cap", "bound", "gbps"),
    [
        (4, 6000, 50000, 1, 0, "nic", 24),
        (16, 6000, 50000, 1, 3125, "egress", 50),
        (16, 6000, 50000, 2, 0, "nic", 96),
        (9, 6000, 50000, 1, 5555.555, "egress", 50),
        (8, 6000, 50000, 1, 0, "nic", 48),
        (64, 24000, 200000, 1, 3125, "egress", 200),
        (4, 0, 50000, 1, 12500, "unknown", 0),
        (4, 6000, 0, 1, 0, "nic", 24),
        (4, 0, 0, 1, 0, "unknown", 0),
    ],
)
def test_download(nodes: int, nic: float, egress: float, accounts: int, cap: float, bound: str, gbps: float) -> None:
    plan = plan_download(nodes=nodes, nic_mbps=nic, egress_mbps=egress, accounts=accounts)
    assert (plan.cap_mbps, plan.bound, plan.expected_gbps) == (cap, bound, gbps)


def test_the_explanation_names_both_sides_and_the_way_out() -> None:
    assert plan_download(nodes=16, nic_mbps=6000, egress_mbps=50000).explanation == [
        "16 nodes of 6 Gb/s can take 96 Gb/s, 1 storage account gives 50 Gb/s:"
        " the account limit binds, so each node is capped at 3.125 Gb/s.",
        "Spread over 2 storage accounts the data would arrive at the full 96 Gb/s.",
    ]


@given(st.integers(1, 10_000), st.floats(0, 1e6), st.floats(100_000, 1e7), st.integers(1, 50))
def test_downloads_never_exceed_the_accounts(nodes: int, nic: float, egress: float, accounts: int) -> None:
    plan = plan_download(nodes=nodes, nic_mbps=nic, egress_mbps=egress, accounts=accounts)
    per_node = plan.cap_mbps or nic
    assert nodes * per_node <= egress * accounts * (1 + 1e-9)
    if plan.bound == "egress":
        needed = int(plan.explanation[1].split()[2])
        assert accounts < needed
        assert (needed - 1) * egress < nodes * nic * (1 + 1e-9)
        assert nodes * nic <= needed * egress * (1 + 1e-9)


def test_eight_checkpoint_files_below_20_gbps_get_2300_each() -> None:
    plan = plan_upload(processes=8, ingress_mbps=20000)
    assert (plan.cap_mbps, plan.total_mbps, plan.concurrency) == (2300, 18400, 10)
    assert plan.explanation == [
        "8 processes of 2300 Mb/s take 18400 of the 20000 Mb/s that the storage account accepts (92% at most)."
    ]


@pytest.mark.parametrize(
    ("processes", "ingress", "share", "cap"),
    [
        (1, 20_000, 0.92, 18_400),
        (1, 10_000, 0.57, 5_700),  # 0.57 x 10,000 is a little less than 5,700 in binary
        (1, 1_000, 0.29, 290),
        (3, 20_000, 0.92, 6_133),  # 6,133.3: whole megabits from 100 on
        (7, 500, 0.92, 65.714),  # 65.7142: thousandths below
        (1, 100, 1, 100),
        (4, 399.999, 1, 99.999),
    ],
)
def test_an_upload_gets_what_a_person_would_compute(processes: int, ingress: float, share: float, cap: float) -> None:
    plan = plan_upload(processes=processes, ingress_mbps=ingress, share=share)
    assert plan.cap_mbps == cap
    assert plan.total_mbps == pytest.approx(processes * cap)


def test_the_lowest_caps_are_those_that_azcopy_takes() -> None:
    """A node's cap as up to eight processes share it, a process' own in an upload; one thousandth below is refused."""
    azcopy, source, destination = "/azcopy", "https://account.blob.core.windows.net/data", "/mnt/scratch"
    node = plan_download(nodes=1000, egress_mbps=263).cap_mbps
    process = plan_upload(processes=1, ingress_mbps=0.033, share=1).cap_mbps
    assert (node, process) == (0.263, 0.033)
    request = CopyRequest(azcopy, source, destination, file_list=[str(number) for number in range(2000)])
    for cap_mbps, processes in ((node, suggest_processes(2000, 64)), (process, 1)):
        for share in split_request(dataclasses.replace(request, cap_mbps=cap_mbps, processes=processes)):
            check_request(share)
    for refused in (
        lambda: plan_download(nodes=1000, egress_mbps=262),
        lambda: plan_upload(processes=1, ingress_mbps=0.032, share=1),
    ):
        with pytest.raises(ClusterError, match="too low for AzCopy"):
            refused()


@given(st.integers(1, 1000), st.floats(10_000, 1e6), st.floats(0.1, 1))
def test_uploads_stay_below_their_share(processes: int, ingress: float, share: float) -> None:
    plan = plan_upload(processes=processes, ingress_mbps=ingress, share=share)
    assert 0 < plan.total_mbps <= ingress * share + processes * 1e-6


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        (lambda: plan_download(nodes=0), "number of nodes is 0"),
        (lambda: plan_download(nodes=1, accounts=0), "number of accounts is 0"),
        (lambda: plan_download(nodes=1, nic_mbps=-1), "nic_mbps is -1"),
        (lambda: plan_download(nodes=1, egress_mbps=float("nan")), "egress_mbps is nan"),
        (lambda: plan_upload(processes=0, ingress_mbps=1), "number of processes is 0"),
        (lambda: plan_upload(processes=8, ingress_mbps=0), "ingress limit of 0"),
        (lambda: plan_upload(processes=8, ingress_mbps=10, share=2), "2 of an ingress limit"),
        (
            lambda: plan_download(nodes=1000, nic_mbps=1000, egress_mbps=50),
            r"cap of 0\.05 Mb/s .*fewer nodes.*`egress_mbps`",
        ),
        (lambda: plan_download(nodes=1000, egress_mbps=50), r"cap of 0\.05 Mb/s"),
        (lambda: plan_download(nodes=1000, egress_mbps=0.5), r"cap of 0 Mb/s"),
        (lambda: plan_upload(processes=100, ingress_mbps=3), r"cap of 0\.027 Mb/s .*`processes`.*`ingress_mbps`"),
        (lambda: plan_upload(processes=1000, ingress_mbps=0.5), r"cap of 0 Mb/s"),
    ],
)
def test_nonsense_is_refused(call: object, fragment: str) -> None:
    with pytest.raises(ClusterError, match=fragment) as caught:
        call()  # type: ignore[operator]
    assert caught.value.kind == "bad_input"


CAPS = st.floats(min_value=1.0, max_value=1e6)
SIZES = st.lists(st.integers(min_value=0, max_value=10**13), min_size=1, max_size=8)


@given(cap=CAPS, sizes=SIZES)
def test_sources_of_one_node_share_its_cap_and_each_can_copy(cap: float, sizes: list[int]) -> None:
    caps = split_cap(cap, dict(enumerate(sizes)))
    assert sum(caps.values()) == pytest.approx(cap)
    for source, mbps in caps.items():
        processes = most_processes(mbps)
        assert 1 <= processes <= 8
        names = [f"f{number}" for number in range(processes)]
        request = CopyRequest(
            "azcopy",
            "https://a.blob.core.windows.net/data",
            "/data",
            file_list=names,
            cap_mbps=mbps,
            processes=processes,
        )
        for one in split_request(request):
            check_request(one)  # raises where AzCopy could not send
        assert all(mbps <= caps[other] for other in caps if sizes[other] > sizes[source])


def test_a_small_file_beside_a_large_one_gets_what_azcopy_needs() -> None:
    # By bytes alone it would get 0.00015 Mb/s, which AzCopy refuses, and with it the whole copy.
    caps = split_cap(1500.0, {0: 9_000_000_000, 1: 1000})
    assert caps[1] == pytest.approx(SMALLEST_CAP_MBPS, rel=0.01)
    assert most_processes(caps[1]) == 1
    assert caps[0] == pytest.approx(1500, rel=0.001)


def test_no_cap_stays_none_and_empty_files_share_evenly() -> None:
    assert split_cap(0.0, {0: 5, 1: 7}) == {0: 0.0, 1: 0.0}
    assert most_processes(0.0) == 8
    assert split_cap(10.0, {0: 0, 1: 0}) == {0: 5.0, 1: 5.0}
