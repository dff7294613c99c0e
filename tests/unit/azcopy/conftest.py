# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One Azurite per worker, and the module run as Ansible runs it."""

from __future__ import annotations

import itertools
import json
import typing as t

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.modules import azcopy_copy
from lab.blob.service import Azurite, azcopy_path, azurite
from module_run import print_main

_NUMBERS = itertools.count(1)

RunModule = t.Callable[..., dict[str, t.Any]]


@pytest.fixture(scope="session")
def blobs() -> t.Iterator[Azurite]:
    with azurite() as server:
        yield server


@pytest.fixture
def container(blobs: Azurite) -> str:
    """The name of a fresh, empty container."""
    name = f"case{next(_NUMBERS)}"
    blobs.create_container(name)
    return name


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the module warns of. Ansible itself collects the warnings of all tests of a process."""
    found: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, text: found.append(text))
    return found


@pytest.fixture
def run_module(blobs: Azurite, tmp_path_factory: pytest.TempPathFactory) -> RunModule:
    """Run the module with these options and return its JSON; ``check=True`` is check mode."""
    log_dir = tmp_path_factory.mktemp("azcopy-log")

    def run(*, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        options.setdefault("sas", blobs.sas())
        options.setdefault("azcopy", azcopy_path())
        options.setdefault("log_dir", str(log_dir))
        output = print_main(azcopy_copy.main, {**options, "_ansible_check_mode": check})
        assert "sig=" not in output.replace("sig=REDACTED", "")
        return t.cast(dict[str, t.Any], json.loads(output))

    return run
