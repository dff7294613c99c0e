# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Decide which clock settings a GPU should have and which nvidia-smi calls lead there. No I/O.

Application clocks and persistence mode can be read back. Locks cannot: no query of any driver up to R610 tells them, and
``clocks.max.*`` stays what the hardware can do. What is known of a lock is therefore a record of what was set, and it is
believed only as long as nothing speaks against it: the same life of the driver, persistence mode still on, and a graphics
clock that the lock explains.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import (
    LOCKS,
    Decision,
    Gpu,
    Layer,
    Pair,
    Problem,
    Record,
    Settings,
    Step,
    Target,
    Wish,
)

# Compute capability from which NVML locks the clock: Volta for graphics, Ampere for memory. Source: NVML API reference,
# nvmlDeviceSetGpuLockedClocks and nvmlDeviceSetMemoryLockedClocks.
_LOCKS_SINCE = {"graphics_lock": 7.0, "memory_lock": 8.0}
IDLE = 0x1
# Bits of clocks_event_reasons.active that leave the clock where a lock puts it: GPU idle, applications clocks setting.
# Every other one (power cap, slowdown, sync boost, display) explains a clock below the lock. Source: nvml.h.
_NOT_LIMITING = IDLE | 0x2
# A lock is rounded to a step of the clock (15 MHz on most GPUs; 2190 was seen to give 2184).
_SLACK_MHZ = 30
_SLACK_SHARE = 0.02


def can(gpu: Gpu, setting: str, record: Record) -> bool:
    """Whether the GPU has this setting, as far as is known before it is tried."""
    if record.refused.get(setting) == gpu.driver:
        return False
    if setting == "applications":
        return gpu.applications is not None
    return gpu.compute_capability is None or gpu.compute_capability >= _LOCKS_SINCE[setting]


def _canonical(pair: Pair | None, gpu: Gpu) -> Pair | None:
    return None if pair == gpu.default_applications else pair


def contradicts(gpu: Gpu, lock: Pair, seen_mhz: int | None) -> bool:
    """Whether the graphics clock cannot be what this lock makes of it."""
    clock = gpu.graphics_mhz
    if clock is None:
        return False
    # A GPU that settled outside its lock at once (no such step, a lower boost limit) proves nothing by staying there.
    low, high = (lock[0], lock[1]) if seen_mhz is None else (min(lock[0], seen_mhz), max(lock[1], seen_mhz))
    slack = max(_SLACK_MHZ, round(_SLACK_SHARE * high))
    if clock > high + slack:
        return True
    limited = gpu.reasons is None or bool(gpu.reasons & ~_NOT_LIMITING)
    return clock < low - slack and not limited


def current(gpu: Gpu, record: Record, session: str) -> Settings:
    """What is in effect: read where that is possible, remembered where the memory can be believed."""
    unknown = {name for name in LOCKS if record.sessions.get(name) != session}
    lock = record.graphics_lock if "graphics_lock" not in unknown else None
    if lock and contradicts(gpu, lock, record.seen_mhz):
        unknown = set(LOCKS)
    elif gpu.persistence is False:
        # The last client may have taken the locks with it. No lock stays no lock.
        unknown |= {name for name in LOCKS if getattr(record, name)}
    return Settings(
        persistence=gpu.persistence,
        applications=_canonical(gpu.applications, gpu),
        graphics_lock=None if "graphics_lock" in unknown else record.graphics_lock,
        memory_lock=None if "memory_lock" in unknown else record.memory_lock,
        unknown=frozenset(name for name in unknown if can(gpu, name, record)),
    )


def _out_of_range(gpu: Gpu, name: str, wanted: int | None, limit: int | None) -> Problem | None:
    if wanted is not None and limit is not None and wanted > limit:
        message = f"{name} clock {wanted} MHz is above what the GPU says it can do, {limit} MHz"
        return Problem(f"{name}_lock", "out_of_range", message)
    return None


def _application_pair(gpu: Gpu, graphics: int | None, memory: int | None) -> Pair:
    """-ac wants both; what was not asked for stays at the default, or at what it is."""
    base = t.cast("Pair", gpu.default_applications or gpu.applications)  # a GPU that can has some
    return (memory or base[0], graphics or base[1])


