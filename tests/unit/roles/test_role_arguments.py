# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments are judged as Ansible judges them when the role starts; only a fact that is not known yet makes no error."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.module_utils.common.parameters import remove_values
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_arguments import Verdict, secrets_of, validate
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import ROLES, role_files
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_limits import phases_of
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._survey_texts import is_unset, meant
from role_validation import HOST, by_ansible, known, spec_of


def different_entries() -> t.Iterator[tuple[str, str]]:
    """Entry points with options that no other one of their role has, neither as we nor as Ansible reads them.

    Most entry points of a role have the same: verdicts depend on nothing else of an entry point.
    """
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        role, kinds = path.parent.parent.name, []
        for entry, options in role_files(path.parents[1]).options.items():
            kind = (list(options.items()), list(spec_of(role, entry).items()))
            if kind not in kinds:
                kinds.append(kind)
                yield role, entry


ENTRIES = list(different_entries())
SOURCES = [{"url": "https://account.blob.core.windows.net/data", "sas": "sv=1&sig=hidden"}]
STAGED = {"dataset_staging_sources": SOURCES, "dataset_staging_destination": "/data"}
VALUES = [
    *(
        "",
        "text",
        "7",
        "true",
        "a,b",
        "2.5",
        7,
        -1,
        0,
        2.5,
        True,
        None,
        [],
        ["a"],
        [1, "b"],
        {},
        {"a": 1},
        [{"a": {"b": 1}}],
    ),
    *({"url": "https://a/b", "sas": "sig=hidden"}, SOURCES, [{"url": ["x"]}], [[1]], "{broken"),
    *(
        trust_as_template("{{ lost | default(omit) }}"),
        trust_as_template("{{ ansible_play_hosts }}"),
        trust_as_template("{{ 7 }}"),
        trust_as_template("{{ inventory_hostname }}-x"),
    ),
]


def judged(role: str, entry: str = "main", **host: t.Any) -> Verdict:
    templar = Templar(loader=DataLoader(), variables=known(role, **host))
    return validate(role_files(ROLES / role).options[entry], templar)


PHASES = ("install", "configure", "verify")


def limited(role: str, *, phases: t.Sequence[str] = ("verify",), **host: t.Any) -> Verdict:
    """As playbooks do: by the role's limits, too."""
    files = role_files(ROLES / role)
    variables = Templar(DataLoader(), known(role, **host))
    return validate(files.options["main"], variables, limits=files.limits, phases=phases)


@pytest.mark.parametrize(("role", "entry"), ENTRIES)
def test_every_spec_is_applied_as_ansible_applies_it(role: str, entry: str) -> None:
    """Every option has every value once, beside others with other values. A text for a list is what it stands for."""
    options = role_files(ROLES / role).options[entry]
    chosen = [[*VALUES, *(option.get("choices") or [])] for option in options.values()]
    wrong = right = 0
    for turn in range(max(map(len, chosen), default=0)):
        host = {name: values[(turn + place) % len(values)] for place, (name, values) in enumerate(zip(options, chosen))}
        variables = known(role, **host)
        values = Templar(loader=DataLoader(), variables=variables).template(host)
        broken: dict[str, str] = {}
        for name, value in values.items():
            try:
                values[name] = meant(options[name], value)
            except ValueError as exc:
                broken[name] = f"{name} {exc}"
        # Ansible by itself knows no number that a survey left empty.
        unset = {name for name, value in values.items() if is_unset(options[name], value)}
        expected = by_ansible(role, entry, {**variables, **values}, whole=True, without={*broken, *unset})
        verdict = judged(role, entry, **host)
        if expected is None:
            assert any("must be of type dict" in error for error in verdict.errors), host
            continue
        secrets = {text for name, option in options.items() for text in secrets_of(option, values.get(name))}
        messages = [*broken.values(), *(remove_values(message, secrets) for message in expected)]
        assert verdict == Verdict(messages, {}), host
        wrong, right = wrong + len(messages), right + len(options) - len(messages)
    assert (wrong > 0 and right > 0) or not options


@pytest.mark.parametrize(("role", "entry"), ENTRIES)
def test_defaults_are_valid_where_nothing_is_known_about_the_node(role: str, entry: str) -> None:
    required = STAGED if role == "dataset_staging" else {}
    assert judged(role, entry, **required) == Verdict([], {})
    assert by_ansible(role, entry, known(role, **required)) == []


