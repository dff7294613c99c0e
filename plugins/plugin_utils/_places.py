# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places in blob storage among a task's arguments: refused on the controller where they hold a SAS.

What a module is sent may lie on the node's disk, and in its log, before the module can look at it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.choice import translate
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.options import failure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.secrets import check_place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import (
    check_container,
    clean_sas,
    parse_blob_url,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._play import refuse_out_of_step
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import (
    ModuleAction,
    names_role_variables,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._survey_texts import as_globs, as_list

Result = dict[str, t.Any]

#: What of a source is a list of globs.
_GLOBS = ("include", "exclude")


def places_of(value: t.Any) -> t.Iterator[tuple[str, str]]:
    """URL and prefix of every place in a value of any shape."""
    for place in _with_url(value):
        yield str(place["url"]), str(place.get("prefix") or "")


def faults_of(value: t.Any) -> t.Iterator[ClusterError]:
    """What keeps a module from using the places in a value, the first fault of each. Those of ``check_place`` are not among them.

    Places in a list are sources.
    """
    check_url = check_container if isinstance(value, list) else parse_blob_url
    for place in _with_url(value):
        try:
            check_place(str(place["url"]))
        except ClusterError:
            continue
        try:
            check_url(str(place["url"]))
            if isinstance(place.get("sas"), str):
                clean_sas(place["sas"])
            for name in _GLOBS:
                globs = _globs(name, place.get(name))
                for glob in globs if isinstance(globs, list) else []:
                    translate(str(glob))
        except ClusterError as error:
            yield error


def _globs(name: str, value: t.Any) -> t.Any:
    try:
        return as_globs(value)
    except ValueError as exc:
        raise ClusterError("bad_input", f"`{name}` of a source {exc}", "Correct it and run again.") from None


def _with_globs(sources: t.Any) -> t.Any:
    """The sources with lists where globs are texts, which Ansible would separate at every comma."""
    if not isinstance(sources, list):
        return sources
    return [
        {key: _globs(key, value) if key in _GLOBS else value for key, value in source.items()}
        if isinstance(source, dict)
        else source
        for source in sources
    ]


def _with_url(value: t.Any) -> t.Iterator[Result]:
    if isinstance(value, dict):
        if value.get("url"):
            yield value
        for inner in value.values():
            if isinstance(inner, (dict, list)):
                yield from _with_url(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _with_url(inner)


class PlacesModuleAction(ModuleAction):
    """Runs a module with places among its options, unless one of them holds a SAS, or each host would do what one does for all."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run it, in the background, too."""
        try:
            refuse_out_of_step(self._task)
            if "sources" in self._task.args:
                self._task.args["sources"] = _with_globs(as_list(self._task.args["sources"]))
            for url, prefix in places_of(self._task.args):
                check_place(url, prefix)
        except ClusterError as error:
            return {"failed": True, "changed": False, **failure(error)}
        except ValueError as exc:
            broken = ClusterError("bad_input", f"`sources` {exc}", "Correct it and run again.")
            return {"failed": True, "changed": False, **failure(broken)}
        return super().run(tmp, task_vars)


__all__ = ["PlacesModuleAction", "faults_of", "places_of"]
