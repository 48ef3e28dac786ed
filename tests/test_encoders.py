"""The command that lists the encoders."""

import json

import pytest

from tfsparsecap.encoders import main
from tfsparsecap.errors import InputError


def test_the_list_names_every_encoder(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    main([])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("tiny_vit_5m"))
    assert row.split()[1:9] == ["80.7", "5.1", "M", "1.25", "G", "224", "7x7x320", "MIT"]
    assert row.rstrip().endswith("Hugging Face Hub (download)"), "nothing is cut off"
    assert any(line.startswith("keras_hub:PRESET") for line in lines)


def test_the_list_can_be_filtered_sorted_and_printed_as_json(capsys):
    main(["lite", "TINY_vit", "--sort", "multiply_adds", "--json"])
    encoders = json.loads(capsys.readouterr().out)
    lite = [f"efficientnet_lite{variant}" for variant in range(3)]
    assert list(encoders) == [*lite, "tiny_vit_5m", "efficientnet_lite3"]
    assert encoders["tiny_vit_5m"]["feature_map"] == [7, 7, 320]


def test_a_text_that_no_name_contains_is_an_error():
    with pytest.raises(InputError, match="no network has zzz or yyy in its name"):
        main(["zzz", "yyy"])
