# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documented default in Azure: no SAS, the machine's identity, TLS. Real modules and AzCopy on a machine like one there."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.identity import ManagedIdentity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from lab.blob.azure_node import AzureNode, NoNamespaceError
from lab.blob.listed import list_blobs
from lab.blob.service import ROOT, ToolMissingError, azcopy_path

pytestmark = [pytest.mark.slow, pytest.mark.blob]

CLIENT = "11111111-1111-1111-1111-111111111111"
FILES = {f"train/f_{number:02d}.bin": f"content of {number}".encode() * 1000 for number in range(12)}
# Starting a module included, on a busy machine; what takes this long hangs.
SOON_S = 200


@pytest.fixture(scope="module")
def azure() -> t.Iterator[AzureNode]:
    try:
        with AzureNode() as node:
            node.blobs.create_container("data")
            for name, content in FILES.items():
                node.blobs.put("data", f"{name}.gz", gzip.compress(content, mtime=0), encoding="gzip")
            yield node
    except (NoNamespaceError, ToolMissingError) as exc:
        pytest.skip(str(exc))


class Machine:
    """The node, its modules, and a directory that everything of a test is in."""

    def __init__(self, node: AzureNode, directory: pathlib.Path) -> None:
        self.node = node
        self.imds = node.imds
        self.directory = directory
        self.destination = directory / "dataset"
        self.environment: dict[str, str] = {}
        self.outputs: list[str] = []
        self.seconds = 0.0
        self.sources = [{"url": node.blobs.url("data"), "prefix": "train"}]

    def run(self, argv: list[str], **options: t.Any) -> subprocess.CompletedProcess[str]:
        began = time.monotonic()
        done = self.node.run(argv, timeout=290, **options)
        self.seconds = time.monotonic() - began
        self.outputs.append(done.stdout + done.stderr)
        return done

    def module(self, name: str, *, trusting: bool = True, **arguments: t.Any) -> dict[str, t.Any]:
        path = self.directory / "arguments.json"
        path.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
        module = f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{name}"
        environment = {"PYTHONPATH": str(ROOT / ".venv/collections"), "LC_ALL": "C.UTF-8", **self.environment}
        done = self.run([sys.executable, "-m", module, str(path)], trusting=trusting, env=environment)
        return t.cast("dict[str, t.Any]", json.loads(done.stdout.strip().splitlines()[-1]))

    def plan(self, **options: t.Any) -> dict[str, t.Any]:
        return self.module(
            "dataset_plan",
            **{
                "destination": str(self.destination),
                "sources": self.sources,
                "hosts": ["gpu-1"],
                "decompress": True,
                **options,
            },
        )

    def stage(self, run: str, **options: t.Any) -> dict[str, t.Any]:
        return self.module(
            "dataset_stage",
            **{
                "destination": str(self.destination),
                "sources": self.sources,
                "run": run,
                "rank": 0,
                "host": "gpu-1",
                "azcopy": azcopy_path(),
                "log_path": str(self.directory / "log"),
                "stall_timeout_s": 240,
                "timeout_s": 270,
                **options,
            },
        )

    def files(self) -> dict[str, bytes]:
        return {
            f"train/{path.relative_to(self.destination)}": path.read_bytes()
            for path in self.destination.rglob("*")
            if path.is_file() and ".staging" not in path.parts
        }

    def users(self) -> set[str]:
        """Who asked for tokens: us, AzCopy, or both."""
        return {"azcopy" if "azidentity" in call.user_agent else "ours" for call in self.imds.calls}

    def assert_no_token_is_left(self) -> None:
        assert self.imds.tokens
        secrets = re.compile("|".join(token.split(".")[1] for token in self.imds.tokens))
        for text in self.outputs:
            assert not secrets.search(text)
        for path in self.directory.rglob("*"):
            if path.is_file():
                assert not secrets.search(path.read_bytes().decode("utf-8", "replace")), path


@pytest.fixture
def machine(azure: AzureNode, tmp_path: pathlib.Path) -> t.Iterator[Machine]:
    azure.imds.reset()
    made = Machine(azure, tmp_path)
    yield made
    made.assert_no_token_is_left()


