# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files for NCCL as NCCL reads them, after its source (2.30, src/graph/xml.cc, xml.h, topo.cc, search.cc).

Its reader is not one of XML: it takes a character at a time, knows neither entities nor declarations nor processing instructions,
ends attributes at any character that is neither blank nor quote, and limits names, values, attributes and elements.
"""

from __future__ import annotations

import dataclasses
import typing as t

MAX_STR_LEN, MAX_ATTR_COUNT = 255, 16
#: The elements that it looks into, by the element that they are in; it skips all others.
TOPOLOGY = {
    "": ("system",),
    "system": ("cpu",),
    "cpu": ("pci", "nic"),
    "pci": ("pci", "gpu", "nic", "pcilink"),
    "gpu": ("nvlink", "c2c"),
    "nic": ("net",),
}
GRAPHS = {"": ("graphs",), "graphs": ("graph",), "graph": ("channel",), "channel": ("net", "gpu")}
#: kvDictPciGen, in its order: the first that the value begins with counts, x100 Mb/s per lane.
SPEEDS = {
    "2.5 GT/s": 15,
    "5 GT/s": 30,
    "8 GT/s": 60,
    "16 GT/s": 120,
    "32 GT/s": 240,
    "5.0 GT/s PCIe": 30,
    "8.0 GT/s PCIe": 60,
    "16.0 GT/s PCIe": 120,
    "32.0 GT/s PCIe": 240,
    "64.0 GT/s PCIe": 480,
}
#: NCCL_TOPO_XML_MAX_NODES and NCCL_GRAPH_XML_MAX_NODES: the smaller of the two.
MAX_NODES = 256


class RejectedError(Exception):
    """What NCCL warns of before it ends the job."""


@dataclasses.dataclass
class Node:
    """An element. ``parent`` is None for the outermost."""

    name: str
    attributes: dict[str, str]
    parent: Node | None = None
    children: list[Node] = dataclasses.field(default_factory=list)

    def all(self, name: str) -> list[Node]:
        """The elements of a name below this one, in the order of the file."""
        found = []
        for child in self.children:
            found += [child] if child.name == name else []
            found += child.all(name)
        return found


class Reader:
    """xmlGetChar, xmlGetToken, xmlGetValue, xmlGetNode and xmlLoadSub."""

    def __init__(self, text: str, known: dict[str, tuple[str, ...]]) -> None:
        self.text, self.at, self.known, self.count = text, 0, known, 0

    def char(self) -> str:
        if self.at >= len(self.text):
            raise RejectedError("Unexpected EOF")
        self.at += 1
        return self.text[self.at - 1]

    def value(self) -> tuple[str, str]:
        quote = self.char()
        if quote not in "\"'":
            raise RejectedError("Expected (double) quote")
        found = ""
        # The closing quote is stored first, and counts.
        while not found.endswith(quote):
            found += self.char()
            if len(found) == MAX_STR_LEN:
                raise RejectedError(f"value {found} too long")
        return found[:-1], self.char()

    def token(self, *, valued: bool) -> tuple[str, str | None, str]:
        """A name, its value if it has one, and the character that ended it."""
        name = ""
        while True:
            c = self.char()
            if c == "=":
                if not valued:
                    raise RejectedError(f"Unexpected value with name {name}")
                value, last = self.value()
                return name, value, last
            name += c
            if len(name) >= MAX_STR_LEN:
                raise RejectedError(f"name {name} too long")
            if c in " >/\n\r":
                return name[:-1], None, c

    def node(self) -> tuple[str, str, dict[str, str]]:
        """Kind (none, open, close, single), name and attributes of what comes next."""
        c = " "
        while c in " \n\r":
            if self.at >= len(self.text):
                return "none", "", {}
            c = self.char()
        if c != "<":
            raise RejectedError(f"expecting '<', got {c!r}")
        name, _value, last = self.token(valued=False)
        if name.startswith("!--"):
            end = self.text.find("-->", self.at - 1 - len(name[3:]))
            if end < 0:
                raise RejectedError("unterminated comment")
            self.at = end + 3
            return self.node()
        if name == "" and last == "/":
            name, _value, last = self.token(valued=False)
            if last != ">":
                raise RejectedError(f"unexpected trailing {last} in closing tag {name}")
            return "close", name, {}
        attributes: dict[str, str] = {}
        while last == " ":
            key, value, last = self.token(valued=True)
            if len(attributes) < MAX_ATTR_COUNT:
                attributes.setdefault(key, value or "")
        kind = "open"
        if last == "/":
            kind, (_name, _value, last) = "single", self.token(valued=False)
        if last != ">":
            raise RejectedError(f"expected >, got {last!r}")
        return kind, name, attributes

    def below(self, head: Node, names: tuple[str, ...]) -> None:
        while True:
            kind, name, attributes = self.node()
            if kind == "none":
                if head.name:
                    raise RejectedError(f"unterminated {head.name}")
                return
            if head.name and kind == "close":
                if name != head.name:
                    raise RejectedError(f"Mismatch : {head.name} / {name}")
                return
            child = Node(name, attributes, head)
            if name in names:
                self.count += 1
                if self.count > MAX_NODES:
                    raise RejectedError("too many nodes")
                head.children.append(child)
                if name in ("system", "graphs") and attributes.get("version") != "1":
                    raise RejectedError("wrong version")
            if kind == "open":
                self.below(child, self.known.get(name, ()) if name in names else ())


def read(text: str, known: dict[str, tuple[str, ...]]) -> Node:
    """The outermost element: NCCL takes the first that it keeps for it."""
    top = Node("", {})
    Reader(text, known).below(top, known[""])
    if not top.children:
        raise RejectedError("nothing was read")
    return top.children[0]


def link_gbytes_s(pci: Node) -> float:
    """ncclTopoAddPci: the bandwidth of a device's link. A speed that it does not know counts as 8 GT/s, and is refused here."""
    speed = next((speed for words, speed in SPEEDS.items() if pci.attributes["link_speed"].startswith(words)), 0)
    assert speed, pci.attributes
    return (int(pci.attributes["link_width"]) or 16) * speed / 80


def distance(system: Node, one: str, other: str) -> str:
    """paths.cc: the way between two PCI devices. PIX: over one bridge; PHB: over the processor; SYS: over two of them."""
    first, second = (
        next(pci for pci in system.all("pci") if pci.attributes["busid"] == busid) for busid in (one, other)
    )
    assert first.parent
    assert second.parent
    if first.parent is second.parent and first.parent.name == "pci":
        return "PIX"
    return "PHB" if _cpu(first) is _cpu(second) else "SYS"


def _cpu(node: Node | None) -> Node:
    while node and node.name != "cpu":
        node = node.parent
    return t.cast(Node, node)


__all__ = ["GRAPHS", "TOPOLOGY", "Node", "RejectedError", "distance", "link_gbytes_s", "read"]
