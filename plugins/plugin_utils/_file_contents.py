# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the items of ``files`` hold: the controller reads, decrypts and renders it before the node is touched, and sends it
to a node that lacks it."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import typing as t

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.text.converters import to_bytes
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._node_state.content import digest, text_of
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _programs

Item = dict[str, t.Any]

#: Up to this many bytes travel with every task. More of them travel when the node lacks them, and their digests before.
INLINE_BYTES = 4096
#: What says where the content of a file comes from.
_SOURCES = ("content", "src", "template", "template_vars", "program", "interpreter")
#: What Ansible tells a template about itself; variables of the play with these names do not hide it.
_OF_TEMPLATE = frozenset(
    f"template_{name}" for name in ("host", "path", "mtime", "uid", "run_date", "destpath", "fullpath")
)
_USUAL_PYTHON = "/usr/bin/python3"
#: What says that Ansible looks for Python on the node.
_DISCOVERY_MODES = ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent")


@dataclasses.dataclass(frozen=True)
class _File:
    """An item without its source, and its bytes. None are those of an item that the module is to refuse."""

    item: Item
    data: bytes | None

    @property
    def secret(self) -> bool:
        return bool(boolean(self.item.get("sensitive") or False))

    def filled(self) -> Item:
        """The item with its bytes. Only an option that Ansible keeps out of logs and results carries a secret."""
        if self.data is None:
            return self.item
        try:
            return {**self.item, "secret_content" if self.secret else "content": self.data.decode()}
        except UnicodeDecodeError:
            return {**self.item, "content_base64": base64.b64encode(self.data).decode()}

    def announced(self) -> Item:
        """The item with the digest of its bytes. That of a secret could be guessed from: a secret always travels."""
        if self.data is None or self.secret:
            return self.filled()
        size = {"size": len(self.data)} if text_of(self.data) is None else {}
        return {**self.item, "sha256": digest(self.data), **size}


def _text(content: t.Any) -> bytes | None:
    """What a module would make of an option that is text, whatever type it has; None where there is none."""
    if content is None:
        return None
    # Arguments travel as JSON, where keys are text.
    return str(content if isinstance(content, str) else json.loads(json.dumps(content, default=str))).encode()


class FileContents:
    """The content of a task's files, and what of it the node has to be sent."""

    def __init__(self, files: t.Sequence[_File]) -> None:
        self._files = files
        size = sum(len(file.data or b"") for file in files if not file.secret)
        #: The numbers of the items that travel with their bytes.
        self._sent: set[int] = set(range(len(files))) if size <= INLINE_BYTES else set()

    def send(self, numbers: t.Iterable[int]) -> bool:
        """Send the bytes of these items from now on; returns whether they did not travel before."""
        before = len(self._sent)
        self._sent.update(numbers)
        return len(self._sent) > before

    def items(self) -> list[Item]:
        """The items of ``files`` as the module takes them."""
        return [file.filled() if number in self._sent else file.announced() for number, file in enumerate(self._files)]


class Sources:
    """Reads, decrypts and renders for one task. ``variables`` are the task's."""

    def __init__(self, action: ActionBase, variables: t.Mapping[str, t.Any]) -> None:
        self._action, self._variables = action, variables

    def contents(self, items: t.Iterable[Item]) -> FileContents:
        """The content of all these items. What the controller lacks is an error; ClusterError is of a program that cannot be built."""
        return FileContents([self._file(item, number) for number, item in enumerate(items)])

    def _file(self, item: Item, number: int) -> _File:
        data = self._bytes(item, number)
        if data is None:
            return _File(item, None)
        return _File({key: value for key, value in item.items() if key not in _SOURCES}, data)

    def _bytes(self, item: Item, number: int) -> bytes | None:
        if item.get("src") is not None:
            return self._read(item)
        if item.get("template") is not None:
            return self._render(item)
        if item.get("program") is not None:
            return self._build(item, number)
        return _text(item.get("content"))

    def _find(self, item: Item, option: str, directory: str) -> str:
        """A file where ``ansible.builtin.copy`` and ``ansible.builtin.template`` look for it."""
        try:
            found = str(self._action._find_needle(directory, os.path.expanduser(item[option])))
        except AnsibleError as exc:
            # Without its last line, which names an option of another module.
            said = str(exc).partition("\nIf you are using a module")[0]
            raise AnsibleActionFail(f"The `{option}` of {item['path']} is not on the controller. {said}") from None
        if os.path.isdir(found):
            raise AnsibleActionFail(f"The `{option}` of {item['path']} is a directory: {found}. Name a file.")
        return found

    def _read(self, item: Item) -> bytes:
        loader = self._action._loader
        # A copy without its encryption where it is encrypted with vault.
        real = loader.get_real_file(self._find(item, "src", "files"))
        try:
            with open(real, "rb") as stream:
                return stream.read()
        finally:
            loader.cleanup_tmp_file(real)

    def _render(self, item: Item) -> bytes:
        lookup = self._action._shared_loader_obj.lookup_loader.get(
            "ansible.builtin.template", loader=self._action._loader, templar=self._action._templar
        )
        found = self._find(item, "template", "templates")
        # The lookup copies its variables with everything in them, facts too, which takes longer than rendering. What comes
        # as variables of the template it takes as it is; a template cannot change them, for Ansible gives it its own copies.
        known = {key: value for key, value in self._variables.items() if key not in _OF_TEMPLATE}
        where = {"ansible_search_path": self._variables.get("ansible_search_path", [])}
        (text,) = lookup.run([found], where, template_vars=known | (item.get("template_vars") or {}))
        return to_bytes(text, nonstring="simplerepr")

    def _build(self, item: Item, number: int) -> bytes:
        try:
            return _programs.build(item["program"], item.get("interpreter") or self.interpreter())
        except ClusterError as exc:
            remedy = exc.remedy.replace("`interpreter`", f"`files[{number}].interpreter`")
            raise ClusterError(exc.kind, f"The `program` of {item['path']}: {exc.message}", remedy) from None

    def interpreter(self) -> str:
        """The Python that the play uses on the node: the one that was set, or else found, or else the usual one."""
        task = self._action._task
        variables = self._variables
        if task.delegate_to:
            variables = variables.get("ansible_delegated_vars", {}).get(task.delegate_to, variables)
        # As Ansible chooses it for modules: a variable, the environment, ansible.cfg.
        configured = constants.config.get_config_value("INTERPRETER_PYTHON", variables=variables)
        wanted = self._action._templar.template(configured)
        if wanted and wanted not in _DISCOVERY_MODES:
            return str(wanted)
        return str(self._found(variables) or _USUAL_PYTHON)

    def _found(self, variables: t.Mapping[str, t.Any]) -> t.Any:
        """What Ansible finds on the node. It looks with the first module of a run, and a program must not depend on which that is."""
        key = "discovered_interpreter_python"
        if not variables.get("ansible_facts", {}).get(key):
            self._action._execute_module("ansible.builtin.ping", module_args={}, task_vars=self._variables)
        return variables.get("ansible_facts", {}).get(key)


__all__ = ["INLINE_BYTES", "FileContents", "Sources"]
