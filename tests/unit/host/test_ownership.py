# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Owner, group and mode: what is asked for, what differs, and that no link leads them elsewhere."""

from __future__ import annotations

import os
import pathlib
import pwd
import stat

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.inflate import place_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gzip.part_file import part_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.ownership import (
    Ownership,
    find_ownership,
    give_below,
    others_below,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
USER = next(user for user in pwd.getpwall() if user.pw_uid > 0)
PRIVATE = find_ownership(USER.pw_name, str(USER.pw_gid), "0640", "0750")


def of(path: pathlib.Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_names_and_numbers_are_found() -> None:
    assert (PRIVATE.uid, PRIVATE.gid, PRIVATE.mode, PRIVATE.directory_mode) == (
        USER.pw_uid,
        USER.pw_gid,
        0o640,
        0o750,
    )
    assert find_ownership("70001", "", "", "").uid == 70001
    assert not find_ownership("", "", "", "").any


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (("nobody-of-this-name", "", "", ""), "user 'nobody-of-this-name'"),
        (("", "no-such-group", "", ""), "group 'no-such-group'"),
        # To chown(2) it means "as it is": every file would differ in every run.
        (("4294967295", "", "", ""), "`owner` is 4294967295"),
        (("", "99999999999", "", ""), "`group` is 99999999999"),
        # What YAML makes of 0640 without quotes.
        (("", "", "416", ""), "`mode` is '416'"),
        (("", "", "", "rwx"), "`directory_mode` is 'rwx'"),
        (("", "", "04640", ""), "in quotes"),
    ],
)
def test_what_is_unknown_is_refused_by_name(words: tuple[str, str, str, str], fragment: str) -> None:
    with pytest.raises(ClusterError) as caught:
        find_ownership(*words)
    assert fragment in str(caught.value)
    assert caught.value.kind == "bad_input"


def test_a_node_with_another_number_for_the_name_refuses() -> None:
    PRIVATE.check_here("gpu-1")
    Ownership().check_here("gpu-1")
    with pytest.raises(ClusterError, match=f"On gpu-2 the user '{USER.pw_name}' is {USER.pw_uid}, .* is 12345"):
        Ownership(owner=USER.pw_name, uid=12345).check_here("gpu-2")


@pytest.mark.parametrize(
    ("planned", "unlike"),
    [
        (PRIVATE, ""),
        (Ownership(), ""),
        (Ownership(owner="70001", uid=70001, group="70002", gid=70002), ""),
        (Ownership(owner=USER.pw_name, uid=12345), f"has {USER.pw_uid} for the user {USER.pw_name!r}, not 12345"),
        (Ownership(owner="nobody-of-this-name", uid=7), "knows no user 'nobody-of-this-name'"),
        (Ownership(group="no-such-group", gid=7), "knows no group 'no-such-group'"),
    ],
)
def test_what_a_node_knows_otherwise_ends_a_sentence(planned: Ownership, unlike: str) -> None:
    assert planned.unlike_here() == unlike


@needs_root
def test_files_have_it_before_they_have_their_names(tmp_path: pathlib.Path) -> None:
    with part_file(str(tmp_path / "a/b/x"), str(tmp_path), PRIVATE) as (write, _handle):
        write(b"x")
        seen = [of(path)[2] for path in (tmp_path / "a/b").iterdir()]
    assert seen == [0o600]
    raw = tmp_path / "raw"
    raw.write_bytes(b"raw")
    place_file(str(raw), str(tmp_path / "c/y"), root=str(tmp_path), ownership=PRIVATE)
    for name in ("a", "a/b", "c"):
        assert of(tmp_path / name) == (USER.pw_uid, USER.pw_gid, 0o750)
    for name in ("a/b/x", "c/y"):
        assert of(tmp_path / name) == (USER.pw_uid, USER.pw_gid, 0o640)


@needs_root
def test_what_differs_is_found_and_changed_once(tmp_path: pathlib.Path) -> None:
    before = of(tmp_path)
    for name in ("a/b/x", "a/y", "z", "a/other", "foreign/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "a").chmod(0o2755)
    names = ["a/b/x", "a/y", "z", "missing/x"]
    others = others_below(str(tmp_path), names, PRIVATE)
    assert others == ["a", "a/b", "a/b/x", "a/y", "z"]
    give_below(str(tmp_path), others, PRIVATE)
    assert others_below(str(tmp_path), names, PRIVATE) == []
    assert of(tmp_path / "a") == (USER.pw_uid, USER.pw_gid, 0o2750)  # an inherited set-group-ID stays
    assert of(tmp_path / "a/b/x") == (USER.pw_uid, USER.pw_gid, 0o640)
    assert (of(tmp_path), of(tmp_path / "a/other")[0], of(tmp_path / "foreign")[0]) == (before, 0, 0)


@needs_root
def test_nothing_outside_is_given_away(tmp_path: pathlib.Path) -> None:
    """A user of the destination puts links, hard ones too, where files of the dataset were."""
    data, secret = tmp_path / "data", tmp_path / "etc/secret"
    for path in (data / "a", secret):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    before = of(secret), of(secret.parent)
    (data / "soft").symlink_to(secret)
    (data / "directory").symlink_to(secret.parent)
    os.link(secret, data / "hard")
    assert others_below(str(data), ["soft", "hard", "directory"], PRIVATE) == []
    for name, kind in (("soft", OSError), ("directory", OSError), ("directory/secret", ClusterError)):
        with pytest.raises(kind):
            give_below(str(data), [name], PRIVATE)
    give_below(str(data), ["hard"], PRIVATE)
    assert (of(secret), of(secret.parent)) == before
