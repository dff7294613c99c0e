# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action start: what it checks, in which order it starts the services, and what it waits for (without a limit)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import typing as t

import beeond
import configuration
import options
import pools
import remote
import settings

SERVICES = "/opt/beegfs/sbin"
PREFERRED_META, PREFERRED_TARGET = "/tmp/preferredMds.fod", "/tmp/preferredTarget.fod"
KNOWN = {7: ":c:d:f:Fi:m:n:p:lL:Pb:s:qrkjt:T", 8: ":c:d:f:Fi:m:n:p:G:lL:Pb:s:qrkjt:TCEH"}
NUMBERS = {
    "m": "number of metadata servers",
    "s": "number of storage servers",
    "p": "port shift",
    "G": "management gRPC port",
}
FILES = {
    "C": ("connection authentication", ("conn.auth",), '"conn.auth" file'),
    "E": ("TLS encryption", ("cert.pem", "key.pem"), '"cert.pem" and a "key.pem" file'),
    "H": ("enterprise features", ("license.pem",), '"license.pem" file'),
}
LICENSED = {"k": "mirroring", "j": "mirroring", "t": "storage pools"}


def read(arguments: t.Sequence[str]) -> dict[str, str]:
    """The options; each is checked when its turn comes, so that -C, -E, -H and -f have an order."""
    major = settings.major()
    given = {
        "i": beeond.STATUS_FILE,
        "m": "1",
        "s": "0",
        "p": "1000",
        "L": "/var/log",
        "G": str(configuration.GRPC_PORT),
    }
    for option, value in options.read(arguments, KNOWN[major], "beeond"):
        if option in "?:":
            beeond.refuse(option, value)
        if option in NUMBERS and not value.isdecimal():
            raise remote.BeeondError(f"{NUMBERS[option]} must be numeric")
        if option == "f" and not os.path.isdir(value):
            raise remote.BeeondError(f"The -f option expects a path to a directory: {value}")
        if option in FILES and major > 7:
            what, names, words = FILES[option]
            if not all(os.path.isfile(f"{given.get('f', '')}/{name}") for name in names):
                where = f"a config path (option -f) that contains a {words} and is available on all nodes"
                raise remote.BeeondError(f"To use {what}, {where} needs to be specified before the option -{option}")
        if option in LICENSED and major > 7 and "H" not in given:
            text = f"To use {LICENSED[option]}, licensing (option -H) must be configured before the option -{option}"
            raise remote.BeeondError(text)
        given[option] = value
    return given