@pytest.mark.parametrize(
    ("role", "host", "expected"),
    [
        ("dataset_staging", {**STAGED, "dataset_staging_processes": "many"}, "'dataset_staging_processes' is of type"),
        ("mofed", {"mofed_source": "cd"}, "value of mofed_source must be one of"),
        (
            "dataset_staging",
            {"dataset_staging_sources": SOURCES},
            "missing required arguments: dataset_staging_destination",
        ),
        (
            "dataset_staging",
            {**STAGED, "dataset_staging_sources": [{"url": "a", "key": "b"}]},
            "dataset_staging_sources.key",
        ),
        # Through a default that refers to it, and by itself.
        (
            "dataset_staging",
            {**STAGED, "dataset_staging_azcopy_version": trust_as_template("{{ lost }}")},
            "'lost' is undefined",
        ),
    ],
)
def test_an_error_names_the_variable_and_what_was_expected(role: str, host: dict[str, t.Any], expected: str) -> None:
    verdict = judged(role, **host)
    assert expected in "\n".join(verdict.errors)
    assert verdict.later == {}


def test_a_misspelled_switch_is_refused() -> None:
    """The filter `bool` would take it for false."""
    for switch in ("numa_pinning_enroot", "container_runtime_enroot"):
        assert "value of numa_pinning_enroot must be one of" in judged("numa_pinning", **{switch: "ture"}).errors[0]
        for right in (True, False, "true", "no", 1, 0):
            assert judged("numa_pinning", **{switch: right}) == Verdict([], {})


@pytest.mark.parametrize("destination", [7, True, 2.5])
def test_what_ansible_fails_over_is_named_beside_the_other_errors(destination: t.Any) -> None:
    host = {**STAGED, "dataset_staging_upload_destination": destination, "dataset_staging_processes": "many"}
    assert by_ansible("dataset_staging", "main", known("dataset_staging", **host)) is None
    first, second = sorted(judged("dataset_staging", **host).errors)
    assert "'dataset_staging_processes' is of type" in first
    assert second == "dataset_staging_upload_destination must be of type dict"


@pytest.mark.parametrize("value", ["8", 8, trust_as_template("{{ 2 * 4 }}"), trust_as_template("{{ '8' }}")])
def test_texts_are_what_they_say(value: t.Any) -> None:
    assert judged("dataset_staging", **STAGED, dataset_staging_processes=value) == Verdict([], {})


OPTIONS = {"role_number": {"type": "int", "required": True}, "role_other": {"type": "int"}}


def of(number: str, *, injected: bool = True, **others: t.Any) -> Verdict:
    variables = {**HOST, "role_number": trust_as_template(number), **others}
    return validate(OPTIONS, Templar(loader=DataLoader(), variables=variables), injected=injected)


@pytest.mark.parametrize(
    ("template", "fact"),
    [
        ("{{ ansible_facts['gpu_node']['gpus'] | length }}", "gpu_node"),
        ("{{ ansible_facts.gpu_node.count }}", "gpu_node"),
        ("{{ unset | default(ansible_facts.gpu_node.count) }}", "gpu_node"),
        ("{{ inner }}", "gpu_node"),
        ("{% for gpu in ansible_facts['gpu_node'] %}1{% endfor %}", "gpu_node"),
        # Facts as Ansible also gives them, by names of their own.
        ("{{ gpu_node.gpus | length }}", "gpu_node"),
        ("{{ node_profile['gpu_count'] }}", "node_profile"),
        ("{{ ansible_default_ipv4.mtu }}", "ansible_default_ipv4"),
        ("{{ ansible_ssh_host_key_rsa_public | length }}", "ansible_ssh_host_key_rsa_public"),
        ("{{ ansible_hostname | length }}", "ansible_hostname"),
        # A misspelled name may be a fact, too: that of an interface. It is told.
        ("{{ ansible_hots }}", "ansible_hots"),
        # Those of another node.
        ("{{ hostvars['gpu-2'].gpu_node.nvme | length }}", "gpu_node"),
        ("{{ hostvars['gpu-2']['ansible_facts'].gpu_node.nvme | length }}", "gpu_node"),
    ],
)
def test_a_value_that_lacks_a_fact_is_left_for_later(template: str, fact: str) -> None:
    known_too = {
        "inner": trust_as_template("{{ ansible_facts['gpu_node']['count'] }}"),
        "hostvars": {"gpu-2": {"ansible_facts": {}}},
    }
    assert of(template, **known_too) == Verdict([], {"role_number": fact})
    # Others are validated all the same.
    verdict = of(template, **known_too, role_other="many")
    assert (len(verdict.errors), verdict.later) == (1, {"role_number": fact})


