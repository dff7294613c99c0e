# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's double of BeeOND does what the documents and the public source of BeeGFS 7.4 and 8.3 say, on nodes made of namespaces.

Commands, mounts, ports and processes are real; only ssh is a stand-in, as a unit test has no sshd.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOUBLE = ROOT / "tests/lab/beeond"
STATUS = "/var/tmp/beeond.tmp"
START = ("beeond", "start", "-n", "/root/nodes", "-d", "/data", "-c", "/mnt/beeond")
STOP = ("beeond", "stop", "-n", "/root/nodes")
VERSIONS = ("7.4.7", "8.3.1")
# What does not differ is tried with one of them.
SEVEN = pytest.mark.parametrize("cluster", ["7.4.7"], indirect=True)
EIGHT = pytest.mark.parametrize("cluster", ["8.3.1"], indirect=True)
NO_AUTHENTICATION = "connDisableAuthentication = true\n"

sys.path.insert(0, str(DOUBLE))
import small_nodes as small

pytestmark = [
    pytest.mark.skipif(not small.possible(), reason="needs user namespaces with a network"),
    pytest.mark.slow,
]


class Cluster:
    """Two nodes with the double; configuration that lets version 7 start."""

    def __init__(self, nodes: small.Nodes, version: str) -> None:
        self.nodes, self.major = nodes, int(version[0])
        for name in nodes.names:
            self.install(name, "--version", version)
            nodes.shell(name, "printf 'node-1\\n\\nnode-2\\n' > /root/nodes; mkdir -p /data /mnt/beeond")
            if self.major == 7:
                nodes.shell(
                    name, f"for file in /etc/beegfs/beegfs-*.conf; do echo '{NO_AUTHENTICATION}' >> $file; done"
                )

    def install(self, name: str, *words: str) -> None:
        done = subprocess.run(
            [
                *(sys.executable, DOUBLE / "install.py", "--root", self.nodes.root(name), "--pdsh", *words),
                *("--address", self.nodes.address(name)),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout in ("installed\n", "unchanged\n")

    def fault(self, name: str, *words: str) -> str:
        script = self.nodes.root(name) / "root/fault.py"
        script.write_bytes((DOUBLE / "fault.py").read_bytes())
        return self.nodes.shell(name, f"/usr/bin/python3 /root/fault.py {' '.join(words)}")

    def beeond(self, *words: str, timeout_s: float = 120) -> t.Any:
        return self.nodes.run("node-1", *words, timeout_s=timeout_s)

    def hangs(self, *words: str, timeout_s: float = 6) -> bool:
        """Whether the program is still at it; it is then ended, as whoever calls it would have to."""
        script = f"timeout {timeout_s} {' '.join(words)} > /root/out 2>&1"
        return self.nodes.run("node-1", "bash", "-c", script, timeout_s=60 + timeout_s).returncode == 124

    def forget(self, name: str) -> None:
        """End what runs on a node, and take away what it has left."""
        self.nodes.quiet(name)
        self.nodes.run(name, "umount", "-l", "/mnt/beeond")
        self.nodes.shell(name, f"rm -rf /data/* /var/log/* /var/run/beegfs-* {STATUS}")

    def status(self, name: str) -> list[list[str]] | None:
        place = self.nodes.root(name) / STATUS[1:]
        return [line.split(",") for line in place.read_text().splitlines()] if place.exists() else None

    def mounted(self, name: str) -> bool:
        return "beegfs_ondemand /mnt/beeond " in self.nodes.shell(name, "cat /proc/mounts")

    def services(self, name: str) -> set[str]:
        """The services that have their directory or pid file locked by a live process of this node."""
        rows = self.status(name) or []
        found = set()
        for row in rows:
            if row[4] != "-" and self.nodes.run(name, "bash", "-c", f"kill -0 $(cat {row[4]})").returncode == 0:
                found.add(row[1])
        return found

    def listens(self, name: str, port: int) -> bool:
        return self.nodes.run(name, "bash", "-c", f"exec 3<>/dev/tcp/{name}/{port}").returncode == 0


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Cluster]:
    place = tmp_path_factory.mktemp("beeond") / "nodes"
    with small.Nodes(place, 2) as nodes:
        yield Cluster(nodes, request.param)


@pytest.fixture
def clean(cluster: Cluster) -> t.Iterator[Cluster]:
    """Afterwards no node has faults, services, mounts, data or a status file."""
    yield cluster
    for name in cluster.nodes.names:
        cluster.fault(name)
        cluster.forget(name)


@pytest.mark.parametrize("parallel", [(), ("-P",)])
def test_start_and_stop(clean: Cluster, parallel: tuple[str, ...]) -> None:
    done = clean.beeond(*START, *parallel)
    assert done.returncode == 0, done.stdout + done.stderr
    helper = ["beegfs-helperd"] if clean.major == 7 else []
    rows = {name: [row[1] for row in clean.status(name) or []] for name in clean.nodes.names}
    assert rows == {
        "node-1": ["beegfs-mgmtd", "beegfs-storage", "beegfs-meta", *helper, "beegfs-client"],
        "node-2": ["beegfs-storage", *helper, "beegfs-client"],
    }
    first = clean.status("node-1") or []
    assert [row[0] for row in first] == ["node-1"] * len(first)
    assert first[1][2] == "/data/beegfs-storage"
    assert first[-1][2::2] == ["/mnt/beeond", "-"]
    assert first[0][3] == "-" if clean.major == 8 else first[0][3].startswith("/var/log/beegfs-mgmtd_")
    assert all(clean.mounted(name) for name in clean.nodes.names)
    assert clean.services("node-2") == {"beegfs-storage", *helper}
    ports = [9008, 9005, 9003] + ([9006] if clean.major == 7 else [9010])
    assert [port for port in ports if clean.listens("node-1", port)] == ports
    assert not clean.listens("node-2", 9005)
    found = clean.nodes.shell("node-1", "ls /data/beegfs-storage /data/beegfs-meta").split()
    assert {"chunks", "buddymir", "targetNumID", "nodeNumID", "dentries", "inodes"} <= set(found)

    again = clean.beeond(*START, *parallel)
    assert again.returncode == 1
    assert "already exists" in again.stderr
    done = clean.beeond(*STOP, *parallel)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in clean.nodes.names:
        assert not clean.mounted(name)
        assert clean.status(name) is None
    assert not any(clean.listens("node-1", port) for port in ports)
    assert clean.nodes.shell("node-2", "ls /data").split() == ["beegfs-storage"], "without -d the data stays"


def test_stop_deletes_data_and_logs_only_when_asked(clean: Cluster) -> None:
    assert clean.beeond(*START, "-L", "/var/log/own").returncode == 0
    logs = clean.nodes.shell("node-1", "ls /var/log/own").split()
    # From 8 on the services log to syslog, as their packages configure them.
    assert bool(logs) == (clean.major == 7)
    assert clean.beeond(*STOP, "-d", "-L").returncode == 0
    assert clean.nodes.shell("node-1", "ls /data /var/log/own").split() == ["/data:", "/var/log/own:"]


@SEVEN
def test_options_after_a_word_that_is_none_are_not_read(clean: Cluster) -> None:
    """-d has no argument: what follows ends the options, and the data goes."""
    assert clean.beeond(*START).returncode == 0
    assert clean.beeond(*STOP, "-d", "/data", "-i", "/not/there").returncode == 0
    assert clean.nodes.shell("node-1", "ls /data") == ""


@SEVEN
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("start", "-x"), "ERROR: invalid option: -x"),
        (("start", "-n"), "ERROR: Option -n requires an argument"),
        (("start", "-m", "two"), "number of metadata servers must be numeric"),
        (("start", "-d", "/data", "-c", "/mnt/x"), "Node file undefined"),
        (("start", "-n", "/not/there"), "Node file does not exist: /not/there"),
        (("start", "-n", "/root/nodes", "-c", "/mnt/x"), "Path for BeeGFS data undefined"),
        (("start", "-n", "/root/nodes", "-d", "/data"), "Path for client mountpoint undefined"),
        (("start", "-f", "/not/there"), "The -f option expects a path to a directory: /not/there"),
        (("stop", "-x"), "ERROR: invalid option: -"),
        (("stoplocal", "-u", "-s"), "are mutually exclusive"),
        (("stoplocal",), "Status file /tmp/beeond.tmp not found."),
        (("restart",), ""),
        ((), ""),
    ],
)
def test_refusals_end_with_1(cluster: Cluster, words: tuple[str, ...], text: str) -> None:
    done = cluster.beeond("beeond", *words)
    assert done.returncode == 1
    assert text in done.stderr
    assert all(cluster.status(name) is None for name in cluster.nodes.names)


