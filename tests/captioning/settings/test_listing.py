"""All settings as text: every key, its default, and its meaning."""

import pytest

from tfsparsecap.captioning.settings.config_files import load_config, setting_values
from tfsparsecap.captioning.settings.listing import listing
from tfsparsecap.captioning.settings.schema import MODELS
from tfsparsecap.errors import InputError


@pytest.mark.parametrize("kind", MODELS)
def test_every_setting_is_listed_in_its_section(kind):
    values = setting_values(load_config(None, [f"model.kind={kind}"]))
    assert len(values) > 60
    for key in values:
        section, _, name = key.rpartition(".")
        if key in ("model.kind", "training.fine_tune", "training.scst", "training.slim"):
            continue
        blocks = listing(section).split("\n\n")
        heading = f"model.kind={kind}" if section == "model" else section
        (block,) = [
            block for block in blocks if block.startswith(f"{heading}:" if heading else "All settings")
        ]
        assert f" {name}=" in block, key


def test_defaults_and_meanings():
    text = " ".join(listing("training").split())
    assert "label_smoothing=0.0 fraction of the target probability that is spread evenly" in text
    assert "training.scst: " in text and "decoding: " not in text
    assert "layers=6, heads=8 number of layers in encoder and decoder" in " ".join(listing("model").split())


def test_unknown_sections_are_rejected():
    with pytest.raises(InputError, match="there is no section of settings 'trainig': did you mean training"):
        listing("trainig")
