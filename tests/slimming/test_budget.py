"""Parameters and FLOPs that slimming expects, compared with the summary of the models that it creates."""

import numpy as np

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
