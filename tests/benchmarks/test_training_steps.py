"""The benchmark of training steps: every variant and captioner runs, and ratios are computed in pairs."""

import json
import re

import pytest

from benchmarks import training_steps as benchmark

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("eager")]

SMALL = {"size": 16, "hidden_size": 16, "layers": 1, "heads": 2, "share_encoder_layers": None}
SMALL["share_decoder_layers"] = None


def test_steps_of_variants_are_measured():
    sizes, variants = (
        {"embedding_size": 16, "rnn_size": 16, "attention_size": 16},
        ["dense", "supermask (16, 1)"],
    )
    seconds = benchmark.measure(variants=variants, steps=1, batch_size=2, words=2, xla=True, **sizes)
    names = ["dense", "dense, XLA", "supermask (16, 1)", "supermask (16, 1), XLA"]
    assert list(seconds) == [("soft_attention_of_map", name) for name in names]
    assert all(len(values) == 1 and min(values) > 0 for values in seconds.values())


def test_beam_search_of_several_captioners_is_measured():
    seconds = benchmark.measure_decoding(["ort", "acort"], steps=2, batch_size=2, words=3, **SMALL)
    assert {name: len(values) for name, values in seconds.items()} == {"ort": 2, "acort": 2}


def test_self_critical_steps_and_their_rewards_are_measured(monkeypatch):
    monkeypatch.setattr(benchmark, "_REWARDED", 50)
    options = {"variants": ["dense"], "steps": 2, "batch_size": 6, "words": 3, "samples": 3}
    seconds = benchmark.measure(["acort"], **options, **SMALL)
    assert set(seconds) == {("acort", variant) for variant in ("dense", "self-critical", "reward")}
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())
    steps = zip(seconds["acort", "reward"], seconds["acort", "self-critical"], strict=True)
    assert all(reward < step for reward, step in steps)


def test_ratios_compare_steps_of_the_same_round(monkeypatch, capsys):
    # The machine is half as fast in the second round; only pairs show that gates cost 50 % more.
    measured = {("a", "dense"): [1.0, 2.0, 1.0], ("b", "gated"): [1.5, 3.0, 1.5], ("b", "dense"): [3.0] * 3}
    monkeypatch.setattr(benchmark, "measure", lambda captioners, **options: measured)
    benchmark.main(["--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows["b, gated"] == {"milliseconds": 1500.0, "ratio_to_dense": 0.5, "ratio_to_first": 1.5}
    benchmark.main([])
    assert re.search(r"b, gated.*1,500.*0\.50.*1\.50", capsys.readouterr().out)
