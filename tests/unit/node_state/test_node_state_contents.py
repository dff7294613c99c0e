# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the content of files comes from: a role's files and templates, as ansible-playbook finds and decrypts them."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import types
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _programs
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._file_contents import Sources

ROOT = pathlib.Path(__file__).parents[3]
PROGRAMS = pathlib.Path(sys.executable).parent
THINGS = {"things": {"list": [1], "gone": 3}, "template_path": "not of the play"}
BINARY = b"\x7fELF\x00\xff\xfe"


class Play:
    """A playbook with one role, ``tool``, which is played on this machine."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.made = folder, folder / "made"
        for name in ("files", "templates", "roles/tool/files", "roles/tool/templates", "roles/tool/tasks", "made"):
            (folder / name).mkdir(parents=True)
        (folder / "password").write_text("word\n")

    def role(self, name: str, content: str | bytes, *, vaulted: bool = False) -> None:
        path = self.folder / "roles" / "tool" / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if vaulted:
            command = [PROGRAMS / "ansible-vault", "encrypt", "--vault-password-file", self.folder / "password", path]
            subprocess.run(command, check=True, capture_output=True)
            assert path.read_text().startswith("$ANSIBLE_VAULT")

    def run(self, *tasks: dict[str, t.Any], **options: t.Any) -> subprocess.CompletedProcess[str]:
        """Play these tasks of node_state in the role."""
        owner = {"owner": str(os.geteuid()), "group": str(os.getegid())}
        for task in tasks:
            for item in task.get("files", []):
                item.update(owner)
        named = [{"hpcai.gpu_cluster.node_state": task, **options} for task in tasks]
        (self.folder / "roles/tool/tasks/main.yml").write_text(yaml.safe_dump(named))
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["tool"]}
        (self.folder / "play.yml").write_text(yaml.safe_dump([{**play, "vars": {"word": "of the play", **THINGS}}]))
        return subprocess.run(
            [
                PROGRAMS / "ansible-playbook",
                *("--diff", "-vvv", "--vault-password-file", self.folder / "password"),
                *("-e", f"ansible_python_interpreter={sys.executable}"),
                self.folder / "play.yml",
            ],
            cwd=self.folder,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def play(tmp_path: pathlib.Path) -> Play:
    return Play(tmp_path)


@pytest.mark.slow
@pytest.mark.newest
def test_files_and_templates_of_a_role_are_found_rendered_and_decrypted(play: Play) -> None:
    """One play for all: starting ansible-playbook is what takes the time."""
    play.role("files/plain", "as it is: {{ word }}\n\n")
    play.role("files/binary", BINARY)
    play.role("files/big", "many lines\n" * 1000)
    play.role("files/secret", "vaulted word\n", vaulted=True)
    (play.folder / "files" / "beside").write_text("beside the play\n")
    play.role("templates/part.j2", "[{{ own }}]")
    play.role("templates/t.j2", "# {{ ansible_managed }}\n{{ word }} {% include 'part.j2' %}\n", vaulted=True)
    play.role("templates/number.j2", "{{ 5 }}")
    play.role("templates/change.j2", "{{ things.list.append(2) }}{{ things.pop('gone') }}{{ things.list }}")
    play.role("templates/changed.j2", "{{ things.list }}{{ things.gone }} {{ template_path | basename }}")
    task = {
        "files": [
            {"path": f"{play.made}/plain", "src": "plain"},
            {"path": f"{play.made}/binary", "src": "binary"},
            {"path": f"{play.made}/secret", "src": "secret", "sensitive": True},
            {"path": f"{play.made}/beside", "src": "beside"},
            {"path": f"{play.made}/t", "template": "t.j2", "template_vars": {"own": "of the item"}},
            {"path": f"{play.made}/number", "template": "number.j2"},
            {"path": f"{play.made}/change", "template": "change.j2"},
            {"path": f"{play.made}/changed", "template": "changed.j2"},
            {"path": f"{play.made}/off", "template": "none.j2", "when": False},
            {"path": f"{play.made}/big", "src": "big"},
            {"path": f"{play.made}/gpu-clocks", "program": "gpu-clocks"},
            {"path": f"{play.made}/other", "program": "gpu-clocks", "interpreter": "/opt/python"},
        ]
    }
    done = play.run(task, copy.deepcopy(task))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name: path.read_bytes() for path in play.made.iterdir()} == {
        "plain": b"as it is: {{ word }}\n\n",
        "binary": BINARY,
        "secret": b"vaulted word\n",
        "beside": b"beside the play\n",
        "t": b"# Ansible managed\nof the play [of the item]\n",
        "number": b"5",
        # What a template does to variables ends with it.
        "change": b"3[1, 2]",
        "changed": b"[1]3 changed.j2",
        "big": b"many lines\n" * 1000,
        "gpu-clocks": _programs.build("gpu-clocks", sys.executable),
        "other": _programs.build("gpu-clocks", "/opt/python"),
    }
    assert "vaulted word" not in done.stdout + done.stderr
    assert "of the play [of the item]" in done.stdout
    assert "sha256: " in done.stdout
    assert "changed=1 " in done.stdout


LACKING: list[tuple[dict[str, t.Any], str]] = [
    ({"src": "none"}, "The `src` of /made/f is not on the controller."),
    ({"template": "none.j2"}, "The `template` of /made/f is not on the controller."),
    ({"src": "../files"}, "is a directory"),
    ({"template": "undefined.j2"}, "nobody_defined_it"),
    ({"program": "none"}, "The `program` of /made/f: There is no program 'none'."),
]


@pytest.mark.slow
@pytest.mark.newest
def test_what_the_controller_lacks_is_told_before_the_node_is_touched(play: Play) -> None:
    """One play for all: every task fails by itself, and none makes the file that it could make."""
    play.role("templates/undefined.j2", "{{ nobody_defined_it }}")
    good = {"path": f"{play.made}/good", "content": "x"}
    tasks = [{"files": [good, {"path": f"{play.made}/f", **item}]} for item, _says in LACKING]
    done = play.run(*copy.deepcopy(tasks), ignore_errors=True)
    assert re.search(rf"changed=0 .* ignored={len(LACKING)}\b", done.stdout), done.stdout
    told = re.split(r"^TASK \[", done.stdout, flags=re.MULTILINE)[-len(LACKING) :]
    for (_item, says), output in zip(LACKING, told):
        said = json.dumps(output.replace("\n", " "))
        assert says.replace("/made", str(play.made)) in said, said
    assert list(play.made.iterdir()) == []


@pytest.mark.slow
@pytest.mark.newest
def test_the_defaults_of_a_play_reach_apt_by_its_short_name(play: Play) -> None:
    """apt refuses these two together before it does anything: a refusal shows that it got the default."""
    done = play.run({"packages": ["no-such-package-at-all"]}, module_defaults={"apt": {"deb": "/none.deb"}})
    assert done.returncode == 2
    assert "parameters are mutually exclusive: deb|package" in done.stdout


FOUND = {"discovered_interpreter_python": "/usr/bin/python3.11"}


@pytest.mark.parametrize(
    ("variables", "delegate", "configured", "interpreter"),
    [
        ({"ansible_facts": {}}, None, "auto", "/usr/bin/python3.9"),
        ({"ansible_facts": {}, "ansible_connection": "none"}, None, "auto", "/usr/bin/python3"),
        ({"ansible_python_interpreter": "/opt/python"}, None, "auto", "/opt/python"),
        ({"ansible_python_interpreter": "/opt/python", "ansible_facts": FOUND}, None, "auto", "/opt/python"),
        ({"ansible_python_interpreter": "auto_silent", "ansible_facts": {}}, None, "auto", "/usr/bin/python3.9"),
        ({"ansible_python_interpreter": "auto", "ansible_facts": FOUND}, None, "auto", "/usr/bin/python3.11"),
        ({"ansible_facts": FOUND}, None, "auto", "/usr/bin/python3.11"),
        (
            {
                "ansible_python_interpreter": "/opt/python",
                "ansible_delegated_vars": {"other": {"ansible_python_interpreter": "/opt/other"}},
            },
            "other",
            "auto",
            "/opt/other",
        ),
        # Without a variable, what the environment or ansible.cfg names: no ping for it, and nothing that was found before.
        ({"ansible_facts": {}}, None, "/opt/configured", "/opt/configured"),
        ({"ansible_facts": FOUND}, None, "/opt/configured", "/opt/configured"),
        ({"ansible_python_interpreter": "/opt/python"}, None, "/opt/configured", "/opt/python"),
        (
            {"ansible_python_interpreter": "auto", "ansible_facts": FOUND},
            None,
            "/opt/configured",
            "/usr/bin/python3.11",
        ),
        ({"ansible_delegated_vars": {"other": {"ansible_facts": {}}}}, "other", "/opt/configured", "/opt/configured"),
        # A path that only begins as the name of a mode does.
        ({"ansible_python_interpreter": "autopython", "ansible_facts": FOUND}, None, "auto", "autopython"),
    ],
)
def test_a_program_is_for_the_python_of_the_play(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, t.Any],
    delegate: str | None,
    configured: str,
    interpreter: str,
) -> None:
    monkeypatch.setenv("ANSIBLE_PYTHON_INTERPRETER", configured)

    def ping(name: str, *, module_args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> None:
        """Ansible looks for Python with its first module, if it reaches the node."""
        assert (name, module_args, configured) == ("ansible.builtin.ping", {}, "auto")
        if "ansible_connection" not in task_vars:
            task_vars["ansible_facts"].setdefault("discovered_interpreter_python", "/usr/bin/python3.9")

    action: t.Any = types.SimpleNamespace(
        _execute_module=ping,
        _task=types.SimpleNamespace(delegate_to=delegate),
        _templar=types.SimpleNamespace(template=lambda value: value),
    )
    assert Sources(action, variables).interpreter() == interpreter
