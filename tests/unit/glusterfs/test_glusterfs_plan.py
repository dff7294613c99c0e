# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading gluster's XML (recorded), and the plans that follow from it."""

from __future__ import annotations

import pathlib
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs import model, replies
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs import plan as gl

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
NODES = ("gpu-1", "gpu-2", "gpu-3")
OLD = "/mnt/resource_nvme/gluster/scratch"


def reply(name: str) -> ET.Element:
    return replies.parse_reply((FIXTURES / f"{name}.xml").read_text())


def wanted(**parts: t.Any) -> model.Wanted:
    return model.Wanted(**{"name": "scratch", "nodes": NODES, "bricks": "/b", **parts})


def volume(*nodes: str, replica: int = 1, started: bool = True) -> model.Volume:
    return model.Volume("scratch", started, replica, tuple(model.Brick(node, "/b/x") for node in nodes), {})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("probe", ""),
        ("create", ""),
        ("set", ""),
        ("start", ""),
        ("status", ""),
        ("probe_unknown", "Probe returned with Transport endpoint is not connected"),
        ("volume_missing", "Volume does not exist"),
        ("create_exists", "Volume scratch already exists"),
        ("create_node_down", "Host gpu-3 not connected"),
        ("delete_started", "Volume scratch has been started.Volume needs to be stopped before deletion."),
    ],
)
def test_a_refusal_is_seen_whatever_the_exit_status(name: str, why: str) -> None:
    assert replies.refusal(reply(name)) == why


def test_an_answer_without_xml_is_an_error() -> None:
    with pytest.raises(ClusterError, match="Connection failed"):
        replies.parse_reply("Connection failed. Please check if gluster daemon is operational.\n")


def test_the_pool_is_read() -> None:
    peers = replies.parse_peers(reply("pool"))
    assert gl.nodes_to_probe(NODES, peers, "gpu-1") == []
    assert gl.unready(NODES[1:], peers) == []
    assert gl.nodes_to_probe((*NODES, "gpu-4"), peers, "gpu-1") == ["gpu-4"]
    alone = replies.parse_peers(reply("pool_alone"))
    assert gl.nodes_to_probe(NODES, alone, "gpu-1") == ["gpu-2", "gpu-3"]
    down = replies.parse_peers(reply("pool_node_down"))
    assert gl.nodes_to_probe(NODES, down, "gpu-1") == []
    assert gl.unready(NODES[1:], down) == ["gpu-3"]


def test_volumes_are_read() -> None:
    assert replies.parse_volume(reply("volume_missing")) is None
    assert replies.parse_volume(reply("volumes_none")) is None
    created, started = replies.parse_volume(reply("volume_created")), replies.parse_volume(reply("volume_started"))
    assert created is not None
    assert started is not None
    assert (created.started, started.started) == (False, True)
    assert started.bricks == tuple(model.Brick(node, OLD) for node in NODES)
    assert started.replica == 1
    assert started.options["network.ping-timeout"] == "10"
    assert replies.parse_names(reply("volume_list")) == ["scratch"]


def test_bricks_that_do_not_run_are_seen() -> None:
    assert replies.parse_online(reply("status")) == {model.Brick(node, OLD) for node in NODES}
    assert replies.parse_online(reply("status_node_down")) == {model.Brick(node, OLD) for node in NODES[:2]}
    assert {brick.node for brick in replies.parse_online(reply("status_brick_down"))} == {"gpu-1", "gpu-2"}


@pytest.mark.parametrize(
    ("parts", "ok"),
    [
        ({}, True),
        ({"replica": 3}, True),
        ({"replica": 2}, False),
        ({"replica": 0}, False),
        ({"nodes": ("gpu-1", "gpu-1")}, False),
        ({"nodes": ()}, False),
    ],
)
def test_requests_are_checked(parts: dict[str, t.Any], ok: bool) -> None:
    if ok:
        gl.check_wanted(wanted(**parts))
        return
    with pytest.raises(ClusterError):
        gl.check_wanted(wanted(**parts))


def test_a_new_volume_is_made_of_new_directories() -> None:
    steps = gl.plan_create(wanted(options={"network.ping-timeout": "10"}), "0a1b2c3d")
    assert [step.argv for step in steps] == [
        ("volume", "create", "scratch", *(f"{node}:/b/scratch-0a1b2c3d" for node in NODES), "force"),
        ("volume", "set", "scratch", "network.ping-timeout", "10"),
        ("volume", "start", "scratch"),
    ]
    assert gl.plan_create(wanted(replica=3), "x")[0].argv[3:5] == ("replica", "3")


def test_only_options_that_differ_are_set() -> None:
    steps = gl.plan_options(wanted(options={"a": "1", "b": "2"}), {"a": "1", "c": "3"})
    assert [step.argv[-2:] for step in steps] == [("b", "2")]


def test_nodes_without_a_brick_get_one() -> None:
    steps = gl.plan_grow(wanted(), volume("gpu-1").bricks, "tag")
    assert steps[0].argv == (
        "volume", "add-brick", "scratch", "gpu-2:/b/scratch-tag", "gpu-3:/b/scratch-tag", "force",
    )  # fmt: skip
    assert steps[1].argv[-2:] == ("fix-layout", "start")
    assert gl.plan_grow(wanted(), volume(*NODES).bricks, "tag") == []
    assert gl.unlisted(wanted(nodes=("gpu-1",)), volume("gpu-1", "gpu-9").bricks) == ["gpu-9"]


