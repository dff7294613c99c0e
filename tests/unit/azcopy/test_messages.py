# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded AzCopy output to numbers and verdicts."""

from __future__ import annotations

import json
import pathlib
import typing as t
import urllib.parse

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.messages import (
    FATAL_KINDS,
    JobState,
    check_counts,
    classify,
    find_cause,
    number,
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


def say(state: JobState, kind: str, content: str | dict[str, t.Any]) -> None:
    """One line of AzCopy's output. An object is JSON within JSON, with its numbers as strings."""
    text = content if isinstance(content, str) else json.dumps(content)
    state.feed(json.dumps({"MessageType": kind, "MessageContent": text}))


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


def test_failed_files_are_named_although_the_last_message_has_an_empty_list() -> None:
    assert replay("one404.jsonl").failed_files == {"http://127.0.0.1:10000/devstoreaccount1/data/d/f003.bin": "404"}


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
        ("open /mnt/beegfs/x: communication error on send", "io"),
        (
            "412 The condition specified using HTTP conditional header(s) is not met. ConditionNotMet",
            "changed_at_source",
        ),
        ("HEAD http://x/y\nRESPONSE 412: 412 Precondition Failed\nERROR CODE: Unavailable", "changed_at_source"),
        ("the source file was modified during the transfer", "changed_at_source"),
        ("RESPONSE 401: 401 Unauthorized", "auth_failed"),
        ("HEAD http://x/y\nRESPONSE 403: 403 Forbidden\nERROR CODE: Unavailable", "auth_failed"),
        ("RESPONSE 404: 404 The specified blob does not exist.", "not_found"),
        ("RESPONSE 503: 503 The server is busy.\nERROR CODE: ServerBusy", "throttled"),
        (
            "DOWNLOADFAILED: https://a/c/f : 503 : 503 Operations per second is over the account limit.. When x",
            "throttled",
        ),
        ("DOWNLOADFAILED: https://a/c/f : 503 : 503 Egress is over the account limit.. When x", "throttled"),
        ("UPLOADFAILED: /data/f : 429 : 429 Too Many Requests. When Staging block", "throttled"),
        ("<Error><Code>ServerBusy</Code><Message>Ingress is over the account limit.</Message>", "throttled"),
        ("DOWNLOADFAILED: https://a/c/f : 500 : 500 Server encountered an internal error.. When x", "unreachable"),
        ("DOWNLOADFAILED: https://a/c/f : 504 : 504 Gateway Timeout. When Downloading response body", "unreachable"),
        ("DOWNLOADFAILED: https://a/c/f : 000 : unexpected EOF. When Enqueuing chunk", "unreachable"),
        (
            'DOWNLOADFAILED: https://a/c/f : 000 : Get "https://a/c/f": EOF. When Downloading response body',
            "unreachable",
        ),
        ("DOWNLOADFAILED: https://a/c/f : 000 : net/http: request canceled (Client.Timeout exceeded)", "unreachable"),
        ("DOWNLOADFAILED: https://a/c/f : 000 : http2: server sent GOAWAY and closed the connection", "unreachable"),
        (
            "DOWNLOADFAILED: https://a/c/f : 409 : 409 This operation is not permitted on an archived blob.. When x",
            "archived",
        ),
        ("DOWNLOADFAILED: https://a/c/f : 404 : 404 The specified blob does not exist.. When x", "not_found"),
        ("DOWNLOADFAILED: https://a/c/f : 403 : 403 Forbidden. When x", "auth_failed"),
        ("DOWNLOADFAILED: https://a/c/f : 412 : 412 Precondition Failed. When x", "changed_at_source"),
        ("DOWNLOADFAILED: https://a/c/f : 409 : 409 Conflict. When x", None),
        ("File Creation Error open /data/x: file name too long", "bad_input"),
        ("open /data/x: read-only file system", "bad_input"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "tls_untrusted"),
        ("the MD5 hash of the data, as we received it, did not match the expected value", "corrupt"),
        ("error in decompression worker when closing: unexpected EOF. When Closing file", "truncated"),
        ("error in decompression worker when writing: unexpected EOF. When Enqueuing chunk", "truncated"),
        ("error in decompression worker when writing: flate: corrupt input before offset 5. When x", "corrupt"),
        ("dial tcp: lookup x.blob.core.windows.net: no such host", "unreachable"),
        ("all is well", None),
    ],
)
def test_causes(text: str, kind: str | None) -> None:
    error = find_cause(text)
    assert (error.kind if error else None) == kind


