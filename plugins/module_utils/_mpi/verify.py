# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The pure half of ``mpi_check``: the command line, what the ranks report, and what that proves."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._mpi.request import Request

# Before each rank's line, so that nothing else that a machine prints is mistaken for one.
_MARK = "mpi_check-rank "

# What every rank runs. It loads libmpi itself, because a compiler is no part of a node: the handles below are the symbols
# behind MPI_COMM_WORLD, MPI_INT and MPI_SUM in Open MPI's ABI (libmpi.so.40: Open MPI 2 to 5, HPC-X).
# The host of a rank is the one of the launcher's names that is a local address; a host name proves less.
RANK_PROGRAM = """
import ctypes, json, os, socket, sys
hosts, collective = sys.argv[2:], sys.argv[1] == "collective"
rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
def local(name):
    try:
        for family, kind, _proto, _canon, address in socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
                return True
    except OSError:
        pass
    return False
here = socket.gethostname()
short = here.split(".")[0]
host = next((h for h in hosts if h in (here, short)), None) or next((h for h in hosts if local(h)), here)
total = None
if collective:
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
    mine, result = ctypes.c_int(rank), ctypes.c_int(-1)
    handles = [ctypes.addressof(ctypes.c_char.in_dll(mpi, n)) for n in ("ompi_mpi_int", "ompi_mpi_op_sum", "ompi_mpi_comm_world")]
    mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(result), 1, *[ctypes.c_void_p(h) for h in handles])
    mpi.MPI_Finalize()
    total = result.value
line = json.dumps({"rank": rank, "size": size, "host": host, "sum": total})
os.write(1, ("MARK" + line + "\\n").encode())
""".replace("MARK", _MARK)

#: Azure's images: azhpc-images, components/install_mpis.sh.
NO_MPIRUN_REMEDY = (
    "Run the entry point install of hpcx_mpi. Where a package of the image only stands for Open MPI, as `hpcx-provides-openmpi` does on "
    "Azure's HPC images, it installs nothing: use the image's preinstalled HPC-X there."
)
_NO_MODULEFILE = "Unable to locate a modulefile"
_NO_MPIRUN = ("mpirun: command not found", "mpirun: not found")
_NO_HPCX = "The HPC-X of the image cannot be told"
# What helps where it is not the same as with most failures: the directory has another name on each distribution.
_REMEDIES = {
    _NO_MODULEFILE: "Have it written into a directory that `bash -lc 'echo $MODULEPATH'` names on that node: /etc/modulefiles on EL, "
    "/usr/share/modules/modulefiles on Debian and Ubuntu.",
    _NO_HPCX: "`ls -d /opt/hpcx*` on that node shows what its image brought: name one of these, or install another MPI.",
    **dict.fromkeys(_NO_MPIRUN, NO_MPIRUN_REMEDY),
}
# What mpirun prints when it cannot do its work (Open MPI 4 and 5), and what that means. The first match counts.
_FAILURES = (
    ("Host key verification failed", "launch_failed", "a node's host key is not known on the first node"),
    ("Permission denied (publickey", "launch_failed", "a node does not accept the cluster's ssh key"),
    ("Could not resolve hostname", "launch_failed", "a node's name cannot be resolved on the first node"),
    ("No route to host", "launch_failed", "there is no route to a node"),
    ("Connection refused", "launch_failed", "a node's sshd does not listen"),
    ("not enough slots", "launch_failed", "mpirun found fewer slots than ranks"),
    ("unable to find the specified executable file", "launch_failed", "python3 is missing on a node"),
    ("libmpi.so.40: cannot open", "launch_failed", "a rank could not load libmpi.so.40"),
    ("orted: command not found", "launch_failed", "a node has no MPI where the first node has it"),
    ("orted: No such file or directory", "launch_failed", "a node has no MPI where the first node has it"),
    (_NO_HPCX, "mpi_missing", "the image's HPC-X cannot be told"),
    (_NO_MODULEFILE, "mpi_missing", "the environment module does not exist on the first node"),
    *((words, "mpi_missing", "there is no mpirun on the first node") for words in _NO_MPIRUN),
    ("attempt to run as root", "launch_failed", "mpirun refuses to run as root"),
)


@dataclasses.dataclass(frozen=True)
class Rank:
    """What one rank said of itself."""

    rank: int
    size: int
    host: str
    total: int | None


