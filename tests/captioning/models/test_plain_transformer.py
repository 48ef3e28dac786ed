"""The plain transformer: against Keras's own attention, by stepping, and with unequal encoder layers."""

import keras
import numpy as np
import pytest
from keras import ops

from tfsparsecap.captioning.models import ObjectRelationTransformer, Transformer
from tfsparsecap.captioning.models.transformer_layers import SharedAttention, map_positions, sinusoids
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import prune, strip_pruning

SMALL = {"size": 16, "hidden_size": 24, "layers": 2, "heads": 4, "max_length": 7, "feature_size": 7}


def make(kind=Transformer, **changes):
    keras.utils.set_random_seed(1)
    return kind(20, **{**SMALL, **changes})


class Grid(keras.layers.Layer):
    features_shape = (4, 7)


def test_attention_equals_keras_multi_head_attention():
    ours = SharedAttention(16, heads=3, head_size=4)
    x = keras.random.normal((2, 5, 16))
    outputs = ours(x)
    keras_layer = keras.layers.MultiHeadAttention(3, 4)
    keras_layer.build(x.shape, x.shape)
    kernels = [layer.kernel.numpy() for layer in (ours.query, ours.key, ours.value)]
    values = [array for kernel in kernels for array in (kernel.reshape(16, 3, 4), np.zeros((3, 4)))]
    keras_layer.set_weights([*values, ours.merge.kernel.numpy().reshape(3, 4, 16), np.zeros(16)])
    np.testing.assert_allclose(outputs, keras_layer(x, x), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Transformer, {}),
        (Transformer, {"decoder_layers": 1, "encoder_heads": [3, 1], "encoder_hidden_size": [8, 16]}),
        (
            ObjectRelationTransformer,
            {"encoder_heads": 2, "share_encoder_layers": [0, 0], "share_decoder_attention": "kv"},
        ),
        (
            ObjectRelationTransformer,
            {
                "share_encoder_attention": "qk",
                "share_decoder_attention": "qk",
                "share_decoder_layers": [0, 0],
            },
        ),
    ],
)
def test_stepping_equals_teacher_forcing(kind, changes, inputs):
    captioner = make(kind, **changes)
    corners = np.sort(np.random.default_rng(4).random((3, 4, 2, 2)), axis=2)
    inputs = {**inputs, "boxes": corners.reshape(3, 4, 4).astype("float32")}
    expected = captioner(inputs)
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    for position in range(6):
        logits, state = captioner.step(inputs["tokens"][:, position], state, memory)
        np.testing.assert_allclose(logits, expected[:, position], atol=1e-5)
    again = kind.from_config(captioner.get_config())
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in captioner.weights]


@pytest.mark.slow
def test_the_order_of_cells_matters_only_for_feature_maps(inputs):
    turned = {**inputs, "features": inputs["features"][:, ::-1]}
    of_regions, of_map = make(), make(encoder=Grid(), feature_size=None)
    np.testing.assert_allclose(of_regions(turned), of_regions(inputs), atol=1e-5)
    assert np.abs(of_map(turned) - of_map(inputs)).max() > 1e-3
    assert of_map.constant_tables().keys() == {"positions", "map_positions"}


def test_positions_of_a_map_are_those_of_row_and_column():
    table, axis_positions = map_positions(9, 8), sinusoids(3, 4)
    np.testing.assert_array_equal(table[5], np.concatenate([axis_positions[1], axis_positions[2]]))
    # Other numbers of cells are one row.
    np.testing.assert_array_equal(map_positions(5, 8)[:, 4:], sinusoids(5, 4))


def test_padded_regions_change_nothing(inputs):
    captioner = make()
    wide = {**inputs, "features": np.pad(inputs["features"], ((0, 0), (0, 3), (0, 0)))}
    np.testing.assert_allclose(captioner(wide), captioner(inputs), atol=1e-5)


@pytest.mark.slow
def test_learns_and_is_pruned_and_saved(inputs, tmp_path):
    captioner = prune(make(layers=1, encoder_heads=[2]), "magnitude", sparsity=0.5, total_steps=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    captioner.compile(keras.optimizers.Adam(0.03), loss, run_eagerly=True)
    before = loss(inputs["tokens"], captioner(inputs))
    captioner.fit(inputs, inputs["tokens"], epochs=3, verbose=0)
    assert loss(inputs["tokens"], captioner(inputs)) < 0.9 * before
    captioner = strip_pruning(captioner)
    assert float(ops.mean(captioner.encoder_layers[0].attention.query.kernel == 0)) > 0.1
    captioner.save(tmp_path / "a.keras")
    again = load_model(tmp_path / "a.keras", "save it again")
    np.testing.assert_allclose(again(inputs), captioner(inputs), atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "not a multiple of 3 heads"),
        ({"encoder_heads": [4, 4, 4]}, r"encoder_heads is \[4, 4, 4\]: give one value, or"),
        ({"encoder_hidden_size": []}, "encoder_hidden_size is"),
        ({"decoder_layers": 3, "share_decoder_layers": [0, 1]}, "for each of the 3 depths"),
    ],
)
def test_inconsistent_sizes_are_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        make(**changes)
