# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules on a node, each in a process of its own that begins with all imports done.

Under emulation a Python that starts and imports what a module needs takes seconds; a copy of one that has done so takes none. The
one that is copied never runs a module, so that each finds what a fresh one would. ``NODE_SIDE`` is this file's other half.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
import typing as t

# A program for a node: reads a line of JSON for each module, its full name and what its standard input is, and answers with a line,
# its exit status, output and errors.
NODE_SIDE = """
import atexit, importlib, json, os, runpy, sys, tempfile, traceback

def become(module, files):
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))
    sys.modules.pop(module, None)
    status = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

def answer(module, given):
    try:
        importlib.import_module(module)
    except Exception:
        pass  # the copy says why
    files = [tempfile.TemporaryFile() for _number in range(3)]
    files[0].write(given.encode())
    files[0].seek(0)
    child = os.fork()
    if not child:
        become(module, files)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for file in files[1:]:
        file.seek(0)
        texts.append(file.read().decode(errors="replace"))
    return {"rc": status, "stdout": texts[0], "stderr": texts[1]}

sys.path.insert(0, sys.argv.pop(1))
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(answer(**json.loads(line))), flush=True)
"""


class RunnerEnded(Exception):  # noqa: N818 - it is no error where it has not begun
    """The process on the node has ended, or did not answer in time. ``rc`` is its exit status, None for one that was killed."""

    def __init__(self, rc: int | None, said: str) -> None:
        super().__init__(said)
        self.rc = rc


class Answer(t.NamedTuple):
    """How a module ended."""

    rc: int
    stdout: str
    stderr: str


class ModuleRunner:
    """The process on a node, started with ``argv``, which runs NODE_SIDE there."""

    def __init__(self, argv: t.Sequence[str], timeout_s: float = 300) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the process runs
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        self._rest = b""
        self._line(timeout_s)

    def run(self, module: str, given: str, timeout_s: float) -> Answer:
        """Run a module by its full name with this standard input. Raises RunnerEnded where no answer came."""
        line = json.dumps({"module": module, "given": given}).encode() + b"\n"
        try:
            self._write(line)
        except BrokenPipeError:
            raise self._ended(kill=True) from None
        return Answer(**json.loads(self._line(timeout_s)))

    def lost(self) -> bool:
        """Whether the process has ended, as with its node."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _write(self, data: bytes) -> None:
        stream = t.cast("t.IO[bytes]", self._process.stdin)
        stream.write(data)
        stream.flush()

    def _line(self, timeout_s: float) -> bytes:
        """The next line that the process prints."""
        handle = t.cast("t.IO[bytes]", self._process.stdout).fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if not select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise self._ended(kill=True)
            data = os.read(handle, 1 << 16)
            if not data:
                raise self._ended(kill=False)
            self._rest += data
        line, _newline, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self, *, kill: bool) -> RunnerEnded:
        if kill:
            self._process.kill()
        rc = self._process.wait()
        self._errors.seek(0)
        return RunnerEnded(
            None if kill else rc, self._errors.read().decode(errors="replace").strip() or "no answer came"
        )


__all__ = ["NODE_SIDE", "Answer", "ModuleRunner", "RunnerEnded"]
