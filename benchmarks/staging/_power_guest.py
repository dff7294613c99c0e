# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs inside of a machine whose power is cut while it stages: small programs as text, which ssh hands over."""

from __future__ import annotations

PLACE = "/opt/staging"  # modules, AzCopy and its libraries, on the system's disk
POINT = "/mnt/data"
DESTINATION = f"{POINT}/set"

#: Reads the options as a line of JSON; lists, plans, copies and reports, and says so on the way.
STAGE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.prepare import prepare
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.rank import run_rank
from ansible_collections.hpcai.gpu_cluster.plugins.modules import dataset_plan, dataset_stage
told = json.loads(sys.stdin.readline())
planned = prepare(dataset_plan.read_options({**told, "rank": None}), write=True)
print("planned", planned["missing_files"], flush=True)
if planned["run"]:
    run_rank(dataset_stage.read_options({**told, "run": planned["run"], "rank": 0, "host": "node"}))
    print("copied", flush=True)
    dataset = Dataset.open(told["destination"])
    dataset.write_report(dataset.verify(content=False, part=(0, 1), threads=4))
print("reported", flush=True)
"""

#: What a look that reads nothing takes for right, with the digests of what is there, as JSON.
LOOK = """
import hashlib, json, os, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.manifest import final_name
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._dataset.dataset import Dataset
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
def digest(name):
    with open(os.path.join(sys.argv[2], name), "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()
found = {"trusted": {}, "refused": ""}
try:
    dataset = Dataset.open(sys.argv[2])
    blobs, inventory = dataset.inspect(dataset.indexes, content=False, threads=4)
    found["trusted"] = {name: digest(name) for name in (
        final_name(blobs[index], dataset.decompress) for index in inventory.verified)}
except ClusterError as error:
    found["refused"] = str(error)
print(json.dumps(found))
"""

#: AzCopy's libraries are found after the system's own.
INSTALL = f"""
ls {PLACE}/lib > /dev/null
echo {PLACE}/lib > /etc/ld.so.conf.d/zz-staging.conf
ldconfig
{PLACE}/azcopy --version
mkdir -p {POINT}
"""

#: Arguments: type of the file system, device.
EMPTY = f"""
umount -q {POINT} || true
mkfs.$1 -q $(if [ $1 = xfs ]; then echo -f; else echo -F; fi) $2
mount $2 {POINT}
sync
"""

__all__ = ["DESTINATION", "EMPTY", "INSTALL", "LOOK", "PLACE", "POINT", "STAGE"]
