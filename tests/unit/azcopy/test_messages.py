# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded AzCopy output to numbers and verdicts."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import (
    JobState,
    check_counts,
    classify,
    find_cause,
    parse_line,
)
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def replay(name: str) -> JobState:
    state = JobState()
    for line in (FIXTURES / name).read_bytes().splitlines():
        state.feed(line)
    return state


def counts(state: JobState) -> tuple[str, int, int, int, int, int]:
    return (state.status, state.total, state.completed, state.failed, state.skipped, state.bytes_done)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ok.jsonl", ("Completed", 8, 8, 0, 0, 2_400_000)),
        ("nomatch.jsonl", ("Completed", 0, 0, 0, 0, 0)),
        ("listmissing.jsonl", ("Completed", 1, 1, 0, 0, 300_000)),
        ("skipped.jsonl", ("CompletedWithSkipped", 8, 0, 0, 8, 0)),
        ("one404.jsonl", ("CompletedWithErrors", 8, 7, 1, 0, 2_100_000)),
        ("baddst.jsonl", ("Failed", 8, 0, 8, 0, 0)),
    ],
)
def test_counts_are_read_from_strings(name: str, expected: tuple[str, int, int, int, int, int]) -> None:
    state = replay(name)
    assert counts(state) == expected
    assert state.ended
    assert len(state.job_id) == 36
    assert not state.scanning


def test_failed_and_skipped_files_are_named_although_the_last_message_has_empty_lists() -> None:
    assert replay("one404.jsonl").failed_files == {"http://127.0.0.1:10000/devstoreaccount1/data/d/f003.bin": "404"}
    assert len(replay("skipped.jsonl").skipped_files) == 8


def test_a_dry_run_gives_size_and_md5() -> None:
    state = replay("dryrun.jsonl")
    assert len(state.planned) == 8
    assert {planned.size for planned in state.planned} == {300_000}
    assert all(len(planned.md5) == 24 and planned.destination.startswith("/data/dst5/f00") for planned in state.planned)


@pytest.mark.parametrize(
    ("name", "rc", "kind"),
    [
        ("ok.jsonl", 0, None),
        ("skipped.jsonl", 0, None),  # the counts decide about these two
        ("nomatch.jsonl", 0, None),
        ("badsig.jsonl", 1, "auth_failed"),
        ("nolist.jsonl", 1, "auth_failed"),
        ("noperm.jsonl", 1, "auth_failed"),
        ("nocontainer.jsonl", 1, "container_missing"),
        ("noprefix.jsonl", 1, "not_found"),
        ("one404.jsonl", 1, "partial"),
        ("badflag.txt", 1, "azcopy_unsuitable"),
    ],
)
def test_verdict_on_recorded_runs(name: str, rc: int, kind: str | None) -> None:
    error = classify(replay(name), rc)
    assert (error.kind if error else None) == kind
    assert error is None or (error.remedy and error.message)


def test_reasons_that_only_the_job_log_knows() -> None:
    error = classify(replay("cap20.jsonl"), 1, log_text=(FIXTURES / "cap20.log").read_text())
    assert error is not None
    assert (error.kind, "cap" in error.message) == ("bad_input", True)
    full = classify(replay("baddst.jsonl"), 1, log_text="ERR: f1 File Creation Error open /x: no space left on device")
    assert full is not None
    assert (full.kind, len(full.details["failed_files"])) == ("disk_full", 8)


