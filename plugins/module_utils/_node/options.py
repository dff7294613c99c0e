# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Private to the collection: it may change without notice.
"""The options that say how a node's facts are gathered, shared by node_facts and node_profile."""

from __future__ import annotations

import typing as t

FACT_OPTIONS: dict[str, t.Any] = {
    "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
    "nvidia_smi_timeout_s": {"type": "float", "default": 20.0},
    "metadata": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "metadata_timeout_s": {"type": "float", "default": 1.0},
}


__all__ = ["FACT_OPTIONS"]
