# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rdma_check: ports and stack against what is expected, perftest's output, and both ends of a measurement."""

from __future__ import annotations

import os
import pathlib
import threading
import time
import typing as t

import pytest
import yaml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node.sysfs import NO_BUS, Bus, read_bus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import model, perftest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._rdma import verify as check
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
PROFILES = pathlib.Path(__file__).parents[3] / "roles/node_profile/files/profiles"


def port(device: str, **values: t.Any) -> dict[str, t.Any]:
    return {
        "device": device, "port": 1, "netdev": None, "link_layer": "InfiniBand", "rate_gbps": 200, "state": "ACTIVE",
        "numa": 0, "bus_id": None, **values,
    }  # fmt: skip


def ndv4(**changed: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    names = [f"mlx5_ib{number}" for number in range(8)]
    return [
        port(name, bus_id=f"{0x101 + number:04x}:00:00.0", **changed.get(name, {})) for number, name in enumerate(names)
    ]


def profile(name: str) -> dict[str, t.Any]:
    fabric = yaml.safe_load((PROFILES / f"{name}.yml").read_text())["fabric"]
    assert isinstance(fabric, dict)
    return fabric


def wrong(expected: dict[str, t.Any], ports: list[dict[str, t.Any]]) -> list[str]:
    return [item["what"] for item in check.judge_ports(expected, ports) if item["verdict"] == "fail"]


def test_a_whole_machine_is_right() -> None:
    assert wrong(profile("Standard_ND96asr_v4"), ndv4()) == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"state": "DOWN"}, "port of HCA mlx5_ib3"),
        ({"state": "INIT"}, "port of HCA mlx5_ib3"),
        ({"rate_gbps": 100}, "rate of HCA mlx5_ib3"),
        ({"link_layer": "Ethernet"}, "link layer of HCA mlx5_ib3"),
    ],
)
def test_one_bad_port_is_named(changed: dict[str, t.Any], what: str) -> None:
    assert [text.split(" (")[0] for text in wrong(profile("Standard_ND96asr_v4"), ndv4(mlx5_ib3=changed))] == [what]


def test_a_lost_adapter_is_named() -> None:
    assert "HCA mlx5_ib7" in wrong(profile("Standard_ND96asr_v4"), ndv4()[:7])[0]


@pytest.mark.parametrize(
    ("changed", "fails"),
    [({}, 0), ({"state": "DOWN"}, 1), ({"rate_gbps": 40}, 1), ({"link_layer": "Ethernet"}, 1)],
)
def test_ports_are_counted_if_they_are_of_use(changed: dict[str, t.Any], fails: int) -> None:
    expected = {"count": 8, "rate_gbps": 200, "link_layer": "InfiniBand"}
    found = [*ndv4(mlx5_ib3=changed), port("mlx5_an0", link_layer="Ethernet", rate_gbps=100)]
    verdicts = [item for item in check.judge_ports(expected, found) if item["verdict"] == "fail"]
    assert len(verdicts) == fails
    if changed.get("state") == "DOWN":
        assert "mlx5_ib3 is DOWN" in verdicts[0]["found"]


def test_ports_get_time_to_come_up_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(check.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(check.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))

    def read() -> list[dict[str, t.Any]]:
        """A link that is up five seconds after its driver was loaded."""
        return ndv4(mlx5_ib3={} if clock[0] >= 5 else {"state": "INIT"})

    expected = profile("Standard_ND96asr_v4")
    ports, verdicts = check.settled(expected, read, 60)
    assert clock[0] == 5.0
    assert {verdict["verdict"] for verdict in verdicts} == {"ok"}
    assert ports == ndv4()
    for wait_s in (0, 3):
        clock[0] = 0.0
        _ports, verdicts = check.settled(expected, read, wait_s)
        assert clock[0] == wait_s
        assert "fail" in {verdict["verdict"] for verdict in verdicts}


def levels(expected: dict[str, t.Any], ports: list[dict[str, t.Any]], bus: Bus = NO_BUS) -> list[str]:
    return [item["verdict"] for item in check.judge_ports(expected, ports, bus)]


