# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An argument that is looked up has the value that Ansible's own templating gives it."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import EncryptedString, VaultLib, VaultSecret, VaultSecretsContext
from ansible.template import Templar, trust_as_template
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._plain_arguments import plain_value

_VARIABLES: dict[str, t.Any] = {
    "text": "raid0",
    "empty": "",
    "number": 15,
    "zero": 0,
    "ratio": 0.5,
    "yes": True,
    "no": False,
    "list": ["a", {"b": [1]}],
    "dictionary": {"a": 1},
    "nothing": None,
    "words": "true",
    "digits": "15",
    "behind": trust_as_template("{{ text }}-{{ number }}"),
    "chain": trust_as_template("{{ behind }}"),
    "native": trust_as_template("{{ list }}"),
    "inside": {"path": trust_as_template("{{ text }}/a"), "list": [trust_as_template("{{ number }}")]},
    "foreign": "{{ text }}",
    "lost": trust_as_template("{{ nobody }}"),
    "braces": ["{a}", {"b": "${HOME}"}],
    "marked": trust_as_template("#jinja2:variable_start_string:'[[',variable_end_string:']]'\n[[ text ]]"),
    "ansible_version": {"full": "2.19.0"},
    "ansible_facts": {"gpu_node": {"gpus": [{"name": "A100", "numa": None, "said": "{{ text }}"}]}},
}


@pytest.fixture
def templar() -> Templar:
    return Templar(loader=DataLoader(), variables=dict(_VARIABLES))


_FACTS = ["ansible_facts['gpu_node'] | default({})", "ansible_facts['missing'] | default({})"]
_SAME = ["text", "empty", "number", "zero", "ratio", "yes", "no", "list", "dictionary", "behind", "chain", "native"]


@pytest.mark.parametrize(
    "inner",
    [
        *_SAME,
        "inside",
        "foreign",
        "marked",
        "yes | bool",
        "no|bool",
        "number | int",
        "zero | int",
        "ratio | float",
        "braces",
        *_FACTS,
    ],
)
def test_a_variable_is_looked_up(templar: Templar, inner: str) -> None:
    argument = trust_as_template("{{ " + inner + " }}")
    expected = templar.template(argument)
    plain, value = plain_value(argument, templar)
    assert plain
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    "inner",
    # A filter that changes the value, something that is no value, and names that are Ansible's.
    [
        "words | bool",
        "digits | int",
        "yes | int",
        "number | bool",
        "nothing",
        "nobody",
        "ansible_version",
        "omit",
        "text ~ ''",
    ],
)
def test_the_rest_is_left_to_ansible(templar: Templar, inner: str) -> None:
    assert not plain_value(trust_as_template("{{ " + inner + " }}"), templar)[0]


@pytest.mark.parametrize("argument", ["raid0", "{{ text }}/a", "{{ text }}{{ text }}", 15, True, None, ["{{ text }}"]])
def test_only_a_whole_template_is_a_variable(templar: Templar, argument: t.Any) -> None:
    assert not plain_value(trust_as_template(argument) if isinstance(argument, str) else argument, templar)[0]


def test_text_from_elsewhere_is_no_template(templar: Templar) -> None:
    assert not plain_value("{{ text }}", templar)[0]


def test_a_variable_that_lacks_another_is_an_error_as_ever(templar: Templar) -> None:
    with pytest.raises(AnsibleUndefinedVariable):
        plain_value(trust_as_template("{{ lost }}"), templar)


def test_what_is_looked_up_can_be_changed_without_changing_the_variable(templar: Templar) -> None:
    _plain, value = plain_value(trust_as_template("{{ list }}"), templar)
    value[1]["b"].append(2)
    assert _VARIABLES["list"] == ["a", {"b": [1]}]


@pytest.mark.parametrize("inner", ["secret", "holder"])
def test_what_is_encrypted_has_the_value_that_ansible_gives_it(inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = VaultSecretsContext([("default", VaultSecret(b"of the lab"))])
    monkeypatch.setattr(VaultSecretsContext, "_current", secrets, raising=False)
    hidden = EncryptedString(ciphertext=VaultLib(secrets.secrets).encrypt(b"raid10").decode())
    templar = Templar(loader=DataLoader(), variables={"secret": hidden, "holder": {"level": hidden}})
    argument = trust_as_template("{{ " + inner + " }}")
    expected = templar.template(argument)
    plain, value = plain_value(argument, templar)
    assert not plain or (value == expected and repr(value) == repr(expected))
