#!/usr/bin/env python3
# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the double of BeeOND on a node, or take it away. See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import typing as t
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = "opt/beegfs/double"
MARK = "a double for tests: tests/lab/beeond"
LAUNCHER = """#!/usr/bin/python3 -IS
# {mark}
import sys

sys.path.insert(0, "/{programs}")
import {module}

sys.exit({module}.{call})
"""
HELPER = """#!/bin/bash
# {mark}
# The real file holds shell functions, which others source; so does this one.
do_stoplocal() {{ /{programs}/stoplocal "$@"; }}
"""
REST = "sys.argv[1:]"
BOTH = {
    "opt/beegfs/sbin/beeond": ("beeond", f"main({REST})"),
    "opt/beegfs/sbin/beegfs-mgmtd": ("daemon", f'main("beegfs-mgmtd", {REST})'),
    "opt/beegfs/sbin/beegfs-meta": ("daemon", f'main("beegfs-meta", {REST})'),
    "opt/beegfs/sbin/beegfs-storage": ("daemon", f'main("beegfs-storage", {REST})'),
    f"{PROGRAMS}/stoplocal": ("stoplocal", f"main({REST})"),
    f"{PROGRAMS}/modprobe": ("client", "modprobe()"),
    "etc/init.d/beegfs-client": ("client", f"service({REST})"),
    "usr/sbin/mount.beegfs": ("client", f"mount({REST})"),
}
ONLY = {
    7: {
        "opt/beegfs/sbin/beegfs-helperd": ("daemon", f'main("beegfs-helperd", {REST})'),
        "usr/sbin/beegfs-ctl": ("control", f"seven({REST})"),
    },
    8: {"usr/sbin/beegfs": ("control", f"eight({REST})")},
}
LINKS = {"usr/bin/beeond": "/opt/beegfs/sbin/beeond"}
AUTHENTICATION = {7: "connAuthFile =\nconnDisableAuthentication = false\n", 8: "connAuthFile = /etc/beegfs/conn.auth\n"}


def files(major: int, with_pdsh: bool) -> dict[str, str]:
    """The files that a node gets, by their paths below the root, with their contents; programs first."""
    programs = {**BOTH, **ONLY[major], **({"usr/bin/pdsh": ("pdsh", f"main({REST})")} if with_pdsh else {})}
    found = {
        path: LAUNCHER.format(mark=MARK, programs=PROGRAMS, module=module, call=call)
        for path, (module, call) in programs.items()
    }
    found["opt/beegfs/lib/beegfs-ondemand-stoplocal"] = HELPER.format(mark=MARK, programs=PROGRAMS)
    for source in sorted((HERE / "programs").glob("*.*")):
        found[f"{PROGRAMS}/{source.name}"] = source.read_text(encoding="utf-8")
    return found


def configuration(major: int) -> dict[str, str]:
    """What the packages put into /etc/beegfs, with the values that matter here."""
    found = {}
    for name in ("mgmtd", "meta", "storage", "helperd", "client"):
        if major == 7 or name in ("meta", "storage", "client"):
            log = "logType = syslog\n" if major == 8 and name != "client" else ""
            manager = "" if name in ("mgmtd", "helperd") else "sysMgmtdHost =\n"
            found[f"etc/beegfs/beegfs-{name}.conf"] = manager + AUTHENTICATION[major] + log
    if major == 8:
        found["etc/beegfs/beegfs-mgmtd.toml"] = "# All values are the service's own.\n"
    found["etc/beegfs/beegfs-client-autobuild.conf"] = "buildEnabled=true\nbuildArgs=-j8\n"
    return found


def install(root: Path, wanted: t.Mapping[str, t.Any], with_pdsh: bool) -> str:
    """Write what differs; "unchanged" where all was there."""
    major = int(wanted["version"].split(".", 1)[0])
    program = root / "opt/beegfs/sbin/beeond"
    if program.exists() and MARK not in program.read_text(encoding="utf-8", errors="replace"):
        raise SystemExit(f"{program} is a real BeeOND: the double does not replace it.")
    changed = False
    for path, text in {**files(major, with_pdsh), **configuration(major)}.items():
        place = root / path
        if path.startswith("etc/beegfs/") and place.exists():
            continue
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
            changed = True
        place.chmod(0o755 if text.startswith("#!") else 0o644)
    for other in ONLY[15 - major]:
        changed |= (root / other).exists()
        (root / other).unlink(missing_ok=True)
    for path, target in LINKS.items():
        if not (root / path).is_symlink():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)
            changed = True
    return "installed" if store(root, wanted) or changed else "unchanged"


def store(root: Path, wanted: t.Mapping[str, t.Any]) -> bool:
    place = root / "var/lib/beegfs-double/settings.json"
    old = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    new = {**old, **wanted}
    if new == old:
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(new, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return True


def remove(root: Path) -> str:
    """Take away programs, settings, and configuration files; data and logs stay."""
    places = [root / path for path in (*files(7, True), *files(8, True), *LINKS, *configuration(7), *configuration(8))]
    found = [place for place in places if place.exists() or place.is_symlink()]
    for place in found:
        place.unlink(missing_ok=True)
    for name in (PROGRAMS, "var/lib/beegfs-double"):
        shutil.rmtree(root / name, ignore_errors=True)
    return "removed" if found else "unchanged"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("/"), help="the node's root directory")
    parser.add_argument("--version", default="7.4.7", help="7.… or 8.…: which options, tools and files it has")
    parser.add_argument(
        "--shared-directory", help="mount a part of this directory, which all nodes see, instead of a tmpfs"
    )
    parser.add_argument("--address", default="", help="the address that services listen at; all, if not given")
    parser.add_argument("--host", default="", help="the node's name for the services, if it is not its host name")
    parser.add_argument("--pdsh", action="store_true", help="with a stand-in for pdsh")
    parser.add_argument("--remove", action="store_true")
    given = parser.parse_args()
    if given.remove:
        print(remove(given.root))
        return 0
    wanted = {"version": given.version, "address": given.address, "host": given.host}
    if given.shared_directory:
        wanted.update(backing="directory", shared_directory=given.shared_directory)
    else:
        wanted.update(backing="tmpfs", shared_directory="")
    print(install(given.root, wanted, given.pdsh))
    return 0


if __name__ == "__main__":
    sys.exit(main())
