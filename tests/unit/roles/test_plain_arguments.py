# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An argument that is looked up has the value that Ansible's own templating gives it."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleError, AnsibleUndefinedVariable
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


def _trusted(value: t.Any) -> t.Any:
    """The value with its texts as those of a role are."""
    if isinstance(value, dict):
        return {key: _trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value


_TEXTS = [
    "raid0",
    "{{ text }}/a",
    "{{text}}{{ number }}",
    "/{{ zero }}/{{ chain }}/{{ empty }}",
    "{{ yes }}/a",
    "{{ nothing }}/a",
    "{{ ratio }} {{ list }}",
    "{{ foreign }}/a",
    "{{ marked }}/a",
    "{{ ansible_version }}/a",
    "{{ text }}/{{ text | upper }}",
    "{{ text }}{# said #}",
    "{{ text }}{% if yes %}/a{% endif %}",
    "\\d{{ text }}\n",
    "{{ text }}\n",
    "#jinja2:variable_start_string:'[[',variable_end_string:']]'\n[[ text ]]{{ text }}",
    "{text}",
    "{{ 'text' }}",
]


@pytest.mark.parametrize("argument", [*_TEXTS, 15, True, None])
@pytest.mark.parametrize("around", ["alone", "in a list", "in a dictionary", "behind a variable"])
def test_what_is_made_of_variables_has_the_value_that_ansible_gives_it(argument: t.Any, around: str) -> None:
    whole = {
        "alone": argument,
        "in a list": [argument, "{{ text }}", {"a": argument}],
        "in a dictionary": {"a": argument, "b": "{{ text | upper }}", "c": ["{{ number }}", 1]},
        "behind a variable": "{{ own }}",
    }[around]
    templar = Templar(loader=DataLoader(), variables={**_VARIABLES, "own": [_trusted(argument)]})
    expected = templar.template(_trusted(whole))
    plain, value = plain_value(_trusted(whole), templar)
    assert not plain or (value == expected and repr(value) == repr(expected))


@pytest.mark.parametrize("argument", ["{{ text }}/a", ["{{ text }}/{{ number }}"], {"a": "{{ text }}"}])
def test_paths_and_items_of_containers_need_no_jinja(
    templar: Templar, argument: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = templar.template(_trusted(argument))
    monkeypatch.delattr(Templar, "template")
    assert plain_value(_trusted(argument), templar) == (True, expected)


def test_an_item_that_is_omitted_is_left_out_as_ever(templar: Templar) -> None:
    argument = _trusted({"a": "{{ text }}", "b": "{{ omit }}", "c": ["{{ omit }}", "{{ number }}"]})
    assert plain_value(argument, templar) == (True, {"a": "raid0", "c": [15]})


@pytest.mark.parametrize("argument", ["{{ lost }}/a", ["{{ lost }}"], {"a": "{{ nobody }}/a"}])
def test_what_lacks_a_variable_within_is_an_error_as_ever(templar: Templar, argument: t.Any) -> None:
    with pytest.raises(AnsibleUndefinedVariable):
        plain_value(_trusted(argument), templar)


def test_a_variable_that_stands_for_itself_is_an_error_as_ever() -> None:
    templar = Templar(loader=DataLoader(), variables={"a": trust_as_template("{{ a }}/b")})
    with pytest.raises(AnsibleError):
        plain_value(trust_as_template("{{ a }}/c"), templar)


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
