"""A small dataset on a real Blob service, and ranks that stage it as processes of this machine."""

from __future__ import annotations

import gzip
import multiprocessing
import pathlib
import random
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset import followed, in_time
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.prepare import prepare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.rank import run_rank
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan, dataset_stage
from lab.blob.service import Azurite, azcopy_path, azurite

_FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="session")
def blobs() -> t.Iterator[Azurite]:
    with azurite() as service:
        yield service


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules do their work where the test can count what they do, and not in a child."""
    monkeypatch.setattr(in_time, "run_within", lambda work, **_limits: work())


class Staging:
    """One dataset, one destination, and the ways a test may look at them and break them."""

    def __init__(self, service: Azurite, container: str, destination: pathlib.Path) -> None:
        self.service = service
        self.container = container
        self.destination = destination
        self.content: dict[str, bytes] = {}
        self.options: dict[str, t.Any] = {}
        service.create_container(container)

    def put(self, name: str, content: bytes, *, compress: bool = True, **options: t.Any) -> None:
        raw = gzip.compress(content, 1, mtime=0) if compress else content
        self.service.put(self.container, name, raw, encoding="gzip" if compress else "", **options)
        self.content[name[:-3] if compress and name.endswith(".gz") else name] = content

    def fill(self, files: int = 40, seed: int = 1) -> None:
        source = random.Random(seed)
        for number in range(files):
            self.put(f"train/f_{number:03d}.tfrecord.gz", source.randbytes(source.randint(1, 60_000)) * 3)

    def params(self, **options: t.Any) -> dict[str, t.Any]:
        source = {"url": self.service.url(self.container), "prefix": "", "sas": self.service.sas("rl")}
        params: dict[str, t.Any] = {
            "destination": str(self.destination / "data"),
            "sources": [source],
            "hosts": ["gpu-1", "gpu-2", "gpu-3"],
            "rank": None,
            "manifest": None,
            "decompress": True,
            "content": False,
            "mount_point": None,
            "nic_mbps": 0,
            "egress_mbps": 0,
            "batch_s": 0.05,
            "allow_overwrite": False,
            "threads": 4,
            "identity_client_id": "",
            "azcopy": azcopy_path(),
            "cap_mbps": 0,
            "processes": 2,
            "concurrency": 0,
            "decompress_engine": "collection",
            "landing_path": None,
            "landing_limit_gib": 0,
            "log_path": str(self.destination / "log"),
            "claim_expiry_s": 60,
            "stall_timeout_s": 120,
            "timeout_s": 300,
            "identity": "msi",
            **self.options,
            **options,
        }
        if params["rank"] is not None:  # a node with a share of its own knows no other
            hosts, rank = params["hosts"], params["rank"]
            params.update(hosts=None, world_size=len(hosts), host=hosts[rank])
        return params

    def plan(self, **options: t.Any) -> dict[str, t.Any]:
        return prepare(dataset_plan.read_options(self.params(**options)), write=True)

    def start_rank(self, run: str, number: int, results: t.Any, options: dict[str, t.Any]) -> t.Any:
        # The plan's rank is another matter: alone in its run, a rank is number 0.
        params = {**self.params(**options), "run": run, "rank": number, "host": f"gpu-{number + 1}"}

        def work() -> None:
            try:
                results.put((number, run_rank(dataset_stage.read_options(params))))
            except ClusterError as error:
                results.put((number, error.as_result()))

        process = _FORK.Process(target=work)
        process.start()
        return process

    def copy(self, run: str, ranks: int = 0, **options: t.Any) -> dict[int, dict[str, t.Any]]:
        """``ranks``: where there are fewer than the hosts of the plan."""
        results = _FORK.Queue()
        count = ranks or len(self.params(**options)["hosts"])
        processes = [self.start_rank(run, rank, results, options) for rank in range(count)]
        found = dict(results.get(timeout=300) for _process in processes)
        for process in processes:
            process.join(timeout=300)
        return found

    def verify(self, *, content: bool = True, report: bool = True) -> dict[str, t.Any]:
        dataset = Dataset.open(str(self.destination / "data"))
        result = dataset.verify(content=content, part=(0, 1), threads=4)
        return dataset.write_report(result) if report else result

    def stage(self, **options: t.Any) -> dict[str, t.Any]:
        """Plan, copy, verify: what the role does in one round."""
        plan = self.plan(**options)
        if plan["run"]:
            plan["ranks"] = self.copy(plan["run"], **options)
        plan["verified"] = self.verify()
        return plan

    def files(self) -> dict[str, bytes]:
        root = self.destination / "data"
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file() and ".staging" not in path.parts
        }


@pytest.fixture
def staging(
    blobs: Azurite, tmp_path: pathlib.Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Staging:
    # No play follows these runs, and many of them are left behind on purpose.
    monkeypatch.setattr(followed, "_PATIENCE_S", 0.5)
    number = abs(hash(request.node.nodeid)) % 10**12
    return Staging(blobs, f"c{number}", tmp_path)


@pytest.fixture
def one_batch(staging: Staging) -> Staging:
    """For what does not depend on who copies which part: one rank starts AzCopy once."""
    staging.options.update(hosts=["gpu-1"], batch_s=60)
    return staging
