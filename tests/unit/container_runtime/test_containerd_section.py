# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Beside our part everything stays in effect that containerd's own files set for the plugin of Kubernetes.

``in_effect`` is containerd 1's rule: the section of a plugin in an imported file replaces the one that was there.
test_containerd_dump.py asks containerd itself.
"""

from __future__ import annotations

import typing as t

import pytest
import tomllib
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import containerd, cri, toml
from containerd_files import CRI, KATA, NEWEST, SITE, V1


def in_effect(config: str, *imported: str) -> dict[str, t.Any]:
    """The plugins' settings, as containerd 1 makes them of a file and what it imports."""
    plugins: dict[str, t.Any] = {}
    for text in (config, *imported):
        plugins.update(tomllib.loads(text).get("plugins", {}))
    return plugins


@pytest.mark.parametrize(("config", "base", "plugin"), [(SITE, "runc", CRI), (KATA, "kata", CRI), (V1, "runc", "cri")])
def test_everything_but_the_runtime_stays(config: str, base: str, plugin: str) -> None:
    part = containerd.part_text([config])
    before, after = in_effect(config), in_effect(config, part)
    runtimes = after[plugin]["containerd"]["runtimes"]
    nvidia = runtimes.pop("nvidia")
    assert after[plugin]["containerd"].pop("default_runtime_name") == "nvidia"
    before[plugin]["containerd"].pop("default_runtime_name", None)
    assert after == before
    # What pods got from the default runtime they get from ours as well, its driver of cgroups above all.
    like = dict(runtimes[base])
    assert nvidia == {
        **like,
        "runtime_type": "io.containerd.runc.v2",
        "options": {**like.get("options", {}), "BinaryName": "/usr/bin/nvidia-container-runtime"},
    }


def test_a_part_that_is_read_again_stays_as_it_is() -> None:
    part = containerd.part_text([SITE])
    assert tomllib.loads(containerd.part_text([part])) == tomllib.loads(part)


def test_another_imported_file_has_the_last_word() -> None:
    other = f'version = 2\n[plugins."{CRI}"]\n  sandbox_image = "other"\n'
    after = in_effect(SITE, other, containerd.part_text([SITE, other, "version = 2\n"]))[CRI]
    assert after["sandbox_image"] == "other"
    assert "registry" not in after


def test_without_settings_containerd_keeps_its_own_runtime_too() -> None:
    found = in_effect("version = 2\n", containerd.part_text(["version = 2\n"]))[CRI]["containerd"]
    assert found["runtimes"]["runc"] == {"runtime_type": "io.containerd.runc.v2"}
    assert found["default_runtime_name"] == "nvidia"


def test_containerd_2_merges_by_itself() -> None:
    (part,) = tomllib.loads(containerd.part_text([NEWEST]))["plugins"].values()
    assert set(part) == {"containerd"}
    assert set(part["containerd"]) == {"default_runtime_name", "runtimes"}
    assert set(part["containerd"]["runtimes"]) == {"nvidia"}


def nvidia_of(*files: str) -> dict[str, t.Any]:
    (part,) = tomllib.loads(containerd.part_text(files))["plugins"].values()
    return t.cast("dict[str, t.Any]", part["containerd"]["runtimes"]["nvidia"])


def test_with_containerd_2_too_the_runtime_is_like_the_one_that_was_the_default() -> None:
    head = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd"
    runc = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]"
    assert nvidia_of(NEWEST) == {
        "runtime_type": "io.containerd.runc.v2",
        "pod_annotations": ["example.org/*"],
        "options": {"SystemdCgroup": True, "BinaryName": "/usr/bin/nvidia-container-runtime"},
    }
    # containerd 2 merges files key by key: a later one changes what it names, over several lines or on one.
    later = f"version = 3\n{runc}\npod_annotations = []\nsandboxer = 'shim'\n{runc[:-1]}.options]\nRoot = '/run/x'\n"
    assert nvidia_of(NEWEST, later) == {
        "runtime_type": "io.containerd.runc.v2",
        "pod_annotations": [],
        "sandboxer": "shim",
        "options": {"SystemdCgroup": True, "Root": "/run/x", "BinaryName": "/usr/bin/nvidia-container-runtime"},
    }
    other = (
        f"{head}]\ndefault_runtime_name = 'crun'\n{head.splitlines()[1]}.runtimes.crun.options]\nRoot = '/run/crun'\n"
    )
    assert nvidia_of(NEWEST, other)["options"] == {
        "Root": "/run/crun",
        "BinaryName": "/usr/bin/nvidia-container-runtime",
    }


