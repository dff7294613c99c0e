# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings follow from a wish, and that what was set is always given back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import model, store
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks import plan as clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import (
    Gpu,
    Layer,
    Pair,
    Record,
    Settings,
    Wish,
)
from hypothesis import assume, given
from hypothesis import strategies as st

SESSION = "boot/1/550.163.01"
A100 = Gpu(
    index=0,
    uuid="GPU-1",
    name="NVIDIA A100-SXM4-40GB",
    bus_id="0001:00:00.0",
    driver="550.163.01",
    persistence=True,
    mig=False,
    graphics_mhz=210,
    memory_mhz=1215,
    max_graphics_mhz=1410,
    max_memory_mhz=1215,
    applications=(1215, 1095),
    default_applications=(1215, 1095),
    compute_capability=8.0,
    reasons=1,
)
V100 = dataclasses.replace(
    A100,
    name="Tesla V100-SXM2-32GB",
    max_graphics_mhz=1530,
    max_memory_mhz=877,
    memory_mhz=877,
    applications=(877, 1290),
    default_applications=(877, 1290),
    compute_capability=7.0,
)
P100 = dataclasses.replace(
    A100,
    name="Tesla P100-SXM2-16GB",
    max_graphics_mhz=1480,
    max_memory_mhz=715,
    memory_mhz=715,
    applications=(715, 1328),
    default_applications=(715, 1328),
    compute_capability=6.0,
)
H200 = dataclasses.replace(
    A100,
    name="NVIDIA H200",
    max_graphics_mhz=1980,
    max_memory_mhz=3201,
    memory_mhz=3201,
    applications=None,
    default_applications=None,
    applications_deprecated=True,
    compute_capability=9.0,
)
FRESH = Record(sessions={"graphics_lock": SESSION, "memory_lock": SESSION})


def plan(gpu: Gpu, wish: Wish, record: Record = FRESH) -> tuple[list[str], list[str]]:
    """The calls, and the kinds of problems."""
    now = clocks.current(gpu, record, SESSION)
    goal = clocks.target(gpu, wish, clocks.base_of(record, "node", now), record)
    calls = [" ".join(step.arguments) for step in clocks.steps(gpu, record, now, goal.settings)]
    return calls, [problem.kind for problem in goal.problems]


@pytest.mark.parametrize(
    ("gpu", "wish", "calls", "problems"),
    [
        (A100, Wish("max"), ["-lgc 1410,1410", "-lmc 1215,1215"], []),
        (V100, Wish("max"), ["-lgc 1530,1530"], []),
        (P100, Wish("max"), ["-ac 715,1480"], []),
        (H200, Wish("max"), ["-lgc 1980,1980", "-lmc 3201,3201"], []),
        (A100, Wish("max", method="applications"), ["-ac 1215,1410"], []),
        (H200, Wish("max", method="applications"), [], ["unsupported"]),
        (P100, Wish("max", method="lock"), [], ["unsupported"]),
        (P100, Wish("locked"), [], ["unsupported"]),
        (A100, Wish("locked", graphics_mhz=1200), ["-lgc 1200,1200", "-lmc 1215,1215"], []),
        (V100, Wish("locked", graphics_mhz=1200), ["-lgc 1200,1200"], []),
        (V100, Wish("max", memory_mhz=810, method="lock"), ["-lgc 1530,1530"], ["unsupported"]),
        # The highest memory clock was not asked for by name: without a lock it is left to the driver.
        (dataclasses.replace(V100, memory_mhz=810), Wish("max"), ["-lgc 1530,1530"], []),
        (A100, Wish("locked", graphics_mhz=1411), [], ["out_of_range"]),
        (A100, Wish("values", memory_mhz=1216), [], ["out_of_range"]),
        (A100, Wish("values", graphics_mhz=1000), ["-lgc 1000,1000"], []),
        (A100, Wish("values", memory_mhz=1215), ["-lmc 1215,1215"], []),
        (V100, Wish("values", memory_mhz=877, method="lock"), [], []),
        (V100, Wish("values", memory_mhz=810, method="lock"), [], ["unsupported"]),
        (V100, Wish("values", memory_mhz=810), ["-ac 810,1290"], []),
        (P100, Wish("values", graphics_mhz=1000), ["-ac 715,1000"], []),
        (A100, Wish("default"), [], []),
        (dataclasses.replace(A100, applications=(1215, 900)), Wish("default"), ["-rac"], []),
        (dataclasses.replace(A100, max_graphics_mhz=None), Wish("max"), [], ["no_maximum"]),
        (dataclasses.replace(A100, persistence=False), Wish("values", graphics_mhz=900), ["-pm 1", "-lgc 900,900"], []),
        (
            dataclasses.replace(A100, persistence=False),
            Wish("values", graphics_mhz=900, persistence=False),
            ["-lgc 900,900"],
            [],
        ),
        (dataclasses.replace(A100, persistence=None), Wish("values", graphics_mhz=900), ["-lgc 900,900"], []),
    ],
)
def test_what_a_wish_means(gpu: Gpu, wish: Wish, calls: list[str], problems: list[str]) -> None:
    assert plan(gpu, wish) == (calls, problems)


