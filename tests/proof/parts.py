# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every scenario of a kind needs besides what it refers to, and what no scenario needs."""

from __future__ import annotations

import re
import typing as t


class Part(t.NamedTuple):
    """``files``: patterns; one that begins with ``!`` takes away. ``followed``: what the files refer to belongs to it."""

    files: tuple[str, ...]
    followed: bool = True


PARTS: dict[str, Part] = {
    # What runs the tests, whichever they are. bin/test names every scenario, so it is not followed.
    "environment": Part(
        ("requirements/**", "bin/_env.sh", "bin/test", "pyproject.toml", "meta/runtime.yml", "ansible.cfg"),
        followed=False,
    ),
    # A role's scenario runs on the lab of the scenario cluster, but not its playbook.
    "containers": Part(
        (
            ".config/molecule/**",
            "inventories/lab/**",
            "molecule/cluster/**",
            "!molecule/cluster/{converge,prepare,side_effect,verify}.yml",
            "!molecule/cluster/tests/**",
            "tests/lab/image/**",
            "tests/lab/compiled/**",
            "tests/lab/blob/*.json",
            "tests/lab/gpu_simulator/**",
        )
    ),
    "machines": Part(
        (
            ".config/molecule/**",
            "inventories/vm/**",
            "molecule/vm/{create,prepare,destroy}.yml",
            "tests/lab/vm/**",
            "tests/lab/compiled/**",
            "tests/lab/gpu_simulator/**",
        )
    ),
}
#: Every scenario has it.
EVERYWHERE = "environment"

#: For people, and for checks that run whatever has changed. A scenario has them only where it walks them.
TOLD_ONLY = (
    "**/*.md",
    "docs/**",
    "changelogs/**",
    "LICENSE",
    "CHANGELOG*",
    "galaxy.yml",
    ".gitignore",
    ".gitattributes",
    ".yamllint.yml",
    ".ansible-lint.yml",
    ".ci/**",
    "tests/sanity/**",
    "plugins/doc_fragments/**",
)
#: No scenario has it: every green run writes it.
LEDGER = "tests/proven.json"
#: Run by hand. A scenario has them only where it names them, or a directory among them.
BY_HAND = (
    "benchmarks/**",
    "requirements/mutation.txt",
    "bin/demo",
    "tests/lab/gpu_simulator/make_machines.py",
    "molecule/nvme_raid/**",
    "tests/lab/beegfs/**",
    "tests/scenarios/beegfs/**",
)
#: They count, but what they refer to does not. The image holds what the roles' install.yml brought, so that a role on the lab
#: need not download it again. A role installs it by itself where it is missing; whether an image can be made is what the
#: scenario cluster proves. Molecule's settings name the inventory of the container lab, which the VM lab replaces. Three programs
#: look at files as text, whatever is in them. The validation reads every role, and judges those that the play runs, which the
#: play names itself (tests/unit/roles/test_playbooks.py). gpu-bind's messages advise modules that it does not run.
NOT_FOLLOWED = (
    ".config/molecule/**",
    "plugins/plugin_utils/_role_files.py",
    "roles/numa_pinning/files/gpu-bind",
    "tests/import_closure.py",
    "tests/lab/image/build",
    "tests/lab/ready.py",
    "tests/scenarios/*/module_archive.py",
)
#: A program names it to import from it. What it imports is found there without that, and the rest is not meant.
SEARCHED = ("tests",)
#: So many things live in these that naming the directory does not mean all of it, where single files of it are named, too.
SHARED = ("plugins/module_utils", "plugins/modules", "plugins/plugin_utils", "tests/lab")


def expression(pattern: str) -> str:
    """A pattern as a regular expression: ``*`` within a directory, ``**/`` and ``/**`` over several, ``{a,b}``."""
    steps = [
        (r"\*\*/", r"(?:.*/)?"),
        (r"\*\*$", r".*"),
        (r"\*", r"[^/]*"),
        (r"\?", r"[^/]"),
        (r"\{[^}]*\}", ""),
    ]
    made = ""
    while pattern:
        for source, target in steps:
            found = re.match(source, pattern)
            if found:
                made += target or "(?:" + "|".join(map(re.escape, found[0][1:-1].split(","))) + ")"
                pattern = pattern[found.end() :]
                break
        else:
            made += re.escape(pattern[0])
            pattern = pattern[1:]
    return made


def matcher(patterns: t.Iterable[str]) -> t.Callable[[str], bool]:
    """Tells whether a path matches one of the patterns and none of those with ``!``."""
    given = list(patterns)
    wanted = re.compile("|".join(expression(one) for one in given if not one.startswith("!")) or r"(?!)")
    unwanted = re.compile("|".join(expression(one[1:]) for one in given if one.startswith("!")) or r"(?!)")
    return lambda path: bool(wanted.fullmatch(path)) and not unwanted.fullmatch(path)


__all__ = [
    "BY_HAND",
    "EVERYWHERE",
    "LEDGER",
    "NOT_FOLLOWED",
    "PARTS",
    "SEARCHED",
    "SHARED",
    "TOLD_ONLY",
    "Part",
    "expression",
    "matcher",
]
