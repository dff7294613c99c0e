# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab counts as ready only while everything that a creation would mend is as it was left."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest
from lab import ready

AT = 1_000_000.0


class Podman:
    """Answers of a lab with one node, by the words of the command."""

    def __init__(self) -> None:
        self.answers = {
            "build --name": "image:1\n",
            "podman ps": "lab-gpu-1 2 running 20\nlab-blob 1 running 10\n",
            "gpu_simulator": "unchanged\n",
            "azurite.service": "",
            "iflink": "7\n",
            "ip -json": '[{"ifindex": 7, "ifname": "veth7"}]',
            "tc -json": "[]",
        }
        self.broken = ""

    def __call__(self, argv: list[str]) -> str:
        text = " ".join(argv)
        if self.broken and self.broken in text:
            raise subprocess.CalledProcessError(3, argv)
        return next(answer for words, answer in self.answers.items() if words in text)


@pytest.fixture
def podman() -> Podman:
    return Podman()


@pytest.fixture
def lab(tmp_path: pathlib.Path, podman: Podman) -> ready.Lab:
    state = tmp_path / ".cache/lab"
    for path, text in {
        "molecule/cluster/create.yml": "create",
        "tests/lab/vm/qemu.py": "another lab",
        "requirements/test.txt": "ansible",
        ".cache/lab/known_hosts": "key",
        ".cache/lab/machines.json": json.dumps(
            {"name": "lab", "machines": {"blob": "127.0.0.2", "gpu-1": "127.0.0.3"}}
        ),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    made = ready.Lab(state, "label=lab", 1, "ND96", 0)
    ready.note(made, podman, tmp_path, lambda: AT)
    return made


def ask(lab: ready.Lab, podman: Podman, after_s: float = 60) -> str:
    return ready.reason(lab, podman, lab.state.parents[1], lambda: AT + after_s)


def test_a_lab_that_nobody_touched_is_ready(lab: ready.Lab, podman: Podman) -> None:
    (lab.state / "test-1-2.json").write_text("variables of a test")
    (lab.state.parents[1] / "tests/lab/vm/qemu.py").write_text("changed")
    assert ask(lab, podman) == ""


@pytest.mark.parametrize(
    ("words", "answer", "fragment"),
    [
        ("podman ps", "lab-gpu-1 2 running 21\nlab-blob 1 running 10\n", "machines"),
        ("podman ps", "lab-gpu-1 2 exited 20\nlab-blob 1 running 10\n", "machines"),
        ("podman ps", "lab-blob 1 running 10\n", "machines"),
        ("build --name", "image:2\n", "image"),
        ("gpu_simulator", "installed\n", "GPUs of lab-gpu-1"),
        ("tc -json", '[{"kind": "tbf", "options": {"rate": 1250000}}]', "limit of lab-gpu-1"),
        ("iflink", "8\n", "No device"),
    ],
)
def test_what_became_of_the_machines_is_noticed(
    lab: ready.Lab, podman: Podman, words: str, answer: str, fragment: str
) -> None:
    podman.answers = {"qdisc del": "", **podman.answers, words: answer}
    assert fragment in ask(lab, podman)


@pytest.mark.parametrize("broken", ["azurite.service", "gpu_simulator", "podman ps"])
def test_a_machine_that_does_not_answer_is_noticed(lab: ready.Lab, podman: Podman, broken: str) -> None:
    podman.broken = broken
    assert "ended with 3" in ask(lab, podman)


@pytest.mark.parametrize("path", ["molecule/cluster/create.yml", "requirements/test.txt", ".cache/lab/known_hosts"])
@pytest.mark.parametrize("change", [lambda path: path.write_text("other"), lambda path: path.unlink()])
def test_a_file_that_the_lab_is_made_from_is_noticed(
    lab: ready.Lab, podman: Podman, path: str, change: t.Callable[[pathlib.Path], None]
) -> None:
    change(lab.state.parents[1] / path)
    assert ask(lab, podman) == "something else than before: files"


@pytest.mark.parametrize("field", [{"nodes": 2}, {"machine_type": "ND40"}, {"mbit": 100}])
def test_another_lab_that_was_asked_for_is_noticed(lab: ready.Lab, podman: Podman, field: dict[str, t.Any]) -> None:
    assert ask(lab._replace(**field), podman) == "something else than before: settings"


def test_a_note_that_is_old_or_missing_is_none(lab: ready.Lab, podman: Podman) -> None:
    assert "too long ago" in ask(lab, podman, 86_400)
    assert "too long ago" in ask(lab, podman, -60)
    (lab.state / "ready.json").unlink()
    assert "ready.json" in ask(lab, podman)