def assert_refused(machine: Machine, result: dict[str, t.Any], kind: str, *fragments: str) -> None:
    assert (result.get("failed"), result.get("error_kind")) == (True, kind), result
    for fragment in fragments:
        assert fragment in result["msg"]
    assert machine.seconds < SOON_S


def test_the_role_stages_a_dataset_and_a_second_run_copies_nothing(machine: Machine) -> None:
    variables = {
        "dataset_staging_sources": machine.sources,
        "dataset_staging_destination": str(machine.destination),
        "dataset_staging_decompress": True,
        "dataset_staging_azcopy_source": "preinstalled",
        "dataset_staging_azcopy_path": azcopy_path(),
        "dataset_staging_log_path": str(machine.directory / "log"),
        "dataset_staging_verify_content": True,
        "ansible_python_interpreter": sys.executable,
        "ansible_async_dir": str(machine.directory / "async"),
        "ansible_remote_tmp": str(machine.directory / "remote"),
    }
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables,
             "roles": ["hpcai.gpu_cluster.dataset_staging"]}]  # fmt: skip
    (machine.directory / "play.yml").write_text(json.dumps(play))
    argv = ["ansible-playbook", "-vvv", "-i", "localhost,", str(machine.directory / "play.yml"),
            "--tags", "dataset_staging_configure,dataset_staging_verify"]  # fmt: skip
    environment = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCAL_TEMP": str(machine.directory / "local"),
        "ANSIBLE_LOG_PATH": str(machine.directory / "play.log"),
        "ANSIBLE_KEEP_REMOTE_FILES": "1",  # the arguments of the modules stay to be searched
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    first = machine.run(argv, env=environment)
    assert first.returncode == 0, first.stdout[-3000:]
    assert machine.files() == FILES
    assert machine.users() == {"ours", "azcopy"}
    machine.imds.calls.clear()
    second = machine.run(argv, env=environment)
    assert second.returncode == 0, second.stdout[-3000:]
    assert "changed=0" in second.stdout
    assert machine.users() == {"ours"}
    assert len((machine.directory / "play.log").read_text()) > 5000


def test_a_user_assigned_identity(machine: Machine) -> None:
    machine.imds.system_assigned = False
    machine.imds.user_assigned = [CLIENT, CLIENT.replace("1", "2")]
    plan = machine.plan(identity_client_id=CLIENT)
    assert machine.stage(plan["run"], identity_client_id=CLIENT)["files"] == len(FILES)
    assert machine.files() == FILES
    assert machine.users() == {"ours", "azcopy"}
    assert {call.query.get("client_id") for call in machine.imds.calls} == {CLIENT}
    assert machine.plan(identity_client_id=CLIENT)["missing_files"] == 0


def test_a_proxy_is_not_asked_for_the_metadata_service(machine: Machine) -> None:
    run = machine.plan()["run"]
    machine.environment = {"http_proxy": "http://127.0.0.1:9"}  # nobody is there
    assert machine.stage(run)["files"] == len(FILES)
    assert machine.users() == {"ours", "azcopy"}


def test_an_upload(machine: Machine) -> None:
    source = machine.directory / "results"
    source.mkdir()
    (source / "model.bin").write_bytes(b"weights" * 10_000)
    options = {
        "source": str(source),
        "url": machine.node.blobs.url("data"),
        "prefix": "results",
        "compress": True,
        "work_path": str(machine.directory / "packed"),
        "azcopy": azcopy_path(),
        "log_path": str(machine.directory / "log"),
    }
    first = machine.module("dataset_upload", **options)
    assert (first["changed"], first["files_copied"]) == (True, 1)
    assert gzip.decompress(machine.node.blobs.get("data", "results/model.bin.gz")) == b"weights" * 10_000
    assert machine.users() >= {"azcopy"}
    assert machine.module("dataset_upload", **options)["changed"] is False
    (source / "model.bin").write_bytes(b"better weights")
    machine.imds.audience = "https://management.azure.com"
    assert_refused(machine, machine.module("dataset_upload", **options), "auth_failed", "refused", "Data Contributor")
    machine.imds.system_assigned = False
    assert_refused(
        machine, machine.module("dataset_upload", **options), "auth_failed", "no managed identity", "Data Contributor"
    )


