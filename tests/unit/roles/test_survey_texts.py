# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Surveys and ``-e name=value`` give texts: every list and dictionary of every role may be one, wherever the role reads it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._places import faults_of
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_arguments import Verdict, validate
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_files import ROLES, role_files
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._survey_texts import as_dict, as_globs, as_list
from hypothesis import given
from hypothesis import strategies as st
from lab.list_server import in_process
from role_validation import by_ansible, known

ROOT = pathlib.Path(__file__).parents[3]
_BROKEN = {"list": '["gpu-2", "gpu-1"', "dict": '{"gpu-1": "10.0.0.4"'}
#: Where not any words will do.
_VALUES: dict[str, t.Any] = {
    "beeond_directories": [{"path": "/mnt/beeond/a", "owner": "1001"}, {"path": "/mnt/beeond/b"}],
    "dataset_staging_sources": [{"url": "https://a/b", "include": ["*.tar", "*.idx"]}, {"url": "https://c/d"}],
    "dataset_staging_upload_destination": {"url": "https://a/b", "prefix": "run"},
    "health_check_checks": ["all_reduce", "alltoall"],
    "hpcx_mpi_sha256": {"2.25.1-ubuntu24.04-cuda13-x86_64": "0a"},
    "mofed_expected": {"count": "2", "link_layer": "InfiniBand"},
    "nvme_raid_transports": ["scsi", "virtio"],
    "node_profile_checks": ["gpus", "fabric"],
}
#: What has to be set that the role reads the option at all.
_BESIDE = {
    "mofed_vendor_packages": {"mofed_source": "doca"},
    "hpcx_mpi_rebuild_arguments": {"hpcx_mpi_rebuild": True},
    "dataset_staging_sources": {"dataset_staging_destination": "/data"},
    "dataset_staging_upload_destination": {
        "dataset_staging_destination": "/data",
        "dataset_staging_sources": [{"url": "https://a/b"}],
    },
}
_NODES = ["gpu-1", "gpu-2", "gpu-3"]
#: What a task has by then.
_LATER: dict[str, t.Any] = {
    "ansible_play_hosts": _NODES,
    "ansible_play_hosts_all": _NODES,
    "ansible_managed": "managed",
    "hostvars": {
        name: {
            "inventory_hostname": name,
            "mofed_address": f"at-{name}",
            "__cluster_ssh_identity": {"node": name, "private_key": f"of {name}"},
            "__glusterfs_written": {"known": True, "nonce": name, "left": []},
        }
        for name in _NODES
    },
}


class Option(t.NamedTuple):
    """An option of a role that is a list or a dictionary, and a value of it."""

    role: str
    name: str
    spec: dict[str, t.Any]

    @property
    def value(self) -> t.Any:
        usual = ["gpu-2", "gpu-1"] if self.spec["type"] == "list" else {"gpu-1": "10.0.0.4", "gpu-2": "10.0.0.5"}
        return _VALUES.get(self.name, usual)

    @property
    def texts(self) -> list[str]:
        """What may stand for the value."""
        if self.spec["type"] == "list" and isinstance(self.value[0], dict):
            return [json.dumps(self.value), json.dumps(self.value, indent=2)]
        pairs = [f"{name}={value}" for name, value in self.value.items()] if self.spec["type"] == "dict" else self.value
        return [json.dumps(self.value, indent=1), ",".join(pairs), ", ".join(pairs)]


def options() -> t.Iterator[Option]:
    for folder in sorted(ROLES.iterdir()):
        found = {name: spec for entry in role_files(folder).options.values() for name, spec in entry.items()}
        for name, spec in found.items():
            if spec["type"] in ("list", "dict"):
                yield Option(folder.name, name, spec)


OPTIONS = list(options())
every_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)


def leaves(part: t.Any) -> t.Iterator[str]:
    """Every text in tasks or variables, however deep."""
    if isinstance(part, str):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else []:
        yield from leaves(inner)


