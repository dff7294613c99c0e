"""Claims of batches: one owner at a time, dead owners are replaced, nobody tries for ever."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import threading

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def two(tmp_path, clock):
    return [Claims(str(tmp_path), owner, expiry_s=10, max_attempts=3, clock=clock) for owner in ("a", "b")]


def test_only_one_owner_gets_a_claim(tmp_path) -> None:
    owners = [Claims(str(tmp_path), str(number)) for number in range(16)]
    barrier = threading.Barrier(len(owners))
    won: list[str] = []

    def race(claims: Claims) -> None:
        barrier.wait()
        for batch in range(50):
            if claims.claim(f"b{batch}", 0):
                won.append(f"b{batch}")

    threads = [threading.Thread(target=race, args=(claims,)) for claims in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == sorted(f"b{batch}" for batch in range(50))


def test_a_silent_owner_is_replaced_and_a_living_one_is_not(two, clock) -> None:
    dead, idle = two
    assert dead.claim("b", 0)
    assert not idle.is_stale("b", 0), "the first look only starts the clock"
    clock.now = 9
    dead.heartbeat({})
    assert not idle.is_stale("b", 0), "a new heartbeat starts it again"
    clock.now = 18
    assert not idle.is_stale("b", 0)
    clock.now = 19
    assert idle.is_stale("b", 0)
    assert idle.take_over("b", 0, "no sign of life")
    state = idle.survey(["b"])["b"]
    assert (state.attempt, state.claimed, state.done) == (1, True, False)


def test_only_one_idle_rank_takes_over(tmp_path, clock) -> None:
    Claims(str(tmp_path), "dead").claim("b", 0)
    idle = [Claims(str(tmp_path), str(number), expiry_s=10, clock=clock) for number in range(5)]
    for claims in idle:
        claims.is_stale("b", 0)
    clock.now = 11
    assert [claims.is_stale("b", 0) and claims.take_over("b", 0, "no sign of life") for claims in idle] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_released_batch_may_be_tried_again_but_not_for_ever(two) -> None:
    first, second = two
    for attempt in range(3):
        claims = (first, second)[attempt % 2]
        state = claims.survey(["b"])["b"]
        assert claims.claimable(state)
        assert claims.claim("b", state.attempt + 1)
        claims.release("b", "partial")
    state = first.survey(["b"])["b"]
    assert not first.claimable(state)
    assert first.finished(state)


def test_the_first_result_stays(two) -> None:
    slow, quick = two
    slow.claim("b", 0)
    quick.finish("b", {"failed": []})
    slow.finish("b", {"failed": [{"name": "x"}]})
    result = slow.result("b")
    assert result is not None
    assert result["owner"] == "b"
    assert slow.survey(["b"])["b"].done


def test_a_batch_nobody_touched_is_claimable(two) -> None:
    state = two[0].survey(["b", "c"])["c"]
    assert two[0].claimable(state)
    assert not two[0].finished(state)
    assert two[0].result("c") is None


def test_an_owner_tells_how_far_it_is(two, clock) -> None:
    owner, idle = two
    owner.claim("b", 0)
    assert idle.account("b", 0) == ("a", 0, 0)
    clock.now = 10
    owner.heartbeat({"b": 0.25})
    assert idle.account("b", 0) == ("a", 10, 0.25)
    assert idle.account("unknown", 0) is None


def test_whoever_ends_gives_back_all_that_it_holds_and_nothing_else(two, tmp_path: pathlib.Path) -> None:
    ending, other = two
    for batch in ("a", "b", "c"):
        assert ending.claim(batch, 0)
    assert other.claim("d", 0)
    ending.finish("c", {"failed": []})
    ending.release_all("worker ended")
    states = other.survey(["a", "b", "c", "d"])
    assert {batch: other.claimable(state) for batch, state in states.items()} == {
        "a": True,
        "b": True,
        "c": False,
        "d": False,
    }
    assert sorted(path.name for path in tmp_path.glob("*.released")) == ["a.0.released", "b.0.released"]
    assert other.claim("a", 1)


def test_what_is_done_is_nobodys(two) -> None:
    owner, other = two
    owner.claim("b", 0)
    owner.finish("b", {"failed": []})
    state = other.survey(["b"])["b"]
    assert (state.done, state.claimed, state.next_attempt) == (True, False, None)
    assert other.finished(state)
    assert not other.claimable(state)


def test_what_cannot_be_given_back_does_not_keep_the_rest(
    two, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared file system may fail for one file, or altogether: a rank that ends must end all the same."""
    ending, other = two
    for batch in ("a", "b", "c"):
        assert ending.claim(batch, 0)
    real = os.replace

    def replace(source: str, destination: str) -> None:
        if os.path.basename(destination).startswith("a."):
            raise OSError(5, "Input/output error")
        real(source, destination)

    monkeypatch.setattr(os, "replace", replace)
    ending.release_all("worker ended")
    assert [other.claimable(other.survey([batch])[batch]) for batch in ("a", "b", "c")] == [False, True, True]
    assert other.claim("b", 1)
    shutil.rmtree(tmp_path)
    other.release_all("worker ended")