def test_the_option_sets_differ(cluster: Cluster) -> None:
    cluster.nodes.shell("node-1", "mkdir -p /root/config; touch /root/config/license.pem")
    for option in ("-C", "-E", "-H"):
        done = cluster.beeond("beeond", "start", option, "-f", "/root/config")
        expected = (
            f"invalid option: {option}" if cluster.major == 7 else f"needs to be specified before the option {option}"
        )
        assert expected in done.stderr
    done = cluster.beeond("beeond", "start", "-k")
    assert ("licensing (option -H)" in done.stderr) == (cluster.major == 8)
    done = cluster.beeond("beeond", "start", "-f", "/root/config", "-H", "-k", "-l")
    assert done.returncode == 1
    if cluster.major == 8:
        assert "Node file undefined" in done.stderr


@SEVEN
def test_words_of_a_node_file_are_hosts(clean: Cluster) -> None:
    clean.nodes.shell("node-1", "printf 'node-1\\n# spare\\nnode-2\\n' > /root/commented")
    done = clean.beeond("beeond", "start", "-n", "/root/commented", "-d", "/data", "-c", "/mnt/beeond")
    assert done.returncode == 1
    assert "Host is unreachable via ssh: #" in done.stderr


@SEVEN
def test_an_unreachable_node_stops_a_stop(clean: Cluster) -> None:
    assert clean.beeond(*START).returncode == 0
    clean.nodes.shell("node-1", "printf 'node-1\\nnode-9\\n' > /root/other")
    done = clean.beeond("beeond", "stop", "-n", "/root/other")
    assert (done.returncode, "Host is unreachable via ssh: node-9" in done.stderr) == (1, True)
    assert clean.mounted("node-1")
    assert clean.services("node-1") >= {"beegfs-mgmtd", "beegfs-meta", "beegfs-storage"}