@pytest.mark.parametrize(
    "template",
    [
        "{{ typo }}",
        "{{ typo + ansible_facts['gpu_node'] }}",
        "{{ inner }}",
        "{{ ansible_fact['gpu_node'] }}",
        "{{ 1 + }}",
        # How Ansible connects is not learned from the node.
        *(f"{{{{ ansible_{name} }}}}" for name in ("user", "host", "port", "connection", "password")),
        *(f"{{{{ ansible_{name} }}}}" for name in ("ssh_pass", "ssh_private_key_file", "become", "become_password")),
        "{{ hostvars['gpu-2'].typo }}",
        "{{ hostvars['gpu-2'].ansible_host }}",
    ],
)
def test_a_variable_that_does_not_exist_is_refused(template: str) -> None:
    verdict = of(template, inner=trust_as_template("{{ typo }}"), hostvars={"gpu-2": {}})
    assert [error.partition(":")[0] for error in verdict.errors] == ["role_number has no value"]
    assert verdict.later == {}


@pytest.mark.parametrize(
    ("template", "later"),
    [
        ("{{ ansible_hots }}", False),
        ("{{ ansible_default_ipv4.mtu }}", False),
        ("{{ hostvars['gpu-2'].ansible_default_ipv4.mtu }}", False),
        ("{{ ansible_facts.default_ipv4.mtu }}", True),
        ("{{ hostvars['gpu-2'].ansible_facts.default_ipv4.mtu }}", True),
        # Known in the tasks of a role, and here not.
        ("{{ ansible_role_name | length }}", True),
        ("{{ ansible_loop.index }}", True),
    ],
)
def test_where_facts_have_no_names_of_their_own_none_is_waited_for(template: str, later: bool) -> None:
    """Ansible is told so by ``inject_facts_as_vars``, as in this repository."""
    verdict = of(template, injected=False, hostvars={"gpu-2": {"ansible_facts": {}}})
    assert ("role_number" in verdict.later, len(verdict.errors)) == (later, not later)


def test_an_omitted_value_is_not_set() -> None:
    variables = {**HOST, "omitted": trust_as_template("{{ omit }}"), "role_number": trust_as_template("{{ omitted }}")}
    verdict = validate(OPTIONS, Templar(loader=DataLoader(), variables=variables))
    assert verdict == Verdict(["missing required arguments: role_number"], {})
    assert of("{{ 7 }}", role_other=trust_as_template("{{ lost | default(omit) }}")) == Verdict([], {})


def test_a_known_fact_is_validated() -> None:
    verdict = of("{{ ansible_facts['gpu_node'] }}", ansible_facts={"gpu_node": "many"})
    assert "'role_number' is of type" in verdict.errors[0]
    assert of("{{ ansible_facts['gpu_node'] }}", ansible_facts={"gpu_node": 8}) == Verdict([], {})


@pytest.mark.parametrize(
    "sources",
    [
        [{"url": "https://a/b", "sas": ["sig=hidden"], "a": 1}],
        [{"url": "https://a/b", "sas": {"a": "sig=hidden"}, "a": 1}],
        [{"url": "https://a/b", "token": "sig=hidden"}],
        [{"url": ["https://a/b"], "sas": "sig=hidden", "token": "a"}],
        ["https://a/b?sig=hidden"],
        [["sig=hidden"]],
        {"url": "https://a/b", "sas": "sig=hidden", "hidden": 1},
        {"url": "https://a/b", "sas_token": "sig=hidden"},
        trust_as_template("{{ 'sig=hidden' | nofilter }}"),
        trust_as_template("{{ lost['sig=hidden'] }}"),
    ],
)
def test_no_message_shows_a_secret(sources: t.Any) -> None:
    verdict = judged("dataset_staging", **{**STAGED, "dataset_staging_sources": sources})
    assert verdict.errors
    assert "sig=hidden" not in str(verdict)