GONE = model.Brick("gpu-3", "/b/x")


@pytest.mark.parametrize(
    ("parts", "have", "offline", "result"),
    [
        ({}, volume(*NODES), [GONE], []),
        ({"forget": ("gpu-3",), "allow_data_loss": True}, volume(*NODES), [], []),
        ({"forget": ("gpu-3",), "allow_data_loss": True}, volume(*NODES), [GONE], [GONE]),
        ({"forget": ("gpu-3",)}, volume(*NODES), [GONE], "consent_missing"),
        ({"forget": ("gpu-3",), "allow_data_loss": True}, volume(*NODES, replica=3), [GONE], "bad_input"),
        ({"forget": ("gpu-3",), "allow_data_loss": True}, volume("gpu-3"), [GONE], "bad_input"),
    ],
)
def test_only_what_is_really_gone_is_forgotten(
    parts: dict[str, t.Any], have: model.Volume, offline: list[model.Brick], result: t.Any
) -> None:
    if isinstance(result, str):
        with pytest.raises(ClusterError) as caught:
            gl.forgotten(wanted(**parts), have, offline)
        assert caught.value.kind == result
        return
    assert gl.forgotten(wanted(**parts), have, offline) == result


@pytest.mark.parametrize(
    ("have", "hosts", "parts", "absent"),
    [
        (volume(*NODES), NODES, {}, []),
        (volume(*NODES), NODES[:1], {}, ["gpu-2", "gpu-3"]),
        (volume(*NODES), NODES[:2], {"forget": ("gpu-3",), "allow_data_loss": True}, []),
        (volume(*NODES), NODES[:1], {"forget": ("gpu-3",), "allow_data_loss": True}, ["gpu-2"]),
        (volume(*NODES), NODES[:2], {"forget": ("gpu-3",)}, ["gpu-3"]),
        (volume(*NODES), NODES[:2], {"allow_data_loss": True}, ["gpu-3"]),
        # gluster gives one of several copies up only together with others.
        (volume(*NODES, replica=3), NODES[:2], {"forget": ("gpu-3",), "allow_data_loss": True}, ["gpu-3"]),
        # A node without a brick has nothing to lose.
        (volume("gpu-1"), NODES[:1], {}, []),
    ],
)
def test_a_volume_is_taken_away_only_where_all_its_nodes_are_asked(
    have: model.Volume, hosts: tuple[str, ...], parts: dict[str, t.Any], absent: list[str]
) -> None:
    lost = gl.given_up(wanted(**parts), have)
    if not absent:
        gl.check_whole_run(have, hosts, lost)
        return
    with pytest.raises(ClusterError) as caught:
        gl.check_whole_run(have, hosts, lost)
    assert (caught.value.kind, caught.value.details["nodes"]) == ("partial_run", absent)
    assert ("`forget_nodes`" in caught.value.remedy) == (have.replica == 1)


def test_the_lost_node_is_named_with_what_it_costs() -> None:
    error = gl.offline_error("scratch", [GONE])
    assert "gpu-3" in error.message
    assert "`forget_nodes`" in error.remedy
    assert "every file on it is gone" in error.remedy


def test_a_mount_is_ours_by_its_kind_and_its_volume() -> None:
    found = ("fuse.glusterfs", "localhost:/scratch")
    assert gl.is_ours(found, "scratch")
    assert not gl.is_ours(found, "other")
    assert not gl.is_ours(("ext4", "localhost:/scratch"), "scratch")


def planned(facts: model.Facts, **parts: t.Any) -> list[str]:
    return [" ".join(step.argv) for step in gl.plan(wanted(**parts), facts, "gpu-1", "tag")]


def test_the_plan_follows_from_the_facts_alone() -> None:
    have, pool = volume(*NODES), tuple(replies.parse_peers(reply("pool")))
    assert planned(model.Facts(have)) == []
    assert planned(model.Facts(volume(*NODES, started=False))) == ["volume start scratch"]
    # Nobody knows yet whether it comes back by itself: that is tried before anything is said to be lost.
    assert planned(model.Facts(have, (GONE,))) == ["volume start scratch force"]
    with pytest.raises(ClusterError) as caught:
        planned(model.Facts(have, (GONE,), revived=True))
    assert caught.value.kind == "brick_offline"
    consent: dict[str, t.Any] = {"forget": ("gpu-3",), "allow_data_loss": True}
    assert planned(model.Facts(have, (GONE,), pool, revived=True), **consent) == [
        "volume remove-brick scratch gpu-3:/b/x force",
        "peer detach gpu-3 force",
        "peer probe gpu-3",
        "volume add-brick scratch gpu-3:/b/scratch-tag force",
        "volume rebalance scratch fix-layout start",
    ]


def test_no_brick_is_made_before_the_pool_counts_on_its_nodes() -> None:
    alone = tuple(replies.parse_peers(reply("pool_alone")))
    steps = gl.plan(wanted(), model.Facts(None, peers=alone), "gpu-1", "tag")
    assert [(step.argv[:2], step.joined) for step in steps] == [
        (("peer", "probe"), ()),
        (("peer", "probe"), ()),
        (("volume", "create"), ("gpu-2", "gpu-3")),
        (("volume", "start"), ()),
    ]
