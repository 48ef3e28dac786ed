"""Inputs of one example or caption: assumed shapes, and rejected ones."""

import keras
import pytest
import tensorflow as tf
from keras import layers

from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention
from tfsparsecap.captioning.models.image_encoders.applications import MobileNetV1Encoder
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.forward import forward

SMALL = {"embedding_size": 6, "rnn_size": 8, "attention_size": 5}


class Named(keras.Model):
    """Takes two inputs by name."""

    def __init__(self):
        super().__init__(name="named")
        self.first, self.second = layers.Dense(3), layers.Dense(3)

    def call(self, left, right):
        return self.first(left) + self.second(right)


def uses(model, layer, input_shapes=None, **search):
    """Number of uses of a layer's kernel in each part."""
    run = forward(model, [model, layer], input_shapes, **search)
    return [calls.uses[id(layer), "kernel"] for _, calls, _ in run.parts]


@pytest.fixture(scope="module")
def two():
    words, image = keras.Input((None, 4), name="words"), keras.Input((6,), name="image")
    dense = layers.Dense(3, name="dense")
    total = layers.GlobalAveragePooling1D()(dense(words)) + layers.Dense(3, name="other")(image)
    return keras.Model([words, image], total, name="two")


@pytest.fixture(scope="module")
def encoder():
    return MobileNetV1Encoder(0.25, "conv_pw_1_relu", image_size=32, weights=None)


@pytest.mark.parametrize("given", [{"words": (7, 4)}, [(7, 4), (6,)]])
def test_input_shapes_of_functional_models_are_given_by_name_or_in_order(two, given):
    assert uses(two, two.get_layer("dense"), given) == [7]


def test_inputs_of_subclassed_models_are_given_by_argument():
    model = Named()
    model(tf.ones([2, 3, 5]), tf.ones([2, 3, 4]))
    assert uses(model, model.first, {"left": (6, 5), "right": (6, 4)}) == [6]


def test_a_captioner_encodes_once_and_steps_for_every_token_and_beam():
    captioner = SoftAttention(30, feature_size=7, **SMALL)
    run = forward(captioner, [captioner], {"features": (9, 7)}, beam=4, words=6)
    assert [(name, times) for name, _, times in run.parts] == [("image", 1), ("token", 24)]
    assert uses(captioner, captioner.attention_features, {"features": (9, 7)}) == [9, 0]
    assert uses(captioner, captioner.output_layer) == [0, 1]
    assert uses(captioner, captioner.attention_features) == [36, 0]
    assert "36 regions" in forward(captioner, [captioner]).notes[0]


@pytest.mark.slow
def test_default_inputs_of_captioners_of_images_and_boxes(encoder):
    captioner = SoftAttention(30, encoder=encoder, **SMALL)
    assert "32 x 32 pixels" in forward(captioner, [captioner]).notes[0]
    network = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(5, 3), layers.Reshape((-1, 5))])
    captioner = SoftAttention(30, encoder=network, **SMALL)
    assert uses(captioner, network.layers[0]) == [14 * 14, 0]
    transformer = ObjectRelationTransformer(30, size=8, hidden_size=8, layers=1, heads=2, feature_size=7)
    assert uses(transformer, transformer.feature_embedding) == [36, 0]


def test_the_model_is_not_changed():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, activity_regularizer="l2"), layers.Dense(2)], name="kept"
    )
    parts = [model, *model.layers]
    before = [dict(vars(layer)) for layer in model.layers]
    forward(model, parts)
    with pytest.raises(InputError):
        forward(model, parts, (9,))
    assert [dict(vars(layer)) for layer in model.layers] == before
    assert model.losses == []  # no tensor of a deleted graph


def transformer(**options):
    return ObjectRelationTransformer(30, size=8, hidden_size=8, layers=1, heads=2, feature_size=7, **options)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        ("two", None, r"words of two has shape \(None, None, 4\).*give input_shapes=, such as"),
        ("two", {"wrods": (7, 4)}, r"names \['wrods'\], but the inputs of two are \['words', 'image'\]"),
        ("two", [(7, 4)] * 3, "has 3 entries, but two takes 2: give one for each of"),
        ("two", {"words": (0, 4)}, r"the shape \(0, 4\) for words: give whole numbers above 0"),
        ("two", {"words": (7, 5)}, r"shape \(None, 7, 5\) for words, but two takes \(None, None, 4\)"),
        ("encoder", None, "has no known input shapes: give input_shapes="),
        ("encoder", (64, 64, 3), "the encoder takes images of shape"),
        (lambda: transformer(max_length=5), None, r"words is 9, but captions of .* have at most 5 tokens"),
        (lambda: SoftAttention(30, feature_size=7, **SMALL), {"pixels": (9, 7)}, r"names \['pixels'\]"),
        (lambda: SoftAttention(30, feature_size=7, **SMALL), (9, 8), "features of shape"),
    ],
)
def test_models_and_shapes_that_cannot_be_used_are_refused(request, make, given, message):
    model = request.getfixturevalue(make) if isinstance(make, str) else make()
    with pytest.raises(InputError, match=message):
        forward(model, [model], given)
