# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""One rank of a staging run: claim a batch, copy it, claim the next, help the others when the own ones are done.

How a batch is copied is the caller's business (``CopyBatch``); this file decides which batch is next and when to stop.
"""

from __future__ import annotations

import random
import threading
import time
import typing as t
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import BatchState, Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.fence import Standing, superseded
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.looks import Looks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import (
    FATAL_KINDS,
    RANK_KINDS,
    TROUBLE_KINDS,
    BatchOutcome,
    CopyBatch,
    Hooks,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.pace import Pace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import BatchInfo, RankProgress, Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.slow_owners import SlowOwners
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.trouble import Tolerance, Trouble
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

_BATCHES_IN_FLIGHT = 3
_CLAIMS_LOOKED_AT = 8
#: A shared file system that loses a server blocks or fails for a while before it goes on without it.
_TROUBLE_S = 60.0
#: A landing disk that is gone, or an AzCopy that always crashes, would use up the attempts of every batch: the rank ends when more
#: fail than are in flight, which all fail when the shared file system does for a moment, and when that has lasted for a while.
_FORGIVEN_BATCHES = _BATCHES_IN_FLIGHT


class Worker:
    """Runs one rank until no batch is left to claim."""

    def __init__(
        self,
        run: Run,
        rank: int,
        host: str,
        claims: Claims,
        copy: CopyBatch,
        *,
        heartbeat_s: float = 2.0,
        poll_s: float = 1.0,
        deadline: float | None = None,
    ) -> None:
        self._run = run
        self._claims = claims
        self._copy = copy
        self._heartbeat_s = heartbeat_s
        self._poll_s = poll_s
        self._deadline = deadline
        self._batches = {batch.id: batch for batch in run.batches}
        self._own = [batch.id for batch in run.batches if batch.rank == rank]
        self._looks = Looks(len(run.shares), poll_s)
        self._slow_owners = SlowOwners(claims, {batch.id: batch.bytes for batch in run.batches}, len(run.shares))
        self._all_finished = False
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._superseded = Standing(run).is_lost
        self._place = Place(run)
        self._trouble = Trouble(_FORGIVEN_BATCHES, _TROUBLE_S, poll_s)
        self._lock = threading.Lock()
        self._network = threading.Semaphore(1)
        self._in_flight: dict[Future[BatchOutcome], str] = {}
        self._copied_bytes: dict[str, int] = {}
        self._lost: set[str] = set()
        self._pace = Pace()
        self._began = time.monotonic()
        self._tolerance = Tolerance(_TROUBLE_S)
        self.progress = RankProgress(rank=rank, host=host)

    def run(self) -> RankProgress:
        """Work until the run is over for this rank; the progress says how it ended."""
        beat = threading.Thread(target=self._beat, daemon=True)
        beat.start()
        try:
            with ThreadPoolExecutor(max_workers=_BATCHES_IN_FLIGHT) as pool:
                self._work(pool)
        finally:
            self._stop.set()
            self._ended.set()
            beat.join()
            self._claims.release_all("worker ended")
            self._show("finished")
            self._tolerate(self._report)
        return self.progress

    def stop(self, why: str) -> None:
        """End soon: what is being copied is given back."""
        self._give_up(ClusterError("cancelled", why, "Run again to copy the rest."))

    def _tolerate(self, act: t.Callable[..., t.Any], *values: t.Any, otherwise: t.Any = None) -> t.Any:
        """Do something on the shared file system; a failure is forgiven until it has lasted for a while."""
        try:
            result = act(*values)
        except OSError as error:
            if self._tolerance.failed(act, time.monotonic()):
                self._give_up(
                    ClusterError("io", f"The staging state cannot be used: {error}.", "Check the shared file system.")
                )
            return otherwise
        self._tolerance.went_well(act)
        return result

    # -- choosing -----------------------------------------------------------------------------------------------

    def _work(self, pool: ThreadPoolExecutor) -> None:
        while not self._stop.is_set():
            self._tolerate(self._collect)
            if not self._network.acquire(timeout=self._poll_s):
                continue
            if self._stop.is_set():
                break
            picked = self._look(time.monotonic())
            if picked is not None:
                self._show("working")
                self._in_flight[pool.submit(self._copy_one, self._batches[picked[0]], picked[1])] = picked[0]
                continue
            self._network.release()
            if not self._in_flight and self._tolerate(self._over, otherwise=False):
                return
            pause_s = min(self._looks.wait_s(time.monotonic()) or self._poll_s, self._poll_s)
            if self._in_flight:
                self._show("working")
                wait(self._in_flight, pause_s, FIRST_COMPLETED)
            else:
                self._show("waiting")
                self._stop.wait(pause_s)
        while self._in_flight:
            self._tolerate(self._collect)
            time.sleep(0.05)

    def _look(self, now: float) -> tuple[str, int] | None:
        """What to copy next, where it is time to look."""
        if self._trouble.rest_s(now) or self._looks.wait_s(now):
            return None
        picked: tuple[str, int] | None = self._tolerate(self._pick)
        if picked is None:
            self._looks.missed(now)
        else:
            self._looks.found()
        return picked

    def _pick(self) -> tuple[str, int] | None:
        """The next batch and its attempt, already claimed: own ones first, then those of the rank that has most left, then the stale."""
        while self._own:
            batch = self._own.pop(0)
            if self._claims.claim(batch, 0):
                return batch, 0
        states = self._claims.survey(self._batches)
        left: dict[int, list[str]] = {}
        for batch, state in states.items():
            if self._claims.claimable(state):
                left.setdefault(self._batches[batch].rank, []).append(batch)
        wanted = [batch for rank in sorted(left, key=lambda rank: -len(left[rank])) for batch in reversed(left[rank])]
        for number, batch in enumerate(wanted):
            attempt = states[batch].attempt + 1
            if self._claims.claim(batch, attempt):
                self._count_help(batch, attempt)
                return batch, attempt
            if not number:
                # Who was quicker goes through the same list, as all others do: in its order each meets all before it at each batch.
                wanted[1:] = random.sample(wanted[1:], len(wanted) - 1)
        picked = self._pick_from_others(states)
        if picked is None and all(map(self._claims.finished, states.values())):
            self._all_finished = True
            self._claims.end()
        return picked

    def _pick_from_others(self, states: dict[str, BatchState]) -> tuple[str, int] | None:
        """Take over from an owner that is silent, or much slower than we and others.

        Looks at a few claims only, from a start of our own: many idle ranks must not read all claims all the time.
        """
        mine = set(self._in_flight.values())
        claimed = [batch for batch, state in states.items() if state.claimed and batch not in mine]
        start = self.progress.rank % len(claimed) if claimed else 0
        for batch in (claimed[start:] + claimed[:start])[:_CLAIMS_LOOKED_AT]:
            attempt = states[batch].attempt
            reason = "no sign of life" if self._claims.is_stale(batch, attempt) else self._too_slow(batch, states)
            if reason and self._claims.take_over(batch, attempt, reason):
                self._count_help(batch, attempt + 1)
                return batch, attempt + 1
        return None

    def _too_slow(self, batch: str, states: dict[str, BatchState]) -> str:
        """Why an idle rank may copy what another copies, by what it would need itself."""
        if not self._pace.known or self._in_flight:
            return ""
        own_s = self._pace.needs_s(self._batches[batch].bytes)
        return "slow" if self._slow_owners.much_slower(batch, states, own_s) else ""

    def _count_help(self, batch: str, attempt: int) -> None:
        self.progress.stolen_batches += self._batches[batch].rank != self.progress.rank
        self.progress.retried_batches += attempt > 0

    def _over(self) -> bool:
        """Whether nobody will work on any batch again: seen here, or by the first who saw it."""
        return self._all_finished or self._claims.ended()

    # -- copying ------------------------------------------------------------------------------------------------

    def _copy_one(self, batch: BatchInfo, attempt: int) -> BatchOutcome:
        began = time.monotonic()
        released = threading.Event()
        self._copied_bytes[batch.id] = 0

        def landed() -> None:
            if not released.is_set():
                released.set()
                self._network.release()
                self._pace.learn(self._copied_bytes[batch.id], time.monotonic() - began)

        def on_file(raw_bytes: int, final_bytes: int) -> None:
            self._count_file(batch.id, raw_bytes, final_bytes)
            copied, spent_s = self._copied_bytes[batch.id], time.monotonic() - began
            if copied == raw_bytes:
                self._pace.began(spent_s)
            if self._pace.nearly_landed(batch.bytes, copied, spent_s):
                landed()

        def should_stop() -> bool:
            return self._stop.is_set() or batch.id in self._lost

        try:
            outcome = self._outcome(batch, attempt, Hooks(on_file, landed, should_stop))
            if outcome.error is not None:
                outcome = replace(outcome, error=self._place.gone() or outcome.error)
            self._weigh(batch, outcome)
            return outcome
        finally:
            landed()

    def _outcome(self, batch: BatchInfo, attempt: int, hooks: Hooks) -> BatchOutcome:
        try:
            return self._copy(batch, attempt, hooks)
        except ClusterError as error:
            return BatchOutcome(error=error)
        except OSError as error:
            return BatchOutcome(
                error=ClusterError("io", f"{error}.", "Check the shared file system and the landing disk.")
            )

    def _weigh(self, batch: BatchInfo, outcome: BatchOutcome) -> None:
        """Before the network is free for the next batch: whether this node is in trouble, and for too long."""
        with self._lock:
            if outcome.error is None:
                self._trouble.over()
                return
            troubled = outcome.error.kind in TROUBLE_KINDS and batch.id not in self._lost
            lasts = troubled and self._trouble.failed(time.monotonic())
        if lasts:
            self._give_up(outcome.error)

    def _count_file(self, batch: str, raw_bytes: int, final_bytes: int) -> None:
        with self._lock:
            self._copied_bytes[batch] += raw_bytes
            self.progress.files += 1
            self.progress.raw_bytes += raw_bytes
            self.progress.bytes += final_bytes

    def _collect(self) -> None:
        """Take in the batches that ended."""
        for future in [future for future in self._in_flight if future.done()]:
            batch, outcome = self._in_flight.pop(future), future.result()
            self._looks.found()
            if batch in self._lost:
                self._claims.forget(batch)
                continue
            if outcome.error is None:
                self._claims.finish(batch, {"failed": outcome.failed})
                self.progress.batches += 1
                self.progress.add_failed(outcome.failed)
                continue
            if outcome.error.kind in FATAL_KINDS | RANK_KINDS:
                self._give_up(outcome.error)
            elif not self._stop.is_set():
                self.progress.error = _describe(outcome.error)
            # The error is kept before anything is written, which may fail for the same reason.
            self._tolerate(self._claims.release, batch, outcome.error.kind)

    def _show(self, state: t.Literal["working", "waiting", "finished"]) -> None:
        if self.progress.state != "failed":
            self.progress.state = state

    def _give_up(self, error: ClusterError) -> None:
        if self.progress.state == "failed":
            return  # what came first is the reason
        self.progress.state = "failed"
        self.progress.error = _describe(error)
        self._stop.set()

    # -- signs of life ------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while True:
            self._tolerate(self._sign)
            self._tolerate(self._report)
            gone = self._place.gone() or (superseded() if self._tolerate(self._superseded, otherwise=False) else None)
            if gone is not None:
                self._give_up(gone)
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._give_up(
                    ClusterError(
                        "timeout", "The time for staging is over.", "Run again to copy the rest, or raise the timeout."
                    )
                )
            if self._stop.wait(self._heartbeat_s):
                break
        while not self._ended.wait(self._heartbeat_s):
            self._tolerate(self._report)

    def _sign(self) -> None:
        """Show that we are alive and how far each batch is; drop those that another rank has finished."""
        mine = list(self._in_flight.values())
        self._claims.heartbeat({batch: self._fraction(batch) for batch in mine})
        self._lost.update(batch for batch in mine if self._claims.is_done(batch))

    def _fraction(self, batch: str) -> float:
        return self._copied_bytes.get(batch, 0) / (self._batches[batch].bytes or 1)

    def _report(self) -> None:
        self.progress.beat += 1
        self.progress.seconds = round(time.monotonic() - self._began, 3)
        # The end is not shown to those that wait for it while a file may still get its final name.
        winds_down = self.progress.state == "failed" and not self._ended.is_set()
        with self._lock:
            (replace(self.progress, state="working") if winds_down else self.progress).write(self._run)


def _describe(error: ClusterError) -> dict[str, str]:
    return {"kind": error.kind, "message": error.message, "remedy": error.remedy}


__all__ = ["Worker"]
