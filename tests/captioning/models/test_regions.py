"""Region features: masks, means, rejected inputs; probabilities of objects and their loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention, Transformer, UpDown
from tfsparsecap.captioning.models.regions import UNKNOWN_OBJECT, RegionCaptioner, attention_bias, mean_region
from tfsparsecap.errors import InputError


def regions(inputs, encoder, size):
    return RegionCaptioner(9, feature_size=size, encoder=encoder).regions(inputs)


GIVEN = np.array([[[1.0, 2.0], [3.0, 0.0]], [[4.0, 6.0], [0.0, 0.0]]], "float32")


def test_rows_of_zeros_are_padding_without_an_encoder():
    features, mask = regions({"features": GIVEN}, None, 2)
    np.testing.assert_array_equal(features, GIVEN)
    np.testing.assert_array_equal(mask, [[True, True], [True, False]])
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [4.0, 6.0]])


def test_all_cells_of_an_encoder_are_regions():
    features, mask = regions({"features": GIVEN}, keras.layers.Identity(), 2)
    assert mask is None
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [2.0, 3.0]])


@pytest.mark.parametrize("encoder", [None, keras.layers.Identity()])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_values_of_masked_rows_are_ignored(encoder, dtype):
    given = np.where(np.array([[1, 1], [0, 1]])[..., None], GIVEN, np.nan)
    features, mask = regions({"features": given, "mask": np.array([[1, 1], [0, 1]], dtype)}, encoder, 2)
    assert mask.dtype == "bool"
    np.testing.assert_array_equal(mean_region(features, mask), [[2.0, 1.0], [0.0, 0.0]])


def test_mean_of_no_regions_is_zero():
    np.testing.assert_array_equal(mean_region(*regions({"features": np.zeros((1, 3, 2))}, None, 2)), [[0, 0]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_bias_leaves_no_weight_to_padding(dtype):
    bias = attention_bias(np.array([[True, False], [False, False]]), dtype)
    assert bias.dtype == dtype
    weights = keras.ops.softmax(keras.ops.cast([[-100.0, 100.0], [1.0, 1.0]], dtype) + bias)
    np.testing.assert_array_equal(weights, [[1.0, 0.0], [0.5, 0.5]])


def test_feature_size_comes_from_the_encoder():
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Reshape((-1, 6))])
    assert RegionCaptioner(9, encoder=model).feature_size == 6


def test_wrong_inputs_are_rejected():
    with pytest.raises(InputError, match="RegionCaptioner needs feature_size"):
        RegionCaptioner(9)
    with pytest.raises(InputError, match="give feature_size"):
        RegionCaptioner(9, encoder=keras.layers.Flatten())
    with pytest.raises(InputError, match="encoder is 5: give a Keras layer"):
        RegionCaptioner(9, feature_size=2, encoder=5)
    with pytest.raises(InputError, match='without an encoder takes "features"'):
        regions({"image": np.zeros((1, 8, 8, 3))}, None, 2)
    with pytest.raises(InputError, match='takes "image" or "features"'):
        regions({"tokens": np.zeros((1, 2))}, keras.layers.Identity(), 2)
    for shape in ((2, 2), (1, 2, 3), (1, 0, 2)):
        with pytest.raises(InputError, match=r"\[images, regions, 2\]"):
            regions({"features": np.zeros(shape)}, None, 2)


OBJECTS = {"objects": ["cat", "dog", "sofa"]}
CAPTIONERS = {
    "soft_attention": lambda **more: SoftAttention(
        20, feature_size=7, embedding_size=6, rnn_size=8, attention_size=5, **more
    ),
    "up_down": lambda **more: UpDown(
        20, feature_size=7, embedding_size=6, rnn_size=8, attention_size=5, **more
    ),
    "transformer": lambda **more: Transformer(
        20, feature_size=7, size=8, hidden_size=8, layers=1, heads=2, max_length=8, **more
    ),
    "object_relations": lambda **more: ObjectRelationTransformer(
        20, feature_size=7, size=8, hidden_size=8, layers=1, heads=2, max_length=8, **more
    ),
}


@pytest.fixture
def region_inputs(inputs):
    boxes = np.sort(np.random.default_rng(5).random((3, 4, 2, 2)), axis=2).reshape(3, 4, 4)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)
    return {**inputs, "boxes": boxes.astype("float32"), "mask": mask}


def object_logits(captioner, features, mask):
    """log(sum_i exp(f_i W + b)) over the regions of each image, float64 [B, K]."""
    kernel, bias = (np.asarray(weight, np.float64) for weight in captioner.object_scores.weights)
    scores = [rows[kept] @ kernel + bias for rows, kept in zip(features, mask, strict=True)]
    return np.array([np.log(np.exp(each).sum(0)) for each in scores])


def with_likely_objects(kind):
    """A captioner whose probabilities are near 0.5, instead of rare objects."""
    captioner = CAPTIONERS[kind](**OBJECTS)
    np.testing.assert_array_equal(captioner.object_scores.bias, [-7.0] * 3)
    captioner.object_scores.bias.assign([-1.0, -2.0, 0.5])
    return captioner


@pytest.mark.parametrize("kind", CAPTIONERS)
def test_probabilities_of_objects_equal_the_formula_and_ignore_masked_regions(kind, region_inputs):
    captioner = with_likely_objects(kind)
    found = captioner.encode(region_inputs)["objects"]
    expected = object_logits(captioner, region_inputs["features"], region_inputs["mask"])
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-expected)), atol=1e-6)
    hidden = np.where(region_inputs["mask"][..., None], region_inputs["features"], 99).astype("float32")
    np.testing.assert_array_equal(captioner.encode({**region_inputs, "features": hidden})["objects"], found)
    assert "objects" not in CAPTIONERS[kind]().encode(region_inputs)
    again = type(captioner).from_config(captioner.get_config())
    assert again.objects == ("cat", "dog", "sofa") and again.get_config() == captioner.get_config()
    assert [w.shape for w in again.weights] == [w.shape for w in captioner.weights]


@pytest.mark.parametrize("kind", CAPTIONERS)
def test_the_loss_of_known_objects_reaches_the_head(kind, region_inputs):
    captioner = with_likely_objects(kind)
    captioner.object_weight = 0.5
    # Only one of the two images with known objects has all of them labelled.
    targets = np.array([[1, 0, 1], [-1, -1, -1], [0, -1, 1]], "float32")

    def losses(**more):
        return captioner.losses if captioner({**region_inputs, **more}, training=True) is not None else None

    with tf.GradientTape() as tape:
        (loss,) = losses(objects=targets)
    p = 1 / (1 + np.exp(-object_logits(captioner, region_inputs["features"], region_inputs["mask"])))
    cross_entropy = -np.log(np.where(targets == 1, p, 1 - p))[targets >= 0].sum() / 2
    np.testing.assert_allclose(loss, 0.5 * cross_entropy, rtol=1e-5)
    gradients = tape.gradient(loss, [*captioner.object_scores.weights, captioner.output_layer.kernel])
    assert all(np.abs(gradient).max() > 1e-4 for gradient in gradients[:2]) and gradients[2] is None
    assert float(losses(objects=np.full((3, 3), UNKNOWN_OBJECT, "float32"))[0]) == 0
    assert losses() == []
    compute = captioner.compute_loss
    logits = captioner({**region_inputs, "objects": targets}, training=True)
    whole = compute(region_inputs, region_inputs["tokens"], logits)
    captioner(region_inputs, training=True)
    np.testing.assert_allclose(
        whole - compute(region_inputs, region_inputs["tokens"], logits), 0.5 * cross_entropy, rtol=1e-4
    )


def test_the_words_of_a_caption_do_not_train_the_probabilities_of_objects(region_inputs):
    captioner = with_likely_objects("soft_attention")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(captioner(region_inputs)[..., 5])
    head, words, state = tape.gradient(
        loss,
        [captioner.object_scores.kernel, captioner.object_hidden.kernel, captioner.initial_hidden.kernel],
    )
    assert head is None and np.abs(words).max() > 0 and np.abs(state[-3:]).max() > 0
