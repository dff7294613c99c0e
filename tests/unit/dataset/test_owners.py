# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom the files shall belong to is known on every node, or nothing is copied at all."""

from __future__ import annotations

import pathlib
import pwd
import typing as t

import pytest
import role_plays
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Blob, Manifest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import write_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import plan_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import StatePaths
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_stage
from role_plays import START, Calls, Play, run_plays, stay

NOBODY = pwd.getpwnam("nobody").pw_uid
ASK = "Ask every node whom it knows by these names"
#: As the modules answer: x knows nobody of that name, z somebody else.
UNLIKE = (
    """{"x": "knows no user 'hpc'", "z": "has 1002 for the user 'hpc', not 1001"}.get(host.partition("-")[2], "")"""
)

NAMED = "given-x knows no user 'hpc'; given-z has 1002 for the user 'hpc', not 1001. Create the user"


def asked(destination: pathlib.Path, run: str) -> dict[str, t.Any]:
    return dataset_stage.copy(
        {"destination": str(destination), "run": run, "only_check": True, "landing_path": None, "host": "gpu-2"}, []
    )


@pytest.mark.parametrize(
    ("uid", "unlike"), [(NOBODY, ""), (NOBODY + 1, f"has {NOBODY} for the user 'nobody', not {NOBODY + 1}")]
)
def test_a_node_tells_whom_it_knows_and_copies_nothing(tmp_path: pathlib.Path, uid: int, unlike: str) -> None:
    run, blobs_of = plan_run(
        Manifest([{"url": "http://x/c", "prefix": ""}], [Blob("f", 1000, "", "e")]),
        [0],
        destination=str(tmp_path),
        hosts=["gpu-1", "gpu-2"],
        decompress=False,
    )
    run.ownership = {"owner": "nobody", "uid": uid}
    pathlib.Path(StatePaths(str(tmp_path)).runs).mkdir(parents=True, mode=0o700)
    write_run(run, blobs_of)
    before = sorted(tmp_path.rglob("*"))
    assert asked(tmp_path, run.id) == {"changed": False, "unlike": unlike}
    assert sorted(tmp_path.rglob("*")) == before
    assert asked(tmp_path, "none") == {"changed": False, "unlike": ""}, "what it does not see it is told when it copies"


def refused(root: pathlib.Path, scope: str) -> tuple[Calls, str]:
    """What the nodes were told that stay all, and the refusal, where files are given to somebody."""
    play = Play("given", scope, stay("first", "x", "z"), options={"owner": "hpc"})
    calls = run_plays(root, play, ends_with=2)[play.name]
    assert calls.of(START) == [], "somebody copies"
    said = " ".join((root / "output").read_text().split()).split("fatal: ")[-1]
    assert "Nothing was copied, because " in said
    return calls, said.replace("''", "'")  # as YAML quotes it


@pytest.mark.slow
@pytest.mark.newest
def test_nodes_of_a_shared_copy_that_know_somebody_else_are_named_before_anything_is_copied(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = f'return {{"unlike": {UNLIKE}}} if args.get("only_check") else {{"ansible_job_id": "1", "started": True}}'
    monkeypatch.setitem(role_plays.ANSWERS, "dataset_stage", answer)
    calls, said = refused(tmp_path, "shared")
    assert [call["host"] for call in calls.of(ASK)] == ["first", "x", "z"], "one call on every node"
    assert "because 2 of 3 nodes cannot give files" in said
    assert NAMED in said


@pytest.mark.slow
@pytest.mark.newest
def test_nodes_that_keep_shares_of_their_own_and_know_nobody_keep_the_others_from_copying(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = f"{{'failed': True, 'msg': 'This node knows no user.', 'unlike': {UNLIKE}}}"
    plan = f'if "rank" in args and {UNLIKE}:\n        return {failed}\n    {role_plays.PLAN}'
    monkeypatch.setitem(role_plays.ANSWERS, "dataset_plan", plan)
    calls, said = refused(tmp_path, "local")
    assert calls.of(ASK) == [], "every node has looked when it planned"
    assert NAMED in said
