"""The benchmark measures every variant and every captioner, and prints what was measured."""

import json
import re

import pytest

from benchmarks import training_steps as benchmark
from tfsparsecap.command import run
from tfsparsecap.errors import InputError

SMALL = {"size": 16, "hidden_size": 16, "layers": 2, "heads": 2, "share_encoder_layers": None}
SMALL["share_decoder_layers"] = None


def test_measures_each_variant_as_often_as_asked():
    sizes = {"embedding_size": 16, "rnn_size": 16, "attention_size": 16}
    seconds = benchmark.measure(steps=2, batch_size=2, words=3, **sizes)
    assert [variant for _, variant in seconds] == list(benchmark.VARIANTS)
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())


def test_measures_several_captioners_and_their_captions():
    seconds = benchmark.measure(["ort", "acort"], variants=["dense"], steps=1, batch_size=2, words=3, **SMALL)
    assert list(seconds) == [("ort", "dense"), ("acort", "dense")]
    seconds = benchmark.measure_decoding(["ort", "acort"], steps=2, batch_size=2, words=3, **SMALL)
    assert {name: len(values) for name, values in seconds.items()} == {"ort": 2, "acort": 2}


def test_a_self_critical_step_is_measured_beside_one_of_as_many_captions():
    options = {"variants": ["dense"], "steps": 2, "batch_size": 6, "words": 3, "samples": 3}
    seconds = benchmark.measure(["acort"], **options, **{**SMALL, "layers": 1})
    assert set(seconds) == {("acort", variant) for variant in ("dense", "self-critical", "reward")}
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())
    steps = zip(seconds["acort", "reward"], seconds["acort", "self-critical"], strict=True)
    assert all(reward < step for reward, step in steps)


def test_the_share_of_rewards_is_shown_beside_their_steps(monkeypatch, capsys):
    measured = {("a", "dense"): [1.0, 2.0], ("a", "self-critical"): [4.0, 8.0], ("a", "reward"): [0.1, 0.2]}
    given = {}
    monkeypatch.setattr(benchmark, "measure", lambda names, **options: given.update(options) or measured)
    benchmark.main(["--scst", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert given["samples"] == 5 and given["batch_size"] == 100 and given["variants"] == ["dense"]
    assert set(rows) == {"a, dense", "a, self-critical"} and "reward_share" not in rows["a, dense"]
    assert rows["a, self-critical"]["ratio"] == 4 and rows["a, self-critical"]["reward_share"] == 0.025
    benchmark.main(["--scst", "2", "--batch-size", "8"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 drawn of each of 4 images" in printed and re.search(r"self-critical.*4\.00.*2\.5%", printed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scst", "1"], "--scst is 1: draw 2"),
        (["--scst", "3", "--batch-size", "8"], "8 captions a step are no whole number of images"),
        (["--scst", "--decode"], "give one of them"),
        (["--steps", "0"], "--steps is 0: give at least 1"),
    ],
)
def test_options_that_make_no_step_are_named(options, message):
    with pytest.raises(InputError, match=message):
        benchmark.main(options)


def test_ratios_are_taken_pair_by_pair(monkeypatch, capsys):
    # The machine is twice as slow in the second round: only pairs tell that gates cost half as much again.
    measured = {("a", "dense"): [1.0, 2.0, 1.0], ("b", "gated"): [1.5, 3.0, 1.5], ("b", "dense"): [3.0] * 3}
    monkeypatch.setattr(benchmark, "measure", lambda captioners, **options: measured)
    benchmark.main(["--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows["b, gated"] == {"milliseconds": 1500.0, "ratio": 0.5, "to_first": 1.5}
    benchmark.main([])
    assert re.search(r"b, gated.*1500.*0\.50.*1\.50", capsys.readouterr().out)


def test_images_a_second_come_from_the_median_batch(monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "measure_decoding", lambda captioners, **options: {"a": [1.0, 9.0, 2.0]})
    benchmark.main(["--decode", "--batch-size", "8", "--json"])
    assert json.loads(capsys.readouterr().out) == {"a": {"images_a_second": 4.0}}


def test_an_unknown_captioner_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        run(lambda: benchmark.main(["--captioner", "x"]))
    assert end.value.code == 2 and "invalid choice" in capsys.readouterr().err
