# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab's node compiles each file of a module once, instead of at every task.

Ansible brings a module as a zip of sources, and Python keeps nothing of what it compiles from one: that is a third of a task's
seconds. What is compiled here is kept until the node boots, by the digest of its source, so that every module runs as it came.
``lab_compiled.pth`` imports this at the start of every Python.
"""

import _imp
import marshal
import os
import sys
import zipimport

PLACE = os.environ.get("LAB_COMPILED", "/run/lab-compiled")
_from_source = zipimport._compile_source


def _digest(content):
    return _imp.source_hash(sys.hexversion, content)


def _compile(path, source):
    kept = os.path.join(PLACE, _digest(source).hex())
    try:
        with open(kept, "rb") as stream:
            digest, data = stream.read(8), stream.read()
        if digest == _digest(data):
            code = marshal.loads(data)
            _imp._fix_co_filename(code, path)
            return code
    except OSError:
        pass
    code = _from_source(path, source)
    _keep(kept, marshal.dumps(code))
    return code


def _keep(kept, data):
    part = f"{kept}.{os.getpid()}"
    try:
        os.makedirs(PLACE, exist_ok=True)
        with open(part, "wb") as stream:
            stream.write(_digest(data) + data)
        os.replace(part, kept)
    except OSError:
        pass  # only root may write there, and only where there is room


zipimport._compile_source = _compile
