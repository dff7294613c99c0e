# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The one document of a health check, and JUnit as a rendering of it. ``docs/health.schema.json`` is its schema."""

from __future__ import annotations

import typing as t
import xml.etree.ElementTree as ET

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._health.model import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._health_run.engine import (
    Check,
    HealthRun,
    how_it_failed,
)

SCHEMA_VERSION = "1.0"
#: Worst first. What could not be found out is worse than a warning, because nothing is known to be well; it is no failure.
VERDICTS = ("fail", "incomplete", "warn", "ok")

Document = dict[str, t.Any]


def document(run: HealthRun, *, run_id: str, launcher: str, started: str, ended: str) -> Document:
    """Everything that was measured, and what follows from it."""
    checks = [_check(one, run.stopped) for one in run.checks]
    suspects = [_lost(node, why) for node, why in sorted(run.lost.items())]
    suspects += [suspect for one in run.checks for suspect in _suspects(one)]
    verdict = _worst([one["verdict"] for one in checks] + ["fail"] * bool(suspects))
    return {
        "schema_version": SCHEMA_VERSION,
        "run": {
            "id": run_id,
            "nodes": list(run.request.nodes),
            "launcher": launcher,
            "started": started,
            "ended": ended,
            "rounds": run.rounds,
            "launches": run.launches,
            "stopped": run.stopped,
        },
        "verdict": verdict,
        "checks": checks,
        "suspects": suspects,
    }


def summary(document: t.Mapping[str, t.Any]) -> str:
    """A sentence for people: what is wrong, or that nothing is."""
    run, suspects = document["run"], document["suspects"]
    if document["verdict"] == "ok":
        values = ", ".join(
            f"{one['name']} {one['value']} GB/s" if one["value"] else one["name"] for one in document["checks"]
        )
        return f"{len(run['nodes'])} nodes are ok: {values}."
    texts = [
        f"{' and '.join(one['members'])} ({one['kind']}, {one['check'] or 'ssh'}): {one['reason']}" for one in suspects
    ]
    texts += [f"{one['name']}: {finding['text']}" for one in document["checks"] for finding in one["findings"]]
    if not suspects:
        texts.append("no node is blamed")
    return f"{document['verdict']}: {'; '.join(texts)}."


def planned(plan: t.Mapping[str, t.Any]) -> list[str]:
    """What a run would launch, in lines."""
    lines = [f"would launch over {one['nodes']} nodes: {one['command']}" for one in plan["first_rounds"]]
    bad, most = plan["one_bad_node"], plan["at_most"]
    healthy = f"a healthy fleet takes {plan['healthy']['launches']} launch(es), one with a bad node about {bad['rounds']} rounds of a check"
    return [
        *lines,
        f"{healthy} with {bad['launches']} launches; never more than {most['rounds']} rounds and {most['seconds'] / 60:.0f} minutes",
    ]


def junit(document: t.Mapping[str, t.Any]) -> str:
    """A suite per check with a case per node, and one for the fleet as a whole. XML 1.0."""
    root = ET.Element("testsuites", name="health_check")
    for check in document["checks"]:
        blamed = {
            node: one for one in document["suspects"] if one["check"] in (check["name"], "") for node in _nodes(one)
        }
        unknown = {one["node"]: one["reason"] for one in check["unknown"]}
        suite = ET.SubElement(root, "testsuite", name=check["name"])
        cases = [("fleet", check["verdict"], _said(check))]
        for node in document["run"]["nodes"]:
            if node in blamed:
                cases.append((node, "fail", blamed[node]["reason"]))
            elif node in unknown or check["verdict"] == "incomplete":
                cases.append((node, "incomplete", unknown.get(node, "the check did not end")))
            else:
                cases.append((node, "ok", ""))
        for name, verdict, said in cases:
            case = ET.SubElement(suite, "testcase", classname=check["name"], name=name)
            if verdict == "fail":
                ET.SubElement(case, "failure", message=_clean(said))
            elif verdict == "incomplete":
                ET.SubElement(case, "skipped", message=_clean(said))
        for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(cases)))
        suite.set("errors", "0")
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _clean(text: str) -> str:
    """XML 1.0 has no control characters."""
    return "".join(one if one >= " " else " " for one in text)


def _said(check: t.Mapping[str, t.Any]) -> str:
    return "; ".join(one["text"] for one in check["findings"]) or f"{check['value']} GB/s"


def _nodes(suspect: t.Mapping[str, t.Any]) -> list[str]:
    return list(suspect["nodes"])


def _worst(verdicts: t.Iterable[str]) -> str:
    found = set(verdicts)
    return next((one for one in VERDICTS if one in found), "incomplete")


def _check(check: Check, stopped: str) -> Document:
    found = check.finder.verdict()
    blamed = _blamed(check)
    findings = list(_findings(check, found, stopped))
    return {
        "name": check.name,
        "verdict": _worst([one["verdict"] for one in findings] + ["fail"] * bool(any(blamed.values())) or ["ok"]),
        "metric": "busbw",
        "unit": "GB/s",
        "value": check.value_gbytes_s,
        "expected": check.request.expected_gbytes_s.get(check.name) or None,
        "rounds": [{"launches": [_launch(one) for one in outcomes]} for outcomes in check.rounds],
        **blamed,
        "unknown": found["unknown"] if check.measured and not check.sockets else [],
        "left_out": check.left_out,
        "findings": findings,
    }