class Start:
    """One start: the options, the nodes, and the names that carry the time."""

    def __init__(self, given: t.Mapping[str, str], pdsh: str | None) -> None:
        self.given, self.major = given, settings.major()
        self.time = time.strftime("%Y%m%d-%H%M%S")
        self.say = beeond.quiet if "q" in given else beeond.inform
        self.hosts, lines = remote.node_file(given.get("n", ""))
        for letter, what in (("d", "Path for BeeGFS data"), ("c", "Path for client mountpoint")):
            if not given.get(letter):
                raise remote.BeeondError(f"{what} undefined")
        if "k" in given and "l" in given:
            raise remote.BeeondError("Options -k and -l are mutually exclusive.")
        self.pools = pools.read(given["t"], given) if given.get("t") else {}
        self.say(f"Using status information file: {given['i']}")
        self.nodes = remote.Nodes(self.hosts, pdsh, self.say)
        self.lines = lines

    @property
    def parallel(self) -> bool:
        return self.nodes.pdsh is not None

    def run(self) -> int:
        self.nodes.check()
        self.take_status_files()
        self.meta = self.hosts[: self.number("m", "metadata")]
        self.storage = self.hosts[: self.number("s", "storage")]
        self.on_all(
            self.hosts, f'mkdir -p "{self.given["L"]}"', f"Could not create log path {self.given['L']} on host {{}}"
        )
        self.nodes.ssh(self.hosts[0], f"rm -f {self.given['i']}")
        if "r" in self.given:
            self.start_tmpfs()
        self.start_management()
        self.start_services("beegfs-storage", self.storage)
        if self.pools:
            pools.create(self)
        self.start_services("beegfs-meta", self.meta)
        self.wait("storage", len(self.storage))
        self.wait("meta", len(self.meta))
        self.mirror()
        self.start_clients()
        self.finish()
        return 0

    def number(self, letter: str, what: str) -> int:
        wanted = int(self.given[letter])
        if wanted == 0 or wanted > self.lines:
            wanted = self.lines
            self.say(f"Number of {what} servers automatically set to {wanted}")
        return wanted

    def on_all(self, hosts: t.Sequence[str], command: str, failure: str) -> None:
        """The command on the nodes; without pdsh a failure names the node and ends the start."""
        if self.parallel:
            self.nodes.all_at_once(hosts, command)
            return
        for host in hosts:
            if self.nodes.ssh(host, command):
                raise remote.BeeondError(failure.format(host))

    def take_status_files(self) -> None:
        """No node may have one; then every node gets an empty one, which must be possible."""
        name = self.given["i"]
        why = "Maybe a session is already running or the previous session was not properly shut down."
        if self.parallel:
            if self.nodes.raw_pdsh(self.hosts, f'[ ! -e "{name}" ] || (echo "Statusfile already exists." && false)'):
                raise remote.BeeondError(f"Statusfile {name} on one ore more hosts already exists. {why}")
            if self.nodes.raw_pdsh(self.hosts, f'touch "{name}"'):
                raise remote.BeeondError(f"Could not create status file {name} on one ore more hosts.")
            return
        for host in self.hosts:
            if self.nodes.ssh(host, f'[ ! -e "{name}" ]'):
                raise remote.BeeondError(f"Status file {name} on host {host} already exists. {why}")
        for host in self.hosts:
            if self.nodes.ssh(host, f'touch "{name}"'):
                raise remote.BeeondError(f"Could not create status file {name} on host {host}")

    def note(self, host: str, service: str, data: str, log: str, pid_file: str) -> None:
        self.nodes.ssh(host, f"echo {host},{service},{data},{log},{pid_file} >> {self.given['i']}")

    def start_tmpfs(self) -> None:
        data = self.given["d"]
        self.say("Starting tmpfs mounts")
        self.on_all(self.hosts, f"mkdir -p {data} && mount -t tmpfs tmpfs {data}", "Unable to start tmpfs on host: {}")
        for host in self.hosts:
            self.note(host, "tmpfs", data, "-", "-")

    def log(self, service: str) -> str:
        return f"{self.given['L']}/{service}_{self.time}.log"

    def pid_file(self, service: str) -> str:
        return f"/var/run/{service}-{self.time}.pid"

    def command(self, service: str, words: str, data: str = "", option: str = "cfgFile=", before: str = "") -> str:
        """A shell command that starts SERVICE, with the file of the configuration directory where the node has it."""
        suffix = "toml" if option.startswith("--") else "conf"
        file = f"{self.given.get('f', '')}/{service}.{suffix}"
        config = f'if [ -e {file} ]; then WORDS="$WORDS {option}{file}"; fi; ' if "f" in self.given else ""
        clear = f"rm -rf {data}; " if data and "F" in self.given else ""
        return f'WORDS="{words}"; {config}{clear}{before}{SERVICES}/{service} $WORDS'

    def authentication(self) -> str:
        """Version 8's arguments for the services that still have options of version 7's form; version 7 gives none."""
        if self.major == 7:
            return ""
        if "C" in self.given:
            return f" connAuthFile={self.given['f']}/conn.auth connDisableAuthentication=false"
        return " connDisableAuthentication=true"

    def start_management(self) -> None:
        service, host = "beegfs-mgmtd", self.hosts[0]
        data, pid_file = f"{self.given['d']}/{service}", self.pid_file(service)
        self.say(f"Starting {service} processes")
        if self.major == 7:
            self.say(f"Management daemon log: {self.log(service)}")
            words = f"storeMgmtdDirectory={data} logStdFile={self.log(service)} runDaemonized=true pidFile={pid_file}"
            command = self.command(service, f"{words} connPortShift={self.given['p']}", data)
        else:
            database = f"--db-file {data}/beegfs-mgmtd.sqlite3"
            words = f"{database} --daemonize true --daemonize-pid-file {pid_file} {self.security()}"
            if "E" in self.given:
                words += f" --tls-key-file {self.given['f']}/key.pem"
            if "H" in self.given:
                words += f" --license-cert-file {self.given['f']}/license.pem"
            before = f"{SERVICES}/{service} --init {database}; "
            command = self.command(service, f"{words} --port-shift {self.given['p']}", data, "--config-file ", before)
        self.say(f"Starting {service} on host: {host}")
        if self.nodes.ssh(host, command):
            raise remote.BeeondError(f"Unable to start {service} on host: {host}")
        self.note(host, service, data, self.log(service) if self.major == 7 else "-", pid_file)

    def start_services(self, service: str, hosts: t.Sequence[str]) -> None:
        kind = service.partition("-")[2]
        data, log, pid_file = f"{self.given['d']}/{service}", self.log(service), self.pid_file(service)
        words = f"sysMgmtdHost={self.hosts[0]} logStdFile={log} runDaemonized=true pidFile={pid_file}{self.authentication()}"
        words += f" connPortShift={self.given['p']}"
        if self.pools and kind == "storage":
            command = self.command(
                service, f"{words} storeStorageDirectory={pools.SHELL}", before=pools.search(self.pools)
            )
        else:
            command = self.command(service, f"{words} store{kind.capitalize()}Directory={data}", data)
        local, number = (PREFERRED_META, "nodeNumID") if kind == "meta" else (PREFERRED_TARGET, "targetNumID")
        link = f"rm -f {local}; ln -s {data}/{number} {local}"
        if self.parallel:
            self.say(f"Starting {service} processes on the following hosts: {','.join(hosts)}")
            self.nodes.all_at_once(hosts, command)
            if "l" in self.given:
                self.nodes.all_at_once(hosts, link)
            self.nodes.all_at_once(hosts, f"echo %h,{service},{data},{log},{pid_file} >> {self.given['i']}")
            return
        self.say(f"Starting {service} processes")
        for host in hosts:
            self.say(f"Starting {service} on host: {host}")
            if self.nodes.ssh(host, command):
                raise remote.BeeondError(f"Unable to start {service} on host: {host}")
            self.note(host, service, data, log, pid_file)
            if "l" in self.given:
                self.nodes.ssh(host, link)

    def security(self) -> str:
        """Version 8's words for the management service and the control tool."""
        tls = (
            f"--tls-disable=false --tls-cert-file {self.given['f']}/cert.pem" if "E" in self.given else "--tls-disable"
        )
        secret = f"--auth-file {self.given['f']}/conn.auth" if "C" in self.given else "--auth-disable"
        return f"{tls} {secret}"

    def control(self, *words: str) -> list[str]:
        """The control tool's command line."""
        manager, shift = self.hosts[0], int(self.given["p"])
        if self.major == 7:
            return ["beegfs-ctl", f"--sysMgmtdHost={manager}", f"--connPortShift={shift}", *words]
        address = f"{manager}:{int(self.given['G']) + shift}"
        return ["beegfs", "--mgmtd-addr", address, *self.security().split(), *words]

    def wait(self, kind: str, number: int) -> None:
        """Until NUMBER nodes are registered and all are online and good; for ever, if need be, as the real one does."""
        if self.major == 7:
            nodes = self.control("--listnodes", f"--nodetype={kind}")
            states = self.control("--listtargets", f"--nodetype={kind}", "--state")
            self.until("", lambda: len(lines(nodes)) == number)
            self.until("", lambda: all_good(lines(states)[2:]))
            return
        nodes = self.control("node", "list", "--node-type", kind)
        states = self.control("target", "list", "--node-type", kind, "--state", "--columns", "reachability,consistency")
        space = self.control("target", "list", "--node-type", kind, "--raw", "--columns", "space")
        self.until("Waiting until all nodes have registered with mgmtd...", lambda: len(lines(nodes)[1:-1]) == number)
        text = "Waiting for all nodes/targets to be online and in sync..."
        self.until(text, lambda: all_good(lines(states)[1:-1]))
        text = "Waiting for all nodes/targets to report their available space..."
        self.until(text, lambda: not any(row.strip() == "-" for row in lines(space)[1:-1]))

    def until(self, text: str, done: t.Callable[[], bool]) -> None:
        print(text, end="", flush=True)
        while not done():
            print("." if text else "", end="", flush=True)
            time.sleep(1)
        if text:
            print()

    def mirror(self) -> None:
        for letter, kind, what in (("k", "storage", "storage target"), ("j", "meta", "metadata server")):
            if letter not in self.given:
                continue
            seven = ("--addmirrorgroup", f"--nodetype={kind}", "--automatic", "--force")
            if quietly(self.control(*(seven if self.major == 7 else ("mirror", "autocreate", kind)))):
                raise remote.BeeondError(f"Unable to create {what} buddy mirror groups.")
            time.sleep(8)
            if kind == "meta" and quietly(
                self.control(*(["--mirrormd"] if self.major == 7 else ["mirror", "init", "--yes"]))
            ):
                raise remote.BeeondError("Unable to enable metadata mirroring.")

    def start_clients(self) -> None:
        given, log = self.given, self.log("beegfs-client")
        helper = self.command(
            "beegfs-helperd", f"logStdFile={log} runDaemonized=true pidFile={self.pid_file('beegfs-helperd')}"
        )
        helper += f" connPortShift={given['p']}"
        rows = [("beegfs-helperd", "-", self.pid_file("beegfs-helperd"))] if self.major == 7 else []
        rows.append(("beegfs-client", given["c"], "-"))
        load, build = "/opt/beegfs/double/modprobe beegfs", "/etc/init.d/beegfs-client rebuild"
        mount = self.mount(load)
        pattern = " ".join(self.control(*self.pattern(1))) + " > /dev/null"
        if self.parallel:
            self.say(f"Starting beegfs-client processes on the following hosts: {','.join(self.hosts)}")
            commands = [helper] if self.major == 7 else []
            commands += [f"echo %h,{name},{data},{log},{pid} >> {given['i']}" for name, data, pid in rows]
            commands += [f"{load} || {build}", mount] + ([pattern] if "l" in given else [])
            for command in commands:
                self.nodes.all_at_once(self.hosts, command)
            return
        self.say("Starting beegfs-client processes")
        self.say(f"Client log: {log}")
        for host in self.hosts:
            self.say(f"Starting beegfs-client on host: {host}")
            if self.major == 7:
                if self.nodes.ssh(host, helper):
                    raise remote.BeeondError(f"Unable to start beegfs-client on host: {host}")
                self.note(host, rows[0][0], "-", log, rows[0][2])
            if self.nodes.ssh(host, load):
                self.say(f"Module beegfs could not be loaded on host: {host}. Trying to recompile from source.")
                self.nodes.ssh(host, build)
            if self.nodes.ssh(host, mount):
                raise remote.BeeondError(f"Unable to start BeeGFS client on host: {host}")
            self.note(host, "beegfs-client", given["c"], log, "-")
            if "l" in given:
                self.nodes.ssh(host, pattern)

    def mount(self, load: str) -> str:
        """A shell command that mounts, with what the node has of configuration and of preferred servers."""
        given = self.given
        words = f"sysMgmtdHost={self.hosts[0]}{self.authentication().replace(' ', ',')},connPortShift={given['p']}"
        parts = [f'WORDS="{words}"; ']
        if "f" in given:
            file = f"{given['f']}/beegfs-client.conf"
            parts.append(f'if [ -e {file} ]; then WORDS="$WORDS,cfgFile={file}"; fi; ')
        if "l" in given:
            for key, file in (
                ("tunePreferredMetaFile", PREFERRED_META),
                ("tunePreferredStorageFile", PREFERRED_TARGET),
            ):
                parts.append(f'if [ -e {file} ]; then WORDS="$WORDS,{key}={file}"; fi; ')
        place = given["c"]
        parts.append(f"mkdir -p {place} && {load} && mount -t beegfs beegfs_ondemand {place} -o$WORDS")
        return "".join(parts)

    def pattern(self, targets: int, mirrored: bool = False) -> list[str]:
        if self.major == 7:
            words = ["--setpattern", f"--numtargets={targets}", "--chunksize=512k"]
            return [*words, *(["--pattern=buddymirror"] if mirrored else []), self.given["c"]]
        words = ["entry", "set", "--num-targets", str(targets), "--chunk-size", "512ki"]
        return [*words, *(["--pattern", "mirrored"] if mirrored else []), self.given["c"]]

    def finish(self) -> None:
        if self.pools and "T" not in self.given:
            pools.assign(self)
        if "k" in self.given and quietly(self.control(*self.pattern(4, mirrored=True))):
            raise remote.BeeondError("Unable to enable mirroring pattern.")
        if self.major > 7:
            address = f"{self.hosts[0]}:{int(self.given['G']) + int(self.given['p'])}"
            print(f'* BeeOND setup finished successfully! The management service: --mgmtd-addr "{address}"')


def lines(argv: t.Sequence[str]) -> list[str]:
    """The lines of a control tool's output; none where it fails."""
    try:
        found = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False).stdout
    except OSError as exc:
        print(f"beeond: {argv[0]}: {exc.strerror}", file=sys.stderr)
        return []
    return found.splitlines()


def all_good(rows: t.Sequence[str]) -> bool:
    return all(row.split()[-3:-1] == ["Online", "Good"] or row.split()[:2] == ["Online", "Good"] for row in rows)


def quietly(argv: t.Sequence[str]) -> int:
    return subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode


def main(arguments: t.Sequence[str]) -> int:
    given = read(arguments)
    return Start(given, remote.find_pdsh("P" in given, given.get("b", ""))).run()
