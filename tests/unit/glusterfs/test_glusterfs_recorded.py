# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node that leads does, or would do in check mode, after answers that gluster itself gave."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs import apply, cli
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Wanted

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
NODES = ("gpu-1", "gpu-2", "gpu-3")
CONSENT = {"forget": ("gpu-3",), "allow_data_loss": True}
RUNNING = ("volume_started", "status", "pool")
BRICK_DOWN = ("volume_started", "status_brick_down", "pool")
NODE_DOWN = ("volume_started", "status_node_down", "pool_node_down")
CREATED = ("volume_created", "status", "pool")
FRESH = ("volume_missing", "status", "pool_alone")
GIVE_UP = ["give up the brick of gpu-3", "forget gpu-3"]
NEW_BRICK = [
    *GIVE_UP,
    "take gpu-3 into the pool",
    "add a brick on gpu-3",
    "spread new files over the new bricks",
]
CREATE = [
    "take gpu-2 into the pool",
    "take gpu-3 into the pool",
    "create the volume on gpu-1, gpu-2, gpu-3",
    "set network.ping-timeout to 10",
    "start the volume",
]


class Recorded:
    """gluster in one state: it answers as it was recorded there, and notes what is asked. ``commands``: what changes something."""

    def __init__(self, volume: str, status: str, pool: str) -> None:
        self._texts = {name: (FIXTURES / f"{name}.xml").read_text() for name in ("probe", "volume_list")}
        self._texts.update({"info": self._text(volume), "status": self._text(status), "pool": self._text(pool)})
        # The volume that answered `volume status` had other bricks than the one that answered `volume info`.
        self._texts["status"] = re.sub(
            r"<path>.*</path>", "<path>/mnt/resource_nvme/gluster/scratch</path>", self._texts["status"]
        )
        self.asked: list[str] = []
        self.commands: list[str] = []

    @staticmethod
    def _text(name: str) -> str:
        return (FIXTURES / f"{name}.xml").read_text()

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        words = args[args.index("--xml") + 1 :]
        question = {"volume list": "volume_list", "pool list": "pool"}.get(" ".join(words[:2]), words[1])
        if question in self._texts:
            self.asked.append(" ".join(words))
            return 0, self._texts[question], ""
        self.commands.append(" ".join(words))
        return 0, self._texts["probe"], ""


class Lead:
    """The first of the nodes, which leads, and what it is asked to do."""

    def __init__(self, gluster: Recorded, *, check: bool = True, **parts: t.Any) -> None:
        wanted = {"name": "scratch", "nodes": NODES, "bricks": "/b", "options": {"network.ping-timeout": "10"}}
        self.gluster, self.wanted, self.check = cli.Gluster(gluster, 5), Wanted(**{**wanted, **parts}), check

    def start(self) -> list[str]:
        return apply.start(self.gluster, self.wanted, "gpu-1", check=self.check)

    def stop(self, hosts: t.Collection[str]) -> list[str]:
        return apply.stop(self.gluster, self.wanted, hosts, check=self.check)

    def delete(self, hosts: t.Collection[str]) -> list[str]:
        return apply.delete(self.gluster, self.wanted, "gpu-1", hosts, check=self.check)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (apply, cli):
        monkeypatch.setattr(part, "_POLL_S", 0.01)
    monkeypatch.setattr(apply, "_BRICK_WAIT_S", 0.05)


@pytest.mark.parametrize(
    ("state", "parts", "told"),
    [
        (RUNNING, {}, []),
        (RUNNING, {"options": {"a": "1"}}, ["set a to 1"]),
        # Whatever was said of a node, one whose brick runs stays.
        (RUNNING, CONSENT, []),
        (
            RUNNING,
            {"nodes": (*NODES, "gpu-4")},
            ["take gpu-4 into the pool", "add a brick on gpu-4", "spread new files over the new bricks"],
        ),
        (FRESH, {}, CREATE),
        (CREATED, {}, ["start the volume", "set network.ping-timeout to 10"]),
        (BRICK_DOWN, {}, ["restart the brick of gpu-3"]),
        (NODE_DOWN, {}, ["restart the brick of gpu-3"]),
        (NODE_DOWN, {**CONSENT, "nodes": NODES[:2]}, GIVE_UP),
        # The node is still in the pool, but will not be when it gets its new brick.
        (NODE_DOWN, CONSENT, NEW_BRICK),
    ],
)
def test_check_mode_tells_what_would_be_done(
    state: tuple[str, str, str], parts: dict[str, t.Any], told: list[str]
) -> None:
    gluster = Recorded(*state)
    assert Lead(gluster, **parts).start() == told
    assert gluster.commands == []


