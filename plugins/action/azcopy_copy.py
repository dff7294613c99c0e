# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of azcopy_copy: what cannot work is refused here, a SAS goes through stdin, messages name variables."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._azcopy.options import (
    ARGUMENT_SPEC,
    EXCLUSIVE,
    read_options,
    take_secret,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.options import failure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.secrets import query_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._blob.url import is_url
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._by_stdin import PipedModuleAction
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._role_variables import names_role_variables
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._survey_texts import as_list

Result = dict[str, t.Any]


class ActionModule(PipedModuleAction):
    """See plugins/modules/azcopy_copy.py for the documentation."""

    @names_role_variables
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        """Run it, unless its options cannot work. Wrong types are the module's to refuse."""
        fault = self._fault()
        if fault is not None:
            return {"failed": True, "changed": False, **fault}
        return super().run(tmp, task_vars)

    def _fault(self) -> Result | None:
        args = self._task.args
        secrets = [str(args.get("sas") or "")]
        secrets += [query_of(str(args[side])) for side in ("source", "destination") if is_url(str(args.get(side, "")))]
        try:
            if "file_list" in args:
                args["file_list"] = as_list(args["file_list"])
        except ValueError as exc:
            return failure(ClusterError("bad_input", f"`file_list` {exc}", "Correct it and run again."), *secrets)
        try:
            checked = ArgumentSpecValidator(ARGUMENT_SPEC, mutually_exclusive=EXCLUSIVE).validate(args)
            if not checked.error_messages:
                options = dict(checked.validated_parameters)
                read_options(options, take_secret(options))
        except ClusterError as error:
            return failure(error, *secrets)
        return None
