"""Up-Down against the original implementation, and as a captioner."""

import csv
import json

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.models import UpDown
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gated_layers, gates
from tfsparsecap.papers.published import load_published, published_arrays, published_captioner
from tfsparsecap.pruning import prune, strip_pruning

SMALL = {"embedding_size": 6, "rnn_size": 8, "attention_size": 5, "feature_size": 7}
IMAGES = ("391895", "184613", "522418", "57870", "384029")
LENGTH = 16


@pytest.fixture(scope="module")
def folder(fixtures):
    return fixtures / "updown_smp975"


@pytest.fixture(scope="module")
def published(folder):
    """The published captioner with 97.5% sparsity."""
    captioner = published_captioner(json.loads((folder / "config.json").read_text()))
    load_published(captioner, np.load(folder / "weights.npz"))
    return captioner


@pytest.fixture(scope="module")
def expected(folder):
    """Results of the original implementation by image."""
    return json.loads((folder / "expected.json").read_text())["computed"]


@pytest.fixture(scope="module")
def features(fixtures):
    """The regions of the five images, float32 [regions, 2048] each."""
    att = fixtures / "coco_bottom_up" / "cocobu_att"
    return {image: np.load(att / f"{image}.npy") for image in IMAGES}


@pytest.fixture(scope="module")
def batch(features):
    """All five images, padded with zeros to the same number of regions."""
    most = max(map(len, features.values()))
    return np.stack([np.pad(regions, ((0, most - len(regions)), (0, 0))) for regions in features.values()])


@pytest.fixture
def captioner():
    keras.utils.set_random_seed(1)
    return UpDown(20, output_layers=2, dropout=0.5, **SMALL)