def _blamed(check: Check) -> dict[str, list[t.Any]]:
    """Nobody, where no launch gave a number, or where all of it went over sockets: what all have in common is no node's fault."""
    if not check.measured or check.sockets:
        return {"bad_nodes": [], "bad_links": [], "bad_domains": []}
    found = check.finder.verdict()
    return {key: found[key] for key in ("bad_nodes", "bad_links", "bad_domains")}


def _findings(check: Check, found: t.Mapping[str, t.Any], stopped: str) -> t.Iterator[Document]:
    """What is to say of the check besides whom it names."""
    if check.sockets:
        text = "NCCL used sockets instead of RDMA, so what it measured says nothing about single nodes"
        remedy = "Look for `NET/IB : No device found` in the log: HCAs, their driver (role mofed), and NCCL_IB_HCA in `environment`."
        yield {"kind": "configuration", "verdict": "fail", "text": text, "remedy": remedy}
    elif check.trouble:
        yield {
            "kind": "not_measured",
            "verdict": "incomplete",
            "text": check.trouble,
            "remedy": "See log_tail of its launches.",
        }
    elif not check.rounds:
        yield {"kind": "not_run", "verdict": "incomplete", "text": stopped or "it was not launched", "remedy": ""}
    elif not check.done:
        text = stopped or "it was interrupted"
        yield {
            "kind": "stopped",
            "verdict": "incomplete",
            "text": text,
            "remedy": "Raise the bound, or check fewer nodes.",
        }
    elif not check.measured:
        reason = how_it_failed(check.rounds[0][0])
        yield {
            "kind": "not_measured",
            "verdict": "incomplete",
            "text": f"no launch gave a number: {reason}",
            "remedy": "",
        }
    elif found["accepted"] is False:
        text = "all nodes that nobody named are slow together"
        remedy = "Compare with `expected_gbytes_s`, and give `topology` so that leaves and racks can be told apart."
        yield {"kind": "slow_together", "verdict": "fail", "text": text, "remedy": remedy}
    elif found["unknown"]:
        text = f"of {len(found['unknown'])} node(s) it could not be told"
        yield {"kind": "not_told", "verdict": "incomplete", "text": text, "remedy": "See unknown."}


def _launch(outcome: Outcome) -> Document:
    state = "measured" if outcome.busbw_gbytes_s and not outcome.wrong else "hung" if outcome.timed_out else "failed"
    if outcome.trouble or outcome.lost or (state == "failed" and outcome.rc == 0 and not outcome.wrong):
        state = "incomplete"
    return {
        "nodes": list(outcome.nodes),
        "outcome": state,
        "reason": "" if state == "measured" else how_it_failed(outcome),
        "busbw_gbytes_s": list(outcome.busbw_gbytes_s),
        "curve": [list(point) for point in outcome.curve],
        "wrong": outcome.wrong,
        "transport": list(outcome.transport),
        "seconds": round(outcome.seconds, 1),
        "log_tail": "" if state == "measured" else outcome.log_tail,
    }


def _suspects(check: Check) -> t.Iterator[Document]:
    blamed = _blamed(check)
    for one in blamed["bad_nodes"]:
        yield _suspect(check, "node", [one["node"]], [one["node"]], one)
    for one in blamed["bad_links"]:
        yield _suspect(check, "link", one["between"], [], one)
    for one in blamed["bad_domains"]:
        yield _suspect(check, "domain", [one["domain"]], one["nodes"], one)


def _suspect(check: Check, kind: str, members: list[str], nodes: list[str], one: t.Mapping[str, t.Any]) -> Document:
    outcomes = [outcome for outcome in map(check.outcome_of, one["evidence"]) if outcome]
    failed = next((outcome for outcome in outcomes if outcome.wrong), None) or next(
        (outcome for outcome in outcomes if outcome.timed_out or outcome.rc != 0), None
    )
    return {
        "kind": kind,
        "members": list(members),
        "nodes": list(nodes),
        "check": check.name,
        "reason": how_it_failed(failed) if failed else _slow(one["evidence"]),
        "confidence": one["confidence"],
        "evidence": one["evidence"],
        "log_tail": failed.log_tail if failed else "",
    }


def _slow(evidence: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """By the launch with the fewest nodes."""
    measured = [one for one in evidence if one["busbw_gbytes_s"] and one["baseline_gbytes_s"]]
    if not measured:
        return "slow"
    best = min(measured, key=lambda one: len(one["nodes"]))
    value, baseline = best["busbw_gbytes_s"], best["baseline_gbytes_s"]
    return f"{value:.1f} GB/s instead of {baseline:.1f} with {len(best['nodes'])} nodes ({100 * (value / baseline - 1):+.0f} %)"


def _lost(node: str, why: str) -> Document:
    return {
        "kind": "node",
        "members": [node],
        "nodes": [node],
        "check": "",
        "reason": why,
        "confidence": 1.0,
        "evidence": [],
        "log_tail": "",
    }


__all__ = ["SCHEMA_VERSION", "document", "junit", "planned", "summary"]
