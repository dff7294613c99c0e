# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hpcx_mpi leaves on a node, with the distribution's Open MPI."""

from __future__ import annotations

import typing as t


def test_the_module_brings_mpirun_and_its_settings(host: t.Any) -> None:
    done = host.run("bash -lc 'module load mpi/current && which mpirun && env'")
    assert done.rc == 0, done.stderr
    assert "OMPI_MCA_coll_hcoll_enable=0" in done.stdout.splitlines()
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in done.stdout.splitlines()
    assert not [line for line in done.stdout.splitlines() if line.startswith(("NCCL_DEBUG", "NCCL_TOPO_FILE"))]


def test_the_settings_can_be_sourced(host: t.Any) -> None:
    done = host.run("sh -ec '. /etc/hpcx_mpi/settings.sh; echo $OMPI_MCA_pml $NCCL_SOCKET_IFNAME'")
    assert done.stdout.split() == ["ob1", "eth0"]


def test_open_mpi_reads_our_parameters(host: t.Any) -> None:
    done = host.run("bash -lc 'module load mpi/current && ompi_info --param btl tcp --level 9 --parsable'")
    assert "mca:btl:tcp:param:btl_tcp_if_include:value:eth0" in done.stdout


def test_the_package_s_own_parameters_are_untouched(host: t.Any) -> None:
    changed = host.run("dpkg --verify openmpi-bin openmpi-common").stdout.splitlines()
    assert [line for line in changed if "/etc/" in line] == []
