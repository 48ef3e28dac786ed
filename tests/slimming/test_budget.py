"""Parameters and FLOPs that slimming expects, compared with the summary of the models that it creates."""

import keras
import numpy as np
from keras import layers, ops

from tfsparsecap.model_summary.summarize import summary
from tfsparsecap.model_summary.summary_tables import ALL
from tfsparsecap.slimming.budget import ChannelCosts
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.rebuild import rebuild


def test_costs_equal_those_of_the_model_that_is_created(network):
    analysis = Analysis(trace(network))
    costs = ChannelCosts(analysis)
    alive = analysis.alive(np.concatenate([group.classes[: group.size // 3] for group in analysis.groups]))
    cost, model = costs(alive), rebuild(analysis, alive)[0]
    assert cost.parameters == model.count_params() and cost.bytes == 4 * cost.parameters
    if network.name != "by_hand":  # the summary does not count keras.ops.matmul
        assert 2 * cost.flops == summary(model, print_fn=str).totals[ALL].flops
    assert cost.latency > 0
    assert not costs.uncounted


def test_products_of_einsum_are_counted_and_other_operations_are_named():
    inputs = keras.Input((6, 8))
    query, key, value = (layers.Dense(16, use_bias=False)(inputs) for _ in range(3))
    scores = ops.einsum("bqd,bkd->bqk", query, key)
    joined = ops.einsum("bqk,bkd->bqd", scores, value)
    outputs = layers.Dense(2)(ops.einsum("bqd->bdq", joined))
    analysis = Analysis(trace(keras.Model(inputs, outputs)))
    costs = ChannelCosts(analysis)
    keys = next(group for group in analysis.groups if group.name.endswith("+ 1"))
    assert not costs.uncounted
    for removed, left in (([], 16), (keys.classes[:8], 8)):
        flops = 6 * 8 * (2 * left + 16) + 6 * 6 * (left + 16) + 6 * 16 * 2
        assert costs(analysis.alive(np.array(removed, int))).flops == flops
    others = [ops.tensordot(inputs, np.ones((8, 2)), 1), ops.einsum("...d,de->...e", inputs, np.ones((8, 2)))]
    uncounted = ChannelCosts(Analysis(trace(keras.Model(inputs, others)))).uncounted
    assert [name.split("_")[0] for name in sorted(uncounted)] == ["einsum", "tensordot"]
