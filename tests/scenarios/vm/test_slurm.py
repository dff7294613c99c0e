# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles promise about Slurm, with Slurm itself: binding, gres.conf, prolog and epilog, draining.

One machine is controller and node. It runs Debian's Slurm with its own units, jobs in cgroups that hold their CPUs and GPUs, and
jobs are an ordinary user's. GPUs are the simulator's; so is the driver, which molecule/nvidia_driver's stand-ins load and unload.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import time
import typing as t

import pytest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._nvidia_driver import settings as driver_settings
from outcome import changed, refused
from own_machine import NODE

USER = "nobody"
STAND_INS = pathlib.Path(__file__).resolve().parents[3] / "molecule/nvidia_driver/files"
SIMULATOR = "python3 -B /opt/gpu_simulator/process.py"
STATE = "/var/lib/gpu-simulator/state.json"
JOB_MHZ = 1095
SLURM_CONF = f"""\
ClusterName=lab
SlurmctldHost={NODE}
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
Prolog=/usr/local/lib/gpu_clocks/slurm-prolog.sh
Epilog=/usr/local/lib/gpu_clocks/slurm-epilog.sh
PrologFlags=Alloc
# Emulation is slow.
MessageTimeout=60
SlurmdTimeout=600
KillWait=5
NodeName={NODE} Sockets=4 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:8
PartitionName=lab Nodes=ALL Default=YES State=UP
"""
CGROUP_CONF = "CgroupPlugin=cgroup/v2\nConstrainCores=yes\nConstrainDevices=yes\n"
# The devices have no driver, but Slurm wants them to be there.
START = f"""
for gpu in 0 1 2 3 4 5 6 7; do [ -e /dev/nvidia$gpu ] || mknod -m 0666 /dev/nvidia$gpu c 195 $gpu; done
head -c 1024 /dev/urandom >/etc/munge/munge.key
chown munge:munge /etc/munge/munge.key && chmod 0400 /etc/munge/munge.key
printf %s {shlex.quote(SLURM_CONF)} >/etc/slurm/slurm.conf
printf %s {shlex.quote(CGROUP_CONF)} >/etc/slurm/cgroup.conf
systemctl daemon-reload
"""
STOP = """
[ ! -e /etc/slurm/slurm.conf ] || scancel --quiet --user=nobody || true
systemctl stop slurmd
systemctl kill --signal=KILL '*slurmstepd.scope'
systemctl stop slurmctld munge
systemctl reset-failed slurmd slurmctld munge 2>/dev/null || true
rm -rf /etc/slurm/*.conf /etc/munge/munge.key /var/lib/slurm/slurmctld/* /var/lib/slurm/slurmd/* /var/log/slurm/*
rm -f /dev/nvidia[0-7] /tmp/job.sh /tmp/slurm-*.out
"""
# What a task may use, by the kernel and by numactl, and which GPUs the cgroup leaves it.
SHOW = r"""
status() { sed -n "s/^$1:\t*//p" /proc/self/status; }
bound=$(numactl --show | sed -n 's/^membind: *\(.*[^ ]\) *$/\1/p' | tr ' ' ,)
policy=$(head -n 1 /proc/self/numa_maps | cut -d' ' -f2)
for gpu in 0 1 2 3 4 5 6 7; do
  case $( (: </dev/nvidia$gpu) 2>&1) in *'not permitted') ;; *) own=${own:+$own,}$gpu ;; esac
done
echo "$SLURM_LOCALID $(status Cpus_allowed_list) $(status Mems_allowed_list) $bound $policy $CUDA_VISIBLE_DEVICES $own"
"""