@pytest.mark.parametrize(
    ("files", "version"),
    [
        (["", "version = 2\n"], 2),
        (["version = 1\n", "version = 2\n"], 2),
        (["version = 2\n", "[plugins]\n"], 2),
        (["version = 3\n", "version = 2\n"], 2),
        (["version = 2\n", "version = 0\n"], 2),
        (["disabled_plugins = []\n", ""], 1),
        (["version = 4\n", "version = 4\n"], 3),
    ],
)
def test_our_part_leaves_the_version_in_which_all_files_are_read(files: list[str], version: int) -> None:
    assert tomllib.loads(containerd.part_text(files))["version"] == version


@pytest.mark.parametrize(
    ("config", "after", "path"),
    [
        (SITE, [("z.toml", SITE)], "z.toml"),
        (SITE, [("z.toml", "version = 2\n"), ("y.toml", "")], ""),
        (SITE, [("x.toml", SITE), ("z.toml", V1)], "x.toml"),
        (NEWEST, [("z.toml", NEWEST)], ""),
        (NEWEST, [("z.toml", KATA.replace(CRI, "io.containerd.cri.v1.runtime"))], "z.toml"),
        (NEWEST, [("z.toml", containerd.part_text([NEWEST]))], ""),
    ],
)
def test_a_file_that_is_read_after_our_part_can_take_its_place(
    config: str, after: list[tuple[str, str]], path: str
) -> None:
    assert containerd.overruling([config], after) == path


@pytest.mark.parametrize(
    "text",
    [
        f'[plugins]\n"{CRI}" = {{sandbox_image = "x"}}\n',
        f'[plugins]\n  "{CRI}".sandbox_image = "x"\n',
        f'plugins."{CRI}".sandbox_image = "x"\n',
        f'plugins = {{"{CRI}" = {{sandbox_image = "x", containerd = {{runtimes.runc.options.SystemdCgroup = true}}}}}}\n',
        f'[plugins]\n[plugins.\'{CRI}\']\r\nsandbox_image = """\\\r\n   x"""\r\n',
    ],
)
def test_what_is_written_as_one_value_is_carried_over_too(text: str) -> None:
    assert in_effect(text)[CRI]["sandbox_image"] == "x"
    after = in_effect(text, containerd.part_text([f"version = 2\n{text}"]))[CRI]
    assert after["sandbox_image"] == "x"
    assert after["containerd"]["default_runtime_name"] == "nvidia"
    options = after["containerd"]["runtimes"]["nvidia"]["options"]
    assert ("SystemdCgroup" in options) is ("SystemdCgroup" in text)


def test_what_looks_like_a_setting_in_a_text_or_below_a_table_is_none() -> None:
    text = 'version = 2\nroot = """\nimports = ["/x"]\n[plugins]\n"""\n[grpc]\nimports = ["/y"]\nversion = 3\n'
    assert containerd.import_items(text) == []
    assert containerd.version_of([text]) == 2
    assert containerd.import_items(containerd.config_text(text)) == ["/etc/containerd/conf.d/*.toml"]


def test_a_disabled_plugin_is_no_table() -> None:
    tree = toml.read(f'version = 2\ndisabled_plugins = ["{CRI}"]\n', "a file").tree
    assert cri.section(tree, CRI) is None
