"""The choice of the channels that slimming removes, and budgets that cannot be met."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.zero_channels import clear_kernels, randomize, zero_channels
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.budget import ChannelCosts
from tfsparsecap.slimming.channel_choice import RatioError, blocks, choose_channels, unused
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.plan import slim


@pytest.fixture
def analysis():
    """Two groups of 20 and 32 channels."""
    sizes = [keras.Input((4,)), layers.Dense(20, name="a"), layers.Dense(32, name="b"), layers.Dense(2)]
    return Analysis(trace(keras.Sequential(sizes, name="two")))


def test_equal_importance_removes_the_same_share_of_each_group(analysis):
    ordered_blocks = blocks(analysis, np.zeros(analysis.labels.size), 1, 0)
    half = np.concatenate(ordered_blocks[:26])
    assert sum(half < 20) == 10


@pytest.mark.parametrize(("budget", "ratio"), [("channels", 0.5), ("parameters", 0.4), ("flops", 0.6)])
def test_the_budget_is_met_with_the_fewest_channels(analysis, budget, ratio):
    costs, scores = ChannelCosts(analysis), np.arange(analysis.labels.size, dtype=float)
    choice = choose_channels(analysis, costs, scores, ratio, budget, 1, 0)
    assert 1 - getattr(choice.after, budget) / getattr(choice.before, budget) >= ratio
    less = costs(analysis.alive(choice.removed[:-1]))
    assert 1 - getattr(less, budget) / getattr(choice.before, budget) < ratio


@pytest.mark.parametrize(
    ("ratio", "multiple", "keep", "message"),
    [
        (0.95, 8, 0.1, "can lose at most 69% of its channels, not 95%: lower the ratio, keep=0.1 or multi"),
        (0.99, 1, 0, "two can lose at most .*: lower the ratio$"),
        (0.5, 8, 0.9, "with keep=0.9, no layer can lose 8; give a smaller keep= or multiple="),
        (0.5, 32, 0.1, "no layer has more than 32 that may go; give a smaller multiple="),
        (0.03, 8, 0.1, "two can lose 8% of its channels or none, and 3% is"),
    ],
)
def test_what_cannot_be_reached_is_refused(analysis, ratio, multiple, keep, message):
    with pytest.raises(InputError, match=message):
        choose_channels(
            analysis,
            ChannelCosts(analysis),
            np.zeros(analysis.labels.size),
            ratio,
            "channels",
            multiple,
            keep,
        )


@pytest.mark.parametrize(
    ("ratio", "stays", "message"),
    [
        (
            0.95,
            False,
            "r is 0.5, but two can lose at most 69% of its channels, not 95%: give about 0.69 or less",
        ),
        (0.03, True, "r is 0.5, .*: give about 0.92 or less"),
    ],
)
def test_errors_name_the_setting_that_gives_the_ratio(analysis, ratio, stays, message):
    with pytest.raises(RatioError) as caught:
        choose_channels(
            analysis, ChannelCosts(analysis), np.zeros(analysis.labels.size), ratio, "channels", 8, 0.1
        )
    with pytest.raises(InputError, match=message):
        raise caught.value.of_setting("r", 0.5, stays)


def test_unused_channels_go_in_whole_blocks(analysis):
    labels = np.zeros(analysis.labels.size, bool)
    labels[5:19] = labels[20:52] = True
    clear_kernels(analysis, labels)
    assert unused(analysis, 8).tolist() == [*range(5, 17), *range(20, 44)]


#: Networks with groups that are never without effect: normalised, attended or recurrent channels.
PARTLY = {"vision_transformer", "grouped", "recurrent", "by_hand", "windows"}


@pytest.mark.slow
def test_unused_channels_of_every_network_go_without_effect(networks, batch):
    for name, make in networks.items():
        network, rng = make(), np.random.default_rng(0)
        randomize(network, batch(network, rng), rng)
        chosen, exact = zero_channels(network, rng)
        assert exact == chosen or name in PARTLY, name
        before = network.count_params()
        smaller, x = slim(network, None, multiple=1), batch(network, rng)
        if exact:
            assert smaller.count_params() < before
        np.testing.assert_allclose(smaller(x), network(x), atol=1e-4, err_msg=name)
        assert network.count_params() == before