def test_a_sas_that_may_not_do_this_is_told_from_one_that_is_refused() -> None:
    may_not = find_cause(
        "RESPONSE 403: 403 This request is not authorized\nERROR CODE: AuthorizationPermissionMismatch"
    )
    refused = find_cause("RESPONSE 403: 403 Server failed to authenticate\nERROR CODE: AuthenticationFailed")
    assert may_not is not None
    assert refused is not None
    assert (may_not.kind, refused.kind) == ("auth_failed", "auth_failed")
    assert "may not do this" in may_not.message
    assert "refused" in refused.message


FATAL = {
    "auth_failed": "ERROR CODE: AuthenticationFailed",
    "azcopy_unsuitable": "unknown flag: --no-such",
    "bad_input": "request size greater than pacer target",
    "container_missing": "ERROR CODE: ContainerNotFound",
    "disk_full": "no space left on device",
    "io": "write /mnt/scratch/x: transport endpoint is not connected",
    "sas_expired": "Signature not valid in the specified time frame",
    "throttled": "503 Operations per second is over the account limit.",
    "tls_untrusted": "x509: certificate has expired",
    "unreachable": "dial tcp 10.0.0.1:443: connection refused",
}


TRUNCATED = "error in decompression worker when closing: unexpected EOF. When Closing file"


def failed_job(total: int, failed: int) -> JobState:
    state = JobState()
    names = [{"Src": f"http://x/c/f{number}", "ErrorCode": "0"} for number in range(failed)]
    numbers = {"TotalTransfers": str(total), "TransfersCompleted": str(total - failed), "TransfersFailed": str(failed)}
    say(state, "Progress", {"JobStatus": "CompletedWithErrors", **numbers, "FailedTransfers": names})
    say(state, "EndOfJob", {"JobStatus": "CompletedWithErrors", **numbers, "FailedTransfers": []})
    return state


def test_what_every_file_would_fail_of_is_the_verdict_itself() -> None:
    assert set(FATAL) == FATAL_KINDS
    for kind, words in FATAL.items():
        error = classify(failed_job(9, 4), 1, log_text=words)
        assert error is not None
        assert error.kind == kind
        assert "5 of 9 files were copied" in error.message
        stalled = classify(failed_job(9, 4), -15, stopped="stalled", log_text=words)
        assert stalled is not None
        assert stalled.kind == kind


def test_what_one_file_fails_of_is_the_verdict_only_where_there_is_no_other_file() -> None:
    of_many, of_two, of_one = (classify(failed_job(total, 1), 1, log_text=TRUNCATED) for total in (9, 2, 1))
    assert of_many is not None
    assert of_two is not None
    assert of_one is not None
    assert (of_many.kind, of_two.kind, of_one.kind) == ("partial", "partial", "truncated")
    assert "1 of 9 transfers failed: f0 (truncated:" in of_many.message
    assert of_many.remedy.endswith("Upload the blob again from a good copy.")


def test_a_job_that_fails_before_its_first_transfer_is_told_by_its_cause() -> None:
    error = classify(failed_job(0, 0), 1, log_text="ERROR CODE: BlobNotFound")
    assert error is not None
    assert error.kind == "not_found"
    assert error.message == "The source does not exist. 0 of 0 files were copied."


@pytest.mark.parametrize(("failed", "named"), [(3, ": f0, f1, f2."), (4, ", for example f0, f1, f2.")])
def test_a_message_names_three_files(failed: int, named: str) -> None:
    error = classify(failed_job(9, failed), 1)
    assert error is not None
    assert error.message == f"{failed} of 9 transfers failed{named}"
    assert len(error.details["failed_files"]) == failed


@pytest.mark.parametrize(
    ("stopped", "kind"), [("cancelled", "cancelled"), ("timeout", "stalled"), ("stalled", "stalled")]
)
def test_a_stopped_run_is_never_a_success(stopped: str, kind: str) -> None:
    error = classify(replay("ok.jsonl"), 0, stopped=stopped)
    assert error is not None
    assert error.kind == kind


