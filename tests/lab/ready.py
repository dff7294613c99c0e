#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the container lab is as its last creation left it, in a second:
``ready.py [--note] STATE LABEL NODES MACHINE_TYPE MBIT``.

Prints "ready", or "no: " and the reason. ``--note`` writes down what a creation has left: what the lab was made from, what is
kept about it in the directory STATE, and its containers, found by LABEL, with when they started. Later the same must be found,
and every node be asked for its sshd, its simulated GPUs (MACHINE_TYPE) and its bandwidth limit (MBIT), for tests break those.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import pathlib
import subprocess
import sys
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from lab.bandwidth import Command, host_device, run, shape

NOTE = "ready.json"
#: Tokens of the storage accounts are renewed a day before they expire, by a creation that does all its steps.
NOTE_EXPIRES_S = 12 * 3600
#: What the lab is made from, beside its image, whose name says that by itself.
SOURCES = ("molecule/cluster", "tests/lab", "requirements", ".cache/blob/.stamp")
NOT_OF_THIS_LAB = ("tests/lab/vm/", "tests/lab/image/")


class Lab(t.NamedTuple):
    """What the command line says."""

    state: pathlib.Path
    label: str
    nodes: int
    machine_type: str
    mbit: int


def _files(root: pathlib.Path) -> t.Iterator[pathlib.Path]:
    for source in SOURCES:
        place = root / source
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            relative = str(path.relative_to(root))
            if path.is_file() and "__pycache__" not in relative and not relative.startswith(NOT_OF_THIS_LAB):
                yield path


def describe(lab: Lab, command: Command = run, root: pathlib.Path = ROOT) -> dict[str, t.Any]:
    """What has to stay the same: short texts by what they are about."""
    digest = hashlib.sha256()
    # Tests leave variables in the same directory.
    kept = [
        path for path in sorted(lab.state.iterdir()) if path.is_file() and not path.name.startswith(("test-", NOTE))
    ]
    for path in [*_files(root), *kept]:
        digest.update(f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    form = "{{.Names}} {{.ID}} {{.State}} {{.StartedAt}}"
    found = command(["podman", "ps", "--all", "--filter", f"label={lab.label}", "--format", form])
    return {
        "files": digest.hexdigest(),
        "image": command([str(root / "tests/lab/image/build"), "--name"]).strip(),
        "settings": [lab.nodes, lab.machine_type, lab.mbit],
        "machines": sorted(found.splitlines()),
    }


def ask_node(container: str, lab: Lab, command: Command) -> str:
    """Why a node is not right, or nothing."""
    install = f"python3 -B /opt/gpu_simulator/install.py --machine-type {lab.machine_type}"
    script = f"systemctl is-active --quiet ssh.service && {install}"
    if command(["podman", "exec", container, "sh", "-c", script]).strip() != "unchanged":
        return f"the simulated GPUs of {container} were gone"
    return (
        f"the limit of {container} was another one"
        if shape(["tc"], host_device(container, command), lab.mbit, command)
        else ""
    )


def ask_blob(container: str, command: Command) -> str:
    script = "systemctl is-active --quiet ssh.service && systemctl is-active --quiet azurite.service"
    command(["podman", "exec", container, "sh", "-c", script])
    return ""


def reason(
    lab: Lab, command: Command = run, root: pathlib.Path = ROOT, clock: t.Callable[[], float] = time.time
) -> str:
    """Why the lab has to be created once more, or nothing."""
    try:
        noted = json.loads((lab.state / NOTE).read_text())
        machines = json.loads((lab.state / "machines.json").read_text())
        if not 0 <= clock() - noted.pop("at") < NOTE_EXPIRES_S:
            return "it was looked at too long ago"
        now = describe(lab, command, root)
        different = [key for key in now if now[key] != noted.get(key)]
        if different:
            return f"something else than before: {', '.join(different)}"
        containers = {name: f"{machines['name']}-{name}" for name in machines["machines"]}
        with concurrent.futures.ThreadPoolExecutor(len(containers)) as pool:
            answers = [
                pool.submit(ask_blob, container, command)
                if name == "blob"
                else pool.submit(ask_node, container, lab, command)
                for name, container in containers.items()
            ]
            return next((answer.result() for answer in answers if answer.result()), "")
    except subprocess.CalledProcessError as exc:
        return f"{' '.join(exc.cmd)} ended with {exc.returncode}"
    except (OSError, ValueError, LookupError) as exc:
        return str(exc) or type(exc).__name__


def note(lab: Lab, command: Command = run, root: pathlib.Path = ROOT, clock: t.Callable[[], float] = time.time) -> None:
    (lab.state / NOTE).write_text(json.dumps({**describe(lab, command, root), "at": clock()}) + "\n")


def main(argv: list[str]) -> int:
    noting = argv[:1] == ["--note"]
    words = argv[1:] if noting else argv
    if len(words) != 5 or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    lab = Lab(pathlib.Path(words[0]), words[1], int(words[2]), words[3], int(words[4]))
    if noting:
        note(lab)
        return 0
    why = reason(lab)
    print(f"no: {why}" if why else "ready")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
