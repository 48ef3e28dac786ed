"""Heads and units of transformers are removed by their norms, and decoder layers by RTIC's equation 5."""

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.models import ObjectRelationTransformer, Transformer
from tfsparsecap.captioning.models.slim_transformer import slim_transformer
from tfsparsecap.errors import InputError

SIZES = {"size": 16, "hidden_size": 32, "layers": 3, "heads": 4, "max_length": 7, "feature_size": 7}


def make(kind=Transformer, **changes):
    keras.utils.set_random_seed(1)
    captioner = kind(20, **{**SIZES, **changes})
    random = np.random.default_rng(1)
    captioner.set_weights([value + random.normal(0, 0.1, value.shape) for value in captioner.get_weights()])
    return captioner


def with_boxes(captioner, inputs):
    if "boxes" not in captioner.input_names:
        return inputs
    boxes = np.sort(np.random.default_rng(4).random((3, 4, 4)).astype("float32"))
    return {**inputs, "boxes": boxes}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Transformer, {}),
        (ObjectRelationTransformer, {"share_encoder_attention": "qk"}),
        (ObjectRelationTransformer, {"share_encoder_layers": [0, 0, 1], "share_encoder_attention": "kv"}),
    ],
)
def test_removing_heads_and_units_without_influence_changes_nothing(kind, changes, inputs):
    captioner = make(kind, **changes)
    for layer in captioner.encoder_layers:
        attention, inner, outer = layer.attention, layer.feed_forward.inner, layer.feed_forward.outer
        # The second head: its projections are small, its values have a bias that still counts.
        for projection in attention.projections:
            kernel, bias = (np.array(value) for value in projection.get_weights())
            columns = slice(4, 8)
            if projection is attention.merge:
                kernel[columns] *= 0.01
            else:
                kernel[:, columns] = 0
            projection.set_weights([kernel, bias])
        kernel, bias = (np.array(value) for value in inner.get_weights())
        kernel[:, 5:13], bias[5:13] = 0, -1
        inner.set_weights([kernel, bias])
        kernel, bias = (np.array(value) for value in outer.get_weights())
        kernel[5:13] *= 0.01
        outer.set_weights([kernel, bias])
    inputs_with_boxes = with_boxes(captioner, inputs)
    slim, settings = slim_transformer(captioner, 0.75)
    distinct = len(captioner.encoder_layers)
    assert settings == {"encoder_heads": [3] * distinct, "encoder_hidden_size": [24] * distinct}
    np.testing.assert_allclose(slim(inputs_with_boxes), captioner(inputs_with_boxes), atol=1e-5)
    assert slim.count_params() < captioner.count_params()


@pytest.mark.slow
def test_decoder_layers_are_those_of_equation_5(inputs):
    captioner = make(layers=4, encoder_layers=1)
    slim, settings = slim_transformer(captioner, decoder_layers=3)
    assert settings == {"decoder_layers": 3}
    for new, index in zip(slim.decoder_layers, (0, 1, 3), strict=True):
        old = captioner.decoder_layers[index]
        for own, expected in zip(new.get_weights(), old.get_weights(), strict=True):
            np.testing.assert_array_equal(own, expected)
    # The encoder is whole, so the memory of the image is the same.
    features, expected = (model.encode(inputs)["features"] for model in (slim, captioner))
    np.testing.assert_allclose(features, expected, atol=1e-6)


@pytest.mark.slow
def test_layers_that_are_used_at_several_depths_stay_shared(inputs):
    captioner = make(ObjectRelationTransformer, layers=4, encoder_layers=1, share_decoder_layers=[0, 0, 1, 1])
    slim, settings = slim_transformer(captioner, 0.5, decoder_layers=3)
    assert settings["decoder_layers"] == 3 and settings["share_decoder_layers"] == [0, 0, 1]
    inputs_with_boxes = with_boxes(captioner, inputs)
    again = type(captioner).from_config(slim.get_config())
    again.set_weights(slim.get_weights())
    np.testing.assert_allclose(again(inputs_with_boxes), slim(inputs_with_boxes), atol=1e-6)
    slim, settings = slim_transformer(captioner, decoder_layers=1)
    assert settings["share_decoder_layers"] == [0] and len(slim.decoder_layers) == 1


def test_something_always_stays_and_shares_out_of_range_are_rejected():
    captioner = make(layers=1)
    _, settings = slim_transformer(captioner, 0.01)
    assert settings == {"encoder_heads": [1], "encoder_hidden_size": [8]}
    for width in (0.0, 1.1):
        with pytest.raises(InputError, match="encoder_width is"):
            slim_transformer(captioner, width)
    with pytest.raises(InputError, match="2 layers cannot be selected from 1"):
        slim_transformer(captioner, decoder_layers=2)
