# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units are what systemctl says, and a systemctl that fails is an error with the unit's last words."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host import units
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.units import UnitState

UP = UnitState("loaded", "active", "enabled")
# Recorded from systemd 252: `systemctl show -p ... cron.service nosuch.service`.
SHOWN = (
    "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n\n"
    "LoadState=not-found\nActiveState=inactive\nUnitFileState=\nNeedDaemonReload=no\n"
)


class Script:
    """A host that answers by the verb of systemctl, and writes down what it was asked."""

    def __init__(self, **answers: tuple[int, str, str]) -> None:
        self.answers, self.asked = answers, []

    def run_command(self, args: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        self.asked.append(" ".join(args))
        return self.answers.get(args[1].replace("-", "_"), (0, "", ""))


@pytest.fixture
def running(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "SYSTEMD", str(tmp_path))


def test_systemctl_show_is_read_in_the_order_of_the_names() -> None:
    states = units.parse_units(["cron.service", "nosuch.service"], SHOWN)
    assert states["cron.service"] == UP
    assert not states["nosuch.service"].known
    with pytest.raises(ClusterError):
        units.parse_units(["a", "b", "c"], SHOWN)


@pytest.mark.usefixtures("running")
def test_all_units_are_asked_in_one_call() -> None:
    host = Script(show=(0, SHOWN, ""))
    assert units.read_units(host, ["cron.service", "nosuch.service"])["cron.service"] == UP
    assert len(host.asked) == 1
    assert host.asked[0].endswith("-- cron.service nosuch.service")
    assert units.read_units(host, []) == {}
    assert len(host.asked) == 1


@pytest.mark.usefixtures("running")
def test_a_systemd_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(ClusterError, match="Failed to connect to bus"):
        units.read_units(Script(show=(1, "", "Failed to connect to bus\n")), ["x.service"])


def test_without_systemd_the_files_are_asked(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "SYSTEMD", str(tmp_path / "none"))
    host = Script(is_enabled=(1, "disabled\n", ""))
    assert not units.is_running()
    assert units.read_units(host, ["x.service"]) == {"x.service": UnitState("", "inactive", "disabled")}


@pytest.mark.parametrize(("status", "active"), [(0, True), (3, False)])
def test_is_active_asks_systemd(status: int, active: bool) -> None:
    host = Script(is_active=(status, "", ""))
    assert units.is_active(host, "x.service") is active
    assert host.asked == ["systemctl is-active --quiet x.service"]


def test_a_verb_that_fails_shows_the_last_words() -> None:
    host = Script(start=(1, "", "Job failed\n"), status=(3, "the unit's last words\n", ""))
    with pytest.raises(ClusterError, match=r"`systemctl start x\.service` failed: Job failed") as caught:
        units.systemctl(host, "start", "x.service")
    assert caught.value.details == {"status": "the unit's last words\n"}
    assert "journalctl -u x.service" in caught.value.remedy


def test_a_verb_that_works_is_one_call() -> None:
    host = Script()
    units.systemctl(host, "daemon-reload")
    assert host.asked == ["systemctl daemon-reload"]


def test_only_changed_unit_files_need_a_reload() -> None:
    assert units.needs_daemon_reload(["/etc/systemd/system/x.service"], [])
    assert not units.needs_daemon_reload(["/etc/x.conf"], [UP])
    assert units.needs_daemon_reload([], [UnitState("loaded", "active", "enabled", True)])


def test_the_file_of_a_unit_lies_where_systemd_looks() -> None:
    assert units.has_unit_file("x.service", ["/etc/systemd/system/x.service"])
    assert not units.has_unit_file("x.service", ["/etc/systemd/system/y.service", "/srv/x.service"])


@pytest.mark.parametrize(
    ("state", "began", "us"),
    [("active", "8122764", 8122764), ("reloading", "5", 5), ("failed", "5", 0), ("active", "", 0)],
)
def test_only_a_service_that_runs_has_begun(state: str, began: str, us: int) -> None:
    host = Script(show=(0, f"ActiveState={state}\nExecMainStartTimestampMonotonic={began}\n", ""))
    assert units.started_us(host, "docker.service") == us
    assert host.asked == ["systemctl show -p ActiveState,ExecMainStartTimestampMonotonic -- docker.service"]
