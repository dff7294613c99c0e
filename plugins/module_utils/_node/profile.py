# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Choose the profile of a machine type, change single values of it, and check that a profile file is well formed."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import normalize_bus_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import parse_ranges

Profile = dict[str, t.Any]
SCHEMA = 1
CHECKS = ("cpu", "memory", "gpus", "numa", "fabric", "nvme")
DIRECTIONS = ("min", "max", "equal", "typical")

_PROVENANCE = {"source", "date", "verified"}
_KEYS: dict[str, set[str]] = {
    "match": {"skus", "products"},
    "cpu": {"sockets", "cores", "threads", *_PROVENANCE},
    "memory": {"mib", "tolerance_percent", "swap_mib", *_PROVENANCE},
    "gpus": {"count", "models", "interconnect", "bus_ids", *_PROVENANCE},
    "numa": {"nodes", *_PROVENANCE},
    "fabric": {"hcas", "count", "rate_gbps", *_PROVENANCE},
    "nvme": {"count", "min_count", "bytes", "tolerance_percent", *_PROVENANCE},
    "nccl": {"env", "unset", "channels", *_PROVENANCE},
}
_ITEM_KEYS: dict[tuple[str, str], set[str]] = {
    ("gpus", "models"): {"name", "memory_mib"},
    ("numa", "nodes"): {"id", "cpus", "gpus", "hcas"},
    ("fabric", "hcas"): {"name", "bus_id", "rate_gbps", "link_layer"},
}
# The lists of devices in the NUMA map, and what says that there are such devices.
_DEVICES = {"gpus": ("gpus",), "hcas": ("fabric", "hcas")}
_CHANNEL_KEYS = {"rings", "trees", "gbytes_s"}
_EXPECTED_REQUIRED = {"value", "direction", "unit", "tool", "source", "date"}
_EXPECTED_KEYS = {*_EXPECTED_REQUIRED, "verified", "note"}
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}$")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A profile and the evidence it was chosen by. ``notes`` say what spoke against a better choice."""

    profile: Profile
    by: str
    notes: tuple[str, ...] = ()


class Library(t.Protocol):
    """Where profiles come from; the action plugin reads files, tests use a dictionary."""

    def load(self, name: str) -> Profile | None: ...
    def load_all(self) -> list[Profile]: ...
    def load_own(self) -> list[Profile]: ...


def deep_merge(base: t.Any, override: t.Any) -> t.Any:
    """``override`` laid over ``base``: mappings key by key, everything else replaced, null takes a key away.

    Devices that it takes away leave the NUMA map of ``base``, too. Neither argument is changed.
    """
    merged = _laid_over(base, override)
    gone = [kind for kind, path in _DEVICES.items() if _takes_away(override, path)]
    nodes = _numa_nodes(base)
    # A map that the override brings is its author's: what does not fit in it is named, not mended.
    if gone and nodes and _numa_nodes(merged) is nodes:
        merged["numa"] = {**merged["numa"], "nodes": [{**node, **{kind: [] for kind in gone}} for node in nodes]}
    return merged


def _laid_over(base: t.Any, override: t.Any) -> t.Any:
    if not isinstance(override, dict):
        return override
    merged = dict(base) if isinstance(base, dict) else {}
    for key, value in override.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _laid_over(merged.get(key), value)
    return merged


def _takes_away(override: t.Any, path: t.Sequence[str]) -> bool:
    """Whether there is a null on the way to a value."""
    for key in path:
        if not isinstance(override, dict) or key not in override:
            return False
        override = override[key]
        if override is None:
            return True
    return False


def _numa_nodes(profile: t.Any) -> t.Any:
    numa = profile.get("numa") if isinstance(profile, dict) else None
    return numa.get("nodes") if isinstance(numa, dict) else None