@pytest.mark.parametrize(
    "tail", ["?sv=1&sig=hidden", "#sv=1&sig=hidden", "/sv=1&sig=hidden", "/%3Fsv%3D1%26sig%3Dhidden"]
)
def test_a_sas_in_a_url_is_refused_before_any_role_starts(tail: str) -> None:
    sources = [SOURCES[0], {"url": f"https://account.blob.core.windows.net/c{tail}"}]
    for host in (
        {**STAGED, "dataset_staging_sources": sources},
        {**STAGED, "dataset_staging_upload_destination": sources[1]},
    ):
        [error] = judged("dataset_staging", **host).errors
        assert error.startswith("dataset_staging_")
        assert "give the SAS beside it as `sas`" in error
        assert "hidden" not in error


@pytest.mark.parametrize(
    ("option", "wrong", "right"),
    [
        ("batch_s", [0, -1, "0", "-2.5", "nan", "inf", trust_as_template("{{ 0 * 1 }}")], [0.5, "60"]),
        ("processes", [0, -8, "0"], [1, "8"]),
        ("checkpoint_processes", [0], [1]),
        ("max_rounds", [0, -1], [1]),
        *((name, [-1, "-1"], [0, 4]) for name in ("concurrency", "threads", "nic_mbps", "egress_mbps", "ingress_mbps")),
        *((name, [0, -1], [30]) for name in ("claim_expiry_s", "stall_timeout_s", "timeout_s")),
        ("destination", ["", "data", "./data", "../data"], ["/data", "~/data", "$SCRATCH/data"]),
        *((name, ["data", "./data"], ["", "/data"]) for name in ("mount_point", "landing_path", "upload_source")),
        *((name, ["", "data"], ["/data"]) for name in ("log_path", "azcopy_path")),
        # What YAML makes of 0640 without quotes, first.
        *((name, [416, "640", "u=rw", "0999", "00640"], ["", "0640"]) for name in ("mode", "directory_mode")),
    ],
)
def test_a_value_outside_its_limit_is_refused_by_its_name(option: str, wrong: list[t.Any], right: list[t.Any]) -> None:
    name = f"dataset_staging_{option}"
    for value in wrong:
        [error] = limited("dataset_staging", **{**STAGED, name: value}).errors
        assert error.startswith(f"{name} is "), error
        assert "it has to be " in error
    for value in right:
        assert limited("dataset_staging", **{**STAGED, name: value}) == Verdict([], {})


@pytest.mark.parametrize(
    ("place", "fragment"),
    [
        ({"url": "ftp://account.blob.core.windows.net/data"}, "is not the URL of a blob container"),
        ({"url": "https://account.blob.core.windows.net/"}, "has no valid container name"),
        ({"url": "https://account.blob.core.windows.net/data/train/"}, "and `train` as `prefix`"),
        ({"url": "https://account.blob.core.windows.net:99999/data"}, "is no URL: Port out of range"),
        ({"url": "https://account.blob.core.windows.net/data", "sas": "sv=1&sg=hidden-too"}, "it has no `sig` field"),
        ({"url": "https://account.blob.core.windows.net/data", "sas": "sv=1&sig=hidden\u200b"}, "are invisible"),
        (
            {"url": "https://account.blob.core.windows.net/data", "include": ["*.rec", "part-[0-"]},
            "The glob 'part-[0-' ",
        ),
        ({"url": "https://account.blob.core.windows.net/data", "exclude": ["{a"]}, "does not close a brace"),
    ],
)
def test_a_source_that_cannot_work_is_refused_before_any_role_starts(place: dict[str, t.Any], fragment: str) -> None:
    [error] = limited("dataset_staging", **{**STAGED, "dataset_staging_sources": [*SOURCES, place]}).errors
    assert error.startswith("dataset_staging_sources: ")
    assert fragment in error
    assert "hidden" not in error


def test_a_value_of_a_wrong_type_is_refused_once() -> None:
    [error] = limited("dataset_staging", **STAGED, dataset_staging_processes="many").errors
    assert "'dataset_staging_processes' is of type" in error