PANIC = (
    """panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x10f3b9a]

goroutine 412 [running]:
github.com/Azure/azure-storage-azcopy/v10/ste.(*jobPartMgr).ReportTransferDone(0xc0004a6000, 0x2)
\tste/mgr-JobPartMgr.go:742 +0x1a
"""
    + "github.com/Azure/azure-storage-azcopy/v10/ste.(*jobMgr).chunkProcessor(0xc0001b8000)\n" * 60
)
OUT_OF_THREADS = "runtime: failed to create new OS thread (have 24 already; errno=11)\nfatal error: newosproc\n"


@given(
    st.sampled_from(["", PANIC, OUT_OF_THREADS, "signal: killed\n"]),
    st.integers(0, 4),
    st.integers(-31, 255),
)
def test_an_end_without_endofjob_is_a_crash_whatever_the_exit_code(words: str, lines: int, rc: int) -> None:
    state = JobState()
    for line in [*(FIXTURES / "ok.jsonl").read_text().splitlines()[:lines], *words.splitlines()]:
        state.feed(line)
    error = classify(state, rc)
    assert error is not None
    assert error.kind == "azcopy_crashed"


@given(st.integers(1, 255))
def test_an_option_that_azcopy_does_not_know_is_final_whatever_the_exit_code(rc: int) -> None:
    error = classify(replay("badflag.txt"), rc)
    assert error is not None
    assert error.kind == "azcopy_unsuitable"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (PANIC, "panic: runtime error: invalid memory address or nil pointer dereference"),
        (OUT_OF_THREADS, "runtime: failed to create new OS thread (have 24 already; errno=11)"),
    ],
)
def test_a_panic_is_told_by_its_first_line_and_not_by_the_end_of_its_stack(words: str, named: str) -> None:
    state = JobState()
    for line in words.splitlines():
        state.feed(line)
    error = classify(state, 2)
    assert error is not None
    assert error.message.endswith(named)


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
    assert "cret" not in repr(state)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("http://x/c/d/f1?sv=1&sig=se%2Bcret%3D", "http://x/c/d/f1"),
        ("http://x/c/d/f1?sv=1&sig=unknown", "http://x/c/d/f1"),
        ("http://x/c/d/f1%3Fsv=1&sig=se%2Bcret%3D", "http://x/c/d/f1%3FREDACTED"),
    ],
)
def test_a_file_is_named_without_its_sas(source: str, name: str) -> None:
    state = JobState(secrets=("sv=1&sig=se%2Bcret%3D",))
    say(state, "Progress", {"FailedTransfers": [{"Src": source, "ErrorCode": "403"}]})
    assert state.failed_files == {name: "403"}


def test_a_dry_run_names_files_without_their_sas_and_leaves_directories_out() -> None:
    state = JobState(secrets=("sv=1&sig=se%2Bcret%3D",))
    url = "http://x/c/d/f1?sv=1&sig=se%2Bcret%3D"
    say(state, "Dryrun", {"EntityType": "Folder", "Source": "http://x/c/d", "Destination": "/data/d"})
    say(state, "Dryrun", {"EntityType": "File", "Source": "/data/f1", "Destination": url, "SourceSize": "7"})
    say(state, "Dryrun", {"EntityType": "File", "Source": url, "Destination": "/data/f1", "SourceSize": "7"})
    clean = "http://x/c/d/f1?REDACTED"
    assert [tuple(file) for file in state.planned] == [("/data/f1", clean, 7, ""), (clean, "/data/f1", 7, "")]


@pytest.mark.parametrize(
    ("kind", "text", "telling"),
    [
        ("Error", "Cannot perform copy due to error: it broke", True),
        ("Info", "GET http://x/c\nRESPONSE 403: 403 Forbidden", True),
        ("Info", "INFO: Authentication failed, it is either not correct, or expired", True),
        ("Info", "INFO: authentication failed", True),
        ("Info", "INFO: Scanning...", False),
        ("Prompt", "File exists. Do you wish to overwrite?", False),
        ("Alert", "a type of message that is not known", False),
        ("Zebra", "a type of message that is not known", False),
    ],
)
def test_what_azcopy_says_is_a_complaint_only_where_it_tells_of_a_failure(kind: str, text: str, telling: bool) -> None:
    state = JobState()
    say(state, kind, text)
    assert list(state.tail) == [text]
    assert state.complaints == ([text] if telling else [])
    assert state.asked is (kind == "Prompt")


