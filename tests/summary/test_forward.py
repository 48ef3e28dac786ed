"""What is run for one example or caption: whose operations are whose, which inputs, and what is refused."""

import keras
import pytest
import tensorflow as tf
from keras import layers

from tfsparsecap.errors import InputError
from tfsparsecap.models import ObjectRelationTransformer, SoftAttention
from tfsparsecap.models.encoders import MobileNetV1Encoder
from tfsparsecap.summary.forward import forward, layer_of

SMALL = {"embedding_size": 6, "rnn_size": 8, "attention_size": 5}


class Named(keras.Model):
    """Takes two inputs by name."""

    def __init__(self):
        super().__init__(name="named")
        self.first, self.second = layers.Dense(3), layers.Dense(3)

    def call(self, left, right):
        return self.first(left) + self.second(right)


class Words(keras.Model):
    """Takes whole numbers, and would not take others."""

    def __init__(self):
        super().__init__(name="words")
        self.table = self.add_weight(shape=(20, 4), name="table")

    def call(self, tokens):
        return tf.gather(self.table, tokens)


def shapes(model, input_shapes=None, **search):
    """Shapes of what each part takes, without variables."""
    run = forward(model, [model], input_shapes, **search)
    found = []
    for function, rounds in run.parts:
        arguments, _ = function.structured_input_signature
        found.append((rounds, [tuple(spec.shape) for spec in tf.nest.flatten(arguments)]))
    return found


def two_inputs(name="two"):
    words, picture = keras.Input((None, 4), name="words"), keras.Input((6,), name="picture")
    total = layers.GlobalAveragePooling1D()(layers.Dense(3)(words)) + layers.Dense(3)(picture)
    return keras.Model([words, picture], total, name=name)


def test_inputs_are_one_example():
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 3)])
    assert shapes(model) == [(1, [(1, 8, 8, 3)])]
    assert shapes(two_inputs(), {"words": (7, 4)}) == [(1, [(1, 7, 4), (1, 6)])]
    assert shapes(two_inputs(), [(7, 4), (6,)]) == [(1, [(1, 7, 4), (1, 6)])]


def test_a_fixed_batch_stays_and_is_said():
    model = keras.Sequential([keras.Input(batch_shape=(4, 3, 2)), layers.LSTM(5, stateful=True)])
    run = forward(model, [model])
    assert "4 examples" in run.notes[0]


def test_a_subclassed_model_has_the_shapes_that_it_was_built_with():
    model = Named()
    model(tf.ones([2, 5]), tf.ones([2, 4]))
    assert shapes(model, {"left": (5,), "right": (4,)}) == [(1, [(1, 5), (1, 4)])]
    plain = type("Plain", (keras.Model,), {"call": lambda self, x: self.dense(x)})()
    plain.dense = layers.Dense(3)
    plain(tf.ones([2, 5]))
    assert shapes(plain) == [(1, [(1, 5)])]


def test_an_input_of_another_dtype_is_given_with_it():
    model = Words()
    model(tf.ones([2, 5], tf.int32))
    with pytest.raises(InputError, match=r"words cannot be called on inputs of shape \(1, 5\)"):
        forward(model, [model])
    for given in (keras.Input((5,), dtype="int32"), tf.TensorSpec([None, 5], tf.int32)):
        assert shapes(model, given) == [(1, [(1, 5)])]


def test_a_captioner_encodes_once_and_steps_for_every_word_and_beam():
    captioner = SoftAttention(30, feature_size=7, **SMALL)
    (once, encoded), (times, stepped) = shapes(captioner, {"features": (9, 7)}, beam=4, words=6)
    assert (once, encoded, times) == (1, [(1, 9, 7)], 6)
    assert {shape[0] for shape in stepped} == {4}
    assert shapes(captioner)[0] == (1, [(1, 36, 7)])
    assert "36 regions" in forward(captioner, [captioner]).notes[0]


