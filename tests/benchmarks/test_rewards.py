"""The benchmark of rewards: both scorers get the same captions and agree on them."""

import json

import numpy as np
import pytest

from benchmarks import rewards as reward_benchmark


def test_both_scorers_agree(capsys):
    reward_benchmark.main(["--captions", "60", "--batch-size", "25", "--vocabulary", "200", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["score"] for row in rows] == ["CIDEr-D", "BLEU-4"]
    for row in rows:
        assert row["difference"] < 1e-9 and row["preparation"] > 0
        assert row["ratio"] == pytest.approx(row["captions_per_second"] / row["pycocoevalcap"])


@pytest.mark.parametrize("base", [None, 6])
def test_timed_reward_scores_captions_like_the_references(base):
    reward = reward_benchmark.TimedReward(30, 100, 40, base)
    tokens = np.full((60, 40), 7)
    rewards = reward(tokens, np.repeat(np.arange(30), 2))
    assert rewards.shape == (60,) and (rewards > 0.5).mean() > 0.9
    np.testing.assert_array_equal(rewards[::2], rewards[1::2])
    once = reward.seconds
    reward(tokens, np.repeat(np.arange(30), 2))
    assert reward.seconds > once > 0