@pytest.mark.parametrize(
    ("destination", "mount_point", "wanted"),
    [
        ("/", "", "a directory below /"),
        ("//", "/", "a directory below /"),
        ("/mnt/..", "", "a directory below /"),
        (
            "/mnt",
            "/mnt/scratch",
            "/mnt/scratch or a directory below that, because dataset_staging_mount_point names it",
        ),
        ("/mnt/scratch2/data", "/mnt/scratch/", "/mnt/scratch or a directory below that"),
        ("/mnt/scratch/data", "/mnt/scratch", ""),
        ("/mnt/scratch", "/mnt/scratch", ""),
        ("/data", "", ""),
        ("~/data", "/mnt/scratch", ""),
    ],
)
def test_a_destination_that_cannot_be_meant_is_refused(destination: str, mount_point: str, wanted: str) -> None:
    given = {"dataset_staging_destination": destination, "dataset_staging_mount_point": mount_point}
    errors = limited("dataset_staging", **{**STAGED, **given}).errors
    assert [f"it has to be {wanted}" in error for error in errors] == [True] * bool(wanted), errors


@pytest.mark.parametrize("role", sorted({role for role, _entry in ENTRIES}))
def test_limits_are_of_numbers_and_paths_that_the_role_has_and_its_defaults_keep_them(role: str) -> None:
    files = role_files(ROLES / role)
    kinds = {
        kind: types
        for kinds, types in (
            (("least", "most", "above", "not_above"), ("int", "float")),
            (("absolute", "not_root", "below", "or"), ("path", "str")),
            (("octal", "matches", "meant", "required"), ("str",)),
            (("filled", "profiles"), ("list",)),
            (("places",), ("list", "dict")),
            (("switch",), ("raw",)),
            (("entry",), ("dict",)),
            (("form",), ("list", "dict", "str")),
        )
        for kind in kinds
    }
    options = {name: option for options in files.options.values() for name, option in options.items()}
    for name, limit in files.limits.items():
        for kind in {*limit} - {"where", "phases"} - ({"matches", "meant", "required"} if "entry" in limit else set()):
            assert options[name]["type"] in kinds[kind], (name, kind)
        assert ("matches" in limit) == ("meant" in limit)
        for kind in ("below", "not_above", "profiles"):
            assert limit.get(kind, name) in options
        for other, choices in limit.get("where", {}).items():
            assert set(choices) < set(options[other]["choices"])
        assert set(limit.get("phases", PHASES)) <= set(PHASES)
    if "main" in files.options:
        assert limited(role, **(STAGED if role == "dataset_staging" else {})) == Verdict([], {})


@pytest.mark.parametrize("role", sorted({role for role, _entry in ENTRIES}))
def test_every_time_has_a_limit(role: str) -> None:
    files = role_files(ROLES / role)
    times = {name for options in files.options.values() for name in options if name.endswith("_s")}
    assert times <= set(files.limits)


def test_every_number_of_staging_has_a_limit() -> None:
    files = role_files(ROLES / "dataset_staging")
    numbers = {name for name, option in files.options["main"].items() if option["type"] in ("int", "float")}
    assert numbers <= set(files.limits)


@pytest.mark.parametrize("given", [SOURCES, SOURCES[0]])
def test_a_list_in_json_is_the_list_that_a_survey_means(given: t.Any) -> None:
    assert judged("dataset_staging", **{**STAGED, "dataset_staging_sources": json.dumps(given, indent=1)}) == Verdict(
        [], {}
    )
    wrong = json.dumps([{"url": "https://a/b", "key": "sig=hidden"}, *SOURCES])
    [error] = judged("dataset_staging", **{**STAGED, "dataset_staging_sources": wrong}).errors
    assert "dataset_staging_sources.key" in error
    assert "hidden" not in error


def test_json_that_is_broken_is_refused_without_a_secret() -> None:
    broken = json.dumps(SOURCES)[:-1]
    verdict = judged("dataset_staging", **{**STAGED, "dataset_staging_sources": broken})
    [error] = verdict.errors
    assert error.startswith("dataset_staging_sources is a text that begins as JSON does and is none (")
    assert "hidden" not in error


@pytest.mark.parametrize("name", ["dataset_staging_upload_destination", "dataset_staging_sources"])
def test_a_sas_in_the_url_of_a_text_is_refused(name: str) -> None:
    [error] = judged("dataset_staging", **{**STAGED, name: json.dumps({"url": "https://a/b?sv=1&sig=hidden"})}).errors
    assert error.startswith(f"{name}: ")
    assert "hidden" not in error


