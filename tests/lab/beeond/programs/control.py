# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control tools: beegfs-ctl (7) and beegfs (8), as far as BeeOND and its users ask them."""

from __future__ import annotations

import sys
import typing as t

import configuration
import registry
import settings

UNREACHABLE = 3
COLUMNS = (
    "id",
    "type",
    "alias",
    "node",
    "storage_pool",
    "reachability",
    "last_contact",
    "consistency",
    "space",
    "space_free",
)


def seven(arguments: t.Sequence[str]) -> int:
    """beegfs-ctl --MODE [arguments]. Authentication comes from /etc/beegfs/beegfs-client.conf, or from an argument."""
    words = {word.lstrip("-").partition("=")[0]: word.partition("=")[2] for word in arguments if word.startswith("--")}
    names = ("sysMgmtdHost", "connPortShift", "connAuthFile", "connDisableAuthentication", "cfgFile")
    try:
        values = configuration.read("beegfs-client", {key: words[key] for key in names if key in words})
        secret = configuration.secret(values)
    except configuration.InvalidError as exc:
        print(f"\nError: {exc}\n\n[BeeGFS Control Tool Version: {settings.load()['version']}", file=sys.stderr)
        print("Refer to the default config file (/etc/beegfs/beegfs-client.conf)", file=sys.stderr)
        return 1
    link = values.get("sysMgmtdHost", ""), configuration.port(values, "beegfs-mgmtd"), secret
    kind = {"metadata": "meta"}.get(words.get("nodetype", "storage"), words.get("nodetype", "storage"))
    known = ask(link, {"do": "list"})
    if known is None:
        print(f"Management node communication failed: {link[0]}", file=sys.stderr)
        return UNREACHABLE
    if "listnodes" in words:
        for node in known["nodes"]:
            if node["type"] == kind:
                print(f"{node['host']} [ID: {node['node']}]")
    elif "listtargets" in words:
        table(known, kind, words)
    elif "getentryinfo" in words:
        pattern = known["pattern"]
        print("Entry type: directory\nEntryID: root\nStripe pattern details:\n+ Type: " + pattern["type"])
        print(
            f"+ Chunksize: {pattern['chunk_bytes'] // 1024}K\n+ Number of storage targets: desired: {pattern['targets']}"
        )
    elif "setpattern" in words:
        return change(link, words.get("chunksize", ""), words.get("numtargets", ""), words.get("pattern", ""))
    elif "addmirrorgroup" in words:
        return even(known, kind)
    elif "addstoragepool" in words:
        ask(link, {"do": "pool", "name": words["desc"], "targets": words["targets"].split(",")})
    elif not {"mirrormd", "createdir"} & set(words):
        print("Invalid mode", file=sys.stderr)
        return 1
    return 0


def table(known: t.Mapping[str, t.Any], kind: str, words: t.Mapping[str, str]) -> None:
    """--listtargets: two lines of heading, then a line for each target."""
    head, under = f"{'TargetID':>8} ", f"{'========':>8} "
    if "state" in words:
        head, under = (
            head + f"{'Reachability':>16} {'Consistency':>12} ",
            under + f"{'============':>16} {'===========':>12} ",
        )
    if "spaceinfo" in words:
        names = ("Total", "Free", "%", "ITotal", "IFree", "%")
        head += "".join(f"{name:>{width}} " for name, width in zip(names, (12, 12, 4, 11, 11, 4)))
        under += "".join(f"{'=' * len(name):>{width}} " for name, width in zip(names, (12, 12, 4, 11, 11, 4)))
    print(f"{head}{'NodeID':>8}\n{under}{'======':>8}")
    for row in of_kind(known, kind):
        line = f"{row['target']:>8} "
        if "state" in words:
            line += f"{row['reachability']:>16} {'Good':>12} "
        if "spaceinfo" in words:
            space = {"total": 0, "free": 0, "inodes": 0, "inodes_free": 0, **row["space"]}
            line += (
                f"{space['total'] / 2**30:>9.1f}GiB {space['free'] / 2**30:>9.1f}GiB {part(space, 'free', 'total'):>4} "
            )
            line += f"{space['inodes'] / 1e6:>10.1f}M {space['inodes_free'] / 1e6:>10.1f}M "
            line += f"{part(space, 'inodes_free', 'inodes'):>4} "
        print(f"{line}{row['node']:>8}")


def part(space: t.Mapping[str, int], some: str, all_of: str) -> str:
    return f"{100 * space[some] // max(space[all_of], 1)}%"


def of_kind(known: t.Mapping[str, t.Any], kind: str) -> list[dict[str, t.Any]]:
    return [row for row in known["states"] if row["type"] == kind or not kind]


