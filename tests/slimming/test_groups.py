"""Channels that can only be removed together, compared with the groups found by hand."""

import keras
import pytest
from keras import layers, ops

from tfsparsecap.errors import InputError
from tfsparsecap.slimming.groups import Analysis, skipped
from tfsparsecap.slimming.operation_graph import trace

#: Network -> (first source, unit, channels, and how many go at once: of a layer, of all) of each group.
GROUPS = {
    "residual": {
        ("stem + 2", "channels", 16, 1),
        ("wide_0", "channels", 32, 1),
        ("wide_1", "channels", 32, 1),
    },
    "dense_net": {
        ("grow_0", "channels", 16, 1),
        ("grow_1", "channels", 16, 1),
        ("grow_2", "channels", 16, 1),
        ("transition", "channels", 24, 1),
    },
    "decoder": {("grid", "units", 32, 16), ("up", "channels", 16, 1)},
    "squeeze_excite": {
        ("features + 1", "channels", 32, 1),
        ("reduce", "channels", 8, 1),
        ("separable", "channels", 16, 1),
    },
    "grouped": {("first", "channels", 8, 4), ("grouped", "channels", 16, 4), ("last", "channels", 16, 1)},
    "recurrent": {
        ("words", "units", 32, 1),
        ("both + 1", "forward units", 16, 1),
        ("each", "units", 16, 1),
        ("gru", "units", 24, 1),
    },
    "windows": {("patches + 1", "channels", 24, 1), ("attention", "heads", 4, 1), ("wide", "units", 48, 1)},
    "by_hand": {("key + 2", "units", 4, 8)},
}


@pytest.mark.parametrize("name", GROUPS)
def test_groups(networks, name):
    groups = Analysis(trace(networks[name]())).groups
    descriptions = {(group.name, group.unit, group.size, group.width) for group in groups}
    assert descriptions == GROUPS[name]


def test_attention_has_heads_key_and_value_sizes(networks):
    groups = Analysis(trace(networks["vision_transformer"]())).groups
    of_attention = {(group.unit, group.size) for group in groups if group.name == "attention_0"}
    assert of_attention == {("heads", 4), ("key size", 16), ("value size", 16)}
    assert ("patches + 5", 32) in {(group.name, group.size) for group in groups}


def test_outputs_and_skipped_layers_stay_whole(networks):
    model = networks["residual"]()
    graph = trace(model)
    reasons = Analysis(graph, skipped(graph, model, ["wide_*", model.get_layer("stem")])).reasons()
    assert reasons == {
        "stem": "skip contains stem",
        "wide_0": "skip contains wide_*",
        "wide_1": "skip contains wide_*",
        "narrow_0": "skip contains stem",
        "narrow_1": "skip contains stem",
        "classes": "the model returns it",
    }
    with pytest.raises(InputError, match=r"skip contains 'steem', but residual has no such layer"):
        skipped(graph, model, ["steem"])


def test_a_layer_without_rule_keeps_what_is_coupled_to_it():
    class Odd(layers.Dense):
        pass

    inputs = keras.Input((4,))
    x = layers.Dense(16, name="before")(inputs)
    y = layers.Dense(16, name="free")(x)
    x = layers.Add()([x, layers.Dense(16, name="beside")(y)])
    model = keras.Model(inputs, layers.Dense(2, name="after")(Odd(8, name="odd")(x)))
    analysis = Analysis(trace(model))
    assert analysis.unknown == {"odd": "Odd"}
    assert [group.name for group in analysis.groups] == ["free"]
    assert analysis.reasons()["beside"] == "odd (Odd) has no rule"


def with_scores(x):
    return layers.MultiHeadAttention(2, 4)(x, x, return_attention_scores=True)[0]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (with_scores, "MultiHeadAttention"),
        (lambda x: layers.GRU(16)(x, initial_state=x[:, 0]), "GRU"),
        (lambda x: layers.LSTM(16)(x, initial_state=[x[:, 0], x[:, 1]]), "LSTM"),
        (lambda x: layers.LayerNormalization(axis=(1, 2))(x), "LayerNormalization"),
        (lambda x: layers.GroupNormalization(2, axis=1)(x), "GroupNormalization"),
        (lambda x: layers.MaxPooling1D(data_format="channels_first")(x), "MaxPooling1D"),
        (lambda x: layers.GlobalAveragePooling1D(data_format="channels_first")(x), "GlobalAveragePooling1D"),
        (lambda x: layers.TimeDistributed(layers.LayerNormalization())(x), "TimeDistributed"),
        (lambda x: ops.einsum("...a,...a->...a", x, x), "Einsum"),
        (lambda x: ops.squeeze(x[:, :1]), "Squeeze"),
    ],
)
def test_a_layer_whose_rule_does_not_fit_is_named(make, kind):
    inputs = keras.Input((6, 4), batch_size=2)
    x = make(layers.Dense(16, name="before")(inputs))
    analysis = Analysis(trace(keras.Model(inputs, layers.Dense(2, name="after")(layers.Dense(8)(x)))))
    assert list(analysis.unknown.values()) == [kind]
    assert "has no rule" in analysis.reasons()["before"]


@pytest.mark.parametrize("first", [True, False])
def test_a_layer_keeps_its_channels_if_one_of_its_calls_has_no_rule(first):
    inputs = keras.Input((6, 4))
    gru, state = layers.GRU(16, name="shared"), layers.Dense(16, name="state")(inputs[:, 0])
    calls = [lambda: gru(inputs), lambda: gru(inputs, initial_state=state)]
    parts = [layers.Dense(8)(call()) for call in (calls if first else calls[::-1])]
    model = keras.Model(inputs, layers.Dense(2)(layers.Concatenate()(parts)))
    analysis = Analysis(trace(model))
    assert analysis.unknown == {"shared": "GRU"}
    assert {group.name for group in analysis.groups}.isdisjoint({"shared", "state"})


def test_a_shared_layer_couples_its_inputs():
    inputs = keras.Input((4,))
    shared = layers.Dense(8, name="shared")
    parts = [shared(layers.Dense(16, name=name)(inputs)) for name in ("left", "right")]
    model = keras.Model(inputs, layers.Dense(2)(layers.Add()(parts)))
    first, second = Analysis(trace(model)).groups
    assert {source.name for source in first.sources} == {"left", "right"}
    assert (first.size, second.name, second.size) == (16, "shared", 8)


def test_softmax_over_channels_keeps_them():
    x = inputs = keras.Input((4,))
    x = layers.Softmax()(layers.Dense(16, name="scores")(x))
    model = keras.Model(inputs, layers.Dense(2)(x))
    assert "works along the channels" in Analysis(trace(model)).reasons()["scores"]
