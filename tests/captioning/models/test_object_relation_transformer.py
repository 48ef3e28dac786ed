"""Object Relation Transformer and ACORT against the original implementation."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import ObjectRelationTransformer
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.captioning.search.sampling import Sampler
from tfsparsecap.errors import InputError
from tfsparsecap.papers.published import load_published, published_arrays, published_captioner

SMALL = {"size": 16, "hidden_size": 24, "layers": 2, "heads": 4, "max_length": 7, "feature_size": 6}
NAMES = ("ort_tiny", "ort_tiny_share_qk", "acort_tiny_share_kv")
IMAGES = ("391895", "522418")


@pytest.fixture(scope="module")
def original(fixtures):
    """`original(name)`: a captioner with the original's weights, and the original's results."""
    made = {}

    def get(name):
        if name not in made:
            folder = fixtures / name
            content = json.loads((folder / "expected.json").read_text())
            captioner = published_captioner(content["config"])
            load_published(captioner, np.load(folder / "weights.npz"))
            made[name] = captioner, content["expected"], folder
        return made[name]

    return get


@pytest.fixture(scope="module")
def inputs_of(fixtures):
    folder = fixtures / "coco_bottom_up"

    def get(image):
        return {
            "features": np.load(folder / "cocobu_att" / f"{image}.npy")[None],
            "boxes": np.load(folder / "cocobu_box_relative" / f"{image}.npy")[None],
        }

    return get


@pytest.fixture
def inputs():
    random = np.random.default_rng(2)
    low = random.uniform(0, 0.5, (3, 5, 2))
    return {
        "features": random.normal(size=(3, 5, 6)).astype("float32"),
        "boxes": np.concatenate([low, low + random.uniform(0.1, 0.5, (3, 5, 2))], axis=-1).astype("float32"),
        "tokens": random.integers(0, 20, (3, 6)).astype("int32"),
    }


def make(**changes):
    keras.utils.set_random_seed(1)
    return ObjectRelationTransformer(20, **{**SMALL, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_encoder_and_log_probabilities_equal_the_originals(name, image, original, inputs_of):
    captioner, _, folder = original(name)
    reference, inputs = np.load(folder / f"reference_{image}.npz"), inputs_of(image)
    np.testing.assert_allclose(captioner.encode(inputs)["features"][0], reference["memory"], atol=1e-4)
    logits = captioner({**inputs, "tokens": reference["input_ids"][None]})
    np.testing.assert_allclose(tf.nn.log_softmax(logits)[0], reference["logprobs"], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_beam_search_finds_the_originals_captions(name, original, inputs_of):
    captioner, expected, _ = original(name)
    image_inputs = [inputs_of(image) for image in IMAGES]
    most = max(inputs["features"].shape[1] for inputs in image_inputs)
    # Rows of zeros are padding.
    batch = {
        key: np.concatenate(
            [
                np.pad(arrays[key], ((0, 0), (0, most - arrays[key].shape[1]), (0, 0)))
                for arrays in image_inputs
            ]
        )
        for key in image_inputs[0]
    }
    for key in expected[IMAGES[0]]:
        beam = int(key.removeprefix("beam_"))
        token_ids, scores = Decoder(captioner, beam, captioner.max_length)(batch)
        for row, image in enumerate(IMAGES):
            best = expected[image][key]
            length = len(best["token_ids"])
            assert token_ids[row, 0].numpy().tolist()[:length] == best["token_ids"]
            assert not token_ids[row, 0].numpy()[length:].any()
            assert float(scores[row, 0]) == pytest.approx(best["logprob"], abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_exported_under_their_published_names(name, original):
    captioner, _, folder = original(name)
    published, again = np.load(folder / "weights.npz"), published_arrays(captioner)
    assert again.keys() == set(published.files)
    for key, values in again.items():
        np.testing.assert_array_equal(values, published[key])


def test_padded_regions_change_nothing(inputs):
    captioner = make()
    wide = {name: np.pad(inputs[name], ((0, 0), (0, 3), (0, 0))) for name in ("features", "boxes")}
    np.testing.assert_allclose(captioner({**inputs, **wide}), captioner(inputs), atol=1e-5)


def test_boxes_of_a_feature_map_are_its_cells():
    features = np.random.default_rng(0).normal(size=(1, 4, 6)).astype("float32")

    class Grid(keras.layers.Layer):
        features_shape = (4, 6)

    captioner = make(encoder=Grid(), feature_size=None)
    cells = np.array([[[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]], "float32")
    tokens = np.ones((1, 3), "int32")
    logits = captioner({"features": features, "boxes": cells, "tokens": tokens})
    np.testing.assert_allclose(captioner({"features": features, "tokens": tokens}), logits, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share_encoder_layers": [0, 2]}, "share_encoder_layers is"),
        ({"share_decoder_layers": [0]}, "share_decoder_layers is"),
        ({"share_decoder_attention": "vk"}, '"kv", "qk"'),
        ({"heads": 3}, "not a multiple of 3 heads"),
        ({"layers": 0}, "layers is 0"),
    ],
)
def test_inconsistent_sizes_are_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        make(**changes)


def test_missing_or_malformed_boxes_are_rejected(inputs):
    with pytest.raises(InputError, match='takes "boxes" beside'):
        make()({"features": inputs["features"], "tokens": inputs["tokens"]})
    with pytest.raises(InputError, match="images, regions, 4"):
        make()({**inputs, "boxes": inputs["boxes"][..., :3]})


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_captions_longer_than_max_length_are_rejected(inputs):
    captioner = make()
    for search in (Decoder(captioner, 1, 8), Sampler(captioner, 2, 8)):
        with pytest.raises(InputError, match="have at most 7 tokens"):
            search(inputs)
    token_ids, _ = Decoder(captioner, 2, 7)(inputs)
    assert token_ids.shape == (3, 2, 7)
