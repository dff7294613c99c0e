# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of others that a node has, and passwords, which no list of repositories shows."""

from __future__ import annotations

import glob
import os
import pathlib
import types
import typing as t

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.action import container_runtime, nvidia_driver
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import repository as vendor
from time_limit import within

URL = "https://mirror.example.org/cuda"
SECRET = "S3cret"


@pytest.fixture
def root(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A node without repositories: what is below /etc is below this directory."""
    real = glob.glob
    monkeypatch.setattr(vendor.glob, "glob", lambda pattern: real(f"{tmp_path}{pattern}"))
    for name in ("apt/sources.list.d", "yum.repos.d"):
        (tmp_path / "etc" / name).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "directory"])
@pytest.mark.parametrize("name", ["apt/sources.list", "apt/sources.list.d/a.list", "yum.repos.d/a.repo"])
def test_what_is_no_file_is_no_list_of_repositories(root: pathlib.Path, name: str, kind: str) -> None:
    place = root / "etc" / name
    if kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        os.mkfifo(root / "pipe")
        place.symlink_to(root / "pipe")
    (root / "etc/apt/sources.list.d/z.list").write_text(f"deb [signed-by=/x.gpg] {URL}/ /\n")
    with within(5):
        assert vendor.listed_elsewhere(vendor.Repository(URL))
        assert not vendor.listed_elsewhere(vendor.Repository(f"{URL}2"))


@pytest.mark.parametrize("manager", ["dpkg", "rpm"])
def test_a_list_of_another_author_is_none_that_was_added_here(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, manager: str
) -> None:
    """NVIDIA's installation guide writes /etc/yum.repos.d/nvidia-container-toolkit.repo."""
    place = tmp_path / "list"
    for name in ("sources", "repo"):
        monkeypatch.setattr(vendor.Repository, name, property(lambda _self: str(place)))
    mine = vendor.Repository(URL)
    assert not vendor.is_added(mine, manager, "# ours")
    place.write_text(f"[nvidia-container-toolkit]\nbaseurl={URL}\n")
    assert not vendor.is_added(mine, manager, "# ours")
    place.write_text(vendor.repository_files(mine, manager, "", "# ours")[0]["content"])
    assert vendor.is_added(mine, manager, "# ours")


def test_a_pipe_in_the_place_of_a_key_is_no_key(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "key")
    monkeypatch.setattr(vendor.Repository, "keyring", lambda *_args: str(tmp_path / "key"))
    wanted = vendor.Repository(URL, key=str(tmp_path / "key"), fingerprint="AB")
    with within(5), pytest.raises(ClusterError, match="could not be read") as caught:
        vendor.key_text(wanted, "dpkg", check=False)
    assert caught.value.kind == "download_failed"


@pytest.mark.parametrize("text", [f"baseurl={URL}/", f"  baseurl = {URL}"])
def test_dnf_s_own_repository_with_a_password_is_used_as_it_is(root: pathlib.Path, text: str) -> None:
    mine, other = vendor.Repository(URL), root / "etc/yum.repos.d/site.repo"
    other.write_text(f"[site]\n{text}\nusername=hpc\npassword={SECRET}\n")
    assert vendor.listed_elsewhere(mine)
    assert not vendor.listed_elsewhere(vendor.Repository(f"{URL}/x86_64"))
    # NVIDIA's own file has no password: ours stands beside it, as ever.
    other.write_text(f"[site]\n{text}\n#password={SECRET}\n")
    assert not vendor.listed_elsewhere(mine)


def fail(*_args: t.Any, **_options: t.Any) -> t.NoReturn:
    pytest.fail("the module was sent to the node")


@pytest.mark.parametrize("option", ["repository_url", "repository_key"])
@pytest.mark.parametrize("user", [f"hpc:{SECRET}", SECRET, f"hpc:p@{SECRET}", f":{SECRET}"])
@pytest.mark.parametrize("plugin", [container_runtime, nvidia_driver])
def test_a_password_in_an_address_never_leaves_the_controller(
    plugin: types.ModuleType, user: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda *_args: {})
    monkeypatch.setattr(ActionBase, "_execute_module", fail)
    action = object.__new__(plugin.ActionModule)
    action._task = types.SimpleNamespace(args={option: f"https://{user}@mirror.example.org/cuda"}, async_val=0)
    result = action.run(None, {})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert f"`{option}`" in result["msg"]
    assert SECRET not in str(result)
    assert ("auth.conf.d" in result["remedy"]) == (option == "repository_url")


@pytest.mark.parametrize(
    "url", ["not-a-url", "mirror.example.org/cuda", f"hpc:{SECRET}@host", "https://a b", "/srv/cuda"]
)
@pytest.mark.parametrize("plugin", [container_runtime, nvidia_driver])
def test_what_is_no_url_never_leaves_the_controller(
    plugin: types.ModuleType, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda *_args: {})
    monkeypatch.setattr(ActionBase, "_execute_module", fail)
    action = object.__new__(plugin.ActionModule)
    action._task = types.SimpleNamespace(args={"repository_url": url}, async_val=0)
    result = action.run(None, {})
    assert (result["failed"], result["error_kind"]) == (True, "bad_input")
    assert "`repository_url` is no URL" in result["msg"]
    assert SECRET not in str(result)


@pytest.mark.parametrize(
    "url", ["", "file:/opt/a@b", f"{URL}/a@b", "http://[::1]:8080/x", "https://mirror.example.org?to=a@b", "/a://b@c"]
)
def test_an_address_without_one_is_none(url: str) -> None:
    vendor.refuse_passwords({"repository_url": url, "repository_key": url})


@pytest.mark.parametrize("manager", ["dpkg", "rpm"])
@pytest.mark.parametrize("earlier", [f"URIs: https://hpc:{SECRET}@mirror/\n", f"password = {SECRET}\n", "enabled=1\n"])
def test_a_password_that_an_earlier_release_wrote_shows_in_no_diff(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, manager: str, earlier: str
) -> None:
    place = tmp_path / "list"
    place.write_text(earlier)
    for name in ("sources", "repo"):
        monkeypatch.setattr(vendor.Repository, name, str(place))
    (file,) = vendor.repository_files(vendor.Repository(URL), manager, "", "#")
    assert file["sensitive"] == (SECRET in earlier)
