# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines and blocks of ssh's files, as tables and properties."""

from __future__ import annotations

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh import blocks, read, verify
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh import plan as ssh
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._cluster_ssh.model import Node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from hypothesis import given
from hypothesis import strategies as st

KEY_A, KEY_B, KEY_C = (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{letter * 20}" for letter in "abc")


def node(name: str, *names: str, key: str = KEY_A, public: str = "", trusted: str = "", **rest: bool) -> Node:
    return Node(name, names, (key,), public, trusted, **rest)


def test_names_that_several_nodes_claim_vouch_for_none() -> None:
    nodes = [
        node("gpu-1", "gpu-1", "10.0.0.1", "172.17.0.1", "localhost"),
        node("gpu-2", "gpu-2", "10.0.0.2", "172.17.0.1", "127.0.1.1", "gpu-1"),
    ]
    assert ssh.own_names(nodes) == {"gpu-1": ["gpu-1", "10.0.0.1"], "gpu-2": ["gpu-2", "10.0.0.2"]}


def test_nodes_that_were_not_seen_keep_their_lines() -> None:
    first = ssh.known_hosts_lines([node("gpu-1", "10.0.0.1"), node("gpu-2", "10.0.0.2", key=KEY_B)], [], 22)
    assert first == [f"gpu-1,10.0.0.1 {KEY_A}", f"gpu-2,10.0.0.2 {KEY_B}"]
    limited = ssh.known_hosts_lines([node("gpu-1", "10.0.0.1", key=KEY_C)], first, 22)
    assert limited == [f"gpu-1,10.0.0.1 {KEY_C}", f"gpu-2,10.0.0.2 {KEY_B}"]
    assert ssh.known_hosts_lines([node("gpu-1", "10.0.0.1")], first, 22, forget_unseen=True) == [
        f"gpu-1,10.0.0.1 {KEY_A}"
    ]


def test_an_address_that_moved_belongs_to_its_new_node() -> None:
    existing = [f"gpu-1,10.0.0.1 {KEY_A}", f"gpu-2,10.0.0.2 {KEY_B}"]
    lines = ssh.known_hosts_lines([node("gpu-9", "10.0.0.2", key=KEY_C)], existing, 22)
    assert lines == [f"gpu-1,10.0.0.1 {KEY_A}", f"gpu-2 {KEY_B}", f"gpu-9,10.0.0.2 {KEY_C}"]


def test_another_port_is_part_of_the_name() -> None:
    lines = ssh.known_hosts_lines([node("gpu-1", "10.0.0.1")], [], 2222)
    assert lines == [f"[gpu-1]:2222,[10.0.0.1]:2222 {KEY_A}"]
    assert ssh.config_lines(lines, "/root/.ssh/id", 2222) == [
        "Host 10.0.0.1 gpu-1",
        "    IdentityFile /root/.ssh/id",
        "    Port 2222",
        "Match all",
    ]


def test_no_nodes_need_no_stanza() -> None:
    assert ssh.config_lines([], "/root/.ssh/id", 22) == []


@pytest.mark.parametrize(
    ("nodes", "key"),
    [
        ([node("a", public=KEY_A, first=True), node("b", public=KEY_B)], KEY_A),
        ([node("a", trusted=KEY_C), node("b", public=KEY_B, first=True)], KEY_B),
        ([node("a", trusted=KEY_C), node("b")], KEY_C),
        ([node("a", public=KEY_A), node("b")], KEY_A),
        ([node("a")], ""),
        # A first node that has just renewed its key trusts the old one still.
        ([node("a", public=KEY_B, trusted=KEY_A, first=True), node("b", public=KEY_A, trusted=KEY_A)], KEY_B),
        # Who holds a key and trusts another one holds a revoked one.
        ([node("a", public=KEY_A, trusted=KEY_B), node("b", trusted=KEY_B)], KEY_B),
        ([node("a", public=KEY_A, trusted=KEY_B), node("b")], KEY_B),
        ([node("a", public=KEY_A, trusted=KEY_B), node("b", public=KEY_B, trusted=KEY_B)], KEY_B),
        # A first node that lost its key, or never had one, makes no other one unless it is told to.
        ([node("a", trusted=KEY_B, first=True), node("b", public=KEY_B, trusted=KEY_B)], KEY_B),
        # In check mode a first node that is yet to make its key.
        ([node("a", trusted=KEY_A, first=True, made_key=True), node("b", public=KEY_A, trusted=KEY_A)], ""),
    ],
)
def test_which_key_is_the_cluster_s(nodes: list[Node], key: str) -> None:
    assert ssh.cluster_key(nodes) == key


@pytest.mark.parametrize(
    "nodes",
    [
        [node("a", trusted=KEY_A), node("b", trusted=KEY_B)],
        [node("a", public=KEY_A, trusted=KEY_B), node("b", trusted=KEY_A)],
        # It was down when the cluster's key was renewed.
        [node("a", public=KEY_A, trusted=KEY_A), node("b", trusted=KEY_B)],
        [node("a", trusted=KEY_A, first=True), node("b", trusted=KEY_B)],
    ],
)
def test_two_keys_are_not_guessed_between(nodes: list[Node]) -> None:
    with pytest.raises(ClusterError, match="know different keys") as caught:
        ssh.cluster_key(nodes)
    assert "`renew_key: true`" in caught.value.remedy


FIRST = node("a", public=KEY_A, first=True)


@pytest.mark.parametrize(
    ("nodes", "revoked", "copies", "theirs"),
    [
        ([FIRST, node("b")], False, [], []),
        ([FIRST, node("b", public=KEY_A, made_key=True)], False, ["b"], []),
        ([FIRST, node("b", public=KEY_B, made_key=True)], True, [], []),
        ([FIRST, node("b", public=KEY_B)], True, [], ["b"]),
        # Nobody can tell without the first node's own.
        ([node("a", trusted=KEY_B, first=True), node("b", public=KEY_B, made_key=True)], False, [], []),
        ([node("a"), node("b", public=KEY_B, made_key=True)], False, [], []),
        # Check mode: it is yet to make one.
        ([node("a", first=True, made_key=True), node("b", public=KEY_B, made_key=True)], True, [], []),
    ],
)
def test_which_keys_are_too_many(nodes: list[Node], revoked: bool, copies: list[str], theirs: list[str]) -> None:
    assert ssh.is_revoked(nodes[1].public_key, nodes) is revoked
    assert ssh.is_revoked(nodes[0].public_key, nodes) is False
    assert ssh.surplus_keys(nodes, []) == ssh.surplus_keys(nodes[:1], nodes[1:]) == (copies, theirs)


@pytest.mark.parametrize(
    "broken",
    [
        {"name": "gpu 1"},
        {"names": ["*"]},
        {"names": ["a,b"]},
        {"host_keys": ["ssh-ed25519 AAAA evil\n@cert-authority * x"]},
        {"public_key": 'command="x" ssh-ed25519 AAAA'},
    ],
)
def test_what_a_node_reports_is_checked_before_it_becomes_a_line(broken: dict[str, object]) -> None:
    good = {
        "name": "gpu-1",
        "names": ["10.0.0.1"],
        "host_keys": [KEY_A],
        "public_key": "",
        "trusted_key": "",
        "blocks": "",
        "first": True,
        "made_key": False,
    }
    assert Node.from_result(good).name == "gpu-1"
    with pytest.raises(ClusterError):
        Node.from_result({**good, **broken})


def test_the_trusted_key_is_read_back_from_its_line() -> None:
    line = ssh.authorized_line(KEY_A, ["restrict", "pty"], "gpu_cluster")
    assert line == f"restrict,pty {KEY_A} gpu_cluster"
    assert ssh.trusted_key([line]) == KEY_A
    assert ssh.trusted_key([ssh.authorized_line(KEY_B, [], "x")]) == KEY_B
    assert ssh.trusted_key([]) == ""


def test_a_block_without_end_is_not_touched() -> None:
    with pytest.raises(ClusterError, match="has no end"):
        blocks.set_block("# BEGIN hpcai.gpu_cluster cluster_ssh c\nx\n", "c", ["y"])


def test_blocks_of_two_clusters_keep_apart() -> None:
    one = blocks.set_block("mine\n", "c", ["1"])
    two = blocks.set_block(one, "c2", ["2"])
    assert blocks.set_block(blocks.set_block(two, "c", []), "c2", []) == "mine\n"
    assert blocks.set_block(blocks.set_block(two, "c2", []), "c", []) == "mine\n"


TEXTS = st.none() | st.text(alphabet="ab#\n\r\x00é ", max_size=60)
LINES = st.lists(st.text(alphabet="xyz =", min_size=1, max_size=9), min_size=1, max_size=4)


@given(TEXTS, LINES, LINES)
def test_taking_a_block_away_restores_every_byte(text: str | None, first: list[str], second: list[str]) -> None:
    with_first = blocks.set_block(text, "c", first)
    assert blocks.set_block(with_first, "c", first) == with_first
    with_second = blocks.set_block(with_first, "c", second)
    assert with_second is not None
    block, before, after = blocks.split_block(with_second, "c")
    assert block is not None
    assert list(block.lines) == second
    assert before + after == (text or "")
    assert blocks.set_block(with_second, "c", []) == text


def test_what_others_add_to_a_file_that_we_made_stays() -> None:
    made = blocks.set_block(None, "c", ["1"])
    assert made is not None
    assert blocks.set_block(made + "theirs\n", "c", []) == "theirs\n"


def test_addresses_are_read_from_ip() -> None:
    # Recorded from iproute2 6.1.
    output = (
        "2: eth0    inet 10.89.0.11/24 brd 10.89.0.255 scope global eth0\\       valid_lft forever preferred_lft forever\n"
        "2: eth0    inet6 fd00::1:b/64 scope global \\       valid_lft forever preferred_lft forever\n"
    )
    assert read.parse_addresses(output) == [("eth0", "10.89.0.11"), ("eth0", "fd00::1:b")]


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("root@gpu-2: Permission denied (publickey).\n", "it does not accept the cluster's key"),
        ("Host key verification failed.\n", "its host key is not in known_hosts"),
        ("ssh: Could not resolve hostname gpu-9: Name or service not known\n", "its name cannot be resolved"),
        ("ssh: connect to host gpu-2 port 22: Connection refused\n", "nothing listens on its ssh port"),
        ("Connection timed out during banner exchange\n", "it did not answer in time"),
        ("something new\n", "something new"),
        ("", "ssh exited with 255"),
    ],
)
def test_failures_are_told_in_words(stderr: str, reason: str) -> None:
    assert verify.why(stderr, 255) == reason