def test_words_that_are_not_azcopys_json_are_complaints() -> None:
    state = JobState()
    state.feed("panic: runtime error")
    assert state.complaints == ["panic: runtime error"]
    assert not state.asked


def test_the_first_complaints_and_the_last_words_are_kept() -> None:
    """The first failure is the cause of the later ones; memory stays bounded whatever AzCopy prints."""
    state = JobState()
    for line in range(1000):
        say(state, "Error", f"{line} " + "x" * 10_000)
    assert [text.split()[0] for text in state.complaints] == [str(line) for line in range(40)]
    assert [text.split()[0] for text in state.tail] == [str(line) for line in range(960, 1000)]
    assert max(map(len, state.complaints)) == 4000
    assert max(map(len, state.tail)) == 2000


def test_a_question_mark_in_a_local_name_is_no_query() -> None:
    state = JobState()
    failed = [{"Src": source, "ErrorCode": "1"} for source in ("/data/what?/why?.bin", "https://a/c/x%3Fy?sv=1&sp=r")]
    say(state, "Progress", {"FailedTransfers": failed})
    assert state.failed_files == {"/data/what?/why?.bin": "1", "https://a/c/x%3Fy": "1"}


@pytest.mark.parametrize(
    "words",
    [
        "transport endpoint is not connected",
        "stale file handle",
        "input/output error",
        "no such device",
        "cannot send after transport endpoint shutdown",
        "connection timed out",
        "host is down",
        "remote I/O error",
        # What BeeGFS, Lustre, NFS, and XFS say of trouble that passes.
        "communication error on send",
        "interrupted system call",
        "resource temporarily unavailable",
        "device or resource busy",
        "cannot allocate memory",
        "no locks available",
        "link has been severed",
        "structure needs cleaning",
    ],
)
def test_a_file_system_that_vanished_is_no_fault_of_the_options(words: str) -> None:
    error = find_cause(f"open /mnt/scratch/x: {words}")
    assert error is not None
    assert error.kind == "io"


@pytest.mark.parametrize(
    "words",
    [
        "write tcp 10.0.0.4:51234->52.239.1.2:443: write: transport endpoint is not connected",
        "dial tcp 52.239.1.2:443: connect: no such device or address",
        "read tcp [fd00::4]:51234->[fd00::2]:443: read: input/output error",
        "write tcp4 10.0.0.4:51234->52.239.1.2:443: write: cannot send after transport endpoint shutdown",
        "dial tcp 52.239.1.2:443: connect: connection timed out",
        "dial tcp: lookup x.blob.core.windows.net: read udp 10.0.0.4:4711->10.0.0.1:53: read: no such device",
    ],
)
def test_a_socket_that_fails_is_no_file_system_that_fails(words: str) -> None:
    error = find_cause(f'Put "https://x.blob.core.windows.net/c/f": {words}')
    assert error is not None
    assert error.kind == "unreachable"
    both = find_cause(f"{words}\nwrite /mnt/scratch/x: input/output error\n{words}")
    assert both is not None
    assert both.kind == "io", "a line for each"


def test_what_go_s_runtime_lacks_is_no_file_system_that_fails() -> None:
    assert find_cause("runtime/cgo: pthread_create failed: Resource temporarily unavailable") is None


#: What AzCopy logs (10.32.2) of a download and an upload that fail, with ``name`` in every place that a name has there.
_DOWNLOAD = """\
2026/11/28 12:14:39 Job-Command copy https://a.blob.core.windows.net/c/{url}?sv=1&sig=-REDACTED- /data/{name} --recursive
2026/11/28 12:14:39 ERR: [P#0-T#0] DOWNLOADFAILED: https://a.blob.core.windows.net/c/{url} : {status} : {why}. X-Ms-Request-Id: 1

   Dst: /data/out/{name}
2026/11/28 12:14:39 ERR: [P#0-T#0] /data/out/{name}: 0: Delete File Error -remove /data/out/{temporary}: {errno}. X-Ms-Request-Id:

2026/11/28 12:14:41 Closing Log
"""
_UPLOAD = """\
2026/11/28 12:14:39 Job-Command copy /data/in https://a.blob.core.windows.net/c/?sv=1&sig=-REDACTED- --recursive
2026/11/28 12:14:39 ERR: [P#0-T#0] UPLOADFAILED: /data/in/{name} : {status} : {why}. X-Ms-Request-Id: 1

   Dst: https://a.blob.core.windows.net/c/{url}
2026/11/28 12:14:41 Closing Log
"""
_REASONS = (
    ("409", "409 This operation is not permitted on an archived blob.. When Downloading response body", "archived"),
    ("503", "503 Operations per second is over the account limit.. When Downloading response body", "throttled"),
    ("000", "unexpected EOF. When Enqueuing chunk", "unreachable"),
    ("000", "File Creation Error open {path}: no space left on device", "disk_full"),
    ("000", "rename {path} {path}: is a directory. When Download rename", "bad_input"),
    ("409", "409 Conflict. When Committing block list", "partial"),
)