def test_nobody_takes_over_more_often_than_attempts_are_allowed(two) -> None:
    """max_attempts is 3: the attempts 0, 1 and 2."""
    first, second = two
    assert first.claim("b", 0)
    assert second.take_over("b", 0, "slow")
    assert first.take_over("b", 1, "slow")
    assert [first.last_attempt(attempt) for attempt in range(3)] == [False, False, True]
    assert not second.take_over("b", 2, "slow")
    state = first.survey(["b"])["b"]
    assert state.attempt == 2
    assert first.finished(state)
    assert not first.claimable(state)


def test_what_others_leave_in_the_directory_is_no_claim(two, tmp_path: pathlib.Path) -> None:
    (tmp_path / "b.0.released.tmp.part").write_text("{")
    (tmp_path / "other.0").write_text("x 0 0 0")
    state = two[0].survey(["b"])["b"]
    assert (state.attempt, state.released, state.done) == (-1, set(), False)


def test_the_newest_attempt_counts(two) -> None:
    first, second = two
    assert first.claim("b", 0)
    assert second.take_over("b", 0, "no sign of life")
    state = first.survey(["b"])["b"]
    assert (state.attempt, state.released, state.claimed) == (1, {0}, True)
    first.heartbeat({"b": 0.5})  # the one that was given up lives after all, and changes nothing
    assert second.account("b", 1) == ("b", 0, 0)
    second.release("b", "partial")
    assert first.survey(["b"])["b"].next_attempt == 2


def test_a_claim_that_is_gone_is_not_stale(two) -> None:
    assert not two[0].is_stale("never", 0)


def test_what_somebody_else_finished_is_not_kept_alive(two, tmp_path: pathlib.Path) -> None:
    slow, quick = two
    assert slow.claim("b", 0)
    quick.finish("b", {"failed": []})
    assert slow.is_done("b")
    slow.forget("b")
    (tmp_path / "b.0").unlink()
    slow.heartbeat({"b": 1.0})
    slow.release_all("worker ended")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.done"]


def test_a_heartbeat_counts_from_the_claim(two, clock, tmp_path: pathlib.Path) -> None:
    owner, idle = two
    clock.now = 100
    owner.claim("b", 0)
    clock.now = 107
    owner.heartbeat({})
    assert idle.account("b", 0) == ("a", 7, 0)
    (tmp_path / "b.0").write_text("cut")
    assert idle.account("b", 0) is None


def test_a_claim_says_owner_beat_seconds_and_fraction(two, clock, tmp_path: pathlib.Path) -> None:
    """Ranks of one run may be of different releases: this line is what they have in common."""
    owner, _idle = two
    assert owner.claim("b", 0)
    assert (tmp_path / "b.0").read_text() == "a 0 0 0"
    assert (tmp_path / "b.0").stat().st_mode & 0o777 == 0o644
    for beat in (1, 2):
        clock.now += 1.5
        owner.heartbeat({"b": 0.25})
        assert (tmp_path / "b.0").read_text() == f"a {beat} {clock.now:.3f} 0.2500"


def test_unless_told_otherwise_an_owner_is_given_up_after_a_minute_and_a_batch_after_four_attempts(
    tmp_path: pathlib.Path, clock: Clock
) -> None:
    silent, idle = (Claims(str(tmp_path), owner, clock=clock) for owner in ("silent", "idle"))
    for attempt in range(4):
        state = idle.survey(["b"])["b"]
        assert idle.claimable(state)
        assert not idle.finished(state)
        assert silent.claim("b", attempt)
        assert not idle.is_stale("b", attempt)
        clock.now += 59.9
        assert not idle.is_stale("b", attempt)
        clock.now += 0.1
        assert idle.is_stale("b", attempt)
        silent.release("b", "partial")
    state = idle.survey(["b"])["b"]
    assert idle.finished(state)
    assert not idle.claimable(state)


def test_a_batch_that_is_done_is_not_claimed_by_a_take_over_that_comes_too_late(two) -> None:
    slow, quick = two
    assert slow.claim("b", 0)
    slow.finish("b", {"failed": []})
    assert quick.take_over("b", 0, "slow")  # both write the same checked content
    assert quick.survey(["b"])["b"].done
    quick.forget("b")
    quick.forget("b")
    assert quick.result("b") == {"owner": "a", "failed": []}


def test_why_a_batch_was_given_back_is_kept(two, tmp_path: pathlib.Path) -> None:
    owner, other = two
    assert owner.claim("b", 0)
    owner.release("b", "partial")
    assert json.loads((tmp_path / "b.0.released").read_text()) == {"owner": "a", "reason": "partial"}
    assert other.claim("c", 0)
    assert owner.take_over("c", 0, "slow")
    assert json.loads((tmp_path / "c.0.released").read_text()) == {"owner": "a", "reason": "slow"}


def test_attempts_beyond_the_last_are_nobodys(two) -> None:
    first, _second = two
    assert [first.take_over("b", attempt, "slow") for attempt in (2, 3, 7)] == [False] * 3


def test_every_name_of_the_directory_is_read(two, tmp_path: pathlib.Path) -> None:
    owner, reader = two
    batches = [f"r{number:04d}b00" for number in range(20)]
    for batch in batches:
        (tmp_path / f"{batch}.0.released.17.part").write_text("{")
        (tmp_path / f"x{batch}.0").write_text("x 0 0 0")
        assert owner.claim(batch, 0)
    for batch in batches[::2]:
        owner.finish(batch, {})
    states = reader.survey(batches)
    assert [states[batch].done for batch in batches] == [True, False] * 10
    assert [states[batch].attempt for batch in batches] == [0] * 20
