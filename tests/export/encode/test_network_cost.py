"""The time that a file is expected to take on a device."""

import keras
import pytest
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.encode.encoded_file import encode_file
from tfsparsecap_export.encode.int8_activations import likely_network
from tfsparsecap_export.encode.network_cost import network_ms
from tfsparsecap_export.keras_to_tflite.graph import model_graph

from benchmarks import one_layer

from ..conftest import uneven

ARM64 = kernel_costs("arm64")


@pytest.mark.parametrize(
    "encoding", [encodings.DENSE, encodings.INT8, encodings.CSR, encodings.BLOCK4, encodings.BLOCK16]
)
def test_a_product_costs_what_its_encoding_costs(encoding):
    block = encodings.ENCODINGS[encoding].block or 1
    matrix = uneven(64, 128, block)
    stored = int((matrix != 0).sum())
    content = one_layer.fully_connected([matrix], encoding, rows=3)
    expected = ARM64.product(encoding, rows=3, outputs=64, inputs=128, stored=stored)
    assert network_ms(content, ARM64) == pytest.approx(expected / 1e6)
    dense = one_layer.fully_connected([matrix], encodings.DENSE, rows=3)
    int8 = ARM64.product(encodings.INT8, rows=3, outputs=64, inputs=128, stored=0)
    assert network_ms(dense, ARM64, int8=True) == pytest.approx(int8 / 1e6)


def test_convolutions_cost_their_multiplications():
    layers = [
        keras.Input((8, 8, 16)),
        keras.layers.Conv2D(32, 3, padding="same"),
        keras.layers.DepthwiseConv2D(3, padding="same"),
    ]
    content = model_graph(keras.Sequential(layers))
    of_filters = 8 * 8 * 32 * (3 * 3 * 16 * ARM64.convolution + 3 * 3 * ARM64.depthwise)
    expected = of_filters * ARM64.nanoseconds / 1e6
    assert network_ms(content, ARM64) == pytest.approx(expected, rel=0.05)
    assert network_ms(content, ARM64, int8=True) < 0.5 * expected


def test_int8_transposed_convolutions_cost_their_multiplications():
    layers = [keras.Input((8, 8, 64)), keras.layers.Conv2DTranspose(64, 4, strides=2, padding="same")]
    dense = model_graph(keras.Sequential(layers))
    int8 = likely_network(dense, lambda layer: True)
    elements = 8 * 8 * 64 + 16 * 16 * 64  # of the input and the result
    expected = 8 * 8 * 4 * 4 * 64 * 64 * ARM64.convolution_int8 + 1.5 * elements
    assert network_ms(int8, ARM64) == pytest.approx(expected * ARM64.nanoseconds / 1e6, rel=0.05)


def test_3d_convolutions_cost_their_multiplications_as_float32():
    layers = [
        keras.Input((6, 8, 8, 16)),
        keras.layers.Conv3D(32, 3, padding="same"),
        keras.layers.Conv3DTranspose(8, 3, strides=2, padding="same"),
    ]
    content = model_graph(keras.Sequential(layers))
    # A transposed convolution spreads each input.
    multiplications = 6 * 8 * 8 * 3**3 * (16 * 32 + 2 * 32 * 8)
    expected = multiplications * ARM64.convolution * ARM64.nanoseconds / 1e6
    assert network_ms(content, ARM64) == pytest.approx(expected, rel=0.05)
    assert network_ms(content, ARM64, int8=True) == network_ms(content, ARM64)


def test_weights_that_are_expanded_when_the_file_is_loaded_cost_nothing():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
    dense = model_graph(model)
    content, (layer,) = encode_file(dense, "compact")
    assert layer.encoding == encodings.FLOAT16
    assert network_ms(content, ARM64) == network_ms(dense, ARM64)


def test_the_body_of_a_loop_costs_as_often_as_it_runs():
    def expected(length: int) -> float:
        layers = [keras.Input((length, 16)), keras.layers.GRU(64, unroll=False, reset_after=True)]
        return network_ms(model_graph(keras.Sequential(layers)), ARM64)

    assert expected(100) == pytest.approx(10 * expected(10), rel=0.01)
