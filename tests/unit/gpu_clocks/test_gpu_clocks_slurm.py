# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Slurm runs the scripts of jobs, by programs in scontrol's place that print what it prints, and by real files.

What scontrol prints: 22.05 has one line for each key, newer ones number the values. The real one of 22.05 is asked in
tests/scenarios/vm/test_slurm.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_clocks.slurm import parse_shown, parse_written
from unit.gpu_clocks.simulated import Node

pytestmark = pytest.mark.oldest

SHOWN = """\
Configuration data as of 2026-11-22T12:00:00
EpilogMsgTime           = 2000 usec
{epilog}
PrologEpilogTimeout     = 65534
PrologFlags             = Alloc
{prolog}
SrunProlog              = (null)
TaskProlog              = /etc/slurm/task.sh

Slurmctld(primary) at node-0 is UP
"""


class Slurm:
    """A node with GPUs at their highest clocks, the two scripts, and what stands for Slurm."""

    def __init__(self, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
        self.node, self.root, self._capsys = node, node.root, capsys
        self.scripts = {name: str(self.root / f"lib/slurm-{name}.sh") for name in ("prolog", "epilog")}
        (self.root / "lib").mkdir()
        for (name, path), word in zip(self.scripts.items(), ("begin", "end")):
            Path(path).write_text(f"#!/bin/sh\n/usr/local/sbin/gpu-clocks {word} --job $SLURM_JOB_ID # {name}\n")

    def scontrol(self, program: str) -> None:
        path = self.root / "scontrol"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)

    def shows(self, prolog: str, epilog: str) -> None:
        (self.root / "shown").write_text(SHOWN.format(prolog=prolog, epilog=epilog))
        self.scontrol(f'[ "$*" = "show config" ] && cat {self.root}/shown')

    def writes(self, text: str) -> None:
        (self.root / "slurm.conf").write_text(text)

    def warned(self, result: dict[str, Any], *words: str) -> bool:
        """Whether the module warned of something with these words, which the screen may break anywhere.

        Warnings are in the result, or on the screen where something has imported the controller's half of Ansible. Those of other
        tests may be among them, but not with this test's directory.
        """
        told = "".join(f"{result.get('warnings', '')} {self._capsys.readouterr().err}".split())
        return all("".join(word.split()) in told for word in (str(self.root), *words))

    def verify(self, **options: Any) -> dict[str, Any]:
        where = {"scontrol": str(self.root / "scontrol"), "slurm_conf": str(self.root / "slurm.conf")}
        return self.node.module(state="verified", **where, **self.scripts, **options)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Slurm:
    node = Node(tmp_path, monkeypatch)
    node.install()
    assert not node.module()["failed"]
    return Slurm(node, capsys)


@pytest.mark.newest
@pytest.mark.parametrize("number", ["", "[0]"])
def test_both_scripts_are_run_by_what_the_controller_says(slurm: Slurm, number: str) -> None:
    prolog, epilog = slurm.scripts.values()
    slurm.writes("Prolog=/etc/slurm/other.sh\n")
    slurm.shows(f"Prolog{number:<18} = {prolog}", f"Epilog{number:<18} = {epilog}")
    result = slurm.verify()
    assert (result["failed"], result["changed"], slurm.warned(result)) == (False, False, False)


@pytest.mark.parametrize(
    ("prolog", "epilog", "words"),
    [
        ("Prolog = (null)", "Epilog = {epilog}", "Prolog is not set (scontrol"),
        ("Prolog = {prolog}", "Epilog = (null)", "Epilog is not set (scontrol"),
        ("Prolog = /etc/slurm/own.sh", "Epilog = (null)", "Prolog is /etc/slurm/own.sh, and Epilog is not set"),
        # Exchanged: begin would never be called.
        ("Prolog = {epilog}", "Epilog = {prolog}", "Prolog is {epilog}, and Epilog is {prolog}"),
        # Not ours, whatever they end with.
        ("TaskProlog = {prolog}", "EpilogSlurmctld = {epilog}", "Prolog is not set, and Epilog is not set"),
    ],
)
def test_what_slurm_does_not_run_is_named_with_the_next_step(
    slurm: Slurm, prolog: str, epilog: str, words: str
) -> None:
    slurm.shows(prolog.format(**slurm.scripts), epilog.format(**slurm.scripts))
    result = slurm.verify()
    assert result["error_kind"] == "not_as_wanted"
    assert words.format(**slurm.scripts) in result["msg"]
    assert (
        f"Write Prolog={slurm.scripts['prolog']} and Epilog={slurm.scripts['epilog']} into slurm.conf"
        in result["remedy"]
    )


