# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node on which BeeOND is installed: its package system keeps what is there in files, and every file lies below a directory."""

from __future__ import annotations

import grp
import os
import pathlib
import pwd
import shutil
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond_software import apply, client_phase
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import dnf as dnf_
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import openpgp, units
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.repository import Repository
from ansible_collections.hpcai.gpu_cluster.plugins.modules import beeond_software
from module_run import run_main

PROGRAM = r"""#!/bin/sh
# Plays every program below by its name. $NODE holds the packages `installed` and `available`, name|version a line, what a transaction
# of apt does besides, in `pushes`, and the log.
cd "$NODE" || exit 9
name=${0##*/}
words() { while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done; [ $# -gt 0 ] && shift; echo "$@"; }
put() { sed -i "/^${1%%|*}|/d" installed; echo "$1" >>installed; }
case $name in
dpkg-query) case "$*" in *Abbrev*) sed 's/|.*//; s/.*/ii |&|/' installed ;; *) sed 's/$/|install|installed|ok/' installed ;; esac ;;
apt-cache) shift; for one; do grep "^$one|" available | sed 's/|/ | /; s/$/ | repository/'; done ;;
dpkg) exit 1 ;;
apt-get)
  case " $* " in *" update "*) echo "apt-get update" >>log; [ -f new ] && cat new >>available; exit 0 ;; esac
  case " $* " in *" -s "*) cat pushes 2>/dev/null ;; *) echo "apt-get install $(words "$@")" >>log ;; esac
  for one in $(words "$@"); do
    case $one in *=*) entry="${one%%=*}|${one#*=}" ;; *) entry=$(grep "^$one|" available | head -n 1) ;; esac
    case " $* " in *" -s "*) echo "Inst ${entry%%|*} (${entry#*|} repository [all])" ;; *) put "$entry" ;; esac
  done ;;
rpm)
  case $1 in
  -qa) sed 's/$/|x86_64/' installed ;;
  -q) shift 3; grep -q "^$1|" installed; exit ;;
  esac ;;
dnf)
  case " $* " in *" makecache "*) echo "dnf makecache" >>log; exit 0 ;; esac
  simulates=; case " $* " in *" --assumeno "*) simulates=yes ;; esac
  while [ "$1" != install ]; do shift; done; shift
  [ -n "$simulates" ] && echo "Installing:" || echo "dnf install $*" >>log
  for one; do
    entry=$(while IFS='|' read -r package version; do
      rest=${version#*:}
      for form in "$package" "$package-${rest%-*}" "$package-$rest" "$package-$version"; do
        [ "$form" = "$one" ] && echo "$package|$version"; done
    done <available | head -n 1)
    [ -n "$entry" ] || { echo "No match for argument: $one" >&2; exit 1; }
    [ -n "$simulates" ] && echo " ${entry%%|*} noarch ${entry#*|} beegfs 5 k" || put "$entry"
  done
  [ -z "$simulates" ] || { echo; echo "Transaction Summary"; exit 1; } ;;
esac
exit 0
"""
TOOLS = ("cat", "grep", "head", "sed", "sh")
DEB, RPM = "20:8.3.1", "20:8.3.1-el9"
#: A packet of OpenPGP with a key of version 4, which is enough for a fingerprint.
KEY = b"\x98\x08" + b"\x04" + b"\x00" * 4 + b"\x01ab"
FINGERPRINT = openpgp.fingerprints(KEY)[0]


class Node:
    """A node whose files lie below a directory. ``manager`` is ``dpkg`` or ``rpm``."""

    def __init__(self, root: pathlib.Path, manager: str) -> None:
        self.root, self.manager = root, manager
        version = DEB if manager == "dpkg" else RPM
        newer = version.replace("8.3.1", "8.3.2")
        names = ("beeond", "libbeegfs-ib", "beegfs-client")
        self.write("available", "".join(f"{name}|{one}\n" for name in names for one in (newer, version)))
        self.add("available", "pdsh|2.31-1\npython3-dnf-plugin-versionlock|0:4.0-1\n")
        self.write("installed", "bash|5.2-1\n")
        self.write("log", "")
        self.write("key", openpgp.armor(KEY))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add(self, name: str, text: str) -> None:
        self.write(name, self.read(name) + text)

    def read(self, name: str) -> str:
        path = self.root / name
        return path.read_text() if path.exists() else ""

    def log(self) -> list[str]:
        lines = self.read("log").splitlines()
        self.write("log", "")
        return lines

    def run(self, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        return run_main(beeond_software.main, {"_ansible_check_mode": check, **options})

    def repository(self) -> dict[str, str]:
        """Options that add a repository whose key is the right one."""
        return {
            "repository_url": "https://mirror.example.org/beegfs_8.3",
            "repository_suite": "noble",
            "repository_el": "rhel9",
            "repository_key": str(self.root / "key"),
            "repository_fingerprint": FINGERPRINT,
        }


def make_node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, manager: str) -> Node:
    """A node of Ubuntu or EL, whose programs alone are in the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in {"dpkg": ("dpkg-query", "dpkg", "apt-get", "apt-cache"), "rpm": ("rpm", "dnf")}[manager]:
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    for name in TOOLS:
        (programs / name).symlink_to(str(shutil.which(name)))
    node = Node(tmp_path / "node", manager)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("NODE", str(node.root))
    monkeypatch.setattr(client_phase, "ROOT", node.root)
    monkeypatch.setattr(units, "SYSTEMD", f"{node.root}/none")
    monkeypatch.setattr(apply, "PREFERENCES", f"{node.root}/etc/preferences")
    monkeypatch.setattr(dnf_, "VERSIONLOCK", f"{node.root}/etc/versionlock.list")
    for name in ("sources", "repo"):
        monkeypatch.setattr(Repository, name, property(lambda _self, name=name: f"{node.root}/etc/{name}"))
    monkeypatch.setattr(Repository, "keyring", lambda _self, system: f"{node.root}/etc/{system}.key")
    # Whoever runs this test is root on the node.
    owner, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(os.getegid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: owner)
    monkeypatch.setattr(grp, "getgrnam", lambda _name: group)
    return node


def told(result: dict[str, t.Any]) -> list[str]:
    assert not result["failed"], result
    return [f"{change['kind']} {pathlib.Path(change['name']).name} {change['what']}" for change in result["changes"]]
