"""FLOPs of layers against counts by hand and TensorFlow's profiler, and layers without a formula."""

import keras
import pytest
import tensorflow as tf
from keras import layers

import tfsparsecap as sc
from tfsparsecap.model_summary import formulas
from tfsparsecap.model_summary.summarize import summary


def measured(model):
    return summary(model, print_fn=lambda text: None, compress=False)


def multiply_adds(model):
    result = measured(model)
    assert all(row.counted for row in result.rows)
    flops = result.totals["all weights"].flops
    assert flops % 2 == 0
    return flops // 2


def sequential(shape, *parts):
    return keras.Sequential([keras.Input(shape), *parts])


def functional(shape, make, dtype="float32"):
    inputs = keras.Input(shape, dtype=dtype)
    return keras.Model(inputs, make(inputs))


def tied_embedding(tokens):
    table = layers.ReversibleEmbedding(20, 8)
    return table(table(tokens), reverse=True)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: sequential((20,), layers.Dense(10)), 20 * 10),
        (lambda: sequential((7, 20), layers.Dense(10)), 7 * 20 * 10),
        (lambda: sequential((7, 20), layers.EinsumDense("abc,cde->abde", (None, 4, 3))), 7 * 20 * 4 * 3),
        (lambda: sequential((5, 6), layers.EinsumDense("abc,bcd->abd", (5, 3))), 5 * 6 * 3),
        (lambda: sequential((17, 19, 3), layers.Conv2D(5, 3, 2, "same")), 9 * 10 * 27 * 5),
        (lambda: sequential((17, 19, 3), layers.Conv2D(5, (3, 2), (2, 3))), 8 * 6 * 18 * 5),
        (lambda: sequential((17, 19, 3), layers.Conv2D(5, 3, dilation_rate=2)), 13 * 15 * 27 * 5),
        (lambda: sequential((17, 19, 4), layers.Conv2D(6, 3, groups=2)), 15 * 17 * 18 * 6),
        (lambda: sequential((50, 3), layers.Conv1D(4, 3, padding="causal")), 50 * 9 * 4),
        (lambda: sequential((4, 5, 6, 2), layers.Conv3D(4, 3)), 24 * 54 * 4),
        (lambda: sequential((9, 9, 3), layers.DepthwiseConv2D(3, 2, depth_multiplier=2)), 16 * 9 * 6),
        (lambda: sequential((9, 9, 3), layers.SeparableConv2D(4, 3)), 49 * (9 * 3 + 3 * 4)),
        (lambda: sequential((5, 5, 3), layers.Conv2DTranspose(4, 3, 2)), 25 * 3 * 9 * 4),
        (lambda: sequential((7, 5), layers.LSTM(4)), 7 * (5 * 16 + 4 * 16)),
        (lambda: sequential((7, 5), layers.GRU(4, reset_after=False)), 7 * (5 * 12 + 4 * 12)),
        (lambda: sequential((7, 5), layers.SimpleRNN(4)), 7 * (5 * 4 + 4 * 4)),
        (lambda: sequential((7, 5), layers.Bidirectional(layers.LSTM(4))), 2 * 7 * (5 * 16 + 4 * 16)),
        (lambda: sequential((7,), layers.Embedding(9, 5, mask_zero=True), layers.GRU(4)), 7 * (5 + 4) * 12),
        (lambda: sequential((7, 5), layers.RNN(sc.layers.GatedLSTMCell(4))), 7 * (5 * 16 + 4 * 16)),
        (lambda: sequential((7, 5), layers.RNN([layers.GRUCell(4), layers.GRUCell(3)])), 7 * (108 + 63)),
        (lambda: sequential((7, 5), layers.TimeDistributed(layers.Dense(3))), 7 * 5 * 3),
        (lambda: functional((6, 8), lambda x: layers.MultiHeadAttention(2, 4)(x, x)), 4 * 6 * 64 + 2 * 288),
        (lambda: functional((6, 8), lambda x: layers.GroupQueryAttention(4, 4, 2)(x, x)),
         6 * 8 * (16 + 8 + 8 + 16) + 2 * 4 * 4 * 36),
        (lambda: functional((6, 8), lambda x: layers.Attention()([x, x])), 2 * 6 * 6 * 8),
        (lambda: functional((6, 8), lambda x: layers.AdditiveAttention()([x, x])), 6 * 6 * 8),
        (lambda: functional((6, 8), lambda x: layers.Dot(2)([x, x])), 6 * 6 * 8),
        (lambda: functional((5,), tied_embedding, "int32"), 5 * 20 * 8),
        (lambda: sequential((6, 6, 4), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()), 0),
    ],
)  # fmt: skip
def test_flops_of_layers_by_hand(model, expected):
    assert multiply_adds(model()) == expected