def test_nothing_expected_is_nothing_wrong() -> None:
    assert levels({}, []) == ["ok"]
    assert levels({}, ndv4(mlx5_ib0={"state": "DOWN"})) == ["ok"]
    assert levels({}, [], Bus(gpus=4)) == ["ok"]


DOWN = ndv4(**{f"mlx5_ib{number}": {"state": "DOWN"} for number in range(8)})
ETHERNET = port("mlx5_an0", link_layer="Ethernet", rate_gbps=100)


@pytest.mark.parametrize(
    ("ports", "bus", "found"),
    [
        (DOWN, Bus(), "none of 8: mlx5_ib0 is DOWN, "),
        (DOWN, Bus(adapters=8, gpus=8), "none of 8: mlx5_ib0 is DOWN, "),
        ([], Bus(adapters=8), "none"),
        ([], Bus(gpus=8), "none"),
        # The port of Azure's accelerated networking is up whatever InfiniBand is.
        ([*DOWN, ETHERNET], Bus(adapters=9, gpus=8), "none of 8: mlx5_ib0 is DOWN, "),
        ([port("mlx5_0", state="INIT"), ETHERNET], Bus(adapters=2), "none of 1: mlx5_0 is INIT"),
    ],
)
def test_a_node_made_for_rdma_that_cannot_use_it_is_no_ok(ports: list[dict[str, t.Any]], bus: Bus, found: str) -> None:
    (verdict,) = check.judge_ports({}, ports, bus)
    assert verdict["verdict"] == "warn"
    assert verdict["found"].startswith(found)
    assert "`count` 0" in verdict["remedy"]
    # Who says that none is expected is believed; who expects some gets a failure, not a warning.
    assert levels({"count": 0}, ports, bus) == ["ok"]
    assert levels({"count": 1, "link_layer": "InfiniBand"}, ports, bus) == ["fail"]


STATES = st.lists(st.sampled_from(["ACTIVE", "DOWN", "INIT", "ARMED"]), max_size=9)


@given(STATES, STATES, st.integers(0, 9), st.integers(0, 9))
def test_without_an_expectation_only_a_node_that_can_use_rdma_or_is_not_made_for_it_is_ok(
    infiniband: list[str], ethernet: list[str], adapters: int, gpus: int
) -> None:
    ports = [port(f"mlx5_{number}", state=state) for number, state in enumerate(infiniband)]
    ports += [port(f"eth_{number}", state=state, link_layer="Ethernet") for number, state in enumerate(ethernet)]
    usable = "ACTIVE" in (infiniband or ethernet)
    made_for_it = bool(ports) or adapters > 0 or gpus >= 8
    assert levels({}, ports, Bus(adapters, gpus)) == ["ok" if usable or not made_for_it else "warn"]


def test_adapters_and_data_center_gpus_are_seen_without_their_drivers(tmp_path: pathlib.Path) -> None:
    devices = [
        ("0000:18:00.0", "0x15b3", "0x020700", "0x1021"),
        ("0000:29:00.0", "0x15b3", "0x020000", "0x1021"),
        ("0000:2a:00.0", "0x15b3", "0x080100", "0xc2d5"),  # DMA of a BlueField
        ("0000:10:1b.0", "0x1d0f", "0x020000", "0xefa1"),
        ("0000:00:05.0", "0x1d0f", "0x020000", "0xec20"),  # ENA, Amazon's network without RDMA
        ("0000:1b:00.0", "0x10de", "0x030200", "0x2330"),
        ("0000:02:00.0", "0x10de", "0x030000", "0x2204"),  # a GPU with a display
        ("0000:05:00.0", "0x10de", "0x068000", "0x22a3"),  # an NVSwitch
    ]
    for name, vendor, kind, device in devices:
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        for key, value in (("vendor", vendor), ("class", kind), ("device", device)):
            (folder / key).write_text(f"{value}\n")
    assert read_bus(tmp_path) == Bus(adapters=3, gpus=1)
    assert read_bus(tmp_path / "nowhere") == Bus()


