"""Inception-V1 against published sizes and names, and against the same network in TensorFlow 1."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models.image_encoders.inception_v1 import inception_v1, load_slim_checkpoint
from tfsparsecap.errors import InputError

pytestmark = pytest.mark.slow

v1 = tf.compat.v1
# Table 1 of "Going Deeper with Convolutions": #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool proj; what is
# 5x5 there is 3x3 here.
TABLE = """
3b 64 96 128 16 32 32
3c 128 128 192 32 96 64
4b 192 96 208 16 48 64
4c 160 112 224 24 64 64
4d 128 128 256 24 64 64
4e 112 144 288 32 64 64
4f 256 160 320 32 128 128
5b 256 160 320 32 128 128
5c 384 192 384 48 128 128
"""
ROWS = {f"Mixed_{name}": list(map(int, sizes)) for name, *sizes in map(str.split, TABLE.strip().splitlines())}
SIZE = 50  # its half, quarter and so on are odd and even: padding comes on either side
FULL = "InceptionV1/Mixed_5c/Branch_1/Conv2d_0b_3x3/"


def reference(image, rng):
    """Builds the network in a TensorFlow 1 graph: name -> activation, like TF-Slim's end points."""

    def convolution(x, channels, size, stride=1):
        shape = [size, size, x.shape[-1], channels]
        deviation = np.sqrt(2.0 / (size * size * int(x.shape[-1])))
        kernel = v1.get_variable("weights", initializer=rng.normal(0, deviation, shape).astype("float32"))
        with v1.variable_scope("BatchNorm"):
            beta, mean = (
                v1.get_variable(name, initializer=rng.normal(0, 0.3, channels).astype("float32"))
                for name in ("beta", "moving_mean")
            )
            variance = v1.get_variable(
                "moving_variance", initializer=rng.uniform(0.5, 2, channels).astype("float32")
            )
        x = tf.nn.conv2d(x, kernel, stride, "SAME")
        return tf.nn.relu((x - mean) / tf.sqrt(variance + 0.001) + beta)

    def named(name, x, channels, size, stride=1):
        with v1.variable_scope(name):
            return convolution(x, channels, size, stride)

    with v1.variable_scope("InceptionV1"):
        ends = {"Conv2d_1a_7x7": named("Conv2d_1a_7x7", image, 64, 7, 2)}
        x = tf.nn.max_pool2d(ends["Conv2d_1a_7x7"], 3, 2, "SAME")
        ends["Conv2d_2b_1x1"] = named("Conv2d_2b_1x1", x, 64, 1)
        ends["Conv2d_2c_3x3"] = named("Conv2d_2c_3x3", ends["Conv2d_2b_1x1"], 192, 3)
        x = tf.nn.max_pool2d(ends["Conv2d_2c_3x3"], 3, 2, "SAME")
        for block, (alone, before, after, narrow, wide, pooled) in ROWS.items():
            if block == "Mixed_4b":
                x = tf.nn.max_pool2d(x, 3, 2, "SAME")
            if block == "Mixed_5b":
                x = tf.nn.max_pool2d(x, 2, 2, "SAME")
            slip = "Conv2d_0a_3x3" if block == "Mixed_5b" else "Conv2d_0b_3x3"
            with v1.variable_scope(block):
                with v1.variable_scope("Branch_0"):
                    first = named("Conv2d_0a_1x1", x, alone, 1)
                with v1.variable_scope("Branch_1"):
                    second = named("Conv2d_0b_3x3", named("Conv2d_0a_1x1", x, before, 1), after, 3)
                with v1.variable_scope("Branch_2"):
                    third = named(slip, named("Conv2d_0a_1x1", x, narrow, 1), wide, 3)
                with v1.variable_scope("Branch_3"):
                    fourth = named("Conv2d_0b_1x1", tf.nn.max_pool2d(x, 3, 1, "SAME"), pooled, 1)
            ends[block] = x = tf.concat([first, second, third, fourth], 3)
    return ends


@pytest.fixture(scope="module")
def slim(tmp_path_factory):
    """(checkpoint in one file, like the published one; in several; image; name -> activation)."""
    folder = tmp_path_factory.mktemp("slim")
    rng = np.random.default_rng(5)
    image = rng.uniform(-1, 1, (2, SIZE, SIZE, 3)).astype("float32")
    with tf.Graph().as_default(), v1.Session() as session:
        ends = reference(tf.constant(image), rng)
        v1.get_variable("InceptionV1/Logits/Conv2d_0c_1x1/biases", [1001])
        session.run(v1.global_variables_initializer())
        old = v1.train.Saver(write_version=v1.train.SaverDef.V1)
        checkpoint = old.save(session, str(folder / "inception_v1.ckpt"))
        several = v1.train.Saver().save(session, str(folder / "several.ckpt"))
        return checkpoint, several, image, session.run(ends)


@pytest.fixture(scope="module")
def network():
    return inception_v1(SIZE)