def _check_provenance(where: str, section: dict[str, t.Any]) -> t.Iterator[str]:
    if not isinstance(section.get("source"), str) or not section.get("source"):
        yield f"{where}: source is missing: say where the values come from"
    if not _DATE.match(str(section.get("date", ""))):
        yield f"{where}: date is missing or not YYYY-MM-DD"
    if not isinstance(section.get("verified", True), bool):
        yield f"{where}: verified must be true or false"


def _check_keys(where: str, value: t.Any, allowed: set[str]) -> t.Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: must be a mapping, not {type(value).__name__}"
        return
    for key in sorted(set(value) - allowed, key=str):
        yield f"{where}.{key}: unknown key (known: {', '.join(sorted(allowed))})"


def _address_problem(bus_id: str) -> str:
    try:
        spelled = normalize_bus_id(bus_id)
    except ValueError:
        return f"{bus_id!r} is not a PCI address (quote it: YAML reads 10:20 as a number)"
    return "" if spelled == bus_id else f"write {bus_id!r} as {spelled!r}, the way sysfs does"


def _check_addresses(profile: Profile) -> t.Iterator[str]:
    gpus, fabric = profile.get("gpus", {}), profile.get("fabric", {})
    addresses = [("gpus.bus_ids", bus_id) for bus_id in gpus.get("bus_ids", [])]
    addresses += [("fabric.hcas", hca["bus_id"]) for hca in fabric.get("hcas", []) if "bus_id" in hca]
    problems = [_address_problem(str(bus_id)) for _where, bus_id in addresses]
    yield from (f"{where}: {problem}" for (where, _bus_id), problem in zip(addresses, problems) if problem)
    if len({bus_id for _where, bus_id in addresses}) != len(addresses):
        yield "bus_ids: an address appears twice"
    if "gpus" in profile and "count" not in gpus:
        yield "gpus: count is missing (to expect no GPUs, leave out gpus as a whole, or override it with null)"
    elif "bus_ids" in gpus and gpus["count"] != len(gpus["bus_ids"]):
        yield f"gpus: count is {gpus['count']} but bus_ids has {len(gpus['bus_ids'])}"


def _check_numa(profile: Profile) -> t.Iterator[str]:
    nodes = profile.get("numa", {}).get("nodes", [])
    gpus = [gpu for node in nodes for gpu in node.get("gpus", [])]
    hcas = [hca for node in nodes for hca in node.get("hcas", [])]
    named = {hca.get("name") for hca in profile.get("fabric", {}).get("hcas", [])}
    try:
        cpus = [cpu for node in nodes for cpu in parse_ranges(str(node.get("cpus", "")))]
    except ValueError as exc:
        yield f"numa.nodes: cpus: {exc}"
        return
    if len(set(cpus)) != len(cpus):
        yield "numa.nodes: a CPU is in two nodes"
    threads = profile.get("cpu", {}).get("threads")
    if nodes and threads and len(cpus) != threads:
        yield f"numa.nodes: the nodes have {len(cpus)} CPUs, cpu.threads says {threads}"
    if len(set(gpus)) != len(gpus) or len(set(hcas)) != len(hcas):
        yield "numa.nodes: a device is in two nodes"
    count = profile.get("gpus", {}).get("count", 0)
    for gpu in gpus:
        if not isinstance(gpu, int) or not 0 <= gpu < count:
            yield f"numa.nodes: GPU {gpu!r} does not exist among {count}"
    for hca in hcas:
        if hca not in named:
            yield f"numa.nodes: HCA {hca!r} is not in fabric.hcas"


def _check_channels(profile: Profile) -> t.Iterator[str]:
    """The channels of NCCL's graph file: each an order of all GPUs."""
    channels, count = profile.get("nccl", {}).get("channels"), profile.get("gpus", {}).get("count")
    if channels is None:
        return
    if not isinstance(channels, dict) or set(channels) != _CHANNEL_KEYS:
        yield f"nccl.channels: must be a mapping of {', '.join(sorted(_CHANNEL_KEYS))}"
        return
    speed = channels["gbytes_s"]
    if isinstance(speed, bool) or not isinstance(speed, (int, float)) or speed <= 0:
        yield "nccl.channels.gbytes_s: must be a number above 0"
    # Without GPUs, which an override can take away, nobody needs channels.
    for kind in ("rings", "trees") if count else ():
        orders = channels[kind] if isinstance(channels[kind], list) else []
        each = [sorted(map(str, order)) if isinstance(order, list) else None for order in orders]
        if not each or any(order != sorted(map(str, range(count))) for order in each):
            yield f"nccl.channels.{kind}: must be a list of orders of all {count} GPUs"