SUM = "0a" * 32
KEY = "2.25.1-ubuntu24.04-cuda13-x86_64"
PLACEHOLDER = "…sha256sum of AzCopy's release archive, from a copy that you trust…"
_PATHS = (["data", "./data"], ["/data"])
_SECONDS = ([0, -1, "0", "-3"], [1, "30"])
_COUNTS = ([-1, "-1"], [0, "4"])


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("cluster_ssh_hosts", [[], "", "[]"], [["a"], "a,b"]),
        ("cluster_ssh_port", [0, -22, 65536, "70000"], [22, "2222"]),
        ("hpcx_mpi_hosts", [[]], [["a"]]),
        ("hpcx_mpi_verify_ranks_per_node", [0, -1], [1, "8"]),
        ("nvme_raid_transports", [[], ""], [["nvme"], "scsi,virtio"]),
        ("nvme_raid_uuid", ["nope", "0a0a"], ["", SUM[:32], "0a0a0a0a:0a0a0a0a:0a0a0a0a:0a0a0a0a"]),
        # What YAML makes of 0755 without quotes, first.
        ("nvme_raid_mode", [493, "u=rwx", ""], ["0755", "755", "01777", 1777]),
        ("glusterfs_mode", [493, "755"], ["0755", "01777"]),
        ("glusterfs_nodes", [[]], [["a"]]),
        ("glusterfs_replica", [0], [2, "2"]),
        ("nvme_raid_name", ["a b", "-a", "x" * 32], ["scratch2"]),
        ("nvme_raid_chunk_kib", [0, -512, "2"], [512, "64"]),
        ("nvme_raid_mount_point", ["/", "mnt", "/mnt/.."], ["/mnt/scratch"]),
        ("numa_pinning_nccl_topology", ["topology.xml"], ["auto", "", "/etc/nccl.xml"]),
        ("gpu_clocks_required", ["perhaps", "ture", 2, []], [True, False, "yes", "No", "1", 0, "TRUE"]),
        ("mofed_verify_tcp_port", [0, 65536], ["18515"]),
        *((f"{name}_python", ["python3", "/a b"], ["", "/usr/bin/python3"]) for name in ("nvme_raid", "gpu_clocks")),
        *((name, *_PATHS) for name in ("hpcx_mpi_prefix", "hpcx_mpi_modulefiles", "glusterfs_storage_path")),
        *((f"numa_pinning_{name}", *_PATHS) for name in ("bin_dir", "map", "gres_conf", "enroot_mounts")),
        *((f"container_runtime_{name}", *_PATHS) for name in ("docker_data_root", "enroot_directory", "scratch")),
        *((f"container_runtime_{name}", [], [""]) for name in ("docker_data_root", "enroot_directory", "scratch")),
        *((f"gpu_clocks_{name}", *_SECONDS) for name in ("timeout_s", "boot_timeout_s", "job_timeout_s")),
        *((f"mofed_{name}", *_SECONDS) for name in ("timeout_s", "reboot_timeout_s", "verify_timeout_s")),
        *((name, *_SECONDS) for name in ("cluster_ssh_timeout_s", "hpcx_mpi_verify_timeout_s", "glusterfs_timeout_s")),
        *((f"nvidia_driver_{name}", *_SECONDS) for name in ("timeout_s", "nvidia_smi_timeout_s", "reboot_timeout_s")),
        *((name, *_COUNTS) for name in ("nvidia_driver_expect_gpus", "gpu_clocks_graphics_mhz", "nvme_raid_min_mib")),
        *((f"numa_pinning_{name}", *_COUNTS) for name in ("ranks_per_node", "gpus_per_rank", "threads_per_rank")),
    ],
)
def test_a_value_of_hardware_outside_its_limit_is_refused_by_its_name(
    name: str, wrong: list[t.Any], right: list[t.Any]
) -> None:
    [role] = [path.name for path in ROLES.iterdir() if name.startswith(f"{path.name}_")]
    for value in wrong:
        [error] = limited(role, **{name: value}).errors
        assert error.startswith(f"{name} is "), error
        assert "it has to " in error
    for value in right:
        assert limited(role, **{name: value}) == Verdict([], {}), value