def test_the_ports_to_measure_have_the_same_order_everywhere() -> None:
    found = ndv4(mlx5_ib2={"state": "DOWN"})
    assert check.measured_devices({}, found[::-1])[:2] == [("mlx5_ib0", 1), ("mlx5_ib1", 1)]
    assert ("mlx5_ib2", 1) not in check.measured_devices(profile("Standard_ND96asr_v4"), found)
    # Without udev's names the addresses lead to the same ports.
    kernel = [{**item, "device": f"mlx5_{7 - number}"} for number, item in enumerate(ndv4())]
    assert check.measured_devices(profile("Standard_ND96asr_v4"), kernel)[0] == ("mlx5_7", 1)


def test_all_active_ports_of_the_wanted_kind_are_measured_in_one_order() -> None:
    found = [
        port("mlx5_1", port=2),
        port("mlx5_10", link_layer="Ethernet"),
        port("mlx5_1", port=1),
        port("mlx5_2", state="DOWN"),
        port("mlx5_0", port=None),
    ]
    for ports in (found, found[::-1]):
        chosen = check.measured_devices({"link_layer": "InfiniBand"}, ports)
        assert chosen == [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2)]
        assert check.measured_devices({}, ports) == [*chosen, ("mlx5_10", 1)]


def test_an_expected_adapter_is_measured_once() -> None:
    found = [port("mlx5_0", port=1, bus_id="0101:00:00.0"), port("mlx5_0", port=2, bus_id="0101:00:00.0")]
    expected = {"hcas": [{"name": "mlx5_ib0", "bus_id": "0101:00:00.0"}]}
    assert check.measured_devices(expected, found) == [("mlx5_0", 1)]


def test_ports_may_be_named_and_counted() -> None:
    expected = {"hcas": [{"name": "mlx5_ib0"}], "count": 8, "rate_gbps": 200}
    assert wrong(expected, ndv4()) == []
    # Each question has its own answer, once.
    assert wrong(expected, ndv4(mlx5_ib3={"rate_gbps": 40})) == ["HCA ports"]
    assert wrong(expected, ndv4(mlx5_ib0={"state": "DOWN"})) == ["port of HCA mlx5_ib0", "HCA ports"]


@pytest.mark.parametrize(("state", "active"), [("ACTIVE", True), ("active", True), ("INIT", False), (None, False)])
def test_data_goes_through_active_ports_only(state: str | None, active: bool) -> None:
    assert check.is_active(port("mlx5_0", state=state)) is active


OFED = "24.10-3.2.5.0"


@pytest.mark.parametrize(
    ("software", "modules", "what"),
    [
        (model.Software(f"MLNX_OFED_LINUX-{OFED}"), model.Modules(vendor=True), ""),
        (model.Software(), model.Modules(), "RDMA stack"),
        (model.Software("MLNX_OFED_LINUX-5.2-2.2.0.0"), model.Modules(vendor=True), "RDMA stack"),
        (model.Software(f"MLNX_OFED_LINUX-{OFED}", unfinished="x"), model.Modules(vendor=True), "RDMA stack"),
        (model.Software(f"MLNX_OFED_LINUX-{OFED}"), model.Modules(), "kernel modules of the stack"),
        (model.Software(f"MLNX_OFED_LINUX-{OFED}"), model.Modules(vendor=True, stale=("ib_core",)), "loaded modules"),
    ],
)
def test_stack_and_modules(software: model.Software, modules: model.Modules, what: str) -> None:
    verdicts = check.judge_stack(model.Wanted("mlnx_ofed", OFED), software, modules)
    assert [item["what"] for item in verdicts if item["verdict"] == "fail"] == ([what] if what else [])


