# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of container runtimes: what others wrote stays, and what is ours is there."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import containerd, settings
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import plan as rules
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import ARGUMENT_SPEC, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed
from hypothesis import given
from hypothesis import strategies as st

tomllib = pytest.importorskip("tomllib", reason="Python 3.11")

SCALARS = st.one_of(st.booleans(), st.integers(), st.text("abc", max_size=3))
SETTINGS = st.dictionaries(
    st.sampled_from(["debug", "data-root", "log-opts", "runtimes", "default-runtime", "live-restore"]),
    SCALARS | st.dictionaries(st.sampled_from(["kata", "nvidia", "x"]), st.dictionaries(st.just("path"), SCALARS)),
).map(lambda found: {**found, **({"runtimes": {}} if not isinstance(found.get("runtimes", {}), dict) else {})})


def asked(**parts: t.Any) -> Request:
    return Request.of({**{name: option.get("default") for name, option in ARGUMENT_SPEC.items()}, **parts})


def node(manager: str, machine: str = "x86_64") -> Facts:
    return Facts(manager, machine, docker=False, packages={}, texts={})


@given(SETTINGS)
def test_dockers_settings_converge_and_keep_what_others_set(have: dict[str, t.Any]) -> None:
    once = settings.daemon_settings(have, asked(docker_settings={"log-level": "warn"}))
    assert settings.daemon_settings(once, asked(docker_settings={"log-level": "warn"})) == once
    assert once["default-runtime"] == "nvidia"
    assert once["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    for key in set(have) - {"runtimes", "default-runtime"}:
        assert once[key] == have[key]
    for name in set(have.get("runtimes", {})) - {"nvidia"}:
        assert once["runtimes"][name] == have["runtimes"][name]
    assert settings.parse_daemon(settings.daemon_text(once)) == json.loads(json.dumps(once))


@given(SETTINGS)
def test_taking_ours_away_leaves_no_trace_of_the_runtime(have: dict[str, t.Any]) -> None:
    left = settings.without_ours(settings.daemon_settings(have, asked()))
    # Docker's own. With none a Docker that is told to reload keeps the one that it has.
    assert left["default-runtime"] == "runc"
    assert "nvidia" not in left.get("runtimes", {})
    assert settings.without_ours(left) == left


def test_without_the_toolkit_docker_keeps_its_runtime() -> None:
    assert settings.daemon_settings({}, asked(toolkit=False, docker_data_root="/mnt/x")) == {"data-root": "/mnt/x"}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"a": 1,}',
        '{"runtimes": null}',
        '{"runtimes": []}',
        '{"a": ' + "[" * 5_000,
        b'{"data-root": "/mnt/caf\xe9"}'.decode(errors="surrogateescape"),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_settings_that_docker_would_refuse_are_not_touched(text: str) -> None:
    with pytest.raises(ClusterError, match="Correct or remove it"):
        settings.parse_daemon(text)


def test_a_byte_order_mark_is_skipped_as_docker_does() -> None:
    assert settings.parse_daemon('\ufeff{"debug": true}') == {"debug": True}
    assert settings.parse_daemon("\ufeff") == {}


@pytest.mark.parametrize(
    ("want", "restart"),
    [
        ({"a": 1}, False),
        ({"a": 1, "default-runtime": "nvidia", "runtimes": {"nvidia": {}}}, False),
        ({"a": 1, "data-root": "/mnt/x"}, True),
        ({"a": 2}, True),
        ({}, True),
    ],
)
def test_only_what_docker_cannot_reload_needs_a_restart(want: dict[str, t.Any], restart: bool) -> None:
    assert settings.needs_restart({"a": 1}, want) is restart


CONFIGS = [
    "",
    # Indented, quoted, with remarks, and with brackets that end nothing.
    "version = 2\n  [grpc]\n    uid = 0\n",
    "version = 2\n  imports = []\n",
    'version = 2\n"imports" = ["/opt/a.toml"]\n',
    'version = 2\nimports = [\n  "/opt/a.toml", # site\n]\n[grpc]\n',
    'version = 2\nimports = [ # ]\n  "/opt/a].toml" # no comma\n]\n',
    "version = 2\nimports = ['/opt/a.toml',]\n",
    '"version" = 2\n',
    "version = 2\n",
    'version = 2\n\n[grpc]\n  address = "/run/x.sock"\n',
    '[grpc]\n  address = "/run/x.sock"\n',
    'version = 2\nimports = []\n[grpc]\n  address = "/run/x.sock"\n',
    'version = 2\nimports = ["/opt/site/conf.d/*.toml"]\n',
    'version = 2\nimports = ["/etc/containerd/conf.d/10-site.toml"]\n',
    'version = 2\nimports = ["conf.d/*.toml", ""]\n',
    'version = 2\nimports = ["/etc/other/*.toml"]\n[plugins]\n  [plugins."a"]\n    x = 1\n',
    'imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 2\n[grpc]\n',
]


@pytest.mark.parametrize("text", CONFIGS)
def test_containerd_imports_our_part_once_and_keeps_the_rest(text: str) -> None:
    once = containerd.config_text(text)
    before, after = tomllib.loads(text), tomllib.loads(once)
    assert "/etc/containerd/conf.d/*.toml" in after["imports"]
    assert set(before.get("imports", [])) <= set(after["imports"])
    assert {key: value for key, value in after.items() if key != "imports"} == {
        "version": 2,
        **{key: value for key, value in before.items() if key != "imports"},
    } or text.startswith("[grpc]")
    assert containerd.config_text(once) == once