@pytest.mark.parametrize(
    ("wait_s", "timeout_s", "min_mib", "max_mib", "wrong"),
    [
        (60, 600, 0, 0, []),
        (60, 60, 5, 5, []),
        ("700", "800", "5", 0, []),
        (601, "600", 9, "8", ["nvme_raid_min_mib", "nvme_raid_wait_s"]),
        (-1, 0, 0, 0, ["nvme_raid_wait_s", "nvme_raid_timeout_s"]),
    ],
)
def test_a_least_value_is_not_above_the_greatest(
    wait_s: t.Any, timeout_s: t.Any, min_mib: t.Any, max_mib: t.Any, wrong: list[str]
) -> None:
    times = {"nvme_raid_wait_s": wait_s, "nvme_raid_timeout_s": timeout_s}
    errors = limited("nvme_raid", **times, nvme_raid_min_mib=min_mib, nvme_raid_max_mib=max_mib).errors
    assert [error.partition(" ")[0] for error in errors] == wrong


@pytest.mark.parametrize(
    ("role", "host", "expected"),
    [
        ("hpcx_mpi", {}, f"hpcx_mpi_sha256 has no entry {KEY}: it has to be 64 hexadecimal digits"),
        ("hpcx_mpi", {"hpcx_mpi_sha256": {KEY: "…"}}, f"hpcx_mpi_sha256: {KEY} is …: it has to be 64"),
        ("hpcx_mpi", {"hpcx_mpi_version": "2", "hpcx_mpi_sha256": {KEY: SUM}}, "hpcx_mpi_sha256 has no entry 2-ubuntu"),
        ("dataset_staging", STAGED, "dataset_staging_azcopy_sha256 is empty: it has to be 64 hexadecimal digits"),
        (
            "dataset_staging",
            {**STAGED, "dataset_staging_azcopy_sha256": PLACEHOLDER},
            "_azcopy_sha256 is …sha256sum of",
        ),
        ("nvidia_driver", {}, "nvidia_driver_version is empty: it has to be the driver's whole version"),
        (
            "nvidia_driver",
            {"nvidia_driver_version": "580"},
            "nvidia_driver_version is 580: it has to be the driver's whole",
        ),
        ("mofed", {"mofed_source": "mlnx_ofed"}, "mofed_version is empty: it has to be the vendor's version"),
        ("mofed", {"mofed_source": "doca"}, "because mofed_source is doca."),
    ],
)
def test_what_a_choice_requires_is_asked_for_by_its_name(role: str, host: dict[str, t.Any], expected: str) -> None:
    [error] = limited(role, phases=PHASES, **host).errors
    assert expected in error


def test_a_run_file_needs_its_sum() -> None:
    host = {"nvidia_driver_source": "runfile", "nvidia_driver_version": "580.95.05"}
    errors = limited("nvidia_driver", phases=PHASES, **host).errors
    assert [error.partition(" is ")[0] for error in errors] == ["nvidia_driver_runfile", "nvidia_driver_runfile_sha256"]
    host.update(nvidia_driver_runfile="/a.run", nvidia_driver_runfile_sha256=SUM.upper())
    assert limited("nvidia_driver", phases=PHASES, **host) == Verdict([], {})


@pytest.mark.parametrize(
    ("role", "host"),
    [
        ("hpcx_mpi", {"hpcx_mpi_sha256": {KEY: SUM}}),
        ("hpcx_mpi", {"hpcx_mpi_sha256": json.dumps({KEY: SUM, "old": ""})}),
        ("hpcx_mpi", {"hpcx_mpi_source": "distro"}),
        ("dataset_staging", {**STAGED, "dataset_staging_azcopy_sha256": SUM}),
        ("dataset_staging", {**STAGED, "dataset_staging_azcopy_source": "preinstalled"}),
        ("nvidia_driver", {"nvidia_driver_source": "preinstalled"}),
        ("nvidia_driver", {"nvidia_driver_source": "preinstalled", "nvidia_driver_version": "580"}),
        ("nvidia_driver", {"nvidia_driver_version": "580.95.05"}),
        ("mofed", {"mofed_source": "preinstalled"}),
        ("mofed", {"mofed_source": "doca", "mofed_version": "3.2.1-044000-25.10"}),
    ],
)
def test_what_a_choice_does_not_require_is_not_asked_for(role: str, host: dict[str, t.Any]) -> None:
    assert limited(role, phases=PHASES, **host) == Verdict([], {})


