"""How often the bodies of loops run: in recurrent layers the number of time steps, in others unknown."""

import keras
import pytest
import tensorflow as tf
from keras import layers
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.subgraph_runs import runs_of_subgraphs
from tfsparsecap_export.keras_to_tflite.graph import convert, model_graph


def runs(content: bytes, steps: int = 10) -> list[int]:
    return runs_of_subgraphs(flatfile.read_model(content), steps)


@pytest.mark.parametrize(
    "layer",
    [
        layers.LSTM(8),
        layers.GRU(8, return_sequences=True, go_backwards=True),
        layers.SimpleRNN(8),
        layers.RNN(layers.LSTMCell(8)),
    ],
)
def test_a_recurrent_layer_runs_once_per_time_step(layer):
    assert runs(model_graph(keras.Sequential([keras.Input((23, 4)), layer]))) == [1, 23, 23]


def test_masks_and_several_layers_keep_their_steps():
    model = [keras.Input((12, 4)), layers.Masking(), layers.LSTM(8, return_sequences=True)]
    model += [layers.AveragePooling1D(2), layers.Bidirectional(layers.GRU(8))]
    assert sorted(runs(model_graph(keras.Sequential(model)))) == [1, 6, 6, 6, 6, 12, 12]


def loop_file(condition, body) -> bytes:
    """A file with a loop over a counter and a value, from 0 and the input."""

    def function(x):
        return {"y": tf.while_loop(condition, body, [tf.constant(0), x])[1]}

    return convert(keras.Sequential(), function, {"x": tf.TensorSpec((1, 4))}, "run")


def test_the_counter_may_take_larger_steps():
    # 0, 3, 6 and 9 are below 10.
    assert runs(loop_file(lambda i, x: i < 10, lambda i, x: (i + 3, tf.tanh(x)))) == [1, 4, 4]


@pytest.mark.parametrize(
    ("condition", "body"),
    [
        (lambda i, x: (i < 10) & (tf.reduce_sum(x) < 1.0), lambda i, x: (i + 1, x + 0.1)),
        (lambda i, x: i < 10, lambda i, x: (i + tf.cast(x[0, 0], tf.int32), tf.tanh(x))),
        (lambda i, x: i * i < 10, lambda i, x: (i + 1, tf.tanh(x))),
    ],
)
def test_a_loop_that_does_not_only_count_runs_the_given_steps(condition, body):
    assert runs(loop_file(condition, body), 7) == [1, 7, 7]


def test_the_runs_of_nested_loops_are_multiplied():
    def body(i, x):
        inner = tf.while_loop(lambda j, x: j < 5, lambda j, x: (j + 1, tf.tanh(x)), [tf.constant(0), x])[1]
        return i + 1, inner

    assert sorted(runs(loop_file(lambda i, x: i < 3, body))) == [1, 3, 3, 15, 15]
    unknown = loop_file(lambda i, x: tf.reduce_sum(x) > tf.cast(i, tf.float32), body)
    assert sorted(runs(unknown, 7)) == [1, 7, 7, 35, 35]


def test_a_search_takes_the_given_steps(exported):
    path, _ = exported("blocks", "dense")
    content = path.read_bytes()
    looped = flatfile.looped_subgraphs(flatfile.read_model(content))
    assert all(count == (7 if number in looped else 1) for number, count in enumerate(runs(content, 7)))


def test_subgraphs_that_call_each_other_end():
    model = flatfile.read_model(model_graph(keras.Sequential([keras.Input((3, 4)), layers.LSTM(8)])))
    loop = next(o for o in model.subgraphs[0].operators if flatfile.called_subgraphs(o))
    model.subgraphs[2].operators.append(loop)
    assert len(runs_of_subgraphs(model, 10)) == 3