@pytest.mark.newest
def test_links_patterns_and_a_site_s_own_script_are_fine(slurm: Slurm) -> None:
    own = slurm.root / "prolog.d"
    own.mkdir()
    (own / "50-clocks").symlink_to(slurm.scripts["prolog"])
    (own / "10-other").write_text("#!/bin/sh\nexit 0\n")
    (slurm.root / "epilog.sh").write_text(
        '#!/bin/sh\numount /scratch\n/usr/local/sbin/gpu-clocks end --job "$SLURM_JOB_ID"\n'
    )
    slurm.shows(f"Prolog[0] = {own}/*", f"Epilog[0] = /nothing.sh\nEpilog[1] = {slurm.root}/epilog.sh")
    assert not slurm.verify()["failed"]
    (own / "50-clocks").unlink()
    assert f"Prolog is {own}/*" in slurm.verify()["msg"]


@pytest.mark.slow
@pytest.mark.newest
def test_without_a_controller_the_node_s_slurm_conf_counts(slurm: Slurm) -> None:
    slurm.scontrol("echo 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    prolog, epilog = slurm.scripts.values()
    slurm.writes(f"# Prolog=/old\nprolog={prolog}\nEPILOG = \\\n {epilog} # ours\nTaskProlog=/x\n")
    assert not slurm.verify()["failed"]
    slurm.writes(f"PrologFlags=Alloc Prolog={prolog}\n#Epilog={epilog}\n")
    result = slurm.verify()
    assert (result["error_kind"], f"Epilog is not set ({slurm.root}/slurm.conf)" in result["msg"]) == (
        "not_as_wanted",
        True,
    )
    # What another file says is not known.
    slurm.writes(f"Prolog={prolog}\nInclude /etc/slurm/scripts.conf\n")
    result = slurm.verify()
    assert (result["failed"], slurm.warned(result, "includes other files")) == (False, True)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (None, "scontrol is not in the path"),
        ("echo 'fatal: Could not establish a configuration source' >&2; exit 1", "scontrol says: fatal: Could not"),
        ("exit 3", "scontrol says: exit status 3"),
        ("sleep 60", "scontrol did not answer within 1 s"),
    ],
)
def test_a_node_without_slurm_is_told_what_is_missing(slurm: Slurm, program: str | None, words: str) -> None:
    if program:
        slurm.scontrol(program)
    result = slurm.verify(timeout_s=1 if program == "sleep 60" else 30)
    assert not result["failed"], result
    step = f"write Prolog={slurm.scripts['prolog']}"
    assert slurm.warned(result, words, f"{slurm.root}/slurm.conf is not there", step), result


def test_nobody_is_asked_where_jobs_do_not_set_clocks(slurm: Slurm) -> None:
    slurm.scontrol("touch $(dirname $0)/asked; exit 1")
    slurm.scripts = {}
    assert not slurm.verify()["failed"]
    assert not (slurm.root / "asked").exists()


def test_what_scontrol_and_slurm_conf_look_like() -> None:
    assert parse_shown("Prolog[0]               = /a/*\nProlog[1] = /b c\nEpilog = (null)\n") == {
        "prolog": ("/a/*", "/b c"),
        "epilog": (),
    }
    text = 'Prolog="/a b.sh" Epilog=/c\nPrologSlurmctld=/d\nEpilogMsgTime=5\n'
    assert parse_written(text) == ({"prolog": ("/a b.sh",), "epilog": ("/c",)}, False)