def _check_expected(expected: t.Any) -> t.Iterator[str]:
    if not isinstance(expected, dict):
        yield "expected: must be a mapping"
        return
    for name, entry in expected.items():
        where = f"expected.{name}"
        yield from _check_keys(where, entry, _EXPECTED_KEYS)
        if not isinstance(entry, dict):
            continue
        missing = sorted(_EXPECTED_REQUIRED - set(entry))
        if missing:
            yield f"{where}: lacks {', '.join(missing)}"
        value = entry.get("value")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            yield f"{where}: value must be a number"
        if entry.get("direction") not in DIRECTIONS:
            yield f"{where}: direction must be one of {', '.join(DIRECTIONS)}"
        yield from _check_provenance(where, entry)


def validate_profile(profile: t.Any) -> list[str]:
    """Everything that is wrong with a profile; an empty list when it can be used."""
    if not isinstance(profile, dict):
        return ["a profile must be a mapping"]
    problems = []
    if profile.get("schema") != SCHEMA:
        problems.append(f"schema: must be {SCHEMA}")
    if not isinstance(profile.get("name"), str) or not profile.get("name"):
        problems.append("name: is missing")
    known = {"schema", "name", "expected", "site", *_KEYS}
    problems += [f"{key}: unknown section" for key in sorted(set(profile) - known, key=str)]
    shapes: list[str] = []
    for section, allowed in _KEYS.items():
        if section not in profile:
            continue
        shapes += _check_keys(section, profile[section], allowed)
        if not isinstance(profile[section], dict):
            continue
        if section != "match":
            problems += _check_provenance(section, profile[section])
        for (owner, key), item_keys in _ITEM_KEYS.items():
            if owner != section or key not in profile[section]:
                continue
            items = profile[section][key]
            if not isinstance(items, list):
                shapes.append(f"{section}.{key}: must be a list")
                continue
            for item in items:
                shapes += _check_keys(f"{section}.{key}", item, item_keys)
    problems += shapes
    problems += _check_expected(profile.get("expected", {}))
    if not shapes:
        # These look into the lists and need their shape to be right.
        problems += [*_check_addresses(profile), *_check_numa(profile), *_check_channels(profile)]
    return problems


def _lower(values: t.Iterable[t.Any]) -> set[str]:
    return {str(value).casefold() for value in values}


def _match(profile: Profile, key: str) -> list[t.Any]:
    return profile.get("match", {}).get(key) or []


def model_name(name: str) -> str:
    """A GPU's name without the ``NVIDIA`` that drivers print since R450."""
    return name[7:] if name.startswith("NVIDIA ") else name


def _fit(profile: Profile, facts: dict[str, t.Any]) -> int:
    """What of a profile's GPUs those found fit: 2 model and addresses, 1 the one of the two that is known, 0 nothing.

    Never how many there are: the node that lacks one is the node that has to be compared with its own profile.
    """
    expected = profile.get("gpus")
    if not expected:
        return 0
    wanted, gpus = set(expected.get("bus_ids", [])), facts["gpus"]
    # Without a driver addresses are all there is.
    found = {gpu["bus_id"] for gpu in gpus or facts.get("pci_gpus") or []}
    if not found or len(found) > expected.get("count", 0) or (wanted and not found <= wanted):
        return 0
    if not gpus:
        return 1 if wanted else 0
    models = {model_name(model["name"]) for model in expected.get("models", [])}
    if not {model_name(gpu["name"]) for gpu in gpus} <= models:
        return 0
    return 2 if wanted else 1


