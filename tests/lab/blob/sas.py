# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Account SAS tokens for the emulator, with the standard library alone.

``python sas.py ACCOUNT KEY [PERMISSIONS [EXPIRES_IN_S]]`` prints one. The key may be the emulator's published one
(``EMULATOR_KEY``); nothing here is meant for a real account.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
import time
import urllib.parse

EMULATOR_ACCOUNT = "devstoreaccount1"
# Printed in the documentation of the emulator, the same on every machine: not a secret.
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

API_VERSION = "2021-12-02"


def account_sas(account: str, key: str, permissions: str = "rwdlac", expires_in_s: int = 86400) -> str:
    """Return an account SAS (blob service; service, container and object level) without a leading ``?``.

    A negative ``expires_in_s`` gives a token that has expired already, for tests.
    """
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + expires_in_s))
    to_sign = "\n".join([account, permissions, "b", "sco", "", expiry, "", "https,http", API_VERSION, "", ""])
    digest = hmac.new(base64.b64decode(key), to_sign.encode(), hashlib.sha256).digest()
    fields = {
        "sv": API_VERSION,
        "ss": "b",
        "srt": "sco",
        "sp": permissions,
        "se": expiry,
        "spr": "https,http",
        "sig": base64.b64encode(digest).decode(),
    }
    return urllib.parse.urlencode(fields)


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    permissions = argv[2] if len(argv) > 2 else "rwdlac"
    expires_in_s = int(argv[3]) if len(argv) > 3 else 86400
    print(account_sas(argv[0], argv[1], permissions, expires_in_s))
    return 0


__all__ = ["EMULATOR_ACCOUNT", "EMULATOR_KEY", "account_sas"]

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