def test_locks_of_which_nothing_is_known_are_reset_by_default_and_else_left_alone() -> None:
    assert plan(A100, Wish("default"), Record())[0] == ["-rgc", "-rmc"]
    assert plan(V100, Wish("default"), Record())[0] == ["-rgc"]
    assert plan(A100, Wish("values", graphics_mhz=900), Record())[0] == ["-lgc 900,900"]


def test_a_persistence_mode_that_the_gpu_does_not_tell_is_not_said_to_be_on() -> None:
    silent = dataclasses.replace(A100, persistence=None)
    now = clocks.current(silent, FRESH, SESSION)
    goal = clocks.target(silent, Wish("max"), now, FRESH)
    assert (now.show()["persistence"], goal.settings.show()["persistence"]) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("clock", "seen", "reasons", "contradicted"),
    [
        (1410, None, 0x0, False),
        (1395, None, 0x0, False),
        (210, None, 0x1, True),
        (210, None, 0x2, True),
        (1005, None, 0x4, False),
        (1005, None, 0x20, False),
        (1005, None, None, False),
        (1500, None, 0x4, True),
        (None, None, 0x0, False),
        # It never got further than this, so staying there proves nothing.
        (1320, 1320, 0x0, False),
        (210, 1320, 0x1, True),
    ],
)
def test_when_a_clock_speaks_against_a_lock(
    clock: int | None, seen: int | None, reasons: int | None, contradicted: bool
) -> None:
    gpu = dataclasses.replace(A100, graphics_mhz=clock, reasons=reasons)
    assert clocks.contradicts(gpu, (1410, 1410), seen) is contradicted


@pytest.mark.parametrize(
    ("lock", "seen", "clock", "contradicted"),
    [
        # A step of the clock of most GPUs, up and down.
        (1410, None, 1380, False),
        (1410, None, 1379, True),
        (1410, None, 1440, False),
        (1410, None, 1441, True),
        # Fast clocks have wider steps.
        (2500, None, 2450, False),
        (2500, None, 2449, True),
        (2500, None, 2550, False),
        (2500, None, 2551, True),
        # There is no such step: it settled beside its lock at once.
        (600, 690, 690, False),
        (600, 690, 721, True),
        (600, 510, 510, False),
        (600, 510, 479, True),
    ],
)
def test_a_lock_is_believed_within_a_step_of_the_clock(
    lock: int, seen: int | None, clock: int, contradicted: bool
) -> None:
    gpu = dataclasses.replace(A100, graphics_mhz=clock, reasons=0x0)
    assert clocks.contradicts(gpu, (lock, lock), seen) is contradicted


def test_a_gpu_that_had_no_lock_has_none_when_its_last_client_is_gone() -> None:
    gpu = dataclasses.replace(A100, persistence=False)
    assert clocks.current(gpu, FRESH, SESSION).unknown == frozenset()
    assert plan(gpu, Wish("default"))[0] == []