def _by_chance(profile: Profile, facts: dict[str, t.Any]) -> bool:
    """Whether the GPUs without a driver, and so without a model, are too few of the profile's for their addresses to tell."""
    return not facts["gpus"] and 2 * len(facts.get("pci_gpus") or []) < profile["gpus"]["count"]


def _may_be(profile: Profile, platform: dict[str, t.Any], own: list[Profile]) -> bool:
    """Whether a profile may be chosen by a model or by addresses alone: not where the machine has a name, and another one.

    Machine types of a cloud have one, two or four GPUs of a board: only the site knows whether its profile means them.
    """
    skus, products = _match(profile, "skus"), _match(profile, "products")
    if platform.get("sku"):
        return profile in own and not skus
    if platform.get("product"):
        # A cloud whose metadata did not answer does not tell the machine type.
        return not products and (not skus or bool(platform.get("cloud")))
    return True


def _by_hardware(profiles: list[Profile], facts: dict[str, t.Any], library: Library) -> tuple[Profile | None, str]:
    fits = [(_fit(profile, facts), profile) for profile in profiles]
    best = max((fit for fit, _profile in fits), default=0)
    winners = [profile for fit, profile in fits if fit == best] if best else []
    own = library.load_own() if winners else []
    if best == 1:
        winners = [profile for profile in winners if _may_be(profile, facts["platform"], own)]
    # A site has its own profile because the shipped one does not do.
    winners = [profile for profile in winners if profile in own] or winners
    if best == 1:
        # A machine that a cloud or its firmware would have named is not it.
        winners = [profile for profile in winners if not profile.get("match")] or winners
    if len(winners) == 1 and not _by_chance(winners[0], facts):
        return winners[0], ""
    if len(winners) > 1:
        names = ", ".join(sorted(profile["name"] for profile in winners))
        return None, f"the hardware fits several profiles ({names}): set `name`"
    return None, "the hardware fits no profile"


def choose_profile(facts: dict[str, t.Any], requested: str, library: Library) -> Choice:
    """Name from the inventory, then the cloud's machine type, then the firmware's product name, then the GPUs found."""
    if requested:
        profile = library.load(requested)
        if profile is None:
            known = ", ".join(sorted(item["name"] for item in library.load_all()))
            raise ClusterError(
                "profile_unknown",
                f"There is no profile {requested!r}.",
                f"Set `name` to one of {known}, or put {requested}.yml into one of `paths`.",
            )
        return Choice(profile, "its name")
    notes = []
    sku, product = facts["platform"].get("sku"), facts["platform"].get("product")
    if sku:
        # Most files are named after the machine type, so that one small file is read and not all of them.
        profile = library.load(sku)
        if profile and sku.casefold() in _lower(_match(profile, "skus")):
            return Choice(profile, f"instance metadata ({sku})")
    profiles = library.load_all()
    for profile in profiles:
        if sku and sku.casefold() in _lower(_match(profile, "skus")):
            return Choice(profile, f"instance metadata ({sku})")
    if sku:
        notes.append(f"there is no profile for the machine type {sku}")
    for profile in profiles:
        if product and any(
            fnmatch.fnmatch(product.casefold(), pattern) for pattern in _lower(_match(profile, "products"))
        ):
            return Choice(profile, f"product name ({product})", tuple(notes))
    found, note = _by_hardware(profiles, facts, library)
    if found:
        return Choice(found, "hardware", tuple(notes))
    generic = library.load("generic")
    if generic is None:
        raise ClusterError("profile_unknown", "The profile generic is missing.", "Reinstall the collection.")
    return Choice(generic, "nothing that is known", (*notes, note))


__all__ = [
    "CHECKS",
    "SCHEMA",
    "Choice",
    "Library",
    "Profile",
    "choose_profile",
    "deep_merge",
    "model_name",
    "validate_profile",
]
