# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of apt and dnf, word by word, and what is made of their answers."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import apt as apt_
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import dnf as dnf_
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import transaction
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import Installed, Root
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.remedies import Remedies

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
Answer = tuple[int, str, str]


class Host:
    """Answers commands from a table; the key is a part of the command line."""

    def __init__(self, *table: tuple[str, Answer]) -> None:
        self.table, self.asked = list(table), list[str]()

    def run_command(self, args: list[str], **_kwargs: t.Any) -> Answer:
        line = " ".join(args)
        self.asked.append(line)
        for part, answer in self.table:
            if re.search(part, line):
                return answer
        raise AssertionError(f"nobody expected: {line}")

    def get_bin_path(self, arg: str) -> str | None:
        raise NotImplementedError

    def selinux_default_context(self, path: str) -> list[t.Any]:
        return []

    def set_context_if_different(self, path: str, context: list[t.Any], changed: bool) -> bool:
        raise NotImplementedError


def said(name: str) -> Answer:
    return 0, (FIXTURES / name).read_text(), ""


COMPARE = ("dpkg --compare-versions", (0, "", ""))
MADISON = ("apt-cache madison", said("madison.txt"))


def test_apt_gets_exact_versions_and_the_rest_by_name() -> None:
    apt = transaction.Apt(Host(MADISON))
    roots = [Root("nvidia-open", "580.95.05"), Root("cuda-toolkit-12-9")]
    assert apt.resolve(roots) == ["nvidia-open=580.95.05-1", "cuda-toolkit-12-9"]


def test_a_version_that_apt_does_not_have_is_refused_with_those_that_it_has() -> None:
    apt = transaction.Apt(Host(MADISON))
    with pytest.raises(ClusterError, match=r"There is 580\.126\.16-1, 580\.95\.05-1, 570\.124\.06-1") as caught:
        apt.resolve([Root("nvidia-open", "590.48.01")])
    assert caught.value.details["available"] == ["570.124.06", "580.126.16", "580.95.05"]
    with pytest.raises(ClusterError, match="No repository of this node has no-such-package"):
        apt.resolve([Root("no-such-package")])


def test_what_helps_is_said_in_the_words_of_the_module_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    remedies = Remedies("Set `a`.", "Set `b`.", "Set `c`.")
    apt = transaction.Apt(Host(MADISON), remedies)
    with pytest.raises(ClusterError) as other:
        apt.resolve([Root("nvidia-open", "590.48.01")])
    with pytest.raises(ClusterError) as none:
        apt.resolve([Root("no-such-package")])
    dnf = transaction.Dnf(Host(("dnf", (1, "", "No match for argument: x\n"))), remedies)
    with pytest.raises(ClusterError) as unmatched:
        dnf.simulate(["x"])
    monkeypatch.setattr(transaction.shutil, "which", lambda _name: None)
    with pytest.raises(ClusterError) as nothing:
        transaction.manager_for(Host(), remedies)
    assert [one.value.remedy for one in (nothing, other, none, unmatched)] == [
        "Set `a`.",
        "Set `b`.",
        "Set `c`.",
        "Set `c`.",
    ]


class Reader(Host):
    """Reads the preferences that apt is given, as long as they are there."""

    read: list[str]

    def run_command(self, args: list[str], **kwargs: t.Any) -> Answer:
        given = [word.partition("=")[2] for word in args if word.startswith("Dir::Etc::preferences=")]
        self.read = [*self.read, *(pathlib.Path(path).read_text() for path in given)]
        return super().run_command(args, **kwargs)


