# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The supervisor with small stand-in programs: what it does when AzCopy misbehaves in ways a server cannot cause."""

from __future__ import annotations

import dataclasses
import errno
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy import job as azcopy_job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy import probe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy import supervisor as azcopy_supervisor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.leftovers import sweep_leftovers
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import (
    CopyRequest,
    run_copies,
    run_copy,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import parse_blob_url
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

pytestmark = pytest.mark.oldest

SECRET = "s3cretSignature"


def stand_in(folder: pathlib.Path, body: str) -> str:
    """An executable that answers --version like AzCopy and then runs ``body``."""
    path = folder / "azcopy"
    head = f"#!{sys.executable}\nimport json, os, signal, sys, time\n"
    version = "if sys.argv[1:] == ['--version']:\n    print('azcopy version 10.32.2')\n    sys.exit()\n"
    say = (
        "def say(kind, content):\n"
        "    print(json.dumps({'MessageType': kind, 'MessageContent': content}), flush=True)\n"
        "def end(**more):\n"
        "    say('EndOfJob', json.dumps({'JobStatus': 'Completed', 'TotalTransfers': '1', 'TransfersCompleted': '1', **more}))\n"
    )
    path.write_text(head + version + say + textwrap.dedent(body), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def request(azcopy: str, folder: pathlib.Path) -> CopyRequest:
    return CopyRequest(azcopy, "http://127.0.0.1:9/acc/data", str(folder / "out"), sas=f"sv=1&sig={SECRET}")


@pytest.mark.slow
@pytest.mark.newest
def test_stdin_stays_open_and_is_no_terminal(tmp_path: pathlib.Path) -> None:
    azcopy = stand_in(
        tmp_path,
        """
        import select
        readable = select.select([0], [], [], 1.0)[0]
        say('Info', 'at end of file' if readable else 'open')
        end(TransfersCompleted='0' if readable else '1')
        """,
    )
    outcome = run_copy(request(azcopy, tmp_path), preflight=False)
    assert outcome.error is None
    assert outcome.completed == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stall", "timeout", "stop"])
def test_a_program_that_ignores_sigterm_is_killed_with_its_children(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for module in (azcopy_job, azcopy_supervisor):
        monkeypatch.setattr(module, "TERM_GRACE_S", 0.5)
    azcopy = stand_in(
        tmp_path,
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = os.fork()
        if child:
            open({str(tmp_path / "pids.new")!r}, 'w').write(f'{{os.getpid()}} {{child}}')
            os.rename({str(tmp_path / "pids.new")!r}, {str(tmp_path / "pids")!r})
        for _ in range(1200):
            time.sleep(0.2)
        open({str(tmp_path / "survived")!r}, 'w').close()
        """,
    )
    for patience_s in (2, 10, 50):  # on a busy machine the program may be ended before it ignores anything
        outcome = run_copy(
            request(azcopy, tmp_path),
            preflight=False,
            stall_timeout_s=patience_s if how == "stall" else 0,
            timeout_s=patience_s if how == "timeout" else 0,
            should_stop=(tmp_path / "pids").exists if how == "stop" else None,
        )
        if (tmp_path / "pids").exists():
            break
    assert not (tmp_path / "survived").exists()
    assert outcome.error is not None
    # The endpoint of this test is dead, which is the better explanation of a stall.
    assert outcome.error.kind == {"stall": "unreachable", "timeout": "unreachable", "stop": "cancelled"}[how]
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        assert (
            not pathlib.Path(f"/proc/{pid}/cmdline").exists() or not pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        )


@pytest.fixture
def undying(tmp_path: pathlib.Path) -> t.Iterator[str]:
    """A program that nothing ends for its parent, as one that waits for a dead disk: it is traced, and its tracer never looks."""
    held = tmp_path / "held"
    yield stand_in(
        tmp_path,
        f"""
        import ctypes
        library = ctypes.CDLL(None, use_errno=True)
        library.prctl(0x59616D61, -1, 0, 0, 0)  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
        parent = os.getpid()
        if not os.fork():
            os.setsid()
            refused = library.ptrace(0x4206, parent, None, None)  # PTRACE_SEIZE
            open({str(tmp_path / "held.new")!r}, 'w').write(f'{{os.getpid()}} {{refused}}')
            os.rename({str(tmp_path / "held.new")!r}, {str(held)!r})
        time.sleep(600)
        """,
    )
    tracer, refused = held.read_text().split()
    assert refused == "0", "this machine lets nobody trace"
    os.kill(int(tracer), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("how", ["stop", "complete"])
def test_a_program_that_not_even_sigkill_ends_is_left_behind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, undying: str, how: str
) -> None:
    for module in (azcopy_job, azcopy_supervisor):
        monkeypatch.setattr(module, "TERM_GRACE_S", 0.5)
    held = (tmp_path / "held").exists
    outcome = run_copies(
        [request(undying, tmp_path)],
        preflight=False,
        stall_timeout_s=0,
        should_stop=held if how == "stop" else None,
        is_complete=held if how == "complete" else None,
    )
    if how == "complete":
        assert outcome.error is None, "what was wanted is there"
        return
    assert outcome.error is not None
    assert outcome.error.kind == "stuck"
    assert str(tmp_path / "out") in outcome.error.remedy


def test_a_copy_that_is_complete_does_not_wait_for_azcopy(tmp_path: pathlib.Path) -> None:
    """Who checks the files himself ends AzCopy as soon as the last one is there; its plan goes with it."""
    azcopy = stand_in(
        tmp_path,
        f"""
        say('Init', json.dumps({{'JobID': 'mine', 'LogFileLocation': ''}}))
        open({str(tmp_path / "mine--00000.steV20")!r}, 'w').close()
        open({str(tmp_path / "out" / "file")!r}, 'w').close()
        time.sleep(240)
        open({str(tmp_path / "waited")!r}, 'w').close()
        """,
    )
    outcome = run_copies(
        [dataclasses.replace(request(azcopy, tmp_path), plan_dir=str(tmp_path))],
        preflight=False,
        is_complete=(tmp_path / "out" / "file").exists,
    )
    assert not (tmp_path / "waited").exists()
    assert (outcome.error, outcome.status) == (None, "Completed")
    assert not list(tmp_path.glob("mine--*"))


def test_leftovers_of_a_killed_job_are_swept_and_those_of_others_stay(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out" / "sub"
    out.mkdir(parents=True)
    (out / ".azDownload-other-x").write_bytes(b"")
    azcopy = stand_in(
        tmp_path,
        f"""
        say('Init', json.dumps({{'JobID': 'mine', 'LogFileLocation': ''}}))
        open({str(out / ".azDownload-mine-x")!r}, 'w').close()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    outcome = run_copy(request(azcopy, tmp_path), preflight=False)
    assert outcome.error is not None
    assert outcome.error.kind == "azcopy_crashed"
    assert "signal 9" in outcome.error.message
    assert [path.name for path in out.iterdir()] == [".azDownload-other-x"]
    assert sweep_leftovers(str(tmp_path / "out")) == 1


def test_a_plan_left_by_a_killed_run_of_ours_betrays_its_leftovers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "dead--00000.steV20").write_bytes(b"")
    (tmp_path / "out" / ".azDownload-dead-x").write_bytes(b"")
    azcopy = stand_in(tmp_path, "end()")
    copying = request(azcopy, tmp_path)
    outcome = run_copy(
        CopyRequest(copying.azcopy, copying.source, copying.destination, copying.sas, plan_dir=str(tmp_path / "plan")),
        preflight=False,
    )
    assert outcome.error is None
    assert list((tmp_path / "out").iterdir()) == []


def test_a_temporary_directory_that_cannot_be_used_is_an_outcome(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "away"))
    outcome = run_copy(request(stand_in(tmp_path, "end()"), tmp_path), preflight=False)
    assert outcome.error is not None
    assert outcome.error.kind == "bad_input"
    assert str(tmp_path / "away") in outcome.error.message


def test_azcopy_dies_with_its_supervisor(tmp_path: pathlib.Path) -> None:
    azcopy = stand_in(tmp_path, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    script = (
        "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.run import *\n"
        f"run_copy(CopyRequest({azcopy!r}, 'http://127.0.0.1:9/acc/data', {str(tmp_path / 'out')!r}), preflight=False)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    supervisor = subprocess.Popen([sys.executable, "-c", script], env=environment)
    deadline = time.monotonic() + 240
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    supervisor.kill()
    supervisor.wait()
    stat = pathlib.Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    while stat.exists() and ") Z " not in stat.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not stat.exists() or ") Z " in stat.read_text()


def test_no_secret_in_anything_that_comes_back(tmp_path: pathlib.Path) -> None:
    azcopy = stand_in(tmp_path, "say('Error', 'RESPONSE 403 ' + ' '.join(sys.argv))\nprint(sys.argv)\nsys.exit(1)")
    outcome = run_copy(request(azcopy, tmp_path), preflight=False)
    assert outcome.error is not None
    assert outcome.log_tail
    assert SECRET not in repr(outcome) + str(outcome.error) + str(outcome.error.as_result()) + str(outcome.log_tail)


LIBRARY = "#!/bin/sh\necho 'azcopy: error while loading shared libraries: libc.so.6: {}' >&2\nexit 127\n"


@pytest.mark.parametrize(
    ("content", "mode", "kind", "words"),
    [
        (None, 0, "azcopy_missing", "is not at"),
        ("#!/bin/sh\necho azcopy version 10.32.2\n", 0o644, "azcopy_unsuitable", "not executable"),
        ("\x7fELF\x02\x01\x01 not a program", 0o755, "azcopy_unsuitable", "not a program for this machine"),
        ("#!/no/such/loader\n", 0o755, "azcopy_unsuitable", "loader"),
        (
            "#!/bin/sh\necho 'azcopy: error while loading shared libraries: libsecret-1.so.0: cannot open' >&2\nexit 127\n",
            0o755,
            "azcopy_unsuitable",
            "libsecret-1-0",
        ),
        ("#!/bin/sh\necho azcopy version 10.10.0\n", 0o755, "azcopy_unsuitable", "too old"),
        ("#!/bin/sh\necho 'panic: no luck' >&2\nexit 2\n", 0o755, "azcopy_crashed", "panic: no luck"),
        ("#!/bin/sh\nkill -9 $$\n", 0o755, "azcopy_crashed", "killed by signal 9"),
        # A shell that wraps AzCopy has another status for the same, and a library in C crashes without a panic.
        ("#!/bin/sh\nsh -c 'kill -9 $$'\nexit $?\n", 0o755, "azcopy_crashed", "killed by signal 9"),
        (
            "#!/bin/sh\necho 'SIGSEGV: segmentation violation' >&2\nexit 2\n",
            0o755,
            "azcopy_crashed",
            "crashed: SIGSEGV",
        ),
        # A library that is there, and cannot be read or mapped now.
        (LIBRARY.format("cannot open shared object file: Input/output error"), 0o755, "io", "file system"),
        (LIBRARY.format("cannot open shared object file: Stale file handle"), 0o755, "io", "file system"),
        (LIBRARY.format("failed to map segment from shared object"), 0o755, "azcopy_crashed", "failed to map"),
        (
            LIBRARY.format("cannot open shared object file: No such file or directory"),
            0o755,
            "azcopy_unsuitable",
            "missing",
        ),
        ("#!/bin/sh\nexit 2\n", 0o755, "azcopy_unsuitable", "ended with 2"),
        ("#!/bin/sh\necho hello\n", 0o755, "azcopy_unsuitable", "hello"),
    ],
)
def test_probe_names_what_is_wrong(
    tmp_path: pathlib.Path, content: str | None, mode: int, kind: str, words: str
) -> None:
    if content is not None:
        (tmp_path / "azcopy").write_bytes(content.encode("latin-1"))
        (tmp_path / "azcopy").chmod(mode)
    with pytest.raises(ClusterError, match=words) as caught:
        probe.probe(str(tmp_path / "azcopy"))
    assert caught.value.kind == kind


def test_a_missing_program_is_named_without_the_option_that_it_came_by() -> None:
    """dataset_collect does not see which of the role's variables became `azcopy`."""
    with pytest.raises(ClusterError) as caught:
        probe.probe("/nowhere/azcopy")
    assert caught.value.kind == "azcopy_missing"
    assert "`" not in caught.value.remedy


@pytest.mark.parametrize("start", ["probe", "copy"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.EAGAIN, "io"), (errno.ENOMEM, "io"), (errno.ECOMM, "io"), (errno.EPERM, "azcopy_unsuitable")],
)
def test_a_node_that_cannot_start_a_program_now_may_do_so_later(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, start: str, code: int, kind: str
) -> None:
    azcopy = stand_in(tmp_path, "end()")

    def fail(*_arguments: t.Any, **_options: t.Any) -> t.NoReturn:
        raise OSError(code, os.strerror(code))

    if start == "copy":
        probe.probe(azcopy)
    monkeypatch.setattr(subprocess, "Popen", fail)
    outcome = run_copy(request(azcopy, tmp_path), preflight=False)
    assert outcome.error is not None
    assert outcome.error.kind == kind
    assert os.strerror(code) in outcome.error.message


def test_a_program_on_a_file_system_that_fails_is_not_missing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: t.Any, **_options: t.Any) -> t.NoReturn:
        raise OSError(errno.ECOMM, os.strerror(errno.ECOMM))

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fail)
        with pytest.raises(ClusterError) as caught:
            probe.probe(str(tmp_path / "azcopy"))
    assert caught.value.kind == "io"


def test_a_program_that_does_not_answer_may_do_so_later(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_PROBE_TIMEOUT_S", 0.1)
    (tmp_path / "azcopy").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "azcopy").chmod(0o755)
    with pytest.raises(ClusterError, match="did not answer") as caught:
        probe.probe(str(tmp_path / "azcopy"))
    assert caught.value.kind == "io"


def test_a_program_that_crashed_once_is_probed_again(tmp_path: pathlib.Path) -> None:
    crash = f"[ -e {tmp_path}/again ] || {{ touch {tmp_path}/again; echo 'fatal error: no luck' >&2; exit 2; }}"
    (tmp_path / "azcopy").write_text(f"#!/bin/sh\n{crash}\necho azcopy version 10.32.2\n")
    (tmp_path / "azcopy").chmod(0o755)
    with pytest.raises(ClusterError, match="no luck"):
        probe.probe(str(tmp_path / "azcopy"))
    assert probe.probe(str(tmp_path / "azcopy")).version == "10.32.2"


def test_probe_warns_of_untested_versions_and_runs_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "azcopy").write_text(f"#!/bin/sh\necho x >> {tmp_path}/runs\necho azcopy version 10.33.1-beta\n")
    (tmp_path / "azcopy").chmod(0o755)
    for _ in range(3):
        probed = probe.probe(str(tmp_path / "azcopy"))
    assert (probed.version, len(probed.warnings)) == ("10.33.1-beta", 1)
    assert (tmp_path / "runs").read_text() == "x\n"


@pytest.mark.slow
@pytest.mark.newest
def test_a_silent_or_dead_endpoint_is_found() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(ClusterError, match="timeout") as caught:
            probe.check_reachable(parse_blob_url(f"http://127.0.0.1:{port}/acc/data"), timeout_s=1)
        assert caught.value.kind == "unreachable"
    with pytest.raises(ClusterError, match="refused"):
        probe.check_reachable(parse_blob_url(f"http://127.0.0.1:{port}/acc/data"), timeout_s=1)


def test_behind_a_proxy_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    probe.check_reachable(parse_blob_url("http://203.0.113.1:10000/acc/data"), timeout_s=1)
