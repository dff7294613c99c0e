# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""What gluster's XML says, as plain data."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._glusterfs.model import Brick, Peer, Volume


def parse_reply(output: str) -> ET.Element:
    """The reply of `gluster --xml`. Its exit status says nothing: a refused command ends with 0, too."""
    try:
        root = ET.fromstring(output)  # noqa: S314 - see the import
    except ET.ParseError as exc:
        raise ClusterError(
            "gluster_failed",
            f"gluster answered without XML: {output.strip()[:300] or 'nothing'}.",
            "Check that glusterd runs: `systemctl status glusterd`.",
        ) from exc
    return root


def refusal(root: ET.Element) -> str:
    """Why gluster refused a command, or an empty string."""
    if root.findtext("opRet") == "0":
        return ""
    return (root.findtext("opErrstr") or "").strip() or f"error {root.findtext('opErrno')}"


def parse_peers(root: ET.Element) -> list[Peer]:
    """The nodes of `pool list`; the node itself is called localhost there."""
    peers = []
    for peer in root.iter("peer"):
        names = {name.text or "" for name in peer.iter("hostname")}
        state = peer.findtext("state")
        # The node itself has no state; 3 is "Peer in Cluster".
        in_cluster = state is None or state == "3"
        peers.append(Peer(tuple(sorted(names)), peer.findtext("connected") == "1", in_cluster))
    return peers


def parse_volume(root: ET.Element) -> Volume | None:
    """The volume of `volume info NAME`, or None where there is none."""
    element = root.find(".//volume")
    if element is None:
        return None
    bricks = []
    for brick in element.iter("brick"):
        node, _colon, path = (brick.findtext("name") or "").partition(":")
        bricks.append(Brick(node, path))
    options = {option.findtext("name") or "": option.findtext("value") or "" for option in element.iter("option")}
    return Volume(
        name=element.findtext("name") or "",
        started=element.findtext("statusStr") == "Started",
        replica=int(element.findtext("replicaCount") or 1),
        bricks=tuple(bricks),
        options=options,
    )


def parse_online(root: ET.Element) -> set[Brick]:
    """The bricks whose process runs, by `volume status NAME`. Those of nodes that are down are not listed at all."""
    return {
        Brick(node.findtext("hostname") or "", node.findtext("path") or "")
        for node in root.iter("node")
        if node.findtext("status") == "1"
    }


def parse_names(root: ET.Element) -> list[str]:
    """The names of `volume list`."""
    return [element.text or "" for element in root.iter("volume")]


__all__ = ["parse_names", "parse_online", "parse_peers", "parse_reply", "parse_volume", "refusal"]