@pytest.mark.parametrize("words", [*FATAL.values(), TRUNCATED, "archived blob", "ContainerNotFound.bin", "a : 403 : b"])
@pytest.mark.parametrize(("status", "why", "kind"), _REASONS, ids=lambda text: text[:20])
@pytest.mark.parametrize("around", ["{}", "d/{}", "{}/f", "x{}.bin", "two\n{}"])
def test_no_cause_is_read_out_of_a_name(words: str, status: str, why: str, kind: str, around: str) -> None:
    name = around.format(words.replace("/", "_"))
    url = urllib.parse.quote(name)
    directory, _slash, last = name.rpartition("/")
    temporary = f"{directory}/.azDownload-97e90c20-ba96-3b47-4075-06c893019137-{last}".lstrip("/")
    for template, source, path in (
        (_DOWNLOAD, f"https://a.blob.core.windows.net/c/{url}", f"/data/out/{temporary}"),
        (_UPLOAD, f"/data/in/{name}", f"/data/in/{name}"),
    ):
        state = JobState()
        numbers = {"JobStatus": "CompletedWithErrors", "TotalTransfers": "1", "TransfersFailed": "1"}
        say(state, "Progress", {**numbers, "FailedTransfers": [{"Src": source, "ErrorCode": status}]})
        say(state, "EndOfJob", numbers)
        reason = why.format(path=path)
        log = template.format(name=name, url=url, temporary=temporary, status=status, why=reason, errno="not there")
        error = classify(state, 1, log_text=log, local=f"/data/{name}")
        assert error is not None
        assert error.kind == kind


def test_the_status_of_a_file_is_enough_where_the_log_has_lost_its_line() -> None:
    for status, kind in (("503", "throttled"), ("404", "not_found"), ("412", "changed_at_source"), ("0", "partial")):
        state = failed_job(1, 1)
        state.failed_files = dict.fromkeys(state.failed_files, status)
        error = classify(state, 1)
        assert error is not None
        assert error.kind == kind


def test_a_thousand_failed_files_are_named_and_all_are_counted() -> None:
    state = failed_job(5000, 2000)
    assert (len(state.failed_files), state.failed) == (1000, 2000)


@pytest.mark.parametrize(
    "key",
    [
        "TotalTransfers",
        "TransfersCompleted",
        "TransfersFailed",
        "TransfersSkipped",
        "TotalBytesTransferred",
        "BytesOverWire",
        "TotalBytesEnumerated",
    ],
)
def test_every_kind_of_progress_is_seen(key: str) -> None:
    state = JobState()
    say(state, "Progress", {key: "1"})
    before = state.signature
    say(state, "Progress", {key: "1"})
    assert state.signature == before
    say(state, "Progress", {key: "2"})
    assert state.signature != before


def test_scanning_is_over_once_all_transfers_are_ordered() -> None:
    state = JobState()
    assert state.scanning
    say(state, "Progress", {"CompleteJobOrdered": False})
    assert state.scanning
    say(state, "Progress", {"CompleteJobOrdered": True})
    assert not state.scanning


@pytest.mark.parametrize(("stuck", "named"), [(3, "It hangs on f0, f1, f2."), (4, "It hangs on f0, f1, f2, …")])
def test_a_stalled_copy_says_where_it_hangs(stuck: int, named: str) -> None:
    state = JobState(stuck=[f"f{number}" for number in range(stuck)])
    error = classify(state, -15, stopped="stalled")
    assert error is not None
    assert named in error.message
    assert "0 of an unknown number of files" in error.message


def test_a_copy_that_takes_too_long_is_told_from_one_that_hangs() -> None:
    error = classify(JobState(stuck=["f"]), -15, stopped="timeout")
    assert error is not None
    assert "not done within timeout_s" in error.message
    assert "hangs" not in error.message


