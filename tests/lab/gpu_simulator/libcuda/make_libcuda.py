#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compile the stand-in for libcuda on the controller, for nodes that have no compiler: ``make_libcuda.py [LIBRARY]``.

LIBRARY is libcuda.so.1 beside this file unless told otherwise, where install.py looks for it. Prints "changed" or "ok"; what is
compiled again from the same source with the same compiler is the same file. Needs gcc and the headers of the C library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "libcuda.c"
# C11 by name: newer languages take newer functions of the C library, which an older node has not.
COMPILE = (
    "gcc -std=c11 -D_DEFAULT_SOURCE -O2 -Wall -Wextra -Werror -Wno-format-truncation"
    " -shared -fPIC -fvisibility=hidden -s -Wl,-soname,libcuda.so.1"
)


def make(library: Path) -> bool:
    """Whether the library became another one. It is replaced as a whole: a node may read it at any time."""
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".libcuda.") as work:
        made = Path(work) / library.name
        subprocess.run([*COMPILE.split(), "-o", str(made), str(SOURCE)], check=True)
        if library.exists() and library.read_bytes() == made.read_bytes():
            return False
        made.chmod(0o755)
        os.replace(made, library)
    return True


def main(argv: list[str]) -> int:
    if shutil.which("gcc") is None:
        print(
            "gcc is missing, which makes the lab's libcuda. Install it: apt-get install gcc libc6-dev", file=sys.stderr
        )
        return 1
    print("changed" if make(Path(argv[0]) if argv else HERE / "libcuda.so.1") else "ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
