"""sc.slim and sc.slim_plan: what a plan shows, and the models and arguments that are refused."""

import keras
import numpy as np
import pytest
from keras import layers

import tfsparsecap as sc
from tfsparsecap.errors import InputError


def test_the_plan_shows_what_slim_does(networks):
    model = networks["residual"]()
    plan = sc.slim_plan(model, 0.5)
    slim = sc.slim(model, 0.5)
    assert plan.after.parameters == slim.count_params() and plan.before.parameters == model.count_params()
    (row,) = [row for row in plan.groups if row.name == "stem + 2"]
    assert (row.unit, row.layers, row.before) == ("channels", ("stem", "narrow_0", "narrow_1"), 16)
    assert slim.get_layer("stem").filters == row.after
    text = str(plan)
    assert "stem + 2" in text and "multiply-adds" in text and "estimated ms" in text
    assert repr(plan).startswith("<SlimPlan of residual: ")


def test_the_reason_of_a_layer_that_is_added_to_an_input_is_not_a_constant():
    inputs = keras.Input((16,))
    hidden = layers.Dense(16, name="held")(layers.Dense(32)(inputs))
    added = layers.Add(name="sum")([inputs, hidden])
    plan = sc.slim_plan(keras.Model(inputs, layers.Dense(2)(added)), 0.5)
    assert plan.whole["held"] == "sum combines it with channels that stay"


def test_skip_takes_layers_without_weights_and_nested_models():
    inner = keras.Sequential(
        [keras.Input((32,)), layers.Dense(24, name="a"), layers.Dense(24, name="b")], name="inner"
    )
    inputs = keras.Input((8,))
    x = layers.Activation("relu", name="activation")(layers.Dense(32, name="first")(inputs))
    model = keras.Model(inputs, layers.Dense(2, name="last")(inner(x)))
    for skip in ("inner", inner, ["inner"], "inn*"):
        assert sc.slim_plan(model, 0.3, skip=skip).whole.keys() == {"a", "b", "last"}
    with pytest.raises(InputError, match=r"a: skip contains inn[*]; b: skip contains inn[*]"):
        sc.slim(model, 0.3, skip=["inn*", "first"])
    assert sc.slim_plan(model, 0.3, skip=["activation"]).whole.keys() == {"first", "last"}


def test_a_measured_latency_decides_how_much_goes():
    stack = [keras.Input((4,)), layers.Dense(64, name="wide"), layers.Dense(2)]
    slim = sc.slim(
        keras.Sequential(stack), 0.25, budget="latency", latency=lambda model: model.get_layer("wide").units
    )
    assert slim.get_layer("wide").units == 48


def dense(*hidden):
    return keras.Sequential([keras.Input((4,)), *hidden, layers.Dense(2)])


def one_layer():
    return dense(layers.Dense(32))


def with_lambda():
    return dense(layers.Dense(32), layers.Lambda(lambda x: x + 1))


def without_rule():
    embedding = layers.TimeDistributed(layers.Embedding(9, 8), name="each")
    return dense(layers.Reshape((4, 1)), embedding, layers.Flatten())


def pruned():
    return sc.prune(one_layer(), "magnitude", sparsity=0.5)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (with_lambda, {}, r"no rule; .*; use layers or keras.ops that"),
        (dense, {}, r"the model returns it; only channels between two layers can be removed$"),
        (without_rule, {}, r"remove: each \(TimeDistributed\) has no rule; .* returns it; use layers or"),
        (one_layer, {"ratio": 1.5}, "ratio is 1.5: give a number above 0 and below 1"),
        (one_layer, {"skip": "absent"}, "skip contains 'absent'"),
        (one_layer, {"skip": "*"}, r"has no channels to remove: dense.*; skip fewer layers$"),
        (pruned, {}, r"call sc.strip_pruning before sc.slim"),
    ],
)
def test_models_and_arguments_that_cannot_be_used_are_refused(make, arguments, message):
    model = make()
    before = [weight.numpy() for weight in model.weights]
    with pytest.raises(InputError, match=message):
        sc.slim(model, **arguments)
    for old, now in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, now)