@pytest.mark.parametrize(
    ("expiry", "kind"), [("2026-11-01T00%3A00%3A00Z", "sas_expired"), ("2027-01-01T00%3A00%3A00Z", "auth_failed")]
)
def test_a_refusal_of_an_expired_sas_says_so(expiry: str, kind: str) -> None:
    now = 1795000000.0  # 2026-11-18
    error = classify(replay("badsig.jsonl"), 1, sas=f"sv=1&se={expiry}&sig=abcdefgh", now=now)
    assert error is not None
    assert error.kind == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "RESPONSE 403: 403 Signature not valid in the specified time frame\nERROR CODE: AuthenticationFailed",
            "sas_expired",
        ),
        ("ERROR CODE: AuthenticationFailed", "auth_failed"),
        ("ERROR CODE: PublicAccessNotPermitted", "auth_failed"),
        (
            "azcopy: error while loading shared libraries: libsecret-1.so.0: cannot open shared object",
            "azcopy_unsuitable",
        ),
        ("write /data/x: disk quota exceeded", "disk_full"),
        (
            "412 The condition specified using HTTP conditional header(s) is not met. ConditionNotMet",
            "changed_at_source",
        ),
        ("the MD5 hash of the data, as we received it, did not match the expected value", "corrupt"),
        ("unexpected EOF", "truncated"),
        ("dial tcp: lookup x.blob.core.windows.net: no such host", "unreachable"),
        ("all is well", None),
    ],
)
def test_causes(text: str, kind: str | None) -> None:
    error = find_cause(text)
    assert (error.kind if error else None) == kind


@pytest.mark.parametrize(
    ("stopped", "kind"), [("cancelled", "cancelled"), ("timeout", "stalled"), ("stalled", "stalled")]
)
def test_a_stopped_run_is_never_a_success(stopped: str, kind: str) -> None:
    error = classify(replay("ok.jsonl"), 0, stopped=stopped)
    assert error is not None
    assert error.kind == kind


@pytest.mark.parametrize(("rc", "kind"), [(-9, "partial"), (2, "azcopy_unsuitable"), (127, "azcopy_unsuitable")])
def test_an_end_without_endofjob(rc: int, kind: str) -> None:
    state = JobState()
    for line in (FIXTURES / "ok.jsonl").read_text().splitlines()[:4]:
        state.feed(line)
    error = classify(state, rc)
    assert error is not None
    assert error.kind == kind


@pytest.mark.parametrize(
    ("done", "skipped", "size", "files", "total", "kind"),
    [
        (8, 0, 80, 8, 80, None),
        (8, 0, 80, None, None, None),
        (0, 0, 0, 0, None, None),
        (0, 0, 0, None, None, "no_match"),
        (0, 0, 0, 5, None, "no_match"),
        (7, 0, 70, 8, None, "partial"),
        (7, 1, 70, 8, 80, None),
        (9, 0, 90, 8, None, "changed_at_source"),
        (8, 0, 79, 8, 80, "changed_at_source"),
    ],
)
def test_counts_against_what_was_expected(
    done: int, skipped: int, size: int, files: int | None, total: int | None, kind: str | None
) -> None:
    error = check_counts(completed=done, skipped=skipped, size=size, expected_files=files, expected_bytes=total)
    assert (error.kind if error else None) == kind


@given(st.binary(max_size=300))
def test_garbage_is_kept_as_text_and_breaks_nothing(line: bytes) -> None:
    state = JobState()
    state.feed(line)
    assert not state.ended
    assert (state.total, state.status) == (0, "")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["Progress", "EndOfJob", "Init", "Dryrun", "Info", "Prompt", "Error", "New"]),
)
def test_unforeseen_content_breaks_nothing(content: t.Any, kind: str) -> None:
    for text in (json.dumps(content), content):
        state = JobState()
        state.feed(json.dumps({"MessageType": kind, "MessageContent": text}))
        assert state.total >= 0


def test_secrets_are_gone_before_anything_is_kept() -> None:
    state = JobState(secrets=("sv=1&sig=se%2Bcret%3D",))
    for text in ("GET http://x/y?sv=1&sig=se%2Bcret%3D failed RESPONSE 403", "se+cret=", "se%2bcret%3d"):
        state.feed(json.dumps({"MessageType": "Error", "MessageContent": text}))
        state.feed(text)
    kept = " ".join([*state.tail, *state.complaints])
    assert "cret" not in kept
    assert "RESPONSE 403" in kept


def test_an_empty_line_is_nothing() -> None:
    assert parse_line(b"  \n") is None
