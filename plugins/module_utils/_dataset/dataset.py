# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""A dataset at its destination: what belongs there, what is there, and the report about it."""

from __future__ import annotations

import contextlib
import os
import stat
import typing as t
from array import array
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.blobs import Blobs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import Manifest, final_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.beside import Beside, look_beside
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.fence import take_unfinished
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.in_time import allow_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.receipts import (
    Receipt,
    ReceiptLog,
    Receipts,
    consolidate_receipts,
    read_receipts,
    still_ours,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.report import (
    build_report,
    causes,
    read_report,
    tells_success_of,
    unfinished,
    verdict,
    worth_trying_again,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.run import (
    current_run_id,
    planned_names,
    read_run,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.shares import own_share
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.state import (
    Inventory,
    StatePaths,
    check_state,
    inspect_destination,
    read_json,
    sweep_state,
    write_json,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import make_directories
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.beneath import look
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.durable import DurableTree, sync_directory

_NAMED = 20


@dataclass
class Dataset:
    """A manifest and the place where it is staged.

    ``rank`` is None when all ranks share the destination. Else the destination is this rank's own and holds its share, the
    same one for a given manifest and ``world_size``.
    """

    destination: str
    manifest: Manifest
    decompress: bool
    rank: int | None = None
    world_size: int = 1
    _beside: Beside | None = field(default=None, init=False, repr=False)

    @classmethod
    def open(cls, destination: str) -> Dataset:
        """The dataset that was planned here last."""
        check_state(destination)
        paths = StatePaths(destination)
        document = read_json(os.path.join(paths.root, "dataset.json"))
        if document is None:
            raise ClusterError(
                "not_staged",
                f"Nothing was staged to {destination}: it has no {os.path.basename(paths.root)}/dataset.json.",
                "Check `destination` and that its file system is mounted, then stage it.",
            )
        return cls(destination, Manifest.read(paths.manifest), **document)

    def save(self) -> None:
        """Write the manifest and what it means here, for workers and for verification."""
        paths = StatePaths(self.destination)
        make_directories(self.destination)
        for directory in (paths.root, paths.receipts, paths.runs):  # whatever umask and default ACL say
            os.makedirs(directory, mode=0o755, exist_ok=True)
        check_state(self.destination)  # somebody else may have been quicker
        if self._stored_digest() != self.manifest.digest:
            self.manifest.write(paths.manifest)
        write_json(
            os.path.join(paths.root, "dataset.json"),
            self._meaning(),
            durable=True,
        )
        sync_directory(self.destination)
        sync_directory(os.path.dirname(os.path.normpath(self.destination)))

    def _stored_digest(self) -> str:
        try:
            return str(Manifest.read_header(StatePaths(self.destination).manifest)["digest"])
        except (OSError, ClusterError):
            return ""

    @property
    def indexes(self) -> range | array[int]:
        """Which blobs of the manifest belong here."""
        if self.rank is None:
            return range(len(self.manifest.blobs))
        return own_share(self.manifest, self.rank, self.world_size)

    def receipts(self) -> Receipts:
        found = read_receipts(StatePaths(self.destination).receipts)
        allow_files(len(found))  # each is looked at, those of an earlier choice, too
        return found

    def adopt(self, receipts: t.Sequence[Receipt]) -> None:
        """Keep receipts for files that were there before and proved right."""
        # What was written a moment ago may be in memory only, where it was read.
        DurableTree(self.destination).sync([receipt.name for receipt in receipts])
        ReceiptLog(StatePaths(self.destination).receipts, "adopted").append(receipts)

    def inspect(
        self,
        indexes: range | array[int],
        *,
        content: bool | t.Callable[[int], bool],
        threads: int,
        mark: bool = False,
        dry_run: bool = False,
    ) -> tuple[Blobs, Inventory]:
        """Look at the files of some blobs. The inventory's indexes are positions in the returned blobs, as is what ``content`` is asked.

        With ``mark`` what ``content`` finds is found by all who look later, too, also without it. With ``dry_run`` nothing is written.
        """
        blobs = self.manifest.blobs.select(indexes)
        inventory = inspect_destination(
            blobs,
            self.destination,
            self.receipts(),
            decompress=self.decompress,
            content=content,
            mark=mark,
            dry_run=dry_run,
            threads=threads,
        )
        if inventory.foreign:
            # A worker that was killed may have renamed files whose receipts it could not write any more.
            names = {index: final_name(blobs[index], self.decompress) for index in inventory.foreign}
            ours = planned_names(self.destination, set(names.values()))
            inventory.altered.extend(index for index in names if names[index] in ours)
            inventory.foreign = array("I", (index for index in names if names[index] not in ours))
        return blobs, inventory

    def fence(self) -> None:
        """Keep workers of earlier runs from giving a file its final name after what is said about the files from now on."""
        self._beside = take_unfinished(self.destination, current_run_id(self.destination) or "", self._all_names())

    def verify(
        self,
        *,
        content: bool | t.Callable[[int], bool],
        part: tuple[int, int],
        threads: int,
        mark: bool = False,
        dry_run: bool = False,
    ) -> dict[str, t.Any]:
        """Compare with the manifest; ``part`` is (rank, world size) of those who share the work of looking. See also ``inspect``."""
        rank, world_size = part
        if not 0 <= rank < world_size:  # it would find nothing wrong with no files
            raise ClusterError("bad_input", f"There is no rank {rank} among {world_size}.", "Ranks begin at 0.")
        blobs, inventory = self.inspect(
            self.indexes[rank::world_size], content=content, threads=threads, mark=mark, dry_run=dry_run
        )
        names = _FinalNames(blobs, self.decompress)
        result = verdict(inventory, len(blobs), self.manifest, names)
        # Counting strangers is not split: the first one does it.
        extra = (self._beside or look_beside(self.destination, self._all_names())).extra_files if rank == 0 else 0
        marked = {"marked_files": len(inventory.marked), "marked_names": [names[i] for i in inventory.marked[:_NAMED]]}
        return self._explained({**result, **marked, "extra_files": extra}, read_report(self.destination))

    def _all_names(self) -> set[str]:
        return {final_name(self.manifest.blobs[index], self.decompress) for index in self.indexes}

    @staticmethod
    def _explained(result: dict[str, t.Any], report: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
        why = causes(report) if result["verdict"] != "ok" else []
        return {**result, "causes": why, "again": worth_trying_again(result, why)}

    def _meaning(self) -> dict[str, t.Any]:
        return {"decompress": self.decompress, "rank": self.rank, "world_size": self.world_size}

    def unreported(self) -> bool:
        """Whether staging.json is missing, or is about another manifest or an earlier run than the last one."""
        if read_json(os.path.join(StatePaths(self.destination).root, "dataset.json")) != self._meaning():
            return True
        report = read_report(self.destination)
        if report is None or report["manifest_digest"] != self.manifest.digest or report["verdict"] != "ok":
            return True
        run_id = current_run_id(self.destination)
        return bool(run_id) and all(known["run"] != run_id for known in report["rounds"])

    def write_report(self, result: dict[str, t.Any]) -> dict[str, t.Any]:
        """Write staging.json and pack the receipts into one file. Returns the result with what the report knows."""
        paths = StatePaths(self.destination)
        run_id = current_run_id(self.destination)
        run = read_run(self.destination, run_id) if run_id else None
        previous = read_report(self.destination)
        report = build_report(run, previous, self.manifest, result)
        write_json(paths.report, report, durable=True)
        sweep_state(self.destination)
        receipts = self.receipts()
        if result["verdict"] == "ok":
            self._sweep_parts()
        kept = still_ours(self.destination, receipts, self._all_names())
        consolidate_receipts(self.destination, paths.receipts, receipts, kept)
        # What went wrong in a run that brought everything at last is no reason for what is wrong now.
        why = None if run is not None and tells_success_of(previous, run.id) else report
        told = {**self._explained(result, why), "unfinished_batches": unfinished(why) if result["problems"] else []}
        return {**told, "former_files": len(self.former())}

    def _sweep_parts(self) -> None:
        """Remove what workers that were killed left: every file is whole without it."""
        if self._beside is None:
            self.fence()
        for path in self._beside.unfinished if self._beside else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def former(self) -> list[str]:
        """Files that were staged for an earlier choice of blobs and are as they were. Only their receipts know that they are ours."""
        return sorted(name for name, as_staged in self._earlier() if as_staged)

    def taken_over(self) -> set[str]:
        """Names of an earlier choice whose files somebody has written since: those are not ours any more."""
        return {name for name, as_staged in self._earlier() if not as_staged}

    def _earlier(self) -> t.Iterator[tuple[str, bool]]:
        """Names that only an earlier choice had, and whether their files are as they were staged."""
        receipts, wanted = self.receipts(), self._all_names()
        return ((name, self._as_staged(name, receipts.of(name))) for name in receipts if name not in wanted)

    def _as_staged(self, name: str, receipts: t.Sequence[Receipt]) -> bool:
        try:
            found = look(self.destination, name)
        except ClusterError:  # somebody put a link into its place
            return False
        return found is not None and any(
            stat.S_ISREG(found.st_mode) and (one.size, one.mtime_ns) == (found.st_size, found.st_mtime_ns)
            for one in receipts
        )


class _FinalNames(t.Sequence[str]):
    """The names at the destination of blobs, each made when it is asked for."""

    def __init__(self, blobs: Blobs, decompress: bool) -> None:
        self._blobs = blobs
        self._decompress = decompress

    def __len__(self) -> int:
        return len(self._blobs)

    @t.overload
    def __getitem__(self, index: int) -> str: ...

    @t.overload
    def __getitem__(self, index: slice) -> _FinalNames: ...

    def __getitem__(self, index: int | slice) -> str | _FinalNames:
        if isinstance(index, slice):
            return _FinalNames(self._blobs[index], self._decompress)
        return final_name(self._blobs[index], self._decompress)


__all__ = ["Dataset"]