def log_softmax(x):
    x = np.asarray(x, np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("image", IMAGES)
def test_log_probabilities_equal_the_originals(published, folder, fixtures, expected, features, image):
    tokens = np.array([expected[image]["teacher_forced_input_ids"]], "int32")
    original = np.load(folder / f"teacher_forced_logprobs_{image}.npy")
    pooled = np.load(fixtures / "coco_bottom_up" / "cocobu_fc" / f"{image}.npy")
    inputs = {"features": features[image][None], "tokens": tokens}
    for more in ({}, {"pooled": pooled[None]}):
        logits = published({**inputs, **more})
        np.testing.assert_allclose(log_softmax(logits[0]), original, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_captions_equal_the_originals_in_one_batch(published, folder, expected, batch, beam):
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    token_ids, scores = Decoder(published, beam, LENGTH)({"features": batch})
    for image, ids, score in zip(IMAGES, token_ids[:, 0].numpy(), scores[:, 0].numpy(), strict=True):
        original = expected[image][f"beam_{beam}"]
        original_ids = original["token_ids"]
        assert ids.tolist() == original_ids + [published.pad_id] * (LENGTH - len(original_ids))
        assert score == pytest.approx(original["logprob"], abs=1e-4)
        words = "".join(vocabulary[token] for token in ids if token > published.end_id)
        assert words.replace("\u2581", " ").strip() == original["caption"]


def test_sparsity_of_each_layer_equals_the_published_one(published, folder):
    with open(folder / "sparsities.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    arrays = published_arrays(published)
    names = {name: name.removesuffix("_pruning_mask") for name in row if name.endswith("_pruning_mask")}
    assert len(names) == 11
    for column, name in names.items():
        assert (arrays[name] == 0).mean() == pytest.approx(float(row[column]), abs=6e-6), name
    weights = [arrays[name] for name in names.values()]
    assert sum(np.count_nonzero(weight) for weight in weights) == int(row["nnz"])


def test_padded_regions_change_nothing(published, batch, features):
    tokens = np.full((5, 3), 4, "int32")
    mask = np.array([np.arange(batch.shape[1]) < len(regions) for regions in features.values()])
    garbage = np.where(mask[..., None], batch, np.nan)
    unpadded_logits = [
        published({"features": regions[None], "tokens": tokens[:1]})[0] for regions in features.values()
    ]
    for inputs in ({"features": batch}, {"features": garbage, "mask": mask}):
        np.testing.assert_allclose(published({**inputs, "tokens": tokens}), unpadded_logits, atol=1e-4)


def test_images_without_regions_give_finite_logits(captioner, inputs):
    logits = captioner({**inputs, "features": np.zeros((3, 4, 7), "float32")})
    assert np.isfinite(logits).all()


@pytest.mark.parametrize("share", [None, "kv"])
def test_two_steps_in_numpy(captioner, inputs, share):
    if share:
        captioner = UpDown.from_config({**captioner.get_config(), "share_attention": share})
    weights = published_arrays(captioner)
    pooled = np.random.default_rng(3).normal(size=(3, 7)).astype("float32")

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def lstm(name, x, hidden, carry):
        gates = x @ weights[f"{name}.weight_ih"].T + weights[f"{name}.bias_ih"]
        gates = gates + hidden @ weights[f"{name}.weight_hh"].T + weights[f"{name}.bias_hh"]
        i, f, g, o = np.split(gates, 4, axis=1)
        carry = sigmoid(f) * carry + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(carry), carry

    regions = np.maximum(linear("att_embed.0", inputs["features"]), 0)
    keys = linear("ctx2att", regions)
    image = np.maximum(linear("fc_embed.0", pooled), 0)
    h1 = c1 = h2 = c2 = np.zeros((3, 8))
    expected = []
    for token in inputs["tokens"].T[:2]:
        word = np.maximum(weights["embed.0.weight"][token], 0)
        h1, c1 = lstm("core.att_lstm", np.concatenate([h2, image, word], 1), h1, c1)
        energy = np.tanh(keys + linear("core.attention.h2att", h1)[:, None])
        attention = np.exp(log_softmax(linear("core.attention.alpha_net", energy)[..., 0]))
        context = np.einsum("bn,bnd->bd", attention, keys if share else regions)
        h2, c2 = lstm("core.lang_lstm", np.concatenate([context, h1], 1), h2, c2)
        expected.append(linear("logit.3", np.maximum(linear("logit.0", h2), 0)))
    logits = captioner({**inputs, "pooled": pooled})
    np.testing.assert_allclose(logits[:, :2], np.stack(expected, axis=1), atol=1e-5)


def test_initial_weights_are_distributed_like_the_originals():
    keras.utils.set_random_seed(4)
    captioner = UpDown(500, embedding_size=32, rnn_size=64, attention_size=48, feature_size=256)
    arrays = published_arrays(captioner)
    limits = {"att_embed": 256, "fc_embed": 256, "core.attention.alpha": 48}
    assert 0.97 < arrays.pop("embed.0.weight").std() < 1.03
    for name, array in arrays.items():
        limit = next((inputs for prefix, inputs in limits.items() if name.startswith(prefix)), 64) ** -0.5
        assert np.abs(array).max() <= limit, name
        if array.size > 40:
            assert np.abs(array).max() > 0.85 * limit, name


def test_pruning_gates_the_same_weights_as_the_original():
    captioner = UpDown(20, output_layers=2, **SMALL)
    before = published_arrays(captioner)
    prune(captioner, "supermask", sparsity=0.9, total_steps=10)
    gated = {f"{layer.name}/{name}" for layer in gated_layers(captioner) for name in layer.gate_of}
    assert gated == {
        "embedding/embeddings",
        *(
            f"{name}/kernel"
            for name in (
                "feature_embedding",
                "pooled_embedding",
                "attention_features",
                "attention_query",
                "attention_score",
                "attention_lstm_image",
                "attention_lstm",
                "language_lstm",
                "output_hidden_0",
                "output",
            )
        ),
    }
    matrices = [array for array in before.values() if array.ndim == 2]
    assert sum(gate.size for gate in gates(captioner)) == sum(matrix.size for matrix in matrices)
    random = np.random.default_rng(6)
    for gate in gates(captioner):
        gate.logits.assign(np.where(random.random(gate.logits.shape) < 0.5, -1.0, 1.0))
    strip_pruning(captioner)
    after = published_arrays(captioner)
    for name, array in before.items():
        mask = after[name] != 0
        np.testing.assert_array_equal(after[name][mask], array[mask])
        assert mask.all() == (array.ndim == 1), name


def test_saved_and_loaded(captioner, inputs, tmp_path):
    captioner.save(tmp_path / "up_down.keras")
    again = keras.models.load_model(tmp_path / "up_down.keras")
    assert again.get_config() == captioner.get_config() and again.dropout_rate == 0.5
    np.testing.assert_array_equal(again(inputs), captioner(inputs))


def test_wrong_arguments_are_rejected(captioner):
    with pytest.raises(InputError, match="output_layers is 0"):
        UpDown(20, output_layers=0, **SMALL)
    with pytest.raises(InputError, match=r"pooled.*\[images, 7\]"):
        captioner.encode({"features": np.zeros((1, 4, 7), "float32"), "pooled": np.zeros((1, 8), "float32")})