@pytest.mark.parametrize(
    ("software", "modules", "version", "what"),
    [
        (model.Software(f"MLNX_OFED_LINUX-{OFED}"), model.Modules(vendor=True), "", ""),
        (model.Software(f"MLNX_OFED_LINUX-{OFED}"), model.Modules(vendor=True), OFED, ""),
        (model.Software(f"MLNX_OFED_LINUX-{OFED}"), model.Modules(vendor=True), "24.10-4.1.4.0", "RDMA stack"),
        (model.Software(f"MLNX_OFED_LINUX-{OFED}", unfinished="x"), model.Modules(vendor=True), "", "RDMA stack"),
        (model.Software(f"MLNX_OFED_LINUX-{OFED}"), model.Modules(), "", "kernel modules of the stack"),
        (model.Software("OFED-internal-25.10"), model.Modules(vendor=True, stale=("a",)), "", "loaded modules"),
        # The distribution's has no modules of its own.
        (model.Software(), model.Modules(loaded=True), "", ""),
        (model.Software(), model.Modules(), OFED, "RDMA stack"),
    ],
)
def test_what_the_image_brought_is_verified(
    software: model.Software, modules: model.Modules, version: str, what: str
) -> None:
    verdicts = check.judge_stack(model.Wanted("preinstalled", version), software, modules)
    assert [item["what"] for item in verdicts if item["verdict"] == "fail"] == ([what] if what else [])
    # What the role does not do with it is not advised.
    assert not [item for item in verdicts if "allow_" in item["remedy"] or "Run the role" in item["remedy"]]


@pytest.mark.parametrize("source", ["preinstalled", "doca"])
def test_only_a_stack_of_the_role_is_built_by_it(source: str) -> None:
    (verdict,) = check.judge_next_kernel(model.Wanted(source, "3.2.1-044000-25.10"), "6.8", model.Modules(headers=True))
    assert verdict["verdict"] == "fail"
    assert "`dkms autoinstall -k 6.8`" in verdict["remedy"]
    assert ("run the role" in verdict["remedy"]) is (source == "doca")


def test_a_removal_that_did_not_end_is_not_what_was_wanted() -> None:
    left = model.Software(packages={"doca-host": "3.2.1"}, unfinished="removal of doca 3.2.1")
    (verdict,) = check.judge_stack(model.Wanted("inbox"), left, model.Modules())
    assert (verdict["verdict"], verdict["found"]) == ("fail", "inbox (removal of doca 3.2.1 was interrupted)")


@pytest.mark.parametrize("modules", [model.Modules(), model.Modules(vendor=True, stale=("ib_core",))])
def test_a_container_is_not_judged_by_the_modules_of_its_host(modules: model.Modules) -> None:
    wanted = model.Wanted("mlnx_ofed", OFED, user_space_only=True)
    verdicts = check.judge_stack(wanted, model.Software(f"MLNX_OFED_LINUX-{OFED}"), modules)
    assert [item["verdict"] for item in verdicts] == ["ok"]


def test_a_port_that_is_exactly_as_fast_as_asked_for_is_fast_enough() -> None:
    found = [perftest.Bandwidth(65536, 5000, 190.0, 180.0), perftest.Bandwidth(65536, 5000, 190.0, 179.9)]
    verdicts = check.judge_bandwidth(["mlx5_ib0", "mlx5_ib1"], found, "gpu-2", 180)
    assert [item["verdict"] for item in verdicts] == ["ok", "fail"]


def test_a_slow_port_is_told_with_its_peer() -> None:
    found = [perftest.Bandwidth(65536, 5000, 190.0, 186.2), perftest.Bandwidth(65536, 5000, 90.0, 88.0)]
    verdicts = check.judge_bandwidth(["mlx5_ib0", "mlx5_ib1"], found, "gpu-2", 180)
    assert [item["verdict"] for item in verdicts] == ["ok", "fail"]
    assert verdicts[1]["what"] == "ib_write_bw of mlx5_ib1 to gpu-2"
    assert "88 Gb/s" in verdicts[1]["found"]
    assert {item["verdict"] for item in check.judge_bandwidth(["a", "b"], found, "gpu-2", 0)} == {"ok"}


TABLE = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.
 65536      5000             0.00               98.02                0.186950
