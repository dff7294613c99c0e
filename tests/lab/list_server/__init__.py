# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the listing side of Blob storage that holds a million names in memory. See server.py."""

from lab.list_server.server import Entry, Fault, ListServer, dataset, in_process, spawned

__all__ = ["Entry", "Fault", "ListServer", "dataset", "in_process", "spawned"]