def uses(option: Option) -> list[str]:
    """The templates in the role's tasks, vars, defaults and files that read the option. A condition becomes one."""
    folder = ROLES / option.role
    found = [
        text
        for path in (*folder.glob("tasks/*.yml"), *folder.glob("vars/*.yml"), *folder.glob("defaults/*.yml"))
        for text in leaves(yaml.safe_load(path.read_text()))
    ]
    found += [path.read_text() for path in folder.glob("templates/*.j2")]
    named = re.compile(rf"(?<!\w){option.name}(?!\w)")
    return [text if "{" in text else f"{{{{ {text} }}}}" for text in found if named.search(text)]


def read(option: Option, template: str, value: t.Any) -> t.Any:
    """What the template is when the option has this value; an error is one."""
    variables = {**known(option.role), **_LATER, **_BESIDE.get(option.name, {}), option.name: value}
    try:
        return Templar(DataLoader(), variables).template(trust_as_template(template))
    except AnsibleError as exc:
        return exc


@every_option
def test_a_text_is_what_it_stands_for_wherever_the_role_reads_it(option: Option) -> None:
    other = type(option.value)(list(option.value)[:1]) if option.spec["type"] == "list" else {"gpu-3": "none"}
    told = 0
    for template in uses(option):
        expected = read(option, template, option.value)
        if isinstance(expected, AnsibleError):
            continue  # it reads more than is known here
        for text in option.texts:
            assert read(option, template, text) == expected, template
        without = read(option, template, other)
        if without == expected:
            continue
        told += 1
        refusal = read(option, template, _BROKEN[option.spec["type"]])
        assert isinstance(refusal, AnsibleError), template
        assert "is a text that " in str(refusal)
        assert "10.0.0.4" not in str(refusal)
        assert '"gpu-2"' not in str(refusal)
    assert told, "nothing that the role does depends on the option"


@every_option
def test_nothing_reads_an_option_past_the_filter(option: Option) -> None:
    """What the test above cannot know the value of is read in the same way. Playbooks and other roles included."""
    through = f" | hpcai.gpu_cluster.as_{option.spec['type']}"
    for path in (*ROLES.rglob("*.yml"), *ROLES.rglob("*.j2"), *(ROOT / "playbooks").glob("*.yml")):
        # The argument spec names it, and what consent.yml.j2 writes are variables.
        if path.parent.name == "meta" or path.name == "consent.yml.j2":
            continue
        # Comments, messages, and keys: what is left are templates and conditions.
        text = re.sub(r"(?m)^\s*(?:#|message:|fail_msg:).*$", "", path.read_text())
        text = re.sub(rf"(?m)^\s*{option.name}:", "", re.sub(r"'(?!\[\]')[^'\n]*'", "''", text))
        for found in re.finditer(rf"(?<!\w){option.name}(?!\w)([^\n]*)", text):
            after = re.sub(r"^ \| default\((?:\w+|\[\], true)\)", "", found[1])
            whether_empty = after.startswith((" | string == '[]'", " | string != '[]'"))
            assert after.startswith(through) or whether_empty, f"{path}: {found[0]}"


@every_option
def test_no_validation_is_in_the_way(option: Option) -> None:
    """Neither ours nor that of Ansible, which a user's own playbook has alone."""
    for text in option.texts:
        variables = known(option.role, **_BESIDE.get(option.name, {}), **{option.name: text})
        entries = {
            entry: spec for entry, spec in role_files(ROLES / option.role).options.items() if option.name in spec
        }
        for entry, spec in entries.items():
            assert validate(spec, Templar(DataLoader(), variables)) == Verdict([], {}), (entry, text)
            errors = by_ansible(option.role, entry, variables)
            if option.spec.get("choices") and ("[" in text or " " in text):
                assert "must be one or more of" in str(errors), "README says that this does not work"
            else:
                assert errors == [], (entry, text)


#: Numbers of which "not given" says something that no number says.
NUMBERS = [
    Option(folder.name, name, spec)
    for folder in sorted(ROLES.iterdir())
    for name, spec in role_files(folder).options["main"].items()
    if spec["type"] in ("int", "float") and "default" not in spec
]


