# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A SAS pasted with its URL, as the portal gives it: refused, and in nobody's log or result."""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml
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
        where = {"url": url, "sas": options.pop("sas", ""), "prefix": options.pop("prefix", "")}
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
        f"/{SAS}",
        f"/train/{SAS}",
        f"/sig={SECRET}&sv=2023-11-03",
        f"%2Fsv%3D2023-11-03%26sig%3D{SECRET}",
        f"%253Fsv%253D2023-11-03%2526sig%253D{SECRET}",
        f"&{SAS}",
        f"sig={SECRET}&se=2030-01-01",
    ],
    ids=[
        *("portal", "slash", "no token", "fragment", "encoded", "path", "deeper", "signature first", "encoded path"),
        *("encoded twice", "no question mark", "nothing between"),
    ],
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


@pytest.mark.parametrize("name", MODULES)
def test_a_sas_in_the_prefix_is_refused_and_hidden(run: Run, name: str) -> None:
    module, options = MODULES[name]
    result = run(module, URL, prefix=f"train?{SAS}", **options)
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert f"`{URL}`" in result["msg"]
    assert "`sas`" in result["remedy"]


@pytest.mark.parametrize("path", ["what%3F", "sig=7/sign=3", "design=1/model=2", "train/se=1/sp=2", "a&b/c;d=e"])
def test_what_only_looks_like_a_token_is_a_name(run: Run, path: str) -> None:
    assert "failed" not in run(dataset_stage, f"{URL}/{path}", prefix=path, run="", rank=0, host="gpu-1")


@pytest.mark.slow
@pytest.mark.newest
def test_a_play_refuses_it_before_anything_reaches_the_node(tmp_path: pathlib.Path) -> None:
    """One play for all of them: starting ansible-playbook is what takes the time."""
    sources = [{"url": URL}, {"url": f"{URL}/{SAS}"}]
    known = {"url": f"{URL}/{SAS}", "sources": sources, "answer": json.dumps(sources)}
    (tmp_path / "known.json").write_text(json.dumps(known), encoding="utf-8")  # Ansible quotes tasks that fail
    whole = {"destination": "/nowhere/data", "sources": "{{ sources }}"}
    calls: list[dict[str, t.Any]] = [
        {"hpcai.gpu_cluster.dataset_plan": {**whole, "hosts": ["gpu-1"]}},
        {
            "hpcai.gpu_cluster.dataset_stage": {
                **whole,
                "sources": "{{ answer }}",
                "run": "r",
                "rank": 0,
                "host": "gpu-1",
            },
            "async": 60,
            "poll": 0,
        },
        {"hpcai.gpu_cluster.dataset_upload": {"url": "{{ url }}", "source": "/nowhere/source"}},
    ]
    judged = {"ansible.builtin.assert": {"that": "ansible_failed_result.error_kind == 'bad_input'"}}
    blocks = [{"block": [call], "rescue": [judged]} for call in calls]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": blocks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    root, tmp = pathlib.Path(__file__).parents[3], tmp_path / "tmp"
    kept = {"ANSIBLE_REMOTE_TMP": str(tmp), "ANSIBLE_ASYNC_DIR": str(tmp), "ANSIBLE_KEEP_REMOTE_FILES": "1"}
    ran = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / "ansible-playbook",
            tmp_path / "play.yml",
            "-vvv",
            "-e",
            f"@{tmp_path}/known.json",
        ],
        cwd=root,
        env={**os.environ, "ANSIBLE_CONFIG": str(root / "ansible.cfg"), **kept},
        capture_output=True,
        text=True,
        check=False,
    )
    output = ran.stdout + ran.stderr
    assert ran.returncode == 0, output
    assert output.count("holds a SAS") >= len(calls)
    assert SECRET not in output
    assert not tmp.exists(), "no module was sent"


def test_a_question_mark_in_a_name_is_no_query(run: Run) -> None:
    assert "failed" not in run(dataset_stage, f"{URL}/what%3F", run="", rank=0, host="gpu-1")
