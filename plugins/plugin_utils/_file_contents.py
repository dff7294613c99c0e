# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What the items of ``files`` hold: the controller reads, decrypts and renders it before the node is touched."""

from __future__ import annotations

import base64
import os
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.text.converters import to_bytes
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

Item = dict[str, t.Any]


class FileContents:
    """Brings the content of files for one task. ``variables`` are the task's."""

    def __init__(self, action: ActionBase, variables: t.Mapping[str, t.Any]) -> None:
        self._action, self._variables = action, variables

    def filled(self, item: Item) -> Item:
        """An item of ``files`` as the module takes it: its content in place of where that comes from."""
        data = self._bytes(item)
        if data is None:
            return item
        sources = ("content", "src", "template", "template_vars")
        return {**{key: value for key, value in item.items() if key not in sources}, **_packed(item, data)}

    def _bytes(self, item: Item) -> bytes | None:
        if item.get("src") is not None:
            return self._read(item)
        if item.get("template") is not None:
            return self._render(item)
        return item["content"].encode() if isinstance(item.get("content"), str) else None

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
        (text,) = lookup.run([found], dict(self._variables), template_vars=item.get("template_vars") or {})
        return to_bytes(text, nonstring="simplerepr")


def _packed(item: Item, data: bytes) -> Item:
    """The options that carry the bytes. Only one that Ansible keeps out of logs and results carries a secret."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"content_base64": base64.b64encode(data).decode()}
    return {"secret_content" if boolean(item.get("sensitive") or False) else "content": text}


__all__ = ["FileContents"]
