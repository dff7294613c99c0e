# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""``staging.json``: what was staged, by whom, how fast, what went wrong, and whether the dataset is whole."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.claims import Claims
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.model import FATAL_KINDS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import ENDED, Run, read_progress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import Inventory, StatePaths, read_json

VERSION = 1
_LOST = {
    "kind": "worker_lost",
    "message": "The copy there never said that it ended: it was killed, the node stopped, or it hangs.",
    "remedy": "Look at that node (`journalctl -k`, `uptime`), then run again: that copies only what is missing.",
}
_NAMED = 20
_BATCHES_TOLD = 5
_REMEDY = {
    "missing": "Stage the dataset again: that copies only what is missing.",
    "altered": "These files were changed after they were staged. Stage the dataset again to repair them.",
    "outdated": "These blobs were replaced at the source, or `decompress` was changed. Stage the dataset again.",
    "foreign": "Move these files away, or set `allow_overwrite: true` to replace them.",
}


def verdict(inventory: Inventory, total: int, manifest: Manifest, names: t.Sequence[str]) -> dict[str, t.Any]:
    """The comparison of destination and manifest in numbers, with the first names of each kind of difference."""
    problems = [
        {
            "kind": kind,
            "files": len(found),
            "names": [names[index] for index in found[:_NAMED]],
            "remedy": remedy,
        }
        for kind, remedy in _REMEDY.items()
        if (found := getattr(inventory, kind))
    ]
    return {
        "verdict": "fail" if problems else "ok",
        "manifest_digest": manifest.digest,
        "total_files": total,
        "verified_files": len(inventory.verified),
        "verified_bytes": inventory.verified_bytes,
        "problems": problems,
    }


def explain(result: t.Mapping[str, t.Any]) -> str:
    """One sentence per problem: what differs, an example, the next step."""
    if result["verdict"] == "ok":
        former = result.get("former_files", 0)
        more = f" {former} files of an earlier choice are still there; dataset_remove deletes them with `only_former`."
        return f"All {result['total_files']} files are what the manifest says.{more if former else ''}"
    parts = [f"{cause['host']}: {cause['message']} {cause['remedy']}" for cause in result.get("causes", [])[:3]]
    parts.insert(0, f"{result['verified_files']} of {result['total_files']} files are what the manifest says.")
    for problem in result["problems"]:
        shown = ", ".join(problem["names"][:3])
        parts.append(f"{problem['files']} {problem['kind']} (such as {shown}): {problem['remedy']}")
    batches = result.get("unfinished_batches", [])
    if batches:
        shown = ", ".join(f"{batch['batch']} of {batch['host']}" for batch in batches[:_BATCHES_TOLD])
        parts.append(f"Unfinished batches: {shown}{', …' if len(batches) > _BATCHES_TOLD else '.'}")
    return " ".join(parts)


def run_summary(run: Run) -> dict[str, t.Any]:
    """What each rank did in a run, with failures. Rates are bytes over the network per second of the rank's work."""
    claims = Claims(run.claims, "report")
    ranks = []
    for rank in read_progress(run):
        gbps = rank.raw_bytes * 8 / rank.seconds / 1e9 if rank.seconds else 0.0
        ranks.append(
            {
                "rank": rank.rank,
                "host": rank.host,
                "state": rank.state,
                "files": rank.files,
                "raw_bytes": rank.raw_bytes,
                "bytes": rank.bytes,
                "seconds": rank.seconds,
                "gbps": round(gbps, 4),
                "batches": rank.batches,
                "stolen_batches": rank.stolen_batches,
                "retried_batches": rank.retried_batches,
                "error": rank.error,
            }
        )
    failed = []
    unfinished = []
    for batch in run.batches:
        result = claims.result(batch.id)
        if result is None:
            unfinished.append(batch.id)
        else:
            failed.extend(result["failed"])
    return {
        "run": run.id,
        "started": run.started,
        "shares": [vars(share) for share in run.shares],
        "imbalance": run.imbalance,
        "ranks": ranks,
        "failed": failed,
        "unfinished_batches": unfinished,
    }


def causes(report: t.Mapping[str, t.Any] | None) -> list[dict[str, str]]:
    """Why the last round left something out: one entry per kind of error, with the first host or file that had it."""
    found: dict[str, dict[str, str]] = {}
    last = _last_round(report)
    for rank in last["ranks"]:
        error = rank["error"] or (None if rank["state"] in ENDED else _LOST)
        if error:
            found.setdefault(error["kind"], {"host": rank["host"], **error})
    for failure in last["failed"]:
        found.setdefault(failure["kind"], {"host": failure["name"], **failure})
    return list(found.values())


def unfinished(report: t.Mapping[str, t.Any] | None) -> list[dict[str, str]]:
    """Unfinished batches of the last round, each with the host that it was planned for."""
    last = _last_round(report)
    hosts = {share["rank"]: share["host"] for share in last["shares"]}
    ids = last["unfinished_batches"][:_NAMED]
    return [{"batch": batch, "host": hosts.get(_rank_of(batch), "no host")} for batch in ids]


def _rank_of(batch: str) -> int:
    """As ``plan_run`` names batches."""
    return int(batch[1:].partition("b")[0])


def tells_success_of(report: t.Mapping[str, t.Any] | None, run_id: str) -> bool:
    """Whether a run is one of those after which a report found everything whole."""
    rounds = report["rounds"] if report and report["verdict"] == "ok" else []
    return any(one["run"] == run_id for one in rounds)


def _last_round(report: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    nothing: dict[str, t.Any] = {"ranks": [], "failed": [], "shares": [], "unfinished_batches": []}
    return {**nothing, **(report["rounds"][-1] if report and report["rounds"] else {})}


def worth_trying_again(result: t.Mapping[str, t.Any], why: t.Sequence[t.Mapping[str, str]]) -> bool:
    """False when the dataset is whole, or when nothing would be different the next time."""
    return result["verdict"] != "ok" and not any(cause["kind"] in FATAL_KINDS for cause in why)


def build_report(
    run: Run | None, previous: t.Mapping[str, t.Any] | None, manifest: Manifest, result: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """The document. Rounds of one staging are kept together; a run of another manifest begins a new document."""
    rounds: list[dict[str, t.Any]] = []
    if previous and previous.get("manifest_digest") == manifest.digest and previous.get("verdict") != "ok":
        rounds = list(previous.get("rounds", []))
    if run is not None and all(known["run"] != run.id for known in rounds):
        rounds.append(run_summary(run))
    return {
        "version": VERSION,
        "sources": manifest.sources,
        "total_raw_bytes": manifest.total_bytes,
        "finished": time.time(),
        **result,
        "rounds": rounds,
    }


def read_report(destination: str) -> dict[str, t.Any] | None:
    """The report of the last staging at this destination, or None."""
    document = read_json(StatePaths(destination).report)
    return document if isinstance(document, dict) else None


__all__ = [
    "VERSION",
    "build_report",
    "causes",
    "explain",
    "read_report",
    "run_summary",
    "tells_success_of",
    "unfinished",
    "verdict",
    "worth_trying_again",
]