def test_a_node_without_the_identity(machine: Machine) -> None:
    run = machine.plan()["run"]
    machine.imds.system_assigned = False
    assert_refused(
        machine, machine.plan(), "auth_failed", "This machine has no managed identity", "'Storage Blob Data Reader'"
    )
    # The first node listed; this one may be another machine.
    assert_refused(machine, machine.stage(run), "auth_failed", "This machine has no managed identity", "Data Reader'")
    assert not machine.files()
    machine.imds.user_assigned = [CLIENT]
    unknown = CLIENT.replace("1", "3")
    assert_refused(machine, machine.stage(run, identity_client_id=unknown), "auth_failed", unknown)


def test_a_token_that_the_service_refuses(machine: Machine) -> None:
    run = machine.plan()["run"]
    machine.imds.audience = "https://management.azure.com"
    assert_refused(machine, machine.plan(), "auth_failed", "'Storage Blob Data Reader'")
    assert_refused(machine, machine.stage(run), "auth_failed", "'Storage Blob Data Reader'")
    assert not machine.files()


def test_azcopy_copy_takes_a_refusal_for_what_it_is(machine: Machine) -> None:
    """AzCopy passes over listed names that it is not let to see, and calls that a success."""
    machine.imds.audience = "https://management.azure.com"
    result = machine.module(
        "azcopy_copy",
        source=machine.node.blobs.url("data"),
        destination=str(machine.destination),
        file_list=["train/f_00.bin.gz", "train/f_01.bin.gz"],
        identity="msi",
        azcopy=azcopy_path(),
        log_dir=str(machine.directory / "log"),
    )
    assert_refused(machine, result, "auth_failed", "refused")


def test_no_way_to_the_metadata_service(machine: Machine) -> None:
    run = machine.plan()["run"]
    with machine.node.without_imds():
        pauses: list[float] = []
        with pytest.raises(ClusterError, match="No instance metadata service answered") as caught:
            machine.node.call(ManagedIdentity(pause=pauses.append).token)
        assert len(pauses) == 1, "nobody there is said at the second try"
        assert caught.value.kind == "auth_failed"
        assert_refused(machine, machine.stage(run), "auth_failed", "No instance metadata", "port 80", "give a SAS")


def test_a_certificate_that_is_not_trusted(machine: Machine) -> None:
    run = machine.plan()["run"]
    for work in (lambda: machine.plan(trusting=False), lambda: machine.stage(run, trusting=False)):
        assert_refused(machine, work(), "tls_untrusted", "certificate of https://gpulab.blob", "update-ca-certificates")
    assert not machine.files()


@pytest.mark.parametrize(
    ("lifetime_s", "promised_s"), [(2.0, 0), (1.2, 3600)], ids=["by our clock", "by the service's"]
)
def test_a_token_that_ends_during_a_listing_is_renewed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, lifetime_s: float, promised_s: float
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(machine.node.ca))
    machine.imds.lifetime_s, machine.imds.promised_s = lifetime_s, promised_s

    def listing() -> list[str]:
        names = []
        for blob in list_blobs(machine.node.blobs.url("data"), "train/", login=ManagedIdentity().token, page_size=1):
            names.append(blob.name)
            time.sleep(0.25)
        return names

    assert machine.node.call(listing) == sorted(f"{name}.gz" for name in FILES)
    assert len(machine.imds.calls) >= 2


def test_a_refused_token_is_tried_once_more_and_no_oftener(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(machine.node.ca))
    machine.imds.audience = "https://vault.azure.net"
    with pytest.raises(ClusterError, match="refuses the identity"):
        machine.node.call(lambda: list(list_blobs(machine.node.blobs.url("data"), login=ManagedIdentity().token)))
    assert len(machine.imds.calls) == 2
