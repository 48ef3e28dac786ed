"""Encoders: their features, frozen, trainable and gated weights, and rejected arguments."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import save_file

from tfsparsecap.captioning.models import (
    EfficientNetLiteEncoder,
    InceptionV1Encoder,
    MobileNetV1Encoder,
    TinyViTEncoder,
)
from tfsparsecap.captioning.models.image_encoders.applications import ApplicationsEncoder
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gated_layers
from tfsparsecap.pruning import Supermask, SupermaskLoss, prune, strip_pruning
from tfsparsecap.slimming.plan import slim

from .timm_features import CHANNELS, FILE, NETWORKS, fill, image


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).integers(0, 256, (2, 64, 64, 3)).astype("uint8")


def small(**changes):
    return MobileNetV1Encoder(
        **{"width": 0.25, "layer": "conv_pw_2_relu", "image_size": 64, "weights": None, **changes}
    )


def small_inception(**changes):
    return InceptionV1Encoder(**{"layer": "Mixed_3b", "image_size": 64, "weights": None, **changes})


@pytest.mark.slow
def test_equals_keras_applications_with_imagenet_weights(shared, monkeypatch):
    # What KERAS_HOME sets in a new process, whose start would take seconds.
    monkeypatch.setattr(keras.src.backend.config, "_KERAS_DIR", str(shared("weights/keras_home")))
    images = np.random.default_rng(1).integers(0, 256, (1, 224, 224, 3)).astype("uint8")
    mobilenet = keras.applications.mobilenet
    network = mobilenet.MobileNet((224, 224, 3), alpha=0.75, weights="imagenet", include_top=False)
    expected = network(mobilenet.preprocess_input(images.astype("float32")))
    encoder = MobileNetV1Encoder()
    assert encoder.features_shape == (49, 768)
    np.testing.assert_allclose(encoder(images), np.reshape(expected, (1, 49, 768)), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "shape"),
    [("conv1_relu", (1024, 8)), ("conv_pw_3_relu", (256, 32)), ("conv_pw_11_relu", (16, 128))],
)
def test_features_come_from_the_given_layer(images, layer, shape):
    encoder = small(layer=layer)
    assert encoder.features_shape == shape
    assert encoder(images).shape == (2, *shape)
    assert encoder.compute_output_shape((None, 64, 64, 3)) == (None, *shape)


def test_frozen_batch_normalisation_does_not_change(images):
    encoder = small()
    before = encoder.get_weights()
    features = encoder(images, training=True)
    assert encoder.trainable_variables == []
    np.testing.assert_array_equal(features, encoder(images))
    for old, new in zip(before, encoder.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_trainable_encoders_update_their_averages_with_the_given_momentum(images):
    encoder = small(batch_norm_momentum=0.5)
    encoder.trainable = True
    assert len(encoder.trainable_variables) > 10
    norm = encoder.backbone.get_layer("conv1_bn")
    encoder(images, training=True)
    assert norm.momentum == 0.5
    assert np.all(np.asarray(norm.moving_variance) <= 0.5 + 0.5 * 4)
    assert np.abs(norm.moving_mean).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("make", [small, small_inception])
def test_configuration_keeps_the_policy_and_has_no_weights(make):
    encoder = make(trainable=True, dtype="mixed_bfloat16")
    config = keras.saving.serialize_keras_object(encoder)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == encoder.get_config()
    assert again.get_config()["weights"] is None and again.trainable
    assert again.backbone.layers[1].dtype_policy.name == "mixed_bfloat16"
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.slow
def test_inception_scales_images_to_minus_one_to_one_and_ends_at_the_layer_of_the_paper():
    encoder = InceptionV1Encoder()
    assert (encoder.layer, encoder.image_size, encoder.features_shape) == ("Mixed_4f", 224, (14 * 14, 832))
    images = np.random.default_rng(1).integers(0, 256, (1, 224, 224, 3)).astype("uint8")
    expected = encoder.backbone(images / np.float32(127.5) - 1)
    assert np.std(expected) > 0.1
    np.testing.assert_allclose(encoder(images), np.reshape(expected, (1, 14 * 14, 832)), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (
            small_inception,
            {"layer": "mixed_4f"},
            "layer is mixed_4f, and Inception-V1 has no such layer: did you mean Mixed_4f",
        ),
        (small_inception, {"image_size": 31}, "Inception-V1 needs images of at least 32"),
        (small_inception, {"weights": "imagenet"}, "Keras does not have for Inception-V1"),
        (small_inception, {"weights": "absent.ckpt"}, r"there is no checkpoint absent\.ckpt"),
        (small, {"width": 0}, "above 0"),
        (small, {"width": 0.3, "weights": "imagenet"}, "no ImageNet weights for width 0.3"),
        (small, {"weights": "coco"}, 'weights is "coco"'),
    ],
)
def test_unusable_arguments_are_rejected(make, arguments, message):
    with pytest.raises(InputError, match=message):
        make(**arguments)


def test_images_of_another_size_are_rejected():
    with pytest.raises(InputError, match=r"\(64, 64, 3\), not \(32, 32, 3\)"):
        small()(np.zeros((1, 32, 32, 3), "uint8"))


def test_a_failed_download_is_reported(monkeypatch):
    def unreachable(**arguments):
        raise OSError("URL fetch failure\non all of it")

    monkeypatch.setattr(keras.applications, "MobileNet", unreachable)
    with pytest.raises(InputError, match=r"\(URL fetch failure\): set KERAS_HOME"):
        small(weights="imagenet")


def convolutions(encoder):
    kinds = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D)
    return [layer for layer in encoder.backbone.layers if isinstance(layer, kinds)]


def classifier(encoder):
    image = keras.Input((encoder.image_size, encoder.image_size, 3))
    x = keras.layers.GlobalAveragePooling1D()(encoder(image))
    return keras.Model(image, keras.layers.Dense(3, name="head")(x))


def kernels_and_statistics(encoder):
    return {weight.path: np.asarray(weight) for weight in encoder.weights if "gate" not in weight.path}


def gates_of(encoder):
    return [layer.kernel_gate for layer in convolutions(encoder)]


MOBILENET = [("conv1", "GatedConv2D")] + [
    (f"conv_{kind}_{number}", "GatedDepthwiseConv2D" if kind == "dw" else "GatedConv2D")
    for number in range(1, 14)
    for kind in ("dw", "pw")
]


@pytest.mark.slow
def test_every_convolution_of_mobilenet_is_gated():
    encoder = MobileNetV1Encoder(0.25, image_size=32, weights=None)
    model = classifier(encoder)
    for frozen in (True, False):
        encoder.trainable = not frozen
        prune(model, Supermask(0.5, total_steps=10), prune_frozen=frozen, skip="head")
        assert [(layer.name, type(layer).__name__) for layer in convolutions(encoder)] == MOBILENET
        model = strip_pruning(model)


@pytest.mark.slow
def test_gates_of_a_frozen_encoder_learn_while_its_weights_do_not_change(images):
    keras.utils.set_random_seed(4)
    encoder = small(layer="conv_pw_1_relu", dtype="mixed_bfloat16")
    model = classifier(encoder)
    head = np.asarray(model.get_layer("head").kernel)
    before = kernels_and_statistics(encoder)
    prune(model, Supermask(0.7, total_steps=8), prune_frozen=True)
    assert "it is not trainable" not in model.pruning.ungated_layers.values()
    trained = {id(variable) for variable in model.trainable_variables}
    assert trained == {
        *(id(gate.logits) for gate in gates_of(encoder)),
        *(id(weight) for weight in model.get_layer("head").trainable_variables),
    }
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    labels = np.array([0, 1])
    history = model.fit(images, labels, batch_size=1, epochs=4, verbose=0).history
    assert history["sparsity"][-1] == pytest.approx(0.7, abs=1e-3)
    assert any(np.any(np.asarray(gate.logits) < 0) for gate in gates_of(encoder))
    after = kernels_and_statistics(encoder)
    assert set(after) == set(before)
    for path, values in before.items():
        np.testing.assert_array_equal(after[path], values, err_msg=path)
    assert np.any(model.get_layer("head").kernel != head)

    # If it is trainable, all variables are trained.
    encoder.trainable = True
    assert len(model.trainable_variables) == len(trained) + len(encoder.backbone.trainable_variables) - len(
        gates_of(encoder)
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    model.fit(images, labels, verbose=0)
    moved = [
        path for path, values in kernels_and_statistics(encoder).items() if np.any(values != before[path])
    ]
    assert any("moving_mean" in path for path in moved) and any("kernel" in path for path in moved)

    # If it is frozen again, only the gates are trained.
    encoder.trainable = False
    assert {id(variable) for variable in model.trainable_variables} == trained
    strip_pruning(model)
    assert not gated_layers(model) and encoder.trainable_variables == []
    kernels = [np.asarray(layer.kernel) for layer in [*convolutions(encoder), model.get_layer("head")]]
    zeros = 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)
    assert zeros == pytest.approx(0.7, abs=1e-3)


@pytest.mark.slow
def test_gates_of_a_frozen_encoder_are_sampled_in_training(images):
    encoder = small()
    model = prune(classifier(encoder), SupermaskLoss(0.5, total_steps=100), prune_frozen=True)
    for gate in gates_of(encoder):
        gate.logits.assign(gate.logits * 0.4)  # sigmoid(2): one in eight is sampled closed
    rounded = np.asarray(model(images))
    np.testing.assert_array_equal(model(images, training=False), rounded)
    first, second = np.asarray(model(images, training=True)), np.asarray(model(images, training=True))
    assert np.any(first != rounded) and np.any(first != second)


def test_a_smaller_network_replaces_the_backbone_and_is_saved(images):
    encoder = small()
    positions, channels = encoder.features_shape
    image = encoder.backbone.inputs[0]
    encoder.replace(keras.Model(image, keras.layers.Conv2D(channels, 3, 4, padding="same")(image)))
    assert encoder.features_shape == (positions, channels)
    again = type(encoder).from_config(encoder.get_config())
    again.set_weights(encoder.get_weights())
    np.testing.assert_allclose(again(images), encoder(images), atol=1e-6)
    assert not again.trainable_variables and len(again.weights) == 2
    wrong = keras.Model(image, keras.layers.Conv2D(channels + 1, 3, 4, padding="same")(image))
    with pytest.raises(InputError, match="cannot replace that of MobileNet-V1, whose shapes are"):
        encoder.replace(wrong)


@pytest.mark.slow
def test_a_replaced_network_can_be_partly_frozen(images):
    encoder = small(layer="conv_pw_3_relu", frozen_until="conv_pw_2_relu", trainable=True)
    encoder.replace(slim(encoder.backbone, 0.3))
    part = encoder.frozen_part()
    assert part.features_shape[1] < small().features_shape[1]
    np.testing.assert_allclose(encoder.finish(part(images)), encoder(images), atol=1e-5)


# Of the published classifiers (4 652 008 for Lite0), without 1000 * 1281 in the last layer, and with the mean
# and variance of batch normalisation: image size, depthwise convolutions, parameters.
LITE = [(224, 16, 3_413_024), (240, 21, 4_189_344), (260, 21, 4_869_168), (280, 24, 6_992_768)]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_features_equal_those_of_timm(network, tmp_path):
    with np.load(FILE) as file:
        expected, shapes = file[network], json.loads(str(file[f"{network}.shapes"]))
    save_file(fill(shapes), tmp_path / "model.safetensors")
    if network == "tiny_vit_5m":
        encoder = TinyViTEncoder(weights=str(tmp_path / "model.safetensors"))
    else:
        variant = int(network[-1])
        encoder = EfficientNetLiteEncoder(variant, weights=str(tmp_path / "model.safetensors"))
        kinds = [type(layer) for layer in encoder.backbone.layers]
        sizes = encoder.image_size, kinds.count(keras.layers.DepthwiseConv2D), encoder.count_params()
        assert sizes == LITE[variant]
    features = np.asarray(encoder(image(encoder.image_size)))[0, :, CHANNELS]
    assert expected.std() > 0.5 and len(features) == expected[..., 0].size
    np.testing.assert_allclose(features, expected.reshape(features.shape), rtol=0, atol=1e-3)


LATER = {"conv_dw_4", "conv_pw_4"}


@pytest.fixture
def encoder():
    keras.utils.set_random_seed(1)
    return MobileNetV1Encoder(0.25, "conv_pw_4_relu", 64, None, trainable=True, frozen_until="conv_pw_3_relu")


def trained(encoder):
    return {weight.path.split("/")[-2] for weight in encoder.trainable_weights}


def test_only_later_layers_are_trained(encoder, images):
    before = {weight.path: np.array(weight) for weight in encoder.weights}
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(encoder(images, training=True)))
    variables = encoder.trainable_weights
    keras.optimizers.SGD(1.0).apply(tape.gradient(loss, [v.value for v in variables]), variables)
    changed = {w.path.split("/")[-2] for w in encoder.weights if np.any(np.array(w) != before[w.path])}
    assert changed == trained(encoder) == LATER


@pytest.mark.parametrize("outer", [False, True])
def test_they_stay_the_only_ones_when_the_encoder_is_frozen_and_trained_again(encoder, outer):
    owner = keras.Sequential([encoder]) if outer else encoder
    owner.trainable = False
    assert not trained(encoder)
    owner.trainable = True
    assert trained(encoder) == LATER


@pytest.mark.slow
def test_the_frozen_part_is_the_network_up_to_the_layer(encoder, images):
    stock = keras.applications.MobileNet((64, 64, 3), alpha=0.25, weights=None, include_top=False)
    for layer in encoder.backbone.layers[1:]:
        stock.get_layer(layer.name).set_weights(layer.get_weights())
    expected = keras.Model(stock.input, stock.get_layer("conv_pw_3_relu").output)(images / 127.5 - 1.0)
    frozen = encoder.frozen_part()(images)
    np.testing.assert_allclose(frozen, np.reshape(expected, (2, 256, 32)), atol=1e-5)
    for training in (False, True):
        np.testing.assert_allclose(
            encoder.finish(frozen, training), encoder(images, training=training), atol=1e-5
        )


@pytest.mark.slow
def test_dropout_of_frozen_layers_is_off(images):
    # EfficientNet drops whole blocks in training.
    encoder = ApplicationsEncoder(
        "EfficientNetB0", image_size=64, weights=None, trainable=True, frozen_until="block6d_add"
    )
    frozen = encoder.frozen_part()(images)
    keras.utils.set_random_seed(1)
    expected = encoder(images, training=True)
    keras.utils.set_random_seed(1)
    np.testing.assert_allclose(encoder.finish(frozen, training=True), expected, atol=1e-4)


@pytest.mark.slow
def test_it_is_saved(encoder, images, tmp_path):
    encoder.trainable = False
    model = keras.Sequential([keras.Input((64, 64, 3)), encoder])
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras", "save it again")
    np.testing.assert_array_equal(loaded(images), model(images))
    loaded.layers[0].trainable = True
    assert trained(loaded.layers[0]) == LATER


@pytest.mark.slow
def test_rejected_layers():
    with pytest.raises(InputError, match="until is conv_pw_2_relu, the last layer of MobileNet-V1: name an"):
        small(frozen_until="conv_pw_2_relu")
    with pytest.raises(
        InputError, match=r"until is conv_pw_9, and MobileNet-V1 has no such .* mean conv_pw_"
    ):
        small(frozen_until="conv_pw_9")
    message = r"cannot be frozen until stages\.3\.blocks\.0\.attn: later layers also u"
    with pytest.raises(InputError, match=message):
        TinyViTEncoder(image_size=32, weights=None, frozen_until="stages.3.blocks.0.attn")


@pytest.mark.slow
def test_finish_needs_what_the_frozen_part_computes(encoder):
    with pytest.raises(InputError, match=r"shape \(2, 49, 32\), not \[images, 256, 32\]: compute it with fr"):
        encoder.finish(np.zeros((2, 49, 32), "float32"))
    with pytest.raises(InputError, match="no layer of the encoder is frozen: set frozen_until"):
        MobileNetV1Encoder(0.25, "conv_pw_2_relu", 64, None).finish(np.zeros((2, 256, 32), "float32"))
