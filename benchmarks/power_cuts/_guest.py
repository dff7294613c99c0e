# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs inside of the machines: small programs as text, which ssh hands over."""

from __future__ import annotations

import shlex

POINT = "/mnt/resource_nvme"
UNIT = "nvme-raid-scratch.service"
SETTINGS = "/etc/nvme_raid/scratch.json"
MARK = "/var/lib/nvme_raid/scratch.json"
#: What a machine writes to its console when a step begins or ends.
TOLD = "power-cut: "
# Earlier in the path than the programs themselves, and with what mdadm is to do. Its looking is no step.
_ANNOUNCED = {
    "mdadm": "/usr/sbin/mdadm",
    "mkfs.xfs": "/usr/sbin/mkfs.xfs",
    "mkfs.ext4": "/usr/sbin/mkfs.ext4",
    "mount": "/usr/bin/mount",
    "umount": "/usr/bin/umount",
}
_ANNOUNCE = """#!/bin/sh
name={name}
case "$name$1" in
  mdadm--create | mdadm--assemble | mdadm--stop) step="mdadm $1" ;;
  mdadm*) exec {path} "$@" ;;
  mkfs*) step=mkfs ;;
  *) step=$name ;;
esac
echo "{told}$step begin" > /dev/ttyS0
{path} "$@"
status=$?
echo "{told}$step end" > /dev/ttyS0
exit $status
"""


def announce() -> str:
    """A shell script that makes the programs of the role tell when they begin and end."""
    lines = []
    for name, path in _ANNOUNCED.items():
        place = f"/usr/local/sbin/{name}"
        text = _ANNOUNCE.format(name=name, path=path, told=TOLD)
        lines.append(f"printf %s {shlex.quote(text)} > {place}; chmod 755 {place}")
    return "\n".join(lines)


# Record N of a run holds the digest of both, over and over: whoever knows the run's name knows what must be there. Each has a length
# that is no multiple of anything. Files end after 16 records, so that directories change, too.
_RECORDS = """
import hashlib, os, sys
FILE_RECORDS = 16
def record(run, number):
    digest = hashlib.sha256(f"{run} {number}".encode()).digest()
    return digest * (1500 + number * 997 % 1500) + digest[:7]
"""
WRITER = (
    _RECORDS
    + """
folder, run, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(folder)
place = os.open(folder, os.O_RDONLY)
parent = os.open(os.path.dirname(folder), os.O_RDONLY)
os.fsync(parent)
number, handle = 0, -1
while number < last:
    if number % FILE_RECORDS == 0:
        handle = os.open(f"{folder}/{number // FILE_RECORDS}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.fsync(place)
    os.write(handle, record(run, number))
    os.fsync(handle)
    number += 1
    print(number, flush=True)
"""
)
READER = (
    _RECORDS
    + """
folder, run = sys.argv[1], sys.argv[2]
number, handle = 0, None
while True:
    if number % FILE_RECORDS == 0:
        try:
            handle = open(f"{folder}/{number // FILE_RECORDS}", "rb")
        except FileNotFoundError:
            break
    want = record(run, number)
    try:
        if handle.read(len(want)) != want:
            break
    except OSError:
        break
    number += 1
print(number)
"""
)

#: All that is looked at after a boot, as JSON.
LOOK = """
import json, os, subprocess, sys
point, unit, mark = sys.argv[1:]
def said(*argv):
    return subprocess.run(argv, capture_output=True, text=True).stdout
def disks(device):
    slaves = os.listdir(f"/sys/block/{device}/slaves")
    return [disk for slave in slaves for disk in disks(slave)] if slaves else [device]
source = said("findmnt", "-no", "SOURCE", point).strip()
below = disks(os.path.basename(os.path.realpath(source))) if source else []
print(json.dumps({
    "mounted": [open(f"/sys/block/{disk}/serial").read().strip() for disk in below],
    "journal": said("journalctl", "-b", "-u", unit, "--no-pager", "-o", "cat").splitlines(),
    "failed": said("systemctl", "is-failed", unit).strip() == "failed",
    "marked": os.path.exists(mark),
}))
"""

#: A file system that can be mounted may be damaged: it is unmounted, read whole, and mounted again. Says nothing where all is well.
CHECK = (
    f"device=$(findmnt -no SOURCE {POINT}); type=$(findmnt -no FSTYPE {POINT}); umount {POINT};"
    'if [ "$type" = xfs ]; then set -- xfs_repair -n; else set -- e2fsck -fn; fi;'
    'said=$("$@" "$device" 2>&1) || printf "%s\n" "$said" | tail -n 20;'
    f'mount -o noatime "$device" {POINT}'
)

#: Members are empty again, and what was done is durable.
WIPE = (
    f"systemctl stop {UNIT}; umount -q {POINT} || true; rm -rf {MARK};"
    "for a in /dev/md[0-9]*; do if [ -e $a ]; then /usr/sbin/mdadm --quiet --stop $a; fi; done; udevadm settle;"
    'for d in "$@"; do blkdiscard --force /dev/disk/by-id/virtio-$d; sync /dev/disk/by-id/virtio-$d; done;'
    "udevadm settle; sync"
)

__all__ = ["CHECK", "LOOK", "MARK", "POINT", "READER", "SETTINGS", "TOLD", "UNIT", "WIPE", "WRITER", "announce"]
