# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is not there: every module call is answered at once, from constants and from what was copied to it before."""

from __future__ import annotations

DOCUMENTATION = r"""
name: stand_in
short_description: Answer module calls without a node
description: Part of a benchmark. Nothing is run; $CONVERGE_ANSWERS names the directory with a file of answers for each module,
  $CONVERGE_MEMORY the one that keeps the digests of what was copied.
extends_documentation_fragment: [connection_pipelining]
options: {}
"""

import ast
import hashlib
import json
import os
import re
import typing as t
from pathlib import Path

from ansible.plugins.connection import ConnectionBase

_TEMPORARY = re.compile(r"ansible-tmp-[0-9.-]+")
Answer = tuple[int, bytes, bytes]


def _call(payload: bytes) -> tuple[str, dict[str, t.Any]]:
    """The module that AnsiballZ would run on the node, and its arguments."""
    end = payload.rindex(b"\nzip_data=")
    begin = payload.index(b"\nmodule_fqn=", payload.index(b"\n    _ansiballz_main("))
    keys = {}
    for line in payload[begin + 1 : end].split(b"\n"):
        key, _equal, value = line.partition(b"=")
        keys[key.decode()] = value.rstrip(b",").decode()
    arguments = json.loads(ast.literal_eval(keys["params"]))["ANSIBLE_MODULE_ARGS"]
    name = ast.literal_eval(keys["module_fqn"])
    return name.replace("ansible_collections.", "").replace("plugins.modules.", ""), arguments


class Connection(ConnectionBase):
    """Keeps nothing but the name of its host; an answer costs no process."""

    transport = "stand_in"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def close(self) -> None:
        self._connected = False

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Answer:
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if not in_data:
            # Temporary directories, which only the run that teaches the node its files needs.
            found = _TEMPORARY.search(cmd)
            return 0, f"{found[0]}=/tmp/{found[0]}\n".encode() if found and "mkdir" in cmd else b"", b""
        name, arguments = _call(in_data)
        result = self._answer(name, arguments)
        result.setdefault("changed", False)
        given = {key: value for key, value in arguments.items() if not key.startswith("_ansible_")}
        # As AnsibleModule does: what was asked comes back with every answer.
        return 0, json.dumps({**result, "invocation": {"module_args": given}}).encode(), b""

    def put_file(self, in_path: str, out_path: str) -> None:
        super().put_file(in_path, out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        super().fetch_file(in_path, out_path)

    def _answer(self, name: str, arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        if name == "ansible.modules.stat":
            return self._stat(arguments["path"])
        if name == "ansible.modules.copy":
            self._remembered(arguments["dest"]).write_text(arguments["checksum"], encoding="ascii")
            return {"changed": True}
        told = Path(os.environ["CONVERGE_ANSWERS"], name).read_text(encoding="utf-8")
        return self._chosen(json.loads(told), arguments)

    def _chosen(self, answers: list[dict[str, t.Any]], arguments: dict[str, t.Any]) -> dict[str, t.Any]:
        """The first answer whose ``when`` is found in the arguments, with the host's name where it says @HOST@."""
        asked = json.dumps(arguments)
        for one in answers:
            if re.search(one["when"], asked):
                text = json.dumps(one["result"]).replace("@HOST@", str(self._play_context.remote_addr))
                return t.cast("dict[str, t.Any]", json.loads(text))
        return {"failed": True, "msg": f"The stand-in has no answer to {asked[:300]}"}

    def _remembered(self, path: str) -> Path:
        digest = hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()
        return Path(os.environ["CONVERGE_MEMORY"]) / digest

    def _stat(self, path: str) -> dict[str, t.Any]:
        try:
            checksum = self._remembered(path).read_text(encoding="ascii")
        except FileNotFoundError:
            return {"stat": {"exists": False}}
        return {"stat": {"exists": True, "isdir": False, "islnk": False, "path": path, "checksum": checksum}}