@pytest.mark.parametrize("option", NUMBERS, ids=lambda option: option.name)
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_number_is_not_set(option: Option, text: str) -> None:
    """A survey gives an empty text for what is left out."""
    spec = role_files(ROLES / option.role).options["main"]
    variables = known(option.role, **{option.name: text})
    assert validate(spec, Templar(DataLoader(), variables)) == Verdict([], {})
    facts = {"ansible_facts": {"node_profile": {"nvme": {"count": 8}}}}
    # Not what consent writes, which is a file and holds what was found.
    [template] = {text for text in uses(option) if re.search(rf"{{{{ {option.name}\b", text)}
    unset = {name: value for name, value in known(option.role).items() if name != option.name}
    read_as = [
        Templar(DataLoader(), {**unset, **facts, **more}).template(trust_as_template(template))
        for more in ({}, {option.name: text}, {option.name: "4"}, {option.name: 0})
    ]
    assert read_as == [8, 8, "4", 0]


def test_a_number_with_a_default_is_not_empty() -> None:
    """Its role would read 0."""
    variables = known("nvme_raid", nvme_raid_timeout_s="")
    spec = role_files(ROLES / "nvme_raid").options["main"]
    [error] = validate(spec, Templar(DataLoader(), variables)).errors
    assert "nvme_raid_timeout_s" in error


@every_option
def test_a_broken_text_is_refused_by_its_name(option: Option) -> None:
    variables = known(option.role, **_BESIDE.get(option.name, {}), **{option.name: _BROKEN[option.spec["type"]]})
    spec = {option.name: option.spec}
    [error] = validate(spec, Templar(DataLoader(), variables)).errors
    assert error.startswith(f"{option.name} is a text that ")
    assert "gpu-" not in error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ", []),
        ("[]", []),
        ("a", ["a"]),
        (" a ,\n b,", ["a", "b"]),
        ('["a,b", 1]', ["a,b", 1]),
        (' {"url": "u"} ', [{"url": "u"}]),
        (["a"], ["a"]),
        (7, 7),
        (None, None),
    ],
)
def test_texts_of_lists(text: t.Any, expected: t.Any) -> None:
    assert as_list(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("[]", []),
        ('["*.rec", "*.idx"]', ["*.rec", "*.idx"]),
        (' [\n  "*.rec",\n  "a,b"\n] ', ["*.rec", "a,b"]),
        ("*.rec, *.idx", ["*.rec", "*.idx"]),
        ("*.rec,*.idx,", ["*.rec", "*.idx"]),
        ("*.rec\n/train/**\n", ["*.rec", "/train/**"]),
        ("part-[0-4]?.{rec,idx}, x", ["part-[0-4]?.{rec,idx}", "x"]),
        ("{a,b}.rec", ["{a,b}.rec"]),
        ("[ab]*.rec, [!,;]x", ["[ab]*.rec", "[!,;]x"]),
        (r"a\,b, c", [r"a\,b", "c"]),
        (r"a\[, b", [r"a\[", "b"]),
        ("{a,{b,[}]}}, c", ["{a,{b,[}]}}", "c"]),
        (["*.rec, *.idx"], ["*.rec, *.idx"]),
        (None, None),
    ],
)
def test_texts_of_globs(text: t.Any, expected: t.Any) -> None:
    assert as_globs(text) == expected


_PIECES = st.sampled_from(
    ["a", "*", "**", "/", "?", ".rec", "[0-4]", "[!,;]", "{rec,idx}", "{a,[,]}", r"\,", r"\[", r"\{", "]", "x y"]
)
_GLOBS = st.lists(_PIECES, min_size=1, max_size=5).map("".join)


@given(st.lists(_GLOBS, max_size=4), st.sampled_from([",", ", ", " ,", "\n", ",\n  "]))
def test_globs_with_anything_between_them_that_separates_are_those_globs(globs: list[str], between: str) -> None:
    assert as_globs(between.join(globs)) == globs
    assert as_globs(json.dumps(globs)) == globs
    assert as_globs(json.dumps(globs, indent=1)) == globs