class Slurm:
    """Slurm on the node, and the plan that gpu_affinity made from the node's facts."""

    def __init__(self, lab: t.Any, plan: dict[str, t.Any]) -> None:
        self.lab, self.plan = lab, plan
        self.numa = [gpu["numa"] for gpu in lab.lab["nodes"][NODE]["gpus"]]

    def root(self, script: str, timeout_s: float = 240) -> str:
        return str(self.lab.shell(NODE, script, timeout_s=timeout_s))

    def user(self, script: str, timeout_s: float = 240) -> str:
        """What a script of the user's prints."""
        return self.root(f"cd /tmp; runuser -u {USER} -- sh -euc {shlex.quote(script)} 2>&1", timeout_s)

    def show(self) -> tuple[set[str], str]:
        """The node's state, and why; a ping that slurmd has yet to answer, as after a restart, is no state of ours."""
        told = self.root(f"scontrol --oneliner show node {NODE}")
        reason = re.search(r"Reason=(.*?) \[", told)
        states = set(t.cast("re.Match[str]", re.search(r" State=(\S+)", told))[1].split("+"))
        return states - {"NOT_RESPONDING"}, reason[1] if reason else ""

    def wait(self, what: t.Callable[[], bool], seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            log = "tail -n 15 /var/log/slurm/slurmctld.log /var/log/slurm/slurmd.log; squeue; sinfo --Node --long"
            assert time.monotonic() < deadline, self.root(log)
            time.sleep(1.5)  # a look takes the node a second of work

    def wait_idle(self) -> None:
        """Until every job has ended, and its epilog."""
        self.wait(lambda: self.show()[0] == {"IDLE"})

    def job(self, *options: str, command: str = "sleep 600") -> str:
        """Start a job, and return its number when it runs."""
        words = shlex.join(["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", command])
        number = self.user(words).split()[-1]
        self.wait(lambda: self.job_state(number) == "RUNNING")
        return number

    def job_state(self, number: str) -> str:
        return self.root(f"squeue --noheader --states=all --format=%T --jobs={number}").strip()


def on_localhost(result: str, target: pathlib.Path) -> dict[str, t.Any]:
    copy = {"content": f"{{{{ {result} | to_json }}}}", "dest": str(target), "mode": "0600"}
    return {"ansible.builtin.copy": copy, "delegate_to": "localhost"}


def role(name: str, tasks_from: str = "main") -> dict[str, t.Any]:
    return {"ansible.builtin.include_role": {"name": f"hpcai.gpu_cluster.{name}", "tasks_from": tasks_from}}


def play(lab: t.Any, *tasks: dict[str, t.Any], **variables: t.Any) -> None:
    done = lab.playbook([{"hosts": NODE, "gather_facts": False, "tasks": list(tasks)}], **variables)
    assert done.rc == 0, done.output


@pytest.fixture(scope="module")
def slurm(vm_lab: t.Any) -> t.Iterator[Slurm]:
    """Slurm on the node with the files of numa_pinning and gpu_clocks; nothing of it is left afterwards."""
    vm_lab.shell(NODE, STOP + START)
    try:
        plan = prepare(vm_lab)
        vm_lab.run(NODE, "systemctl", "start", "munge", "slurmctld", "slurmd")
        one = Slurm(vm_lab, plan)
        one.wait(lambda: "idle" in one.root("sinfo --noheader --format=%t 2>/dev/null || true").split())
        yield one
    finally:
        vm_lab.shell(NODE, STOP)
        play(vm_lab, role("gpu_clocks", "remove"), role("numa_pinning", "remove"))


def prepare(lab: t.Any) -> dict[str, t.Any]:
    """Run the roles whose files Slurm is to use, and return what gpu_affinity makes of the node's facts."""
    target = lab.paths.directory / f"plan-{NODE}.json"
    facts = {"hpcai.gpu_cluster.node_facts": {}}
    plan = {"hpcai.gpu_cluster.gpu_affinity": {}, "register": "plan"}
    variables = {
        "numa_pinning_gres_conf": "/etc/slurm/gres.conf",
        "gpu_clocks_job_policy": "values",
        "gpu_clocks_job_graphics_mhz": JOB_MHZ,
    }
    roles = [role("numa_pinning"), role("gpu_clocks", "install")]
    play(lab, *roles, facts, plan, on_localhost("plan", target), **variables)
    try:
        return t.cast("dict[str, t.Any]", json.loads(target.read_text()))
    finally:
        target.unlink()


def cpus_of(mask: str) -> set[int]:
    return {cpu for cpu in range(64) if int(mask, 16) >> cpu & 1}


def parsed(ranges: str) -> set[int]:
    pairs = [part.partition("-") for part in ranges.split(",")]
    return {cpu for first, _dash, last in pairs for cpu in range(int(first), int(last or first) + 1)}


def tasks_of(printed: str) -> dict[int, list[str]]:
    """The lines that SHOW printed, by local rank."""
    rows = [line.split() for line in printed.splitlines() if re.match(r"\d+ \S+ \S+ \S+ \S+ \S+ \S+$", line)]
    return {int(row[0]): row[1:] for row in rows}


def test_slurm_takes_our_gres_conf(slurm: Slurm) -> None:
    assert slurm.root("cat /etc/slurm/gres.conf").endswith(slurm.plan["gres_conf"])
    told = slurm.root("slurmd -G 2>&1")
    found = re.findall(r"Name=gpu .*Count=2 .*File=/dev/nvidia\[(\d-\d)\] Cores=(\d-\d)", told)
    cores = {0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}
    assert found == [(f"{gpu}-{gpu + 1}", cores[slurm.numa[gpu]]) for gpu in (0, 2, 4, 6)], told
    # All GPUs, on all four sockets.
    assert "Gres=gpu:8(S:0-3)" in slurm.root(f"scontrol show node {NODE}")
    # Slurm's cores are the ones that we mean: CPUs next to the GPUs that it chose, which the cgroup then enforces.
    words = f"srun --quiet --ntasks=2 --gres=gpu:2 --gres-flags=enforce-binding sh -c {shlex.quote(SHOW)}"
    tasks = tasks_of(slurm.user(words))
    assert sorted(tasks) == [0, 1]
    for cpus, _mems, _bound, _policy, _visible, gpus in tasks.values():
        (numa,) = {slurm.numa[int(gpu)] for gpu in gpus.split(",")}
        assert parsed(cpus) <= parsed(cores[numa]), tasks


def test_srun_and_gpu_bind_put_tasks_where_the_plan_says(slurm: Slurm) -> None:
    ranks = slurm.plan["ranks"]
    bind = slurm.plan["srun_cpu_bind"]
    show = f"sh -c {shlex.quote(SHOW)}"
    script = (
        f"srun --quiet --ntasks=8 --cpu-bind={bind} {show}; echo ==\n"
        f"srun --quiet --ntasks=8 --cpu-bind=none gpu-bind {show}; echo ==\n"
        f"srun --quiet --ntasks=8 --cpu-bind=none gpu-bind -s {show}; echo ==\n"
        f"srun --quiet --ntasks=8 --cpu-bind=none --gpus-per-task=1 gpu-bind {show}\n"
    )
    slurm.root(f"printf %s {shlex.quote(script)} >/tmp/job.sh")
    printed = slurm.user("salloc --quiet --exclusive --gres=gpu:8 sh -eu /tmp/job.sh")
    masks, bound, single, own = [tasks_of(part) for part in printed.split("==\n")]
    for tasks in (masks, bound, single, own):
        assert sorted(tasks) == list(range(8)), printed
    for rank in range(8):
        assert parsed(masks[rank][0]) == cpus_of(slurm.plan["cpu_masks"][rank]) == parsed(ranks[rank]["cpus"]), masks
        home = slurm.numa[rank]
        here = [ranks[rank]["cpus"], "0-3", str(home), f"bind:{home}"]
        assert ranks[rank]["cpus"] == f"{2 * home}-{2 * home + 1}"
        assert bound[rank][:5] == [*here, "0,1,2,3,4,5,6,7"], bound
        assert single[rank][:5] == [*here, ",".join(map(str, ranks[rank]["gpus"]))], single
        # Slurm chose its GPU; its cgroup shows the task no other.
        home = slurm.numa[int(own[rank][5])]
        assert own[rank][:5] == [f"{2 * home}-{2 * home + 1}", "0-3", str(home), f"bind:{home}", "0"], own
    assert sorted(task[5] for task in own.values()) == [str(gpu) for gpu in range(8)]
    slurm.wait_idle()


def test_the_checker_looks_at_a_job_of_slurm(slurm: Slurm) -> None:
    wrong = slurm.plan["cpu_masks"][:]
    wrong[0], wrong[2] = wrong[2], wrong[0]
    check = (
        'while [ "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | wc -l)" != 8 ]; do sleep 0.5; done\n'
        'gpu-bind-check --json --memory --strict && rc=0 || rc=$?; echo "rc $rc"\n'
    )
    using = f"sh -c 'exec {SIMULATOR} --gpu $SLURM_LOCALID -- sleep 600'"
    whole = ("--exclusive", "--gres=gpu:8", "--ntasks=8")
    job = slurm.job(*whole, command=f"srun --cpu-bind=none gpu-bind -s {SIMULATOR} -- sleep 600")
    report, rc = slurm.root(check).split("rc ")
    slurm.root(f"scancel {job}")
    slurm.wait_idle()
    right = json.loads(report)
    assert (rc.strip(), right["verdict"], right["findings"], len(right["processes"])) == ("0", "ok", [], 8), right
    for process in right["processes"]:
        assert process["memory_policy"] == f"bind:{process['numa'][0]}"

    job = slurm.job(*whole, command=f"srun --cpu-bind=mask_cpu:{','.join(wrong)} {using}")
    report, rc = slurm.root(check).split("rc ")
    slurm.root(f"scancel {job}")
    slurm.wait_idle()
    found = json.loads(report)
    assert rc.strip() == "1"
    faults = {(item["kind"], item["gpu"]) for item in found["findings"] if item["verdict"] == "fail"}
    assert faults == {("wrong_cpus", 0), ("wrong_cpus", 2)}, found["findings"]


def clocks(slurm: Slurm) -> dict[int, int]:
    told = slurm.root("nvidia-smi --query-gpu=index,clocks.gr --format=csv,noheader,nounits")
    return {int(index): int(mhz) for index, mhz in (line.split(", ") for line in told.splitlines())}


def test_prolog_and_epilog_set_clocks_and_give_them_back(slurm: Slurm) -> None:
    slurm.wait_idle()
    before, idle = slurm.root(f"cat {STATE}"), clocks(slurm)
    assert JOB_MHZ not in idle.values()
    job = slurm.job("--gres=gpu:2")
    # Slurm calls it running while the prolog is still at work.
    slurm.wait(lambda: JOB_MHZ in clocks(slurm).values())
    first = {gpu for gpu, mhz in clocks(slurm).items() if mhz == JOB_MHZ}
    shown = slurm.root(f"scontrol --details show job {job}")
    given = t.cast("re.Match[str]", re.search(r"GRES=gpu:2\(IDX:([\d,-]+)\)", shown))[1]
    assert first == parsed(given), shown
    # Another job's GPUs, from its own point of view; the first one keeps its clocks when this one ends.
    query = "echo $SLURM_STEP_GPUS; nvidia-smi --query-gpu=clocks.gr --format=csv,noheader,nounits"
    gpus, *mhz = slurm.user(f"srun --quiet --gres=gpu:2 sh -c {shlex.quote(query)}").split()
    assert {gpu for gpu in range(8) if int(mhz[gpu]) == JOB_MHZ} == first | parsed(gpus)
    assert not first & parsed(gpus)
    slurm.wait(lambda: {gpu for gpu, now in clocks(slurm).items() if now == JOB_MHZ} == first)
    slurm.root(f"scancel {job}")
    slurm.wait_idle()
    assert clocks(slurm) == idle
    assert json.loads(slurm.root(f"cat {STATE}")) == json.loads(before)
    # With the policy job verify asks this Slurm for both scripts, and only then the GPUs, which are not set here.
    scripts = {name: f"/usr/local/lib/gpu_clocks/slurm-{name}.sh" for name in ("prolog", "epilog")}
    asked = slurm.lab.module("hpcai.gpu_cluster.gpu_clocks", {"state": "verified", "slurm_conf": "/nowhere", **scripts})
    refused(asked, "not_applied")


def test_a_prolog_in_trouble_keeps_no_job_from_running(slurm: Slurm) -> None:
    slurm.wait_idle()
    slurm.root("python3 -B /opt/gpu_simulator/fault.py --exit 15")
    try:
        assert slurm.user("srun --quiet --gres=gpu:1 echo it runs").split() == ["it", "runs"]
        slurm.wait_idle()
    finally:
        slurm.root("python3 -B /opt/gpu_simulator/fault.py")
    told = slurm.root("journalctl --boot --identifier=gpu-clocks --output=cat --no-pager")
    assert re.search(r"^begin of job \d+: gpu-clocks: ", told, re.MULTILINE), told


# -- draining ----------------------------------------------------------------------------------------------------------

PARAMETERS = "/proc/driver/nvidia/params"
RUNFILE = "NVIDIA-Linux-x86_64-580.95.05.run"
OURS = "hpcai.gpu_cluster.nvidia_driver"


def driver_options() -> dict[str, t.Any]:
    """A driver by NVIDIA's installer, so that no package is unpacked under emulation."""
    return {
        "source": "runfile",
        "version": "580.95.05",
        "runfile": f"/opt/{RUNFILE}",
        "runfile_sha256": hashlib.sha256((STAND_INS / RUNFILE).read_bytes()).hexdigest(),
        "kernel_headers": False,
        # NVIDIA's installer is a stand-in, and brings no library of CUDA.
        "cuda_library": "",
        "allow_unload": True,
        "drain": True,
    }


def driver_variables() -> dict[str, t.Any]:
    """The same as the role's variables."""
    return {f"nvidia_driver_{name}": value for name, value in driver_options().items()}


@pytest.fixture(scope="module")
def driver(slurm: Slurm) -> t.Iterator[Slurm]:
    """The node with a driver that runs, and that it can be told to unload."""
    slurm.wait_idle()
    slurm.root(f"cp {STATE} {STATE}.before")
    places = {
        "kernel.py": "/usr/local/sbin/modprobe",
        "hardware.py": "/usr/local/sbin/lab-hardware",
        RUNFILE: f"/opt/{RUNFILE}",
    }
    content = "{{ lookup('ansible.builtin.file', stand_ins ~ '/%s', rstrip=false) }}"
    files = [{"path": path, "content": content % name, "mode": "0755"} for name, path in places.items()]
    # What the role would write, so that it has no reason to make the initramfs anew, which takes long under emulation.
    options = driver_settings.modprobe_text({"NVreg_RestrictProfilingToAdminUsers": "1"})
    files.append({"path": driver_settings.MODPROBE, "content": options, "mode": "0644"})
    links = [{"path": "/usr/local/sbin/modinfo", "target": "modprobe"}]
    stand_ins = {"hpcai.gpu_cluster.node_state": {"files": files, "links": links}}
    devices = {"ansible.builtin.command": {"argv": ["python3", "/usr/local/sbin/lab-hardware", *["0x20b0"] * 8]}}
    try:
        play(slurm.lab, stand_ins, devices, role("nvidia_driver"), stand_ins=str(STAND_INS), **driver_variables())
        yield slurm
    finally:
        slurm.root(
            f"scancel --quiet --user={USER} || true; [ ! -e /usr/bin/nvidia-uninstall ] || nvidia-uninstall --silent\n"
            "[ ! -e /usr/local/sbin/lab-hardware ] || python3 /usr/local/sbin/lab-hardware --remove\n"
            "rm -f /usr/local/sbin/modprobe /usr/local/sbin/modinfo /usr/local/sbin/lab-hardware\n"
            f"rm -rf /opt/{RUNFILE} {driver_settings.MODPROBE} /etc/systemd/system/nvidia-persistenced.service.d\n"
            f"mv {STATE}.before {STATE}\n"
        )


def load_with_other_options(slurm: Slurm) -> None:
    """The module that runs does not fit what the role wants: the smallest reason to unload it."""
    slurm.root(f"echo 'RmProfilingAdminOnly: 0' >{PARAMETERS}")


def reloaded(slurm: Slurm) -> bool:
    return slurm.root(f"cat {PARAMETERS}").split()[-1] == "1"


def run_driver(slurm: Slurm, **options: t.Any) -> dict[str, t.Any]:
    """Call the module as the role does."""
    return t.cast(
        "dict[str, t.Any]", slurm.lab.module("hpcai.gpu_cluster.nvidia_driver", {**driver_options(), **options})
    )


def test_the_driver_waits_for_jobs_and_gives_the_node_back(driver: Slurm) -> None:
    load_with_other_options(driver)
    job = driver.job()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(driver.lab.role, "nvidia_driver", "main", "-v", limit=NODE, **driver_variables())
        driver.wait(lambda: "DRAIN" in driver.show()[0] or run.done())
        assert driver.show() == ({"MIXED", "DRAIN"}, OURS)
        # It keeps on waiting when the controller restarts.
        driver.root("systemctl stop slurmctld; sleep 6; systemctl start slurmctld")
        driver.wait(lambda: "UP" in driver.root("scontrol ping || true"))
        assert (driver.job_state(job), reloaded(driver), run.done()) == ("RUNNING", False, False)
        driver.root(f"scancel {job}")
        done = run.result()
    assert done.rc == 0, done.output
    assert "what: drain" in done.output
    assert "what: resume" in done.output
    assert reloaded(driver)
    assert driver.show() == ({"IDLE"}, "")
    # Nothing is pending now: a job does not matter, and the node is left alone.
    job = driver.job()
    assert not changed(run_driver(driver, drain_timeout_s=0))
    assert (driver.job_state(job), driver.show()) == ("RUNNING", ({"MIXED"}, ""))
    driver.root(f"scancel {job}")
    driver.wait_idle()


def test_a_job_that_does_not_end_is_not_killed(driver: Slurm) -> None:
    load_with_other_options(driver)
    job = driver.job()
    refused(run_driver(driver, drain_timeout_s=1), "drain_timeout")
    assert (driver.job_state(job), reloaded(driver)) == ("RUNNING", False)
    # As the message says: the node stays drained, so that the next run finds it empty.
    assert driver.show() == ({"MIXED", "DRAIN"}, OURS)
    driver.root(f"scancel {job}")
    assert changed(run_driver(driver))
    assert (reloaded(driver), driver.show()) == (True, ({"IDLE"}, ""))


def test_a_node_that_somebody_else_drained_stays_drained(driver: Slurm) -> None:
    load_with_other_options(driver)
    driver.root(f"scontrol update NodeName={NODE} State=DRAIN Reason='broken fan'")
    try:
        assert changed(run_driver(driver))
        assert (reloaded(driver), driver.show()) == (True, ({"IDLE", "DRAIN"}, "broken fan"))
    finally:
        driver.root(f"scontrol update NodeName={NODE} State=RESUME")
