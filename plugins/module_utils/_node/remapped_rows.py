# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Rows of a GPU's memory that had uncorrectable errors, and spare ones that took their place.

GPUs since Ampere do so (NVIDIA GPU Memory Error Management, "Row Remapping"); others say N/A. azurehpc-health-checks v0.4.5,
customTests/azure_gpu_ecc.nhc takes a node out for the same three.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.nvidia_smi import call
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import bus_id_or_empty

FIELDS = ("gpu_bus_id", "remapped_rows.pending", "remapped_rows.failure", "remapped_rows.uncorrectable")
#: How many rows a GPU remaps for uncorrectable errors before it has to be replaced.
MOST_UNCORRECTABLE = 512
_WORDS = {"yes": 1, "no": 0}
Rows = dict[str, t.Any]


def _number(text: str) -> int | None:
    word = text.strip().lower()
    return int(word) if word.isdigit() else _WORDS.get(word)


def parse(text: str) -> dict[str, Rows]:
    """``{pending, failure, uncorrectable}`` of each GPU that tells all three, by bus id: two truths and a number of rows."""
    found: dict[str, Rows] = {}
    for line in text.splitlines():
        bus_id, *cells = line.split(",")
        values = [_number(cell) for cell in cells]
        if len(values) == len(FIELDS) - 1 and None not in values:
            pending, failure, uncorrectable = values
            rows = {"pending": bool(pending), "failure": bool(failure), "uncorrectable": uncorrectable}
            found[bus_id_or_empty(bus_id)] = rows
    return found


def ask(program: str, timeout_s: float) -> dict[str, Rows]:
    """The same, of the GPUs of this node; nothing where nvidia-smi does not answer or does not know the question."""
    run = call(program, [f"--query-remapped-rows={','.join(FIELDS)}", "--format=csv,noheader,nounits"], timeout_s)
    return parse(run.stdout) if run.rc == 0 else {}


def wrong(rows: Rows | None) -> tuple[str, str, str]:
    """What is expected, what is found instead, and what to do; empty strings where nothing is wrong or known."""
    if not rows:
        return "", "", ""
    if rows["failure"]:
        return "spare rows for those that fail", "a row could not be remapped", "Replace the GPU."
    if rows["uncorrectable"] > MOST_UNCORRECTABLE:
        found = f"{rows['uncorrectable']} rows remapped"
        return f"at most {MOST_UNCORRECTABLE} rows remapped for uncorrectable errors", found, "Replace the GPU."
    if rows["pending"]:
        return "all failed rows remapped", "a remapping is pending", "Drain the node, and reset the GPU or reboot."
    return "", "", ""


__all__ = ["FIELDS", "MOST_UNCORRECTABLE", "Rows", "ask", "parse", "wrong"]