def test_authentication(clean: Cluster) -> None:
    """A file that is not there fails the first service; one that differs on a node is waited for without an end."""
    config = "/root/authenticated"
    for name in clean.nodes.names:
        files = "mgmtd meta storage helperd client" if clean.major == 7 else "meta storage client"
        script = f"mkdir -p {config}; for kind in {files}; do echo connAuthFile={config}/conn.auth > {config}/beegfs-$kind.conf; done"
        clean.nodes.shell(name, script)
    if clean.major == 7:
        done = clean.beeond(*START, "-f", config)
        assert done.returncode == 1
        assert f"Unable to open auth file: {config}/conn.auth" in done.stderr
        assert "Unable to start beegfs-mgmtd on host: node-1" in done.stderr
        assert clean.status("node-1") is None
        assert clean.status("node-2") == [], "a start that fails leaves its status files behind"
        clean.nodes.shell("node-2", f"rm {STATUS}")
        # The control tool does not look into the configuration directory.
        clean.nodes.shell("node-1", f"echo connAuthFile={config}/conn.auth >> /etc/beegfs/beegfs-client.conf")
    else:
        assert "specified before the option -C" in clean.beeond(*START, "-f", config, "-C").stderr
    for name in clean.nodes.names:
        clean.nodes.shell(name, f"echo secret > {config}/conn.auth")
    switch = ("-C",) if clean.major == 8 else ()
    done = clean.beeond(*START, "-f", config, *switch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert clean.beeond(*STOP, "-d").returncode == 0
    clean.nodes.shell("node-2", f"echo another > {config}/conn.auth")
    assert clean.hangs(*START, "-f", config, *switch)
    if clean.major == 7:
        clean.nodes.shell("node-1", "sed -i '/conn.auth/d' /etc/beegfs/beegfs-client.conf")


def test_a_start_without_authentication(clean: Cluster) -> None:
    """7 wants a decision, and finds none in the files of its packages; 8 switches it off by itself."""
    if clean.major == 7:
        for name in clean.nodes.names:
            clean.nodes.shell(name, "cp -a /etc/beegfs /root/kept; sed -i '/= true/d' /etc/beegfs/*.conf")
        done = clean.beeond(*START)
        for name in clean.nodes.names:
            clean.nodes.shell(name, "cp -a /root/kept/. /etc/beegfs")
        assert done.returncode == 1
        assert "No connAuthFile configured" in done.stderr
    else:
        assert clean.beeond(*START).returncode == 0


def test_a_port_in_use(clean: Cluster) -> None:
    """The management service of 7 fails before it detaches; all others detach first, and the start waits for ever."""
    clean.fault("node-1", "--occupy", "9008")
    if clean.major == 7:
        done = clean.beeond(*START)
        assert done.returncode == 1
        assert "Unable to start beegfs-mgmtd on host: node-1" in done.stderr
        assert "A hard error occurred" in clean.nodes.shell("node-1", "cat /var/log/beegfs-mgmtd_*")
    else:
        assert clean.hangs(*START)
    for name in clean.nodes.names:
        clean.forget(name)
    clean.fault("node-2", "--occupy", "9003")
    assert clean.hangs(*START)


@pytest.mark.parametrize(
    ("cluster", "fault", "node"),
    [
        ("7.4.7", ("--hang", "beegfs-storage"), "node-2"),
        ("7.4.7", ("--dead", "beegfs-mgmtd"), "node-1"),
        ("8.3.1", ("--dead", "beegfs-meta"), "node-1"),
        ("8.3.1", ("--not-good", "beegfs-storage"), "node-2"),
        ("8.3.1", ("--hang", "mount"), "node-2"),
    ],
    indirect=["cluster"],
)
def test_faults_that_a_start_waits_for(clean: Cluster, fault: tuple[str, ...], node: str) -> None:
    clean.fault(node, *fault)
    assert clean.hangs(*START)
    clean.fault(node)
    assert clean.beeond(*STOP, "-d", "-c").returncode == 0
    done = clean.beeond(*START, "-F")
    assert done.returncode == 0, done.stdout + done.stderr


@SEVEN
def test_a_service_that_refuses_and_a_module_that_is_missing(clean: Cluster) -> None:
    clean.fault("node-2", "--refuse", "beegfs-storage")
    done = clean.beeond(*START)
    assert (done.returncode, "Unable to start beegfs-storage on host: node-2" in done.stderr) == (1, True)
    assert clean.beeond(*STOP, "-d").returncode == 0
    clean.fault("node-2", "--module", "missing")
    done = clean.beeond(*START)
    assert (done.returncode, "Unable to start BeeGFS client on host: node-2" in done.stderr) == (1, True)
    assert "Trying to recompile from source" in done.stdout
    assert clean.mounted("node-1")
    assert clean.beeond(*STOP, "-d").returncode == 0
    clean.fault("node-2", "--module", "buildable")
    assert clean.beeond(*START).returncode == 0


@EIGHT
def test_a_stuck_service_outlives_a_stop(clean: Cluster) -> None:
    """A stop by ssh says so and ends with 0 all the same, one by pdsh with 1; the status file is gone either way."""
    for parallel, code in (((), 0), (("-P",), 1)):
        clean.fault("node-2", "--stuck", "beegfs-storage")
        assert clean.beeond(*START).returncode == 0
        pid_file = next(row[4] for row in clean.status("node-2") or [] if row[1] == "beegfs-storage")
        done = clean.beeond(*STOP, "-d", *parallel)
        assert done.returncode == code
        assert "beegfs-storage did not stop within 10 seconds" in done.stdout
        assert clean.status("node-2") is None
        assert clean.nodes.run("node-2", "bash", "-c", f"kill -0 $(cat {pid_file})").returncode == 0
        clean.nodes.shell("node-2", f"kill -9 $(cat {pid_file})")
        clean.fault("node-2")


@SEVEN
def test_a_partial_stop_and_a_dead_service(clean: Cluster) -> None:
    clean.fault("node-2", "--partial-stop")
    assert clean.beeond(*START).returncode == 0
    pid_file = next(row[4] for row in clean.status("node-2") or [] if row[1] == "beegfs-storage")
    assert clean.beeond(*STOP).returncode == 0
    assert clean.status("node-2") is None
    assert clean.nodes.run("node-2", "bash", "-c", f"kill -0 $(cat {pid_file})").returncode == 0, (
        "its service still runs"
    )
    assert clean.hangs(*START) or "locking failed" in clean.nodes.shell("node-1", "cat /root/out")


@EIGHT
def test_a_service_dies_while_the_file_system_runs(clean: Cluster) -> None:
    clean.fault("node-1", "--offline-timeout", "20")
    assert clean.beeond(*START).returncode == 0
    pid_file = next(row[4] for row in clean.status("node-2") or [] if row[1] == "beegfs-storage")
    clean.nodes.shell("node-2", f"kill -9 $(cat {pid_file})")
    tool = "beegfs --mgmtd-addr node-1:9010 --tls-disable --auth-disable target list --node-type storage --state"
    end = time.monotonic() + 120
    while " Offline " not in (shown := clean.nodes.shell("node-1", tool)) or " Online " not in shown:
        assert time.monotonic() < end, shown
        time.sleep(0.5)
    done = clean.beeond(*STOP)
    assert (done.returncode, "does not seem to be running any more" in done.stdout) == (0, True)


@SEVEN
def test_a_service_dies_by_itself(clean: Cluster) -> None:
    clean.fault("node-1", "--dies-after", "beegfs-helperd", "0.2")
    clean.nodes.shell("node-1", "beegfs-helperd runDaemonized=true pidFile=/run/beegfs-helper.pid logStdFile=/run/log")
    end = time.monotonic() + 60
    while clean.nodes.run("node-1", "bash", "-c", "kill -0 $(cat /run/beegfs-helper.pid)").returncode == 0:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "All components stopped" not in clean.nodes.shell("node-1", "cat /run/log"), "a crash logs nothing"


@SEVEN
def test_a_leftover_status_file(clean: Cluster) -> None:
    clean.fault("node-2", "--leftover", STATUS)
    done = clean.beeond(*START)
    assert (done.returncode, f"Status file {STATUS} on host node-2 already exists" in done.stderr) == (1, True)
    assert clean.status("node-1") is None
    assert clean.beeond(*STOP, "-c").returncode == 0
    assert clean.beeond(*START).returncode == 0


@EIGHT
def test_old_data_is_the_old_file_system(clean: Cluster) -> None:
    assert clean.beeond(*START).returncode == 0
    first = clean.nodes.shell("node-2", "cat /data/beegfs-storage/targetID")
    assert clean.beeond(*STOP).returncode == 0
    assert clean.beeond(*START).returncode == 0
    assert clean.nodes.shell("node-2", "cat /data/beegfs-storage/targetID") == first
    assert clean.beeond(*STOP).returncode == 0
    assert clean.beeond(*START, "-F").returncode == 0
    assert clean.nodes.shell("node-2", "cat /data/beegfs-storage/targetID") != first


@SEVEN
def test_a_wrong_name_in_a_configuration_file(clean: Cluster) -> None:
    clean.nodes.shell("node-1", "mkdir -p /root/wrong; echo tuneNoSuch=1 > /root/wrong/beegfs-storage.conf")
    done = clean.beeond(*START, "-f", "/root/wrong")
    assert (done.returncode, "The config argument 'tuneNoSuch' is invalid" in done.stderr) == (1, True)


def test_a_lost_node(tmp_path: pathlib.Path) -> None:
    """Without pdsh the survivors are not even asked; pdsh falls back to ssh and fails the same way."""
    with small.Nodes(tmp_path / "nodes", 2) as nodes:
        cluster = Cluster(nodes, "8.3.1")
        assert cluster.beeond(*START).returncode == 0
        nodes.lose("node-2")
        for parallel in ((), ("-P",)):
            done = cluster.beeond(*STOP, *parallel)
            assert (done.returncode, "Host is unreachable via ssh: node-2" in done.stderr) == (1, True)
            assert cluster.mounted("node-1")


def test_one_shared_directory_is_one_content(tmp_path: pathlib.Path) -> None:
    with small.Nodes(tmp_path / "nodes", 2) as nodes:
        cluster = Cluster(nodes, "7.4.7")
        shared = nodes.place / "common/shared"
        shared.mkdir()
        for name in nodes.names:
            cluster.install(name, "--version", "7.4.7", "--shared-directory", "/common/shared")
        assert cluster.beeond(*START).returncode == 0
        nodes.shell("node-1", "echo text > /mnt/beeond/file")
        assert nodes.shell("node-2", "cat /mnt/beeond/file") == "text\n"
        assert cluster.beeond(*STOP, "-d").returncode == 0
        assert not list(shared.iterdir())