@pytest.mark.parametrize("role", ["hpcx_mpi", "dataset_staging", "nvidia_driver"])
def test_what_only_an_installation_needs_is_not_asked_for_by_verify(role: str) -> None:
    host = STAGED if role == "dataset_staging" else {}
    assert limited(role, phases=["verify"], **host) == Verdict([], {})


@pytest.mark.parametrize(
    ("entry_point", "tags", "skipped", "phases"),
    [
        ("main", ["all"], [], [*PHASES]),
        ("main", ["all"], ["mofed_install"], ["configure", "verify"]),
        ("main", ["mofed_verify", "hpcx_mpi_install"], [], ["verify"]),
        ("main", ["hpcx_mpi_install"], [], []),
        ("main", ["tagged"], ["all"], []),
        ("verify", ["all"], [], ["verify"]),
        ("consent", ["all"], [], ["consent"]),
    ],
)
def test_the_phases_are_those_that_the_tags_choose(
    entry_point: str, tags: list[str], skipped: list[str], phases: list[str]
) -> None:
    assert phases_of("mofed", entry_point, {"ansible_run_tags": tags, "ansible_skip_tags": skipped}) == phases


def test_what_waits_for_a_fact_requires_nothing_yet() -> None:
    source = trust_as_template("{{ ansible_facts.node_profile.name }}")
    for role, name in (("hpcx_mpi", "hpcx_mpi_source"), ("nvidia_driver", "nvidia_driver_source")):
        assert limited(role, phases=PHASES, **{name: source}) == Verdict([], {name: "node_profile"})
    assert limited("hpcx_mpi", phases=PHASES, hpcx_mpi_os=source) == Verdict(
        [], {"hpcx_mpi_os": "node_profile", "hpcx_mpi_archive": "node_profile"}
    )


def test_the_entry_of_a_sum_is_the_one_that_the_role_reads() -> None:
    variables = known("hpcx_mpi", hpcx_mpi_os="rhel9.4")
    entry = role_files(ROLES / "hpcx_mpi").limits["hpcx_mpi_sha256"]["entry"]
    assert entry.format_map(variables) == Templar(DataLoader(), variables).template(variables["__hpcx_mpi_key"])


def test_a_profile_that_the_controller_does_not_have_is_refused(tmp_path: t.Any) -> None:
    (tmp_path / "own.yml").write_text((ROLES / "node_profile/files/profiles/generic.yml").read_text())
    for right in (
        {"node_profile_name": "generic"},
        {"node_profile_name": "OWN", "node_profile_paths": [str(tmp_path)]},
    ):
        assert limited("node_profile", **right) == Verdict([], {})
    [error] = limited("node_profile", node_profile_name="own").errors
    assert error.startswith("node_profile_name is own: it has to be one of ")
    assert "generic" in error
    [error] = limited("node_profile", node_profile_paths=[str(tmp_path / "lost")]).errors
    assert error.startswith("node_profile_paths: The directory ")
    (tmp_path / "own.yml").write_text("name: own\n")
    [error] = limited("node_profile", node_profile_name="own", node_profile_paths=str(tmp_path)).errors
    assert "own.yml is not a valid profile" in error


def test_no_launcher_without_a_node_with_the_key() -> None:
    [error] = limited("hpcx_mpi", cluster_ssh_hosts=[]).errors
    assert error == "hpcx_mpi_launcher has no value: it is the first item of a list that is empty."


@pytest.mark.parametrize("text", ["https://a/b", "https://a/b?sv=1&sig=hidden", "text", "url=https://a/b,train"])
def test_sources_as_a_text_that_is_none_are_shown_an_example(text: str) -> None:
    [error] = judged("dataset_staging", **{**STAGED, "dataset_staging_sources": text}).errors
    assert error.startswith("dataset_staging_sources is a text that is no list of places. ")
    assert '[{"url": "https://account.blob.core.windows.net/container", "prefix": "train"}]' in error
    assert "hidden" not in error
    assert judged("dataset_staging", **{**STAGED, "dataset_staging_sources": "url=https://a/b"}) == Verdict([], {})
