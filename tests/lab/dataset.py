# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo's dataset: named and shaped like CosmoFlow's, served by Azurite from a workspace that is made once.

2,048 gzip files (32 groups of 64) of int16 counts, sizes log-normal, about 1.1 GB uncompressed, over two accounts.
Everything follows from a seed. Azurite takes about a hundred uploads a second, so its filled workspace is kept under the
name of a hash of this recipe, and every lab starts from a copy.

``python3 dataset.py CACHE_DIR STATE_DIR`` makes the workspace in CACHE_DIR and a lab's own copy in STATE_DIR, each unless it is
there, and prints JSON: ``workspace`` (path of the copy), ``expected`` (files and bytes), ``changed``.
"""

from __future__ import annotations

import array
import base64
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import time
import typing as t
import zlib

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lab.blob.service import Azurite, BlobService

SEED = 2019
GROUPS = 32
GROUP_SIZE = 64
MEAN_BYTES = 560_000  # uncompressed
SIGMA = 0.5  # of the logarithm of the size
CONTAINER = "datasets"
PREFIX = "cosmoflow"
# Account -> (folder, groups): one dataset over two accounts, as a storage account's egress limit makes people do it.
ACCOUNTS = {"labtrain": ("train", range(24)), "labvalidation": ("validation", range(24, GROUPS))}
BLOCK_BYTES = 65536
BLOCKS = 192


class Piece(t.NamedTuple):
    """A stretch of data and its deflated form, which ends on a byte border and refers to nothing before itself."""

    raw: bytes
    deflated: bytes


def piece(raw: bytes) -> Piece:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    return Piece(raw, deflater.compress(raw) + deflater.flush(zlib.Z_FULL_FLUSH))


def make_pieces(seed: int = SEED) -> list[Piece]:
    """Blocks of particle counts: mostly small numbers whose mean drifts along a row, a few dense spots."""
    rng = random.Random(seed)
    pieces = []
    for _ in range(BLOCKS):
        counts = array.array("h")
        while len(counts) < BLOCK_BYTES // 2:
            mean = rng.lognormvariate(-0.2, 0.9)
            weights = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(12)]
            counts.extend(rng.choices(range(12), weights, k=128))
            if rng.random() < 0.05:
                counts[-1] = int(rng.paretovariate(1.1)) % 32768
        if sys.byteorder == "big":
            counts.byteswap()
        pieces.append(piece(counts.tobytes()[:BLOCK_BYTES]))
    return pieces


def gzip_file(pieces: t.Iterable[Piece]) -> tuple[bytes, int]:
    """One gzip member over ``pieces``, deflated beforehand, and the length of its content."""
    checksum, length = 0, 0
    parts = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"]
    for item in pieces:
        checksum = zlib.crc32(item.raw, checksum)
        length += len(item.raw)
        parts.append(item.deflated)
    # An empty last block, then the trailer that readers check.
    parts += [b"\x03\x00", struct.pack("<II", checksum, length & 0xFFFFFFFF)]
    return b"".join(parts), length


class Blob(t.NamedTuple):
    account: str
    name: str  # below PREFIX
    data: bytes
    raw_bytes: int


def make_blobs(seed: int = SEED, groups: int = GROUPS, mean_bytes: int = MEAN_BYTES) -> t.Iterator[Blob]:
    """The dataset's files in order of their names."""
    pieces = make_pieces(seed)
    rng = random.Random(seed + 1)
    mu = math.log(mean_bytes) - SIGMA**2 / 2
    for account, (folder, numbers) in ACCOUNTS.items():
        for group in (number for number in numbers if number < groups):
            for index in range(GROUP_SIZE):
                name = f"{folder}/univ_ics_2019-03_a{10000 + 37 * group:05d}_{index:03d}.tfrecord.gz"
                full, rest = divmod(max(4096, int(rng.lognormvariate(mu, SIGMA))), BLOCK_BYTES)
                chosen = [rng.choice(pieces) for _ in range(full)]
                # The name and a piece of its own make every file unlike every other.
                own = name.encode() + rng.choice(pieces).raw[: rest // 2 * 2]
                data, raw_bytes = gzip_file([*chosen, piece(own)])
                yield Blob(account, name, data, raw_bytes)


def recipe_hash() -> str:
    lock = pathlib.Path(__file__).with_name("blob") / "package-lock.json"
    return hashlib.sha256(pathlib.Path(__file__).read_bytes() + lock.read_bytes()).hexdigest()[:12]


def fill(workspace: str) -> dict[str, t.Any]:
    """Upload the dataset into a fresh Azurite workspace and return what a reader should find."""
    keys = {account: base64.b64encode(os.urandom(64)).decode() for account in ACCOUNTS}
    os.environ["AZURITE_ACCOUNTS"] = ";".join(f"{account}:{key}" for account, key in keys.items())
    server = Azurite(location=workspace)
    server.start()
    total: dict[str, t.Any] = {"files": 0, "bytes": 0, "raw_bytes": 0}
    try:
        services = {account: BlobService(server.port, account, key) for account, key in keys.items()}
        for service in services.values():
            service.create_container(CONTAINER)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            pending: set[concurrent.futures.Future[None]] = set()
            for blob in make_blobs():
                service = services[blob.account]
                pending.add(pool.submit(service.put, CONTAINER, f"{PREFIX}/{blob.name}", blob.data, encoding="gzip"))
                total["files"] += 1
                total["bytes"] += len(blob.data)
                total["raw_bytes"] += blob.raw_bytes
                if len(pending) > 32:
                    done, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in pending:
                future.result()
        _wait_until_saved(pathlib.Path(workspace), total["files"])
    finally:
        server.stop()
    return total


def _wait_until_saved(workspace: pathlib.Path, files: int, timeout_s: float = 60) -> None:
    """Azurite writes its indexes every few seconds and not when it is told to stop: wait until they hold everything."""
    started = time.time()
    indexes = [workspace / "__azurite_db_blob__.json", workspace / "__azurite_db_blob_extent__.json"]
    while time.time() - started < timeout_s:
        time.sleep(0.5)
        written = all(path.exists() for path in indexes) and indexes[0].read_text().count('.tfrecord.gz"') >= files
        # One index is written when it changed; the other within the same interval.
        if written and time.time() - max(path.stat().st_mtime for path in indexes) > 6:
            return
    raise RuntimeError(f"Azurite did not save its index of {files} blobs within {timeout_s:g} s.")


def ensure(cache: pathlib.Path) -> pathlib.Path:
    """Folder of the filled workspace below ``cache``; made when it is not there, older recipes are removed."""
    target = cache / recipe_hash()
    if (target / "expected.json").is_file():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    for stale in cache.iterdir():
        shutil.rmtree(stale)
    work = pathlib.Path(tempfile.mkdtemp(prefix="new-", dir=cache))
    expected = fill(str(work / "workspace"))
    (work / "expected.json").write_text(json.dumps(expected) + "\n")
    work.rename(target)
    return target


def copy(made: pathlib.Path, state: pathlib.Path) -> tuple[pathlib.Path, bool]:
    """A lab's own copy of a filled workspace below ``state``: its path, and whether it had to be made."""
    target = state / f"azurite-{made.name}"
    if target.is_dir():
        return target, False
    state.mkdir(parents=True, exist_ok=True)
    for stale in state.glob("azurite-*"):
        shutil.rmtree(stale)
    shutil.copytree(made / "workspace", state / f"azurite-{made.name}.part")
    (state / f"azurite-{made.name}.part").rename(target)
    return target, True


def main(argv: list[str]) -> int:
    if len(argv) != 2 or argv[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    made = ensure(pathlib.Path(argv[0]))
    workspace, changed = copy(made, pathlib.Path(argv[1]))
    expected = json.loads((made / "expected.json").read_text())
    print(json.dumps({"workspace": str(workspace), "expected": expected, "changed": changed}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = ["ACCOUNTS", "CONTAINER", "PREFIX", "Blob", "copy", "ensure", "gzip_file", "make_blobs", "make_pieces"]
