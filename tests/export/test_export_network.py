"""Patterns that name the layers of an export that stay float."""

import pytest
from tfsparsecap_export.export_network import matching_layers

from tfsparsecap.errors import InputError


def test_patterns_match_whole_parts_of_paths():
    names = ["encoder", "captioner/lstm/kernel", "captioner/lstm/recurrent_kernel", "captioner/output/kernel"]
    assert matching_layers(["lstm"], names) == names[1:3]
    assert matching_layers(["output/kernel", "encoder"], names) == [names[3], names[0]]
    with pytest.raises(
        InputError, match=r"no layer lst to keep float: the layers are encoder, captioner/lstm"
    ):
        matching_layers(["lst"], names)
