"""TinyViT-5M against ONNX Runtime and NumPy, and its files of weights."""

import json
import re

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.encoder_catalogue import CATALOGUE
from tfsparsecap.captioning.models import TinyViTEncoder
from tfsparsecap.captioning.models.image_encoders import published_weights
from tfsparsecap.captioning.models.image_encoders.published_weights import load_weights
from tfsparsecap.captioning.models.image_encoders.tiny_vit import _timm_names, tiny_vit_5m
from tfsparsecap.captioning.models.image_encoders.window_attention import WindowAttention
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.summarize import summary
from tfsparsecap.model_summary.summary_tables import ALL
from tfsparsecap.pruning import Supermask, prune, strip_pruning

from ....core.weight_files.torch_files import write_state_dict
from .timm_features import FILE, fill

SIZE = 64


@pytest.fixture(scope="module")
def arrays():
    """Random weights under timm's names."""
    with np.load(FILE) as file:
        return fill(json.loads(str(file["tiny_vit_5m.shapes"])))


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (2, SIZE, SIZE, 3)).astype("uint8")


@pytest.fixture(scope="module")
def encoder(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(arrays, path)
    return TinyViTEncoder(image_size=SIZE, weights=str(path))


def folded(arrays):
    """The same network with batch normalisation folded into its convolutions."""
    result = {name: values for name, values in arrays.items() if ".bn." not in name}
    for name in arrays:
        if name.endswith(".bn.weight"):
            gamma, beta, mean, variance = (
                arrays[name.removesuffix("weight") + kind]
                for kind in ("weight", "bias", "running_mean", "running_var")
            )
            convolution = name.removesuffix("bn.weight") + "conv"
            scale = gamma / np.sqrt(variance + 1e-5)
            result[f"{convolution}.weight"] = arrays[f"{convolution}.weight"] * scale[:, None, None, None]
            result[f"{convolution}.bias"] = beta - mean * scale
    return result


@pytest.mark.slow
def test_features_of_photographs_equal_those_of_onnx_runtime(shared):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = shared("weights/tiny_vit_5m/tiny_vit_5m_224_in22k_patch.onnx")
    photographs = sorted(shared("data/flickr8k_1k").rglob("*.jpg"))[:8]
    images = np.stack([read_image(photograph, 224) for photograph in photographs])
    assert len(images) == 8
    scaled = (images / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    session = onnxruntime.InferenceSession(path)
    (expected,) = session.run(None, {"input": scaled.astype("float32").transpose(0, 3, 1, 2)})
    # This file ends with an exchange of height and width.
    expected = expected.transpose(0, 2, 1, 3).reshape(8, 49, 320)
    assert expected.std() > 1
    np.testing.assert_allclose(TinyViTEncoder(weights=str(path))(images), expected, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_separate_and_folded_batch_normalisation_give_the_same_features(encoder, arrays, images, tmp_path):
    path = write_state_dict(tmp_path / "folded.pth", folded(arrays))
    other = TinyViTEncoder(image_size=SIZE, weights=str(path), batch_norm=False)
    features = np.asarray(encoder(images))
    assert features.shape == (2, 4, 320) and features.std() > 0.1
    np.testing.assert_allclose(other(images), features, atol=1e-3 * np.abs(features).max())
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(other))
    assert not again.batch_norm and len(again.weights) == len(other.weights) < len(encoder.weights)


@pytest.mark.slow
def test_the_authors_names_are_read(encoder, arrays, tmp_path):
    def original(name):
        name = re.sub(r"^stages\.(\d)\.(?=downsample)", lambda match: f"stages.{int(match[1]) - 1}.", name)
        name = re.sub(r"^patch_embed\.conv(\d)", lambda m: f"patch_embed.seq.{2 * int(m[1]) - 2}", name)
        return re.sub(r"^stages", "layers", name).replace(".conv.", ".c.").replace("head.fc", "head")

    path = write_state_dict(tmp_path / "a.pth", {original(name): value for name, value in arrays.items()})
    again = TinyViTEncoder(image_size=SIZE, weights=str(path))
    for old, new in zip(encoder.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
def test_weights_that_keras_saved_are_read(encoder, tmp_path):
    encoder.backbone.save_weights(tmp_path / "a.weights.h5")
    again = TinyViTEncoder(image_size=SIZE, weights=str(tmp_path / "a.weights.h5"))
    for old, new in zip(encoder.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    with pytest.raises(InputError, match=r"cannot read .*a\.weights\.h5 \(.*\): give .* network, TinyViT"):
        TinyViTEncoder(image_size=SIZE, weights=str(tmp_path / "a.weights.h5"), batch_norm=False)


@pytest.mark.parametrize(("height", "width", "window"), [(6, 6, 3), (5, 7, 3), (4, 4, 4), (3, 3, 4)])
def test_window_attention_equals_its_formula(height, width, window):
    heads, depth = 2, 3
    size = heads * depth
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (2, height, width, size))
    layer = WindowAttention(heads, window)
    layer.build(x.shape)
    layer.set_weights([rng.normal(0, 0.5, weight.shape) for weight in layer.weights])
    weights = {weight.path.partition("/")[2]: np.asarray(weight, float) for weight in layer.weights}
    expected = np.zeros_like(x)
    for top in range(0, height, window):
        for left in range(0, width, window):
            block = np.zeros((2, window, window, size))
            part = x[:, top : top + window, left : left + window]
            block[:, : part.shape[1], : part.shape[2]] = part
            tokens = block.reshape(2, -1, size)
            centred = tokens - tokens.mean(-1, keepdims=True)
            tokens = centred / np.sqrt(tokens.var(-1, keepdims=True) + 1e-5)
            tokens = tokens * weights["norm/gamma"] + weights["norm/beta"]
            projected = (tokens @ weights["qkv/kernel"] + weights["qkv/bias"]).reshape(2, -1, heads, 3, depth)
            mixed = np.zeros((2, window**2, heads, depth))
            for head in range(heads):
                query, key, value = (projected[:, :, head, kind] for kind in range(3))
                for i in range(window**2):
                    scores = np.einsum("bd,bjd->bj", query[:, i], key) / np.sqrt(depth)
                    for j in range(window**2):
                        distance = abs(i // window - j // window) * window + abs(i % window - j % window)
                        scores[:, j] += weights["attention_biases"][head, distance]
                    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
                    mixed[:, i, head] = np.einsum("bj,bjd->bd", chances, value)
            result = mixed.reshape(2, -1, size) @ weights["proj/kernel"] + weights["proj/bias"]
            result = result.reshape(2, window, window, size)[:, : part.shape[1], : part.shape[2]]
            expected[:, top : top + window, left : left + window] = result
    np.testing.assert_allclose(layer(x.astype("float32")), expected, atol=1e-5)


@pytest.mark.slow
def test_every_convolution_and_dense_layer_is_gated(encoder, images):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(encoder))
    model = keras.Sequential([keras.Input((SIZE, SIZE, 3)), again])
    prune(model, Supermask(0.5, total_steps=10), prune_frozen=True)
    ungated = set(model.pruning.ungated_layers.values())
    assert ungated == {
        f"{kind} has no gated form"
        for kind in ("BatchNormalization", "LayerNormalization", "WindowAttention")
    }
    assert np.isfinite(model(images)).all()
    strip_pruning(model)


@pytest.mark.slow
def test_the_network_can_be_cut_at_a_block(images):
    encoder = TinyViTEncoder("stages.0.blocks.1", image_size=SIZE, weights=None)
    assert encoder(images).shape == (2, 256, 64)


KEY = "stages.3.blocks.1.mlp.fc2.weight"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("a.safetensors", {KEY: None}, rf"a\.safetensors has no {re.escape(KEY)}: it contains another"),
        ("a.safetensors", {"stages.4.x": np.ones(3)}, r"has stages\.4\.x, but TinyViT-5M has no such layer"),
        (
            "a.safetensors",
            {KEY: np.ones((5, 6))},
            r"fc2\.weight in .* has the shape \(6, 5\), but TinyViT-5M needs",
        ),
        ("a.safetensors", {KEY: np.full((320, 1280), np.nan)}, "NaN, infinity or a negative variance"),
        ("a.bin", {}, r"give one that ends in \.safetensors"),
        ("absent.pth", None, "there is no weight file"),
        ("", None, "are a folder: give a file in it"),
        ("/dev/zero", None, "it is a device or a pipe"),
    ],
)
def test_unsuitable_weights_are_rejected(encoder, arrays, tmp_path, name, change, message):
    if change is not None:
        changed = {key: value for key, value in {**arrays, **change}.items() if value is not None}
        save_file(changed, tmp_path / name)
    with pytest.raises(InputError, match=message):
        load_weights(encoder.backbone, tmp_path / name, "TinyViT-5M", _timm_names)
    with pytest.raises(InputError, match=r"the weights https://host/a\.pth are an address: download"):
        load_weights(encoder.backbone, "https://host/a.pth", "TinyViT-5M")


@pytest.mark.slow
def test_an_unreachable_hub_is_reported(monkeypatch):
    import huggingface_hub

    def unreachable(repository, file, **options):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection\nto the hub. Try again.")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    with pytest.raises(InputError, match=r"timm/tiny_vit_5m_224\.dist_in22k.*\(no connection to the hub\)"):
        TinyViTEncoder(image_size=SIZE)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(
        InputError, match=r"huggingface_hub: pip install .*\[huggingface\]', or give the path"
    ):
        published_weights.download_weights("a/b", "c", "TinyViT-5M")


@pytest.mark.slow
def test_the_catalogue_has_its_size():
    network, entry = tiny_vit_5m(), CATALOGUE["tiny_vit_5m"]
    counted = summary(network, compress=False, print_fn=lambda text: None)
    assert network.count_params() == entry.parameters
    assert network.output_shape[1:] == entry.feature_map
    assert counted.totals[ALL].flops == 2 * entry.multiply_adds
