# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the real containerd makes of the files that the role leaves: its own ``config dump`` before and after."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import subprocess
import typing as t

import pytest
import tomllib
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime import (
    containerd,
    cri,
    plan,
    read,
    settings,
    verify,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.model import Dump, Facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._container_runtime.request import ARGUMENT_SPEC, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from containerd_files import CONTAINERD, CRI, KATA, NEEDS_CONTAINERD, SITE, V1

pytestmark = NEEDS_CONTAINERD
NVIDIA = (cri.RUNTIME, cri.BINARY)


@functools.cache
def merges() -> bool:
    """Whether this containerd merges the section of an imported file, as it does from 2 on."""
    said = subprocess.run([CONTAINERD, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r" v?(\d+)\.\d+", said)
    assert found, said
    return int(found.group(1)) > 1


class Etc:
    """A node's /etc, below a directory: %s in a text stands for it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("%s", str(self.root)))

    def get_bin_path(self, _name: str) -> str:
        return CONTAINERD

    def run_command(self, argv: list[str], **_more: t.Any) -> tuple[int, str, str]:
        # Like the service: a relative pattern of containerd 1.6 counts from there.
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
        return done.returncode, done.stdout, done.stderr

    @property
    def facts(self) -> Facts:
        return read.with_settings(self.request, Facts("dpkg", "x86_64", docker=False, packages={}, texts={}))

    @property
    def request(self) -> Request:
        options = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}
        return Request.of({**options, "toolkit": False, "docker": "never", "containerd": True})

    @property
    def dump(self) -> Dump:
        return read.read_dump(t.cast(t.Any, self))

    @property
    def plugins(self) -> dict[str, t.Any]:
        said = self.dump
        assert not said.refused
        return t.cast("dict[str, t.Any]", tomllib.loads(said.text)["plugins"])

    def set_up(self, *, part: bool = True) -> None:
        """What the role writes, with the part or without it."""
        config, ours = plan.containerd_files(self.facts)
        for file in (config, *([ours] if part else [])):
            pathlib.Path(file["path"]).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(file["path"]).write_text(file["content"])

    def verify(self) -> None:
        verify.check(self.request, self.facts, "", self.dump)


@pytest.fixture
def etc(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Etc:
    for name in ("CONTAINERD", "CONTAINERD_PART", "CONTAINERD_PARTS", "DAEMON_JSON"):
        monkeypatch.setattr(settings, name, f"{tmp_path}{getattr(settings, name).removeprefix('/etc')}")
    return Etc(tmp_path)


def told(value: t.Any) -> t.Any:
    """Without what is empty, off, or the only sandboxer that there is, which is the same as not set."""
    if not isinstance(value, dict):
        return value
    return {key: part for key, one in value.items() if (part := told(one)) and part != "podsandbox"}


def without_ours(plugins: dict[str, t.Any]) -> t.Any:
    """Everything but the default runtime and ours."""
    for plugin in plugins.values():
        if "runtimes" in plugin.get("containerd", {}):
            plugin["containerd"].pop("default_runtime_name", None)
            plugin["containerd"]["runtimes"].pop("nvidia", None)
    return told(plugins)


def runtimes(plugins: dict[str, t.Any]) -> dict[str, t.Any]:
    """The runtimes of the plugin that starts Kubernetes' containers."""
    (found,) = [one["containerd"]["runtimes"] for one in plugins.values() if "runtimes" in one.get("containerd", {})]
    return t.cast("dict[str, t.Any]", told(found))


@dataclasses.dataclass(frozen=True)
class Case:
    """What a site has: its files by name, and which runtime is its default."""

    files: t.Mapping[str, str]
    base: str = "runc"


OTHERWISE = f"""version = 2
imports = [ # none ]
]
[plugins]
"{CRI}".sandbox_image = '''registry.example.org/pause:3.9'''
"{CRI}".containerd.runtimes = {{runc = {{runtime_type = "io.containerd.runc.v2", options = {{SystemdCgroup = true}}}}}}
"{CRI}"."registry".config_path = "/etc/contain\\u0065rd/certs.d"
[grpc]
imports = ["not.toml"]
""".replace("\n", "\r\n")
CASES = {
    "nothing": Case({}),
    "only a version": Case({"containerd/config.toml": "version = 2\n"}),
    "Kubernetes": Case({"containerd/config.toml": SITE}),
    "another default": Case({"containerd/config.toml": KATA}, "kata"),
    "in a part": Case({"containerd/config.toml": "version = 2\n", "containerd/conf.d/10-site.toml": SITE}),
    "a part beside a file without version": Case(
        {"containerd/config.toml": 'state = "/run/x"\n', "containerd/conf.d/10-site.toml": SITE}
    ),
    "in another directory": Case(
        {"containerd/config.toml": 'version = 2\nimports = ["%s/site/*.toml"]\n', "site/kubernetes.toml": SITE}
    ),
    "relative": Case(
        {
            "containerd/config.toml": 'version = 2\nimports = ["../site/kubernetes.toml"]\n',
            "site/kubernetes.toml": SITE,
        }
    ),
    "dotted keys, inline tables and texts over lines": Case({"containerd/config.toml": OTHERWISE}),
    "a byte order mark": Case({"containerd/config.toml": "\ufeff" + SITE}),
    "a later part has the section": Case(
        {"containerd/config.toml": SITE, "containerd/conf.d/20-kata.toml": KATA}, "kata"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_containerd_keeps_all_that_it_had_beside_the_nvidia_runtime(etc: Etc, name: str) -> None:
    for path, text in CASES[name].files.items():
        etc.write(path, text)
    keeps(etc, CASES[name].base)


def keeps(etc: Etc, default: str) -> None:
    """With the part containerd has all that it has without it."""
    etc.set_up(part=False)
    before, said = etc.plugins, etc.dump.text
    etc.set_up()
    assert cri.in_effect(etc.dump.text) == NVIDIA
    assert containerd.lost(said, etc.dump.text, ()) == ""
    found = runtimes(etc.plugins)
    base = found[default]
    options = {**base.get("options", {}), "BinaryName": cri.BINARY}
    assert found["nvidia"] == {**base, "runtime_type": "io.containerd.runc.v2", "options": options}
    assert without_ours(etc.plugins) == without_ours(before)
    etc.verify()


def test_without_a_version_containerd_1_keeps_them_too_and_containerd_2_has_none_of_them(etc: Etc) -> None:
    etc.write("containerd/config.toml", V1)
    if merges():
        etc.set_up()
        with pytest.raises(ClusterError, match=r"containerd 2 ignores such settings. Give .*/config.toml one"):
            etc.verify()
        return
    keeps(etc, "runc")


def test_the_site_s_own_settings_are_among_what_is_compared(etc: Etc) -> None:
    etc.write("containerd/config.toml", SITE)
    etc.set_up()
    said = etc.dump.text
    for words in ("registry.example.org/pause:3.9", "/opt/site/cni/bin", "/etc/containerd/certs.d", "example.org/*"):
        assert words in said
    assert runtimes(etc.plugins)["nvidia"]["options"]["SystemdCgroup"] is True


def test_a_part_that_names_the_runtime_alone_loses_them_with_containerd_1(etc: Etc) -> None:
    etc.write("containerd/config.toml", SITE)
    etc.set_up(part=False)
    before = etc.dump.text
    etc.write("containerd/conf.d/99-nvidia.toml", f'version = 2\n[plugins."{CRI}".containerd]\nno_pivot = false\n')
    assert ("registry.example.org/pause:3.9" in etc.dump.text) is merges()
    assert (containerd.lost(before, etc.dump.text, ()) == "") is merges()


@pytest.mark.parametrize("later", ["containerd/conf.d/99-zz.toml", "site/imported-by-a-part.toml"])
def test_verify_names_the_file_that_takes_the_place_of_ours(etc: Etc, later: str) -> None:
    etc.write("containerd/config.toml", SITE)
    etc.write("containerd/conf.d/10-more.toml", 'version = 2\nimports = ["%s/site/imported-by-a-part.toml"]\n')
    etc.write("site/imported-by-a-part.toml", "version = 2\n")
    etc.write(later, SITE)
    etc.set_up()
    if merges():
        assert cri.in_effect(etc.dump.text) == NVIDIA
        etc.verify()
        return
    assert cri.in_effect(etc.dump.text) == ("runc", "")
    with pytest.raises(ClusterError, match=f"with nvidia: it reads {etc.root}/{later} after {etc.root}/.*99-nvidia"):
        etc.verify()
    # The way out that the message names.
    (etc.root / later).unlink()
    etc.write("site/imported-by-a-part.toml", "version = 2\n")
    etc.write("containerd/conf.d/20-site.toml", SITE)
    etc.set_up()
    etc.verify()


def test_a_file_that_containerd_refuses_is_said_with_its_words(etc: Etc) -> None:
    # Only containerd knows which words are values.
    etc.write("containerd/conf.d/50-site.toml", "root = two\n")
    etc.set_up()
    with pytest.raises(ClusterError, match=r"(?s)containerd refuses its settings: .*50-site.toml"):
        etc.verify()


def test_a_plugin_that_is_disabled_stays_so(etc: Etc) -> None:
    etc.write("containerd/config.toml", f'version = 2\ndisabled_plugins = ["{CRI}"]\n')
    etc.set_up()
    said = tomllib.loads(etc.dump.text)
    assert CRI in said["disabled_plugins"]
    assert CRI not in said["plugins"] or merges()
    etc.verify()
