# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run may change on a node, as one comparable text: proof that check mode changes nothing.

``SCRIPT`` runs in a shell on the node. Every line begins with what it is about, so that a difference explains itself.
"""

from __future__ import annotations

import difflib

__all__ = ["SCRIPT", "difference"]

SCRIPT = r"""
set +e  # a place that is not there has nothing to tell
for place in /etc /usr/local /opt /var/lib/gpu-clocks /root/.ssh /mnt; do
  find "$place" -xdev ! -path '*/__pycache__*' -printf 'path %p %M %u %g %l\n' 2>/dev/null
  find "$place" -xdev -type f ! -path '*/__pycache__*' -exec sha256sum {} + 2>/dev/null | sed 's/^/content /'
done
dpkg-query --show --showformat='package ${Package} ${Version} ${db:Status-Abbrev}\n'
apt-mark showhold | sed 's/^/hold /'
lsblk --noheadings --raw --output NAME,TYPE,FSTYPE,LABEL,MOUNTPOINT | grep -vE '^(loop|sr|zram)' | sed 's/^/disk /'
grep -hE ' (/etc|/mnt|/opt|/usr)' /proc/self/mountinfo | cut -d ' ' -f 5- | sed 's/^/mount /'
systemctl list-unit-files --no-legend --no-pager --plain | sed 's/^/unit /'
true
"""


def difference(before: str, after: str) -> str:
    """The lines that came or went; empty when nothing did."""
    old, new = sorted(before.splitlines()), sorted(after.splitlines())
    return "\n".join(line for line in difflib.unified_diff(old, new, "before", "after", n=0, lineterm=""))
