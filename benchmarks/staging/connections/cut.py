# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node on this machine whose connection can be cut: while a file says so, nothing reaches it any more."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cut
short_description: Run on this machine, until the connection is cut
description: Part of a benchmark. As ansible.builtin.local, but a host whose name is a file below $KILLS_CUT cannot be reached.
extends_documentation_fragment: [connection_pipelining]
options:
  host:
    description: Name of the host.
    vars:
      - name: inventory_hostname
  become_success_timeout:
    description: As of ansible.builtin.local.
    type: int
    default: 10
  become_strip_preamble:
    description: As of ansible.builtin.local.
    type: bool
    default: true
"""

import os
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local


class Connection(Local):
    """What is under way when the connection is cut goes on, as on a node behind a switch that failed."""

    transport = "cut"

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        self._reach()
        answer: tuple[int, bytes, bytes] = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        self._reach()
        return answer

    def put_file(self, in_path: str, out_path: str) -> t.Any:
        self._reach()
        return super().put_file(in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> t.Any:
        self._reach()
        return super().fetch_file(in_path, out_path)

    def _reach(self) -> None:
        if os.path.exists(os.path.join(os.environ["KILLS_CUT"], self.get_option("host"))):
            raise AnsibleConnectionFailure(f"{self.get_option('host')}: the connection is cut.")
