# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""Which cloud a node runs in (from its firmware names) and which machine type it is (from the metadata service)."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._errors import ClusterError

# The chassis asset tag that every Azure virtual machine carries, and no other Hyper-V guest.
# Source: Microsoft's documentation of the instance metadata service; cloud-init's Azure data source.
_AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
_AZURE_PATH = "/metadata/instance?api-version=2021-02-01"
_AWS_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a URL path, not a token
_AWS_TYPE_PATH = "/latest/meta-data/instance-type"
_AWS_TYPE = re.compile(r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")
# Source: Google's documentation of the metadata server; cloud-init's GCE data source for the product name.
_GOOGLE_PRODUCT = "Google Compute Engine"
_GOOGLE_PATH = "/computeMetadata/v1/instance/machine-type"
METADATA_ADDRESS = "169.254.169.254"
_ADDRESS = (METADATA_ADDRESS, 80)
_MAX_ANSWER = 256 * 1024


def detect_cloud(dmi: dict[str, str]) -> str:
    """``azure``, ``aws``, ``gcp`` or "" from the DMI names."""
    vendor, product, tag = (dmi.get(key, "") for key in ("sys_vendor", "product_name", "chassis_asset_tag"))
    if tag == _AZURE_ASSET_TAG:
        return "azure"
    # Some kernels hide the tag from the guest; a plain Hyper-V guest has another one.
    if not tag and vendor == "Microsoft Corporation" and product == "Virtual Machine":
        return "azure"
    if vendor == "Amazon EC2":
        return "aws"
    if product == _GOOGLE_PRODUCT:
        return "gcp"
    return ""


def sku_from_dmi(dmi: dict[str, str]) -> str | None:
    """On AWS Nitro the firmware's product name is the instance type: no request is needed."""
    product = dmi.get("product_name", "")
    return product if dmi.get("sys_vendor") == "Amazon EC2" and _AWS_TYPE.match(product) else None


def _request(method: str, path: str, headers: dict[str, str], timeout_s: float, address: tuple[str, int]) -> str:
    # Only where it is asked: importing this takes longer than reading the node. Not urllib: the address is link-local and must
    # never go through a proxy.
    import http.client

    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as exc:
        raise _error(f"the instance metadata service did not answer: {exc or type(exc).__name__}") from exc
    finally:
        connection.close()
    if answer.status != 200:
        raise _error(f"the instance metadata service answered {answer.status} for {path.partition('?')[0]}")
    return text


def _error(message: str) -> ClusterError:
    return ClusterError(
        "metadata_unavailable", message, "Set `name`, or allow the node to reach 169.254.169.254 port 80."
    )


def fetch_sku(cloud: str, timeout_s: float, address: tuple[str, int] = _ADDRESS) -> str:
    """The machine type as the cloud names it (``Standard_ND96asr_v4``, ``p4d.24xlarge``, ``a3-megagpu-8g``)."""
    if cloud == "azure":
        text = _request("GET", _AZURE_PATH, {"Metadata": "true"}, timeout_s, address)
        try:
            document: t.Any = json.loads(text)
            sku = document["compute"]["vmSize"]
        except (ValueError, KeyError, TypeError) as exc:
            raise _error("the instance metadata service sent no compute.vmSize") from exc
    elif cloud == "gcp":
        # projects/<number>/machineTypes/a3-megagpu-8g
        path = _request("GET", _GOOGLE_PATH, {"Metadata-Flavor": "Google"}, timeout_s, address)
        sku = path.strip().rpartition("/")[2]
    else:
        # IMDSv2: a session token first; version 1 is switched off on hardened accounts.
        seconds = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = _request("PUT", _AWS_TOKEN_PATH, seconds, timeout_s, address)
        sku = _request("GET", _AWS_TYPE_PATH, {"X-aws-ec2-metadata-token": token}, timeout_s, address).strip()
    if not isinstance(sku, str) or not sku:
        raise _error("the instance metadata service sent an empty machine type")
    return sku


__all__ = ["METADATA_ADDRESS", "detect_cloud", "fetch_sku", "sku_from_dmi"]