@pytest.mark.parametrize("item", ["/etc/containerd/conf.d/99-nvidia.toml", "/etc/containerd/*/*.toml"])
def test_a_part_that_is_imported_another_way_is_not_imported_twice(item: str) -> None:
    text = f"version = 2\nimports = ['/opt/a.toml', '{item}']\n"
    assert containerd.config_text(text) == text


@pytest.mark.parametrize(
    ("config", "version", "plugin"),
    [
        ("", 2, "io.containerd.grpc.v1.cri"),
        ('disabled_plugins = ["cri"]\n', 1, "cri"),
        ("[plugins]\n  version = 3\n", 1, "cri"),
        ("version = 1\n", 1, "cri"),
        ("version = 2\n", 2, "io.containerd.grpc.v1.cri"),
        ("# version = 2\nversion=3\n", 3, "io.containerd.cri.v1.runtime"),
        ("version = 4\n", 3, "io.containerd.cri.v1.runtime"),
    ],
)
def test_our_part_has_the_version_of_the_file_that_imports_it(config: str, version: int, plugin: str) -> None:
    part = tomllib.loads(containerd.part_text([containerd.config_text(config)]))
    assert part["version"] == version
    assert list(part["plugins"]) == [plugin]
    cri = part["plugins"][plugin]["containerd"]
    assert cri["default_runtime_name"] == "nvidia"
    assert cri["runtimes"]["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"


def test_enroot_mounts_scratch_and_keeps_images_on_the_disk() -> None:
    conf, mounts = settings.enroot_files(asked(enroot_directory="/mnt/resource_nvme/enroot"))
    assert "ENROOT_CACHE_PATH /mnt/resource_nvme/enroot/cache/user-$(id -u)\n" in conf["content"]
    assert mounts["content"].splitlines()[-1] == "/mnt/scratch /data none x-create=dir,bind,rw,nosuid 0 0"
    assert settings.enroot_files(asked(scratch="")) == []


@pytest.mark.parametrize("containers", [None, ["c0ffee"]])
def test_a_restart_needs_consent_where_docker_does_not_say_what_runs(containers: list[str] | None) -> None:
    with pytest.raises(ClusterError, match="Docker does not say" if containers is None else "1 running containers"):
        rules.check_consent(asked(), containers)
    rules.check_consent(asked(allow_restart=True), containers)
    rules.check_consent(asked(), [])


def test_a_pinned_toolkit_is_pinned_in_all_its_parts() -> None:
    assert [(root.name, root.upstream) for root in rules.wanted_roots(asked(toolkit_version="1.17.8"))] == [
        ("nvidia-container-toolkit", "1.17.8"),
        ("nvidia-container-toolkit-base", "1.17.8"),
        ("libnvidia-container-tools", "1.17.8"),
        ("libnvidia-container1", "1.17.8"),
    ]
    assert [root.name for root in rules.wanted_roots(asked(enroot=True))] == [
        "nvidia-container-toolkit",
        "enroot",
        "enroot+caps",
    ]
    assert rules.wanted_roots(asked(toolkit=False)) == []


def test_the_repository_is_nvidias_unless_another_is_named() -> None:
    assert (
        rules.repository_for(asked(), node("dpkg")).url
        == "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"
    )
    assert rules.repository_for(asked(), node("rpm", "aarch64")).url.endswith("/rpm/aarch64")
    assert rules.repository_for(asked(toolkit=False), node("dpkg")).url == ""
    assert rules.repository_for(asked(repository_url="file:/opt/x/"), node("dpkg")).fingerprint == ""


NAMES = [*rules.TOOLKIT, "docker.io", "enroot", "enroot+caps", "nvslurm-plugin-pyxis"]
VERSIONS = st.tuples(st.sampled_from(["1.17.8-1", "1.18.0-1"]), st.sampled_from(["installed", "half-configured"]))
PACKAGES = st.dictionaries(st.sampled_from(NAMES), VERSIONS).map(
    lambda found: {name: Installed(name, version, state) for name, (version, state) in found.items()}
)


@given(PACKAGES, st.sampled_from(["", "1.18.0"]), st.booleans(), st.sampled_from(["", "file:/opt/mirror"]))
def test_a_repository_is_needed_only_where_a_package_comes_from_it(
    have: dict[str, Installed], version: str, others: bool, url: str
) -> None:
    """NVIDIA's has the toolkit, and nothing else that the role installs; a named one may have everything."""
    request = asked(
        toolkit_version=version, repository_url=url, enroot=others, pyxis=others, docker_packages=["docker.io"] * others
    )
    plan = rules.plan_present(request, dataclasses.replace(node("dpkg"), packages=have))
    missing = {root.name for root in plan.missing}
    assert plan.needs_repository is bool(missing if url else missing & set(rules.TOOLKIT))
    if not missing:
        assert not plan.needs_repository


@pytest.mark.parametrize("other", ["/x", "", 7, ["/y"]])
def test_two_different_places_for_images_are_refused(other: t.Any) -> None:
    """One of them won silently, and images went to a place that was not meant."""
    with pytest.raises(ClusterError, match=r"`docker_data_root` \('/y'\) is another directory than the data-root"):
        asked(docker_data_root="/y", docker_settings={"data-root": other})


@pytest.mark.parametrize("given", [{"data-root": "/y"}, {"data-root": "/y/"}, {"debug": True}])
def test_the_same_place_for_images_may_be_said_twice(given: dict[str, t.Any]) -> None:
    assert settings.daemon_settings({}, asked(docker_data_root="/y", docker_settings=given))["data-root"][:2] == "/y"
