# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The settings of the services, where no directory of settings is given."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._beeond.model import Request

_HEAD = "# Written by hpcai.gpu_cluster.beeond; lost at the next boot.\n"
_SERVERS = ("beegfs-mgmtd", "beegfs-meta", "beegfs-storage")


def settings_of(request: Request, version: int) -> dict[str, str]:
    """Files of settings, by name; {} where the services' own will do or ``config_dir`` has them.

    Keys: ``build/dist/etc/*.conf`` of BeeGFS 7.4.7 and 8.3.1; ``interfaces`` of 8's management is TOML. Version 7 from 7.2.7 on starts
    nothing without a word on authentication, and 8's BeeOND says itself that there is none.
    """
    if request.config_dir or (version == 8 and not request.interfaces):
        return {}
    lines = [_HEAD]
    if version == 7:
        lines.append("connDisableAuthentication = true\n")
    interfaces = [f"connInterfacesFile = {request.run_dir}/interfaces\n"] if request.interfaces else []
    # Where RDMA's interface is named, silence about a way back to TCP would hide that it is not used.
    client = ["connTCPFallbackEnabled = false\n"] if any(name.startswith("ib") for name in request.interfaces) else []
    services = _SERVERS if version == 7 else _SERVERS[1:]
    found = {f"{service}.conf": "".join([*lines, *interfaces]) for service in services}
    found["beegfs-client.conf"] = "".join([*lines, *interfaces, *client])
    if version == 7:
        found["beegfs-helperd.conf"] = "".join(lines)
    elif request.interfaces:
        names = ", ".join(f'"{name}"' for name in request.interfaces)
        found["beegfs-mgmtd.toml"] = f"{_HEAD}interfaces = [{names}]\n"
    if request.interfaces:
        found["interfaces"] = "".join(f"{name}\n" for name in request.interfaces)
    return found


__all__ = ["settings_of"]
