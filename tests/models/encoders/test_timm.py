"""Encoders against timm: features that it computed with random weights, which are read from its file."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from tfsparsecap.models import EfficientNetLiteEncoder, TinyViTEncoder

from .timm_features import CHANNELS, FILE, NETWORKS, fill, image


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_features_equal_those_of_timm(network, tmp_path):
    with np.load(FILE) as file:
        expected, shapes = file[network], json.loads(str(file[f"{network}.shapes"]))
    save_file(fill(shapes), tmp_path / "model.safetensors")
    if network == "tiny_vit_5m":
        encoder = TinyViTEncoder(weights=str(tmp_path / "model.safetensors"))
    else:
        encoder = EfficientNetLiteEncoder(int(network[-1]), weights=str(tmp_path / "model.safetensors"))
    features = np.asarray(encoder(image(encoder.image_size)))[0, :, CHANNELS]
    assert expected.std() > 0.5 and len(features) == expected[..., 0].size
    np.testing.assert_allclose(features, expected.reshape(features.shape), rtol=0, atol=1e-3)