def test_what_keeps_one_file_from_its_place_does_not_hide_that_the_copy_hangs() -> None:
    error = classify(failed_job(9, 1), -15, stopped="stalled", log_text=TRUNCATED)
    assert error is not None
    assert "made no progress" in error.message


@pytest.mark.parametrize("told", ["Init", "Progress", "EndOfJob"])
def test_a_job_keeps_the_number_that_it_was_told(told: str) -> None:
    state = JobState()
    say(state, told, {"JobID": "4711"})
    assert state.job_id == "4711"
    say(state, "Progress", {"TotalTransfers": "1"})
    assert state.job_id == "4711"


def test_words_of_the_scan_are_progress() -> None:
    """Before it knows any transfer AzCopy says only how many files it has found so far."""
    state = JobState()
    seen = set()
    for words in ("", "1 Files Scanned", "2 Files Scanned"):
        say(state, "Progress", words)
        seen.add(state.signature)
    assert len(seen) == 3
    assert not state.ended


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"ErrorCode": "404", "TransferStatus": "Failed"}, "404"),
        ({"TransferStatus": "BlobTierFailure"}, "BlobTierFailure"),
        ({}, ""),
    ],
)
def test_why_a_file_failed_is_its_error_code_or_its_status(entry: dict[str, str], code: str) -> None:
    state = JobState()
    say(state, "Progress", {"FailedTransfers": [{"Src": "https://a/c/x", **entry}, "no object"]})
    assert state.failed_files == {"https://a/c/x": code}


def test_an_empty_line_is_nothing() -> None:
    assert parse_line(b"  \n") is None


@pytest.mark.parametrize("words", ['{"MessageType": "Info"}', '{"MessageType": 7, "MessageContent": "x"}', "[1]", "7"])
def test_json_that_is_not_azcopys_is_text(words: str) -> None:
    event = parse_line(words)
    assert event is not None
    assert (event.type, event.text, event.content) == ("Text", words, {})


def test_content_that_only_begins_like_an_object_is_text() -> None:
    event = parse_line(json.dumps({"MessageType": "Info", "MessageContent": "{cut"}))
    assert event is not None
    assert (event.type, event.text, event.content) == ("Info", "{cut", {})


@pytest.mark.parametrize(("value", "expected"), [("12", 12), ("1.9", 1), (7, 7), (None, 0), ("many", 0), ([], 0)])
def test_what_is_no_number_counts_as_none(value: t.Any, expected: int) -> None:
    assert number(value) == expected


def test_before_its_first_message_a_job_has_done_nothing() -> None:
    state = JobState()
    assert counts(state) == ("", 0, 0, 0, 0, 0)
    assert (state.bytes_expected, state.ended, state.scanning, state.asked, state.job_id) == (0, False, True, False, "")


@pytest.mark.parametrize(("content", "scanning"), [({}, False), ({"CompleteJobOrdered": False}, True)])
def test_a_job_scans_until_azcopy_has_ordered_all_of_it(content: dict[str, t.Any], scanning: bool) -> None:
    state = JobState()
    say(state, "Progress", {"TotalTransfers": "1", **content})
    assert (state.scanning, state.ended) == (scanning, False)
    say(state, "EndOfJob", {"JobStatus": "Completed"})
    assert state.ended


@pytest.mark.parametrize(
    ("rc", "how"),
    [
        (-1, "was killed by signal 1 before"),
        (-9, "was killed by signal 9 before"),
        (-15, "was killed by signal 15 before"),
        (0, "ended with exit code 0 before"),
        (1, "ended with exit code 1 before"),
        (2, "ended with exit code 2 before"),
        (127, "ended with exit code 127 before"),
    ],
)
def test_an_end_without_a_word_is_told_by_how_it_ended(rc: int, how: str) -> None:
    error = classify(JobState(), rc)
    assert error is not None
    assert how in error.message
    assert error.message.endswith("it printed nothing")


def test_the_last_words_are_the_last_line_and_no_novel() -> None:
    state = JobState()
    for words in ("first", "second", "x" * 1000):
        say(state, "Info", words)
    error = classify(state, 1)
    assert error is not None
    assert error.message.endswith(f"its last words: {'x' * 300}")


