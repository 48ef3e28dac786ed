"""Files with sparse weights on the runtime, compared with NumPy and with the dense file."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.encode.encoded_file import encode_file
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.keras_to_tflite import graph

from ..conftest import LAYER_ENCODINGS, rewritten


def sparse_kernel(rows, columns, block=16, density=0.25, seed=0):
    """In Keras's layout, (inputs, outputs)."""
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random((rows // block, columns)) < density, block, axis=0)
    return (rng.normal(size=(rows, columns)) * mask).astype(np.float32)


@pytest.fixture(scope="module")
def layer():
    """A model of one matrix product, its kernel and its dense file."""
    kernel = sparse_kernel(96, 40)
    model = keras.Sequential([keras.Input((96,)), keras.layers.Dense(40, use_bias=False)])
    model.layers[-1].set_weights([kernel])
    return kernel, graph.model_graph(model)


@pytest.fixture(scope="module")
def convolutions():
    """A network of each kind of convolution, of whose weights 80 % are zero, and its dense file."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 16)),
            layers.Conv2D(24, 3),
            layers.DepthwiseConv2D(3),
            layers.Conv2DTranspose(16, 3, strides=2),
            layers.Conv2D(32, 3, groups=4),
        ]
    )
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape) * (random.random(weight.shape) < 0.2))
    return model, graph.model_graph(model)


@pytest.mark.parametrize("encoding", LAYER_ENCODINGS)
def test_every_encoding_of_a_layer_gives_numpys_product(layer, check_outputs, encoding):
    kernel, dense = layer
    inputs = np.random.default_rng(1).normal(size=(1, 96)).astype(np.float32)
    expected = inputs @ kernel
    tolerance = {np.float32: 1e-5, np.float16: 1e-3, np.int8: 0.02}[encodings.ENCODINGS[encoding].dtype]
    check_outputs(rewritten(dense, encoding), inputs, expected, tolerance)


def test_sparse_layers_get_operator_version_8(layer):
    _, dense = layer
    for encoding, version in ((encodings.CSR, 8), (encodings.BLOCK16, 8), (encodings.INT8, 9)):
        model = flatfile.read_model(rewritten(dense, encoding))
        (operator,) = model.subgraphs[0].operators
        assert model.operatorCodes[operator.opcodeIndex].version == version
        assert flatfile.builtin_name(model, operator) == "FULLY_CONNECTED"


@pytest.mark.parametrize("block", [1, 4, 16])
def test_every_encoding_of_a_table_gives_its_rows(check_outputs, block):
    table = np.ascontiguousarray(sparse_kernel(48, 50, block).T)
    model = keras.Sequential([keras.Input((5,), dtype="int32"), keras.layers.Embedding(50, 48)])
    model.layers[-1].set_weights([table])
    dense = graph.model_graph(model)
    ids = np.array([[3, 0, 49, 7, 3]], np.int32)
    step = np.abs(table).max() / np.abs(table[ids]).max() / 250
    for encoding in (encodings.FLOAT16, encodings.SPARSE32, encodings.SPARSE_INT8, encodings.INT8):
        tolerance = {encodings.FLOAT16: 1e-3, encodings.SPARSE32: 0}.get(encoding, step)
        check_outputs(rewritten(dense, encoding, sparse.TABLE), ids, table[ids], tolerance)


@pytest.mark.parametrize("encoding", [encodings.FLOAT16, encodings.SPARSE32, encodings.SPARSE16])
def test_encodings_of_convolutions_give_the_outputs_of_keras(convolutions, check_outputs, encoding):
    model, dense = convolutions
    images = np.random.default_rng(0).normal(size=(1, 8, 8, 16)).astype(np.float32)
    changed = rewritten(dense, encoding, sparse.CONVOLUTION)
    assert (len(changed) < 0.6 * len(dense)) or encoding == encodings.SPARSE32
    check_outputs(changed, images, np.asarray(model(images)), 1e-3)


def test_copies_in_all_subgraphs_get_the_same_encoding(layer):
    _, dense = layer
    model = flatfile.read_model(dense)
    # A second subgraph with the same weights, as in a file with two functions.
    model.subgraphs.append(flatfile.read_model(dense).subgraphs[0])
    (weight,) = sparse.find_weights(model)
    assert len(weight.uses) == 2
    sparse.rewrite(model, [sparse.change(weight, encodings.CSR)])
    content = flatfile.write_model(model)
    again = flatfile.read_model(content)
    kinds = [t.sparsity is not None for g in again.subgraphs for t in g.tensors if t.buffer == weight.buffer]
    assert kinds == [True, True]
    # The indices are in the file once.
    first = rewritten(dense, encodings.CSR)
    assert len(content) - len(first) < 1000


def test_a_constant_with_two_roles_is_not_encoded():
    ids = keras.Input((1,), dtype="int32")
    rows = keras.layers.Flatten()(keras.layers.Embedding(32, 16)(ids))
    model = flatfile.read_model(graph.model_graph(keras.Model(ids, keras.layers.Dense(32)(rows))))
    table, layer = sorted(sparse.find_weights(model), key=lambda weight: weight.role, reverse=True)
    assert (table.role, layer.role) == (sparse.TABLE, sparse.FULLY_CONNECTED)
    for tensor in model.subgraphs[0].tensors:  # tied: both read the table
        if tensor.buffer == layer.buffer:
            tensor.buffer = table.buffer
    assert sparse.find_weights(model) == []


class Tied(keras.Model):
    """A model whose output layer multiplies the rows of its embedding."""

    def __init__(self):
        super().__init__(name="tied")
        self.embedding, self.dense = keras.layers.Embedding(150, 32), keras.layers.Dense(32)

    def call(self, ids):
        hidden = self.dense(self.embedding(ids))
        return keras.ops.matmul(hidden, keras.ops.transpose(self.embedding.embeddings))


def test_tied_weights_are_encoded_for_each_kind_of_operation(check_outputs):
    keras.utils.set_random_seed(0)
    model, ids = Tied(), np.array([[3, 0, 149, 7]], np.int32)
    model(ids)
    model.embedding.embeddings.assign(sparse_kernel(32, 150, 1).T)
    expected, dense = np.asarray(model(ids)), graph.model_graph(model, inputs=ids)
    for format in ("dense", "compact", "dense-int8"):
        content, layers = encode_file(dense, format, sources=graph.weight_sources(model))
        tied = [layer for layer in layers if layer.name.endswith("embeddings")]
        assert sorted(layer.role for layer in tied) == [sparse.FULLY_CONNECTED, sparse.TABLE]
        is_dense = format == "dense"
        assert all((layer.encoding == encodings.DENSE) == is_dense for layer in tied)
        assert sum(layer.weights for layer in layers) == 150 * 32 + 32 * 32
        assert sum(layer.bytes for layer in layers) < len(content)
        # Equal bytes are stored once, so that they never take more space than in the dense file.
        assert len(content) <= len(dense) if is_dense else len(content) < 0.7 * len(dense)
        check_outputs(content, ids, expected, 0.03)


@pytest.mark.parametrize("format", ["auto", "fast", "compact"])
def test_layers_without_any_weight_left_take_no_space(check_outputs, format):
    # The kernels of a feed-forward network: equal bytes, which the converter stores once, in two shapes.
    keras.utils.set_random_seed(0)
    x = keras.Input((64,))
    start = {"bias_initializer": "normal", "kernel_initializer": "zeros"}
    inner = keras.layers.Dense(160, "relu", name="inner", **start)(x)
    outer = keras.layers.Dense(64, name="outer", **start)(inner)
    model = keras.Model(x, keras.layers.Dense(8)(keras.layers.Add()([x, outer])))
    content, layers = encode_file(graph.model_graph(model), format, sources=graph.weight_sources(model))
    empty = [layer for layer in layers if not layer.nonzeros]
    assert sorted(layer.shape for layer in empty) == [(64, 160), (160, 64)]
    assert all(layer.bytes < 1000 for layer in empty) and len(content) < 12_000 < 4 * 64 * 160
    inputs = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)
    check_outputs(content, inputs, np.asarray(model(inputs)), 0.02)


def test_constants_are_aligned_to_16_bytes(layer):
    _, dense = layer
    content = rewritten(dense, encodings.BLOCK16)
    model = schema.Model.GetRootAsModel(content, 0)
    for index in range(model.BuffersLength()):
        buffer = model.Buffers(index)
        if buffer.DataLength():
            start = np.frombuffer(content, np.uint8).ctypes.data
            assert (buffer.DataAsNumpy().ctypes.data - start) % flatfile.BUFFER_ALIGNMENT == 0


@pytest.mark.slow
def test_weights_inside_the_loop_are_found(blocks_captioner, exported):
    dense = exported("blocks", "dense")[0].read_bytes()
    weights = {weight.values.tobytes(): weight for weight in sparse.find_weights(flatfile.read_model(dense))}
    cell = [
        np.asarray(kernel)
        for kernel in (blocks_captioner.cell.kernel, blocks_captioner.cell.recurrent_kernel)
    ]
    lstm = weights[np.ascontiguousarray(np.concatenate(cell).T).tobytes()]
    assert (lstm.role, lstm.in_loop, lstm.rows_per_call) == (sparse.FULLY_CONNECTED, True, 3)
    for path, in_loop, rows in (
        ("output/kernel", True, 3),
        ("attention_query/kernel", True, 3),
        ("attention_features/kernel", False, 16),
        ("initial_hidden/kernel", False, 1),
    ):
        (kernel,) = [w for w in blocks_captioner.weights if w.path.endswith(path)]
        weight = weights[np.ascontiguousarray(np.asarray(kernel).T).tobytes()]
        assert (weight.role, weight.in_loop, weight.rows_per_call) == (sparse.FULLY_CONNECTED, in_loop, rows)
    table = weights[np.asarray(blocks_captioner.embedding.embeddings).tobytes()]
    assert (table.role, table.in_loop) == (sparse.TABLE, True)