def test_what_apt_does_is_what_it_simulated(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "preferences"
    monkeypatch.setattr(apt_, "_PREFERENCES", str(site))
    host = Reader(COMPARE, MADISON, ("apt-get", said("apt-upgrade.txt")))
    apt, words = transaction.Apt(host), ["nvidia-open=580.95.05-1"]
    for text in ("", "Package: linux-headers-*\nPin: release a=stable\nPin-Priority: 900"):
        site.write_text(text)
        host.read = []
        apt.commit(words, "the pin", fix=True)
        apt.download(words, "the pin", fix=True)
        apt.simulate(words, "the pin", fix=True)
        # Of two pins for one package the first counts.
        assert host.read == [f"the pin\n{text}\n"] * 3
    commit, download, plan = ([word for word in line.split() if "preferences" not in word] for line in host.asked[:3])
    assert [word for word in download if word != "--download-only"] == commit
    assert set(plan) - {"-s"} == set(commit) - {"-y", "-qq"}


class Listener(Host):
    """Remembers the words of every command, and the environment that is set for it."""

    def run_command(self, args: list[str], **kwargs: t.Any) -> Answer:
        self.words = [*getattr(self, "words", []), list(args)]
        self.environments = [*getattr(self, "environments", []), dict(kwargs.get("environ_update") or {})]
        return super().run_command(args, **kwargs)


def test_apt_keeps_settings_of_the_site_waits_for_others_and_asks_nothing() -> None:
    host = Listener(("apt-get|dpkg", (0, "", "")))
    apt, words = transaction.Apt(host), ["nvidia-open=580.95.05-1"]
    apt.update()
    apt.simulate(words, "pin")
    apt.download(words, "pin", fix=False)
    apt.commit(words, "pin", fix=False)
    apt.remove(["nvidia-open"])
    for given, environment in zip(host.words, host.environments):
        pairs = set(zip(given, given[1:]))
        assert {("-o", "Dpkg::Options::=--force-confdef"), ("-o", "Dpkg::Options::=--force-confold")} <= pairs
        # Another apt may run just now, also for some minutes.
        assert ("-o", "DPkg::Lock::Timeout=300") in pairs
        assert environment["DEBIAN_FRONTEND"] == "noninteractive"
    apt.mend([])
    assert {"--force-confdef", "--force-confold"} <= set(host.words[-1])
    assert host.environments[-1]["DEBIAN_FRONTEND"] == "noninteractive"


def test_nothing_is_installed_that_is_only_recommended() -> None:
    """NVIDIA's packages recommend those of a desktop."""
    host = Listener(("apt-get|dnf", (0, "", "")))
    apt, dnf = transaction.Apt(host), transaction.Dnf(host)
    for manager in (apt, dnf):
        manager.simulate(["nvidia-open"], "pin")
        manager.download(["nvidia-open"], "pin", fix=False)
        manager.commit(["nvidia-open"], "pin", fix=False)
    assert len(host.words) == 6
    for given in host.words:
        assert ("--no-install-recommends" if given[0] == "apt-get" else "--setopt=install_weak_deps=False") in given


class Stale(Host):
    """Lacks the package until its lists were read again; ``update`` is what it says of that, ``install`` what then happens."""

    def __init__(self, update: Answer | ClusterError, install: Answer) -> None:
        super().__init__()
        self.answers: list[Answer | ClusterError] = [
            (100, "", "E: Unable to locate package numactl\n"),
            update,
            install,
        ]

    def run_command(self, args: list[str], **_kwargs: t.Any) -> Answer:
        self.asked.append(" ".join(args))
        answer = self.answers.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        return answer


UNREACHABLE = (0, "", "W: Failed to fetch https://example.com/InRelease  Could not resolve 'example.com'\n")


def test_a_repository_that_cannot_be_reached_does_not_keep_packages_of_others_away() -> None:
    host = Stale(UNREACHABLE, (0, "", ""))
    transaction.Apt(host).add(["numactl"])
    assert [" update " in line for line in host.asked] == [False, True, False]


def test_a_package_that_cannot_be_had_is_said_with_the_repository_that_cannot_be_reached() -> None:
    host = Stale(UNREACHABLE, (100, "", "E: Unable to locate package numactl\n"))
    with pytest.raises(ClusterError) as caught:
        transaction.Apt(host).add(["numactl"])
    assert caught.value.kind == "package_failed"
    assert "numactl could not be installed: E: Unable to locate package numactl" in caught.value.message
    assert "Failed to fetch https://example.com/InRelease" in caught.value.message


def test_lists_that_take_too_long_to_read_end_the_attempt() -> None:
    host = Stale(ClusterError("timeout", "It took too long.", "Wait."), (0, "", ""))
    with pytest.raises(ClusterError, match="It took too long"):
        transaction.Apt(host).add(["numactl"])
    assert len(host.asked) == 2


def test_what_is_held_can_be_removed_and_replaced() -> None:
    host = Listener(("apt-get|dnf", (0, "", "")))
    apt, dnf = transaction.Apt(host), transaction.Dnf(host)
    apt.removal(["nvidia-open"])
    apt.remove(["nvidia-open"])
    apt.commit(["nvidia-open"], fix=False)
    assert all("--allow-change-held-packages" in given for given in host.words)
    host.words = []
    dnf.removal(["nvidia-open"])
    dnf.simulate(["nvidia-open"])
    dnf.commit(["nvidia-open"], fix=False)
    assert all("--disableplugin=versionlock" in given for given in host.words)


def test_what_apt_refuses_is_passed_on() -> None:
    host = Host(("apt-get", (100, "", "E: Unable to correct problems, you have held broken packages.\n")))
    with pytest.raises(ClusterError, match="held broken packages"):
        transaction.Apt(host).simulate(["nvidia-open=1-1"])


def test_lists_that_cannot_be_read_are_not_only_a_warning() -> None:
    warning = "W: Failed to fetch https://mirror/InRelease  Could not resolve 'mirror'\n"
    with pytest.raises(ClusterError, match="Could not resolve"):
        transaction.Apt(Host(("apt-get", (0, "", warning)))).update()
    host = Host(("apt-get", (0, "", "W: Target Packages is configured multiple times\n")))
    apt = transaction.Apt(host)
    apt.update()
    apt.update()
    assert len(host.asked) == 1


def test_dnf_gets_exact_versions_and_never_the_module() -> None:
    host = Host(
        ("--assumeno", (1, said("dnf-upgrade.txt")[1], "Operation aborted.")),
        ("dnf", (0, "", "")),
        ("rpm -q", said("rpm-570.txt")),
    )
    dnf = transaction.Dnf(host)
    words = dnf.resolve([Root("nvidia-open", "580.95.05"), Root("datacenter-gpu-manager-4-cuda13", "4.4", prefix=True)])
    assert words == ["nvidia-open-580.95.05", "datacenter-gpu-manager-4-cuda13-4.4*"]
    # dnf takes a version with its release and architecture for one instance.
    headers = Root("kernel-devel", instance="5.14.0-503.14.1.el9_5.x86_64")
    assert dnf.resolve([headers]) == ["kernel-devel-5.14.0-503.14.1.el9_5.x86_64"]
    # dnf does not tell what goes where something newer comes.
    assert [action.text() for action in dnf.simulate(words)][:2] == [
        "install nvidia-fabricmanager 580.95.05-1.el9",
        "upgrade kmod-nvidia-open-dkms 3:570.124.06-1.el9 to 3:580.95.05-1.el9",
    ]
    assert host.asked.pop(1).startswith("rpm -q --queryformat")
    dnf.enable("nvidia-driver", "580-open")
    assert [line.split("versionlock ")[1] for line in host.asked[1:]] == [
        "module reset -y -q nvidia-driver",
        "module enable -y -q nvidia-driver:580-open",
    ]
    assert not any("module install" in line for line in host.asked)
    dnf.download(words)
    dnf.commit(words)
    download, commit = (line.split() for line in host.asked[-2:])
    assert [word for word in download if word != "--downloadonly"] == commit != download


@pytest.mark.parametrize(
    ("recorded", "kind", "says", "helps"),
    [
        ("modular", "not_available", "cuda-drivers-580.95.05, but dnf hides it (modular filtering)", "dnf module list"),
        ("exclude", "not_available", "el9_4.x86_64, but dnf hides it (exclude filtering)", "`exclude` in /etc/dnf"),
        ("kernel-devel", "not_available", "has kernel-devel-5.14.0-362.8.1.el9_3.x86_64.", "Check the names"),
        ("no-epel", "package_failed", "nothing provides dkms >= 3.1.8", "See what dnf says"),
    ],
)
def test_what_dnf_refuses_is_told_with_the_reason(recorded: str, kind: str, says: str, helps: str) -> None:
    answer = (1, said(f"dnf-refused-{recorded}.txt")[1], "")
    with pytest.raises(ClusterError) as caught:
        transaction.Dnf(Host(("makecache", (0, "", "")), ("dnf", answer))).simulate(["x"])
    assert caught.value.kind == kind
    assert says in caught.value.message
    assert helps in caught.value.remedy
    assert caught.value.details.get("lacking", []) == (["dkms"] if recorded == "no-epel" else [])


@pytest.mark.parametrize("reachable", [0, 1])
def test_a_package_that_dnf_does_not_know_is_looked_for_once_more(reachable: int) -> None:
    unknown = (1, "", "Error: Unable to find a match: x\n")
    host = Host(("makecache", (reachable, "", "unreachable")), ("dnf", unknown))
    with pytest.raises(ClusterError, match="No repository of this node has x"):
        transaction.Dnf(host).simulate(["x"])
    assert [line.split()[-1] for line in host.asked] == ["x", "--refresh", "x"]


def test_dnf_removes_what_it_is_told_and_nothing_that_came_along() -> None:
    host = Host(("dnf", (1, said("dnf-unused.txt")[1], "")))
    dnf = transaction.Dnf(host)
    dnf.removal(["nvidia-open"])
    host.table = [("dnf", (0, "", ""))]
    dnf.remove(["nvidia-open"])
    assert all(line.endswith(" remove --noautoremove nvidia-open") for line in host.asked)


def test_what_was_cut_off_is_finished_with_the_latest_of_each_package() -> None:
    """Not of what rpm keeps several of, and not what is there for another architecture as well."""
    twice = "libx|0:2-1|x86_64\nlibx|0:1-1|x86_64\nlibx|0:1-1|i686\nkernel|0:1-1|x86_64\nkernel|0:2-1|x86_64\ny|0:1-1|noarch\n"
    kept = "kmod-y|0:1-1|x86_64\nkmod-y|0:2-1|x86_64\n"
    names = ["libx", "kernel", "y", "kmod-y"]
    last = "libx-2-1.x86_64    Sun Nov 22 13:00:00 2026\nlibx-1-1.i686    Sat Nov 21 13:00:01 2026\n"
    last += "libx-1-1.x86_64    Sat Nov 21 13:00:00 2026\n"
    host = Host(
        (f"rpm -q --queryformat .* -- {' '.join(names)}$", (0, twice + kept, "")),
        ("rpm -q --whatprovides", (1, "kmod-y\nkmod-y\nno package provides installonlypkg(vm)\n", "")),
        ("rpm -q --last libx", (0, last, "")),
        ("rpm|dnf", (0, "", "")),
    )
    transaction.Dnf(host).mend(names)
    assert [line.partition("versionlock ")[2] or line for line in host.asked[3:]] == [
        "rpm --erase --nodeps libx-1-1.x86_64",
        "-y -q --allowerasing reinstall libx-2-1.x86_64",
    ]


@pytest.mark.parametrize(
    ("keep", "goes", "stays"),
    [
        ("580.95.05", "580.126.16", "580.95.05"),
        ("580.126.16", "580.95.05", "580.126.16"),
        ("570.1", "580.95.05", "580.126.16"),
    ],
)
def test_the_version_that_is_wanted_stays_of_what_was_cut_off(keep: str, goes: str, stays: str) -> None:
    twice = "".join(f"libnvidia-ml|3:{version}-1.el9|x86_64\n" for version in ("580.95.05", "580.126.16"))
    last = [
        f"libnvidia-ml-{version}-1.el9.x86_64    Sun Nov 22 13:00:00 2026" for version in ("580.126.16", "580.95.05")
    ]
    host = Host(
        ("rpm -q --queryformat", (0, twice, "")),
        ("rpm -q --whatprovides", (1, "", "")),
        ("rpm -q --last", (0, "\n".join(last), "")),
        ("rpm|dnf", (0, "", "")),
    )
    transaction.Dnf(host).mend(["libnvidia-ml"], keep=keep)
    assert host.asked[3] == f"rpm --erase --nodeps libnvidia-ml-{goes}-1.el9.x86_64"
    assert host.asked[4].endswith(f" reinstall libnvidia-ml-{stays}-1.el9.x86_64")


@pytest.mark.parametrize(("programs", "found"), [({"rpm"}, "Dnf"), ({"dnf", "rpm"}, "Dnf"), ({"dpkg-query"}, "Apt")])
def test_what_is_there_is_told_by_rpm_alone(monkeypatch: pytest.MonkeyPatch, programs: set[str], found: str) -> None:
    """Azure Linux has tdnf."""
    monkeypatch.setattr(transaction.shutil, "which", lambda name: name if name in programs else None)
    assert type(transaction.manager_for(Host(), reads=True)).__name__ == found
    if programs == {"rpm"}:
        with pytest.raises(ClusterError, match="neither dpkg nor dnf"):
            transaction.manager_for(Host())


def test_what_is_there_twice_of_others_is_left_alone() -> None:
    """A site may keep two versions of its own package on purpose, and rpm lets it."""
    host = Host()
    transaction.Dnf(host).mend([])
    assert host.asked == []


def test_nothing_was_cut_off() -> None:
    host = Host(
        ("rpm -q --queryformat", (0, "kernel|0:1-1|x86_64\nkernel|0:2-1|x86_64\n", "")),
        ("rpm -q --whatprovides", (1, "no package provides installonlypkg(vm)\n", "")),
    )
    transaction.Dnf(host).mend(["kernel"])
    assert len(host.asked) == 2


def test_a_version_that_dnf_does_not_have() -> None:
    error = "Error: Unable to find a match: nvidia-open-1.2.3\n"
    with pytest.raises(ClusterError, match=r"nvidia-open-1\.2\.3") as caught:
        transaction.Dnf(Host(("dnf", (1, "", error)))).simulate(["nvidia-open-1.2.3"])
    assert caught.value.kind == "not_available"


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n", "580-open"),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=\nprofiles=\nstate=\n", ""),
        ("", ""),
    ],
)
def test_the_enabled_stream(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, text: str, stream: str) -> None:
    (tmp_path / "nvidia-driver.module").write_text(text)
    monkeypatch.setattr(dnf_, "_MODULES", str(tmp_path))
    assert transaction.Dnf.stream("nvidia-driver") == stream
    assert transaction.Dnf.stream("postgresql") == ""