@pytest.mark.parametrize(
    ("state", "parts", "kind"),
    [
        (RUNNING, {"replica": 3}, "volume_conflict"),
        (RUNNING, {"nodes": NODES[:2]}, "volume_conflict"),
        (CREATED, {"replica": 3}, "volume_conflict"),
        (NODE_DOWN, {"forget": ("gpu-3",)}, "consent_missing"),
        (NODE_DOWN, {"nodes": NODES[:2]}, "volume_conflict"),
    ],
)
def test_check_mode_refuses_what_a_run_refuses(state: tuple[str, str, str], parts: dict[str, t.Any], kind: str) -> None:
    gluster = Recorded(*state)
    with pytest.raises(ClusterError) as caught:
        Lead(gluster, **parts).start()
    assert (caught.value.kind, gluster.commands) == (kind, [])


def test_a_volume_that_is_right_costs_two_questions() -> None:
    gluster = Recorded(*RUNNING)
    assert Lead(gluster, check=False).start() == []
    assert (gluster.asked, gluster.commands) == (["volume info scratch", "volume status scratch"], [])


def test_a_volume_that_was_only_created_is_started() -> None:
    gluster = Recorded(*CREATED)
    assert Lead(gluster, check=False).start() == ["start the volume", "set network.ping-timeout to 10"]
    assert gluster.commands == ["volume start scratch", "volume set scratch network.ping-timeout 10"]


@pytest.mark.parametrize("state", [BRICK_DOWN, NODE_DOWN])
def test_a_brick_is_told_to_start_once_and_named_if_it_does_not(state: tuple[str, str, str]) -> None:
    gluster = Recorded(*state)
    with pytest.raises(ClusterError, match="on gpu-3 does not run") as caught:
        Lead(gluster, check=False).start()
    assert (caught.value.kind, gluster.commands) == ("brick_offline", ["volume start scratch force"])


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({"forget": ("gpu-3",)}, "consent_missing"),
        # Its brick is needed, whatever else is wrong: nothing is refused before somebody tried to bring it back.
        ({"nodes": NODES[:2]}, "brick_offline"),
        # No data is given up on the way to a refusal.
        ({**CONSENT, "nodes": NODES[:1]}, "volume_conflict"),
    ],
)
def test_a_refusal_comes_after_the_brick_had_its_chance_and_before_anything_else(
    parts: dict[str, t.Any], kind: str
) -> None:
    gluster = Recorded(*NODE_DOWN)
    with pytest.raises(ClusterError) as caught:
        Lead(gluster, check=False, **parts).start()
    assert (caught.value.kind, gluster.commands) == (kind, ["volume start scratch force"])


def test_a_node_that_is_powered_off_is_given_up_with_consent() -> None:
    gluster = Recorded(*NODE_DOWN)
    assert Lead(gluster, check=False, nodes=NODES[:2], **CONSENT).start() == GIVE_UP
    assert gluster.commands == [
        "volume start scratch force",
        "volume remove-brick scratch gpu-3:/mnt/resource_nvme/gluster/scratch force",
        "peer detach gpu-3 force",
    ]


@pytest.mark.parametrize(
    ("state", "stopped", "deleted"),
    [
        (RUNNING, ["stop the volume"], ["delete the volume", "forget gpu-2", "forget gpu-3"]),
        (CREATED, [], ["delete the volume", "forget gpu-2", "forget gpu-3"]),
        (FRESH, [], []),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_taking_the_volume_away(
    check: bool, state: tuple[str, str, str], stopped: list[str], deleted: list[str]
) -> None:
    gluster = Recorded(*state)
    assert Lead(gluster, check=check).stop(NODES) == stopped
    assert Lead(gluster, check=check).delete(NODES) == stopped + deleted
    assert len(gluster.commands) == (0 if check else 2 * len(stopped) + len(deleted))


def test_a_volume_without_a_lost_node_is_taken_away_in_this_order() -> None:
    gluster = Recorded(*NODE_DOWN)
    told = Lead(gluster, nodes=NODES[:2], **CONSENT).delete(NODES[:2])
    assert told == [*GIVE_UP, "stop the volume", "delete the volume", "forget gpu-2"]
    assert gluster.commands == []
    assert Lead(gluster, check=False, nodes=NODES[:2], **CONSENT).delete(NODES[:2]) == told
    assert gluster.commands == [
        "volume remove-brick scratch gpu-3:/mnt/resource_nvme/gluster/scratch force",
        "peer detach gpu-3 force",
        "volume stop scratch force",
        "volume delete scratch",
        "peer detach gpu-2 force",
    ]