def eight(arguments: t.Sequence[str]) -> int:
    """beegfs [--mgmtd-addr HOST:PORT] [--auth-disable | --auth-file FILE] ... COMMAND: table output only."""
    given: dict[str, str] = {"node-type": ""}
    words: list[str] = []
    rest = list(arguments)
    switches = {"tls-disable", "auth-disable", "state", "raw", "yes", "capacity", "tls-disable-verification"}
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            words.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        given[name] = value if equals else "true" if name in switches or not rest else rest.pop(0)
    host, _, port = given.get("mgmtd-addr", f"127.0.0.1:{configuration.GRPC_PORT}").rpartition(":")
    secret = ""
    if given.get("auth-disable") != "true":
        try:
            secret = configuration.secret({"connAuthFile": given.get("auth-file") or "/etc/beegfs/conn.auth"})
        except configuration.InvalidError as exc:
            print(f"Error: couldn't read authentication file: {exc}", file=sys.stderr)
            return 1
    link = host, int(port), secret
    known = ask(link, {"do": "list"})
    if known is None:
        print("Error: rpc error: code = Unavailable desc = connection error", file=sys.stderr)
        return 1
    return command(words, given, link, known)


def command(
    words: list[str], given: t.Mapping[str, str], link: tuple[str, int, str], known: t.Mapping[str, t.Any]
) -> int:
    kind = given["node-type"]
    columns = given.get("columns", "").split(",") if given.get("columns") else []
    if words[:2] == ["node", "list"]:
        nodes = [row for row in known["nodes"] if row["type"] == kind or not kind]
        cells = [
            {"id": f"{r['type'][0]}:{r['node']}", "type": r["type"], "alias": f"node_{r['type']}_{r['node']}"}
            for r in nodes
        ]
        show(columns or ["id", "type", "alias"], cells)
    elif words[:2] == ["target", "list"]:
        default = (
            list(COLUMNS[:5])
            + (list(COLUMNS[5:8]) if "state" in given else [])
            + (list(COLUMNS[8:]) if "capacity" in given else [])
        )
        show(columns or default, [cell(row) for row in of_kind(known, kind)])
    elif words[:2] == ["pool", "list"]:
        show(columns or ["id", "alias"], [{"id": f"s:{i}", "alias": name} for i, name in enumerate(known["pools"], 1)])
    elif words[:2] == ["pool", "create"]:
        ask(link, {"do": "pool", "name": words[2], "targets": given["targets"].split(",")})
    elif words[:2] == ["mirror", "autocreate"]:
        return even(known, words[2])
    elif words[:2] == ["entry", "info"]:
        pattern = known["pattern"]
        print(f"Stripe pattern details:\n+ Type: {pattern['type']}\n+ Chunksize: {pattern['chunk_bytes'] // 1024}K")
        print(f"+ Number of storage targets: desired: {pattern['targets']}")
    elif words[:2] == ["entry", "set"]:
        return change(link, given.get("chunk-size", ""), given.get("num-targets", ""), given.get("pattern", ""))
    elif words[:2] not in (["pool", "set-alias"], ["mirror", "init"], ["entry", "create"]):
        print(f'Error: unknown command "{" ".join(words)}" for "beegfs"', file=sys.stderr)
        return 1
    return 0


def cell(row: t.Mapping[str, t.Any]) -> dict[str, str]:
    letter, space = row["type"][0], row["space"]
    return {
        "id": f"{letter}:{row['target']}",
        "type": row["type"],
        "alias": f"target_{row['type']}_{row['target']}",
        "node": f"{letter}:{row['node']}",
        "storage_pool": "s:1" if row["type"] == "storage" else "(n/a)",
        "reachability": row["reachability"],
        "last_contact": "0s ago",
        "consistency": "Good",
        "space": str(space.get("total", "-")),
        "space_free": str(space.get("free", "-")),
    }


def show(columns: t.Sequence[str], rows: t.Sequence[t.Mapping[str, str]]) -> None:
    """A heading in capitals, the rows, and an empty line; columns are padded with two spaces."""
    every = [{name: name.upper() for name in columns}, *rows]
    widths = {name: max(len(row[name]) for row in every) for name in columns}
    for row in every:
        print("".join(f"{row[name]:<{widths[name]}}  " for name in columns))
    print()


def change(link: tuple[str, int, str], chunk: str, targets: str, kind: str) -> int:
    pattern: dict[str, t.Any] = {"type": "Buddy Mirror"} if kind in ("buddymirror", "mirrored") else {}
    if chunk:
        factor = {"k": 1024, "m": 1024**2}.get(chunk.lower().rstrip("i")[-1], 1)
        pattern["chunk_bytes"] = int(chunk.lower().rstrip("ikm")) * factor
    if targets:
        pattern["targets"] = int(targets)
    ask(link, {"do": "pattern", "pattern": pattern})
    return 0


def even(known: t.Mapping[str, t.Any], kind: str) -> int:
    """Mirror groups are pairs."""
    if len(of_kind(known, kind)) % 2 == 0:
        return 0
    print("The number of targets is odd.", file=sys.stderr)
    return 1


def ask(link: tuple[str, int, str], question: t.Mapping[str, t.Any]) -> registry.Answer | None:
    return registry.ask(link[0], link[1], {**question, "secret": link[2]})