def launch_argv(request: Request) -> list[str]:
    """The command that starts the ranks. With an environment module it goes through a login shell, as users go."""
    slots = ",".join(f"{host}:{request.ranks_per_node}" for host in request.hosts)
    argv = ["mpirun", "-np", str(request.ranks), "--host", slots, "--map-by", f"ppr:{request.ranks_per_node}:node"]
    argv += ["--timeout", str(request.timeout_s)]
    for key, value in sorted(request.mca.items()):
        argv += ["--mca", key, value]
    argv += ["python3", "-c", RANK_PROGRAM, "collective" if request.collective else "launch", *request.hosts]
    if not request.module:
        return argv
    # The words are handed over as arguments: nothing of them is read as shell.
    return ["bash", "-lc", 'module load "$1" && shift && exec "$@"', "mpi_check", request.module, *argv]


def parse_ranks(output: str) -> list[Rank]:
    """The ranks' lines. A launcher may print other things around them, even on the same line."""
    ranks = []
    for match in re.finditer(re.escape(_MARK) + r"(\{[^{}\n]*\})", output):
        data = json.loads(match.group(1))
        ranks.append(Rank(int(data["rank"]), int(data["size"]), str(data["host"]), data["sum"]))
    return sorted(ranks, key=lambda rank: rank.rank)


def _judge_numbers(ranks: t.Sequence[Rank], wanted: int) -> t.Iterator[str]:
    """What is wrong with which ranks reported."""
    numbers = collections.Counter(rank.rank for rank in ranks)
    missing = [str(number) for number in range(wanted) if number not in numbers]
    if missing:
        yield f"rank {', '.join(missing[:10])}{' and more' if len(missing) > 10 else ''} did not report"
    twice = [str(number) for number, count in sorted(numbers.items()) if count > 1]
    if twice:
        yield f"rank {', '.join(twice[:10])} reported more than once"


def _judge_places(ranks: t.Sequence[Rank], hosts: t.Sequence[str], ranks_per_node: int) -> t.Iterator[str]:
    """What is wrong with where they ran."""
    per_host = collections.Counter(rank.host for rank in ranks)
    for host in hosts:
        if per_host[host] != ranks_per_node:
            yield f"{host} ran {per_host[host]} rank(s) instead of {ranks_per_node}"
    for host in sorted(set(per_host) - set(hosts)):
        yield f"{host} is not a host of this run but ran {per_host[host]} rank(s)"


def judge(ranks: t.Sequence[Rank], request: Request) -> list[str]:
    """Everything that is wrong with where and how the ranks ran; an empty list proves the launch."""
    wanted = request.ranks
    wrong = [*_judge_numbers(ranks, wanted), *_judge_places(ranks, request.hosts, request.ranks_per_node)]
    if any(rank.size != wanted for rank in ranks):
        sizes = sorted({rank.size for rank in ranks})
        wrong.append(f"the ranks believe in a world of {', '.join(map(str, sizes))} instead of {wanted}")
    expected = wanted * (wanted - 1) // 2
    if request.collective and any(rank.total != expected for rank in ranks):
        bad = sorted({rank.host for rank in ranks if rank.total != expected})
        wrong.append(f"the sum over all ranks came out wrong on {', '.join(bad)}")
    return wrong


def known_failure(text: str) -> str:
    """What kept the launcher from starting ranks, in words; empty where this is not known of what it printed."""
    return next((meaning for needle, _kind, meaning in _FAILURES if needle in text), "")


def launch_failure(stdout: str, stderr: str, rc: int) -> ClusterError:
    """Why mpirun failed, in words, with the end of what it said."""
    text = stderr + stdout
    remedy = "Run the entry point verify of cluster_ssh, and hpcx_mpi on every node of the run."
    for needle, kind, meaning in _FAILURES:
        if needle in text:
            remedy = _REMEDIES.get(needle, remedy)
            line = next(line for line in text.splitlines() if needle in line)
            named = re.search(r"(?:connect to host |resolve hostname |@)([A-Za-z0-9_.-]*[A-Za-z0-9])", line)
            where = f" ({named.group(1)})" if named else ""
            if needle == _NO_HPCX:
                # Environment Modules breaks lines, and goes on with where in the modulefile that was.
                said = text.partition(needle)[2].partition("while executing")[0]
                where = " ".join(said.split())[:300]
            return ClusterError(kind, f"mpirun failed: {meaning}{where}.", remedy, stderr=stderr[-3000:])
    last = [line for line in text.splitlines() if line.strip() and not line.startswith("---")][-1:]
    said = last[0].strip()[:300] if last else "it said nothing"
    return ClusterError("launch_failed", f"mpirun exited with {rc}: {said}.", remedy, stderr=stderr[-3000:])


__all__ = [
    "NO_MPIRUN_REMEDY",
    "RANK_PROGRAM",
    "Rank",
    "judge",
    "known_failure",
    "launch_argv",
    "launch_failure",
    "parse_ranks",
]
