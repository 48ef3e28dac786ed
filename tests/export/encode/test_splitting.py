"""Layers that are split for the int8 1x16 kernel, on the runtime, compared with NumPy."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.encode import encodings, sparse, splitting
from tfsparsecap_export.encode.encoded_file import encode_file
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph

pytestmark = pytest.mark.slow


def blocks(columns, outputs, density, seed=0):
    """A kernel in Keras's layout (inputs, outputs), sparse in blocks of 16 inputs."""
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random((-(-columns // 16), outputs)) < density, 16, axis=0)[:columns]
    return (rng.normal(size=(columns, outputs)) * mask).astype(np.float32)


def dense_model(kernel, activation=None, axes=()):
    model = keras.Sequential(
        [keras.Input((*axes, kernel.shape[0])), keras.layers.Dense(kernel.shape[1], activation=activation)]
    )
    bias = np.random.default_rng(2).normal(size=kernel.shape[1]).astype(np.float32)
    model.layers[-1].set_weights([kernel, bias])
    return model, bias


@pytest.mark.parametrize(
    ("columns", "density", "bounds"),
    [
        (32, 0.5, (0, 32)),
        (40, 0.5, (0, 48)),
        (4096, 0.1, (0, 4096)),
        (4097, 0.1, (0, 4096, 4112)),
        (9000, 0.1, (0, 4096, 8192, 9008)),
        (4096, 1.0, (0, 255 * 16, 4096)),
    ],
)
def test_the_number_of_parts_is_minimal(columns, density, bounds):
    values = np.ascontiguousarray(blocks(columns, 8, density).T)
    plan = splitting.plan_split(values)
    assert plan.bounds == bounds
    assert bool(str(plan)) == (columns not in (32, 4096) or len(bounds) > 2)


def test_no_part_exceeds_the_kernels_limits():
    values = np.zeros((3, 8192), np.float32)
    values[0, 1600:6400] = 1  # 300 blocks side by side
    values[1, ::32] = 1  # every second block: 256
    parts = splitting.plan_split(values).parts
    assert parts[0][0] == 0 and parts[-1][1] == 8192
    for start, stop in parts:
        counted = (values[:, start:stop].reshape(3, -1, 16) != 0).any(axis=2).sum(axis=1)
        assert counted.max() <= encodings.BLOCK16_MAX_BLOCKS_PER_ROW and stop - start <= 4096
    assert len(parts) == 2


@pytest.mark.parametrize(
    ("columns", "density", "activation", "axes"),
    [(100, 0.2, None, ()), (100, 0.2, "relu", (5,)), (5000, 0.05, "relu", ()), (4200, 1.0, None, (3,))],
)
def test_a_split_layer_gives_numpys_product(check_outputs, columns, density, activation, axes):
    kernel = blocks(columns, 64, density)
    model, bias = dense_model(kernel, activation, axes)
    dense = graph.model_graph(model)
    content, layers = encode_file(dense, "auto", steps=1)
    if density == 1.0:  # no format chooses full blocks; split them anyway
        file = flatfile.read_model(dense)
        (weight,) = sparse.find_weights(file)
        splitting.apply_split(file, weight, splitting.plan_split(weight.values), "kernel")
        changes = [sparse.change(part, encodings.BLOCK16) for part in sparse.find_weights(file)]
        sparse.rewrite(file, changes)
        content = flatfile.write_model(file)
    else:
        assert {layer.encoding for layer in layers} == {encodings.BLOCK16}
        assert sum(layer.shape[1] for layer in layers) == columns
        assert sum(layer.nonzeros for layer in layers) == np.count_nonzero(kernel)
        assert "padded" in layers[0].reason
    inputs = np.random.default_rng(1).normal(size=(1, *axes, columns)).astype(np.float32)
    expected = inputs @ kernel + bias
    expected = np.maximum(expected, 0) if activation else expected
    check_outputs(content, inputs, expected, 0.02)


def test_float_layers_are_not_split():
    dense = graph.model_graph(dense_model(blocks(100, 64, 0.2))[0])
    for format in ("fast", "compact", "dense"):
        _, layers = encode_file(dense, format, steps=1)
        assert [layer.shape for layer in layers] == [(64, 100)]
