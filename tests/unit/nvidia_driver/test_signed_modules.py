# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Canonical's modules: which build of a package is for a driver. The text is composed after what ``apt-cache show`` says."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.apt import Apt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import packages, remove
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver.signed import parse_builds, signed_words

KERNEL = "5.15.0-56-generic"
OF_KERNEL = f"linux-modules-nvidia-515-server-{KERNEL}"
OF_FLAVOR = "linux-modules-nvidia-515-server-generic"


def stanza(name: str, version: str, depends: str) -> str:
    return f"Package: {name}\nArchitecture: amd64\nVersion: {version}\nDepends: {depends}\nDescription: modules\n for a kernel: signed\n"


def about(driver: str) -> str:
    return f"nvidia-kernel-common-515-server (<= {driver}-1), nvidia-kernel-common-515-server (>= {driver})"


def shown(version: str, driver: str) -> dict[str, str]:
    """Both packages in one build."""
    image = f"debconf (>= 0.5) | debconf-2.0, linux-image-{KERNEL} | linux-image-unsigned-{KERNEL}"
    signed = f"linux-signatures-nvidia-{KERNEL} (= {version}), linux-objects-nvidia-515-server-{KERNEL} (= {version})"
    return {
        OF_KERNEL: stanza(OF_KERNEL, version, f"{image}, {signed}, {about(driver)}"),
        OF_FLAVOR: stanza(OF_FLAVOR, version, f"{OF_KERNEL} (= {version}), {about(driver)}"),
    }


class Lists:
    """Answers ``apt-cache show`` of the builds that it has; the later ones only after an update."""

    def __init__(self, *builds: tuple[str, str], later: t.Sequence[tuple[str, str]] = ()) -> None:
        self.builds, self.later, self.updates = [*builds], [*later], 0

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        if "update" in args:
            self.updates += 1
            self.builds += self.later
            return 0, "", ""
        wanted = [word.partition("=") for word in args[args.index("--") + 1 :]]
        found = [
            text
            for version, driver in self.builds
            for name, text in shown(version, driver).items()
            if any(name == one and one_version in ("", version) for one, _equals, one_version in wanted)
        ]
        return 0, "\n".join(found), ""


NEW, OLD = ("5.15.0-56.62+2", "515.105.01"), ("5.15.0-56.62+1", "515.86.01")


def words(lists: Lists, driver: str, have: str = "", *, fresh: bool = False) -> list[str]:
    there = {OF_FLAVOR: Installed(OF_FLAVOR, have)} if have else {}
    return signed_words(Apt(lists), [OF_FLAVOR], there, driver, fresh=fresh)


def test_a_build_says_its_driver_and_its_parts() -> None:
    build = parse_builds(shown(*OLD)[OF_KERNEL])[0]
    assert (build.name, build.version, build.driver) == (OF_KERNEL, OLD[0], "515.86.01")
    assert build.parts == (
        f"linux-signatures-nvidia-{KERNEL}={OLD[0]}",
        f"linux-objects-nvidia-515-server-{KERNEL}={OLD[0]}",
    )


def test_all_parts_are_of_the_build_for_the_wanted_driver() -> None:
    parts = [
        f"linux-modules-nvidia-515-server-{KERNEL}",
        f"linux-signatures-nvidia-{KERNEL}",
        f"linux-objects-nvidia-515-server-{KERNEL}",
    ]
    for version, driver in (NEW, OLD):
        assert words(Lists(NEW, OLD), driver) == [f"{name}={version}" for name in (OF_FLAVOR, *parts)]


def test_a_build_that_is_there_and_fits_stays() -> None:
    again = ("5.15.0-56.62+3", OLD[1])
    assert words(Lists(again, OLD), OLD[1], have=OLD[0])[0] == f"{OF_FLAVOR}={OLD[0]}"
    assert words(Lists(again, OLD), OLD[1])[0] == f"{OF_FLAVOR}={again[0]}"


def test_where_none_is_for_the_driver_those_are_named_that_there_are() -> None:
    lists = Lists(NEW)
    with pytest.raises(
        ClusterError, match=f"has {OF_FLAVOR} for driver 515.86.01. There is it for 515.105.01."
    ) as caught:
        words(lists, OLD[1])
    assert caught.value.kind == "not_available"
    assert lists.updates == 0


def test_lists_that_know_none_are_read_again_once() -> None:
    lists = Lists(NEW, later=[OLD])
    assert words(lists, OLD[1], fresh=True)[0] == f"{OF_FLAVOR}={OLD[0]}"
    assert lists.updates == 1


def test_modules_of_kernels_are_named_beside_what_follows_a_flavor() -> None:
    names = ["nvidia-utils-580-server", "linux-modules-nvidia-580-server-open-azure"]
    assert packages.signed_modules(names, ["6.8.0-1041-azure"]) == [
        "linux-modules-nvidia-580-server-open-6.8.0-1041-azure"
    ]
    assert packages.signed_modules(["nvidia-open"], ["6.8.0-1041-azure"]) == []


def test_a_removal_takes_them_along() -> None:
    there = {name: Installed(name, "5.15.0-56.62+1") for name in (OF_KERNEL, OF_FLAVOR, f"linux-image-{KERNEL}")}
    assert remove.names_to_remove(there, gdrcopy=False) == sorted([OF_KERNEL, OF_FLAVOR])


def test_a_removal_takes_gdrcopy_along_where_it_was_asked_for() -> None:
    there = {name: Installed(name, "2.5.1-1") for name in ("gdrdrv-dkms", "libgdrapi")}
    assert remove.names_to_remove(there, gdrcopy=True) == ["gdrdrv-dkms", "libgdrapi"]
    # Without it, it is the site's.
    assert remove.names_to_remove(there, gdrcopy=False) == []
