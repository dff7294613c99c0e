# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open MPI without a compiler: what the stand-in needs of libmpi, by the names and types of Open MPI's mpi.h (versions 3 to 5).

Whoever waits sleeps in between: a rank of Open MPI that waits for a hung one burns a core, and the lab's computer has two.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

NAME = "libmpi.so.40"


class World:
    """MPI_COMM_WORLD. Without mpirun or srun it is one rank, as of any MPI program."""

    def __init__(self) -> None:
        try:
            self._mpi = ctypes.CDLL(NAME, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            # The loader's words for a program that is linked to it, and its exit code.
            print(
                f"error while loading shared libraries: {NAME}: cannot open shared object file: No such file or directory",
                file=sys.stderr,
            )
            sys.exit(127)
        self._comm, self._byte = self._handle("ompi_mpi_comm_world"), self._handle("ompi_mpi_byte")
        self._mpi.MPI_Init(None, None)
        rank, size = ctypes.c_int(), ctypes.c_int()
        self._mpi.MPI_Comm_rank(self._comm, ctypes.byref(rank))
        self._mpi.MPI_Comm_size(self._comm, ctypes.byref(size))
        self.rank, self.size = rank.value, size.value

    def _handle(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self._mpi, name)))

    def gather(self, record: bytes, length: int, waiting: Callable[[], None] = lambda: None) -> list[bytes]:
        """The records of all ranks, each padded to ``length`` bytes. It ends when all have come, or when ``waiting`` raises."""
        mine = ctypes.create_string_buffer(record.ljust(length), length)
        theirs = ctypes.create_string_buffer(length * self.size)
        request, done = ctypes.c_void_p(), ctypes.c_int()
        self._mpi.MPI_Iallgather(
            mine, length, self._byte, theirs, length, self._byte, self._comm, ctypes.byref(request)
        )
        while True:
            self._mpi.MPI_Test(ctypes.byref(request), ctypes.byref(done), None)
            if done.value:
                return [theirs.raw[place : place + length].strip() for place in range(0, len(theirs.raw), length)][
                    : self.size
                ]
            waiting()
            time.sleep(0.002)

    def end(self) -> None:
        self._mpi.MPI_Finalize()