def target(gpu: Gpu, wish: Wish, base: Settings, record: Record) -> Target:
    """The settings that fulfill the wish on this GPU; what it does not speak of stays as in ``base``."""
    if wish.policy == "default":
        return Target(dataclasses.replace(base, applications=None, **_locks(gpu, record, None, None)))
    to_maximum = wish.policy in ("max", "locked")
    graphics = wish.graphics_mhz or (gpu.max_graphics_mhz if to_maximum else None)
    memory = wish.memory_mhz or (gpu.max_memory_mhz if to_maximum else None)
    if to_maximum and graphics is None:
        return Target(base, (Problem("graphics_lock", "no_maximum", "the GPU does not tell its highest clock"),))
    problems = [
        found
        for found in (
            _out_of_range(gpu, "graphics", graphics, gpu.max_graphics_mhz),
            _out_of_range(gpu, "memory", memory, gpu.max_memory_mhz),
        )
        if found
    ]
    if problems:
        return Target(base, tuple(problems))
    if wish.persistence and gpu.persistence is not None:
        base = dataclasses.replace(base, persistence=True)
    method = "lock" if wish.policy == "locked" else wish.method
    lock_graphics = method != "applications" and can(gpu, "graphics_lock", record)
    lock_memory = method != "applications" and can(gpu, "memory_lock", record)
    applications = method != "lock" and can(gpu, "applications", record)
    if applications and ((graphics and not lock_graphics) or (memory and not graphics and not lock_memory)):
        pair = _canonical(_application_pair(gpu, graphics, memory), gpu)
        return Target(dataclasses.replace(base, applications=pair, **_locks(gpu, record, None, None)))
    return _locked(gpu, wish, base, record, (graphics, memory), (lock_graphics, lock_memory))


def _locked(
    gpu: Gpu, wish: Wish, base: Settings, record: Record, clocks: tuple[int | None, int | None], able: tuple[bool, bool]
) -> Target:
    """The settings that lock what can be locked."""
    problems: list[Problem] = []
    notes: list[str] = []
    set_now: dict[str, t.Any] = {}
    deprecated = " and this driver has no application clocks any more" if gpu.applications_deprecated else ""
    for name, clock, possible, now in zip(LOCKS, clocks, able, (gpu.graphics_mhz, gpu.memory_mhz)):
        if clock is None:
            continue
        what = name.partition("_")[0]
        if possible:
            set_now[name] = (clock, clock)
        elif name == "memory_lock" and now == clock:
            notes.append(f"the memory clock cannot be locked here; it runs at the wanted {clock} MHz already")
        elif name == "memory_lock" and wish.memory_mhz is None:
            notes.append(f"the memory clock cannot be locked here; it is left to the driver, up to {clock} MHz")
        else:
            problems.append(Problem(name, "unsupported", f"the {what} clock of this GPU cannot be locked{deprecated}"))
    wanted = dataclasses.replace(base, **set_now, unknown=base.unknown - frozenset(set_now))
    return Target(wanted, tuple(problems), tuple(notes))


def _locks(gpu: Gpu, record: Record, graphics: Pair | None, memory: Pair | None) -> dict[str, t.Any]:
    return {"graphics_lock": graphics, "memory_lock": memory, "unknown": frozenset()}


def steps(gpu: Gpu, record: Record, now: Settings, wanted: Settings) -> list[Step]:
    """The calls that lead from here to there, in order: settings last as long as persistence mode is on."""
    found = []
    if wanted.persistence and now.persistence is False:
        found.append(Step("persistence", ("-pm", "1"), True))
    for name, set_to, reset in (("graphics_lock", "-lgc", "-rgc"), ("memory_lock", "-lmc", "-rmc")):
        value = getattr(wanted, name)
        same = value == getattr(now, name) and name not in now.unknown
        if same or name in wanted.unknown or not can(gpu, name, record):
            continue
        arguments = (set_to, f"{value[0]},{value[1]}") if value else (reset,)
        found.append(Step(name, arguments, value))
    if wanted.applications != now.applications and can(gpu, "applications", record):
        pair = wanted.applications
        arguments = ("-ac", f"{pair[0]},{pair[1]}") if pair else ("-rac",)
        found.append(Step("applications", arguments, pair))
    if wanted.persistence is False and now.persistence:
        found.append(Step("persistence", ("-pm", "0"), False))
    return found


def forget_dead_jobs(record: Record, session: str) -> Record:
    """No job outlives the driver: what one left open in an earlier session is not there any more."""
    alive = {name: layer for name, layer in record.layers.items() if name == "node" or layer.session == session}
    return record if len(alive) == len(record.layers) else dataclasses.replace(record, layers=alive)


def base_of(record: Record, layer: str, now: Settings) -> Settings:
    """What a wish at this layer builds upon: what was there before the layer, not what an earlier wish made of it."""
    below = record.layers.get(layer) or record.layers.get(record.above(layer) or "")
    return _prior(below) if below else now


def _prior(layer: Layer) -> Settings:
    """What was there before; a lock that was unknown and has been set since is now known to go."""
    return dataclasses.replace(layer.prior, unknown=layer.prior.unknown - layer.touched)