def test_a_memory_clock_is_locked_where_ampere_s_driver_can() -> None:
    t4 = dataclasses.replace(A100, name="Tesla T4", compute_capability=7.5)
    assert plan(t4, Wish("locked", graphics_mhz=900)) == (["-lgc 900,900"], [])
    # Where the driver does not tell what the GPU can do, it is tried.
    untold = dataclasses.replace(A100, compute_capability=None)
    assert plan(untold, Wish("locked", graphics_mhz=900)) == (["-lgc 900,900", "-lmc 1215,1215"], [])


def test_the_application_clock_that_nobody_asked_for_is_the_default_or_stays() -> None:
    other = dataclasses.replace(V100, applications=(810, 1000))
    assert plan(other, Wish("values", memory_mhz=715))[0] == ["-ac 715,1290"]
    without = dataclasses.replace(other, default_applications=None)
    assert plan(without, Wish("values", memory_mhz=715))[0] == ["-ac 715,1000"]


def locked(pair: Pair) -> Record:
    return dataclasses.replace(FRESH, graphics_lock=pair, memory_lock=(1215, 1215))


def test_a_memory_is_believed_only_within_one_life_of_the_driver() -> None:
    gpu = dataclasses.replace(A100, graphics_mhz=1410)
    record = locked((1410, 1410))
    assert clocks.current(gpu, record, SESSION).graphics_lock == (1410, 1410)
    for found in (
        clocks.current(gpu, record, "another boot"),
        clocks.current(dataclasses.replace(gpu, persistence=False), record, SESSION),
        clocks.current(dataclasses.replace(gpu, graphics_mhz=210), record, SESSION),
    ):
        assert found.graphics_lock is None
        assert found.unknown == {"graphics_lock", "memory_lock"}


def test_a_refusal_counts_for_the_driver_that_spoke_it() -> None:
    record = dataclasses.replace(FRESH, refused={"graphics_lock": "550.163.01", "memory_lock": "535.1"})
    assert not clocks.can(A100, "graphics_lock", record)
    assert clocks.can(A100, "memory_lock", record)


# A GPU that does as it is told

pairs = st.tuples(st.sampled_from([405, 877, 1215]), st.sampled_from([210, 600, 1095, 1410]))
ranges = st.tuples(st.integers(14, 40), st.integers(40, 94)).map(lambda pair: (15 * pair[0], 15 * pair[1]))
locks = st.none() | ranges
settings = st.builds(Settings, st.booleans(), st.none() | pairs, locks, locks)
wishes = st.one_of(
    st.builds(Wish, st.sampled_from(["max", "default"]), method=st.sampled_from(["auto", "lock", "applications"])),
    st.builds(
        Wish,
        st.sampled_from(["locked", "values"]),
        graphics_mhz=st.sampled_from([600, 1005, 1410]),
        memory_mhz=st.sampled_from([None, 877, 1215]),
        persistence=st.booleans(),
    ),
)
models = st.sampled_from([A100, V100, P100, H200])


@dataclasses.dataclass
class Machine:
    """The truth of one GPU, and what is remembered of it. The clock follows the lock."""

    model: Gpu
    truth: Settings
    record: Record

    def gpu(self) -> Gpu:
        pair = self.truth.applications or self.model.default_applications
        lock = self.truth.graphics_lock
        return dataclasses.replace(
            self.model,
            persistence=self.truth.persistence,
            applications=pair if self.model.applications else None,
            graphics_mhz=lock[0] if lock else 210,
        )

    def go(self, wanted: Settings | None, record: Record) -> None:
        gpu = self.gpu()
        now = clocks.current(gpu, record, SESSION)
        steps = clocks.steps(gpu, record, now, wanted) if wanted else []
        record = clocks.touch(record, [step.setting for step in steps])
        for step in steps:
            self.truth = dataclasses.replace(self.truth, **{step.setting: step.value})  # type: ignore[arg-type]
            if step.setting in model.LOCKS:
                sessions = {**record.sessions, step.setting: SESSION}
                record = dataclasses.replace(record, sessions=sessions, **{step.setting: step.value})  # type: ignore[arg-type]
        self.record = record

    def set(self, wish: Wish, layer: str, holder: str = "holder") -> bool:
        """Whether the wish can be fulfilled; if not, nothing is done."""
        gpu = self.gpu()
        now = clocks.current(gpu, self.record, SESSION)
        goal = clocks.target(gpu, wish, clocks.base_of(self.record, layer, now), self.record)
        if all(problem.kind == "unsupported" for problem in goal.problems):
            record, wanted = clocks.set_layer(self.record, layer, holder, SESSION, now, goal.settings)
            self.go(wanted, record)
            return True
        return False

    def restore(self, layer: str) -> None:
        record, wanted = clocks.drop_layer(self.record, layer, None)
        self.go(wanted, record)


