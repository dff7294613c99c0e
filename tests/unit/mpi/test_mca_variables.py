# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MCA parameters as environment variables."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.hpcai.gpu_cluster.plugins.filter.mca_variables import mca_variables


def test_names_get_the_prefix_and_values_stay() -> None:
    assert mca_variables({"pml": "ucx", "btl": "^openib"}) == {"OMPI_MCA_pml": "ucx", "OMPI_MCA_btl": "^openib"}
    assert mca_variables({}) == {}


@pytest.mark.parametrize("wrong", ["pml=ucx", ["pml"], None])
def test_what_is_no_dictionary_is_refused(wrong: object) -> None:
    with pytest.raises(AnsibleFilterError, match="wants a dictionary of MCA parameters, not "):
        mca_variables(wrong)
