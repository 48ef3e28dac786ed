"""Keras models traced to graphs of operations, and models that cannot be traced."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tfsparsecap.errors import InputError
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.rebuild import rebuild


class Traceable(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.first, self.second = layers.Dense(16, "relu", name="first"), layers.Dense(4, name="second")

    def call(self, inputs):
        return self.second(ops.tanh(self.first(inputs)))


class Untraceable(Traceable):
    def call(self, inputs):
        return tf.math.tanh(self.second(self.first(inputs)))


def names(graph):
    return [node.operation.name for node in graph.nodes]


def test_sequential_models_are_chains():
    graph = trace(keras.Sequential([keras.Input((4,)), layers.Dense(3, name="a"), layers.Dense(2, name="b")]))
    assert names(graph) == ["a", "b"] and graph.is_sequential
    assert graph.shapes == [(1, 4), (1, 3), (1, 2)]


def test_nested_models_are_flattened_and_their_training_argument_is_kept():
    base = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, name="a"), layers.BatchNormalization(name="b")], name="base"
    )
    inputs = keras.Input((4,))
    graph = trace(keras.Model(inputs, base(base(inputs, training=False)), name="outer"))
    assert names(graph) == ["a", "b", "a", "b"] and not graph.is_sequential
    assert [node.kwargs.get("training") for node in graph.nodes[1::2]] == [False, None]
    assert len({index for node in graph.nodes for index in node.outputs}) == 4
    assert graph.output_names == ("base",)


def query_and_document(structure):
    """A nested model whose inputs are not in the order of their names."""
    query, document = keras.Input((4,), name="query"), keras.Input((4,), name="document")
    inputs = {"query": query, "document": document} if structure is dict else [query, document]
    hidden = [layers.Dense(3, name="of_query")(query), layers.Dense(3, name="of_document")(document)]
    return keras.Model(inputs, layers.Concatenate()(hidden), name="inner")


@pytest.mark.parametrize("structure", [list, dict])
def test_a_nested_model_takes_a_dictionary_by_the_names_of_its_inputs(structure):
    inner = query_and_document(structure)
    q, d = keras.Input((4,), name="q"), keras.Input((4,), name="d")
    model = keras.Model([q, d], inner({"query": q, "document": d}))
    graph = trace(model)
    taken = {node.operation.name: graph.input_layers[node.inputs[0]].name for node in graph.nodes[:2]}
    assert taken == {"of_query": "q", "of_document": "d"}
    x = list(np.random.default_rng(0).random((2, 3, 4), "float32"))
    analysis = Analysis(graph)
    np.testing.assert_array_equal(rebuild(analysis, analysis.alive(np.array([], int)))[0](x), model(x))


def test_a_nested_model_finds_the_mask_of_its_input():
    words = keras.Input((6,), dtype="int32")
    hidden = [layers.Dropout(0.1), layers.LSTM(4, return_sequences=True)]
    inner = keras.Sequential([keras.Input((6, 8)), *hidden], name="inner")
    embedding = layers.Embedding(9, 8, mask_zero=True)
    model = keras.Model(words, layers.GRU(3)(inner(embedding(words))))
    x = np.random.default_rng(0).integers(1, 9, (4, 6))
    x[:, 4:] = 0
    analysis = Analysis(trace(model))
    copy = rebuild(analysis, analysis.alive(np.array([], int)))[0]
    np.testing.assert_array_equal(copy(x), model(x))
    copied = copy.get_layer(embedding.name).embeddings
    copied.assign(copied + (np.arange(9) == 0)[:, None])  # of masked words only
    np.testing.assert_array_equal(copy(x), model(x))


class Words(keras.Model):
    """Embeds the first two numbers of its input, in the model itself or in a nested one."""

    def __init__(self, is_nested=False, scaled=False):
        super().__init__()
        embedding = layers.Embedding(9, 16, mask_zero=True)
        self.embedding = keras.Sequential([keras.Input((2,)), embedding]) if is_nested else embedding
        self.gru, self.last, self.scaled = layers.GRU(8), layers.Dense(3), scaled

    def call(self, inputs):
        x = self.last(self.gru(self.embedding(inputs[:, :2])))
        return x * inputs[:, 2:] if self.scaled else x


@pytest.mark.parametrize(
    ("options", "dtype"), [({}, "int32"), ({"is_nested": True}, "int32"), ({"scaled": True}, "float32")]
)
def test_a_subclassed_model_that_only_looks_up_its_input_takes_whole_numbers(options, dtype):
    model, x = Words(**options), np.array([[3, 1, 2], [8, 0, 5]], dtype)
    model(x)
    analysis = Analysis(trace(model))
    copy = rebuild(analysis, analysis.alive(np.array([], int)))[0]
    assert copy.inputs[0].dtype == dtype
    np.testing.assert_array_equal(copy(x), model(x))


class WithPositions(Traceable):
    def __init__(self):
        super().__init__()
        self.positions = self.add_weight(shape=(16,), name="positions")

    def call(self, inputs):
        return self.second(self.first(inputs) + self.positions)


class Tied(Traceable):
    def call(self, inputs):
        return (
            ops.matmul(self.first(inputs), ops.transpose(self.first.kernel))
            + self.second(self.first(inputs))[:, :1]
        )


def test_unknown_lengths_are_assumed_and_noted():
    inputs = keras.Input((None, None, 3), name="images")
    graph = trace(keras.Model(inputs, layers.Conv2D(4, 3, 2)(inputs)))
    assert graph.shapes[-1] == (1, 111, 111, 4)
    assert graph.notes == ["multiply-adds are counted for a length of 224 of images"]


def test_lengths_that_a_layer_does_not_know_are_those_of_its_result():
    inputs = keras.Input((6, 8))
    wide = layers.EinsumDense("abc,cd->abd", output_shape=(None, 64))(inputs)
    graph = trace(keras.Model(inputs, layers.Reshape((48, 8))(wide)))
    assert graph.shapes == [(1, 6, 8), (1, 6, 64), (1, 48, 8)] and not graph.notes
    positive = layers.Lambda(lambda x: tf.boolean_mask(x, ops.max(x, -1) > 0)[None], name="positive")
    graph = trace(keras.Model(inputs, layers.Dense(2)(positive(inputs))))
    assert graph.shapes[1:] == [(1, 1, 8), (1, 1, 2)]
    assert graph.notes == ["multiply-adds are counted for a length of 1 where positive returns any length"]


class Deciding(Traceable):
    def call(self, inputs):
        return self.second(-self.first(inputs) if ops.max(inputs) > 0 else self.first(inputs))


def called(cls):
    model = cls()
    model(np.zeros((1, 6), "float32"))
    return model


def with_mask():
    inputs, mask = keras.Input((6, 8)), keras.Input((6,), dtype="bool")
    inner = keras.Sequential([keras.Input((6, 8)), layers.LSTM(4)], name="inner")
    return keras.Model([inputs, mask], inner(inputs, mask=mask), name="outer")


@keras.saving.register_keras_serializable("operation_graph")
class Reading(layers.Layer):
    """Multiplies by the table of another layer."""

    def __init__(self, embedding, **options):
        super().__init__(**options)
        self.embedding = embedding

    def call(self, inputs):
        return ops.matmul(inputs, ops.transpose(self.embedding.embeddings))

    def get_config(self):
        return super().get_config() | {"embedding": keras.saving.serialize_keras_object(self.embedding)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("embedding")), **config)


def words(head):
    """A model whose last operation, `head(embedding, features)`, shares a table with the first."""
    inputs, embedding = keras.Input((6,), dtype="int32"), layers.Embedding(50, 16, name="words")
    features = layers.Dense(16, name="features")(layers.LSTM(32, return_sequences=True)(embedding(inputs)))
    return keras.Model(inputs, head(embedding, features), name="tied")


def of_lambda(**options):
    def head(embedding, x):
        function = lambda v: ops.matmul(v, ops.transpose(embedding.embeddings))  # noqa: E731
        return layers.Lambda(function, name="head", **options)(x)

    return words(head)


def of_einsum():
    return words(lambda embedding, x: ops.einsum("btd,vd->btv", x, embedding.embeddings))


def test_a_layer_that_is_called_twice_may_tie_weights():
    inputs, table = keras.Input((6,), dtype="int32"), layers.ReversibleEmbedding(50, 16, name="table")
    hidden = layers.LSTM(32, return_sequences=True)(table(inputs))
    model = keras.Model(inputs, table(layers.Dense(16)(hidden), reverse=True))
    analysis, x = Analysis(trace(model)), np.arange(6)[None]
    copy = rebuild(analysis, analysis.alive(np.array([], int)))[0]
    np.testing.assert_array_equal(copy(x), model(x))
    table.embeddings.assign(0 * table.embeddings)
    assert np.asarray(copy(x)).any()
    copied = copy.get_layer("table").embeddings
    copied.assign(0 * copied)
    assert not np.asarray(copy(x)).any()


TIED = "of tied uses the weight words/embeddings of words, which copies of the two would not share: let one"
USES = "call method of subclassed uses the weight subclassed/"


def quantized():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2, name="two")])
    model.quantize("int8")
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (with_mask, r"^outer calls the nested model inner with mask=, which the slim"),
        (lambda: called(WithPositions), f"{USES}positions"),
        (lambda: called(Tied), f"{USES}first/kernel"),
        (
            lambda: called(Untraceable),
            r"subclassed, a subclassed Untraceable, cannot be traced \(A KerasTensor .* Functions\): use",
        ),
        (
            lambda: called(Deciding),
            r"inputs of unknown shape, as if .* depends on their values \(if, while\)",
        ),
        (lambda: "model", r"takes a Keras 3 model, not a builtins.str"),
        (lambda: keras.Sequential([layers.Dense(2)]), "is not built, so it has no weights"),
        (of_lambda, f"^head {TIED}"),
        (lambda: of_lambda(output_shape=(6, 50)), f"^head {TIED}"),
        (of_einsum, f"^einsum.* {TIED}"),
        (lambda: words(lambda embedding, x: Reading(embedding, name="head")(x)), f"^head {TIED}"),
        (quantized, r"was quantized by Keras \(two\): use it as it was before model\.quantize"),
    ],
)
def test_models_that_cannot_be_traced_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        trace(make())
