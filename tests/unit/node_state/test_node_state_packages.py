# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of packages, and which of them are there."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.packages import (
    missing_packages,
    needed_packages,
    next_packages,
    package_names,
)


class NoHost:
    """A node that must not be asked for anything."""

    def run_command(self, args: list[str], **_more: t.Any) -> tuple[int, str, str]:
        raise AssertionError(args)

    def get_bin_path(self, arg: str) -> str | None:
        raise AssertionError(arg)

    def selinux_default_context(self, path: str) -> list[t.Any]:
        raise AssertionError(path)

    def set_context_if_different(self, path: str, context: list[t.Any], changed: bool) -> bool:
        raise AssertionError(path)


@pytest.mark.parametrize(
    "item",
    [
        "a=1",
        "-y",
        "a b",
        {"deb": "x"},
        {},
        {"dpkg": 1},
        {"name": "a", "rpm": "b"},
        {"first": True},
        {"name": "a", "first": "soon"},
        {"rpm": ["-y"]},
        3,
    ],
)
def test_package_names_are_bare(item: t.Any) -> None:
    with pytest.raises(ClusterError):
        package_names([item], "dpkg")


def test_package_names_differ_by_system() -> None:
    items = ["tar", {"dpkg": "openssh-client", "rpm": "openssh-clients"}, {"dpkg": "libsecret-1-0"}, "tar"]
    assert package_names(items, "dpkg") == ["tar", "openssh-client", "libsecret-1-0"]
    assert package_names(items, "rpm") == ["tar", "openssh-clients"]


def test_one_item_may_name_several_packages() -> None:
    items = [{"name": ["tar", {"dpkg": "bzip2", "rpm": ["bzip2", "bzip2-libs"]}]}, {"name": "tar"}, {"name": []}]
    assert package_names(items, "dpkg") == ["tar", "bzip2"]
    assert package_names(items, "rpm") == ["tar", "bzip2", "bzip2-libs"]


@pytest.mark.parametrize("items", [[{"name": []}], [{"dpkg": []}, {"rpm": [], "dpkg": []}]])
def test_no_name_at_all_needs_no_package_system(monkeypatch: pytest.MonkeyPatch, items: list[t.Any]) -> None:
    monkeypatch.setenv("PATH", "")
    assert missing_packages(items, NoHost()) == ([], "")


def test_what_brings_a_repository_comes_first() -> None:
    items = ["a", {"rpm": ["r1", "r2"], "first": True}, {"name": "b", "first": "no"}, {"dpkg": "d"}]
    assert package_names(items, "rpm") == ["a", "r1", "r2", "b"]
    assert next_packages(items, ["a", "r1", "r2", "b"], "rpm") == ["r1", "r2"]
    assert next_packages(items, ["a", "r2"], "rpm") == ["r2"]
    assert next_packages(items, ["a", "b"], "rpm") == ["a", "b"]
    assert next_packages(items, ["a", "b", "d"], "dpkg") == ["a", "b", "d"]


def test_what_brings_a_repository_is_not_needed_where_nothing_comes_from_it() -> None:
    items = [{"name": "repository", "first": True}, "a", "b"]
    assert needed_packages(items, ["repository"], "rpm") == []
    assert needed_packages(items, ["repository", "b"], "rpm") == ["repository", "b"]
    # By itself it is a package like any other.
    assert needed_packages(items[:1], ["repository"], "rpm") == ["repository"]