def test_a_checkpoint_gives_the_activations_of_its_network(slim, network):
    checkpoint, several, image, expected = slim
    names = {name: name if name.startswith("Mixed") else f"{name}_Relu" for name in expected}
    layers = {name: network.get_layer(ours).output for name, ours in names.items()}
    inner = keras.Model(network.input, layers)
    assert len(expected) == 12
    for path in (checkpoint, f"{several}.index"):
        network.set_weights([np.zeros(weight.shape) for weight in network.weights])
        load_slim_checkpoint(network, path)
        activations = inner(image)
        for name, values in expected.items():
            assert values.std() > 0.1
            atol = 1e-5 * np.abs(values).max()
            np.testing.assert_allclose(activations[name], values, atol=atol, err_msg=name)
    np.testing.assert_array_equal(network(image), activations["Mixed_5c"])


def test_the_number_of_weights_follows_from_the_published_table(network):
    convolutions = {layer.name: layer for layer in network.layers if isinstance(layer, keras.layers.Conv2D)}
    total, channels, inputs = 7 * 7 * 3 * 64 + 64 * 64 + 3 * 3 * 64 * 192, 64 + 64 + 192, 192
    for block, (alone, before, after, narrow, wide, pooled) in ROWS.items():
        kernels = [layer.kernel.shape for name, layer in convolutions.items() if name.startswith(block)]
        expected = inputs * (alone + before + narrow + pooled) + 9 * before * after + 9 * narrow * wide
        assert len(kernels) == 6 and sum(map(np.prod, kernels)) == expected
        total += expected
        channels += alone + before + after + narrow + wide + pooled
        inputs = alone + after + wide + pooled
    assert len(convolutions) == 57
    assert sum(np.prod(layer.kernel.shape) for layer in convolutions.values()) == total == 5_585_344
    # Batch normalisation has beta, mean and variance.
    assert network.count_params() == total + 3 * channels
    assert sum(np.prod(weight.shape) for weight in network.trainable_weights) == total + channels


def test_the_feature_map_has_its_shape_and_layers_have_the_given_policy(network):
    reduced = inception_v1(225, dtype="mixed_bfloat16")
    for made, size in ((reduced, 15), (network, 4)):
        assert made.get_layer("Mixed_4f").output.shape == (None, size, size, 832)
    assert {layer.dtype_policy.name for layer in reduced.layers[1:]} == {"mixed_bfloat16"}
    assert reduced.output.dtype == "bfloat16"


def changed(slim, folder, change):
    """A copy of the checkpoint with changed tensors: `change` gets name -> array."""
    reader = tf.train.load_checkpoint(slim[0])
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    change(tensors)
    path = str(folder / "changed.ckpt")
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(FULL + "weights"), r"has no InceptionV1/Mixed_5c.*: it contains"),
        (
            lambda tensors: tensors.update({FULL + "weights": np.ones((3, 3, 384, 192), "float32")}),
            r"has the shape \(3, 3, 384, 192\), but .*Inception-V1 needs \(3, 3, 192, 384\)",
        ),
        (lambda tensors: tensors.update({FULL + "BatchNorm/beta": np.ones(384, "int64")}), "integers"),
        (
            lambda tensors: tensors[FULL + "BatchNorm/moving_variance"].__setitem__(3, -1.0),
            "moving_variance in .* negative",
        ),
        (lambda tensors: tensors[FULL + "weights"].__setitem__((0, 0, 0, 0), np.nan), "NaN"),
    ],
)
def test_unsuitable_checkpoints_are_rejected_and_change_nothing(slim, tmp_path, network, change, message):
    path = changed(slim, tmp_path, change)
    before = network.get_weights()
    with pytest.raises(InputError, match=message):
        load_slim_checkpoint(network, path)
    for old, new in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [("one", "cut"), ("one", "empty"), ("index", "overwritten"), ("index", "absent"), ("data", "absent")],
)
def test_damaged_checkpoints_are_rejected_and_change_nothing(slim, tmp_path, network, kind, damage):
    checkpoint, several, *_ = slim
    path = tmp_path / "bad.ckpt"
    if kind == "one":
        victim = shutil.copy(checkpoint, path)
    else:
        for end in ("index", "data-00000-of-00001"):
            shutil.copy(f"{several}.{end}", f"{path}.{end}")
        victim = f"{path}.{'index' if kind == 'index' else 'data-00000-of-00001'}"
    with open(victim, "rb") as file:
        content = bytearray(file.read())
    middle = len(content) // 2
    content[middle : middle + 40] = b"\xff" * 40
    content = {"cut": content[: middle - 7], "overwritten": content, "empty": b""}.get(damage)
    with open(victim, "wb") as file:
        file.write(content or b"")
    if damage == "absent":
        (tmp_path / victim).unlink()
    before = network.get_weights()
    message = "there is no checkpoint" if damage == "absent" and kind != "data" else "cannot be read"
    with pytest.raises(InputError, match=message):
        load_slim_checkpoint(network, path)
    for old, new in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.ckpt", r"there is no checkpoint .*absent"),
        ("", "is a folder"),
        ("text.ckpt", r"text\.ckpt cannot be read"),
    ],
)
def test_paths_without_a_checkpoint_are_rejected(network, tmp_path, name, message):
    (tmp_path / "text.ckpt").write_text("InceptionV1")
    with pytest.raises(InputError, match=message):
        load_slim_checkpoint(network, tmp_path / name)