@pytest.mark.parametrize("rc", [1, -9])
def test_an_exit_code_that_contradicts_the_end_of_the_job_is_an_error(rc: int) -> None:
    state = replay("ok.jsonl")
    assert classify(state, 0) is None
    assert classify(state, rc) is not None


@pytest.mark.parametrize("status", ["Failed", "Cancelled", "CompletedWithErrors", "CompletedWithErrorsAndSkipped"])
def test_a_job_that_failed_without_failed_transfers_counts_what_is_left(status: str) -> None:
    state = JobState()
    say(state, "EndOfJob", {"JobStatus": status, "TotalTransfers": "9", "TransfersCompleted": "2"})
    error = classify(state, 0)
    assert error is not None
    assert error.message == "7 of 9 transfers failed."
    assert "failed_files" not in error.details


@pytest.mark.parametrize(
    ("completed", "skipped", "size", "files", "size_expected", "kind"),
    [
        (0, 0, 0, None, None, "no_match"),
        (0, 0, 0, 0, None, None),
        (0, 0, 0, 3, None, "no_match"),
        (2, 0, 9, 3, None, "partial"),
        (2, 1, 9, 3, None, None),
        (0, 3, 9, 3, None, None),
        (4, 0, 9, 3, None, "changed_at_source"),
        (3, 1, 9, 3, None, "changed_at_source"),
        (3, 0, 9, 3, 9, None),
        (3, 0, 8, 3, 9, "changed_at_source"),
        (3, 0, 10, 3, 9, "changed_at_source"),
        (2, 1, 8, 3, 9, None),  # the bytes of what was skipped are not counted
        (1, 0, 1, None, None, None),
    ],
)
def test_counts_are_compared_with_what_was_expected(
    completed: int, skipped: int, size: int, files: int | None, size_expected: int | None, kind: str | None
) -> None:
    error = check_counts(
        completed=completed, skipped=skipped, size=size, expected_files=files, expected_bytes=size_expected
    )
    assert (error.kind if error else None) == kind


@pytest.mark.parametrize(
    ("stuck", "words"),
    [
        ([], "was stopped. 0 of an unknown number of files were copied."),
        (["a"], "were copied. It hangs on a."),
        (["a", "b", "c"], "It hangs on a, b, c."),
        (["a", "b", "c", "d"], "It hangs on a, b, c, …."),
    ],
)
def test_a_stalled_copy_names_what_it_hangs_on(stuck: list[str], words: str) -> None:
    state = JobState()
    state.stuck = stuck
    error = classify(state, -9, stopped="stalled")
    assert error is not None
    assert error.kind == "stalled"
    assert error.message.endswith(words)


@pytest.mark.parametrize(
    ("now", "kind"), [(0.0, "auth_failed"), (1893455999.0, "auth_failed"), (1893456000.0, "sas_expired")]
)
def test_a_refusal_is_the_end_of_the_sas_from_its_last_second_on(now: float, kind: str) -> None:
    sas = "sv=1&se=2030-01-01T00:00:00Z&sig=abcdefgh"
    error = find_cause("RESPONSE 403", sas=sas, now=now)
    assert error is not None
    assert error.kind == kind
    missing = find_cause("BlobNotFound", sas=sas, now=now)
    assert missing is not None
    assert missing.kind == "not_found", "an expired SAS is not why a blob is missing"
    without = find_cause("RESPONSE 403", now=now)
    assert without is not None
    assert without.kind == "auth_failed"


def test_only_files_are_planned() -> None:
    state = JobState()
    plan = {"Source": "https://a/c/x", "Destination": "/data/x", "SourceSize": "7", "ContentMD5": "abc="}
    for kind in ("Directory", "Folder", "Symlink", "File", None):
        say(state, "Dryrun", plan if kind is None else {**plan, "EntityType": kind})
    assert state.planned == [("https://a/c/x", "/data/x", 7, "abc=")] * 2
    assert state.signature == ("planned", 2)


def test_every_kind_of_progress_changes_the_signature() -> None:
    fields = ["TotalTransfers", "TransfersCompleted", "TransfersFailed", "TransfersSkipped"]
    fields += ["TotalBytesTransferred", "BytesOverWire", "TotalBytesEnumerated"]
    seen = set()
    for name in fields:
        state = JobState()
        say(state, "Progress", {name: "1"})
        seen.add(state.signature)
    assert len(seen) == len(fields)