@pytest.mark.parametrize("text", ['["*.rec", "*.idx"', "['*.rec']", '[ "a" "b" ]'])
def test_a_text_of_globs_that_begins_as_json_and_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is a text that begins as JSON does and is none"):
        as_globs(text)
    sources = [{"url": "https://account.blob.core.windows.net/data", "include": text}]
    [fault] = faults_of(sources)
    assert fault.kind == "bad_input"
    assert "`include` of a source is a text" in fault.message


def test_a_glob_in_a_text_is_judged_like_one_in_a_list() -> None:
    [fault] = faults_of([{"url": "https://account.blob.core.windows.net/data", "exclude": "*.rec, *.[idx"}])
    assert "'*.[idx'" in fault.message
    assert list(faults_of([{"url": "https://account.blob.core.windows.net/data", "exclude": "*.rec, {a,b}"}])) == []


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("include", ['["*.rec", "*.idx"]', "*.rec, *.idx", ["*.rec", "*.idx"], "*.{rec,idx}"])
def test_a_text_chooses_the_blobs_that_its_globs_name(tmp_path: pathlib.Path, include: t.Any) -> None:
    plan = {
        "sources": "{{ answers }}",
        "destination": str(tmp_path / "data"),
        "hosts": ["gpu-1"],
        "identity": "none",
    }
    tasks = [
        {"name": "Plan", "hpcai.gpu_cluster.dataset_plan": plan, "register": "planned"},
        {"name": "Tell", "ansible.builtin.debug": {"msg": "{{ planned.total_files }} of four"}},
    ]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"gpu-1": host}}}))
    with in_process(["a.rec", "a.idx", "b/c.rec", "README"]) as server:
        answers = json.dumps({"answers": [{"url": server.url, "include": include, "exclude": "none, {no,thing}"}]})
        done = subprocess.run(
            [
                pathlib.Path(sys.executable).parent / "ansible-playbook",
                *("-i", tmp_path / "hosts.json", "-e", answers, "--check", tmp_path / "play.yml"),
            ],
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"),
                "ANSIBLE_FORCE_COLOR": "0",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert "3 of four" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" {} ", {}),
        ('{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("a=1, b=x=y", {"a": "1", "b": "x=y"}),
        ({"a": 1}, {"a": 1}),
        (["a"], ["a"]),
        (None, None),
    ],
)
def test_texts_of_dictionaries(text: t.Any, expected: t.Any) -> None:
    assert as_dict(text) == expected


@pytest.mark.parametrize("text", ["[", "[a, b]", "{'url': 'sig=hidden'", '[{"sas": "hidden"}', "[1" + "0" * 5000 + "]"])
def test_a_text_that_is_no_list_is_refused_without_its_words(text: str) -> None:
    with pytest.raises(ValueError, match="is a text that begins as JSON does and is none") as refusal:
        as_list(text)
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize("text", ["a", "[1]", '{"sas": "hidden"', "a=1, hidden"])
def test_a_text_that_is_no_dictionary_is_refused_without_its_words(text: str) -> None:
    with pytest.raises(ValueError, match="is a text that is no dictionary") as refusal:
        as_dict(text)
    assert "hidden" not in str(refusal.value)


@pytest.mark.slow
@pytest.mark.newest
def test_a_playbook_of_the_users_own_takes_sources_as_a_text(tmp_path: pathlib.Path) -> None:
    """Ansible validates the role's arguments itself, and what the survey gives is an extra variable. Nobody listens at that port."""
    play = {"hosts": "all", "gather_facts": False, "roles": ["hpcai.gpu_cluster.dataset_staging"]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"gpu-1": host}}}))
    sources = json.dumps([{"url": "http://127.0.0.1:9/account/data", "sas": "sv=1&sig=hidden"}])
    answers = {"dataset_staging_sources": sources, "dataset_staging_destination": str(tmp_path / "data")}
    done = subprocess.run(
        [
            pathlib.Path(sys.executable).parent / "ansible-playbook",
            *("-i", tmp_path / "hosts.json", "-e", json.dumps(answers), "--check"),
            *("--tags", "dataset_staging_configure", tmp_path / "play.yml"),
        ],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"),
            "ANSIBLE_FORCE_COLOR": "0",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "127.0.0.1:9" in output, output
    assert "Validating arguments" in output
    assert "hidden" not in output