def test_locks_of_others_stay_and_old_ones_of_ours_go(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plugins/versionlock.list"
    path.parent.mkdir()
    path.write_text("bash-0:5.1.8-9.el9.*\nnvidia-open-3:570.124.06-1.el9.*\nlibnvidia-ml-3:570.124.06-1.el9.*\n")
    monkeypatch.setattr(dnf_, "VERSIONLOCK", str(path))
    have = {"nvidia-open": Installed("nvidia-open", "3:580.95.05-1.el9")}
    dnf = transaction.Dnf(Host(("rpm", (0, "nvidia-open|3:580.95.05-1.el9\n", ""))))
    dnf.hold(["nvidia-open"], have, lambda name, version: "nvidia" in name and version.startswith("3:"))
    assert path.read_text() == "bash-0:5.1.8-9.el9.*\nnvidia-open-3:580.95.05-1.el9.*\n"
    assert dnf.installed()["nvidia-open"].held


def test_every_kernel_that_is_installed_is_locked_and_only_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for one version keeps all others away, those of kernels that are installed as well."""
    path = tmp_path / "versionlock.list"
    monkeypatch.setattr(dnf_, "VERSIONLOCK", str(path))
    dnf = transaction.Dnf(Host(("rpm", said("rpm-kernels.txt"))))
    for _time in range(2):
        have = dnf.installed()
        assert have["kernel-devel"].held is path.exists()
        dnf.hold(["kernel-devel"], have, lambda name, version: False)
    assert sorted(path.read_text().split()) == [
        "kernel-devel-0:5.14.0-427.13.1.el9_4.*",
        "kernel-devel-0:5.14.0-503.14.1.el9_5.*",
    ]


def test_a_removal_leaves_the_locks_of_others_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever locked a driver does not lose that with a container toolkit."""
    path = tmp_path / "versionlock.list"
    path.write_text("nvidia-open-3:570.124.06-1.el9.*\n")
    monkeypatch.setattr(dnf_, "VERSIONLOCK", str(path))
    transaction.Dnf(Host(("dnf", (0, "", "")))).remove(["nvidia-container-toolkit"])
    assert path.read_text() == "nvidia-open-3:570.124.06-1.el9.*\n"


def test_packages_are_added_by_name_and_lists_are_read_where_that_fails() -> None:
    class Stale(Listener):
        def run_command(self, args: list[str], **kwargs: t.Any) -> Answer:
            super().run_command(args, **kwargs)
            return (
                (0, "", "")
                if any("update" in line for line in self.asked)
                else (100, "", "E: Unable to locate package x")
            )

    fresh, stale = Listener(("apt-get", (0, "", ""))), Stale(("apt-get", (0, "", "")))
    for host in (fresh, stale):
        transaction.Apt(host).add(["x"])
    assert [words[words.index("update" if "update" in words else "install")] for words in stale.words] == [
        "install",
        "update",
        "install",
    ]
    assert len(fresh.words) == 1
    # What is held stays as it is.
    assert not {"--allow-change-held-packages", "--allow-downgrades"} & set(fresh.words[0])
    assert "--no-install-recommends" in fresh.words[0]
    with pytest.raises(ClusterError, match="x could not be installed: E: Unable"):
        transaction.Apt(Host(("update", (0, "", "")), ("apt-get", (100, "", "E: Unable to locate package x")))).add(
            ["x"]
        )


def test_dnf_adds_packages_and_keeps_what_is_locked() -> None:
    host = Host(("dnf", (0, "", "")))
    transaction.Dnf(host).add(["x", "y"])
    assert host.asked == ["dnf -y -q install x y"]


def test_packages_of_some_names_are_asked_for_by_them() -> None:
    host = Host(
        ("dpkg-query", (1, "x|1|install|installed|ok\n", "no packages found matching y")), ("rpm", (1, "x|0:1-1\n", ""))
    )
    assert list(transaction.Apt(host).installed(["x", "y"])) == ["x"]
    assert list(transaction.Dnf(host).installed(["x", "y"])) == ["x"]
    assert [line[-6:] for line in host.asked] == ["-- x y", "-- x y"]