"""


@pytest.mark.parametrize("end", ["client", "server"])
def test_what_the_tool_really_prints(end: str) -> None:
    output = (FIXTURES / f"ib_write_bw_{end}.txt").read_text()
    assert perftest.parse(output) == perftest.Bandwidth(65536, 200, 0.046842, 0.025166)


def test_what_the_tool_really_says_when_the_server_is_not_there_yet() -> None:
    assert perftest.is_too_early((FIXTURES / "ib_write_bw_refused.txt").read_text())
    assert not perftest.is_too_early((FIXTURES / "ib_write_bw_no_device.txt").read_text())


def test_a_warning_between_header_and_row() -> None:
    assert perftest.parse(TABLE) == perftest.Bandwidth(65536, 5000, 0.0, 98.02)


@pytest.mark.parametrize(
    "output",
    ["", TABLE.replace("Gb/sec", "MB/sec"), "\n".join(TABLE.splitlines()[:2]), "Couldn't connect to gpu-2:18515"],
)
def test_no_result_is_an_error(output: str) -> None:
    with pytest.raises(ClusterError) as caught:
        perftest.parse(output)
    assert caught.value.kind == "bad_output"


TOOL = r"""#!/usr/bin/python3
# Speaks perftest's command line: a server waits for a file, a client makes it.
import os, sys, time
args = sys.argv[1:]
value = lambda name: args[args.index(name) + 1]
mark = os.path.join(os.environ["MEETING"], value("-p"))
server = args[-1] if not args[-1].startswith("-") and args[-2] in ("--report_gbits", "--extra") else ""
if value("-d") == "broken0":
    sys.exit("Unable to open device")


def break_off():
    # Once, or with dead0 always. The header is in the buffer and comes after the error.
    if value("-d") == "dead0" or (value("-d") == "flaky0" and not os.path.exists(mark + ".again" + server)):
        open(mark + ".again" + server, "a").write("x")
        print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
        os.remove(mark + (".waiting" if server else ".met"))
        if server:
            open(mark + ".met", "w").close()
            sys.exit(" Completion with error at client\n Failed status 9: wr_id 0 syndrom 0x88\nscnt=200, ccnt=175")
        sys.exit(" Failed to exchange data between server and clients")


if server:
    if not os.path.exists(mark + ".waiting"):
        print(f" Couldn't connect to {server}:{value('-p')}")
        sys.exit(1)
    break_off()
    open(mark + ".met", "w").close()
