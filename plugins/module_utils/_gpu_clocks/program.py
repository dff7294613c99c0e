# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Set and restore the clocks of this node's GPUs, as the role gpu_clocks has configured them.

    gpu-clocks apply                      put the node's policy into effect (at boot)
    gpu-clocks begin --job ID [--gpus …]  put the job's policy into effect, and remember what was there
    gpu-clocks end --job ID [--gpus …]    give that back when the last job on a GPU ends
    gpu-clocks restore                    give back what was there before any of this
    gpu-clocks status                     tell what is set and what is remembered

Without Ansible: it carries the same files as the Ansible module. Exit status: 0 done, 1 not everywhere (standard error says
where and why), 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import json
import sys
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.apply import Clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.model import Wish
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.request import Options
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._ranges import parse_ranges

#: What the role wrote: the module's options, the node's policy, and that of jobs.
CONFIG = "/etc/gpu_clocks/config.json"


def _selection(text: str) -> tuple[str, ...]:
    """``0,1`` and ``0-3`` are indices; everything else is taken as it is (UUIDs, bus ids)."""
    if set(text) <= set("0123456789,-"):
        return tuple(map(str, parse_ranges(text)))
    return tuple(name for name in text.split(",") if name)


def _parse(arguments: t.Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu-clocks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("action", choices=["apply", "begin", "end", "restore", "status"])
    parser.add_argument("--job", default="", help="who holds the clocks")
    parser.add_argument("--gpus", default="", help="indices, UUIDs or bus ids, separated by commas (default: all)")
    parser.add_argument("--check", action="store_true", help="only tell what would be done")
    parser.add_argument("--json", action="store_true", help="print the whole result")
    parser.add_argument("--config", default=CONFIG)
    options = parser.parse_args(arguments)
    if options.action in ("begin", "end") and not options.job:
        parser.error("begin and end need --job.")
    return options


def _run(options: argparse.Namespace) -> dict[str, t.Any]:
    with open(options.config, encoding="utf-8") as file:
        config = json.load(file)
    clocks = Clocks(Options(**config["options"], gpus=_selection(options.gpus)))
    if options.action == "status":
        return clocks.status()
    if options.action == "begin":
        return clocks.apply(Wish(**config["job"]), "job", options.job, check=options.check)
    if options.action == "end":
        return clocks.restore("job", options.job, check=options.check)
    if options.action == "restore":
        return clocks.restore("all", check=options.check)
    return clocks.apply(Wish(**config["node"]), check=options.check)


def _tell(result: dict[str, t.Any]) -> None:
    """One line per GPU."""
    for gpu in result["gpus"]:
        shown = gpu.get("after", gpu)
        words = [
            f"{name.replace('_', ' ')} {shown[name]}" for name in ("graphics_lock", "memory_lock", "application_clocks")
        ]
        state = gpu.get("status", f"{gpu['clocks']['graphics_mhz']} MHz")
        held = ", ".join(holder for layer in gpu.get("layers", {}).values() for holder in layer["holders"])
        print(
            f"GPU {gpu['index']} {gpu['bus_id']} {gpu['name']}: {state}; {', '.join(words)}"
            + (f"; held by {held}" if held else "")
        )


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parse(arguments)
    try:
        result = _run(options)
    except ClusterError as exc:
        if options.json:
            print(json.dumps(exc.as_result(), indent=1))
        print(f"gpu-clocks: {exc}", file=sys.stderr)
        return 1
    except (OSError, ValueError, KeyError, TypeError) as exc:
        print(f"gpu-clocks: {options.config} or the saved state: {exc!r}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        _tell(result)
    return 0


__all__ = ["main"]
