"""Region features: masks, means, rejected inputs; probabilities of objects and their loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import (
    MobileNetV1Encoder,
    ObjectRelationTransformer,
    SoftAttention,
    Transformer,
    UpDown,
)
from tfsparsecap.captioning.models.regions import (
    UNKNOWN_OBJECT,
    AdditiveAttentionCaptioner,
    RegionCaptioner,
    attention_bias,
    mean_region,
)
from tfsparsecap.captioning.search.beam_search import beam_search
from tfsparsecap.errors import InputError
from tfsparsecap.gates import Gate, gates
from tfsparsecap.pruning import prune, strip_pruning


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
    values = np.where(np.array([[1, 1], [0, 1]])[..., None], GIVEN, np.nan)
    features, mask = regions({"features": values, "mask": np.array([[1, 1], [0, 1]], dtype)}, encoder, 2)
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
    scores = [rows[row_mask] @ kernel + bias for rows, row_mask in zip(features, mask, strict=True)]
    return np.array([np.log(np.exp(image_scores).sum(0)) for image_scores in scores])


def with_likely_objects(kind):
    """A captioner whose probabilities are near 0.5, instead of rare objects."""
    captioner = CAPTIONERS[kind](**OBJECTS)
    np.testing.assert_array_equal(captioner.object_scores.bias, [-7.0] * 3)
    captioner.object_scores.bias.assign([-1.0, -2.0, 0.5])
    return captioner


@pytest.mark.parametrize("kind", CAPTIONERS)
def test_probabilities_of_objects_equal_the_formula_and_ignore_masked_regions(kind, region_inputs):
    captioner = with_likely_objects(kind)
    probabilities = captioner.encode(region_inputs)["objects"]
    expected = object_logits(captioner, region_inputs["features"], region_inputs["mask"])
    assert probabilities.dtype == "float32"
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-expected)), atol=1e-6)
    hidden = np.where(region_inputs["mask"][..., None], region_inputs["features"], 99).astype("float32")
    np.testing.assert_array_equal(
        captioner.encode({**region_inputs, "features": hidden})["objects"], probabilities
    )
    assert "objects" not in CAPTIONERS[kind]().encode(region_inputs)
    again = type(captioner).from_config(captioner.get_config())
    assert again.objects == ("cat", "dog", "sofa") and again.get_config() == captioner.get_config()
    assert [w.shape for w in again.weights] == [w.shape for w in captioner.weights]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CAPTIONERS)
def test_the_loss_of_known_objects_reaches_the_head(kind, region_inputs):
    captioner = with_likely_objects(kind)
    captioner.object_weight = 0.5
    # Only one of the two images with known objects has all of them labelled.
    targets = np.array([[1, 0, 1], [-1, -1, -1], [0, -1, 1]], "float32")

    def object_loss(**more):
        captioner({**region_inputs, **more}, training=True)
        return captioner.other_losses()

    with tf.GradientTape() as tape:
        loss = object_loss(objects=targets)
    p = 1 / (1 + np.exp(-object_logits(captioner, region_inputs["features"], region_inputs["mask"])))
    cross_entropy = -np.log(np.where(targets == 1, p, 1 - p))[targets >= 0].sum() / 2
    np.testing.assert_allclose(loss, 0.5 * cross_entropy, rtol=1e-5)
    gradients = tape.gradient(loss, [*captioner.object_scores.weights, captioner.output_layer.kernel])
    assert all(np.abs(gradient).max() > 1e-4 for gradient in gradients[:2]) and gradients[2] is None
    assert float(object_loss(objects=np.full((3, 3), UNKNOWN_OBJECT, "float32"))) == 0
    assert object_loss() == 0
    compute = captioner.compute_loss
    logits = captioner({**region_inputs, "objects": targets}, training=True)
    total = compute(region_inputs, region_inputs["tokens"], logits)
    captioner(region_inputs, training=True)
    np.testing.assert_allclose(
        total - compute(region_inputs, region_inputs["tokens"], logits), 0.5 * cross_entropy, rtol=1e-4
    )


def test_the_loss_of_objects_does_not_depend_on_the_precision(region_inputs):
    losses = []
    for policy in ("float32", "mixed_bfloat16", "mixed_float16"):
        keras.utils.set_random_seed(1)
        captioner = CAPTIONERS["soft_attention"](**OBJECTS, dtype=policy)
        targets = np.array([[1, 0, 1], [-1, -1, -1], [0, -1, 1]], "float32")
        logits = captioner({**region_inputs, "objects": targets}, training=True)
        losses.append(float(captioner.compute_loss(region_inputs, region_inputs["tokens"], logits)))
    np.testing.assert_allclose(losses, losses[0], rtol=0.02)


def test_the_words_of_a_caption_do_not_train_the_probabilities_of_objects(region_inputs):
    captioner = with_likely_objects("soft_attention")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(captioner(region_inputs)[..., 5])
    head, words, state = tape.gradient(
        loss,
        [captioner.object_scores.kernel, captioner.object_hidden.kernel, captioner.initial_hidden.kernel],
    )
    assert head is None and np.abs(words).max() > 0 and np.abs(state[-3:]).max() > 0


SIZES = {"feature_size": 7, "embedding_size": 6, "rnn_size": 8, "attention_size": 5, "dropout": 0.5}

RNG = np.random.default_rng(0)
FEATURES, HIDDEN = (RNG.standard_normal(shape).astype("float32") for shape in ((2, 5, 4), (2, 6)))
MASK = np.array([[True, True, False, True, False], [True] * 5])


@pytest.mark.parametrize("share", [None, "kv"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_attention_equals_the_formula(share, mask):
    captioner = AdditiveAttentionCaptioner(9, attention_size=3, share_attention=share, feature_size=4)
    captioner.attention_features = captioner.dense("attention_features", 3, 4)
    captioner.attention_query = captioner.dense("attention_query", 3, 6)
    captioner.attention_score = captioner.dense("attention_score", 1, 3)
    keys = FEATURES @ captioner.attention_features.kernel.numpy()
    query = HIDDEN @ captioner.attention_query.kernel.numpy()
    exponentials = np.exp(np.tanh(keys + query[:, None]) @ captioner.attention_score.kernel.numpy()[:, 0]) * (
        1 if mask is None else mask
    )
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)

    memory = captioner.attention_memory(keras.ops.array(FEATURES), mask)
    assert ("features" in memory) == (share is None)
    weights = captioner.attention_weights(keras.ops.array(HIDDEN), memory)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    mean = (expected[:, :, None] * (keys if share == "kv" else FEATURES)).sum(axis=1)
    np.testing.assert_allclose(captioner.weighted_mean(weights, memory), mean, atol=1e-6)


def test_an_unknown_share_attention_is_rejected():
    with pytest.raises(InputError, match='share_attention is "qk"'):
        AdditiveAttentionCaptioner(9, attention_size=3, share_attention="qk", feature_size=4)


def made(kind, **options):
    keras.utils.set_random_seed(1)
    if kind == "up_down":
        return UpDown(20, output_layers=2, **{**SIZES, **options})
    return SoftAttention(20, cell=kind, **{**SIZES, **options})


@pytest.fixture(params=["lstm", "gru", "up_down"])
def kind(request):
    return request.param


@pytest.fixture
def captioner(kind):
    captioner = made(kind)
    for weight in captioner.weights:
        # Biases may start at 0, which would hide a missing one.
        weight.assign(weight + keras.random.normal(weight.shape, stddev=0.5))
    return captioner


def test_call_equals_stepping(captioner, inputs):
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    structure = {name: (value.shape, value.dtype) for name, value in state.items()}
    repeated = []
    for tokens in inputs["tokens"].T:
        logits, state = captioner.step(tokens, state, memory)
        assert {name: (value.shape, value.dtype) for name, value in state.items()} == structure
        repeated.append(logits)
    logits = captioner(inputs)
    assert logits.shape == (3, 6, 20) and logits.dtype == "float32"
    np.testing.assert_allclose(logits, np.stack(repeated, axis=1), atol=1e-5)


def test_captions_of_an_image_share_its_memory(captioner, inputs):
    tokens = inputs["tokens"][:, 0]
    memory = captioner.encode({"features": inputs["features"][:1]})
    repeated = tf.nest.map_structure(lambda x: tf.repeat(x, 3, axis=0), memory)
    state = captioner.initial_state(repeated)
    np.testing.assert_allclose(
        captioner.step(tokens, state, memory)[0], captioner.step(tokens, state, repeated)[0], atol=1e-5
    )


def test_call_with_sizes_unknown_to_the_graph(captioner, inputs):
    specs = {
        "features": tf.TensorSpec((None, None, None)),
        "tokens": tf.TensorSpec((None, None), tf.int32),
        "mask": tf.TensorSpec((None, None), tf.bool),
    }
    masked_inputs = {**inputs, "mask": np.ones((3, 4), bool)}
    looped = tf.function(lambda inputs: captioner(inputs), input_signature=[specs])(masked_inputs)
    np.testing.assert_allclose(looped, captioner(inputs), atol=1e-5)


def test_dropout_only_in_training(captioner, inputs):
    np.testing.assert_array_equal(captioner(inputs), captioner(inputs))
    assert not np.allclose(captioner(inputs, training=True), captioner(inputs))


def test_every_weight_gets_a_gradient(captioner, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(captioner(inputs) ** 2)
    weights = captioner.trainable_variables
    for weight, gradient in zip(weights, tape.gradient(loss, [w.value for w in weights]), strict=True):
        # Softmax ignores a constant added to all scores.
        unseen = weight is captioner.attention_score.bias
        assert unseen or np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


def test_gates_are_sampled_once_per_pass_and_stripping_applies_them(captioner, inputs, monkeypatch):
    prune(captioner, "supermask", sparsity=0.5, total_steps=10)
    for gate in gates(captioner):
        gate.logits.assign(keras.random.normal(gate.logits.shape))
    samples = []
    mask = Gate.mask
    monkeypatch.setattr(Gate, "mask", lambda gate, *arguments: samples.append(gate) or mask(gate, *arguments))
    for run in (lambda: captioner(inputs, training=True), lambda: beam_search(captioner, inputs, 2, 4)):
        samples.clear()
        run()
        assert len(samples) == len(set(map(id, samples))) == len(gates(captioner))
    logits, (token_ids, scores) = captioner(inputs), beam_search(captioner, inputs, 2, 4)
    strip_pruning(captioner)
    np.testing.assert_allclose(captioner(inputs), logits, atol=1e-6)
    stripped_ids, stripped_scores = beam_search(captioner, inputs, 2, 4)
    np.testing.assert_array_equal(stripped_ids, token_ids)
    np.testing.assert_allclose(stripped_scores, scores, atol=1e-5)


def test_mixed_precision_gives_float32_logits_close_to_full_precision(kind, inputs):
    full, mixed = made(kind), made(kind, dtype="mixed_float16")
    mixed.set_weights(full.get_weights())
    assert {weight.dtype for weight in mixed.weights} == {"float32"}
    masked_inputs = {**inputs, "mask": np.arange(4) < np.array([[4], [3], [1]])}
    logits = mixed(masked_inputs)
    assert logits.dtype == "float32"
    np.testing.assert_allclose(logits, full(masked_inputs), atol=0.05)


def test_padded_regions_are_not_attended_to(captioner, inputs):
    filled = np.concatenate([inputs["features"], np.zeros((3, 2, 7), "float32")], axis=1)
    np.testing.assert_allclose(captioner({**inputs, "features": filled}), captioner(inputs), atol=1e-5)
    masked = np.concatenate([inputs["features"], np.ones((3, 2, 7), "float32")], axis=1)
    masked_inputs = {**inputs, "features": masked, "mask": np.arange(6)[None] < [[4]] * 3}
    np.testing.assert_allclose(captioner(masked_inputs), captioner(inputs), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "up_down"])
def test_features_replace_the_encoders_output(kind):
    encoder = MobileNetV1Encoder(0.25, "conv_pw_1_relu", 32, weights=None)
    captioner = made(kind, feature_size=None, encoder=encoder)
    again = type(captioner).from_config(captioner.get_config())
    assert again.feature_size == encoder.features_shape[1]
    assert again.encoder.count_params() == encoder.count_params()
    images = np.random.default_rng(5).integers(0, 256, (2, 32, 32, 3)).astype("uint8")
    tokens = np.ones((2, 3), "int32")
    np.testing.assert_allclose(
        captioner({"features": encoder(images), "tokens": tokens}),
        captioner({"image": images, "tokens": tokens}),
        atol=1e-6,
    )
