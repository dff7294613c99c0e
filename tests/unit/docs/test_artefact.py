# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive that users install has what they run and read, no more, and works with nothing beside it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PROGRAMS = pathlib.Path(sys.executable).parent
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
#: What ansible-galaxy adds, what it shows, and what Ansible looks for.
TOP = {"CHANGELOG.md", "FILES.json", "LICENSE", "MANIFEST.json", "README.md"}
TOP |= {"changelogs", "meta", "playbooks", "plugins", "roles"}


def ansible(program: str, *arguments: str, path: pathlib.Path) -> str:
    """What a program of Ansible prints, with the settings of somebody who has only the archive."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"ANSIBLE_COLLECTIONS_PATH": str(path), "ANSIBLE_HOME": str(path / "home")}
    done = subprocess.run(
        [PROGRAMS / program, *arguments], env=environment, cwd=path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A collections path that has this collection alone."""
    folder = tmp_path_factory.mktemp("collections")
    ansible("ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(folder), path=folder)
    (archive,) = folder.glob("*.tar.gz")
    ansible("ansible-galaxy", "collection", "install", str(archive), "--offline", "-p", str(folder), path=folder)
    return folder


@pytest.fixture(scope="module")
def installed(path: pathlib.Path) -> pathlib.Path:
    return path / "ansible_collections" / "hpcai" / "gpu_cluster"


@pytest.mark.slow
@pytest.mark.newest
def test_it_has_what_users_run_and_read(installed: pathlib.Path) -> None:
    assert {entry.name for entry in installed.iterdir()} == TOP


def test_it_has_no_hidden_file_and_nothing_that_was_made_here(installed: pathlib.Path) -> None:
    names = {part for file in installed.rglob("*") for part in file.relative_to(installed).parts}
    assert not [name for name in names if name.startswith(".") or name in ("__pycache__", "tests", "molecule")]


def test_every_link_leads_to_something_in_it(installed: pathlib.Path) -> None:
    pages = sorted(installed.rglob("*.md"))
    assert {installed / "README.md", *(installed / "roles" / role / "README.md" for role in ROLES)} <= set(pages)
    broken = [
        (str(page.relative_to(installed)), target)
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if not target.startswith("https://") and not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.slow
@pytest.mark.newest
def test_every_module_and_role_is_documented(path: pathlib.Path) -> None:
    names = [f"hpcai.gpu_cluster.{module}" for module in MODULES]
    assert sorted(json.loads(ansible("ansible-doc", "--json", *names, path=path))) == names
    roles = ansible("ansible-doc", "--type", "role", "--list", "--json", "hpcai.gpu_cluster", path=path)
    assert sorted(json.loads(roles)) == [f"hpcai.gpu_cluster.{role}" for role in ROLES]


@pytest.mark.slow
@pytest.mark.newest
def test_every_playbook_is_found_with_all_that_it_uses(path: pathlib.Path) -> None:
    names = [f"hpcai.gpu_cluster.{playbook}" for playbook in PLAYBOOKS]
    shown = ansible("ansible-playbook", "--syntax-check", "--inventory", "localhost,", *names, path=path)
    assert shown.count("playbook: ") == len(PLAYBOOKS)


def test_it_needs_no_other_collection(installed: pathlib.Path) -> None:
    """A syntax check looks at no task of a role that is included later, so this reads them all."""
    manifest = json.loads((installed / "MANIFEST.json").read_text())
    assert manifest["collection_info"]["dependencies"] == {}
    tasks = [*installed.glob("roles/*/*/*.yml"), *installed.glob("playbooks/**/*.yml")]
    used = {
        name
        for file in tasks
        for name in re.findall(r"^[ -]*([a-z_0-9]+\.[a-z_0-9]+)\.[a-z_0-9]+:", file.read_text(), flags=re.MULTILINE)
    }
    assert used == {"ansible.builtin", "hpcai.gpu_cluster"}