def machine(model: Gpu, prior: Settings) -> Machine:
    """A GPU that was set up before, in ways that it supports. The persistence that keeps locks is on where it must be."""
    possible = dataclasses.replace(
        prior,
        applications=prior.applications if model.applications else None,
        graphics_lock=prior.graphics_lock if clocks.can(model, "graphics_lock", Record()) else None,
        memory_lock=prior.memory_lock if clocks.can(model, "memory_lock", Record()) else None,
    )
    if possible.applications == model.default_applications:
        possible = dataclasses.replace(possible, applications=None)
    if possible.graphics_lock or possible.memory_lock:
        possible = dataclasses.replace(possible, persistence=True)
    # A lock that is known was set by us, in a layer that is not ours to undo here.
    record = dataclasses.replace(FRESH, graphics_lock=possible.graphics_lock, memory_lock=possible.memory_lock)
    return Machine(model, possible, record)


@pytest.mark.slow
@given(models, settings, st.lists(wishes, min_size=1, max_size=4), st.sampled_from(model.LAYERS))
def test_set_then_restore_is_identity(model: Gpu, prior: Settings, asked: list[Wish], layer: str) -> None:
    gpu = machine(model, prior)
    before = gpu.truth
    for wish in asked:
        gpu.set(wish, layer)
    gpu.restore(layer)
    assert gpu.truth == before
    assert gpu.record.layers == {}


@given(models, settings, wishes, wishes)
def test_a_second_time_nothing_is_left_to_do(model: Gpu, prior: Settings, first: Wish, wish: Wish) -> None:
    gpu = machine(model, prior)
    gpu.set(first, "node")
    gpu.set(wish, "node")
    settled, record = gpu.truth, gpu.record
    gpu.set(wish, "node")
    assert (gpu.truth, gpu.record.layers) == (settled, record.layers)


@pytest.mark.slow
@given(models, settings, wishes, st.lists(st.tuples(st.sampled_from(["node", "job", "end"]), wishes), max_size=6))
def test_however_jobs_and_policies_interleave_the_end_is_the_beginning(
    model: Gpu, prior: Settings, last: Wish, events: list[tuple[str, Wish]]
) -> None:
    gpu = machine(model, prior)
    before = gpu.truth
    for what, wish in events:
        if what == "end":
            gpu.restore("job")
        else:
            gpu.set(wish, what)
    # A lock without persistence may have gone with the job's last client; only a policy that is set anew is sure to be there.
    assume(gpu.set(last, "node"))
    gpu.restore("job")
    # What the node's policy means does not depend on how it was reached.
    straight = machine(model, prior)
    for what, wish in [*(event for event in events if event[0] == "node"), ("node", last)]:
        straight.set(wish, what)
    assert gpu.truth == straight.truth
    gpu.restore("node")
    assert gpu.truth == before


@pytest.mark.slow
@given(models, settings, wishes, st.sampled_from(["max", "default"]))
def test_a_node_restored_during_a_job_is_restored_when_the_job_ends(
    model: Gpu, prior: Settings, policy: Wish, job: str
) -> None:
    gpu = machine(model, prior)
    before = gpu.truth
    gpu.set(policy, "node")
    gpu.set(Wish(job), "job")
    during = gpu.truth
    gpu.restore("node")
    assert gpu.truth == during
    gpu.restore("job")
    assert gpu.truth == before


