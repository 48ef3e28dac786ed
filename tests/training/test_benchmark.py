"""The benchmark measures every variant and every captioner, and prints what was measured."""

import json
import re

import pytest

from tfsparsecap.command import run
from tfsparsecap.training import benchmark

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
