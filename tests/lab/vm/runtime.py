# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running nodes: their QEMU processes, and how to reach what runs in them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

from . import keep, qemu
from .qmp import QmpError, execute
from .state import LabError, Paths, machine

# A boot takes 60 s under emulation, and 100 s where two cores boot both nodes.
STUCK_BOOT_S = 300.0
# Under emulation there is time for one that got stuck, and another one.
BOOT_TIMEOUT_S = {"kvm": 90.0, "tcg": 600.0}
SHUTDOWN_TIMEOUT_S = 180.0
QUIT_TIMEOUT_S = 20.0


def pid(paths: Paths, lab: dict[str, t.Any], node: str) -> int | None:
    """The process of a node that runs; a number that now belongs to something else does not count."""
    try:
        number = int((paths.node(node) / "pid").read_text())
        words = pathlib.Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return number if machine(lab, node).process_name.encode() in words else None


def power_on(paths: Paths, lab: dict[str, t.Any], node: str) -> None:
    """Start a node's QEMU and what keeps it; returns when it is there, long before the guest is."""
    directory = paths.node(node)
    if not pathlib.Path(lab["image"]).is_dir():
        raise LabError(f"The image that {node} was made from is gone; machine.py up makes the lab anew")
    (directory / "qmp.sock").unlink(missing_ok=True)
    limits = [str(lab["nodes"][node]["ssh_port"]), f"{STUCK_BOOT_S:.0f}"]
    with (directory / "qemu.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, keep.__file__, *limits, *qemu.argv(machine(lab, node), lab["accelerator"])],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (directory / "pid").write_text(f"{process.pid}\n")
    deadline = time.monotonic() + 60
    while True:
        if process.poll() is not None:
            raise LabError(f"{node}: QEMU ended with {process.returncode}: {_tail(directory / 'qemu.log')}")
        with contextlib.suppress(QmpError):
            execute(directory / "qmp.sock", "query-status")
            return
        if time.monotonic() > deadline:
            raise LabError(f"{node}: QEMU started but does not answer; see {directory / 'qemu.log'}")
        time.sleep(0.1)


def power_off(paths: Paths, lab: dict[str, t.Any], node: str, clean: bool = False) -> None:
    """Cut the power: what the guest had only in its memory is lost. With ``clean``, press the power button and wait."""
    number = pid(paths, lab, node)
    if number is None:
        return
    wait_s = SHUTDOWN_TIMEOUT_S if clean else QUIT_TIMEOUT_S
    with contextlib.suppress(QmpError):
        # "quit" leaves the guest no say, but lets QEMU write down what its own caches hold of the root disk's image.
        execute(paths.node(node) / "qmp.sock", "system_powerdown" if clean else "quit")
    if _gone(paths, lab, node, wait_s):
        return
    if clean:
        raise LabError(f"{node} did not shut down within {wait_s:.0f} s; cut its power with power-off without --clean")
    os.killpg(number, signal.SIGKILL)
    if not _gone(paths, lab, node, 10):
        raise LabError(f"{node}: QEMU (process {number}) does not end")


def wait(paths: Paths, lab: dict[str, t.Any], node: str, timeout_s: float = 0) -> None:
    """Return when the node has booted: sshd answers, systemd has nothing left to start, and the disks are there.

    Under emulation the NVMe disks appear after everything else, as they do on a machine with many of them.
    """
    timeout_s = timeout_s or BOOT_TIMEOUT_S[lab["accelerator"]]
    deadline = time.monotonic() + timeout_s
    while not greets(lab, node):
        if pid(paths, lab, node) is None:
            raise LabError(f"{node}: QEMU ended while it booted: {_tail(paths.node(node) / 'qemu.log')}")
        if time.monotonic() > deadline:
            raise LabError(
                f"{node} did not boot within {timeout_s:.0f} s. The last it said: {_tail(paths.node(node) / 'console.log')}"
            )
        time.sleep(0.5)
    try:
        done = subprocess.run(
            ssh_argv(paths, lab, node, "systemctl is-system-running --wait; udevadm settle --timeout=120"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=max(deadline - time.monotonic(), 60),
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise LabError(
            f"{node} answers, but its boot does not end; `systemctl list-jobs` there says what it waits for"
        ) from exc
    if done.returncode == 255:
        raise LabError(f"{node}: ssh fails: {done.stderr.strip()}")


def ssh_argv(paths: Paths, lab: dict[str, t.Any], node: str, *argv: str, control_path: str = "none") -> list[str]:
    """The command that runs another one on a node. ssh hands a shell the words with blanks between: quote as for one.

    Calls with the same ``control_path`` share a connection, which ends with the machine.
    """
    options = [
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={paths.known_hosts}",
        "GlobalKnownHostsFile=/dev/null",
        "IdentitiesOnly=yes",
        "BatchMode=yes",
        "LogLevel=ERROR",
        "ConnectTimeout=120",
        f"ControlPath={control_path}",
        *([] if control_path == "none" else ["ControlMaster=auto", "ControlPersist=60s"]),
    ]
    words = [word for option in options for word in ("-o", option)]
    port = str(lab["nodes"][node]["ssh_port"])
    return ["ssh", "-F", "none", "-i", str(paths.key), "-p", port, *words, "root@127.0.0.1", *argv]


def _gone(paths: Paths, lab: dict[str, t.Any], node: str, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while pid(paths, lab, node) is not None:
        if time.monotonic() > deadline:
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.05)
    (paths.node(node) / "pid").unlink(missing_ok=True)
    return True


def greets(lab: dict[str, t.Any], node: str) -> bool:
    """Whether a node's sshd says its name."""
    return keep.greets(lab["nodes"][node]["ssh_port"])


def last_words(paths: Paths, lab: dict[str, t.Any], node: str) -> str:
    """What is known of a node that does not answer: whether QEMU runs it, and the end of what the guest and QEMU said."""
    directory = paths.node(node)
    runs = "runs" if pid(paths, lab, node) else "has ended"
    console, log = (_tail(directory / name, lines=30) for name in ("console.log", "qemu.log"))
    return f"{node}: QEMU {runs}.\nThe guest's console:\n{console}\nQEMU:\n{log}"


def _tail(path: pathlib.Path, lines: int = 5) -> str:
    try:
        text = path.read_text(errors="replace").strip().splitlines()[-lines:]
    except FileNotFoundError:
        return f"{path} does not exist"
    return "\n".join(text) or f"{path} is empty"


__all__ = ["greets", "last_words", "pid", "power_off", "power_on", "ssh_argv", "wait"]
