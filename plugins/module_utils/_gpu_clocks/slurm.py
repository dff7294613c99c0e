# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Whether Slurm runs the scripts that set the clocks of jobs: by what the controller says, else by the slurm.conf of the node."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.request import Scripts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node import nvidia_smi

#: Where slurmd keeps the controller's files when it has none of its own ("configless").
_CACHED = "/run/slurm/conf/slurm.conf"
#: ``Prolog = /x`` of scontrol; ``Prolog[0] = /x`` since it takes several. ``(null)`` is none.
_SHOWN = re.compile(r"^(Prolog|Epilog)(?:\[\d+\])?[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
#: In slurm.conf, where keys have any case, several may be on a line, and others end alike (TaskProlog).
_WRITTEN = re.compile(r"(?<!\w)(Prolog|Epilog)[ \t]*=[ \t]*(\"[^\"]*\"|\S+)", re.IGNORECASE)
_INCLUDE = re.compile(r"^[ \t]*include[ \t]+\S", re.IGNORECASE | re.MULTILINE)
#: How a site's own script may call the program itself.
_CALLS = {"prolog": "gpu-clocks begin", "epilog": "gpu-clocks end"}
#: What is larger is no script.
_SCRIPT_BYTES = 1 << 20
Values = dict[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Named:
    """What is run before and after jobs. ``source`` says by whose word; empty, nobody's, and ``trouble`` says why. ``partial``: more
    may be written elsewhere."""

    source: str
    values: Values
    trouble: str = ""
    partial: bool = False


def _by_key(pairs: t.Iterable[tuple[str, str]]) -> Values:
    found: dict[str, list[str]] = {"prolog": [], "epilog": []}
    for key, value in pairs:
        found[key.lower()] += [value] if value not in ("", "(null)") else []
    return {key: tuple(values) for key, values in found.items()}


def parse_shown(text: str) -> Values:
    """``prolog`` and ``epilog`` of what ``scontrol show config`` prints."""
    return _by_key(_SHOWN.findall(text))


def parse_written(text: str) -> tuple[Values, bool]:
    """``prolog`` and ``epilog`` of a slurm.conf, and whether it includes other files."""
    lines = [line.partition("#")[0] for line in text.replace("\\\n", " ").splitlines()]
    plain = "\n".join(lines)
    return _by_key((key, value.strip('"')) for key, value in _WRITTEN.findall(plain)), bool(_INCLUDE.search(plain))


def ask(scripts: Scripts) -> Named:
    """What the controller says, else what is written on the node."""
    run = nvidia_smi.call(scripts.scontrol, ["show", "config"], scripts.timeout_s)
    if run.rc == 0:
        return Named("scontrol show config", parse_shown(run.stdout))
    said = next((line for line in (run.stderr + run.stdout).splitlines() if line.strip()), f"exit status {run.rc}")
    trouble = f"scontrol did not answer within {scripts.timeout_s:g} s" if run.timed_out else f"scontrol says: {said}"
    trouble = "scontrol is not in the path" if run.missing else trouble
    for path in (scripts.slurm_conf, _CACHED):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                values, partial = parse_written(file.read())
        except FileNotFoundError:
            continue
        return Named(path, values, partial=partial)
    return Named("", {}, f"{trouble}, and {scripts.slurm_conf} is not there")


def _says(path: str, words: t.Iterable[str]) -> bool:
    """Whether a script on this node has one of these words in it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_SCRIPT_BYTES)
    except OSError:
        return False
    return any(word in text for word in words)


def runs(kind: str, script: str, values: t.Iterable[str]) -> bool:
    """Whether one of the values, each a path or a pattern of paths, is the script, a link to it, or a script that does the same.

    ``kind`` is ``prolog`` or ``epilog``.
    """
    paths = [path for value in values for path in glob.glob(value) or [value]]
    real = os.path.realpath(script)
    return any(os.path.realpath(path) == real or _says(path, (script, _CALLS[kind])) for path in paths)


def check(scripts: Scripts) -> str:
    """Raise ``not_as_wanted`` where Slurm runs something else; return what could not be found out, "" if all is well."""
    named = ask(scripts)
    write = f"Prolog={scripts.prolog} and Epilog={scripts.epilog}"
    if not named.source:
        return (
            f"Jobs are to set the clocks, but whether Slurm runs the scripts for it is not known: {named.trouble}. Without Slurm only "
            f"job_begin and job_end set the clocks of jobs; with it, write {write} into slurm.conf."
        )
    missing = [
        f"{key.capitalize()} is {', '.join(named.values[key]) or 'not set'}"
        for key, script in (("prolog", scripts.prolog), ("epilog", scripts.epilog))
        if not runs(key, script, named.values[key])
    ]
    if not missing:
        return ""
    if named.partial:
        return f"{named.source} includes other files, which were not read; in itself {', and '.join(missing)}."
    raise ClusterError(
        "not_as_wanted",
        f"Slurm does not run the scripts that set the clocks of jobs: {', and '.join(missing)} ({named.source}).",
        f"Write {write} into slurm.conf, or link both into the directories that it names, and run scontrol reconfigure.",
    )


__all__ = ["Named", "ask", "check", "parse_shown", "parse_written", "runs"]
