# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A SAS pasted with its URL, as the portal gives it: refused, and in nobody's log or result."""

from __future__ import annotations

import inspect
import json
import typing as t

import pytest
from ansible.module_utils import basic
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan, dataset_stage, dataset_upload
from module_run import print_main

URL = "https://account.blob.core.windows.net/cosmoflow"
SECRET = "U0VDUkVUc2VjcmV0U0VDUkVUc2VjcmV0"
SAS = f"sv=2023-11-03&se=2030-01-01&sr=c&sp=rl&sig={SECRET}%3D"

# Newer versions of ansible-core leave the invocation out unless -vvv asks for it, older ones do not know the question.
ASKS = "_ansible_inject_invocation"
VERBOSE = {ASKS: True} if ASKS in inspect.getsource(basic) else {}

Run = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Run]:
    """Run a module's main; nothing that it printed or logged may hold the secret."""
    seen: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "log", lambda _module, *args, **kwargs: seen.append(repr((args, kwargs))))

    def work(module: t.Any, url: str, **options: t.Any) -> dict[str, t.Any]:
        where = {"url": url, "sas": options.pop("sas", "")}
        arguments = {"sources": [where], "destination": "/nowhere/data"} if module is not dataset_upload else where
        output = print_main(module.main, {**arguments, **options, **VERBOSE})
        seen.append(output)
        return t.cast(dict[str, t.Any], json.loads(output))

    yield work
    assert SECRET not in "".join(seen)


MODULES = {
    "plan": (dataset_plan, {"hosts": ["gpu-1"], "mount_point": "/nowhere"}),
    "stage": (dataset_stage, {"run": "", "rank": 0, "host": "gpu-1"}),
    "upload": (dataset_upload, {"source": "/nowhere/source"}),
}


@pytest.mark.parametrize(
    "tail",
    [
        f"?{SAS}",
        f"/?{SAS}",
        f"?comp=list&Sig={SECRET}",
        f"#{SAS}",
        f"%3Fsv%3D2023-11-03%26sig%3D{SECRET}",
    ],
    ids=["portal", "slash", "no token", "fragment", "encoded"],
)
@pytest.mark.parametrize("name", MODULES)
def test_a_sas_in_the_url_is_refused_and_hidden(run: Run, name: str, tail: str) -> None:
    module, options = MODULES[name]
    result = run(module, URL + tail, **options)
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert f"`{URL}" in result["msg"]
    assert "`sas`" in result["remedy"]


@pytest.mark.parametrize("name", MODULES)
def test_a_sas_in_its_place_is_hidden_and_the_url_is_not(run: Run, name: str) -> None:
    module, options = MODULES[name]
    result = run(module, URL, sas=SAS, **options)
    assert URL in json.dumps(result["invocation"])


def test_a_question_mark_in_a_name_is_no_query(run: Run) -> None:
    assert "failed" not in run(dataset_stage, f"{URL}/what%3F", run="", rank=0, host="gpu-1")
