"""Tracing of models."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from tfsparsecap.errors import InputError
from tfsparsecap.slimming.graph import trace


class Traceable(keras.Model):
    def __init__(self):
        super().__init__(name="subclassed")
        self.first, self.second = layers.Dense(16, "relu", name="first"), layers.Dense(4, name="second")

    def call(self, inputs):
        return self.second(ops.tanh(self.first(inputs)))


class Untraceable(Traceable):
    def call(self, inputs):
        import tensorflow as tf

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


def test_subclassed_models_of_keras_layers_are_traced():
    model = Traceable()
    model(np.zeros((1, 6), "float32"))
    assert [type(node.operation).__name__ for node in trace(model).nodes] == ["Dense", "Tanh", "Dense"]


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


@pytest.mark.parametrize(("cls", "weight"), [(WithPositions, "positions"), (Tied, "first/kernel")])
def test_a_subclassed_model_that_uses_weights_outside_of_layers_is_refused(cls, weight):
    model = cls()
    model(np.zeros((1, 6), "float32"))
    with pytest.raises(InputError, match=f"call method of subclassed uses the weight subclassed/{weight}"):
        trace(model)


def test_a_subclassed_model_that_calls_tensorflow_is_refused():
    model = Untraceable()
    model(np.zeros((1, 6), "float32"))
    with pytest.raises(
        InputError, match=r"subclassed, a subclassed Untraceable, cannot be traced .*keras.ops"
    ):
        trace(model)


def test_other_objects_and_unbuilt_models_are_refused():
    with pytest.raises(InputError, match=r"takes a Keras 3 model, not a builtins.str"):
        trace("model")
    with pytest.raises(InputError, match="is not built, so it has no weights"):
        trace(keras.Sequential([layers.Dense(2)]))


def test_unknown_lengths_are_assumed_and_noted():
    inputs = keras.Input((None, None, 3), name="images")
    graph = trace(keras.Model(inputs, layers.Conv2D(4, 3, 2)(inputs)))
    assert graph.shapes[-1] == (1, 111, 111, 4)
    assert graph.notes == ["multiply-adds are counted for a length of 224 of images"]