def test_captioners_of_pictures_and_of_boxes_know_their_inputs():
    encoder = MobileNetV1Encoder(0.25, "conv_pw_3_relu", image_size=32, weights=None)
    assert shapes(SoftAttention(30, encoder=encoder, **SMALL))[0] == (1, [(1, 32, 32, 3)])
    network = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(5, 3), layers.Reshape((-1, 5))])
    assert shapes(SoftAttention(30, encoder=network, **SMALL))[0] == (1, [(1, 16, 16, 3)])
    transformer = ObjectRelationTransformer(30, size=8, hidden_size=8, layers=1, heads=2, feature_size=7)
    assert shapes(transformer)[0] == (1, [(1, 36, 4), (1, 36, 7)])


def test_operations_are_known_by_the_layer_that_made_them():
    model = keras.Sequential([keras.Input((5, 4)), layers.LSTM(3), layers.Dense(2)])
    parts = [model, *model._flatten_layers(include_self=False)]
    graph = forward(model, parts).parts[0][0].graph
    products = [operation for operation in graph.get_operations() if operation.type == "MatMul"]
    dense = parts.index(model.layers[-1])
    assert layer_of(products[-1].name) == (dense, "MatMul")
    loop = next(operation for operation in graph.get_operations() if "While" in operation.type)
    assert layer_of(loop.name)[0] == parts.index(model.layers[0])


def test_the_model_is_left_as_it_was():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, activity_regularizer="l2"), layers.Dense(2)], name="kept"
    )
    before = [dict(vars(layer)) for layer in model.layers]
    parts = [model, *model.layers]
    forward(model, parts)
    with pytest.raises(InputError):
        forward(model, parts, (9,))
    assert [dict(vars(layer)) for layer in model.layers] == before
    assert [float(loss) for loss in model.losses] == []  # and no tensor of a graph that is gone
    model.compile(loss="mse")
    model.fit(tf.ones([4, 4]), tf.ones([4, 2]), verbose=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"the input words of two has the shape \(None, None, 4\).*give input_shapes"),
        ({"wrods": (7, 4)}, r"names \['wrods'\], and two has the inputs \['words', 'picture'\]"),
        ((7, 4), "has 1 shapes, and two takes 2 inputs"),
        ([(7, 4)] * 3, "has 3 shapes, and two takes 2 inputs"),
        ({"words": (0, 4)}, r"gives words the shape \(0, 4\): give whole numbers above 0"),
        ({"words": (-7, 4)}, "give whole numbers above 0"),
        ({"words": 7}, "give whole numbers above 0"),
        ({"words": "7x4"}, "give whole numbers above 0"),
        ({"words": (7, 5)}, r"two cannot be called on inputs of shape \(1, 7, 5\)"),
    ],
)
def test_shapes_that_cannot_be_used_are_named(given, message):
    with pytest.raises(InputError, match=message):
        model = two_inputs()
        forward(model, [model], given)


def test_what_does_not_know_its_inputs_is_refused():
    encoder = MobileNetV1Encoder(0.25, "conv_pw_3_relu", image_size=32, weights=None)
    with pytest.raises(InputError, match=r"does not say what shapes its inputs have: give input_shapes="):
        forward(encoder, [encoder])
    assert shapes(encoder, (32, 32, 3)) == [(1, [(1, 32, 32, 3)])]
    with pytest.raises(InputError, match="the encoder takes images of shape"):
        forward(encoder, [encoder], (64, 64, 3))
    model = type("Open", (keras.Model,), {"call": lambda self, x: x})(name="open")
    model.build((None, None, 3))
    with pytest.raises(InputError, match="open was built for inputs of shape"):
        forward(model, [model])


def test_what_a_captioner_cannot_take_is_refused():
    transformer = ObjectRelationTransformer(
        30, size=8, hidden_size=8, layers=1, heads=2, feature_size=7, max_length=5
    )
    with pytest.raises(InputError, match=r"words is 9, and .* has room for captions of 5 tokens"):
        forward(transformer, [transformer])
    captioner = SoftAttention(30, feature_size=7, **SMALL)
    with pytest.raises(InputError, match=r"names \['pixels'\]"):
        forward(captioner, [captioner], {"pixels": (9, 7)})
    with pytest.raises(InputError, match="features of shape"):
        forward(captioner, [captioner], (9, 8))