@pytest.mark.parametrize("layers", [("node",), ("job",), ("job", "node"), ("node", "job")])
def test_a_lock_that_nobody_knew_goes_with_the_last_layer_that_set_one(layers: tuple[str, ...]) -> None:
    gpu = Machine(A100, Settings(persistence=True), Record())
    for layer in layers:
        gpu.set(Wish("values", graphics_mhz=900), layer)
    assert gpu.truth.graphics_lock == (900, 900)
    for layer in sorted(layers):  # the job first
        gpu.restore(layer)
    assert gpu.truth == Settings(persistence=True)
    # Nobody touched the memory clock: it is as unknown as it was.
    assert clocks.current(gpu.gpu(), gpu.record, SESSION).unknown == {"memory_lock"}


def test_a_wish_builds_upon_what_was_before_its_layer_else_before_the_one_above_else_upon_what_is() -> None:
    now, first, second = (Settings(graphics_lock=(mhz, mhz)) for mhz in (300, 600, 900))
    node, job = Layer(prior=first, session=SESSION), Layer(prior=second, session=SESSION)
    assert clocks.base_of(Record(), "node", now) == now
    assert clocks.base_of(Record(layers={"node": node}), "node", now) == first
    assert clocks.base_of(Record(layers={"node": node, "job": job}), "node", now) == first
    assert clocks.base_of(Record(layers={"node": node, "job": job}), "job", now) == second
    assert clocks.base_of(Record(layers={"job": job}), "node", now) == second
    assert clocks.base_of(Record(layers={"node": node}), "job", now) == now


@pytest.mark.parametrize(("persistence", "shown"), [(True, "on"), (False, "off"), (None, "unknown")])
def test_persistence_mode_is_shown_as_it_is(persistence: bool | None, shown: str) -> None:
    assert Settings(persistence=persistence).show()["persistence"] == shown


def test_the_last_job_on_a_gpu_gives_it_back() -> None:
    gpu = machine(A100, Settings(persistence=True))
    gpu.set(Wish("max"), "job", "1")
    gpu.set(Wish("max"), "job", "2")
    for holder, left in (("1", ("2",)), ("3", ("2",))):
        record, wanted = clocks.drop_layer(gpu.record, "job", holder)
        assert (record.layers["job"].holders, wanted) == (left, None)
        gpu.record = record
    record, wanted = clocks.drop_layer(gpu.record, "job", "2")
    assert record.layers == {}
    assert wanted == Settings(persistence=True)


def test_a_new_life_of_the_driver_ends_jobs_and_keeps_what_the_node_was_before_its_policy() -> None:
    before = Settings(persistence=True, applications=(1215, 600))
    gpu = machine(A100, before)
    gpu.set(Wish("values", graphics_mhz=600), "node")
    gpu.set(Wish("max"), "job")
    assert clocks.forget_dead_jobs(gpu.record, SESSION) == gpu.record
    record = clocks.forget_dead_jobs(gpu.record, "another boot")
    assert list(record.layers) == ["node"]
    record, wanted = clocks.drop_layer(record, "node", None)
    assert (record.layers, wanted) == ({}, before)


def test_what_a_job_could_not_give_back_is_given_back_later() -> None:
    gpu = machine(A100, Settings(persistence=True))
    gpu.set(Wish("max"), "job", "1")
    assert clocks.settle(gpu.record, None) == (gpu.record, None)
    # The GPU did not answer when the job ended.
    left = clocks.leave(gpu.record, "1")
    assert left.layers["job"].holders == ()
    record, wanted = clocks.settle(left, None)
    assert (record.layers, wanted) == ({}, Settings(persistence=True))
    # It answered, and refused: the job holds nothing any more, but what was there before is still known.
    assert clocks.owed(gpu.record.layers, {}) == left.layers
    # Another job goes on: nothing is owed yet.
    assert clocks.owed(gpu.record.layers, gpu.record.layers) == gpu.record.layers


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish("values", graphics_mhz=0), "`graphics_mhz` is 0, which is no clock"),
        (Wish("values", graphics_mhz=900, memory_mhz=-5), "`memory_mhz` is -5, which is no clock"),
        (Wish("max", memory_mhz=-1), "`memory_mhz` is -1, which is no clock"),
        (Wish("values"), "names no value"),
    ],
)
def test_what_no_gpu_can_be_asked_for_is_refused(wish: Wish, words: str) -> None:
    with pytest.raises(ClusterError, match=words) as caught:
        clocks.check_wish(wish)
    assert caught.value.kind == "bad_value"


