# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What is said where a package system cannot do what is wanted."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._host.packages import upstream


@dataclasses.dataclass(frozen=True)
class Remedies:
    """What helps where a package system cannot bring a package, in the words of the module that wants it."""

    no_manager: str = "This needs Debian, Ubuntu, RHEL, or a distribution that is built from them."
    no_version: str = "Ask for one of these, or use a repository that keeps the wanted one."
    no_package: str = "Check the names of the packages and the repositories of the node."

    def not_available(self, name: str, wanted: str, versions: t.Sequence[str]) -> ClusterError:
        """The error for a package that no repository has, or has at ``versions`` only."""
        if not versions:
            return ClusterError("not_available", f"No repository of this node has {name}.", self.no_package)
        listed = ", ".join(versions[:8]) + (", ..." if len(versions) > 8 else "")
        return ClusterError(
            "not_available",
            f"{name} {wanted} is in no repository of this node. There is {listed}.",
            self.no_version,
            available=sorted({upstream(version) for version in versions}),
        )


DEFAULT_REMEDIES = Remedies()


def last_lines(text: str, count: int = 12) -> str:
    """The end of what a program said, without empty lines."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-count:])


__all__ = ["DEFAULT_REMEDIES", "Remedies", "last_lines"]