else:
    open(mark + ".waiting", "w").close()
    while not os.path.exists(mark + ".met"):
        time.sleep(0.02)
    break_off()
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
print(f" {value('-s')}      {value('-n')}             1.50               1.25                0.1")
"""


@pytest.fixture
def tool(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    path = tmp_path / "bin" / "ib_write_bw"
    path.parent.mkdir()
    path.write_text(TOOL)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MEETING", str(tmp_path))
    monkeypatch.setattr(perftest, "_RETRY_S", 0.05)
    return path


def both(test: perftest.Measurement, delay_s: float, timeout_s: float = 120) -> tuple[t.Any, list[perftest.Bandwidth]]:
    server: list[t.Any] = []
    thread = threading.Thread(target=lambda: (time.sleep(delay_s), server.append(perftest.serve(test, timeout_s))))
    thread.start()
    found = perftest.measure(test, "gpu-1", timeout_s)
    thread.join()
    return server[0], found


def test_a_client_waits_for_its_server(tool: pathlib.Path) -> None:
    test = perftest.Measurement((("mlx5_0", 1), ("mlx5_1", 2)), 1024, 10, 20000)
    server, client = both(test, 0.4)
    assert client == server == [perftest.Bandwidth(1024, 10, 1.5, 1.25)] * 2


FIRST = "Completion with error at client; Failed status 9: wr_id 0 syndrom 0x88; scnt=200, ccnt=175"


def test_a_measurement_that_breaks_off_is_tried_once_more_and_that_is_told(tool: pathlib.Path) -> None:
    test = perftest.Measurement((("mlx5_0", 1), ("flaky0", 1)), 1024, 10, 20000)
    server, client = both(test, 0.2)
    assert [one.tries for one in (*server, *client)] == [1, 2, 1, 2]
    assert (client[0].first_error, client[1].first_error) == ("", FIRST)
    assert server[1].first_error == "Failed to exchange data between server and clients"
    verdicts = check.judge_bandwidth(["mlx5_0", "flaky0"], client, "gpu-1", 0)
    assert [item["verdict"] for item in verdicts] == ["ok", "ok", "warn"]
    assert FIRST in verdicts[2]["found"]


def test_a_measurement_that_breaks_off_twice_fails_with_its_error(tool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    test = perftest.Measurement((("dead0", 1),), 1024, 10, 20000)
    ends: dict[str, ClusterError] = {}

    def end(name: str, run: t.Callable[[], t.Any]) -> None:
        with pytest.raises(ClusterError) as caught:
            run()
        ends[name] = caught.value

    thread = threading.Thread(target=end, args=("server", lambda: perftest.serve(test, 120)))
    thread.start()
    end("client", lambda: perftest.measure(test, "gpu-1", 120))
    thread.join()
    assert ends["client"].message.endswith(FIRST)
    assert "Failed to exchange data" in ends["server"].message
    # No more than two tries.
    assert [(tmp_path / f"20000.again{peer}").read_text() for peer in ("", "gpu-1")] == ["xx", "xx"]


@pytest.mark.parametrize(
    ("fixture", "quoted", "again"),
    [
        ("broke_off", FIRST, True),
        (
            "left",
            "ethernet_read_keys: Couldn't read remote address; Unable to read to socket/rdma_cm; "
            "Failed to exchange data between server and clients",
            True,
        ),
        ("no_device", "IB device rxe7 not found; Unable to find the Infiniband/RoCE device", False),
    ],
)
def test_the_error_is_quoted_and_not_the_table(fixture: str, quoted: str, again: bool) -> None:
    output = (FIXTURES / f"ib_write_bw_{fixture}.txt").read_text()
    assert perftest.said(output) == quoted
    assert perftest.broke_off(output) is again


@pytest.mark.parametrize(("output", "quoted"), [("", "it said nothing"), ("one\n two \n\n", "two")])
def test_without_an_error_the_last_line_is_quoted(output: str, quoted: str) -> None:
    assert perftest.said(output) == quoted


def test_both_ends_agree_on_everything_but_the_address(tool: pathlib.Path) -> None:
    test = perftest.Measurement((("mlx5_0", 1), ("mlx5_1", 2)), 1024, 10, 20000, ("-x", "3"))
    assert perftest.argv(test, 1) == [
        "ib_write_bw", "-d", "mlx5_1", "-i", "2", "-p", "20001", "-s", "1024", "-n", "10", "-F", "--report_gbits", "-x", "3",
    ]  # fmt: skip
    assert perftest.argv(test, 1, "gpu-1") == [*perftest.argv(test, 1), "gpu-1"]


def test_a_server_that_nobody_comes_to_leaves_nothing_running(tool: pathlib.Path) -> None:
    test = perftest.Measurement((("mlx5_0", 1), ("mlx5_1", 1)), 1024, 10, 20000)
    with pytest.raises(ClusterError, match="waited"):
        perftest.serve(test, 0.5)
    left = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(tool) in _read(path)]
    assert left == []


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_a_broken_device_is_told_at_once(tool: pathlib.Path) -> None:
    test = perftest.Measurement((("broken0", 1),), 1024, 10, 20000)
    started = time.monotonic()
    for end in (lambda: perftest.serve(test, 600), lambda: perftest.measure(test, "gpu-1", 600)):
        with pytest.raises(ClusterError, match="Unable to open device"):
            end()
    assert time.monotonic() - started < 120


def test_a_client_gives_up(tool: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next attempt would begin after the time limit.
    monkeypatch.setattr(perftest, "_RETRY_S", 1000)
    with pytest.raises(ClusterError, match="Couldn't connect"):
        perftest.measure(perftest.Measurement((("mlx5_0", 1),), 1024, 10, 20000), "gpu-1", 120)


def test_the_tool_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError) as caught:
        perftest.serve(perftest.Measurement((("mlx5_0", 1),)), 1)
    assert caught.value.kind == "tool_missing"