def test_what_a_gpu_can_be_asked_for_is_not_refused() -> None:
    for wish in (Wish("values", graphics_mhz=1), Wish("values", memory_mhz=1), Wish("max"), Wish("default")):
        clocks.check_wish(wish)


def test_a_clock_that_no_gpu_can_reach_changes_nothing_and_a_lock_that_it_lacks_keeps_no_other_from_it() -> None:
    now = clocks.current(A100, FRESH, SESSION)
    too_high = clocks.decide_wish(A100, FRESH, now, SESSION, Wish("locked", graphics_mhz=1411), "node", "node")
    assert (too_high.record, too_high.wanted) == (FRESH, None)
    assert [problem.kind for problem in too_high.problems] == ["out_of_range"]
    now = clocks.current(V100, FRESH, SESSION)
    wish = Wish("max", memory_mhz=810, method="lock")
    half = clocks.decide_wish(V100, FRESH, now, SESSION, wish, "node", "node")
    assert half.wanted is not None
    assert (half.wanted.graphics_lock, half.wanted.memory_lock) == ((1530, 1530), None)
    assert [problem.kind for problem in half.problems] == ["unsupported"]
    assert list(half.record.layers) == ["node"]


def test_what_the_node_asks_for_during_a_job_takes_effect_when_it_ends() -> None:
    gpu = machine(A100, Settings(persistence=True))
    gpu.set(Wish("max"), "job", "1")
    now = clocks.current(gpu.gpu(), gpu.record, SESSION)
    decision = clocks.decide_wish(gpu.gpu(), gpu.record, now, SESSION, Wish("values", graphics_mhz=600), "node", "node")
    assert decision.wanted is None
    assert decision.notes == ("the job holds the clocks: this takes effect when it ends",)
    after = clocks.decide_restore(decision.record, "job", "1")
    assert after.wanted is not None
    assert after.wanted.graphics_lock == (600, 600)


@pytest.mark.parametrize("layers", [("node",), ("job",), ("node", "job"), ("job", "node")])
def test_the_end_of_all_layers_gives_back_what_was_before_the_first(layers: tuple[str, ...]) -> None:
    before = Settings(persistence=True, applications=(1215, 600))
    gpu = machine(A100, before)
    for layer in layers:
        gpu.set(Wish("max"), layer)
    decision = clocks.decide_restore(gpu.record, "all", None)
    assert (decision.record.layers, decision.wanted) == ({}, before)
    assert clocks.decide_restore(FRESH, "all", None).wanted is None


records = st.builds(
    Record,
    sessions=st.dictionaries(st.sampled_from(model.LOCKS), st.text(max_size=8)),
    graphics_lock=locks,
    memory_lock=locks,
    seen_mhz=st.none() | st.integers(0, 3000),
    refused=st.dictionaries(st.sampled_from([*model.LOCKS, "applications"]), st.text(max_size=8)),
    layers=st.dictionaries(
        st.sampled_from(model.LAYERS),
        st.builds(
            Layer,
            prior=st.builds(
                Settings,
                st.none() | st.booleans(),
                st.none() | pairs,
                locks,
                locks,
                st.frozensets(st.sampled_from(model.LOCKS)),
            ),
            session=st.text(max_size=8),
            holders=st.lists(st.text(max_size=8), max_size=3).map(tuple),
            touched=st.frozensets(st.sampled_from(model.LOCKS)),
        ),
    ),
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=12), records, max_size=3))
def test_what_is_saved_is_what_is_read(saved: dict[str, Record]) -> None:
    assert store.parse(store.dump(saved), Path("state.json")) == saved


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2, "gpus": {}}', '{"version": 1, "gpus": {"GPU-1": {}}}', "null"]
)
def test_a_file_that_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        store.parse(text, Path("/var/lib/gpu_clocks/state.json"))
    assert caught.value.kind == "state_unreadable"
