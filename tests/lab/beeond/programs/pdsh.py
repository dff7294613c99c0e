# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pdsh, as far as BeeOND calls it: -R ssh, -S, -w HOSTS, -f FANOUT, -u SECONDS, and %h in the command (pdsh's manual page)."""

from __future__ import annotations

import subprocess
import sys
import threading
import typing as t

import options
import remote

FANOUT = 32


def main(arguments: t.Sequence[str]) -> int:
    given: dict[str, str] = {}
    words = list(arguments)
    used = 0
    for option, value in options.read(words, "R:Sw:f:u:t:", "pdsh"):
        if option == "?":
            return 1
        given[option] = value
        used += 1 if option == "S" else 2
    hosts = [host for host in given.get("w", "").split(",") if host]
    command = " ".join(words[used:])
    gate = threading.BoundedSemaphore(int(given.get("f") or FANOUT))
    codes: list[int] = []

    def one(host: str) -> None:
        with gate:
            argv = [*remote.SSH, host, command.replace("%h", host)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            for stream, text in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
                for line in text.splitlines():
                    print(f"{host}: {line}", file=stream, flush=True)
            if done.returncode:
                print(f"pdsh@double: {host}: ssh exited with exit code {done.returncode}", file=sys.stderr, flush=True)
            codes.append(done.returncode)

    threads = [threading.Thread(target=one, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(codes, default=0) if "S" in given else 0
