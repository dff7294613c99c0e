# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets of the lab's Blob service: random account keys and the SAS tokens that readers get.

``python3 blob_access.py STATE_DIR ENDPOINT`` keeps three files in STATE_DIR, all with mode 0600, and prints ``changed`` or ``ok``:
``blob_keys.json`` (account -> key), ``azurite.env`` (the same for Azurite) and ``dataset_sources.json``, the value of
``dataset_staging_sources``. ``{account}`` in ENDPOINT stands for the account's name. Tokens are renewed a day before they expire.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import sys
import time
import typing as t

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lab.blob.sas import account_sas
from lab.dataset import ACCOUNTS, CONTAINER, PREFIX

VALID_S = 7 * 86400
RENEW_S = 86400


def sources(keys: dict[str, str], endpoint: str) -> list[dict[str, str]]:
    """``dataset_staging_sources`` for these accounts; the tokens may read and list, no more."""
    return [
        {
            "url": f"{endpoint.format(account=account)}/{CONTAINER}",
            "prefix": PREFIX,
            "sas": account_sas(account, key, "rl", VALID_S),
        }
        for account, key in keys.items()
    ]


def ensure(state: pathlib.Path, endpoint: str) -> bool:
    """Bring the three files up to date; True when something was written."""
    state.mkdir(parents=True, exist_ok=True)
    keys_path, sources_path = state / "blob_keys.json", state / "dataset_sources.json"
    keys = _read(keys_path) or {}
    changed = False
    if set(keys) != set(ACCOUNTS):
        keys = {account: base64.b64encode(os.urandom(64)).decode() for account in ACCOUNTS}
        _write(keys_path, json.dumps(keys))
        changed = True
    known = _read(sources_path) or []
    urls = [item["url"] for item in known]
    fresh = sources_path.exists() and time.time() - sources_path.stat().st_mtime < VALID_S - RENEW_S
    if changed or not fresh or urls != [item["url"] for item in sources(keys, endpoint)]:
        _write(sources_path, json.dumps(sources(keys, endpoint)))
        changed = True
    environment = "AZURITE_ACCOUNTS=" + ";".join(f"{account}:{key}" for account, key in keys.items()) + "\n"
    environment_path = state / "azurite.env"
    if not environment_path.exists() or environment_path.read_text() != environment:
        _write(environment_path, environment)
        changed = True
    return changed


def _read(path: pathlib.Path) -> t.Any:
    return json.loads(path.read_text()) if path.exists() else None


def _write(path: pathlib.Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)


def main(argv: list[str]) -> int:
    if len(argv) != 2 or argv[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    print("changed" if ensure(pathlib.Path(argv[0]), argv[1]) else "ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = ["ensure", "sources"]
