"""The benchmark of rewards: both scorers see the same captions and agree on them."""

import json

import numpy as np
import pytest

from benchmarks import rewards as reward_benchmark
from tfsparsecap.errors import InputError


def test_captions_are_as_asked_for():
    references, captions = reward_benchmark.made_up(50, vocabulary=30)
    assert len(references) == len(captions) == 50 and {len(group) for group in references} == {5}
    assert (references, captions) == reward_benchmark.made_up(50, vocabulary=30)
    words = [word for group in references for text in group for word in text]
    assert 0 == min(words) < max(words) < 30
    assert 10 < len(words) / 250 < 11
    for group, caption in zip(references, captions, strict=True):
        assert set(caption) <= {*group[0], *group[1]}


def test_rows_say_that_both_agree(capsys):
    reward_benchmark.main(["--captions", "60", "--batch-size", "25", "--vocabulary", "200", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["score"] for row in rows] == ["CIDEr-D", "BLEU-4"]
    for row in rows:
        assert row["difference"] < 1e-9
        assert row["ratio"] == pytest.approx(row["captions_per_second"] / row["other"])
        assert row["preparation"] > 0


def test_a_table_is_printed(capsys):
    reward_benchmark.main(["--captions", "10"])
    printed = capsys.readouterr().out
    assert "10 captions with 5 references" in printed and "pycocoevalcap" in printed


@pytest.mark.parametrize("base", [None, 6])
def test_a_timed_reward_scores_captions_that_are_like_the_references(base):
    reward = reward_benchmark.TimedReward(30, 100, 40, base)
    drawn = np.full((60, 40), 7)
    rewards = reward(drawn, np.repeat(np.arange(30), 2))
    assert rewards.shape == (60,) and (rewards > 0.5).mean() > 0.9
    np.testing.assert_array_equal(rewards[::2], rewards[1::2])
    once = reward.seconds
    reward(drawn, np.repeat(np.arange(30), 2))
    assert reward.seconds > once > 0


@pytest.mark.parametrize("name", ["--captions", "--batch-size", "--vocabulary"])
def test_what_cannot_be_used_is_said(name):
    with pytest.raises(InputError, match=f"{name} is 0"):
        reward_benchmark.main([name, "0"])
