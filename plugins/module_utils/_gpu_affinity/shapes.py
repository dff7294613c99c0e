# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether facts and profile have the shape that planning reads: users may bring their own, and other releases write others. Pure.

What planning does not read may be anything.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

#: More than Linux can have (CONFIG_NR_CPUS): a list of CPUs is written out, and a range without an end would take all memory.
_MOST_CPUS = 65536
_BUS_ID = re.compile(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
Mapping = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a value may be: ``fits`` tells, ``words`` say it. None fits where it is not ``needed``."""

    words: str
    fits: t.Callable[[t.Any], bool]
    needed: bool = False


def _is_number(value: t.Any) -> bool:
    # true is a number to Python.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: t.Any) -> bool:
    return _is_number(value) and 0 <= value < _MOST_CPUS


def _is_cpus(value: t.Any) -> bool:
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return False
    # What else is wrong in it is told where it is parsed.
    return all(len(number) < 10 and int(number) < _MOST_CPUS for number in re.findall(r"[0-9]+", str(value)))


def _is_word(value: t.Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"\S+", value))


def _is_text(value: t.Any) -> bool:
    return isinstance(value, str) and (value.isprintable() or not value)


def _list_of(fits: t.Callable[[t.Any], bool]) -> t.Callable[[t.Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


_COUNT = Kind(f"a number from 0 to {_MOST_CPUS - 1}", _is_count)
_INDEX = dataclasses.replace(_COUNT, needed=True)
_NUMA = Kind("a number, -1 where it is not known", lambda value: _is_number(value) and value < _MOST_CPUS)
_CPUS = Kind(f"a list of CPUs such as 0-3,8, each below {_MOST_CPUS}", _is_cpus)
_BUS = Kind(
    "a PCI address such as 0000:0a:00.0",
    lambda value: value == "" or (_is_word(value) and bool(_BUS_ID.fullmatch(value))),
)
_WORD = Kind("a word without blanks", lambda value: value == "" or _is_word(value))
_NAME = Kind("a name without blanks", _is_word, needed=True)
_TEXT = Kind("text of one line", _is_text)
_RATE = Kind(
    "a number of Gb/s",
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e6,
)
_MAPPING = Kind("a mapping", lambda value: isinstance(value, t.Mapping))
_ITEM = dataclasses.replace(_MAPPING, needed=True)
_PATH = Kind("a list of names of PCI bridges", _list_of(_is_word))
_LIST = Kind("a list", lambda value: isinstance(value, list))

#: The mappings of the facts and the lists of them, by where they are.
_FACTS = {
    ("cpus",): {"cores": _COUNT, "threads": _COUNT, "siblings": Kind("a list of lists of CPUs", _list_of(_is_cpus))},
    ("numa", "*"): {"id": _INDEX, "cpus": _CPUS},
    ("gpus", "*"): {
        "index": _INDEX,
        "numa": _NUMA,
        "bus_id": _BUS,
        "uuid": _WORD,
        "name": _TEXT,
        "minor": _COUNT,
        "mig": _MAPPING,
        "pci_path": _PATH,
    },
    ("hcas", "*"): {"device": _NAME, "numa": _NUMA, "bus_id": _BUS, "rate_gbps": _RATE, "pci_path": _PATH},
}
_PROFILE = {
    (): {"name": _TEXT},
    ("cpu",): {"cores": _COUNT, "threads": _COUNT},
    ("gpus",): {"count": _COUNT, "bus_ids": Kind("a list of PCI addresses", _list_of(_BUS.fits))},
    ("gpus", "models", "*"): {"name": _TEXT},
    ("numa", "nodes", "*"): {
        "id": _INDEX,
        "cpus": _CPUS,
        "gpus": Kind("a list of indexes of GPUs", _list_of(_is_count)),
        "hcas": Kind("a list of names of HCAs", _list_of(_is_word)),
    },
    ("fabric", "hcas", "*"): {"name": _NAME, "bus_id": _BUS, "rate_gbps": _RATE},
    ("nccl",): {"env": _MAPPING, "unset": _LIST},
}


def _require(value: t.Any, kind: Kind, where: str) -> None:
    if value is None and kind.needed:
        raise ValueError(f"{where} is missing")
    if value is not None and not kind.fits(value):
        raise ValueError(f"{where} has to be {kind.words}, and is {str(value)[:60]!r}")


def _walk(value: t.Any, path: t.Sequence[str], where: str) -> t.Iterator[tuple[t.Mapping[str, t.Any], str]]:
    """The mappings at a path, with where they are; nothing where there is none."""
    if value is None:
        return
    if not path:
        _require(value, _MAPPING, where)
        yield value, where
    elif path[0] == "*":
        _require(value, _LIST, where)
        for number, item in enumerate(value):
            _require(item, _ITEM, f"{where}[{number}]")
            yield from _walk(item, path[1:], f"{where}[{number}]")
    else:
        _require(value, _MAPPING, where or "it")
        yield from _walk(value.get(path[0]), path[1:], f"{where}.{path[0]}".lstrip("."))


def _check(value: Mapping, shapes: t.Mapping[tuple[str, ...], t.Mapping[str, Kind]]) -> None:
    for path, fields in shapes.items():
        for found, where in _walk(value, path, ""):
            for name, kind in fields.items():
                _require(found.get(name), kind, f"{where}.{name}".lstrip("."))


def _once(values: t.Iterable[t.Any], what: str) -> None:
    seen: set[t.Any] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {value} is there twice")
        seen.add(value)


def require_shapes(facts: Mapping, profile: Mapping) -> None:
    """Raise ClusterError where the facts (``bad_topology``) or the profile (``bad_input``) are not as planning reads them."""
    try:
        _check(facts, _FACTS)
        _once((node["id"] for node in facts.get("numa") or []), "NUMA node")
        _once((gpu["index"] for gpu in facts.get("gpus") or []), "GPU")
    except ValueError as exc:
        raise ClusterError(
            "bad_topology",
            f"`facts` cannot be planned with: {exc}. They were written by hand or by another release.",
            "Gather them anew with hpcai.gpu_cluster.node_facts of this release.",
        ) from exc
    try:
        _check(profile, _PROFILE)
        nodes = (profile.get("numa") or {}).get("nodes") or []
        _once((node["id"] for node in nodes), "NUMA node")
        _once((gpu for node in nodes for gpu in node.get("gpus") or []), "GPU")
    except ValueError as exc:
        raise ClusterError(
            "bad_input",
            f"`profile` cannot be planned with: {exc}.",
            "Correct the profile, or run node_profile of this release.",
        ) from exc


__all__ = ["require_shapes"]