def test_flops_equal_those_of_tensorflows_profiler():
    model = sequential(
        (31, 30, 4),
        layers.Conv2D(8, 3, 2, "same"),
        layers.DepthwiseConv2D(5, depth_multiplier=2),
        layers.ReLU(),
        layers.Flatten(),
        layers.Dense(10),
    )
    traced = tf.function(model).get_concrete_function(tf.TensorSpec([1, 31, 30, 4]))
    profiler = tf.compat.v1.profiler
    options = (
        profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
        .with_accounted_types(["Conv2D", "DepthwiseConv2dNative", "MatMul"])
        .account_displayed_op_only(True)
        .with_empty_output()
        .build()
    )
    assert 2 * multiply_adds(model) == profiler.profile(traced.graph, options=options).total_float_ops > 0


class Product(layers.Layer):
    """Multiplies by a matrix without a formula."""

    def build(self, input_shape):
        self.matrix = self.add_weight(shape=(input_shape[-1], 4), name="matrix")

    def call(self, inputs):
        return inputs @ self.matrix


class Composite(keras.Model):
    """A model with a layer that has a formula, and other operations."""

    def __init__(self):
        super().__init__(name="composite")
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs)


@pytest.mark.parametrize(
    ("part", "name", "count"),
    [
        (Product(name="product"), "product", 0),
        (layers.Lambda(lambda x: x, name="function"), "function", 0),
        (Composite(), "composite", 4 * 5 * 3),
        (layers.ConvLSTM1D(2, 1, name="convlstm"), "convlstm", 0),
    ],
    ids=["own weight", "lambda", "composite", "recurrent"],
)
def test_layers_without_a_formula_are_reported(part, name, count):
    shown = []
    result = summary(sequential((4, 4, 5), part), compress=False, print_fn=shown.append)
    (row,) = [row for row in result.rows if not row.counted]
    assert row.name == name and f"{name} ({type(part).__name__}) has no formula" in result.notes[-1]
    assert "?" in shown[0] and "≥" in shown[0] and "has no formula" in shown[0]
    assert result.totals["all weights"].flops // 2 == (4 * count if count else 0)


def test_operations_outside_layers_are_reported():
    result = measured(functional((6, 8), lambda x: keras.ops.matmul(x, keras.ops.transpose(x, (0, 2, 1)))))
    assert any("matmul" in note for note in result.notes)


class Gram(layers.Layer):
    def products(self, x):
        return keras.ops.matmul(x, keras.ops.transpose(x, (0, 2, 1)))

    def call(self, x):
        return self.products(x)


def test_a_layer_registers_the_formula_of_one_of_its_methods():
    assert not measured(sequential((5, 3), Gram())).rows[0].counted
    gram = type("GramWithFormula", (Gram,), {})
    formula = formulas.register(gram, method="products")(
        lambda layer, arguments, output: {formulas.PRODUCT: 5 * 5 * arguments["x"].shape[-1]}
    )
    assert formulas.formula_of(gram()) is formula
    assert multiply_adds(sequential((5, 3), gram())) == 5 * 5 * 3