def set_layer(
    record: Record, layer: str, holder: str, session: str, now: Settings, wanted: Settings
) -> tuple[Record, Settings | None]:
    """Remember what was there, once, and say what is to be applied: nothing while a layer above holds the clocks."""
    layers = dict(record.layers)
    above = record.above(layer)
    own = layers.get(layer)
    if own is None and above:
        own = Layer(prior=layers[above].prior, session=session, touched=layers[above].touched)
    own = own or Layer(prior=now, session=session)
    if holder not in own.holders:
        own = dataclasses.replace(own, holders=(*own.holders, holder))
    layers[layer] = own
    if above:
        # When the one above goes, it gives way to this.
        layers[above] = dataclasses.replace(layers[above], prior=wanted)
    return dataclasses.replace(record, layers=layers), None if above else wanted


def drop_layer(record: Record, layer: str, holder: str | None) -> tuple[Record, Settings | None]:
    """Give back what was there before the layer, once its last holder goes. ``holder`` None: whoever holds it."""
    own = record.layers.get(layer)
    if own is None:
        return record, None
    left = () if holder is None else tuple(name for name in own.holders if name != holder)
    if left:
        if len(left) == len(own.holders):
            return record, None
        layers = {**record.layers, layer: dataclasses.replace(own, holders=left)}
        return dataclasses.replace(record, layers=layers), None
    layers = {name: value for name, value in record.layers.items() if name != layer}
    above = record.above(layer)
    if above:
        layers[above] = dataclasses.replace(layers[above], prior=_prior(own))
        return dataclasses.replace(record, layers=layers), None
    return dataclasses.replace(record, layers=layers), _prior(own)


def leave(record: Record, holder: str) -> Record:
    """A job has ended whose GPU does not answer. What was there before stays owed."""
    own = record.layers.get("job")
    if own is None or holder not in own.holders:
        return record
    left = dataclasses.replace(own, holders=tuple(name for name in own.holders if name != holder))
    return dataclasses.replace(record, layers={**record.layers, "job": left})


def owed(old: dict[str, Layer], new: dict[str, Layer]) -> dict[str, Layer]:
    """The layers to be remembered while ``new`` is not yet true: a job that has ended holds nothing any more."""
    if "job" not in old or "job" in new:
        return old
    return {**old, "job": dataclasses.replace(old["job"], holders=())}


def settle(record: Record, wanted: Settings | None) -> tuple[Record, Settings | None]:
    """Give back what jobs left behind that have ended."""
    own = record.layers.get("job")
    return drop_layer(record, "job", None) if own and not own.holders else (record, wanted)


def touch(record: Record, settings: t.Iterable[str]) -> Record:
    """Remember that these settings are not what they were when the open layers began."""
    names = frozenset(settings)
    layers = {name: dataclasses.replace(layer, touched=layer.touched | names) for name, layer in record.layers.items()}
    return dataclasses.replace(record, layers=layers)


def check_wish(wish: Wish) -> None:
    """Refuse what no GPU can be asked for."""
    asked = {
        name: clock
        for name, clock in (("graphics_mhz", wish.graphics_mhz), ("memory_mhz", wish.memory_mhz))
        if clock is not None
    }
    for name, clock in asked.items():
        if clock <= 0:
            raise ClusterError(
                "bad_value", f"`{name}` is {clock}, which is no clock.", "Give a positive number, or leave it out."
            )
    if wish.policy == "values" and not asked:
        raise ClusterError(
            "bad_value",
            "`policy: values` names no value.",
            "Set `graphics_mhz`, `memory_mhz`, or both.",
        )


def decide_wish(gpu: Gpu, record: Record, now: Settings, session: str, wish: Wish, layer: str, holder: str) -> Decision:
    """What a wish at this layer makes of a GPU."""
    goal = target(gpu, wish, base_of(record, layer, now), record)
    # What one clock cannot do does not keep the other from what it can.
    if any(problem.kind != "unsupported" for problem in goal.problems):
        return Decision(record, None, goal.problems, goal.notes)
    changed, wanted = settle(*set_layer(record, layer, holder, session, now, goal.settings))
    notes = goal.notes
    if wanted is None:
        notes = (*notes, f"the {record.above(layer)} holds the clocks: this takes effect when it ends")
    return Decision(changed, wanted, goal.problems, notes)


def decide_restore(record: Record, layer: str, holder: str | None) -> Decision:
    """What the end of a layer makes of a GPU; ``all`` ends every job's and the node's own."""
    if layer == "all":
        record, during = drop_layer(record, "job", None)
        record, wanted = drop_layer(record, "node", None)
        return Decision(record, wanted or during)
    return Decision(*settle(*drop_layer(record, layer, holder)))


__all__ = [
    "IDLE",
    "base_of",
    "can",
    "check_wish",
    "contradicts",
    "current",
    "decide_restore",
    "decide_wish",
    "drop_layer",
    "forget_dead_jobs",
    "leave",
    "owed",
    "set_layer",
    "settle",
    "steps",
    "target",
    "touch",
]
