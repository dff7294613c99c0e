# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where archives and keys come from, and what a module that fetches nothing must not load for it."""

from __future__ import annotations

import functools
import http.server
import pathlib
import subprocess
import sys
import threading

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.sources import open_source

MODULES = sorted(path.stem for path in (pathlib.Path(__file__).parents[3] / "plugins/modules").glob("[!_]*.py"))


def test_a_path_and_a_url_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    (tmp_path / "key").write_bytes(b"the key")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for source in (str(tmp_path / "key"), f"http://127.0.0.1:{server.server_port}/key"):
            with open_source(source) as stream:
                assert stream.read() == b"the key"
        server.shutdown()


@pytest.mark.parametrize(
    ("needless", "users"),
    [("ansible.module_utils.urls", ()), ("http.client", ("azcopy_", "dataset_"))],
    ids=["urls", "http.client"],
)
def test_no_module_loads_what_only_fetching_needs(needless: str, users: tuple[str, ...]) -> None:
    """It costs a node more than all other imports together, in every task of a run that changes nothing."""
    package = "ansible_collections.hpcai.gpu_cluster.plugins.modules"
    names = ", ".join(f"{package}.{name}" for name in MODULES if not name.startswith(users or "-"))
    program = f"import sys; sys.path[:] = {sys.path!r}; import {names}; print({needless!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr
